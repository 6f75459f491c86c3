// RUN: galvatron-opt %s --cse --canonicalize | FileCheck %s

// A call writes to its caches: it stays where nothing reads its result, and two
// that look alike are two. Other operations are gone.

// CHECK-LABEL: func.func @calls
// CHECK-COUNT-3: nn.cached_attention
// CHECK-NOT: nn.cached_attention
// CHECK-NOT: nn.gelu
// CHECK: return
func.func @calls(%qkv: tensor<2x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<2x1xi32>, %p: tensor<2x1xi32>) -> (tensor<2x1x8xf32>, tensor<2x1x8xf32>) {
  %unread = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64}
    : (tensor<2x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1x8xf32>
  %dead = nn.gelu %qkv : (tensor<2x1x3x8xf32>) -> tensor<2x1x3x8xf32>
  %first = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 1.0 : f64}
    : (tensor<2x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1x8xf32>
  %second = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 1.0 : f64}
    : (tensor<2x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1x8xf32>
  return %first, %second : tensor<2x1x8xf32>, tensor<2x1x8xf32>
}
