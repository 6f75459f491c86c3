// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-insert-recompute,galvatron-partition-layers,galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s

// A table that is looked up from row 2 on is read, and its gradient written, by
// a view of the rows from there on; rows in front get zeros.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @places : tensor<10x16xf32> {init = "zeros"}
galvatron.parameter @w : tensor<16x64xf32> {init = "zeros"}
func.func private @embed(%tokens: tensor<?x8xi32>, %t: tensor<10x16xf32>) -> tensor<?x8x16xf32> {
  %0 = nn.embedding %tokens, %t {first = 2 : i64} : (tensor<?x8xi32>, tensor<10x16xf32>) -> tensor<?x8x16xf32>
  return %0 : tensor<?x8x16xf32>
}
func.func private @head(%x: tensor<?x8x16xf32>, %labels: tensor<?x8xi32>, %w: tensor<16x64xf32>) -> tensor<1xf64> {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x64xf32>) -> tensor<?x8x64xf32>
  %loss, %d = nn.cross_entropy %h, %labels {classes = 64 : i64} : (tensor<?x8x64xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x64xf32>)
  return %loss : tensor<1xf64>
}
galvatron.model @m(%tokens: tensor<?x8xi32> is <tokens, below = 8>, %labels: tensor<?x8xi32> is <labels, below = 64>) {
  %0 = galvatron.layer "places" @embed(%tokens) params [@places] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "head" @head(%0, %labels) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %1 : tensor<1xf64>
}
}

// CHECK-LABEL: grt.func @embed.b2.forward
// CHECK: [[TABLE:%.*]] = grt.buffer parameter at 0 : memref<10x16xf32>
// CHECK: [[ROWS:%.*]] = grt.view [[TABLE]] at 128 : memref<10x16xf32> to memref<128xf32>
// CHECK: grt.kernel embedding({{%.*}}, [[ROWS]], {{%.*}}) ints [16, 16, 8, 0]

// CHECK-LABEL: grt.func @embed.b2.backward
// CHECK: [[SUMS:%.*]] = grt.buffer transient : memref<10x16xf32>
// CHECK: grt.kernel zero([[SUMS]])
// CHECK: [[ROWS:%.*]] = grt.view [[SUMS]] at 128 : memref<10x16xf32> to memref<128xf32>
// CHECK: grt.kernel embedding_grad({{%.*}}, {{%.*}}, [[ROWS]]) ints [16, 16, 8, 0, 1, -1]
// CHECK: grt.kernel bias_grad([[SUMS]], {{%.*}}) ints [1, 160, 2] {label = "accumulate"}
