// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// In a ring no parameter is cut, and attention is a list of steps, one for each block
// of keys: a shift stands in front of the step that has the block still. Forward
// passes keys and values on once less than there are ranks. Backward passes their
// gradients on behind every step, so that they come home behind the last.

module attributes {galvatron.plan = #galvatron.plan<batch = 2, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @q : tensor<8x4x2xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @k : tensor<8x2x2xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @v : tensor<8x2x2xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @o : tensor<8x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @body(%x: tensor<?x6x8xf32>, %q: tensor<8x4x2xf32>, %k: tensor<8x2x2xf32>, %v: tensor<8x2x2xf32>, %o: tensor<8x8xf32>) -> tensor<?x6x8xf32> {
  %0 = nn.linear %x, %q : (tensor<?x6x8xf32>, tensor<8x4x2xf32>) -> tensor<?x6x4x2xf32>
  %1 = nn.rotary %0 {frequencies = array<f64: 1.0>} : (tensor<?x6x4x2xf32>) -> tensor<?x6x4x2xf32>
  %2 = nn.linear %x, %k : (tensor<?x6x8xf32>, tensor<8x2x2xf32>) -> tensor<?x6x2x2xf32>
  %3 = nn.linear %x, %v : (tensor<?x6x8xf32>, tensor<8x2x2xf32>) -> tensor<?x6x2x2xf32>
  %a, %lse = nn.grouped_attention %1, %2, %3 {causal, scale = 0.5 : f64, dropout = 1.0e-1 : f64} : (tensor<?x6x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>) -> (tensor<?x6x8xf32>, tensor<?x4x6xf32>)
  %4 = nn.linear %a, %o : (tensor<?x6x8xf32>, tensor<8x8xf32>) -> tensor<?x6x8xf32>
  %5 = nn.add %x, %4 : (tensor<?x6x8xf32>, tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  return %5 : tensor<?x6x8xf32>
}
galvatron.model @toy(%x: tensor<?x6x8xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@q, @k, @v, @o] {strategy = #galvatron.strategy<[ring = 3]>, stage = 0 : i64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}

// CHECK-LABEL: func.func private @body.ring3.b2.forward(
// CHECK: [[Q:%[a-z0-9_]+]] = nn.rotary
// CHECK: [[K:%[a-z0-9_]+]] = nn.linear {{.*}}, %arg2
// CHECK: [[V:%[a-z0-9_]+]] = nn.linear {{.*}}, %arg3
// CHECK-NEXT: [[K1:%[a-z0-9_]+]] = galvatron.shift [[K]] over{{ +}}cp : tensor<4x2x2xf32, #nn.rows<length = 6, degree = 3, balanced = true>>
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = galvatron.shift [[V]] over{{ +}}cp
// CHECK-NEXT: [[O0:%[a-z0-9_]+]], [[L0:%[a-z0-9_]+]] = nn.ring_attention [[Q]], [[K]], [[V]] {causal, distance = 0 : i64
// CHECK-NEXT: [[K2:%[a-z0-9_]+]] = galvatron.shift [[K1]]
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = galvatron.shift [[V1]]
// CHECK-NEXT: [[O1:%[a-z0-9_]+]], [[L1:%[a-z0-9_]+]] = nn.ring_attention [[Q]], [[K1]], [[V1]] from [[O0]], [[L0]] {causal, distance = 1 : i64
// CHECK-NEXT: [[O2:%[a-z0-9_]+]], [[L2:%[a-z0-9_]+]] = nn.ring_attention [[Q]], [[K2]], [[V2]] from [[O1]], [[L1]] {causal, distance = 2 : i64
// CHECK-NEXT: nn.linear [[O2]], %arg4
// CHECK: return {{.*}}, [[Q]], [[K]], [[V]], [[O2]], [[L2]] :
// CHECK-LABEL: func.func private @body.ring3.b2.backward(
// CHECK: nn.ring_attention_grad {{.*}} distance = 0 : i64
// CHECK-NEXT: [[DK0:%[a-z0-9_]+]] = galvatron.shift %dk
// CHECK-NEXT: [[DV0:%[a-z0-9_]+]] = galvatron.shift %dv
// CHECK: nn.ring_attention_grad {{.*}} from %dq, [[DK0]], [[DV0]] {{.*}} distance = 1 : i64
// CHECK-COUNT-2: galvatron.shift %d
// CHECK-NEXT: nn.ring_attention_grad {{.*}} distance = 2 : i64
// CHECK-COUNT-2: galvatron.shift %d
// CHECK-NOT: galvatron.shift
// CHECK: return
