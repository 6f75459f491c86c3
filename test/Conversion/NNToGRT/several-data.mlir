// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-partition-layers,galvatron-insert-collectives,convert-nn-to-grt)' | FileCheck %s

// A layer that reads three of the model's data, one of them of floating-point
// numbers. Each begins at the next multiple of 64 behind the local samples of
// the one before, in the order of the body's arguments; none has a gradient.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<33x16xf32> {init = "zeros"}
func.func private @body(%t: tensor<?x5xi32>, %m: tensor<?x5x16xf32>, %l: tensor<?x5xi32>, %w: tensor<33x16xf32>) -> tensor<1xf64> {
  %x = nn.embedding %t, %w : (tensor<?x5xi32>, tensor<33x16xf32>) -> tensor<?x5x16xf32>
  %s = nn.add %x, %m : (tensor<?x5x16xf32>, tensor<?x5x16xf32>) -> tensor<?x5x16xf32>
  %y = nn.linear %s, %w {transpose_weight} : (tensor<?x5x16xf32>, tensor<33x16xf32>) -> tensor<?x5x33xf32>
  %z, %d = nn.cross_entropy %y, %l {classes = 33 : i64} : (tensor<?x5x33xf32>, tensor<?x5xi32>) -> (tensor<1xf64>, tensor<?x5x33xf32>)
  return %z : tensor<1xf64>
}
galvatron.model @m(%l: tensor<?x5xi32> is <labels, below = 33>, %t: tensor<?x5xi32> is <tokens, below = 33>, %m: tensor<?x5x16xf32> is <mask, name = "pixels">) {
  %0 = galvatron.layer "l" @body(%t, %m, %l) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x5xi32>, tensor<?x5x16xf32>, tensor<?x5xi32>) -> tensor<1xf64>
  galvatron.output %0 : tensor<1xf64>
}
}

// CHECK-LABEL: grt.func @body.b4.forward
// CHECK-SAME: input_bytes = 0
// CHECK: grt.buffer data at 0 : memref<4x5xi32>
// CHECK: grt.buffer data at 128 : memref<4x5x16xf32>
// CHECK: grt.buffer data at 1408 : memref<4x5xi32>
// CHECK-LABEL: grt.func @body.b4.backward
// CHECK-NOT: grad_out
// CHECK: galvatron.layer "l"
// CHECK-SAME: data = ["tokens", "pixels", "labels"]
