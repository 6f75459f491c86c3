// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: galvatron-opt %t.mlir --galvatron-insert-collectives | FileCheck %s --check-prefix=LOCAL
// RUN: galvatron-opt %t.mlir --pass-pipeline='builtin.module(galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s --check-prefix=KERNEL

// Two key heads on eight ranks: their parameters are whole on all of them, four
// neighbours take the same head, and the gradients are summed over the group.
// On two ranks they are split as always.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @q : tensor<8x4x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @k : tensor<2x4x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @kb : tensor<2x4xf32> {init = "zeros"}
galvatron.parameter @v : tensor<16x2x4xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @o : tensor<16x32xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @body(%x: tensor<?x8x16xf32>, %q: tensor<8x4x16xf32> {nn.factors = ["heads", "", ""]}, %k: tensor<2x4x16xf32> {nn.factors = ["key_heads", "", ""]},
    %kb: tensor<2x4xf32> {nn.factors = ["key_heads", ""]}, %v: tensor<16x2x4xf32> {nn.factors = ["", "key_heads", ""]}, %o: tensor<16x32xf32> {nn.factors = ["", "heads"]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {heads = 8 : i64, key_heads = 2 : i64}, nn.shared = ["key_heads"]} {
  %0 = nn.linear %x, %q {transpose_weight} : (tensor<?x8x16xf32>, tensor<8x4x16xf32>) -> tensor<?x8x8x4xf32>
  %1 = nn.linear %x, %k {transpose_weight} : (tensor<?x8x16xf32>, tensor<2x4x16xf32>) -> tensor<?x8x2x4xf32>
  %2 = nn.bias_add %1, %kb : (tensor<?x8x2x4xf32>, tensor<2x4xf32>) -> tensor<?x8x2x4xf32>
  %3 = nn.linear %x, %v : (tensor<?x8x16xf32>, tensor<16x2x4xf32>) -> tensor<?x8x2x4xf32>
  %4, %lse = nn.grouped_attention %0, %2, %3 {causal, scale = 0.5 : f64} : (tensor<?x8x8x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x32xf32>, tensor<?x8x8xf32>)
  %5 = nn.linear %4, %o {transpose_weight} : (tensor<?x8x32xf32>, tensor<16x32xf32>) -> tensor<?x8x16xf32>
  return %5 : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@q, @k, @kb, @v, @o] {strategy = #galvatron.strategy<[tp = 8]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  %1 = galvatron.layer "m" @body(%0) params [@q, @k, @kb, @v, @o] {strategy = #galvatron.strategy<[tp = 2, dp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %1 : tensor<?x8x16xf32>
}
}

// CHECK-LABEL: func.func private @body.tp2.b1.{{.*}}forward(
// CHECK-SAME: tensor<2x4x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [2, 4, 16], state = <[split 0]>>, nn.factors = ["key_heads", "", ""]
// CHECK-NOT: own_part

// CHECK-LABEL: func.func private @body.tp8.b4.forward(
// CHECK-SAME: %[[K:[a-z0-9]+]]: tensor<2x4x16xf32> {galvatron.slice = #galvatron.slice<global_shape = [2, 4, 16]>, nn.role = "parameter"}
// CHECK-SAME: %[[KB:[a-z0-9]+]]: tensor<2x4xf32> {galvatron.slice = #galvatron.slice<global_shape = [2, 4]>, nn.role = "parameter"}
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<16x2x4xf32> {galvatron.slice = #galvatron.slice<global_shape = [16, 2, 4]>, nn.role = "parameter"}
// CHECK-NEXT: %[[OWNK:.+]] = nn.own_part %[[K]] {dim = 0 : i64, galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [0]>}
// CHECK-NEXT: %[[OWNKB:.+]] = nn.own_part %[[KB]] {dim = 0 : i64, galvatron.sharding = #galvatron.sharding<results = ([split 0]), factors = [0]>}
// CHECK-NEXT: %[[OWNV:.+]] = nn.own_part %[[V]] {dim = 1 : i64, galvatron.sharding = #galvatron.sharding<results = ([split 1]), factors = [0]>}
// CHECK: nn.linear %{{.*}}, %[[OWNK]] {galvatron.sharding = #galvatron.sharding<results = ([split 2]), factors = [3]>, transpose_weight}
// CHECK-LABEL: func.func private @body.tp8.b4.backward(
// CHECK: %[[DK:.+]] = nn.own_part_grad %{{.*}} {dim = 0 : i64, galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [0]>}
// CHECK-SAME: (tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
// CHECK-NEXT: %[[DKB:.+]] = nn.own_part_grad
// CHECK-NEXT: %[[DV:.+]] = nn.own_part_grad
// CHECK-NEXT: return {galvatron.sharding = #galvatron.sharding<operands = {1 = [replicated], 2 = [replicated], 3 = [replicated]}>} %{{.*}}, %[[DK]], %[[DKB]], %[[DV]], %{{.*}} :

// LOCAL-LABEL: func.func private @body.tp8.b4.forward(
// LOCAL-NEXT: nn.own_part %{{.*}} {dim = 0 : i64, ranks = 4 : i64} : (tensor<2x4x16xf32>) -> tensor<1x4x16xf32>
// LOCAL-NEXT: nn.own_part %{{.*}} {dim = 0 : i64, ranks = 4 : i64} : (tensor<2x4xf32>) -> tensor<1x4xf32>
// LOCAL-NEXT: nn.own_part %{{.*}} {dim = 1 : i64, ranks = 4 : i64} : (tensor<16x2x4xf32>) -> tensor<16x1x4xf32>
// LOCAL: nn.grouped_attention %{{.*}} : (tensor<4x8x1x4xf32>, tensor<4x8x1x4xf32>, tensor<4x8x1x4xf32>)
// LOCAL-LABEL: func.func private @body.tp8.b4.backward(
// LOCAL: %[[PART:.+]] = nn.own_part_grad %{{.*}} {dim = 0 : i64, ranks = 4 : i64} : (tensor<1x4x16xf32>) -> tensor<2x4x16xf32>
// LOCAL: galvatron.all_reduce %[[PART]]

// Rows, parts, elements of a part, ranks of one part, and whether from the part
// to the whole.
// KERNEL-LABEL: grt.func @body.tp8.b4.forward
// KERNEL: grt.kernel own_part({{.*}}) ints [1, 2, 64, 4, 0] {{.*}} : memref<2x4x16xf32>, memref<1x4x16xf32>
// KERNEL: grt.kernel own_part({{.*}}) ints [16, 2, 4, 4, 0] {{.*}} : memref<16x2x4xf32>, memref<16x1x4xf32>
// KERNEL-LABEL: grt.func @body.tp8.b4.backward
// KERNEL: grt.kernel own_part({{.*}}) ints [1, 2, 64, 4, 1] {{.*}} : memref<1x4x16xf32>, memref<2x4x16xf32>
// KERNEL: grt.kernel own_part({{.*}}) ints [16, 2, 4, 4, 1] {{.*}} : memref<16x1x4xf32>, memref<16x2x4xf32>
