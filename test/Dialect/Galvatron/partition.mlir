// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers | FileCheck %s

// What the propagation of factors writes down: the state of every result, the
// factor that is split, and the operands that are summed before they are used.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
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
func.func private @head(%x: tensor<?x8x16xf32>, %labels: tensor<?x8xi32>, %g: tensor<16xf32>, %b: tensor<16xf32>, %wte: tensor<33x16xf32> {nn.factors = ["vocab", ""]}) -> tensor<1xf64>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %l = nn.linear %n, %wte {transpose_weight} : (tensor<?x8x16xf32>, tensor<33x16xf32>) -> tensor<?x8x33xf32>
  %loss, %d = nn.cross_entropy %l, %labels {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return %loss : tensor<1xf64>
}
func.func private @called_by_no_layer(%x: tensor<?x8x16xf32>) -> tensor<?x8x16xf32> {
  return %x : tensor<?x8x16xf32>
}
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte", @"wpe"] {strategy = #galvatron.strategy<[tp = 2, dp = 2]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "a" @attn(%0) params [@"attn.wqkv", @"attn.bqkv", @"attn.wo", @"attn.bo"] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %2 = galvatron.layer "m" @mlp(%1) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[tp = 2, dp = 2], ckpt>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %3 = galvatron.layer "head" @head(%2, %labels) params [@"lnf.g", @"lnf.b", @"wte"] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %3 : tensor<1xf64>
}
}

// CHECK-LABEL: func.func private @embed.tp2.b2.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<2x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<2x8x16xf32> {nn.role = "output"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 2]>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = nn.embedding [[A1]], [[A2]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [0]>}
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = nn.position_add [[V4]], [[A3]] {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.dropout [[V5]] {p = 1.000000e-01 : f64}
// CHECK-NEXT: return [[V6]] : tensor<2x8x16xf32>

// CHECK-LABEL: func.func private @embed.tp2.b2.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<2x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<12x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [12, 16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<33x16xf32> {nn.role = "parameter_gradient"}, tensor<12x16xf32> {nn.role = "parameter_gradient"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 2]>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = nn.dropout [[A1]] {p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.position_grad [[V5]]
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.embedding_grad [[A2]], [[V5]], [[A3]] {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [0]>}
// CHECK-NEXT: return [[V7]], [[V6]] : tensor<33x16xf32>, tensor<12x16xf32>

// CHECK-LABEL: func.func private @attn.tp4.b4.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16x3x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 3, 16], state = <[split 2]>>, nn.factors = ["", "", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<3x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [3, 16], state = <[split 1]>>, nn.factors = ["", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 16], state = <[split 0]>>, nn.factors = ["heads", ""], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "output"}, tensor<4x8x3x16xf32> {nn.role = "stash"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x4x8xf32> {nn.role = "stash"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 4]>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = nn.linear [[A1]], [[A2]] {galvatron.sharding = #galvatron.sharding<results = ([split 3]), factors = [4]>}
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = nn.bias_add [[V6]], [[A3]] {galvatron.sharding = #galvatron.sharding<results = ([split 3]), factors = [3]>}
// CHECK-NEXT: [[O8:%[a-z0-9_]+]], [[LSE9:%[a-z0-9_]+]] = nn.attention [[V7]] {causal, dropout = 1.000000e-01 : f64, galvatron.sharding = #galvatron.sharding<results = ([split 2], [split 1]), factors = [1]>, heads = 4 : i64, scale = 5.000000e-01 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[O8]], [[A4]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [2]>}
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]] {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: return [[V11]], [[V7]], [[O8]], [[LSE9]] : tensor<4x8x16xf32>, tensor<4x8x3x16xf32>, tensor<4x8x16xf32>, tensor<4x4x8xf32>

// CHECK-LABEL: func.func private @attn.tp4.b4.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<4x8x3x16xf32> {galvatron.slice = #galvatron.slice<state = <[split 3]>>, nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<4x8x16xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<4x4x8xf32> {galvatron.slice = #galvatron.slice<state = <[split 1]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<16x3x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 3, 16], state = <[split 2]>>, nn.factors = ["", "", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<3x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [3, 16], state = <[split 1]>>, nn.factors = ["", "heads"], nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<16x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 16], state = <[split 0]>>, nn.factors = ["heads", ""], nn.role = "parameter"}
// CHECK-SAME: [[A9:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16x3x16xf32> {nn.role = "parameter_gradient"}, tensor<3x16xf32> {nn.role = "parameter_gradient"}, tensor<16x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 4]>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.bias_grad [[A1]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.linear_input_grad [[A1]], [[A8]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.linear_weight_grad [[A4]], [[A1]] {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [2]>}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.attention_grad [[A3]], [[A4]], [[A5]], [[V11]] {causal, dropout = 1.000000e-01 : f64, galvatron.sharding = #galvatron.sharding<results = ([split 3]), factors = [1]>, heads = 4 : i64, scale = 5.000000e-01 : f64}
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_grad [[V13]] {galvatron.sharding = #galvatron.sharding<results = ([split 1]), factors = [3]>}
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.linear_input_grad [[V13]], [[A6]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [4]>}
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.linear_weight_grad [[A2]], [[V13]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [4]>}
// CHECK-NEXT: return {galvatron.sharding = #galvatron.sharding<operands = {0 = [replicated]}>} [[V15]], [[V16]], [[V14]], [[V12]], [[V10]] : tensor<4x8x16xf32>, tensor<16x3x16xf32>, tensor<3x16xf32>, tensor<16x16xf32>, tensor<16xf32>

// CHECK-LABEL: func.func private @mlp.tp2.b2.ckpt.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x64xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<64xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<64x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<2x8x16xf32> {nn.role = "output"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 2]>
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>}
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate, galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.linear [[V12]], [[A6]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [2]>}
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_add [[V13]], [[A7]] {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.dropout [[V14]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.add [[A1]], [[V15]]
// CHECK-NEXT: return [[V16]] : tensor<2x8x16xf32>

// CHECK-LABEL: func.func private @mlp.tp2.b2.ckpt.recompute(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x64xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<64xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<64x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<2x8x16xf32> {nn.role = "stash"}, tensor<2x8x2xf32> {nn.role = "stash"}, tensor<2x8x64xf32> {nn.role = "stash"}, tensor<2x8x64xf32> {nn.role = "stash"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = recompute, axes = [tp = 2]>
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>}
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = nn.gelu [[V11]] {approximate, galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: return [[Y8]], [[STATS9]], [[V11]], [[V12]] : tensor<2x8x16xf32>, tensor<2x8x2xf32>, tensor<2x8x64xf32>, tensor<2x8x64xf32>

// CHECK-LABEL: func.func private @mlp.tp2.b2.ckpt.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<2x8x16xf32> {nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<2x8x2xf32> {nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<2x8x64xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<2x8x64xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A9:%[a-z0-9_]+]]: tensor<16x64xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.factors = ["", "ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A10:%[a-z0-9_]+]]: tensor<64xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.factors = ["ffn"], nn.role = "parameter"}
// CHECK-SAME: [[A11:%[a-z0-9_]+]]: tensor<64x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.factors = ["ffn", ""], nn.role = "parameter"}
// CHECK-SAME: [[A12:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<2x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16x64xf32> {nn.role = "parameter_gradient"}, tensor<64xf32> {nn.role = "parameter_gradient"}, tensor<64x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 2], gathered = true>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.dropout [[A1]] {op_index = 2 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = nn.bias_grad [[V13]]
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.linear_input_grad [[V13]], [[A11]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.linear_weight_grad [[A6]], [[V13]] {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [2]>}
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = nn.gelu_grad [[A5]], [[V15]] {approximate, galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [2]>}
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = nn.bias_grad [[V17]] {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [2]>}
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = nn.linear_input_grad [[V17]], [[A9]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [3]>}
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = nn.linear_weight_grad [[A3]], [[V17]] {galvatron.sharding = #galvatron.sharding<results = ([split 1]), factors = [3]>}
// CHECK-NEXT: [[DX21:%[a-z0-9_]+]], [[DGAMMA22:%[a-z0-9_]+]], [[DBETA23:%[a-z0-9_]+]] = nn.layer_norm_grad [[V19]], [[A2]], [[A4]], [[A7]] {galvatron.sharding = #galvatron.sharding<results = ([replicated], [replicated], [replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: [[V24:%[a-z0-9_]+]] = nn.add [[A1]], [[DX21]]
// CHECK-NEXT: return [[V24]], [[DGAMMA22]], [[DBETA23]], [[V20]], [[V18]], [[V16]], [[V14]] : tensor<2x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16x64xf32>, tensor<64xf32>, tensor<64x16xf32>, tensor<16xf32>

// CHECK-LABEL: func.func private @head.tp4.b4.borrow2.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}
// CHECK-SAME: -> (tensor<1xf64> {nn.role = "loss"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x33xf32> {nn.role = "stash"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 4], borrowed = [2]>
// CHECK-NEXT: [[Y6:%[a-z0-9_]+]], [[STATS7:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A3]], [[A4]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = nn.linear [[Y6]], [[A5]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>, transpose_weight}
// CHECK-NEXT: [[LOSS9:%[a-z0-9_]+]], [[DLOGITS10:%[a-z0-9_]+]] = nn.cross_entropy [[V8]], [[A2]] {classes = 33 : i64, galvatron.sharding = #galvatron.sharding<results = ([replicated], [split 2]), factors = [0]>}
// CHECK-NEXT: return [[LOSS9]], [[Y6]], [[STATS7]], [[DLOGITS10]] : tensor<1xf64>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x33xf32>

// CHECK-LABEL: func.func private @head.tp4.b4.borrow2.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8xi32> {nn.role = "data"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<4x8x2xf32> {nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<4x8x33xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<33x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [33, 16], state = <[split 0]>>, nn.factors = ["vocab", ""], nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<33x16xf32> {nn.role = "parameter_gradient"})
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = backward, axes = [tp = 4], borrowed = [2]>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = nn.linear_input_grad [[A5]], [[A8]] {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [3]>, transpose_weight}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear_weight_grad [[A3]], [[A5]] {galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [3]>, transpose_weight}
// CHECK-NEXT: [[DX11:%[a-z0-9_]+]], [[DGAMMA12:%[a-z0-9_]+]], [[DBETA13:%[a-z0-9_]+]] = nn.layer_norm_grad [[V9]], [[A1]], [[A4]], [[A6]] {galvatron.sharding = #galvatron.sharding<results = ([replicated], [replicated], [replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: return [[DX11]], [[DGAMMA12]], [[DBETA13]], [[V10]] : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<33x16xf32>
// CHECK: %{{[^ ]+}} = galvatron.layer "wte"(%{{[^ ]+}}) params [@wte, @wpe] {backward = @embed.tp2.b2.backward, forward = @embed.tp2.b2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 2, dp = 2]>}
// CHECK: %{{[^ ]+}} = galvatron.layer "a"(%{{[^ ]+}}) params [@attn.wqkv, @attn.bqkv, @attn.wo, @attn.bo] {backward = @attn.tp4.b4.backward, forward = @attn.tp4.b4.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>}
// CHECK: %{{[^ ]+}} = galvatron.layer "m"(%{{[^ ]+}}) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.tp2.b2.ckpt.backward, forward = @mlp.tp2.b2.ckpt.forward, recompute = @mlp.tp2.b2.ckpt.recompute, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 2, dp = 2], ckpt>}
// CHECK: %{{[^ ]+}} = galvatron.layer "head"(%{{[^ ]+}}, %{{[^ ]+}}) params [@lnf.g, @lnf.b, @wte] {backward = @head.tp4.b4.borrow2.backward, forward = @head.tp4.b4.borrow2.forward, stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>}

// Functions on whole tensors are gone.
// CHECK-NOT: @mlp.forward
// CHECK-NOT: @mlp(
// CHECK-NOT: @called_by_no_layer
