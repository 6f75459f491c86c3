// RUN: galvatron-opt %s --verify-roundtrip | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// Positions and their order: windows of a grid, means, transposes.

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<?x15x8xf32>) -> tensor<?x6x32xf32> {
  // CHECK: nn.windows %{{.*}} {columns = 5 : i64, rows = 3 : i64, shift = 1 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  %w = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 1 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  // CHECK: nn.join_windows %{{.*}} {columns = 5 : i64, rows = 3 : i64, shift = 1 : i64, window = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  %j = nn.join_windows %w {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 1 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  // CHECK: nn.windows %{{.*}} {columns = 5 : i64, merge, rows = 3 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x32xf32>
  %m = nn.windows %j {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x15x8xf32>) -> tensor<?x6x32xf32>
  // CHECK: nn.join_windows %{{.*}} {columns = 5 : i64, merge, rows = 3 : i64, window = 2 : i64} : (tensor<?x6x32xf32>) -> tensor<?x15x8xf32>
  %u = nn.join_windows %m {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x6x32xf32>) -> tensor<?x15x8xf32>
  return %m : tensor<?x6x32xf32>
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<?x6x4x3x8xbf16>, %t: tensor<9x3xbf16>) -> tensor<9x3xf32> {
  // CHECK: nn.window_attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {across = 3 : i64, scale = 5.000000e-01 : f64, shift = 1 : i64, window = 2 : i64} : (tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<9x3xbf16>) -> (tensor<?x6x4x24xbf16>, tensor<?x6x3x4xf32>)
  %o, %lse = nn.window_attention %q, %q, %q, %t {window = 2 : i64, across = 3 : i64, shift = 1 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<9x3xbf16>) -> (tensor<?x6x4x24xbf16>, tensor<?x6x3x4xf32>)
  // CHECK: nn.window_attention_grad %{{.*}} {across = 3 : i64, dropout = 1.000000e-01 : f64, op_index = 2 : i64, scale = 5.000000e-01 : f64, window = 2 : i64}
  // CHECK-SAME: -> (tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<9x3xf32>)
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %lse, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64, dropout = 0.1 : f64, op_index = 2 : i64} : (tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x24xbf16>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xbf16>, tensor<9x3xbf16>) -> (tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<?x6x4x3x8xbf16>, tensor<9x3xf32>)
  return %dt : tensor<9x3xf32>
}

// CHECK-LABEL: func.func @others
func.func @others(%i: tensor<?x3x7x9xf64>) -> tensor<?x12x27xf64> {
  // CHECK: nn.patches %{{.*}} {columns = 4 : i64, pad, rows = 3 : i64} : (tensor<?x3x7x9xf64>) -> tensor<?x9x36xf64>
  %p = nn.patches %i {rows = 3 : i64, columns = 4 : i64, pad} : (tensor<?x3x7x9xf64>) -> tensor<?x9x36xf64>
  // CHECK: nn.drop_path %{{.*}} {first_layer = 1 : i64, op_index = 2 : i64, rate = 1.000000e-02 : f64} : (tensor<?x9x36xf64>) -> tensor<?x9x36xf64>
  %d = nn.drop_path %p {rate = 0.01 : f64, first_layer = 1 : i64, op_index = 2 : i64} : (tensor<?x9x36xf64>) -> tensor<?x9x36xf64>
  // CHECK: nn.mean %{{.*}} : (tensor<?x9x36xf64>) -> tensor<?x36xf64>
  %m = nn.mean %d : (tensor<?x9x36xf64>) -> tensor<?x36xf64>
  // CHECK: nn.mean_grad %{{.*}} : (tensor<?x36xf64>) -> tensor<?x9x36xf64>
  %g = nn.mean_grad %m : (tensor<?x36xf64>) -> tensor<?x9x36xf64>
  // CHECK: nn.transpose %{{.*}} : (tensor<?x9x36xf64>) -> tensor<?x36x9xf64>
  %t = nn.transpose %g : (tensor<?x9x36xf64>) -> tensor<?x36x9xf64>
  // CHECK: nn.transpose %{{.*}} : (tensor<?x3x7x9xf64>) -> tensor<?x3x9x7xf64>
  %u = nn.transpose %i : (tensor<?x3x7x9xf64>) -> tensor<?x3x9x7xf64>
  %v = nn.patches %u {rows = 3 : i64, columns = 3 : i64, pad} : (tensor<?x3x9x7xf64>) -> tensor<?x9x27xf64>
  %w = nn.patches %u {rows = 3 : i64, columns = 2 : i64, pad} : (tensor<?x3x9x7xf64>) -> tensor<?x12x18xf64>
  %x = nn.patches %i {rows = 2 : i64, columns = 3 : i64, pad} : (tensor<?x3x7x9xf64>) -> tensor<?x12x18xf64>
  %y = nn.transpose %v : (tensor<?x9x27xf64>) -> tensor<?x27x9xf64>
  %z = nn.windows %v {rows = 3 : i64, columns = 3 : i64, window = 2 : i64} : (tensor<?x9x27xf64>) -> tensor<?x4x4x27xf64>
  %r = nn.join_windows %z {rows = 3 : i64, columns = 4 : i64, window = 2 : i64} : (tensor<?x4x4x27xf64>) -> tensor<?x12x27xf64>
  return %r : tensor<?x12x27xf64>
}

// CHECK-LABEL: func.func @parts
func.func @parts(%e: tensor<3x4x5xbf16>, %f: tensor<5xf32>) -> (tensor<3x2x5xbf16>, tensor<20xf32>) {
  // CHECK: nn.own_part %{{.*}} {dim = 1 : i64, ranks = 2 : i64} : (tensor<3x4x5xbf16>) -> tensor<3x2x5xbf16>
  %o = nn.own_part %e {dim = 1 : i64, ranks = 2 : i64} : (tensor<3x4x5xbf16>) -> tensor<3x2x5xbf16>
  // CHECK: nn.own_part_grad %{{.*}} {dim = 0 : i64} : (tensor<5xf32>) -> tensor<20xf32>
  %q = nn.own_part_grad %f {dim = 0 : i64} : (tensor<5xf32>) -> tensor<20xf32>
  return %o, %q : tensor<3x2x5xbf16>, tensor<20xf32>
}
