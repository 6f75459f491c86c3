// RUN: galvatron-opt %s -verify-diagnostics --convert-nn-to-grt

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x8x16xf32> {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  return %h : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{expected layer 'l' to have partitioned functions}}
  %0 = galvatron.layer "l" @body(%x) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}
