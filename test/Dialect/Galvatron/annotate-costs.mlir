// RUN: galvatron-opt %s --galvatron-annotate-costs --remarks-filter=galvatron 2>&1 | FileCheck %s
// RUN: galvatron-import %examples/gpt2-124m/config.json --seq-len=64 | galvatron-opt --galvatron-annotate-costs --remarks-filter=galvatron 2>&1 | FileCheck %s --check-prefix=GPT2
// RUN: not galvatron-opt %s --galvatron-annotate-costs --galvatron-verify-phase=phase=plan 2>&1 | FileCheck %s --check-prefix=PLAN

// 4 tokens a sample, width 8, inner width 16, 16 words.
// CHECK: remark: [Analysis] annotate-costs {{.*}} Remark="408 parameters of 1632 bytes in 3 layers, 4576 floating-point operations a sample in the forward pass"
// PLAN: expected the attribute 'galvatron.cluster' after the phase 'plan'

galvatron.parameter @table : tensor<16x8xf32> {init = "ones"}
galvatron.parameter @up : tensor<8x16xf32> {init = "ones"}
galvatron.parameter @bias : tensor<16xf32> {init = "ones"}
galvatron.parameter @down : tensor<16x8xf32> {init = "ones"}
galvatron.parameter @last : tensor<8xf32> {init = "ones"}

func.func private @embed(%tokens: tensor<?x4xi32>, %table: tensor<16x8xf32>) -> tensor<?x4x8xf32> {
  %0 = nn.embedding %tokens, %table : (tensor<?x4xi32>, tensor<16x8xf32>) -> tensor<?x4x8xf32>
  return %0 : tensor<?x4x8xf32>
}
// Forward: two products of 2 * 4 * 8 * 16 FLOPs, 64 for the bias, 14 for each GELU.
// Backward: four such products, and 25 for each GELU. It keeps the sum before the GELU and
// its result: 2 * 4 * 16 * 4 bytes.
func.func private @mlp(%x: tensor<?x4x8xf32>, %up: tensor<8x16xf32>, %bias: tensor<16xf32>, %down: tensor<16x8xf32>) -> tensor<?x4x8xf32> {
  %0 = nn.linear %x, %up : (tensor<?x4x8xf32>, tensor<8x16xf32>) -> tensor<?x4x16xf32>
  %1 = nn.bias_add %0, %bias : (tensor<?x4x16xf32>, tensor<16xf32>) -> tensor<?x4x16xf32>
  %2 = nn.gelu %1 : (tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %3 = nn.linear %2, %down : (tensor<?x4x16xf32>, tensor<16x8xf32>) -> tensor<?x4x8xf32>
  return %3 : tensor<?x4x8xf32>
}
func.func private @head(%x: tensor<?x4x8xf32>, %labels: tensor<?x4xi32>, %last: tensor<8xf32>, %table: tensor<16x8xf32>) -> tensor<1xf64> {
  %0 = nn.bias_add %x, %last : (tensor<?x4x8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
  %1 = nn.linear %0, %table {transpose_weight} : (tensor<?x4x8xf32>, tensor<16x8xf32>) -> tensor<?x4x16xf32>
  %loss, %d = nn.cross_entropy %1, %labels {classes = 16 : i64} : (tensor<?x4x16xf32>, tensor<?x4xi32>) -> (tensor<1xf64>, tensor<?x4x16xf32>)
  return %loss : tensor<1xf64>
}

galvatron.model @m(%tokens: tensor<?x4xi32> is <tokens, below = 16>, %labels: tensor<?x4xi32> is <labels, below = 16>) {
  // CHECK: galvatron.layer "embed"
  // CHECK-SAME: costs = #galvatron.costs<parameters = 128, parameter_bytes = 512, boundary_bytes = 128, intermediate_bytes = 0,
  // CHECK-SAME: forward_flops = 0.000000e+00 : f64
  %0 = galvatron.layer "embed" @embed(%tokens) params [@table] : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
  // CHECK: galvatron.layer "mlp"
  // CHECK-SAME: parameters = 272, parameter_bytes = 1088, boundary_bytes = 128, intermediate_bytes = 512, backward_bytes = 1472
  // CHECK-SAME: forward_flops = 3.008000e+03 : f64, backward_flops = 5.696000e+03 : f64
  %1 = galvatron.layer "mlp" @mlp(%0) params [@up, @bias, @down] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // The tied table counts in both layers, once in the model.
  // CHECK: galvatron.layer "head"
  // CHECK-SAME: parameters = 136,
  %2 = galvatron.layer "head" @head(%1, %labels) params [@last, @table] : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %2 : tensor<1xf64>
}

// GPT-2 of the smallest size, by hand: wte 50257*768, wpe 1024*768, 12 blocks of
// 12*768^2 + 13*768, final norm 2*768.
// GPT2: Remark="124439808 parameters of 497759232 bytes in 14 layers
// An embedding holds (50257 + 1024) * 768 numbers.
// GPT2: galvatron.layer "wte"
// GPT2-SAME: parameters = 39383808,
// GPT2: galvatron.layer "h.0"
// GPT2-SAME: parameters = 7087872, parameter_bytes = 28351488, boundary_bytes = 196608,
