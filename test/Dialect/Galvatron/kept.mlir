// RUN: sed "s/406833d07facd8ca/0123456789abcdef/" %s | not galvatron-opt --galvatron-differentiate-layers --galvatron-insert-recompute 2>&1 | FileCheck %s --check-prefix=CHANGED
// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute | FileCheck %s
// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s --check-prefix=LOCAL

// A set that was made for another body is refused.
// CHANGED: expected kept values of its body 'mlp', 406833d07facd8ca, found those of 0123456789abcdef: the body has changed since they were chosen

// Kept are the statistics of the norm and the product: the normalised values,
// which the product's gradient reads, and the biased ones and their GELU are
// made again, each directly in front of what needs it. The last product, whose
// result backward does not need, is not.
// CHECK-LABEL: func.func private @mlp.kept0.forward(
// CHECK: %[[Y:.*]], %[[S:.*]] = nn.layer_norm
// CHECK: %[[H:.*]] = nn.linear %[[Y]]
// CHECK: %[[R:.*]] = nn.add
// CHECK: return %[[R]], %[[S]], %[[H]]
// CHECK-LABEL: func.func private @mlp.kept0.backward(
// CHECK-SAME: %arg2: tensor<?x8x2xf32> {nn.role = "stash"}, %arg3: tensor<?x8x64xf32> {nn.role = "stash"}
// CHECK-NOT: nn.linear %
// CHECK: %[[B:.*]] = nn.bias_add %arg3
// CHECK-NEXT: %[[A:.*]] = nn.gelu %[[B]]
// CHECK-NEXT: nn.linear_weight_grad %[[A]]
// CHECK-NEXT: nn.gelu_grad %[[B]]
// CHECK: %[[N:.*]], %{{.*}} = nn.layer_norm %arg1
// CHECK-NEXT: nn.linear_weight_grad %[[N]]
// CHECK: nn.layer_norm_grad %{{.*}}, %arg1, %arg2
// CHECK: galvatron.layer "m"
// CHECK-SAME: backward = @mlp.kept0.backward, forward = @mlp.kept0.forward

// A rank keeps its part of the product.
// LOCAL-LABEL: func.func private @mlp.kept0.tp2.b2.backward(
// LOCAL: %[[B:.*]] = nn.bias_add %arg3, %{{.*}} : (tensor<2x8x32xf32>, tensor<32xf32>)
// LOCAL-NEXT: nn.gelu %[[B]]

#plan = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>
module attributes {galvatron.plan = #plan} {
galvatron.parameter @"wte" : tensor<33x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"mlp.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.wi" : tensor<16x64xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bi" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.wf" : tensor<64x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bf" : tensor<16xf32> {init = "zeros"}
func.func private @embed(%tokens: tensor<?x8xi32>, %wte: tensor<33x16xf32> {nn.factors = ["vocab", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %0 = nn.embedding %tokens, %wte : (tensor<?x8xi32>, tensor<33x16xf32>) -> tensor<?x8x16xf32>
  return %0 : tensor<?x8x16xf32>
}
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
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>) {
  %x = galvatron.layer "wte" @embed(%tokens) params [@"wte"] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %0 = galvatron.layer "m" @mlp(%x) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[tp = 2], ckpt = 1>, kept = #galvatron.kept<"406833d07facd8ca", ["0:1", "1"]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output
}
}
