// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// Rows are cut twice: ranks that divide positions have blocks of all rows, in
// products too, and between products the ranks of tensor parallelism have blocks of
// these. Blocks are cut from the outside in, and joined from the inside out.

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
  %0 = galvatron.layer "l" @body(%z) params [@v, @b, @g, @w, @u] {strategy = #galvatron.strategy<[cp = 2, tsp = 2]>, stage = 0 : i64} : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  galvatron.output %0 : tensor<?x3x8xf32>
}
}
// CHECK-LABEL: func.func private @body.cp2.tsp2.b4.forward(
// CHECK-NEXT: [[BLOCK:%[a-z0-9_]+]] = galvatron.slice_rows %arg0 over{{ +}}cp : tensor<4x3x8xf32> -> tensor<6x8xf32, #nn.rows<length = 3, degree = 2>>
// CHECK-NEXT: nn.linear [[BLOCK]]
// CHECK-NEXT: [[P:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[P]] over{{ +}}tp : tensor<6x8xf32, #nn.rows<length = 3, degree = 2>> -> tensor<3x8xf32, #nn.rows<length = 3, degree = 4, within = 2>>
// CHECK-NEXT: [[C:%[a-z0-9_]+]] = nn.bias_add [[SUM]]
// CHECK-NEXT: [[Z:%[a-z0-9_]+]] = galvatron.slice_rows [[BLOCK]] over{{ +}}tp
// CHECK-NEXT: [[R:%[a-z0-9_]+]] = nn.add [[Z]], [[C]]
// CHECK-NEXT: [[N:%[a-z0-9_]+]], [[S:%[a-z0-9_]+]] = nn.rms_norm [[R]]
// CHECK-NEXT: [[ALL:%[a-z0-9_]+]] = galvatron.gather_rows [[N]] over{{ +}}tp : tensor<3x8xf32, #nn.rows<length = 3, degree = 4, within = 2>> -> tensor<6x8xf32, #nn.rows<length = 3, degree = 2>>
// CHECK-NEXT: nn.linear [[ALL]]
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: [[Q:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[MORE:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[Q]] over{{ +}}tp
// CHECK-NEXT: [[O:%[a-z0-9_]+]] = nn.add [[R]], [[MORE]]
// CHECK-NEXT: [[JOINED:%[a-z0-9_]+]] = galvatron.gather_rows [[O]] over{{ +}}tp
// CHECK-NEXT: [[OUT:%[a-z0-9_]+]] = galvatron.gather_rows [[JOINED]] over{{ +}}cp
// CHECK-NEXT: return [[OUT]], {{%[a-z0-9_]+}}, [[R]], [[N]], [[S]]
// CHECK-LABEL: func.func private @body.cp2.tsp2.b4.backward(
// CHECK-SAME: tensor<3x8xf32, #nn.rows<length = 3, degree = 4, within = 2>> {galvatron.slice = #galvatron.slice<state = <[rows, rows]>>, nn.role = "stash"}
