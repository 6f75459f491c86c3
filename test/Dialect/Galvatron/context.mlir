// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// Under context parallelism no parameter is cut, and the first operation that takes
// rows slices its block off. Attention takes queries in blocks and keys and values
// whole, which are gathered; since it is causal, blocks are balanced. In backward
// keys and values are gathered again and their gradients are scattered. Gradients of
// all parameters leave as terms of a sum, which the executor makes once a step.

module attributes {galvatron.plan = #galvatron.plan<batch = 2, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @q : tensor<8x2x4xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @k : tensor<8x1x4xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @v : tensor<8x1x4xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @o : tensor<8x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @body(%x: tensor<?x6x8xf32>, %q: tensor<8x2x4xf32> {nn.factors = ["", "heads", ""]}, %k: tensor<8x1x4xf32>, %v: tensor<8x1x4xf32>, %o: tensor<8x8xf32>) -> tensor<?x6x8xf32>
    attributes {nn.factor_units = {heads = 2 : i64}} {
  %0 = nn.linear %x, %q : (tensor<?x6x8xf32>, tensor<8x2x4xf32>) -> tensor<?x6x2x4xf32>
  %1 = nn.rotary %0 {frequencies = array<f64: 1.0, 0.01>} : (tensor<?x6x2x4xf32>) -> tensor<?x6x2x4xf32>
  %2 = nn.linear %x, %k : (tensor<?x6x8xf32>, tensor<8x1x4xf32>) -> tensor<?x6x1x4xf32>
  %3 = nn.linear %x, %v : (tensor<?x6x8xf32>, tensor<8x1x4xf32>) -> tensor<?x6x1x4xf32>
  %a, %lse = nn.grouped_attention %1, %2, %3 {causal, scale = 0.5 : f64, dropout = 1.0e-1 : f64} : (tensor<?x6x2x4xf32>, tensor<?x6x1x4xf32>, tensor<?x6x1x4xf32>) -> (tensor<?x6x8xf32>, tensor<?x2x6xf32>)
  %4 = nn.linear %a, %o : (tensor<?x6x8xf32>, tensor<8x8xf32>) -> tensor<?x6x8xf32>
  %5 = nn.add %x, %4 : (tensor<?x6x8xf32>, tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  return %5 : tensor<?x6x8xf32>
}
galvatron.model @toy(%x: tensor<?x6x8xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@q, @k, @v, @o] {strategy = #galvatron.strategy<[cp = 3]>, stage = 0 : i64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}
// CHECK-LABEL: func.func private @body.cp3.b2.forward(
// CHECK-NEXT: [[X:%[a-z0-9_]+]] = galvatron.slice_rows %arg0 over{{ +}}cp : tensor<2x6x8xf32> -> tensor<4x8xf32, #nn.rows<length = 6, degree = 3, balanced = true>>
// CHECK-NEXT: [[Q:%[a-z0-9_]+]] = nn.linear [[X]], %arg1 : {{.*}} -> tensor<4x2x4xf32, #nn.rows<length = 6, degree = 3, balanced = true>>
// CHECK-NEXT: [[R:%[a-z0-9_]+]] = nn.rotary [[Q]]
// CHECK-NEXT: [[K:%[a-z0-9_]+]] = nn.linear [[X]], %arg2
// CHECK-NEXT: [[V:%[a-z0-9_]+]] = nn.linear [[X]], %arg3
// CHECK-NEXT: [[KEYS:%[a-z0-9_]+]] = galvatron.gather_rows [[K]] over{{ +}}cp : {{.*}} -> tensor<2x6x1x4xf32>
// CHECK-NEXT: [[VALUES:%[a-z0-9_]+]] = galvatron.gather_rows [[V]]
// CHECK-NEXT: [[O:%[a-z0-9_]+]], [[LSE:%[a-z0-9_]+]] = nn.grouped_attention [[R]], [[KEYS]], [[VALUES]] {{.*}} -> (tensor<4x8xf32, #nn.rows<length = 6, degree = 3, balanced = true>>, tensor<4x2xf32, #nn.rows<length = 6, degree = 3, balanced = true>>)
// CHECK-NEXT: [[P:%[a-z0-9_]+]] = nn.linear [[O]]
// CHECK-NEXT: [[Y:%[a-z0-9_]+]] = nn.add [[X]], [[P]]
// CHECK-NEXT: [[OUT:%[a-z0-9_]+]] = galvatron.gather_rows [[Y]]
// CHECK-NEXT: return [[OUT]],
// CHECK-LABEL: func.func private @body.cp3.b2.backward(
// CHECK-SAME: tensor<4x2xf32, #nn.rows<length = 6, degree = 3, balanced = true>> {galvatron.slice = #galvatron.slice<state = <[balanced rows 2]>>, nn.role = "stash"}
// CHECK: nn.grouped_attention_grad
// CHECK-SAME: -> (tensor<4x2x4xf32, #nn.rows<length = 6, degree = 3, balanced = true>>, tensor<2x6x1x4xf32>, tensor<2x6x1x4xf32>)
// CHECK: galvatron.reduce_scatter_rows
// CHECK-SAME: -> tensor<4x1x4xf32, #nn.rows<length = 6, degree = 3, balanced = true>>
// CHECK: galvatron.reduce_scatter_rows
// CHECK-NOT: galvatron.all_reduce
// CHECK: return

// -----

// Layers without products are done by every rank: a gather of what they make would
// move more than they work. In backward a rank has the terms of its own rows, so that
// all gradients of a step are summed alike.

module attributes {galvatron.plan = #galvatron.plan<batch = 2, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @t : tensor<5x8xf32> {init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @p : tensor<6x8xf32> {init = "normal", std = 2.0e-2 : f64}
func.func private @embed(%tokens: tensor<?x6xi32>, %t: tensor<5x8xf32>, %p: tensor<6x8xf32>) -> tensor<?x6x8xf32> {
  %0 = nn.embedding %tokens, %t : (tensor<?x6xi32>, tensor<5x8xf32>) -> tensor<?x6x8xf32>
  %1 = nn.position_add %0, %p : (tensor<?x6x8xf32>, tensor<6x8xf32>) -> tensor<?x6x8xf32>
  %2 = nn.dropout %1 {p = 1.0e-1 : f64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  return %2 : tensor<?x6x8xf32>
}
galvatron.model @toy(%tokens: tensor<?x6xi32> is <tokens, below = 5>) {
  %0 = galvatron.layer "l" @embed(%tokens) params [@t, @p] {strategy = #galvatron.strategy<[cp = 2]>, stage = 0 : i64} : (tensor<?x6xi32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}
// CHECK-LABEL: func.func private @embed.cp2.b2.forward(
// CHECK-NOT: over
// CHECK: return
// CHECK-LABEL: func.func private @embed.cp2.b2.backward(
// CHECK-SAME: [[TOKENS:%[a-z0-9_]+]]: tensor<2x6xi32>
// CHECK: [[DY:%[a-z0-9_]+]] = galvatron.slice_rows {{.*}} over{{ +}}cp : tensor<2x6x8xf32> -> tensor<6x8xf32, #nn.rows<length = 6, degree = 2>>
// CHECK: [[DX:%[a-z0-9_]+]] = nn.dropout [[DY]]
// CHECK-DAG: nn.position_grad [[DX]]
// CHECK-DAG: nn.embedding_grad [[TOKENS]], [[DX]]
// CHECK-NOT: over
// CHECK: return

// -----

// What every rank computes whole is a term on the first: a projection of whole
// samples.

module attributes {galvatron.plan = #galvatron.plan<batch = 2, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<8x4xf32> {init = "normal", std = 2.0e-2 : f64}
func.func private @head(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>) -> tensor<?x4xf32> {
  %0 = nn.linear %x, %w : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
galvatron.model @toy(%x: tensor<?x8xf32> is <images>) {
  %0 = galvatron.layer "l" @head(%x) params [@w] {strategy = #galvatron.strategy<[cp = 2]>, stage = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x4xf32>
  galvatron.output %0 : tensor<?x4xf32>
}
}
// CHECK-LABEL: func.func private @head.cp2.b2.backward(
// CHECK: [[DW:%[a-z0-9_]+]] = nn.linear_weight_grad
// CHECK: [[TERM:%[a-z0-9_]+]] = galvatron.first_term [[DW]] over{{ +}}cp : tensor<8x4xf32>
// CHECK: return {{.*}}[[TERM]]

// -----

// Beside tensor parallelism a value is split on one axis and in blocks on the other.

module attributes {galvatron.plan = #galvatron.plan<batch = 2, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @q : tensor<8x2x4xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @o : tensor<8x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @both(%x: tensor<?x6x8xf32>, %q: tensor<8x2x4xf32> {nn.factors = ["", "heads", ""]}, %o: tensor<8x8xf32> {nn.factors = ["heads", ""]}) -> tensor<?x6x8xf32>
    attributes {nn.factor_units = {heads = 2 : i64}} {
  %0 = nn.linear %x, %q : (tensor<?x6x8xf32>, tensor<8x2x4xf32>) -> tensor<?x6x2x4xf32>
  %a, %lse = nn.grouped_attention %0, %0, %0 {scale = 0.5 : f64, dropout = 0.0 : f64} : (tensor<?x6x2x4xf32>, tensor<?x6x2x4xf32>, tensor<?x6x2x4xf32>) -> (tensor<?x6x8xf32>, tensor<?x2x6xf32>)
  %4 = nn.linear %a, %o : (tensor<?x6x8xf32>, tensor<8x8xf32>) -> tensor<?x6x8xf32>
  return %4 : tensor<?x6x8xf32>
}
galvatron.model @toy(%x: tensor<?x6x8xf32> is <images>) {
  %0 = galvatron.layer "l" @both(%x) params [@q, @o] {strategy = #galvatron.strategy<[tp = 2, cp = 2]>, stage = 0 : i64} : (tensor<?x6x8xf32>) -> tensor<?x6x8xf32>
  galvatron.output %0 : tensor<?x6x8xf32>
}
}
// CHECK-LABEL: func.func private @both.tp2.cp2.b2.forward(
// CHECK: [[Q:%[a-z0-9_]+]] = nn.linear {{.*}} -> tensor<6x1x4xf32, #nn.rows<length = 6, degree = 2>>
// CHECK: galvatron.gather_rows [[Q]] over{{ +}}cp : {{.*}} -> tensor<2x6x1x4xf32>
// CHECK: [[P:%[a-z0-9_]+]] = nn.linear {{.*}} -> tensor<6x8xf32, #nn.rows<length = 6, degree = 2>>
// CHECK: [[S:%[a-z0-9_]+]] = galvatron.all_reduce [[P]] over{{ +}}tp
// CHECK: galvatron.gather_rows [[S]] over{{ +}}cp
// CHECK-LABEL: func.func private @both.tp2.cp2.b2.backward(
// CHECK: galvatron.reduce_scatter_rows {{.*}} over{{ +}}cp : tensor<2x6x1x4xf32> -> tensor<6x1x4xf32, #nn.rows<length = 6, degree = 2>>
