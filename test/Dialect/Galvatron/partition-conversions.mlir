// RUN: galvatron-opt %s --galvatron-differentiate-layers --galvatron-partition-layers | FileCheck %s

// Every use says for itself that it needs the sum. Where it is there it is used,
// also by scale, which could take the partial sum.

module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<8x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @v : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @body(%x: tensor<?x8xf32>, %w: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %v: tensor<16x8xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %p = nn.linear %h, %v : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  %early = nn.scale %p {factor = 3.0 : f64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %g = nn.gelu %p : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %late = nn.scale %p {factor = 2.0 : f64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %s = nn.add %g, %p : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %t = nn.add %s, %late : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %u = nn.add %t, %early : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %u : tensor<?x8xf32>
}
galvatron.model @toy(%x: tensor<?x8xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w, @v] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  galvatron.output %0 : tensor<?x8xf32>
}
}

// CHECK-LABEL: func.func private @body.tp2.b4.forward(
// CHECK: [[P:%[a-z0-9_]+]] = nn.linear {{.*}}results = ([unreduced]), factors
// CHECK-NEXT: nn.scale [[P]] {factor = 3.{{.*}}, galvatron.sharding = #galvatron.sharding<results = ([unreduced])>}
// CHECK-NEXT: nn.gelu [[P]] {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: nn.scale [[P]] {factor = 2.{{.*}}, galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>}
// CHECK-NEXT: nn.add {{.*}}, [[P]] {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {1 = [replicated]}>}
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.add {{.*}} {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {1 = [replicated]}>}
