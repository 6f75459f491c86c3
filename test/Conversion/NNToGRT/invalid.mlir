// RUN: galvatron-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-partition-layers,galvatron-insert-collectives,convert-nn-to-grt)'

// expected-error@below {{expected the attributes 'galvatron.plan' and 'galvatron.training'}}
module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x8x16xf32> {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  return %h : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Functions call data by the names that the model gives them.
module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<33x16xf32> {init = "zeros"}
func.func private @body(%t: tensor<?x8xi32>, %l: tensor<?x8xi32>, %w: tensor<33x16xf32>) -> tensor<1xf64> {
  %x = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<33x16xf32>) -> tensor<?x8x16xf32>
  %y = nn.linear %x, %w {transpose_weight} : (tensor<?x8x16xf32>, tensor<33x16xf32>) -> tensor<?x8x33xf32>
  %z, %d = nn.cross_entropy %y, %l {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return %z : tensor<1xf64>
}
// expected-error@below {{expected the arguments to say what they are}}
galvatron.model @m(%x: tensor<?x8xi32>, %l: tensor<?x8xi32>) {
  %0 = galvatron.layer "l" @body(%x, %l) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8xi32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %0 : tensor<1xf64>
}
}
