// RUN: sed "s/BODY/3e1f/" %s | not galvatron-opt --galvatron-differentiate-layers --galvatron-insert-recompute 2>&1 | FileCheck %s --check-prefix=CHANGED
// RUN: sed "s/BODY/$(sed 's/BODY/3e1f/' %s | not galvatron-opt --galvatron-differentiate-layers --galvatron-insert-recompute 2>&1 | sed -n 's/.*of its body .@mlp., \([0-9a-f]*\), found.*/\1/p')/" %s > %t.mlir
// RUN: galvatron-opt %t.mlir --galvatron-differentiate-layers --galvatron-insert-recompute | FileCheck %s
// RUN: galvatron-opt %t.mlir --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s --check-prefix=LOCAL

// A set that was made for another body is refused.
// CHANGED: expected kept values of its body '@mlp', {{[0-9a-f]*}}, found those of 3e1f: the body has changed since they were chosen

// Kept are the statistics of the norm and the product: the normalised values,
// which the product's gradient reads, and the biased ones and their GELU are
// made again, each directly in front of what needs it. The last product, whose
// result backward does not need, is not.
// CHECK-LABEL: func.func private @mlp.kept0.forward(
// CHECK: %[[N:.*]], %[[S:.*]] = nn.layer_norm
// CHECK: %[[H:.*]] = nn.linear %[[N]]
// CHECK: %[[R:.*]] = nn.add
// CHECK: return %[[R]], %[[S]], %[[H]]
// CHECK-LABEL: func.func private @mlp.kept0.backward(
// CHECK-SAME: %[[S:arg2]]: tensor<?x8x2xf32> {nn.role = "stash"}, %[[H:arg3]]: tensor<?x8x64xf32> {nn.role = "stash"}
// CHECK: nn.dropout_grad
// CHECK: %[[B:.*]] = nn.bias_add %[[H]]
// CHECK: %[[A:.*]] = nn.gelu %[[B]]
// CHECK: nn.gelu_grad
// CHECK: nn.layer_norm %arg1
// CHECK: nn.layer_norm_grad
// CHECK: galvatron.layer "m"
// CHECK-SAME: backward = @mlp.kept0.backward, forward = @mlp.kept0.forward

// What is kept of the product is its part, of which the sum is none.
// LOCAL-LABEL: func.func private @mlp.kept0.tp2.b2.backward(
// LOCAL: nn.bias_add %{{.*}} (tensor<2x8x32xf32>, tensor<32xf32>)
// LOCAL: nn.gelu

#plan = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>
module attributes {galvatron.plan = #plan} {
galvatron.parameter @"mlp.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"mlp.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.wi" : tensor<16x64xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bi" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.wf" : tensor<64x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bf" : tensor<16xf32> {init = "zeros"}
func.func private @mlp(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>,
    %wi: tensor<16x64xf32> {nn.factors = ["", "ffn"]}, %bi: tensor<64xf32> {nn.factors = ["ffn"]},
    %wf: tensor<64x16xf32> {nn.factors = ["ffn", ""]}, %bf: tensor<16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 64 : i64}} {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %h = nn.linear %n, %wi : (tensor<?x8x16xf32>, tensor<16x64xf32>) -> tensor<?x8x64xf32>
  %hb = nn.bias_add %h, %bi : (tensor<?x8x64xf32>, tensor<64xf32>) -> tensor<?x8x64xf32>
  %a = nn.gelu %hb {approximate} : (tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
  %f = nn.linear %a, %wf : (tensor<?x8x64xf32>, tensor<64x16xf32>) -> tensor<?x8x16xf32>
  %fb = nn.bias_add %f, %bf : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  %fd = nn.dropout %fb {p = 1.0e-1 : f64, op_index = 2 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %r = nn.add %x, %fd : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %r : tensor<?x8x16xf32>
}
galvatron.model @toy(%x: tensor<?x8x16xf32> is <pixels>) {
  %0 = galvatron.layer "m" @mlp(%x) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[tp = 2], ckpt = 1>, kept = #galvatron.kept<"BODY", ["0:1", "1"]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output
}
}
