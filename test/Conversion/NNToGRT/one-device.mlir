// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-insert-recompute,galvatron-partition-layers,galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s

// Results that leave the function are written where they belong; values that die
// in an operation that allows it share its result's buffer; everything else is
// transient between a begin and an end. Parameter gradients accumulate in place
// (last integer but one of a gemm, last of the others: 2).

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
galvatron.model @toy(%tokens: tensor<?x8xi32> is <tokens, below = 33>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte", @"wpe"] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "a" @attn(%0) params [@"attn.wqkv", @"attn.bqkv", @"attn.wo", @"attn.bo"] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %2 = galvatron.layer "m" @mlp(%1) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %3 = galvatron.layer "head" @head(%2, %labels) params [@"lnf.g", @"lnf.b", @"wte"] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %3 : tensor<1xf64>
}
}

// CHECK-LABEL: grt.func @embed.b4.forward attributes {input_bytes = 0 : i64, output_bytes = 2048 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<4x8xi32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<33x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 2112 : memref<12x16xf32>
// CHECK-NEXT: grt.kernel embedding([[V1]], [[V3]], [[V2]]) ints [32, 16, 33, 0] {label = "embedding"}
// CHECK-NEXT: grt.kernel position_add([[V2]], [[V4]], [[V2]]) ints [4, 8, 16, 0, 0] {label = "position_add"}
// CHECK-NEXT: grt.kernel dropout([[V2]], [[V2]]) ints [4, 8, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}

// CHECK-LABEL: grt.func @embed.b4.backward attributes {input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<4x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<33x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 2112 : memref<12x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<33x16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer gradient at 2112 : memref<12x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x16xf32>
// CHECK-NEXT: grt.begin [[V7]]
// CHECK-NEXT: grt.kernel dropout([[V1]], [[V7]]) ints [4, 8, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.kernel position_grad([[V7]], [[V6]]) ints [4, 8, 16, 12, 2, 0, 0] {label = "position_grad"}
// CHECK-NEXT: grt.kernel embedding_grad([[V2]], [[V7]], [[V5]]) ints [32, 16, 33, 0, 2, -1] {label = "embedding_grad"}
// CHECK-NEXT: grt.end [[V7]]

// CHECK-LABEL: grt.func @attn.b4.forward attributes {input_bytes = 2048 : i64, output_bytes = 2048 : i64, stash_bytes = 8704 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x3x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 6144 : memref<4x8x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 8192 : memref<4x4x8xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x3x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 3072 : memref<3x16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 3264 : memref<16x16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 4288 : memref<16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer transient : memref<6592xi8>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<17408xi8>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: grt.begin [[V10]]
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V6]], [[V3]], [[V7]], [[V10]]) ints [32, 48, 16, 0, 0, 0, 1] {label = "linear"}
// CHECK-NEXT: grt.end [[V10]]
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.view [[V3]] at 0
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.view [[V3]] at 64
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.view [[V3]] at 128
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel attention([[V13]], [[V14]], [[V15]], [[V4]], [[V5]], [[V11]]) ints [4, 8, 8, 4, 4, 4, 48, 48, 48, 1, 0, 0, 0, 0] reals [5.000000e-01, 1.000000e-01] {label = "attention"}
// CHECK-NEXT: grt.end [[V11]]
// CHECK-NEXT: grt.begin [[V12]]
// CHECK-NEXT: grt.kernel gemm([[V4]], [[V8]], [[V2]], [[V9]], [[V12]]) ints [32, 16, 16, 0, 0, 0, 1] {label = "linear"}
// CHECK-NEXT: grt.end [[V12]]

// CHECK-LABEL: grt.func @attn.b4.backward attributes {input_bytes = 2048 : i64, output_bytes = 0 : i64, stash_bytes = 8704 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x3x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 6144 : memref<4x8x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 8192 : memref<4x4x8xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x3x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 3072 : memref<3x16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 3264 : memref<16x16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 4288 : memref<16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16x3x16xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer gradient at 3072 : memref<3x16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer gradient at 3264 : memref<16x16xf32>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer gradient at 4288 : memref<16xf32>
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x16xf32>
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = grt.buffer transient : memref<32768xi8>
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x3x16xf32>
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = grt.buffer transient : memref<34816xi8>
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = grt.buffer transient : memref<32768xi8>
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = grt.buffer transient : memref<10624xi8>
// CHECK-NEXT: grt.kernel bias_grad([[V1]], [[V14]]) ints [32, 16, 2] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V15]]
// CHECK-NEXT: grt.begin [[V16]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V8]], [[V15]], [[V16]]) ints [32, 16, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V16]]
// CHECK-NEXT: grt.begin [[V17]]
// CHECK-NEXT: grt.kernel gemm([[V4]], [[V1]], [[V13]], [[V17]]) ints [16, 16, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V17]]
// CHECK-NEXT: [[V22:%[a-z0-9_]+]] = grt.view [[V3]] at 0
// CHECK-NEXT: [[V23:%[a-z0-9_]+]] = grt.view [[V3]] at 64
// CHECK-NEXT: [[V24:%[a-z0-9_]+]] = grt.view [[V3]] at 128
// CHECK-NEXT: [[V25:%[a-z0-9_]+]] = grt.view [[V18]] at 0
// CHECK-NEXT: [[V26:%[a-z0-9_]+]] = grt.view [[V18]] at 64
// CHECK-NEXT: [[V27:%[a-z0-9_]+]] = grt.view [[V18]] at 128
// CHECK-NEXT: grt.begin [[V18]]
// CHECK-NEXT: grt.begin [[V19]]
// CHECK-NEXT: grt.kernel attention_grad([[V22]], [[V23]], [[V24]], [[V4]], [[V5]], [[V15]], [[V25]], [[V26]], [[V27]], [[V19]]) ints [4, 8, 8, 4, 4, 4, 48, 48, 48, 1, 0, 0, 0, 0] reals [5.000000e-01, 1.000000e-01] {label = "attention_grad"}
// CHECK-NEXT: grt.end [[V19]]
// CHECK-NEXT: grt.end [[V15]]
// CHECK-NEXT: grt.kernel bias_grad([[V18]], [[V12]]) ints [32, 48, 2] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V20]]
// CHECK-NEXT: grt.kernel gemm([[V18]], [[V6]], [[V10]], [[V20]]) ints [32, 16, 48, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V20]]
// CHECK-NEXT: grt.begin [[V21]]
// CHECK-NEXT: grt.kernel gemm([[V2]], [[V18]], [[V11]], [[V21]]) ints [16, 48, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V21]]
// CHECK-NEXT: grt.end [[V18]]
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]

// CHECK-LABEL: grt.func @mlp.b4.forward attributes {input_bytes = 2048 : i64, output_bytes = 2048 : i64, stash_bytes = 18688 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x64xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 10496 : memref<4x8x64xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16x64xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer parameter at 4224 : memref<64xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer parameter at 4480 : memref<64x16xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer parameter at 8576 : memref<16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V7]], [[V8]], [[V3]], [[V4]]) ints [32, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel gemm([[V3]], [[V9]], [[V5]], [[V13]]) ints [32, 64, 16, 0, 0, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.kernel bias_gelu([[V5]], [[V10]], [[V5]], [[V6]]) ints [32, 64, 1] {label = "bias_gelu"}
// CHECK-NEXT: grt.begin [[V14]]
// CHECK-NEXT: grt.kernel gemm([[V6]], [[V11]], [[V2]], [[V12]], [[V14]]) ints [32, 16, 64, 0, 0, 0, 1] {label = "linear"}
// CHECK-NEXT: grt.end [[V14]]
// CHECK-NEXT: grt.kernel dropout_add([[V2]], [[V1]], [[V2]]) ints [4, 8, 16, 2, 0, 0] reals [1.000000e-01] {label = "dropout_add"}

// CHECK-LABEL: grt.func @mlp.b4.backward attributes {input_bytes = 2048 : i64, output_bytes = 0 : i64, stash_bytes = 18688 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x64xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 10496 : memref<4x8x64xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16x64xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer parameter at 4224 : memref<64xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer parameter at 4480 : memref<64x16xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer parameter at 8576 : memref<16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer gradient at 64 : memref<16xf32>
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = grt.buffer gradient at 128 : memref<16x64xf32>
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = grt.buffer gradient at 4224 : memref<64xf32>
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = grt.buffer gradient at 4480 : memref<64x16xf32>
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = grt.buffer gradient at 8576 : memref<16xf32>
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x16xf32>
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x64xf32>
// CHECK-NEXT: [[V22:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V23:%[a-z0-9_]+]] = grt.buffer transient : memref<45056xi8>
// CHECK-NEXT: [[V24:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// CHECK-NEXT: [[V25:%[a-z0-9_]+]] = grt.buffer transient : memref<32768xi8>
// CHECK-NEXT: grt.begin [[V20]]
// CHECK-NEXT: grt.kernel dropout([[V1]], [[V20]]) ints [4, 8, 16, 2, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.kernel bias_grad([[V20]], [[V19]]) ints [32, 16, 2] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V21]]
// CHECK-NEXT: grt.begin [[V22]]
// CHECK-NEXT: grt.kernel gemm([[V20]], [[V11]], [[V21]], [[V22]]) ints [32, 64, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V22]]
// CHECK-NEXT: grt.begin [[V23]]
// CHECK-NEXT: grt.kernel gemm([[V6]], [[V20]], [[V18]], [[V23]]) ints [64, 16, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V23]]
// CHECK-NEXT: grt.end [[V20]]
// CHECK-NEXT: grt.kernel gelu_grad([[V5]], [[V21]], [[V21]]) ints [2048, 1] {label = "gelu_grad"}
// CHECK-NEXT: grt.kernel bias_grad([[V21]], [[V17]]) ints [32, 64, 2] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V24]]
// CHECK-NEXT: grt.kernel gemm([[V21]], [[V9]], [[V13]], [[V24]]) ints [32, 16, 64, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V24]]
// CHECK-NEXT: grt.begin [[V25]]
// CHECK-NEXT: grt.kernel gemm([[V3]], [[V21]], [[V16]], [[V25]]) ints [16, 64, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V25]]
// CHECK-NEXT: grt.end [[V21]]
// CHECK-NEXT: grt.kernel layer_norm_add_grad([[V13]], [[V2]], [[V4]], [[V7]], [[V1]], [[V13]], [[V14]], [[V15]]) ints [32, 16, 2] {label = "layer_norm_add_grad"}
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.end [[V6]]

// CHECK-LABEL: grt.func @head.b4.borrow2.forward attributes {input_bytes = 2048 : i64, output_bytes = 0 : i64, stash_bytes = 6528 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<4x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer loss at 0 : memref<1xf64>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x33xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<33x16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<32x3xf32>
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V7]], [[V8]], [[V4]], [[V5]]) ints [32, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.begin [[V10]]
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.kernel gemm([[V4]], [[V9]], [[V6]], [[V10]]) ints [32, 33, 16, 0, 1, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V10]]
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.kernel softmax_cross_entropy([[V6]], [[V2]], [[V11]], [[V6]], [[V3]]) ints [32, 33] {label = "cross_entropy"}
// CHECK-NEXT: grt.end [[V11]]

// CHECK-LABEL: grt.func @head.b4.borrow2.backward attributes {input_bytes = 2048 : i64, output_bytes = 0 : i64, stash_bytes = 6528 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<4x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x33xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<33x16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<4x8x16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer gradient at 64 : memref<16xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer gradient at 128 : memref<33x16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<28928xi8>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<37120xi8>
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.kernel gemm([[V5]], [[V8]], [[V9]], [[V13]]) ints [32, 16, 33, 0, 0, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.begin [[V14]]
// CHECK-NEXT: grt.kernel gemm([[V5]], [[V3]], [[V12]], [[V14]]) ints [33, 16, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V14]]
// CHECK-NEXT: grt.kernel layer_norm_grad([[V9]], [[V1]], [[V4]], [[V6]], [[V9]], [[V10]], [[V11]]) ints [32, 16, 2] {label = "layer_norm_grad"}
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]
// CHECK: %{{[^ ]+}} = galvatron.layer "wte"(%{{[^ ]+}}) params [@wte, @wpe] {backward = @embed.b4.backward, forward = @embed.b4.forward, layout = #galvatron.layout<samples = 4, input_bytes = 0, output_bytes = 2048, stash_bytes = 0, bytes_per_unit = 512, tensors = [#galvatron.flat_tensor<parameter = @wte, group = 0, offset = 0, view = [33, 16], local_shape = [33, 16]>, #galvatron.flat_tensor<parameter = @wpe, group = 0, offset = 528, view = [12, 16], local_shape = [12, 16]>], groups = [#galvatron.flat_group<elements = 720, shard_elements = 720>, #galvatron.flat_group<elements = 0, shard_elements = 0>], data = ["tokens"]>, norm = @embed.b4.norm, stage = 0 : i64, strategy = #galvatron.strategy<[]>, update = @embed.b4.update}
// CHECK: %{{[^ ]+}} = galvatron.layer "a"(%{{[^ ]+}}) params [@attn.wqkv, @attn.bqkv, @attn.wo, @attn.bo] {backward = @attn.b4.backward, forward = @attn.b4.forward, layout = #galvatron.layout<samples = 4, input_bytes = 2048, output_bytes = 2048, stash_bytes = 8704, bytes_per_unit = 512, tensors = [#galvatron.flat_tensor<parameter = @attn.wqkv, group = 0, offset = 0, view = [16, 3, 16], local_shape = [16, 3, 16]>, #galvatron.flat_tensor<parameter = @attn.bqkv, group = 0, offset = 768, view = [3, 16], local_shape = [3, 16]>, #galvatron.flat_tensor<parameter = @attn.wo, group = 0, offset = 816, view = [16, 16], local_shape = [16, 16]>, #galvatron.flat_tensor<parameter = @attn.bo, group = 0, offset = 1072, view = [16], local_shape = [16]>], groups = [#galvatron.flat_group<elements = 1088, shard_elements = 1088>, #galvatron.flat_group<elements = 0, shard_elements = 0>]>, norm = @attn.b4.norm, stage = 0 : i64, strategy = #galvatron.strategy<[]>, update = @attn.b4.update}
// CHECK: %{{[^ ]+}} = galvatron.layer "m"(%{{[^ ]+}}) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.b4.backward, forward = @mlp.b4.forward, layout = #galvatron.layout<samples = 4, input_bytes = 2048, output_bytes = 2048, stash_bytes = 18688, bytes_per_unit = 512, tensors = [#galvatron.flat_tensor<parameter = @mlp.g, group = 0, offset = 0, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @mlp.b, group = 0, offset = 16, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @mlp.wi, group = 0, offset = 32, view = [16, 64], local_shape = [16, 64]>, #galvatron.flat_tensor<parameter = @mlp.bi, group = 0, offset = 1056, view = [64], local_shape = [64]>, #galvatron.flat_tensor<parameter = @mlp.wf, group = 0, offset = 1120, view = [64, 16], local_shape = [64, 16]>, #galvatron.flat_tensor<parameter = @mlp.bf, group = 0, offset = 2144, view = [16], local_shape = [16]>], groups = [#galvatron.flat_group<elements = 2160, shard_elements = 2160>, #galvatron.flat_group<elements = 0, shard_elements = 0>]>, norm = @mlp.b4.norm, stage = 0 : i64, strategy = #galvatron.strategy<[]>, update = @mlp.b4.update}
// CHECK: %{{[^ ]+}} = galvatron.layer "head"(%{{[^ ]+}}, %{{[^ ]+}}) params [@lnf.g, @lnf.b, @wte] {backward = @head.b4.borrow2.backward, forward = @head.b4.borrow2.forward, layout = #galvatron.layout<samples = 4, input_bytes = 2048, output_bytes = 0, stash_bytes = 6528, tensors = [#galvatron.flat_tensor<parameter = @lnf.g, group = 0, offset = 0, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @lnf.b, group = 0, offset = 16, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @wte, group = 1, offset = 0, view = [33, 16], local_shape = [33, 16]>], groups = [#galvatron.flat_group<elements = 32, shard_elements = 32>, #galvatron.flat_group<elements = 528, shard_elements = 528>], data = ["labels"]>, norm = @head.b4.borrow2.norm, stage = 0 : i64, strategy = #galvatron.strategy<[]>, update = @head.b4.borrow2.update}

// CHECK-LABEL: grt.func @embed.b4.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<720xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<720xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<1440xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 720, 2, 0, 528, 1, 528, 192, 1] {label = "adamw"}

// CHECK-LABEL: grt.func @embed.b4.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<720xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [720, 2, 0, 528, 1, 528, 192, 1] {label = "norm"}

// CHECK-LABEL: grt.func @attn.b4.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<1088xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<1088xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<2176xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 1088, 4, 0, 768, 1, 768, 48, 0, 816, 256, 1, 1072, 16, 0] {label = "adamw"}

// CHECK-LABEL: grt.func @attn.b4.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<1088xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [1088, 4, 0, 768, 1, 768, 48, 1, 816, 256, 1, 1072, 16, 1] {label = "norm"}

// CHECK-LABEL: grt.func @mlp.b4.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<2160xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<2160xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<4320xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 2160, 6, 0, 16, 0, 16, 16, 0, 32, 1024, 1, 1056, 64, 0, 1120, 1024, 1, 2144, 16, 0] {label = "adamw"}

// CHECK-LABEL: grt.func @mlp.b4.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<2160xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [2160, 6, 0, 16, 1, 16, 16, 1, 32, 1024, 1, 1056, 64, 1, 1120, 1024, 1, 2144, 16, 1] {label = "norm"}

// CHECK-LABEL: grt.func @head.b4.borrow2.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<32xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<32xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<64xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 32, 2, 0, 16, 0, 16, 16, 0] {label = "adamw"}

// CHECK-LABEL: grt.func @head.b4.borrow2.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<32xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [32, 2, 0, 16, 1, 16, 16, 1] {label = "norm"}
