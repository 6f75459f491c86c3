// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-partition-layers,galvatron-insert-collectives,convert-nn-to-grt)' | FileCheck %s

// Which values share a buffer, which gradients accumulate in place, and which do not.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros", decay}
galvatron.parameter @v : tensor<16x16xf32> {init = "zeros"}
galvatron.parameter @g : tensor<16xf32> {init = "ones"}
galvatron.parameter @h : tensor<16xf32> {init = "ones"}
galvatron.parameter @b : tensor<16xf32> {init = "zeros"}

// The product is kept for backward, so GELU needs a buffer of its own; what
// follows dies at once and stays in the output's buffer.
func.func private @chain(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x16xf32> {
  %y = nn.linear %x, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = nn.gelu %y : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %d = nn.dropout %z {p = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %e = nn.dropout %d {p = 1.0e-1 : f64, op_index = 1 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  return %e : tensor<?x16xf32>
}

// The gradient of a weight used twice is a sum, which cannot be written in place:
// it is added to the accumulator at the end.
func.func private @twice(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x16xf32> {
  %y = nn.linear %x, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = nn.linear %y, %w {transpose_weight} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %z : tensor<?x16xf32>
}

// Two norms share their beta: gamma accumulates in place, beta goes through a
// buffer of zeros.
func.func private @shared_beta(%x: tensor<?x16xf32>, %g: tensor<16xf32>, %h: tensor<16xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
  %y, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x2xf32>)
  %z, %t = nn.layer_norm %y, %h, %b {eps = 1.0e-5 : f64} : (tensor<?x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x2xf32>)
  return %z : tensor<?x16xf32>
}

// One value that leaves twice, and an input that leaves: copies.
func.func private @copies(%x: tensor<?x16xf32>, %b: tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) {
  %y = nn.bias_add %x, %b : (tensor<?x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  return %y, %y, %x : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}

func.func private @front(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %y = nn.gelu %x : (tensor<?x16xf32>) -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

galvatron.model @toy(%x: tensor<?x16xf32> is <images>) {
  %f = galvatron.layer "front" @front(%x) {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %0 = galvatron.layer "chain" @chain(%f) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %1 = galvatron.layer "other" @chain(%0) params [@v] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %2 = galvatron.layer "twice" @twice(%1) params [@w] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %3 = galvatron.layer "shared" @shared_beta(%2) params [@g, @h, @b] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %4, %5, %6 = galvatron.layer "copies" @copies(%3) params [@b] {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>)
  galvatron.output %4 : tensor<?x16xf32>
}
}

// CHECK-LABEL: grt.func @chain.b2.forward attributes {input_bytes = 128 : i64, output_bytes = 128 : i64, stash_bytes = 128 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V4]], [[V3]], [[V5]]) ints [2, 16, 16, 0, 0, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.kernel gelu([[V3]], [[V2]]) ints [32, 0] {label = "gelu"}
// CHECK-NEXT: grt.kernel dropout([[V2]], [[V2]]) ints [2, 1, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.kernel dropout([[V2]], [[V2]]) ints [2, 1, 16, 1, 0, 0] reals [1.000000e-01] {label = "dropout"}

// CHECK-LABEL: grt.func @chain.b2.backward attributes {input_bytes = 128 : i64, output_bytes = 0 : i64, stash_bytes = 128 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer transient : memref<2x16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer transient : memref<23168xi8>
// CHECK-NEXT: grt.begin [[V7]]
// CHECK-NEXT: grt.kernel dropout([[V1]], [[V7]]) ints [2, 1, 16, 1, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.kernel dropout([[V7]], [[V7]]) ints [2, 1, 16, 0, 0, 0] reals [1.000000e-01] {label = "dropout"}
// CHECK-NEXT: grt.kernel gelu_grad([[V3]], [[V7]], [[V7]]) ints [32, 0] {label = "gelu_grad"}
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.kernel gemm([[V7]], [[V4]], [[V5]], [[V8]]) ints [2, 16, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V8]]
// CHECK-NEXT: grt.begin [[V9]]
// CHECK-NEXT: grt.kernel gemm([[V2]], [[V7]], [[V6]], [[V9]]) ints [16, 16, 2, 1, 0, 2, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V9]]
// CHECK-NEXT: grt.end [[V7]]
// CHECK-NEXT: grt.end [[V3]]

// CHECK-LABEL: grt.func @twice.b2.borrow0.forward attributes {input_bytes = 128 : i64, output_bytes = 128 : i64, stash_bytes = 128 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V4]], [[V3]], [[V5]]) ints [2, 16, 16, 0, 0, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V5]]
// CHECK-NEXT: grt.begin [[V6]]
// CHECK-NEXT: grt.kernel gemm([[V3]], [[V4]], [[V2]], [[V6]]) ints [2, 16, 16, 0, 1, 0, 0] {label = "linear"}
// CHECK-NEXT: grt.end [[V6]]

// CHECK-LABEL: grt.func @twice.b2.borrow0.backward attributes {input_bytes = 128 : i64, output_bytes = 0 : i64, stash_bytes = 128 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer transient : memref<2x16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer transient : memref<16x16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer transient : memref<23168xi8>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer transient : memref<24576xi8>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer transient : memref<16x16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<23168xi8>
// CHECK-NEXT: grt.begin [[V7]]
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V4]], [[V7]], [[V8]]) ints [2, 16, 16, 0, 0, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V8]]
// CHECK-NEXT: grt.begin [[V9]]
// CHECK-NEXT: grt.begin [[V10]]
// CHECK-NEXT: grt.kernel gemm([[V1]], [[V3]], [[V9]], [[V10]]) ints [16, 16, 2, 1, 0, 0, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V10]]
// CHECK-NEXT: grt.begin [[V11]]
// CHECK-NEXT: grt.kernel gemm([[V7]], [[V4]], [[V5]], [[V11]]) ints [2, 16, 16, 0, 1, 0, 0] {label = "linear_input_grad"}
// CHECK-NEXT: grt.end [[V11]]
// CHECK-NEXT: grt.begin [[V12]]
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.kernel gemm([[V2]], [[V7]], [[V12]], [[V13]]) ints [16, 16, 2, 1, 0, 0, 0] {label = "linear_weight_grad"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.end [[V7]]
// CHECK-NEXT: grt.kernel add([[V9]], [[V12]], [[V9]]) ints [256] {label = "add"}
// CHECK-NEXT: grt.end [[V12]]
// CHECK-NEXT: grt.kernel bias_grad([[V9]], [[V6]]) ints [1, 256, 2] {label = "accumulate"}
// CHECK-NEXT: grt.end [[V9]]
// CHECK-NEXT: grt.end [[V3]]

// CHECK-LABEL: grt.func @shared_beta.b2.forward attributes {input_bytes = 128 : i64, output_bytes = 128 : i64, stash_bytes = 256 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 128 : memref<2x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 192 : memref<2x2xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16xf32>
// CHECK-NEXT: grt.begin [[V3]]
// CHECK-NEXT: grt.begin [[V4]]
// CHECK-NEXT: grt.kernel layer_norm([[V1]], [[V6]], [[V8]], [[V3]], [[V4]]) ints [2, 16] reals [1.000000e-05] {label = "layer_norm"}
// CHECK-NEXT: grt.begin [[V5]]
// CHECK-NEXT: grt.kernel layer_norm([[V3]], [[V7]], [[V8]], [[V2]], [[V5]]) ints [2, 16] reals [1.000000e-05] {label = "layer_norm"}

// CHECK-LABEL: grt.func @shared_beta.b2.backward attributes {input_bytes = 128 : i64, output_bytes = 0 : i64, stash_bytes = 256 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer stash at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer stash at 128 : memref<2x2xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer stash at 192 : memref<2x2xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer parameter at 64 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer parameter at 128 : memref<16xf32>
// CHECK-NEXT: [[V9:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V10:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V11:%[a-z0-9_]+]] = grt.buffer gradient at 64 : memref<16xf32>
// CHECK-NEXT: [[V12:%[a-z0-9_]+]] = grt.buffer gradient at 128 : memref<16xf32>
// CHECK-NEXT: [[V13:%[a-z0-9_]+]] = grt.buffer transient : memref<16xf32>
// CHECK-NEXT: [[V14:%[a-z0-9_]+]] = grt.buffer transient : memref<16xf32>
// CHECK-NEXT: grt.begin [[V13]]
// CHECK-NEXT: grt.kernel zero([[V13]]) {label = "layer_norm_grad"}
// CHECK-NEXT: grt.kernel layer_norm_grad([[V1]], [[V3]], [[V5]], [[V7]], [[V9]], [[V11]], [[V13]]) ints [2, 16, 2] {label = "layer_norm_grad"}
// CHECK-NEXT: grt.begin [[V14]]
// CHECK-NEXT: grt.kernel zero([[V14]]) {label = "layer_norm_grad"}
// CHECK-NEXT: grt.kernel layer_norm_grad([[V9]], [[V2]], [[V4]], [[V6]], [[V9]], [[V10]], [[V14]]) ints [2, 16, 2] {label = "layer_norm_grad"}
// CHECK-NEXT: grt.kernel add([[V13]], [[V14]], [[V13]]) ints [16] {label = "add"}
// CHECK-NEXT: grt.end [[V14]]
// CHECK-NEXT: grt.kernel bias_grad([[V13]], [[V12]]) ints [1, 16, 2] {label = "accumulate"}
// CHECK-NEXT: grt.end [[V13]]
// CHECK-NEXT: grt.end [[V3]]
// CHECK-NEXT: grt.end [[V4]]
// CHECK-NEXT: grt.end [[V5]]

// CHECK-LABEL: grt.func @copies.b2.borrow0.forward attributes {input_bytes = 128 : i64, output_bytes = 384 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer output at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer output at 128 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer output at 256 : memref<2x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: grt.kernel bias_add([[V1]], [[V5]], [[V2]]) ints [2, 16] {label = "bias_add"}
// CHECK-NEXT: grt.kernel copy([[V2]], [[V3]]) ints [1, 128, 128, 128] {label = "copy"}
// CHECK-NEXT: grt.kernel copy([[V1]], [[V4]]) ints [1, 128, 128, 128] {label = "copy"}

// CHECK-LABEL: grt.func @copies.b2.borrow0.backward attributes {input_bytes = 128 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer grad_in at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer grad_in at 128 : memref<2x16xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer grad_in at 256 : memref<2x16xf32>
// CHECK-NEXT: [[V4:%[a-z0-9_]+]] = grt.buffer input at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V5:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<16xf32>
// CHECK-NEXT: [[V6:%[a-z0-9_]+]] = grt.buffer grad_out at 0 : memref<2x16xf32>
// CHECK-NEXT: [[V7:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<16xf32>
// CHECK-NEXT: [[V8:%[a-z0-9_]+]] = grt.buffer transient : memref<2x16xf32>
// CHECK-NEXT: grt.begin [[V8]]
// CHECK-NEXT: grt.kernel add([[V1]], [[V2]], [[V8]]) ints [32] {label = "add"}
// CHECK-NEXT: grt.kernel bias_grad([[V8]], [[V7]]) ints [2, 16, 2] {label = "bias_grad"}
// CHECK-NEXT: grt.kernel add([[V3]], [[V8]], [[V6]]) ints [32] {label = "add"}
// CHECK-NEXT: grt.end [[V8]]

// CHECK-LABEL: grt.func @chain.b2.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<256xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<256xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<256xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [0, 256, 1, 0, 256, 1] {label = "sgd"}

// CHECK-LABEL: grt.func @chain.b2.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<256xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [256, 1, 0, 256, 1] {label = "norm"}

// CHECK-LABEL: grt.func @chain.b2.update1
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<256xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<256xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<256xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [0, 256, 1, 0, 256, 0] {label = "sgd"}

// CHECK-LABEL: grt.func @shared_beta.b2.update
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer parameter at 0 : memref<48xf32>
// CHECK-NEXT: [[V2:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<48xf32>
// CHECK-NEXT: [[V3:%[a-z0-9_]+]] = grt.buffer optimizer at 0 : memref<48xf32>
// CHECK-NEXT: grt.kernel optimizer([[V1]], [[V2]], [[V3]]) ints [0, 48, 3, 0, 16, 0, 16, 16, 0, 32, 16, 0] {label = "sgd"}

// CHECK-LABEL: grt.func @shared_beta.b2.norm
// CHECK-NEXT: [[V1:%[a-z0-9_]+]] = grt.buffer gradient at 0 : memref<48xf32>
// CHECK-NEXT: grt.kernel norm([[V1]]) ints [48, 3, 0, 16, 1, 16, 16, 1, 32, 16, 1] {label = "norm"}

// One body, two updates: only the first layer decays its weight.
// CHECK-NOT: grt.func @chain
