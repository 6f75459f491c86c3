// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// Under Ulysses no parameter is cut, and the first operation that takes rows slices
// its block off, as under context parallelism. In front of attention blocks are
// exchanged for all positions of a part of the heads, behind it back, and in backward
// the other way. Queries, keys and values are kept by heads, as attention takes them;
// so is its output, which is exchanged once more for its product's gradient.

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
  %0 = galvatron.layer "l" @body(%x) params [@q, @k, @v, @o] {strategy = #galvatron.strategy<[up = 2]>, stage = 0 : i64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}

// CHECK-LABEL: func.func private @body.up2.b2.forward(
// CHECK-SAME: tensor<2x6x2x2xf32> {nn.role = "stash"}, tensor<2x6x1x2xf32> {nn.role = "stash"}, tensor<2x6x1x2xf32> {nn.role = "stash"}, tensor<2x6x4xf32> {nn.role = "stash"}, tensor<2x2x6xf32> {nn.role = "stash"})
// CHECK-NEXT: [[X:%[a-z0-9_]+]] = galvatron.slice_rows %arg0 over{{ +}}cp : tensor<2x6x8xf32> -> tensor<6x8xf32, #nn.rows<length = 6, degree = 2>>
// CHECK: [[R:%[a-z0-9_]+]] = nn.rotary
// CHECK: [[K:%[a-z0-9_]+]] = nn.linear [[X]], %arg2
// CHECK: [[V:%[a-z0-9_]+]] = nn.linear [[X]], %arg3
// CHECK-NEXT: [[QUERIES:%[a-z0-9_]+]] = galvatron.all_to_all [[R]] dim 2 over{{ +}}cp : tensor<6x4x2xf32, #nn.rows<length = 6, degree = 2>> -> tensor<2x6x2x2xf32>
// CHECK-NEXT: [[KEYS:%[a-z0-9_]+]] = galvatron.all_to_all [[K]] dim 2 over{{ +}}cp : tensor<6x2x2xf32, #nn.rows<length = 6, degree = 2>> -> tensor<2x6x1x2xf32>
// CHECK-NEXT: [[VALUES:%[a-z0-9_]+]] = galvatron.all_to_all [[V]]
// CHECK-NEXT: [[O:%[a-z0-9_]+]], [[LSE:%[a-z0-9_]+]] = nn.grouped_attention [[QUERIES]], [[KEYS]], [[VALUES]] {{.*}}heads_of_blocks{{.*}} -> (tensor<2x6x4xf32>, tensor<2x2x6xf32>)
// CHECK-NEXT: [[ROWS:%[a-z0-9_]+]] = galvatron.all_to_all [[O]] dim 2 over{{ +}}cp : tensor<2x6x4xf32> -> tensor<6x8xf32, #nn.rows<length = 6, degree = 2>>
// CHECK-NEXT: nn.linear [[ROWS]], %arg4
// CHECK: return {{.*}}, [[QUERIES]], [[KEYS]], [[VALUES]], [[O]], [[LSE]] :
// CHECK-LABEL: func.func private @body.up2.b2.backward(
// CHECK-SAME: %arg2: tensor<2x6x2x2xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK: galvatron.all_to_all %arg5 dim 2
// CHECK: [[DO:%[a-z0-9_]+]] = galvatron.all_to_all {{.*}} -> tensor<2x6x4xf32>
// CHECK: nn.grouped_attention_grad %arg2, %arg3, %arg4, %arg5, %arg6, [[DO]] {{.*}}heads_of_blocks
// CHECK-COUNT-3: galvatron.all_to_all {{.*}} -> tensor<6x{{[24]}}x2xf32, #nn.rows<length = 6, degree = 2>>
// CHECK-NOT: all_to_all
// CHECK: return

// -----

// Two key heads of four ranks: each goes to two, and what these make of its gradient
// is summed. Its blocks are less to keep.
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
  %0 = galvatron.layer "l" @body(%x) params [@q, @k, @v, @o] {strategy = #galvatron.strategy<[up = 4]>, stage = 0 : i64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}
// CHECK-LABEL: func.func private @body.up4.b2.forward(
// CHECK-SAME: tensor<2x6x1x2xf32> {nn.role = "stash"}, tensor<3x2x2xf32, #nn.rows<length = 6, degree = 4>> {nn.role = "stash"}
// CHECK: galvatron.all_to_all {{.*}} : tensor<3x4x2xf32, #nn.rows<length = 6, degree = 4>> -> tensor<2x6x1x2xf32>
// CHECK-COUNT-2: galvatron.all_to_all {{.*}} : tensor<3x2x2xf32, #nn.rows<length = 6, degree = 4>> -> tensor<2x6x1x2xf32>
// CHECK-LABEL: func.func private @body.up4.b2.backward(
// CHECK: galvatron.all_to_all %arg3 dim 2 over{{ +}}cp : tensor<3x2x2xf32, #nn.rows<length = 6, degree = 4>> -> tensor<2x6x1x2xf32>
// CHECK: nn.grouped_attention_grad
// CHECK: galvatron.all_to_all %dv dim 2 over{{ +}}cp : tensor<2x6x1x2xf32> -> tensor<3x2x2xf32, #nn.rows<length = 6, degree = 4>>
