// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// Under tensor and sequence parallelism sums go into blocks of rows, what meets them
// row by row takes blocks as well, and products with a split weight gather them. What
// is whole stays so until then. Gradients of parameters that operations on blocks
// have are terms of a sum.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @v : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @b : tensor<8xf32> {init = "zeros"}
galvatron.parameter @g : tensor<8xf32> {init = "ones"}
galvatron.parameter @w : tensor<8x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @u : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @body(%z: tensor<?x3x8xf32>, %v: tensor<16x8xf32> {nn.factors = ["ffn", ""]}, %b: tensor<8xf32>, %g: tensor<8xf32>,
    %w: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %u: tensor<16x8xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x3x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %i = nn.linear %z, %w : (tensor<?x3x8xf32>, tensor<8x16xf32>) -> tensor<?x3x16xf32>
  %p = nn.linear %i, %v : (tensor<?x3x16xf32>, tensor<16x8xf32>) -> tensor<?x3x8xf32>
  %c = nn.bias_add %p, %b : (tensor<?x3x8xf32>, tensor<8xf32>) -> tensor<?x3x8xf32>
  %r = nn.add %z, %c : (tensor<?x3x8xf32>, tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  %n, %s = nn.rms_norm %r, %g {eps = 1.0e-5 : f64} : (tensor<?x3x8xf32>, tensor<8xf32>) -> (tensor<?x3x8xf32>, tensor<?x3x1xf32>)
  %h = nn.linear %n, %w : (tensor<?x3x8xf32>, tensor<8x16xf32>) -> tensor<?x3x16xf32>
  %a = nn.gelu %h : (tensor<?x3x16xf32>) -> tensor<?x3x16xf32>
  %q = nn.linear %a, %u : (tensor<?x3x16xf32>, tensor<16x8xf32>) -> tensor<?x3x8xf32>
  %o = nn.add %r, %q : (tensor<?x3x8xf32>, tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  return %o : tensor<?x3x8xf32>
}
galvatron.model @toy(%z: tensor<?x3x8xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%z) params [@v, @b, @g, @w, @u] {strategy = #galvatron.strategy<[tsp = 4]>, stage = 0 : i64} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  galvatron.output %0 : tensor<?x3x8xf32>
}
}
// CHECK-LABEL: func.func private @body.tsp4.b4.forward(
// CHECK-NEXT: nn.linear %arg0
// CHECK-NEXT: [[P:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[P]] over{{ +}}tp : tensor<4x3x8xf32> -> tensor<3x8xf32, #nn.rows<length = 3, degree = 4>>
// CHECK-NEXT: [[C:%[a-z0-9_]+]] = nn.bias_add [[SUM]]
// CHECK-NEXT: [[Z:%[a-z0-9_]+]] = galvatron.slice_rows %arg0 over{{ +}}tp : tensor<4x3x8xf32> -> tensor<3x8xf32, #nn.rows<length = 3, degree = 4>>
// CHECK-NEXT: [[R:%[a-z0-9_]+]] = nn.add [[Z]], [[C]]
// CHECK-NEXT: [[N:%[a-z0-9_]+]], [[S:%[a-z0-9_]+]] = nn.rms_norm [[R]]
// CHECK-NEXT: [[ALL:%[a-z0-9_]+]] = galvatron.gather_rows [[N]] over{{ +}}tp : tensor<3x8xf32, #nn.rows<length = 3, degree = 4>> -> tensor<4x3x8xf32>
// CHECK-NEXT: nn.linear [[ALL]], {{.*}} -> tensor<4x3x4xf32>
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: [[Q:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[MORE:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[Q]]
// CHECK-NEXT: [[O:%[a-z0-9_]+]] = nn.add [[R]], [[MORE]]
// CHECK-NEXT: [[OUT:%[a-z0-9_]+]] = galvatron.gather_rows [[O]]
// What is kept is kept as it was made: blocks of the sum and of the norm's result.
// CHECK-NEXT: return [[OUT]], {{%[a-z0-9_]+}}, [[R]], [[N]], [[S]]
// CHECK-LABEL: func.func private @body.tsp4.b4.backward(
// CHECK-SAME: tensor<3x8xf32, #nn.rows<length = 3, degree = 4>> {galvatron.slice = #galvatron.slice<state = <[rows]>>, nn.role = "stash"}
// CHECK-NEXT: nn.linear_input_grad %arg0
// CHECK: [[DN:%[a-z0-9_]+]] = nn.linear_input_grad {{.*}} -> tensor<4x3x8xf32>
// The product's gradient gathers its input once more.
// CHECK-NEXT: [[AGAIN:%[a-z0-9_]+]] = galvatron.gather_rows %arg4
// CHECK-NEXT: nn.linear_weight_grad [[AGAIN]]
// CHECK-NEXT: [[ROWS:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[DN]]
// CHECK-NEXT: [[DX:%[a-z0-9_]+]], [[DG:%[a-z0-9_]+]] = nn.rms_norm_grad [[ROWS]], %arg3, %arg5
// CHECK: [[DR:%[a-z0-9_]+]] = nn.add {{%[a-z0-9_]+}}, [[DX]]
// CHECK-NEXT: [[DB:%[a-z0-9_]+]] = nn.bias_grad [[DR]]
// CHECK-NEXT: [[DP:%[a-z0-9_]+]] = galvatron.gather_rows [[DR]]
// CHECK-NEXT: nn.linear_input_grad [[DP]]
// CHECK: galvatron.all_reduce [[DB]] over{{ +}}tp : tensor<8xf32>
// CHECK-NEXT: galvatron.all_reduce [[DG]] over{{ +}}tp : tensor<8xf32>

// -----

// Operations that cannot take blocks of rows gather them: a path that drops samples,
// a token of each.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @v : tensor<8x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @g : tensor<8xf32> {init = "ones"}
func.func private @tail(%x: tensor<?x2x8xf32>, %v: tensor<8x8xf32> {nn.factors = ["ffn", ""]}, %w: tensor<8x8xf32> {nn.factors = ["", "ffn"]}, %g: tensor<8xf32>) -> tensor<?x8xf32>
    attributes {nn.factor_units = {ffn = 8 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x2x8xf32>, tensor<8x8xf32>) -> tensor<?x2x8xf32>
  %p = nn.linear %h, %v : (tensor<?x2x8xf32>, tensor<8x8xf32>) -> tensor<?x2x8xf32>
  %n, %s = nn.rms_norm %p, %g {eps = 1.0e-5 : f64} : (tensor<?x2x8xf32>, tensor<8xf32>) -> (tensor<?x2x8xf32>, tensor<?x2x1xf32>)
  %d = nn.drop_path %n {first_layer = 0 : i64, op_index = 0 : i64, rate = 0.1 : f64} : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %t = nn.take %d {position = 0 : i64} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  %y = nn.gelu %t : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
galvatron.parameter @w : tensor<8x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.model @toy(%x: tensor<?x2x8xf32> is <images>) {
  %0 = galvatron.layer "l" @tail(%x) params [@v, @w, @g] {strategy = #galvatron.strategy<[tsp = 2]>, stage = 0 : i64} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  galvatron.output %0 : tensor<?x8xf32>
}
}
// CHECK-LABEL: func.func private @tail.tsp2.b4.forward(
// CHECK: [[ROWS:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows
// CHECK-NEXT: [[N:%[a-z0-9_]+]], {{.*}} = nn.rms_norm [[ROWS]]
// CHECK-NEXT: [[ALL:%[a-z0-9_]+]] = galvatron.gather_rows [[N]]
// CHECK-NEXT: nn.drop_path [[ALL]]
// CHECK-NEXT: nn.take
// CHECK-NEXT: nn.gelu {{.*}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
