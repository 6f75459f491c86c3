// RUN: galvatron-opt %s --pass-pipeline='builtin.module(func.func(nn-fuse,nn-fuse-products))' | FileCheck %s

// What the GELU is applied to is kept for backward: a result.
func.func @linear_and_gelu(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z {approximate} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %a, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @linear_and_gelu(
// CHECK-SAME: %[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x6xf32>, %[[B:.+]]: tensor<6xf32>
// CHECK-NEXT: %[[Y:.+]], %[[PRE:.+]] = nn.linear_gelu %[[X]], %[[W]], %[[B]] {approximate} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
// CHECK-NEXT: return %[[Y]], %[[PRE]]

// Nobody keeps it: it needs no buffer.
func.func @linear_and_gelu_of_a_checkpointed_layer(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %y = nn.linear %x, %w {transpose_weight} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z {approximate} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %a : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @linear_and_gelu_of_a_checkpointed_layer(
// CHECK-NEXT: %[[Y:.+]] = nn.linear_gelu %{{.+}} {approximate, transpose_weight} : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: return %[[Y]]

func.func @the_erf_form_stays(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>, %d: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x8xf32>) {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %dx = nn.linear_input_grad %d, %w : (tensor<4x6xf32>, tensor<8x6xf32>) -> tensor<4x8xf32>
  %dh = nn.gelu_grad %x, %dx : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %a, %dh : tensor<4x6xf32>, tensor<4x8xf32>
}
// CHECK-LABEL: func.func @the_erf_form_stays(
// CHECK-NEXT: nn.linear %
// CHECK-NEXT: nn.bias_gelu
// CHECK-NEXT: nn.linear_input_grad
// CHECK-NEXT: nn.gelu_grad

func.func @an_all_reduce_keeps_product_and_gelu_apart(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>, %d: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x8xf32>) {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %s = galvatron.all_reduce %y over tp : tensor<4x6xf32>
  %z = nn.bias_add %s, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z {approximate} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %p = nn.linear_input_grad %d, %w : (tensor<4x6xf32>, tensor<8x6xf32>) -> tensor<4x8xf32>
  %q = galvatron.all_reduce %p over tp : tensor<4x8xf32>
  %dh = nn.gelu_grad %x, %q {approximate} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %a, %dh : tensor<4x6xf32>, tensor<4x8xf32>
}
// CHECK-LABEL: func.func @an_all_reduce_keeps_product_and_gelu_apart(
// CHECK-NEXT: nn.linear %
// CHECK-NEXT: galvatron.all_reduce
// CHECK-NEXT: nn.bias_gelu
// CHECK-NEXT: nn.linear_input_grad
// CHECK-NEXT: galvatron.all_reduce
// CHECK-NEXT: nn.gelu_grad

// The fused gradient stands where the product did, before the other reader of
// what the product read.
func.func @input_grad_and_gelu_grad(%pre: tensor<4x8xf32>, %a: tensor<4x8xf32>, %w: tensor<8x6xf32>, %d: tensor<4x6xf32>) -> (tensor<4x8xf32>, tensor<8x6xf32>) {
  %dx = nn.linear_input_grad %d, %w : (tensor<4x6xf32>, tensor<8x6xf32>) -> tensor<4x8xf32>
  %dw = nn.linear_weight_grad %a, %d : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %dh = nn.gelu_grad %pre, %dx {approximate} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %dh, %dw : tensor<4x8xf32>, tensor<8x6xf32>
}
// CHECK-LABEL: func.func @input_grad_and_gelu_grad(
// CHECK-SAME: %[[PRE:.+]]: tensor<4x8xf32>, %[[A:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x6xf32>, %[[D:.+]]: tensor<4x6xf32>
// CHECK-NEXT: %[[DH:.+]] = nn.linear_gelu_grad %[[D]], %[[W]], %[[PRE]] {approximate}
// CHECK-NEXT: %[[DW:.+]] = nn.linear_weight_grad %[[A]], %[[D]]
// CHECK-NEXT: return %[[DH]], %[[DW]]

func.func @a_gradient_that_is_read_twice_stays(%pre: tensor<4x8xf32>, %w: tensor<8x6xf32>, %d: tensor<4x6xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %dx = nn.linear_input_grad %d, %w : (tensor<4x6xf32>, tensor<8x6xf32>) -> tensor<4x8xf32>
  %dh = nn.gelu_grad %pre, %dx {approximate} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %dh, %dx : tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK-LABEL: func.func @a_gradient_that_is_read_twice_stays(
// CHECK-NEXT: nn.linear_input_grad
// CHECK-NEXT: nn.gelu_grad

// `pre` is recomputed behind the product: there is no place for both.
func.func @a_gelu_computed_too_late_stays(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %d: tensor<4x6xf32>) -> tensor<4x8xf32> {
  %dx = nn.linear_input_grad %d, %w : (tensor<4x6xf32>, tensor<8x6xf32>) -> tensor<4x8xf32>
  %pre = nn.add %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %dh = nn.gelu_grad %pre, %dx {approximate} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %dh : tensor<4x8xf32>
}
// CHECK-LABEL: func.func @a_gelu_computed_too_late_stays(
// CHECK-NEXT: nn.linear_input_grad
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.gelu_grad

func.func @weight_and_bias(%x: tensor<4x8xf32>, %d: tensor<4x3x6xf32>) -> (tensor<8x3x6xf32>, tensor<3x6xf32>) {
  %db = nn.bias_grad %d : (tensor<4x3x6xf32>) -> tensor<3x6xf32>
  %dw = nn.linear_weight_grad %x, %d : (tensor<4x8xf32>, tensor<4x3x6xf32>) -> tensor<8x3x6xf32>
  return %dw, %db : tensor<8x3x6xf32>, tensor<3x6xf32>
}
// CHECK-LABEL: func.func @weight_and_bias(
// CHECK-SAME: %[[X:.+]]: tensor<4x8xf32>, %[[D:.+]]: tensor<4x3x6xf32>
// CHECK-NEXT: %[[DW:.+]], %[[DB:.+]] = nn.linear_weight_bias_grad %[[X]], %[[D]]
// CHECK-NEXT: return %[[DW]], %[[DB]]

func.func @other_sums_stay(%x: tensor<4x8xf32>, %d: tensor<4x3x6xf32>, %e: tensor<4x6xf32>) -> (tensor<8x3x6xf32>, tensor<6xf32>, tensor<6x8xf32>, tensor<6xf32>) {
  %db = nn.bias_grad %d : (tensor<4x3x6xf32>) -> tensor<6xf32>
  %dw = nn.linear_weight_grad %x, %d : (tensor<4x8xf32>, tensor<4x3x6xf32>) -> tensor<8x3x6xf32>
  %dt = nn.linear_weight_grad %x, %e {transpose_weight} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<6x8xf32>
  %de = nn.bias_grad %e : (tensor<4x6xf32>) -> tensor<6xf32>
  return %dw, %db, %dt, %de : tensor<8x3x6xf32>, tensor<6xf32>, tensor<6x8xf32>, tensor<6xf32>
}
// CHECK-LABEL: func.func @other_sums_stay(
// CHECK-NEXT: nn.bias_grad
// CHECK-NEXT: nn.linear_weight_grad
// CHECK-NEXT: nn.linear_weight_grad
// CHECK-NEXT: nn.bias_grad
