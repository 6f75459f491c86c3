// RUN: galvatron-opt %s --verify-roundtrip | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// Operations of encoders with a decoder: biases of relative positions, and
// activations.

// CHECK-LABEL: func.func @biased
func.func @biased(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %m: tensor<?x9xi32>, %b: tensor<?x12x16xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x12x16xf32>) {
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} {scale = 1.000000e+00 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  %p, %l = nn.grouped_attention %q, %k, %k bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} bias %{{.*}} {scale = 1.000000e+00 : f64}
  %o, %lse = nn.grouped_attention %q, %k, %k mask %m bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9xi32>, tensor<?x12x16xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = nn.grouped_attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} bias %{{.*}} {scale = 1.000000e+00 : f64}
  %dq, %dk, %dv, %db = nn.grouped_attention_grad %q, %k, %k, %o, %lse, %p mask %m bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x9xi32>, tensor<?x12x16xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf32>)
  return %dq, %db : tensor<?x8x6x4xf32>, tensor<?x12x16xf32>
}

// CHECK-LABEL: func.func @relative
func.func @relative(%t: tensor<32x6xbf16>) -> tensor<32x6xf32> {
  // CHECK: nn.relative_bias %{{.*}} {bidirectional, max_distance = 128 : i64} : (tensor<32x6xbf16>) -> tensor<?x6x15xbf16>
  %b = nn.relative_bias %t {bidirectional, max_distance = 128 : i64} : (tensor<32x6xbf16>) -> tensor<?x6x15xbf16>
  // CHECK: nn.relative_bias_grad %{{.*}} {bidirectional, max_distance = 128 : i64} : (tensor<?x6x15xbf16>) -> tensor<32x6xf32>
  %d = nn.relative_bias_grad %b {bidirectional, max_distance = 128 : i64} : (tensor<?x6x15xbf16>) -> tensor<32x6xf32>
  return %d : tensor<32x6xf32>
}

// CHECK-LABEL: func.func @activations
func.func @activations(%g: tensor<?x8x16xf64>, %u: tensor<?x8x16xf64>) -> tensor<?x8x16xf64> {
  // CHECK: nn.gated_gelu %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %y = nn.gated_gelu %g, %u : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.gated_gelu_grad %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x16xf64>, tensor<?x8x16xf64>)
  %dg, %du = nn.gated_gelu_grad %g, %u, %y : (tensor<?x8x16xf64>, tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x16xf64>)
  // CHECK: nn.relu %{{.*}} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %r = nn.relu %dg : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.relu_grad %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %dr = nn.relu_grad %r, %du : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.scale %{{.*}} {factor = 1.250000e-01 : f64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %s = nn.scale %dr {factor = 1.25e-1 : f64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %s : tensor<?x8x16xf64>
}
