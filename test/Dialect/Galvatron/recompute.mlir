// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute | FileCheck %s
// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --cse --canonicalize | FileCheck %s --check-prefix=KEPT
// RUN: galvatron-opt %s --galvatron-insert-recompute | FileCheck %s --check-prefix=EARLY --implicit-check-not=recompute

// Of layers that are not differentiated yet there is nothing to recompute.
// EARLY-COUNT-4: galvatron.layer

// A checkpointed layer has a forward function without stash and a recompute
// function that computes nothing else: the row product, its bias, dropout and the
// residual sum are not in it. The embedding has no stash, so there is nothing to
// recompute. The second use of @mlp is not checkpointed and keeps @mlp.forward.

galvatron.parameter @"wte" : tensor<33x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"wpe" : tensor<12x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"attn.wqkv" : tensor<16x48xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"attn.bqkv" : tensor<48xf32> {init = "zeros"}
galvatron.parameter @"attn.wo" : tensor<16x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"attn.bo" : tensor<16xf32> {init = "zeros"}
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
func.func private @attn(%x: tensor<?x8x16xf32>,
    %wqkv: tensor<16x3x16xf32> {nn.factors = ["", "", "heads"]}, %bqkv: tensor<3x16xf32> {nn.factors = ["", "heads"]},
    %wo: tensor<16x16xf32> {nn.factors = ["heads", ""]}, %bo: tensor<16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {heads = 4 : i64}} {
  %q = nn.linear %x, %wqkv : (tensor<?x8x16xf32>, tensor<16x3x16xf32>) -> tensor<?x8x3x16xf32>
  %qb = nn.bias_add %q, %bqkv : (tensor<?x8x3x16xf32>, tensor<3x16xf32>) -> tensor<?x8x3x16xf32>
  %o, %lse = nn.attention %qb {heads = 4 : i64, causal, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  %p = nn.linear %o, %wo : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  %pb = nn.bias_add %p, %bo : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  return %pb : tensor<?x8x16xf32>
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
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte", @"wpe"] {strategy = #galvatron.strategy<[dp = 2], ckpt>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "a" @attn(%0) params [@"attn.wqkv", @"attn.bqkv", @"attn.wo", @"attn.bo"] {strategy = #galvatron.strategy<[dp = 2], ckpt>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %2 = galvatron.layer "m" @mlp(%1) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[dp = 2], ckpt>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %3 = galvatron.layer "n" @mlp(%2) params [@"mlp.b", @"mlp.g", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[dp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %3 : tensor<?x8x16xf32>
}

// CHECK-LABEL: func.func private @embed.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<33x16xf32> {nn.factors = ["vocab", ""], nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<12x16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x16xf32> {nn.role = "output"})
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = nn.embedding [[A1]], [[A2]]
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = nn.position_add [[V4]], [[A3]]
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.dropout [[V5]] {p = 1.000000e-01 : f64}
// CHECK-NEXT: return [[V6]] : tensor<?x8x16xf32>

// CHECK-LABEL: func.func private @attn.forward_only(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16x3x16xf32> {nn.factors = ["", "", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<3x16xf32> {nn.factors = ["", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x16xf32> {nn.factors = ["heads", ""], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x16xf32> {nn.role = "output"})
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.linear [[A1]], [[A2]]
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.bias_add [[V6]], [[A3]]
// CHECK-NEXT: [[O8:%[a-z0-9_]+]], [[LSE9:%[a-z0-9_]+]] = nn.attention [[V7]] {causal, dropout = 1.000000e-01 : f64, heads = 4 : i64, scale = 5.000000e-01 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[O8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: return [[V11]] : tensor<?x8x16xf32>

// CHECK-LABEL: func.func private @attn.recompute(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16x3x16xf32> {nn.factors = ["", "", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<3x16xf32> {nn.factors = ["", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x16xf32> {nn.factors = ["heads", ""], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x3x16xf32> {nn.role = "stash"}, tensor<?x8x16xf32> {nn.role = "stash"}, tensor<?x4x8xf32> {nn.role = "stash"})
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.linear [[A1]], [[A2]]
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.bias_add [[V6]], [[A3]]
// CHECK-NEXT: [[O8:%[a-z0-9_]+]], [[LSE9:%[a-z0-9_]+]] = nn.attention [[V7]] {causal, dropout = 1.000000e-01 : f64, heads = 4 : i64, scale = 5.000000e-01 : f64}
// CHECK-NEXT: return [[V7]], [[O8]], [[LSE9]] : tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>

// CHECK-LABEL: func.func private @mlp.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x64xf32> {nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<64xf32> {nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<64x16xf32> {nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x16xf32> {nn.role = "output"}, tensor<?x8x16xf32> {nn.role = "stash"}, tensor<?x8x2xf32> {nn.role = "stash"}, tensor<?x8x64xf32> {nn.role = "stash"}, tensor<?x8x64xf32> {nn.role = "stash"})
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.linear [[V12]], [[A6]]
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_add [[V13]], [[A7]]
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.dropout [[V14]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.add [[A1]], [[V15]]
// CHECK-NEXT: return [[V16]], [[Y8]], [[STATS9]], [[V11]], [[V12]] : tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32>

// CHECK-LABEL: func.func private @mlp.forward_only(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x64xf32> {nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<64xf32> {nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<64x16xf32> {nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x16xf32> {nn.role = "output"})
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.linear [[V12]], [[A6]]
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_add [[V13]], [[A7]]
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.dropout [[V14]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.add [[A1]], [[V15]]
// CHECK-NEXT: return [[V16]] : tensor<?x8x16xf32>

// CHECK-LABEL: func.func private @mlp.recompute(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<?x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x64xf32> {nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<64xf32> {nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<64x16xf32> {nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {nn.role = "parameter"}
// CHECK-SAME: -> (tensor<?x8x16xf32> {nn.role = "stash"}, tensor<?x8x2xf32> {nn.role = "stash"}, tensor<?x8x64xf32> {nn.role = "stash"}, tensor<?x8x64xf32> {nn.role = "stash"})
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate}
// CHECK-NEXT: return [[Y8]], [[STATS9]], [[V11]], [[V12]] : tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32>
// CHECK: %{{[^ ]+}} = galvatron.layer "wte" @embed(%{{[^ ]+}}) params [@wte, @wpe] {backward = @embed.backward, forward = @embed.forward, stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2], ckpt>}
// CHECK: %{{[^ ]+}} = galvatron.layer "a" @attn(%{{[^ ]+}}) params [@attn.wqkv, @attn.bqkv, @attn.wo, @attn.bo] {backward = @attn.backward, forward = @attn.forward_only, recompute = @attn.recompute, stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2], ckpt>}
// CHECK: %{{[^ ]+}} = galvatron.layer "m" @mlp(%{{[^ ]+}}) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.backward, forward = @mlp.forward_only, recompute = @mlp.recompute, stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2], ckpt>}
// CHECK: %{{[^ ]+}} = galvatron.layer "n" @mlp(%{{[^ ]+}}) params [@mlp.b, @mlp.g, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.backward, forward = @mlp.forward, stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>}

// Nobody keeps the stash of attention any more.
// CHECK-NOT: @attn.forward(

// The recomputation is a function of its own, so that it is not merged with the
// forward pass.
// KEPT: func.func private @mlp.forward_only(
// KEPT: func.func private @mlp.recompute(
// KEPT: nn.gelu
