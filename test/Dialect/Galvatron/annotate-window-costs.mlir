// RUN: galvatron-opt %s --galvatron-annotate-costs | FileCheck %s

// Attention inside windows: 4 windows of 4 positions, 2 heads of size 3. A product
// of all heads takes 2 * 4 * 2 * (4 * 4) * 3 = 768 FLOPs a sample, whatever other
// windows there are. Forward has two, backward five: scores anew, and the gradients
// of values, probabilities, queries and keys.
galvatron.parameter @bias : tensor<9x2xf32> {init = "zeros"}

func.func private @attention(%x: tensor<?x4x4x2x3xf32>, %table: tensor<9x2xf32>) -> tensor<?x4x4x6xf32> {
  %o, %l = nn.window_attention %x, %x, %x, %table {window = 2 : i64, across = 2 : i64, scale = 5.0e-1 : f64} : (tensor<?x4x4x2x3xf32>, tensor<?x4x4x2x3xf32>, tensor<?x4x4x2x3xf32>, tensor<9x2xf32>) -> (tensor<?x4x4x6xf32>, tensor<?x4x2x4xf32>)
  return %o : tensor<?x4x4x6xf32>
}
galvatron.model @m(%x: tensor<?x4x4x2x3xf32> is <images>) {
  // CHECK: galvatron.layer "a"
  // CHECK-SAME: forward_flops = 1.536000e+03 : f64, backward_flops = 3.840000e+03 : f64
  %0 = galvatron.layer "a" @attention(%x) params [@bias] : (tensor<?x4x4x2x3xf32>) -> tensor<?x4x4x6xf32>
  galvatron.output %0 : tensor<?x4x4x6xf32>
}
