// RUN: galvatron-opt %s | galvatron-opt | FileCheck %s

// CHECK-LABEL: func.func @packed
// CHECK: nn.cached_attention %{{.*}} keys %{{.*}} values %{{.*}} rows %{{.*}} at %{{.*}} {heads = 2 : i64, scale = 5.000000e-01 : f64}
func.func @packed(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64}
    : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// CHECK-LABEL: func.func @grouped
// CHECK: nn.rotary %{{.*}} at %{{.*}} {frequencies
// CHECK: nn.cached_attention %{{.*}}, %{{.*}}, %{{.*}} keys %{{.*}} {cap = 2.000000e+00 : f64, distance = 1.500000e+00 : f64, heads = 4 : i64, scale = 5.000000e-01 : f64, window = 5 : i64}
func.func @grouped(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  %t = nn.rotary %n at %p {frequencies = array<f64: 1.0>} : (tensor<?x1x2x2xf32>, tensor<?x1xi32>) -> tensor<?x1x2x2xf32>
  %o = nn.cached_attention %q, %t, %n keys %k values %v rows %r at %p {heads = 4 : i64, scale = 0.5 : f64, window = 5 : i64, cap = 2.0 : f64, distance = 1.5 : f64}
    : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// CHECK-LABEL: func.func @from_a_row
// CHECK: nn.embedding %{{.*}}, %{{.*}} {first = 2 : i64}
func.func @from_a_row(%p: tensor<?x1xi32>, %w: tensor<9x4xf32>) -> tensor<?x1x4xf32> {
  %y = nn.embedding %p, %w {first = 2 : i64} : (tensor<?x1xi32>, tensor<9x4xf32>) -> tensor<?x1x4xf32>
  return %y : tensor<?x1x4xf32>
}

// CHECK-LABEL: func.func @biased
// CHECK: nn.cached_attention %{{.*}} rows %{{.*}} at %{{.*}} bias %{{.*}} {heads = 4 : i64, scale = 1.000000e+00 : f64}
func.func @biased(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>, %b: tensor<?x8x13xf32>) -> tensor<?x1x8xf32> {
  %o = nn.cached_attention %q, %n, %n keys %k values %v rows %r at %p bias %b {heads = 4 : i64, scale = 1.0 : f64}
    : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x8x13xf32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// CHECK-LABEL: func.func @crossing
// CHECK: nn.cached_cross_attention %{{.*}}, %{{.*}}, %{{.*}} keys %{{.*}} values %{{.*}} begins %{{.*}} rows %{{.*}} lengths %{{.*}} {scale = 5.000000e-01 : f64}
func.func @crossing(%q: tensor<?x1x4x2xf32>, %n: tensor<?x6x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %b: tensor<?x1xi32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  %o = nn.cached_cross_attention %q, %n, %n keys %k values %v begins %b rows %r lengths %l {scale = 0.5 : f64}
    : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}
