// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// Under tensor and sequence parallelism what works row by row takes blocks of rows:
// the input's is sliced, sums go into blocks, and products with a split weight
// gather them. Gradients of parameters that such operations have are terms of a sum.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @g : tensor<8xf32> {init = "ones"}
galvatron.parameter @w : tensor<8x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @v : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @b : tensor<8xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x3x8xf32>, %g: tensor<8xf32>, %w: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %v: tensor<16x8xf32> {nn.factors = ["ffn", ""]}, %b: tensor<8xf32>) -> tensor<?x3x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %n, %s = nn.rms_norm %x, %g {eps = 1.0e-5 : f64} : (tensor<?x3x8xf32>, tensor<8xf32>) -> (tensor<?x3x8xf32>, tensor<?x3x1xf32>)
  %h = nn.linear %n, %w : (tensor<?x3x8xf32>, tensor<8x16xf32>) -> tensor<?x3x16xf32>
  %a = nn.gelu %h : (tensor<?x3x16xf32>) -> tensor<?x3x16xf32>
  %p = nn.linear %a, %v : (tensor<?x3x16xf32>, tensor<16x8xf32>) -> tensor<?x3x8xf32>
  %c = nn.bias_add %p, %b : (tensor<?x3x8xf32>, tensor<8xf32>) -> tensor<?x3x8xf32>
  %r = nn.add %x, %c : (tensor<?x3x8xf32>, tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  return %r : tensor<?x3x8xf32>
}
galvatron.model @toy(%x: tensor<?x3x8xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@g, @w, @v, @b] {strategy = #galvatron.strategy<[tsp = 4]>, stage = 0 : i64} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  galvatron.output %0 : tensor<?x3x8xf32>
}
}
// CHECK-LABEL: func.func private @body.tsp4.b4.forward(
// CHECK-NEXT: [[X:%[a-z0-9_]+]] = galvatron.slice_rows %arg0 over{{ +}}tp : tensor<4x3x8xf32> -> tensor<3x8xf32, #nn.rows<length = 3, degree = 4>>
// CHECK-NEXT: [[N:%[a-z0-9_]+]], {{.*}} = nn.rms_norm [[X]]
// CHECK-NEXT: [[ALL:%[a-z0-9_]+]] = galvatron.gather_rows [[N]] over{{ +}}tp : tensor<3x8xf32, #nn.rows<length = 3, degree = 4>> -> tensor<4x3x8xf32>
// CHECK-NEXT: [[H:%[a-z0-9_]+]] = nn.linear [[ALL]], {{.*}} -> tensor<4x3x4xf32>
// CHECK-NEXT: [[A:%[a-z0-9_]+]] = nn.gelu [[H]]
// CHECK-NEXT: [[P:%[a-z0-9_]+]] = nn.linear [[A]]
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[P]] over{{ +}}tp : tensor<4x3x8xf32> -> tensor<3x8xf32, #nn.rows<length = 3, degree = 4>>
// CHECK-NEXT: [[C:%[a-z0-9_]+]] = nn.bias_add [[SUM]]
// CHECK-NEXT: [[R:%[a-z0-9_]+]] = nn.add [[X]], [[C]]
// CHECK-NEXT: [[OUT:%[a-z0-9_]+]] = galvatron.gather_rows [[R]]
// What is kept is kept as it was made: blocks of the norm's result.
// CHECK-NEXT: return [[OUT]], [[N]], {{.*}} tensor<3x8xf32, #nn.rows<length = 3, degree = 4>>, tensor<3x1xf32, #nn.rows<length = 3, degree = 4>>
// CHECK-LABEL: func.func private @body.tsp4.b4.backward(
// CHECK-SAME: tensor<3x8xf32, #nn.rows<length = 3, degree = 4>> {galvatron.slice = #galvatron.slice<state = <[rows]>>, nn.role = "stash"}
// CHECK-NEXT: [[DY:%[a-z0-9_]+]] = galvatron.slice_rows %arg0
// CHECK-NEXT: [[DB:%[a-z0-9_]+]] = nn.bias_grad [[DY]]
// The product reads the gradient as it came, for it is whole.
// CHECK-NEXT: nn.linear_input_grad %arg0
// CHECK: [[DX:%[a-z0-9_]+]] = nn.linear_input_grad {{.*}} -> tensor<4x3x8xf32>
// CHECK-NEXT: galvatron.gather_rows %arg2
// CHECK-NEXT: nn.linear_weight_grad
// CHECK: galvatron.reduce_scatter_rows [[DX]]
// CHECK: [[DG:%[a-z0-9_]+]] = galvatron.all_reduce %{{.*}} over{{ +}}tp : tensor<8xf32>
// CHECK-NEXT: galvatron.all_reduce [[DB]] over{{ +}}tp : tensor<8xf32>

// -----

// Operations that cannot take blocks of rows gather them, and what is whole stays
// whole: a class token, positions of a table, a path that drops samples.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @g : tensor<8xf32> {init = "ones"}
func.func private @tail(%x: tensor<?x2x8xf32>, %g: tensor<8xf32>) -> tensor<?x8xf32> {
  %n, %s = nn.rms_norm %x, %g {eps = 1.0e-5 : f64} : (tensor<?x2x8xf32>, tensor<8xf32>) -> (tensor<?x2x8xf32>, tensor<?x2x1xf32>)
  %d = nn.drop_path %n {first_layer = 0 : i64, op_index = 0 : i64, rate = 0.1 : f64} : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %t = nn.take %d {position = 0 : i64} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  %y = nn.gelu %t : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
galvatron.model @toy(%x: tensor<?x2x8xf32> is <images>) {
  %0 = galvatron.layer "l" @tail(%x) params [@g] {strategy = #galvatron.strategy<[tsp = 2]>, stage = 0 : i64} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  galvatron.output %0 : tensor<?x8xf32>
}
}
// CHECK-LABEL: func.func private @tail.tsp2.b4.forward(
// CHECK: [[N:%[a-z0-9_]+]], {{.*}} = nn.rms_norm
// CHECK-NEXT: [[ALL:%[a-z0-9_]+]] = galvatron.gather_rows [[N]]
// CHECK-NEXT: nn.drop_path [[ALL]]
// CHECK-NEXT: nn.take
// CHECK-NEXT: nn.gelu {{.*}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
