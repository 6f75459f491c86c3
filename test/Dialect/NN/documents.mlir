// RUN: galvatron-opt %s | FileCheck %s
// RUN: galvatron-opt %s | galvatron-opt | FileCheck %s

// CHECK-LABEL: @positions
func.func @positions(%x: tensor<?x8x16xf32>, %t: tensor<12x16xf32>, %starts: tensor<?x8xi32>) {
  // CHECK: nn.position_add %{{.*}}, %{{.*}} starts %{{.*}} {first = 2 : i64} :
  %y = nn.position_add %x, %t starts %starts {first = 2 : i64} : (tensor<?x8x16xf32>, tensor<12x16xf32>, tensor<?x8xi32>) -> tensor<?x8x16xf32>
  // CHECK: nn.position_grad %{{.*}} starts %{{.*}} :
  %dt = nn.position_grad %x starts %starts : (tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<12x16xf32>
  return
}

// CHECK-LABEL: @attention
func.func @attention(%qkv: tensor<?x8x3x16xf32>, %starts: tensor<?x8xi32>) {
  // CHECK: nn.attention %{{.*}} starts %{{.*}} {causal, document_length = 3 : i64, heads = 4 : i64, scale = 5.000000e-01 : f64} :
  %o, %lse = nn.attention %qkv starts %starts {causal, heads = 4 : i64, scale = 0.5 : f64, document_length = 3 : i64} : (tensor<?x8x3x16xf32>, tensor<?x8xi32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  // CHECK: nn.attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} starts %{{.*}} {causal,
  %d = nn.attention_grad %qkv, %o, %lse, %o starts %starts {causal, heads = 4 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<?x8x3x16xf32>
  return
}

// CHECK-LABEL: @grouped_attention
func.func @grouped_attention(%q: tensor<?x8x4x4xf32>, %k: tensor<?x8x2x4xf32>, %mask: tensor<?x8xi32>, %starts: tensor<?x8xi32>, %bias: tensor<?x4x15xf32>) {
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} starts %{{.*}} bias %{{.*}} {causal,
  %o, %lse = nn.grouped_attention %q, %k, %k mask %mask starts %starts bias %bias {causal, scale = 0.5 : f64, window = 3 : i64} : (tensor<?x8x4x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8xi32>, tensor<?x8xi32>, tensor<?x4x15xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}
