// RUN: galvatron-opt %s --pass-pipeline='builtin.module(func.func(nn-fuse))' | FileCheck %s

func.func @linear_and_bias(%x: tensor<4x8xf32>, %w: tensor<8x2x6xf32>, %b: tensor<2x6xf32>) -> tensor<4x2x6xf32> {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x2x6xf32>) -> tensor<4x2x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x2x6xf32>, tensor<2x6xf32>) -> tensor<4x2x6xf32>
  return %z : tensor<4x2x6xf32>
}
// CHECK-LABEL: func.func @linear_and_bias(
// CHECK-SAME: %[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x2x6xf32>, %[[B:.+]]: tensor<2x6xf32>
// CHECK-NEXT: %[[Y:.+]] = nn.linear %[[X]], %[[W]] bias %[[B]]
// CHECK-NEXT: return %[[Y]]

func.func @transposed_linear_and_bias(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %y = nn.linear %x, %w {transpose_weight} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  return %z : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @transposed_linear_and_bias(
// CHECK: nn.linear %{{.+}}, %{{.+}} bias %{{.+}} {transpose_weight}
// CHECK-NOT: nn.bias_add

func.func @a_product_that_is_kept_stays(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  return %y, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @a_product_that_is_kept_stays(
// CHECK: nn.linear %{{[^ ]+}}, %{{[^ ]+}} :
// CHECK: nn.bias_add

func.func @an_all_reduce_keeps_product_and_bias_apart(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %s = galvatron.all_reduce %y over tp : tensor<4x6xf32>
  %z = nn.bias_add %s, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  return %z : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @an_all_reduce_keeps_product_and_bias_apart(
// CHECK: nn.linear %{{[^ ]+}}, %{{[^ ]+}} :
// CHECK-NEXT: galvatron.all_reduce
// CHECK-NEXT: nn.bias_add

func.func @a_bias_of_fewer_dimensions_stays(%x: tensor<4x8xf32>, %w: tensor<8x2x6xf32>, %b: tensor<6xf32>) -> tensor<4x2x6xf32> {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x2x6xf32>) -> tensor<4x2x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x2x6xf32>, tensor<6xf32>) -> tensor<4x2x6xf32>
  return %z : tensor<4x2x6xf32>
}
// CHECK-LABEL: func.func @a_bias_of_fewer_dimensions_stays(
// CHECK: nn.linear %{{[^ ]+}}, %{{[^ ]+}} :
// CHECK: nn.bias_add

// The biased value is kept for backward: it is the first result.
func.func @bias_and_gelu(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %z = nn.bias_add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z {approximate} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %a, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @bias_and_gelu(
// CHECK-NEXT: %[[Y:.+]] = nn.linear %{{[^ ]+}}, %{{[^ ]+}} :
// CHECK-NEXT: %[[PRE:.+]], %[[A:.+]] = nn.bias_gelu %[[Y]], %{{.+}} {approximate}
// CHECK-NEXT: return %[[A]], %[[PRE]]

// A user of the biased value stands before GELU.
func.func @bias_used_before_gelu(%x: tensor<4x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %z = nn.bias_add %x, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %s = nn.add %z, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %a = nn.gelu %z : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %r = nn.add %a, %s : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @bias_used_before_gelu(
// CHECK-SAME: %[[X:.+]]: tensor<4x6xf32>, %[[B:.+]]: tensor<6xf32>
// CHECK-NEXT: %[[PRE:.+]], %[[A:.+]] = nn.bias_gelu %[[X]], %[[B]] :
// CHECK-NEXT: %[[S:.+]] = nn.add %[[PRE]], %[[X]]
// CHECK-NEXT: nn.add %[[A]], %[[S]]

func.func @dropout_and_residual(%x: tensor<4x6xf32>, %r: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %d = nn.dropout %x {p = 1.0e-1 : f64, op_index = 3 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %r, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %e = nn.dropout %x {p = 2.0e-1 : f64, col_sharded} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = nn.add %e, %r : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %t : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @dropout_and_residual(
// CHECK-SAME: %[[X:.+]]: tensor<4x6xf32>, %[[R:.+]]: tensor<4x6xf32>
// CHECK-NEXT: nn.dropout_add %[[X]], %[[R]] {op_index = 3 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: nn.dropout_add %[[X]], %[[R]] {col_sharded, p = 2.000000e-01 : f64}
// CHECK-NEXT: return

func.func @a_dropout_of_two_users_stays(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %d = nn.dropout %x {p = 1.0e-1 : f64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %d, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @a_dropout_of_two_users_stays(
// CHECK: nn.dropout
// CHECK-NEXT: nn.add

// The sum goes on as the residual stream: it is the first result. The operand
// that something computes comes first, since the sum may take its place.
func.func @residual_and_norm(%r: tensor<4x6xf32>, %x: tensor<4x5xf32>, %w: tensor<5x6xf32>, %g: tensor<6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x2xf32>) {
  %h = nn.linear %x, %w : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %h, %r : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %y, %stats = nn.layer_norm %s, %g, %b {eps = 1.0e-5 : f64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x2xf32>)
  return %s, %y, %stats : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x2xf32>
}
// CHECK-LABEL: func.func @residual_and_norm(
// CHECK-SAME: %[[R:.+]]: tensor<4x6xf32>, %[[X:.+]]: tensor<4x5xf32>, %[[W:.+]]: tensor<5x6xf32>, %[[G:.+]]: tensor<6xf32>, %[[B:.+]]: tensor<6xf32>
// CHECK-NEXT: %[[H:.+]] = nn.linear
// CHECK-NEXT: %[[S:.+]], %[[Y:.+]], %[[STATS:.+]] = nn.add_layer_norm %{{.+}}, %{{.+}}, %[[G]], %[[B]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: return %[[S]], %[[Y]], %[[STATS]]

func.func @residual_of_an_argument(%r: tensor<4x6xf32>, %x: tensor<4x5xf32>, %w: tensor<5x6xf32>, %g: tensor<6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %h = nn.linear %x, %w : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %r, %h : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %y, %stats = nn.layer_norm %s, %g, %b {eps = 1.0e-5 : f64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x2xf32>)
  return %s, %y : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @residual_of_an_argument(
// CHECK-SAME: %[[R:.+]]: tensor<4x6xf32>, %{{.+}}: tensor<4x5xf32>
// CHECK-NEXT: %[[H:.+]] = nn.linear
// CHECK-NEXT: nn.add_layer_norm %[[H]], %[[R]]

func.func @dropout_residual_and_norm(%r: tensor<4x6xf32>, %x: tensor<4x6xf32>, %g: tensor<6xf32>, %b: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %d = nn.dropout %x {p = 1.0e-1 : f64, op_index = 3 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %r, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %y, %stats = nn.layer_norm %s, %g, %b {eps = 1.0e-5 : f64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x2xf32>)
  return %s, %y : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @dropout_residual_and_norm(
// CHECK-SAME: %[[R:.+]]: tensor<4x6xf32>, %[[X:.+]]: tensor<4x6xf32>
// CHECK-NEXT: nn.add_layer_norm %[[X]], %[[R]], %{{.+}}, %{{.+}} {eps = 1.000000e-05 : f64, op_index = 3 : i64, p = 1.000000e-01 : f64}
// CHECK-NEXT: return

// The scale is computed behind the sum.
func.func @a_norm_of_a_later_scale_stays(%r: tensor<4x6xf32>, %x: tensor<4x6xf32>, %g: tensor<6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %s = nn.add %r, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = nn.add %g, %b : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  %y, %stats = nn.layer_norm %s, %t, %b {eps = 1.0e-5 : f64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x2xf32>)
  return %y : tensor<4x6xf32>
}
// CHECK-LABEL: func.func @a_norm_of_a_later_scale_stays(
// CHECK: nn.layer_norm

func.func @norm_gradient_and_residual(%dy: tensor<4x6xf32>, %x: tensor<4x6xf32>, %st: tensor<4x2xf32>, %g: tensor<6xf32>, %r: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %dx, %dg, %db = nn.layer_norm_grad %dy, %x, %st, %g : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x2xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %s = nn.add %r, %dx : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %dg, %db : tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>
}
// CHECK-LABEL: func.func @norm_gradient_and_residual(
// CHECK-SAME: %[[DY:.+]]: tensor<4x6xf32>, %[[X:.+]]: tensor<4x6xf32>, %[[ST:.+]]: tensor<4x2xf32>, %[[G:.+]]: tensor<6xf32>, %[[R:.+]]: tensor<4x6xf32>
// CHECK-NEXT: %[[DX:.+]], %[[DG:.+]], %[[DB:.+]] = nn.layer_norm_add_grad %[[DY]], %[[X]], %[[ST]], %[[G]], %[[R]] :
// CHECK-NEXT: return %[[DX]], %[[DG]], %[[DB]]

// What is added comes after the norm's gradient.
func.func @norm_gradient_and_a_later_residual(%dy: tensor<4x6xf32>, %x: tensor<4x6xf32>, %st: tensor<4x2xf32>, %g: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %dx, %dg, %db = nn.layer_norm_grad %dy, %x, %st, %g : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x2xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %r = nn.gelu %x : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = nn.add %dx, %r : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %dg, %db : tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>
}
// CHECK-LABEL: func.func @norm_gradient_and_a_later_residual(
// CHECK-NEXT: %[[R:.+]] = nn.gelu
// CHECK-NEXT: nn.layer_norm_add_grad %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %[[R]] :

func.func @a_norm_gradient_of_two_users_stays(%dy: tensor<4x6xf32>, %x: tensor<4x6xf32>, %st: tensor<4x2xf32>, %g: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %dx, %dg, %db = nn.layer_norm_grad %dy, %x, %st, %g : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x2xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %s = nn.add %dx, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %dx : tensor<4x6xf32>, tensor<4x6xf32>
}
// CHECK-LABEL: func.func @a_norm_gradient_of_two_users_stays(
// CHECK: nn.layer_norm_grad
// CHECK-NEXT: nn.add
