// Calls of the kernels that none of the compiled models has.
grt.func @f {
  %x = grt.buffer input at 0 : memref<2x3x4xf32>
  %y = grt.buffer output at 0 : memref<2x3x4xf32>
  %z = grt.buffer output at 128 : memref<2x4x3xf32>
  %part = grt.buffer stash at 0 : memref<3x4xf32>
  grt.kernel gelu(%x, %y) ints [24, 1] : memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel gated_gelu(%x, %x, %y) ints [24] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel gated_gelu_grad(%x, %x, %x, %y, %y) ints [24] : memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>, memref<2x3x4xf32>
  grt.kernel transpose(%x, %z) ints [2, 3, 4] : memref<2x3x4xf32>, memref<2x4x3xf32>
  grt.kernel own_part(%x, %part) ints [1, 2, 12, 3, 0] : memref<2x3x4xf32>, memref<3x4xf32>
  grt.kernel own_part(%part, %x) ints [1, 2, 12, 3, 1] : memref<3x4xf32>, memref<2x3x4xf32>
}
