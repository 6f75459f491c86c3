// RUN: galvatron-test-opt %s --split-input-file --verify-diagnostics --galvatron-differentiate-layers

galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x8x16xf32> {
  %0 = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  // expected-error@below {{expected an operation with a gradient, found 'test_nn.opaque'}}
  %1 = test_nn.opaque %0 : tensor<?x8x16xf32>
  return %1 : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w] : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
