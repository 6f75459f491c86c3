// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-insert-recompute,galvatron-partition-layers,galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s

// A rank holds one shard of the flat parameters, padded so that the shards are
// equal multiples of 64 bytes; functions gather them first. Under checkpointing the
// recomputation leaves the gathered parameters behind the stash, for backward. Full
// gradients are temporaries, scattered into the shard's accumulator. The head's
// borrowed table is a flat of its own (group 1).

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @"mlp.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"mlp.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.wi" : tensor<16x64xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bi" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.wf" : tensor<64x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bf" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"lnf.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"lnf.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"wte" : tensor<33x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"wpe" : tensor<12x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
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
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte", @"wpe"] {strategy = #galvatron.strategy<[sdp = 2]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "m" @mlp(%0) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[sdp = 2], ckpt>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %2 = galvatron.layer "head" @head(%1, %labels) params [@"lnf.g", @"lnf.b", @"wte"] {strategy = #galvatron.strategy<[sdp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %2 : tensor<1xf64>
}
}

// CHECK-LABEL: grt.func @embed.sdp2.b2.forward attributes {input_bytes = 0 : i64, output_bytes = 1024 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<2x8xi32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer transient : memref<736xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<368xf32>
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.all_gather [[V4]] to [[V3]] over sdp {label = "gather"}
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.view [[V3]] at 0
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.view [[V3]] at 2112
// CHECK-NEXT: grt.kernel embedding([[V1]], [[V5]], [[V2]]) ints [16, 16, 33, 0] {label = "embedding"}
// CHECK-NEXT: grt.kernel position_add([[V2]], [[V6]], [[V2]]) ints [2, 8, 16, 0, 0] {label = "position_add"}
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.kernel dropout([[V2]], [[V2]]) ints [2, 8, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}

// CHECK-LABEL: grt.func @embed.sdp2.b2.backward attributes {input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<2x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<368xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer transient : memref<736xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<368xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.view [[V4]] at 0
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.view [[V4]] at 2112
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel dropout([[V1]], [[V5]]) ints [2, 8, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.kernel position_grad([[V5]], [[V8]]) ints [2, 8, 16, 12, 0, 0, 0] {label = "position_grad"}
// CHECK-NEXT: grt.kernel embedding_grad([[V2]], [[V5]], [[V7]]) ints [16, 16, 33, 0, 0, -1] {label = "embedding_grad"}
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.reduce_scatter [[V4]] to [[V6]] over sdp acc 2 {label = "scatter"}
// CHECK-NEXT: grt.end [[V4]]

// CHECK-LABEL: grt.func @mlp.sdp2.b2.ckpt.forward attributes {input_bytes = 1024 : i64, output_bytes = 1024 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer transient : memref<2176xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<1088xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x2xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x64xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x64xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.all_gather [[V4]] to [[V3]] over sdp {label = "gather"}
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.view [[V3]] at 0
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.view [[V3]] at 64
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.view [[V3]] at 128
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.view [[V3]] at 4224
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.view [[V3]] at 4480
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = grt.view [[V3]] at 8576
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V11]], [[V12]], [[V5]], [[V6]]) ints [16, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.end [[V6]]
// CHECK-NEXT: grt.begin [[V7]]
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.kernel gemm([[V5]], [[V13]], [[V7]], [[V8]]) ints [16, 64, 16, 0, 0, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V8]]
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.begin [[V9]]
// CHECK-NEXT: grt.kernel bias_gelu([[V7]], [[V14]], [[V7]], [[V9]]) ints [16, 64, 1] {label = "bias_gelu"}
// CHECK-NEXT: grt.end [[V7]]
// CHECK-NEXT: grt.begin [[V10]]
// CHECK-NEXT: grt.kernel gemm([[V9]], [[V15]], [[V2]], [[V16]], [[V10]]) ints [16, 16, 64, 0, 0, 0, 1] {label = "linear"}
// CHECK-NEXT: grt.end [[V10]]
// CHECK-NEXT: grt.end [[V9]]
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.kernel dropout_add([[V2]], [[V1]], [[V2]]) ints [2, 8, 16, 2, 0, 0] reals [1.000000e-01] {label = "dropout_add"}

// CHECK-LABEL: grt.func @mlp.sdp2.b2.ckpt.recompute attributes {input_bytes = 1024 : i64, output_bytes = 0 : i64, stash_bytes = 18048 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 1024 : memref<2x8x2xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 1152 : memref<2x8x64xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 5248 : memref<2x8x64xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 9344 : memref<2176xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<1088xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.all_gather [[V7]] to [[V6]] over sdp {label = "gather"}
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.view [[V6]] at 0
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.view [[V6]] at 64
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.view [[V6]] at 128
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.view [[V6]] at 4224
// CHECK-NEXT: grt.begin [[V2]]
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V9]], [[V10]], [[V2]], [[V3]]) ints [16, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.kernel gemm([[V2]], [[V11]], [[V4]], [[V8]]) ints [16, 64, 16, 0, 0, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V8]]
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel bias_gelu([[V4]], [[V12]], [[V4]], [[V5]]) ints [16, 64, 1] {label = "bias_gelu"}

// CHECK-LABEL: grt.func @mlp.sdp2.b2.ckpt.backward attributes {input_bytes = 1024 : i64, output_bytes = 0 : i64, stash_bytes = 18048 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 1024 : memref<2x8x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 1152 : memref<2x8x64xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 5248 : memref<2x8x64xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer stash at 9344 : memref<2176xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer transient : memref<2176xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x16xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<2x8x64xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer transient : memref<27648xi8>
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<1088xf32>
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = grt.view [[V7]] at 0
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = grt.view [[V7]] at 128
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = grt.view [[V7]] at 4480
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = grt.view [[V9]] at 0
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = grt.view [[V9]] at 64
// CHECK-NEXT: [[V22:%[a-z0-9_]+]] = grt.view [[V9]] at 128
// CHECK-NEXT: [[V23:%[a-z0-9_]+]] = grt.view [[V9]] at 4224
// CHECK-NEXT: [[V24:%[a-z0-9_]+]] = grt.view [[V9]] at 4480
// CHECK-NEXT: [[V25:%[a-z0-9_]+]] = grt.view [[V9]] at 8576
// CHECK-NEXT: grt.begin [[V10]]
// CHECK-NEXT: grt.kernel dropout([[V1]], [[V10]]) ints [2, 8, 16, 2, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.begin [[V9]]
// CHECK-NEXT: grt.kernel bias_grad([[V10]], [[V25]]) ints [16, 16, 0] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.begin [[V12]]
// CHECK-NEXT: grt.kernel gemm([[V10]], [[V19]], [[V11]], [[V12]]) ints [16, 64, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V12]]
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.kernel gemm([[V6]], [[V10]], [[V24]], [[V13]]) ints [64, 16, 16, 1, 0, 0, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.end [[V10]]
// CHECK-NEXT: grt.kernel gelu_grad([[V5]], [[V11]], [[V11]]) ints [1024, 1] {label = "gelu_grad"}
// CHECK-NEXT: grt.kernel bias_grad([[V11]], [[V23]]) ints [16, 64, 0] {label = "bias_grad"}
// CHECK-NEXT: grt.begin [[V14]]
// CHECK-NEXT: grt.kernel gemm([[V11]], [[V18]], [[V8]], [[V14]]) ints [16, 16, 64, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V14]]
// CHECK-NEXT: grt.begin [[V15]]
// CHECK-NEXT: grt.kernel gemm([[V3]], [[V11]], [[V22]], [[V15]]) ints [16, 64, 16, 1, 0, 0, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V15]]
// CHECK-NEXT: grt.end [[V11]]
// CHECK-NEXT: grt.kernel layer_norm_add_grad([[V8]], [[V2]], [[V4]], [[V17]], [[V1]], [[V8]], [[V20]], [[V21]]) ints [16, 16, 0] {label = "layer_norm_add_grad"}
// CHECK-NEXT: grt.reduce_scatter [[V9]] to [[V16]] over sdp acc 2 {label = "scatter"}
// CHECK-NEXT: grt.end [[V9]]
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.end [[V6]]
// CHECK-NEXT: grt.end [[V7]]

// CHECK-LABEL: grt.func @head.sdp2.b2.borrow2.forward attributes {input_bytes = 1024 : i64, output_bytes = 0 : i64, stash_bytes = 3264 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<2x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer loss at 0 : memref<1xf64>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 1024 : memref<2x8x2xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 1152 : memref<2x8x33xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer transient : memref<32xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer transient : memref<544xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<272xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer transient : memref<16x3xf32>
// CHECK-NEXT: grt.begin [[V7]]
// CHECK-NEXT: grt.all_gather [[V8]] to [[V7]] over sdp {label = "gather"}
// CHECK-NEXT: grt.begin [[V9]]
// CHECK-NEXT: grt.all_gather [[V10]] to [[V9]] over sdp {label = "gather"}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.view [[V7]] at 0
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.view [[V7]] at 64
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.view [[V9]] at 0
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V13]], [[V14]], [[V4]], [[V5]]) ints [16, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.end [[V7]]
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.kernel gemm([[V4]], [[V15]], [[V6]], [[V11]]) ints [16, 33, 16, 0, 1, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V11]]
// CHECK-NEXT: grt.end [[V9]]
// CHECK-NEXT: grt.begin [[V12]]
// CHECK-NEXT: grt.kernel softmax_cross_entropy([[V6]], [[V2]], [[V12]], [[V6]], [[V3]]) ints [16, 33] {label = "cross_entropy"}
// CHECK-NEXT: grt.end [[V12]]

// CHECK-LABEL: grt.func @head.sdp2.b2.borrow2.backward attributes {input_bytes = 1024 : i64, output_bytes = 0 : i64, stash_bytes = 3264 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer data at 0 : memref<2x8xi32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 1024 : memref<2x8x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 1152 : memref<2x8x33xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer transient : memref<32xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<544xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<272xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x8x16xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<32xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer transient : memref<544xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<28928xi8>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<30912xi8>
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = grt.buffer gradient at 64 : memref<272xf32>
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.all_gather [[V7]] to [[V6]] over sdp {label = "gather"}
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.all_gather [[V9]] to [[V8]] over sdp {label = "gather"}
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = grt.view [[V6]] at 0
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = grt.view [[V8]] at 0
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = grt.view [[V11]] at 0
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = grt.view [[V11]] at 64
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = grt.view [[V12]] at 0
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.kernel gemm([[V5]], [[V18]], [[V10]], [[V13]]) ints [16, 16, 33, 0, 0, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.end [[V8]]
// CHECK-NEXT: grt.begin [[V12]]
// CHECK-NEXT: grt.begin [[V14]]
// CHECK-NEXT: grt.kernel gemm([[V5]], [[V3]], [[V21]], [[V14]]) ints [33, 16, 16, 1, 0, 0, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V14]]
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.kernel layer_norm_grad([[V10]], [[V1]], [[V4]], [[V17]], [[V10]], [[V19]], [[V20]]) ints [16, 16, 0] {label = "layer_norm_grad"}
// CHECK-NEXT: grt.end [[V6]]
// CHECK-NEXT: grt.reduce_scatter [[V11]] to [[V15]] over sdp acc 2 {label = "scatter"}
// CHECK-NEXT: grt.end [[V11]]
// CHECK-NEXT: grt.reduce_scatter [[V12]] to [[V16]] over sdp acc 2 {label = "scatter"}
// CHECK-NEXT: grt.end [[V12]]
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]
// CHECK: %{{[^ ]+}} = galvatron.layer "wte"(%{{[^ ]+}}) params [@wte, @wpe] {backward = @embed.sdp2.b2.backward, forward = @embed.sdp2.b2.forward, layout = #galvatron.layout<samples = 2, input_bytes = 0, output_bytes = 1024, stash_bytes = 0, bytes_per_unit = 512, tensors = [#galvatron.flat_tensor<parameter = @wte, group = 0, offset = 0, view = [33, 16], local_shape = [33, 16]>, #galvatron.flat_tensor<parameter = @wpe, group = 0, offset = 528, view = [12, 16], local_shape = [12, 16]>], groups = [#galvatron.flat_group<elements = 736, shard_elements = 368>, #galvatron.flat_group<elements = 0, shard_elements = 0>], data = ["tokens"]>, norm = @embed.sdp2.b2.norm, stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2]>, update = @embed.sdp2.b2.update}
// CHECK: %{{[^ ]+}} = galvatron.layer "m"(%{{[^ ]+}}) params [@mlp.g, @mlp.b, @mlp.wi, @mlp.bi, @mlp.wf, @mlp.bf] {backward = @mlp.sdp2.b2.ckpt.backward, forward = @mlp.sdp2.b2.ckpt.forward, layout = #galvatron.layout<samples = 2, input_bytes = 1024, output_bytes = 1024, stash_bytes = 0, recompute_stash_bytes = 18048, bytes_per_unit = 512, tensors = [#galvatron.flat_tensor<parameter = @mlp.g, group = 0, offset = 0, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @mlp.b, group = 0, offset = 16, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @mlp.wi, group = 0, offset = 32, view = [16, 64], local_shape = [16, 64]>, #galvatron.flat_tensor<parameter = @mlp.bi, group = 0, offset = 1056, view = [64], local_shape = [64]>, #galvatron.flat_tensor<parameter = @mlp.wf, group = 0, offset = 1120, view = [64, 16], local_shape = [64, 16]>, #galvatron.flat_tensor<parameter = @mlp.bf, group = 0, offset = 2144, view = [16], local_shape = [16]>], groups = [#galvatron.flat_group<elements = 2176, shard_elements = 1088>, #galvatron.flat_group<elements = 0, shard_elements = 0>]>, norm = @mlp.sdp2.b2.ckpt.norm, recompute = @mlp.sdp2.b2.ckpt.recompute, stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2], ckpt>, update = @mlp.sdp2.b2.ckpt.update}
// CHECK: %{{[^ ]+}} = galvatron.layer "head"(%{{[^ ]+}}, %{{[^ ]+}}) params [@lnf.g, @lnf.b, @wte] {backward = @head.sdp2.b2.borrow2.backward, forward = @head.sdp2.b2.borrow2.forward, layout = #galvatron.layout<samples = 2, input_bytes = 1024, output_bytes = 0, stash_bytes = 3264, tensors = [#galvatron.flat_tensor<parameter = @lnf.g, group = 0, offset = 0, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @lnf.b, group = 0, offset = 16, view = [16], local_shape = [16]>, #galvatron.flat_tensor<parameter = @wte, group = 1, offset = 0, view = [33, 16], local_shape = [33, 16]>], groups = [#galvatron.flat_group<elements = 32, shard_elements = 16>, #galvatron.flat_group<elements = 544, shard_elements = 272>], data = ["labels"]>, norm = @head.sdp2.b2.borrow2.norm, stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2]>, update = @head.sdp2.b2.borrow2.update}

// CHECK-LABEL: grt.func @embed.sdp2.b2.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<368xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<368xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<736xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 368, 2, 0, 528, 1, 528, 192, 1] {label = "adamw"}

// CHECK-LABEL: grt.func @embed.sdp2.b2.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<368xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [368, 2, 0, 528, 1, 528, 192, 1] {label = "norm"}

// CHECK-LABEL: grt.func @mlp.sdp2.b2.ckpt.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<1088xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<1088xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<2176xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 1088, 6, 0, 16, 0, 16, 16, 0, 32, 1024, 1, 1056, 64, 0, 1120, 1024, 1, 2144, 16, 0] {label = "adamw"}

// CHECK-LABEL: grt.func @mlp.sdp2.b2.ckpt.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<1088xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [1088, 6, 0, 16, 1, 16, 16, 1, 32, 1024, 1, 1056, 64, 1, 1120, 1024, 1, 2144, 16, 1] {label = "norm"}

// CHECK-LABEL: grt.func @head.sdp2.b2.borrow2.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<32xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [2, 16, 2, 0, 16, 0, 16, 16, 0] {label = "adamw"}

// CHECK-LABEL: grt.func @head.sdp2.b2.borrow2.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [16, 2, 0, 16, 1, 16, 16, 1] {label = "norm"}
