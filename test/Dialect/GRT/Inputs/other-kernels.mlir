// Calls of the kernels that none of the compiled models has.
grt.func @f {
  %x = grt.buffer input at 0 : memref<2x3x4xf32>
  %y = grt.buffer output at 0 : memref<2x3x4xf32>
  %z = grt.buffer output at 128 : memref<2x4x3xf32>
  %part = grt.buffer stash at 0 : memref<3x4xf32>
  grt.kernel gelu(%x, %y) ints [24, 1] : memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel gated_gelu(%x, %x, %y) ints [24, 0] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel gated_gelu_grad(%x, %x, %x, %y, %y) ints [24, 1] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel transpose(%x, %z) ints [2, 3, 4] : memref<2x3x4xf32>, memref<2x4x3xf32>
  grt.kernel own_part(%x, %part) ints [1, 2, 12, 3, 0] : memref<2x3x4xf32>, memref<3x4xf32>
  grt.kernel own_part(%part, %x) ints [1, 2, 12, 3, 1] : memref<3x4xf32>, memref<2x3x4xf32>
  %gamma = grt.buffer parameter at 0 : memref<4xf32>
  %dgamma = grt.buffer gradient at 0 : memref<4xf32>
  %stats = grt.buffer stash at 64 : memref<6x2xf32>
  grt.kernel soft_cap(%x, %y) ints [24] reals [2.0] : memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel soft_cap_grad(%x, %x, %y) ints [24] reals [2.0] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel clip(%x, %y) ints [24] reals [2.0] : memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel clip_grad(%x, %x, %y) ints [24] reals [2.0] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel plain_norm(%x, %y, %stats) ints [6, 4] reals [1.0e-5] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<6x2xf32>
  grt.kernel plain_norm_grad(%x, %x, %stats, %y) ints [6, 4] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<6x2xf32>, memref<2x3x4xf32>
  grt.kernel column_scale(%x, %gamma, %y) ints [6, 4] : memref<2x3x4xf32>, memref<4xf32>, memref<2x3x4xf32>
  grt.kernel column_scale_grad(%x, %x, %dgamma) ints [6, 4, 0] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<4xf32>
  grt.kernel centered_norm(%x, %gamma, %y, %stats) ints [6, 4] reals [1.0e-5] : memref<2x3x4xf32>, memref<4xf32>, memref<2x3x4xf32>, memref<6x2xf32>
  grt.kernel centered_norm_grad(%x, %x, %stats, %gamma, %y, %dgamma) ints [6, 4, 0] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<6x2xf32>, memref<4xf32>, memref<2x3x4xf32>, memref<4xf32>
  %lse = grt.buffer stash at 128 : memref<2x2x3xf32>
  %q = grt.buffer input at 128 : memref<2x3x8xf32>
  %o = grt.buffer output at 256 : memref<2x3x8xf32>
  %s = grt.buffer transient : memref<262144xi8>
  grt.begin %s : memref<262144xi8>
  grt.kernel shaped_attention(%q, %q, %q, %o, %lse, %s) ints [2, 3, 3, 2, 2, 4, 8, 8, 8, 1, 0, 0, 0, 0] reals [0.5, 0.0, 2.0, 1.0]
    : memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x2x3xf32>, memref<262144xi8>
  grt.kernel shaped_attention_grad(%q, %q, %q, %o, %lse, %o, %q, %q, %q, %s) ints [2, 3, 3, 2, 2, 4, 8, 8, 8, 1, 0, 0, 0, 0] reals [0.5, 0.0, 2.0, 1.0]
    : memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x2x3xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<262144xi8>
  %mask = grt.buffer data at 64 : memref<4x3xi32>
  %sums = grt.buffer output at 1024 : memref<6x8xf32>
  %logs = grt.buffer stash at 512 : memref<2x6xf32>
  %rows = grt.buffer input at 1024 : memref<6x8xf32>
  grt.kernel ring_attention(%q, %q, %q, %sums, %logs, %s, %mask) ints [1, 6, 6, 2, 2, 4, 8, 8, 8, 0, 0, 0, 1, 3, 0, 12, 1, 1] reals [0.5, 0.0]
    : memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<6x8xf32>, memref<2x6xf32>, memref<262144xi8>, memref<4x3xi32>
  grt.kernel ring_attention_grad(%q, %q, %q, %rows, %logs, %rows, %sums, %sums, %sums, %s, %mask) ints [1, 6, 6, 2, 2, 4, 8, 8, 8, 0, 0, 0, 1, 3, 0, 12, 1, 1] reals [0.5, 0.0]
    : memref<2x3x8xf32>, memref<2x3x8xf32>, memref<2x3x8xf32>, memref<6x8xf32>, memref<2x6xf32>, memref<6x8xf32>, memref<6x8xf32>, memref<6x8xf32>, memref<6x8xf32>, memref<262144xi8>, memref<4x3xi32>
  grt.kernel round(%q, %o) ints [48] : memref<2x3x8xf32>, memref<2x3x8xf32>
  grt.end %s : memref<262144xi8>
  %one = grt.buffer input at 512 : memref<2x8xf32>
  %keys = grt.buffer parameter at 64 : memref<2x2x5x4xf32>
  %values = grt.buffer parameter at 384 : memref<2x2x5x4xf32>
  %places = grt.buffer input at 640 : memref<2xi32>
  %given = grt.buffer output at 512 : memref<2x8xf32>
  grt.kernel cached_attention(%one, %one, %one, %keys, %values, %places, %places, %given) ints [2, 2, 5, 2, 2, 4, 8, 8, 8, 0, 0, 0, 0] reals [0.5, 0.0, 1.0]
    : memref<2x8xf32>, memref<2x8xf32>, memref<2x8xf32>, memref<2x2x5x4xf32>, memref<2x2x5x4xf32>, memref<2xi32>, memref<2xi32>, memref<2x8xf32>
  %source = grt.buffer input at 2048 : memref<2x5x8xf32>
  grt.kernel cached_cross_attention(%one, %source, %source, %keys, %values, %places, %places, %places, %given) ints [2, 2, 5, 2, 2, 4, 8, 8, 8] reals [0.5]
    : memref<2x8xf32>, memref<2x5x8xf32>, memref<2x5x8xf32>, memref<2x2x5x4xf32>, memref<2x2x5x4xf32>, memref<2xi32>, memref<2xi32>, memref<2xi32>, memref<2x8xf32>
  %distances = grt.buffer input at 3072 : memref<2x4x11xf32>
  grt.kernel cached_attention(%one, %one, %one, %keys, %values, %places, %places, %given, %distances) ints [2, 2, 5, 2, 2, 4, 8, 8, 8, 0, 1, 4, 11] reals [0.5, 0.0, 0.0]
    : memref<2x8xf32>, memref<2x8xf32>, memref<2x8xf32>, memref<2x2x5x4xf32>, memref<2x2x5x4xf32>, memref<2xi32>, memref<2xi32>, memref<2x8xf32>, memref<2x4x11xf32>
  grt.kernel rotary(%one, %given, %places) ints [2, 1, 2, 4, 0, 2, 0, 0, 0, 1] reals [1.0, 1.0, 0.5]
    : memref<2x8xf32>, memref<2x8xf32>, memref<2xi32>
  %labels = grt.buffer data at 0 : memref<2x3xi32>
  %four = grt.buffer stash at 256 : memref<6x4xf32>
  %losses = grt.buffer loss at 0 : memref<2xf64>
  grt.kernel regularized_stats(%x, %labels, %four) ints [6, 4, 4, 0] : memref<2x3x4xf32>, memref<2x3xi32>, memref<6x4xf32>
  grt.kernel regularized_cross_entropy(%x, %labels, %four, %y, %losses) ints [6, 4, 4, 0, 1] reals [0.1, 1.0e-4] : memref<2x3x4xf32>, memref<2x3xi32>, memref<6x4xf32>, memref<2x3x4xf32>, memref<2xf64>
}
