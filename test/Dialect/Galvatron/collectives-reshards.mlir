// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s

// The order of levels decides which samples a rank holds; the paradigm that
// splits them does not.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @"wte" : tensor<33x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"wpe" : tensor<12x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"mlp.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.wi" : tensor<16x64xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bi" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.wf" : tensor<64x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bf" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"lnf.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"lnf.b" : tensor<16xf32> {init = "zeros"}
func.func private @embed(%tokens: tensor<?x8xi32>, %wte: tensor<33x16xf32> {nn.factors = ["vocab", ""]}, %wpe: tensor<12x16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %0 = nn.embedding %tokens, %wte : (tensor<?x8xi32>, tensor<33x16xf32>) -> tensor<?x8x16xf32>
  %1 = nn.position_add %0, %wpe : (tensor<?x8x16xf32>, tensor<12x16xf32>) -> tensor<?x8x16xf32>
  %2 = nn.dropout %1 {p = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %2 : tensor<?x8x16xf32>
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
func.func private @head(%x: tensor<?x8x16xf32>, %labels: tensor<?x8xi32>, %g: tensor<16xf32>, %b: tensor<16xf32>, %wte: tensor<33x16xf32> {nn.factors = ["vocab", ""]}) -> tensor<1xf64>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %l = nn.linear %n, %wte {transpose_weight} : (tensor<?x8x16xf32>, tensor<33x16xf32>) -> tensor<?x8x33xf32>
  %loss, %d = nn.cross_entropy %l, %labels {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return %loss : tensor<1xf64>
}
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte", @"wpe"] {strategy = #galvatron.strategy<[dp = 2, tp = 2]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "m" @mlp(%0) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[tp = 2, dp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %2 = galvatron.layer "head" @head(%1, %labels) params [@"lnf.g", @"lnf.b", @"wte"] {strategy = #galvatron.strategy<[tp = 2, sdp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %2 : tensor<1xf64>
}
}
// CHECK: %{{[^ ]+}} = galvatron.layer "wte"(%{{[^ ]+}}) params [@wte, @wpe] {backward = @embed.tp2.b2.backward, forward = @embed.tp2.b2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2, tp = 2]>}
// CHECK: %{{[^ ]+}} = galvatron.reshard %{{[^ ]+}} from <[dp = 2, tp = 2]> to <[tp = 2, dp = 2]> : tensor<?x8x16xf32>
// CHECK: %{{[^ ]+}} = galvatron.layer "m"(%{{[^ ]+}}) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.tp2.b2.backward, forward = @mlp.tp2.b2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 2, dp = 2]>}
// CHECK: %{{[^ ]+}} = galvatron.layer "head"(%{{[^ ]+}}, %{{[^ ]+}}) params [@lnf.g, @lnf.b, @wte] {backward = @head.tp2.sdp2.b2.borrow2.backward, forward = @head.tp2.sdp2.b2.borrow2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 2, sdp = 2]>}
// CHECK-NOT: galvatron.reshard
