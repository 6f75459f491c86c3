// RUN: galvatron-opt %s --verify-roundtrip | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// CHECK-LABEL: func.func @tables
func.func @tables(%tokens: tensor<?x8xi32>, %wte: tensor<32x16xf32>, %wpe: tensor<12x16xf32>, %shard: tensor<11x16xf32>) -> (tensor<32x16xf32>, tensor<12x16xf32>, tensor<11x16xf32>) {
  // CHECK: nn.embedding %{{.*}}, %{{.*}} : (tensor<?x8xi32>, tensor<32x16xf32>) -> tensor<?x8x16xf32>
  %x = nn.embedding %tokens, %wte : (tensor<?x8xi32>, tensor<32x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.embedding %{{.*}}, %{{.*}} {sharded} : (tensor<?x8xi32>, tensor<11x16xf32>) -> tensor<?x8x16xf32>
  %s = nn.embedding %tokens, %shard {sharded} : (tensor<?x8xi32>, tensor<11x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.position_add %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<12x16xf32>) -> tensor<?x8x16xf32>
  %y = nn.position_add %x, %wpe : (tensor<?x8x16xf32>, tensor<12x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8xi32>, tensor<?x8x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %dwte = nn.embedding_grad %tokens, %y, %wte : (tensor<?x8xi32>, tensor<?x8x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}}, %{{.*}} {sharded}
  %dshard = nn.embedding_grad %tokens, %s, %shard {sharded} : (tensor<?x8xi32>, tensor<?x8x16xf32>, tensor<11x16xf32>) -> tensor<11x16xf32>
  // CHECK: nn.position_grad %{{.*}} : (tensor<?x8x16xf32>) -> tensor<12x16xf32>
  %dwpe = nn.position_grad %y : (tensor<?x8x16xf32>) -> tensor<12x16xf32>
  return %dwte, %dwpe, %dshard : tensor<32x16xf32>, tensor<12x16xf32>, tensor<11x16xf32>
}

// CHECK-LABEL: func.func @products
func.func @products(%x: tensor<?x8x16xf64>, %w: tensor<16x3x16xf64>, %b: tensor<3x16xf64>, %head: tensor<32x16xf64>) -> (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>, tensor<32x16xf64>) {
  // CHECK: nn.linear %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<16x3x16xf64>) -> tensor<?x8x3x16xf64>
  %y = nn.linear %x, %w : (tensor<?x8x16xf64>, tensor<16x3x16xf64>) -> tensor<?x8x3x16xf64>
  // CHECK: nn.linear %{{.*}}, %{{.*}} bias %{{.*}} : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  %z = nn.linear %x, %w bias %b : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  // CHECK: nn.linear %{{.*}}, %{{.*}} {transpose_weight} : (tensor<?x8x16xf64>, tensor<32x16xf64>) -> tensor<?x8x32xf64>
  %logits = nn.linear %x, %head {transpose_weight} : (tensor<?x8x16xf64>, tensor<32x16xf64>) -> tensor<?x8x32xf64>
  // CHECK: nn.bias_add %{{.*}}, %{{.*}} : (tensor<?x8x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  %biased = nn.bias_add %y, %b : (tensor<?x8x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  // CHECK: nn.bias_grad %{{.*}} : (tensor<?x8x3x16xf64>) -> tensor<3x16xf64>
  %db = nn.bias_grad %biased : (tensor<?x8x3x16xf64>) -> tensor<3x16xf64>
  // CHECK: nn.linear_input_grad %{{.*}}, %{{.*}} : (tensor<?x8x3x16xf64>, tensor<16x3x16xf64>) -> tensor<?x8x16xf64>
  %dx = nn.linear_input_grad %z, %w : (tensor<?x8x3x16xf64>, tensor<16x3x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.linear_weight_grad %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x3x16xf64>) -> tensor<16x3x16xf64>
  %dw = nn.linear_weight_grad %x, %z : (tensor<?x8x16xf64>, tensor<?x8x3x16xf64>) -> tensor<16x3x16xf64>
  // CHECK: nn.linear_weight_grad %{{.*}}, %{{.*}} {transpose_weight} : (tensor<?x8x16xf64>, tensor<?x8x32xf64>) -> tensor<32x16xf64>
  %dhead = nn.linear_weight_grad %x, %logits {transpose_weight} : (tensor<?x8x16xf64>, tensor<?x8x32xf64>) -> tensor<32x16xf64>
  // CHECK: nn.linear_gelu %{{.*}}, %{{.*}}, %{{.*}} {approximate} : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> (tensor<?x8x3x16xf64>, tensor<?x8x3x16xf64>)
  %act, %pre = nn.linear_gelu %x, %w, %db {approximate} : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> (tensor<?x8x3x16xf64>, tensor<?x8x3x16xf64>)
  // CHECK: nn.linear_gelu %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  %erf = nn.linear_gelu %x, %w, %db : (tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  // CHECK: nn.linear_gelu_grad %{{.*}}, %{{.*}}, %{{.*}} {approximate} : (tensor<?x8x3x16xf64>, tensor<16x3x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %dgelu = nn.linear_gelu_grad %pre, %w, %dx {approximate} : (tensor<?x8x3x16xf64>, tensor<16x3x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.linear_weight_bias_grad %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x3x16xf64>) -> (tensor<16x3x16xf64>, tensor<3x16xf64>)
  %dw2, %db2 = nn.linear_weight_bias_grad %x, %z : (tensor<?x8x16xf64>, tensor<?x8x3x16xf64>) -> (tensor<16x3x16xf64>, tensor<3x16xf64>)
  return %dx, %dw, %db, %dhead : tensor<?x8x16xf64>, tensor<16x3x16xf64>, tensor<3x16xf64>, tensor<32x16xf64>
}

// CHECK-LABEL: func.func @rows
func.func @rows(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) {
  // CHECK: nn.layer_norm %{{.*}}, %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %y, %stats = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  // CHECK: nn.layer_norm_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  %dx, %dg, %db = nn.layer_norm_grad %y, %x, %stats, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %dg, %db : tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>
}

// CHECK-LABEL: func.func @elements
func.func @elements(%x: tensor<?x8x16xf32>, %b: tensor<16xf32>) -> tensor<?x8x16xf32> {
  // CHECK: nn.gelu %{{.*}} {approximate} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %y = nn.gelu %x {approximate} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.gelu %{{[^ ]*}} : (tensor<?x8x16xf32>)
  %e = nn.gelu %x : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.gelu_grad %{{.*}}, %{{.*}} {approximate} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %dx = nn.gelu_grad %x, %y {approximate} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.bias_gelu %{{.*}}, %{{.*}} {approximate} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>)
  %pre, %post = nn.bias_gelu %x, %b {approximate} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>)
  // CHECK: nn.add_layer_norm %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, op_index = 2 : i64, p = 1.000000e-01 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %sum, %norm, %ns = nn.add_layer_norm %pre, %post, %b, %b {eps = 1.0e-5 : f64, p = 1.0e-1 : f64, op_index = 2 : i64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  // CHECK: nn.layer_norm_add_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  %dsum, %dgain, %dshift = nn.layer_norm_add_grad %norm, %sum, %ns, %b, %dx : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  // CHECK: nn.dropout %{{.*}} {op_index = 2 : i64, p = 1.000000e-01 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %d = nn.dropout %dx {p = 1.0e-1 : f64, op_index = 2 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.dropout %{{.*}} {col_sharded, p = 1.000000e-01 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %c = nn.dropout %e {p = 1.0e-1 : f64, col_sharded} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.dropout_add %{{.*}}, %{{.*}} {op_index = 1 : i64, p = 1.000000e-01 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %r = nn.dropout_add %pre, %post {p = 1.0e-1 : f64, op_index = 1 : i64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.add %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %s = nn.add %d, %r : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %t = nn.add %s, %c : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %t : tensor<?x8x16xf32>
}

// CHECK-LABEL: func.func @heads
func.func @heads(%qkv: tensor<?x8x3x16xbf16>) -> tensor<?x8x3x16xbf16> {
  // CHECK: nn.attention %{{.*}} {causal, dropout = 1.000000e-01 : f64, heads = 4 : i64, op_index = 3 : i64, scale = 5.000000e-01 : f64} : (tensor<?x8x3x16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x4x8xf32>)
  %o, %lse = nn.attention %qkv {heads = 4 : i64, causal, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64, op_index = 3 : i64} : (tensor<?x8x3x16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x4x8xf32>)
  // CHECK: nn.attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {causal, dropout = 1.000000e-01 : f64, heads = 4 : i64, op_index = 3 : i64, scale = 5.000000e-01 : f64} : (tensor<?x8x3x16xbf16>, tensor<?x8x16xbf16>, tensor<?x4x8xf32>, tensor<?x8x16xbf16>) -> tensor<?x8x3x16xbf16>
  %d = nn.attention_grad %qkv, %o, %lse, %o {heads = 4 : i64, causal, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64, op_index = 3 : i64} : (tensor<?x8x3x16xbf16>, tensor<?x8x16xbf16>, tensor<?x4x8xf32>, tensor<?x8x16xbf16>) -> tensor<?x8x3x16xbf16>
  return %d : tensor<?x8x3x16xbf16>
}

// CHECK-LABEL: func.func @loss
func.func @loss(%logits: tensor<?x8x33xf32>, %shard: tensor<?x8x17xf32>, %labels: tensor<?x8xi32>, %all: tensor<2x?x8x3xf32>) -> (tensor<1xf64>, tensor<?x8x33xf32>, tensor<1xf64>) {
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  %l, %d = nn.cross_entropy %logits, %labels {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  // CHECK: nn.softmax_stats %{{.*}}, %{{.*}} {classes = 33 : i64} : (tensor<?x8x17xf32>, tensor<?x8xi32>) -> tensor<?x8x3xf32>
  %s = nn.softmax_stats %shard, %labels {classes = 33 : i64} : (tensor<?x8x17xf32>, tensor<?x8xi32>) -> tensor<?x8x3xf32>
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} stats %{{.*}} {classes = 33 : i64} : (tensor<?x8x17xf32>, tensor<?x8xi32>, tensor<2x?x8x3xf32>) -> (tensor<1xf64>, tensor<?x8x17xf32>)
  %p, %e = nn.cross_entropy %shard, %labels stats %all {classes = 33 : i64} : (tensor<?x8x17xf32>, tensor<?x8xi32>, tensor<2x?x8x3xf32>) -> (tensor<1xf64>, tensor<?x8x17xf32>)
  return %l, %d, %p : tensor<1xf64>, tensor<?x8x33xf32>, tensor<1xf64>
}

// CHECK-LABEL: func.func private @factors(tensor<?x8x16xf32>, tensor<16x3x16xf32> {nn.factors = ["", "", "heads"]}, tensor<33x16xf32> {nn.factors = ["vocab", ""]})
// CHECK-SAME: nn.factor_units = {heads = 4 : i64, vocab = 33 : i64}, nn.uneven = ["vocab"]
func.func private @factors(tensor<?x8x16xf32>, tensor<16x3x16xf32> {nn.factors = ["", "", "heads"]}, tensor<33x16xf32> {nn.factors = ["vocab", ""]})
  attributes {nn.factor_units = {heads = 4 : i64, vocab = 33 : i64}, nn.uneven = ["vocab"]}
