// RUN: galvatron-test-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers --galvatron-insert-collectives | FileCheck %s
// RUN: galvatron-test-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-insert-recompute,galvatron-partition-layers,galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s --check-prefix=GRT

// Operations that no pass knows, of a dialect that only the tests have, between a
// column and a row product and behind it. scaled_gelu is split with the factor and
// keeps its input; scale is linear, so the partial sum passes through it and the
// all-reduce comes after it, before the bias. In backward scale passes the gradient,
// and the all-reduce stands before layer normalisation as ever.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @"mlp.g" : tensor<16xf32> {init = "ones"}
galvatron.parameter @"mlp.b" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.wi" : tensor<16x64xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bi" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.wf" : tensor<64x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"mlp.bf" : tensor<16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>,
    %wi: tensor<16x64xf32> {nn.factors = ["", "ffn"]}, %bi: tensor<64xf32> {nn.factors = ["ffn"]},
    %wf: tensor<64x16xf32> {nn.factors = ["ffn", ""]}, %bf: tensor<16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 64 : i64}} {
  %n, %st = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %h = nn.linear %n, %wi : (tensor<?x8x16xf32>, tensor<16x64xf32>) -> tensor<?x8x64xf32>
  %hb = nn.bias_add %h, %bi : (tensor<?x8x64xf32>, tensor<64xf32>) -> tensor<?x8x64xf32>
  %a = test_nn.scaled_gelu %hb {factor = 1.5 : f64} : tensor<?x8x64xf32>
  %f = nn.linear %a, %wf : (tensor<?x8x64xf32>, tensor<64x16xf32>) -> tensor<?x8x16xf32>
  %s = test_nn.scale %f {factor = 5.0e-1 : f64} : tensor<?x8x16xf32>
  %fb = nn.bias_add %s, %bf : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  return %fb : tensor<?x8x16xf32>
}
// What a layer reads of the model's arguments has no gradient.
func.func private @front(%x: tensor<?x8x16xf32>) -> tensor<?x8x16xf32> {
  %y = nn.gelu %x : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @toy(%x: tensor<?x8x16xf32> is <images>, %labels: tensor<?x8xi32> is <labels, below = 33>) {
  %f = galvatron.layer "front" @front(%x) {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %0 = galvatron.layer "l" @body(%f) params [@"mlp.g", @"mlp.b", @"mlp.wi", @"mlp.bi", @"mlp.wf", @"mlp.bf"] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// CHECK-LABEL: func.func private @body.tp2.b4.forward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<16x32xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.role = "parameter"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<32xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<32x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "output"}, tensor<4x8x16xf32> {nn.role = "stash"}, tensor<4x8x2xf32> {nn.role = "stash"}, tensor<4x8x32xf32> {nn.role = "stash"}, tensor<4x8x32xf32> {nn.role = "stash"})
// CHECK-NEXT: [[Y8:%[a-z0-9_]+]], [[STATS9:%[a-z0-9_]+]] = nn.layer_norm [[A1]], [[A2]], [[A3]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = nn.linear [[Y8]], [[A4]]
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = nn.bias_add [[V10]], [[A5]]
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = test_nn.scaled_gelu [[V11]] {factor = 1.500000e+00 : f64}
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.linear [[V12]], [[A6]]
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = test_nn.scale [[V13]] {factor = 5.000000e-01 : f64}
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = galvatron.all_reduce [[V14]] over{{ +}}tp
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.bias_add [[V15]], [[A7]]
// CHECK-NEXT: return [[V16]], [[Y8]], [[STATS9]], [[V11]], [[V12]] : tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x8x2xf32>, tensor<4x8x32xf32>, tensor<4x8x32xf32>

// CHECK-LABEL: func.func private @body.tp2.b4.backward(
// CHECK-SAME: [[A1:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "gradient"}
// CHECK-SAME: [[A2:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "input"}
// CHECK-SAME: [[A3:%[a-z0-9_]+]]: tensor<4x8x16xf32> {nn.role = "stash"}
// CHECK-SAME: [[A4:%[a-z0-9_]+]]: tensor<4x8x2xf32> {nn.role = "stash"}
// CHECK-SAME: [[A5:%[a-z0-9_]+]]: tensor<4x8x32xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A6:%[a-z0-9_]+]]: tensor<4x8x32xf32> {galvatron.slice = #galvatron.slice<state = <[split 2]>>, nn.role = "stash"}
// CHECK-SAME: [[A7:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A8:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: [[A9:%[a-z0-9_]+]]: tensor<16x32xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 64], state = <[split 1]>>, nn.role = "parameter"}
// CHECK-SAME: [[A10:%[a-z0-9_]+]]: tensor<32xf32> {galvatron.slice = #galvatron.slice<global_shape = [64], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A11:%[a-z0-9_]+]]: tensor<32x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [64, 16], state = <[split 0]>>, nn.role = "parameter"}
// CHECK-SAME: [[A12:%[a-z0-9_]+]]: tensor<16xf32> {galvatron.slice = #galvatron.slice<global_shape = [16]>, nn.role = "parameter"}
// CHECK-SAME: -> (tensor<4x8x16xf32> {nn.role = "input_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"}, tensor<16x32xf32> {nn.role = "parameter_gradient"}, tensor<32xf32> {nn.role = "parameter_gradient"}, tensor<32x16xf32> {nn.role = "parameter_gradient"}, tensor<16xf32> {nn.role = "parameter_gradient"})
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = nn.bias_grad [[A1]]
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = test_nn.scale [[A1]] {factor = 5.000000e-01 : f64}
// CHECK-NEXT: [[V15:%[a-z0-9_]+]] = nn.linear_input_grad [[V14]], [[A11]]
// CHECK-NEXT: [[V16:%[a-z0-9_]+]] = nn.linear_weight_grad [[A6]], [[V14]]
// CHECK-NEXT: [[V17:%[a-z0-9_]+]] = test_nn.scaled_gelu_grad [[A5]], [[V15]] {factor = 1.500000e+00 : f64}
// CHECK-NEXT: [[V18:%[a-z0-9_]+]] = nn.bias_grad [[V17]]
// CHECK-NEXT: [[V19:%[a-z0-9_]+]] = nn.linear_input_grad [[V17]], [[A9]]
// CHECK-NEXT: [[V20:%[a-z0-9_]+]] = nn.linear_weight_grad [[A3]], [[V17]]
// CHECK-NEXT: [[V21:%[a-z0-9_]+]] = galvatron.all_reduce [[V19]] over{{ +}}tp
// CHECK-NEXT: [[DX22:%[a-z0-9_]+]], [[DGAMMA23:%[a-z0-9_]+]], [[DBETA24:%[a-z0-9_]+]] = nn.layer_norm_grad [[V21]], [[A2]], [[A4]], [[A7]]
// CHECK-NEXT: return [[DX22]], [[DGAMMA23]], [[DBETA24]], [[V20]], [[V18]], [[V16]], [[V13]] : tensor<4x8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16x32xf32>, tensor<32xf32>, tensor<32x16xf32>, tensor<16xf32>


// GRT-LABEL: grt.func @body.tp2.b4.forward attributes {input_bytes = 2048 : i64, output_bytes = 2048 : i64, stash_bytes = 10496 : i64}
// GRT-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// GRT-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x32xf32>
// GRT-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 6400 : memref<4x8x32xf32>
// GRT-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// GRT-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// GRT-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16x32xf32>
// GRT-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer parameter at 2176 : memref<32xf32>
// GRT-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer parameter at 2304 : memref<32x16xf32>
// GRT-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer parameter at 4352 : memref<16xf32>
// GRT-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// GRT-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x32xf32>
// GRT-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer transient : memref<28672xi8>
// GRT-NEXT: grt.begin [[V3]]
// GRT-NEXT: grt.begin [[V4]]
// GRT-NEXT: grt.kernel layer_norm([[V1]], [[V7]], [[V8]], [[V3]], [[V4]]) ints [32, 16] reals [1.000000e-05] {label = "layer_norm"}
// GRT-NEXT: grt.begin [[V13]]
// GRT-NEXT: grt.begin [[V5]]
// GRT-NEXT: grt.kernel gemm([[V3]], [[V9]], [[V5]], [[V10]], [[V13]]) ints [32, 32, 16, 0, 0, 0, 1] {label = "linear"}
// GRT-NEXT: grt.end [[V13]]
// GRT-NEXT: grt.begin [[V14]]
// GRT-NEXT: grt.kernel gelu([[V5]], [[V14]]) ints [1024, 1] {label = "scaled_gelu"}
// GRT-NEXT: grt.begin [[V6]]
// GRT-NEXT: grt.kernel scale([[V14]], [[V6]]) ints [1024] reals [1.500000e+00] {label = "scaled_gelu"}
// GRT-NEXT: grt.end [[V14]]
// GRT-NEXT: grt.begin [[V15]]
// GRT-NEXT: grt.kernel gemm([[V6]], [[V11]], [[V2]], [[V15]]) ints [32, 16, 32, 0, 0, 0, 0] {label = "linear"}
// GRT-NEXT: grt.end [[V15]]
// GRT-NEXT: grt.kernel scale([[V2]], [[V2]]) ints [512] reals [5.000000e-01] {label = "scale"}
// GRT-NEXT: grt.all_reduce [[V2]] over tp {label = "all_reduce"}
// GRT-NEXT: grt.kernel bias_add([[V2]], [[V12]], [[V2]]) ints [32, 16] {label = "bias_add"}

// GRT-LABEL: grt.func @body.tp2.b4.backward attributes {input_bytes = 2048 : i64, output_bytes = 0 : i64, stash_bytes = 10496 : i64}
// GRT-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 2048 : memref<4x8x2xf32>
// GRT-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 2304 : memref<4x8x32xf32>
// GRT-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer stash at 6400 : memref<4x8x32xf32>
// GRT-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// GRT-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// GRT-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16x32xf32>
// GRT-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer parameter at 2176 : memref<32xf32>
// GRT-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer parameter at 2304 : memref<32x16xf32>
// GRT-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer parameter at 4352 : memref<16xf32>
// GRT-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<4x8x16xf32>
// GRT-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// GRT-NEXT: [[V15:%[a-z0-9_]+]] = grt.buffer gradient at 64 : memref<16xf32>
// GRT-NEXT: [[V16:%[a-z0-9_]+]] = grt.buffer gradient at 128 : memref<16x32xf32>
// GRT-NEXT: [[V17:%[a-z0-9_]+]] = grt.buffer gradient at 2176 : memref<32xf32>
// GRT-NEXT: [[V18:%[a-z0-9_]+]] = grt.buffer gradient at 2304 : memref<32x16xf32>
// GRT-NEXT: [[V19:%[a-z0-9_]+]] = grt.buffer gradient at 4352 : memref<16xf32>
// GRT-NEXT: [[V20:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x16xf32>
// GRT-NEXT: [[V21:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x32xf32>
// GRT-NEXT: [[V22:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// GRT-NEXT: [[V23:%[a-z0-9_]+]] = grt.buffer transient : memref<36864xi8>
// GRT-NEXT: [[V24:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x32xf32>
// GRT-NEXT: [[V25:%[a-z0-9_]+]] = grt.buffer transient : memref<4x8x32xf32>
// GRT-NEXT: [[V26:%[a-z0-9_]+]] = grt.buffer transient : memref<28672xi8>
// GRT-NEXT: [[V27:%[a-z0-9_]+]] = grt.buffer transient : memref<32768xi8>
// GRT-NEXT: grt.kernel bias_grad([[V1]], [[V19]]) ints [32, 16, 2] {label = "bias_grad"}
// GRT-NEXT: grt.begin [[V20]]
// GRT-NEXT: grt.kernel scale([[V1]], [[V20]]) ints [512] reals [5.000000e-01] {label = "scale"}
// GRT-NEXT: grt.begin [[V21]]
// GRT-NEXT: grt.begin [[V22]]
// GRT-NEXT: grt.kernel gemm([[V20]], [[V11]], [[V21]], [[V22]]) ints [32, 32, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// GRT-NEXT: grt.end [[V22]]
// GRT-NEXT: grt.begin [[V23]]
// GRT-NEXT: grt.kernel gemm([[V6]], [[V20]], [[V18]], [[V23]]) ints [32, 16, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// GRT-NEXT: grt.end [[V23]]
// GRT-NEXT: grt.end [[V20]]
// GRT-NEXT: grt.begin [[V25]]
// GRT-NEXT: grt.kernel scale([[V21]], [[V25]]) ints [1024] reals [1.500000e+00] {label = "scaled_gelu_grad"}
// GRT-NEXT: grt.end [[V21]]
// GRT-NEXT: grt.begin [[V24]]
// GRT-NEXT: grt.kernel gelu_grad([[V5]], [[V25]], [[V24]]) ints [1024, 1] {label = "scaled_gelu_grad"}
// GRT-NEXT: grt.end [[V25]]
// GRT-NEXT: grt.kernel bias_grad([[V24]], [[V17]]) ints [32, 32, 2] {label = "bias_grad"}
// GRT-NEXT: grt.begin [[V26]]
// GRT-NEXT: grt.kernel gemm([[V24]], [[V9]], [[V13]], [[V26]]) ints [32, 16, 32, 0, 1, 0, 0] {label = "linear_input_grad"}
// GRT-NEXT: grt.end [[V26]]
// GRT-NEXT: grt.begin [[V27]]
// GRT-NEXT: grt.kernel gemm([[V3]], [[V24]], [[V16]], [[V27]]) ints [16, 32, 32, 1, 0, 2, 0] {label = "linear_weight_grad"}
// GRT-NEXT: grt.end [[V27]]
// GRT-NEXT: grt.end [[V24]]
// GRT-NEXT: grt.all_reduce [[V13]] over tp {label = "all_reduce"}
// GRT-NEXT: grt.kernel layer_norm_grad([[V13]], [[V2]], [[V4]], [[V7]], [[V13]], [[V14]], [[V15]]) ints [32, 16, 2] {label = "layer_norm_grad"}
// GRT-NEXT: grt.end [[V3]]
// GRT-NEXT: grt.end [[V4]]
// GRT-NEXT: grt.end [[V5]]
// GRT-NEXT: grt.end [[V6]]
