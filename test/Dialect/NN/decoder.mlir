// RUN: galvatron-opt %s --verify-roundtrip | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// Operations of decoders of the LLaMA kind.

// CHECK-LABEL: func.func @norm
func.func @norm(%x: tensor<?x8x16xbf16>, %g: tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<16xf32>) {
  // CHECK: nn.rms_norm %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64} : (tensor<?x8x16xbf16>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x8x1xf32>)
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-5 : f64} : (tensor<?x8x16xbf16>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x8x1xf32>)
  // CHECK: nn.rms_norm_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xbf16>, tensor<?x8x16xbf16>, tensor<?x8x1xf32>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<16xf32>)
  %dx, %dg = nn.rms_norm_grad %y, %x, %s, %g : (tensor<?x8x16xbf16>, tensor<?x8x16xbf16>, tensor<?x8x1xf32>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<16xf32>)
  return %dx, %dg : tensor<?x8x16xbf16>, tensor<16xf32>
}

// CHECK-LABEL: func.func @heads
func.func @heads(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>) {
  // CHECK: nn.rotary %{{.*}} {factor = 1.250000e+00 : f64, frequencies = array<f64: 1.000000e+00, 1.000000e-02>} : (tensor<?x8x6x4xf32>) -> tensor<?x8x6x4xf32>
  %r = nn.rotary %q {frequencies = array<f64: 1.0, 0.01>, factor = 1.25 : f64} : (tensor<?x8x6x4xf32>) -> tensor<?x8x6x4xf32>
  // CHECK: nn.rotary %{{.*}} {frequencies = array<f64: 1.000000e+00>, interleaved, inverse} : (tensor<?x8x2x4xf32>) -> tensor<?x8x2x4xf32>
  %t = nn.rotary %k {frequencies = array<f64: 1.0>, inverse, interleaved} : (tensor<?x8x2x4xf32>) -> tensor<?x8x2x4xf32>
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} {causal, dropout = 1.000000e-01 : f64, op_index = 3 : i64, scale = 5.000000e-01 : f64, window = 5 : i64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  %o, %lse = nn.grouped_attention %r, %t, %k {causal, scale = 5.0e-1 : f64, window = 5 : i64, dropout = 1.0e-1 : f64, op_index = 3 : i64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  // CHECK: nn.grouped_attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {causal, scale = 5.000000e-01 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  %dq, %dk, %dv = nn.grouped_attention_grad %r, %t, %k, %o, %lse, %o {causal, scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  %d = nn.add %dk, %dv : (tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> tensor<?x8x2x4xf32>
  return %dq, %d : tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>
}

// CHECK-LABEL: func.func @gate
func.func @gate(%g: tensor<?x8x16xf64>, %u: tensor<?x8x16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x16xf64>) {
  // CHECK: nn.gated_silu %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %y = nn.gated_silu %g, %u : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  // CHECK: nn.gated_silu_grad %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf64>, tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x16xf64>)
  %dg, %du = nn.gated_silu_grad %g, %u, %y : (tensor<?x8x16xf64>, tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x16xf64>)
  return %dg, %du : tensor<?x8x16xf64>, tensor<?x8x16xf64>
}

// CHECK-LABEL: func.func @caps
func.func @caps(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>) -> tensor<?x8x24xf32> {
  // CHECK: nn.grouped_attention %{{.*}}, %{{.*}}, %{{.*}} {cap = 5.000000e+01 : f64, causal, scale = 5.000000e-01 : f64}
  %o, %lse = nn.grouped_attention %q, %k, %k {causal, scale = 5.0e-1 : f64, cap = 5.0e+1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  // CHECK: nn.grouped_attention_grad {{.*}} {causal, distance = 1.000000e+00 : f64, scale = 5.000000e-01 : f64}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %lse, %o {causal, scale = 5.0e-1 : f64, distance = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  // CHECK: nn.soft_cap %{{.*}} {cap = 3.000000e+01 : f64} : (tensor<?x8x24xf32>) -> tensor<?x8x24xf32>
  %y = nn.soft_cap %o {cap = 3.0e+1 : f64} : (tensor<?x8x24xf32>) -> tensor<?x8x24xf32>
  // CHECK: nn.soft_cap_grad %{{.*}}, %{{.*}} {cap = 3.000000e+01 : f64} : (tensor<?x8x24xf32>, tensor<?x8x24xf32>) -> tensor<?x8x24xf32>
  %dx = nn.soft_cap_grad %y, %o {cap = 3.0e+1 : f64} : (tensor<?x8x24xf32>, tensor<?x8x24xf32>) -> tensor<?x8x24xf32>
  return %dx : tensor<?x8x24xf32>
}

// CHECK-LABEL: func.func @limits
func.func @limits(%x: tensor<?x8x16xf32>, %s: tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>) {
  // CHECK: nn.clip %{{.*}} {limit = 8.000000e+00 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %y = nn.clip %x {limit = 8.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.clip_grad %{{.*}}, %{{.*}} {limit = 8.000000e+00 : f64}
  %dx = nn.clip_grad %x, %y {limit = 8.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.column_scale %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  %z = nn.column_scale %dx, %s : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.column_scale_grad %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<16xf32>
  %ds = nn.column_scale_grad %z, %x : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<16xf32>
  // CHECK: nn.standardize %{{.*}} {eps = 1.000000e-05 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %n, %t = nn.standardize %z {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  // CHECK: nn.standardize_grad %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>) -> tensor<?x8x16xf32>
  %dn = nn.standardize_grad %n, %z, %t : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.gated_gelu %{{.*}}, %{{.*}} {exact}
  %g = nn.gated_gelu %dn, %x {exact} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // CHECK: nn.gated_gelu_grad {{.*}} {exact}
  %dg, %du = nn.gated_gelu_grad %dn, %x, %g {exact} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>)
  // CHECK: nn.mean %{{.*}} {beside_first} : (tensor<?x8x16xf32>) -> tensor<?x32xf32>
  %m = nn.mean %dg {beside_first} : (tensor<?x8x16xf32>) -> tensor<?x32xf32>
  // CHECK: nn.mean_grad %{{.*}} {beside_first} : (tensor<?x32xf32>) -> tensor<?x8x16xf32>
  %dm = nn.mean_grad %m {beside_first} : (tensor<?x32xf32>) -> tensor<?x8x16xf32>
  return %dm, %ds : tensor<?x8x16xf32>, tensor<16xf32>
}

// CHECK-LABEL: func.func @layer_norm_without_beta
func.func @layer_norm_without_beta(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>) {
  // CHECK: nn.layer_norm %{{[a-z0-9]*}}, %{{[a-z0-9]*}} {eps = 1.000000e-05 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  %y, %s = nn.layer_norm %x, %g {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  // CHECK: nn.layer_norm_grad {{.*}} -> (tensor<?x8x16xf32>, tensor<16xf32>)
  %dx, %dg = nn.layer_norm_grad %y, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>)
  return %dx, %dg : tensor<?x8x16xf32>, tensor<16xf32>
}
