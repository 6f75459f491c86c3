// RUN: galvatron-opt %s --verify-roundtrip | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// Operations of encoders: a mask of keys, images, and single positions.

// CHECK-LABEL: func.func @masked
func.func @masked(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %m: tensor<?x9xi32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>) {
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} {scale = 5.000000e-01 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9xi32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  %o, %lse = nn.grouped_attention %q, %k, %k mask %m {scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9xi32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  // CHECK: nn.grouped_attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} {scale = 5.000000e-01 : f64}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %lse, %o mask %m {scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x9xi32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>)
  %d = nn.add %dk, %dv : (tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>) -> tensor<?x9x2x4xf32>
  return %dq, %d : tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>
}

// CHECK-LABEL: func.func @padded
func.func @padded(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>) -> tensor<9x4xf32> {
  // CHECK: nn.embedding %{{.*}}, %{{.*}} {padding = 0 : i64} : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  %y = nn.embedding %t, %w {padding = 0 : i64} : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}}, %{{.*}} {padding = 0 : i64, sharded}
  %d = nn.embedding_grad %t, %y, %w {padding = 0 : i64, sharded} : (tensor<?x8xi32>, tensor<?x8x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return %d : tensor<9x4xf32>
}

// CHECK-LABEL: func.func @images
func.func @images(%i: tensor<?x3x33x20xbf16>, %c: tensor<96xbf16>) -> (tensor<?x20x96xbf16>, tensor<96xf32>) {
  // CHECK: nn.patches %{{.*}} {columns = 4 : i64, rows = 8 : i64} : (tensor<?x3x33x20xbf16>) -> tensor<?x20x96xbf16>
  %x = nn.patches %i {rows = 8 : i64, columns = 4 : i64} : (tensor<?x3x33x20xbf16>) -> tensor<?x20x96xbf16>
  // CHECK: nn.prepend %{{.*}}, %{{.*}} : (tensor<?x20x96xbf16>, tensor<96xbf16>) -> tensor<?x21x96xbf16>
  %y = nn.prepend %x, %c : (tensor<?x20x96xbf16>, tensor<96xbf16>) -> tensor<?x21x96xbf16>
  // CHECK: nn.take %{{.*}} {position = 20 : i64} : (tensor<?x21x96xbf16>) -> tensor<?x96xbf16>
  %t = nn.take %y {position = 20 : i64} : (tensor<?x21x96xbf16>) -> tensor<?x96xbf16>
  // CHECK: nn.take_grad %{{.*}} {position = 20 : i64} : (tensor<?x96xbf16>) -> tensor<?x21x96xbf16>
  %dy = nn.take_grad %t {position = 20 : i64} : (tensor<?x96xbf16>) -> tensor<?x21x96xbf16>
  // CHECK: nn.prepend_grad %{{.*}} : (tensor<?x21x96xbf16>) -> (tensor<?x20x96xbf16>, tensor<96xf32>)
  %dx, %dc = nn.prepend_grad %dy : (tensor<?x21x96xbf16>) -> (tensor<?x20x96xbf16>, tensor<96xf32>)
  return %dx, %dc : tensor<?x20x96xbf16>, tensor<96xf32>
}
