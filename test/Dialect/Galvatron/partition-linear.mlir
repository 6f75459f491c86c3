// RUN: galvatron-opt %s -split-input-file --galvatron-differentiate-layers --galvatron-insert-recompute --galvatron-partition-layers | FileCheck %s

// Partial sums pass through what is linear, such as windows, dropped paths and
// transposes: they are summed once, behind it. Only the gradient of a mean, which
// is larger than what it is made of, waits for them.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<8x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @wf : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @bf : tensor<8xf32> {init = "zeros"}
func.func private @behind(%x: tensor<?x15x8xf32>, %wi: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<16x8xf32> {nn.factors = ["ffn", ""]}, %bf: tensor<8xf32>) -> tensor<?x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x15x8xf32>, tensor<8x16xf32>) -> tensor<?x15x16xf32>
  %f = nn.linear %h, %wf : (tensor<?x15x16xf32>, tensor<16x8xf32>) -> tensor<?x15x8xf32>
  %w = nn.windows %f {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  %j = nn.join_windows %w {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  %d = nn.drop_path %j {rate = 0.01 : f64, first_layer = 0 : i64, op_index = 0 : i64} : (tensor<?x15x8xf32>) -> tensor<?x15x8xf32>
  %s = nn.scale %d {factor = 2.0 : f64} : (tensor<?x15x8xf32>) -> tensor<?x15x8xf32>
  %m = nn.mean %s : (tensor<?x15x8xf32>) -> tensor<?x8xf32>
  %b = nn.bias_add %m, %bf : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  return %b : tensor<?x8xf32>
}
galvatron.model @m(%x: tensor<?x15x8xf32> is <images>) {
  %0 = galvatron.layer "behind" @behind(%x) params [@wi, @wf, @bf] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x15x8xf32>) -> tensor<?x8xf32>
  galvatron.output %0 : tensor<?x8xf32>
}
}

// CHECK-LABEL: func.func private @behind.{{.*}}forward(
// CHECK: nn.linear {{.*}}results = ([unreduced]), factors = [2]
// CHECK-NEXT: nn.windows {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: nn.join_windows {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: nn.drop_path {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: nn.scale {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: nn.mean {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: nn.bias_add {{.*}}#galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>

// -----

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<8x16xf32> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @wf : tensor<16x8xf32> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @images(%x: tensor<?x8x15xf32>) -> tensor<?x8x15xf32> {
  %y = nn.scale %x {factor = 2.0 : f64} : (tensor<?x8x15xf32>) -> tensor<?x8x15xf32>
  return %y : tensor<?x8x15xf32>
}
func.func private @turned(%x: tensor<?x8x15xf32>, %wi: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<16x8xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x15x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %t = nn.transpose %x : (tensor<?x8x15xf32>) -> tensor<?x15x8xf32>
  %h = nn.linear %t, %wi : (tensor<?x15x8xf32>, tensor<8x16xf32>) -> tensor<?x15x16xf32>
  %f = nn.linear %h, %wf : (tensor<?x15x16xf32>, tensor<16x8xf32>) -> tensor<?x15x8xf32>
  return %f : tensor<?x15x8xf32>
}
func.func private @pooled(%x: tensor<?x15x8xf32>, %wi: tensor<8x16xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<16x8xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %m = nn.mean %x : (tensor<?x15x8xf32>) -> tensor<?x8xf32>
  %h = nn.linear %m, %wi : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %f = nn.linear %h, %wf : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
galvatron.model @m(%x: tensor<?x8x15xf32> is <images>) {
  %0 = galvatron.layer "images" @images(%x) params [] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x15xf32>) -> tensor<?x8x15xf32>
  %1 = galvatron.layer "turned" @turned(%0) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x15xf32>) -> tensor<?x15x8xf32>
  %2 = galvatron.layer "pooled" @pooled(%1) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x15x8xf32>) -> tensor<?x8xf32>
  galvatron.output %2 : tensor<?x8xf32>
}
}

// CHECK-LABEL: func.func private @turned.{{.*}}backward(
// CHECK: nn.linear_input_grad {{.*}}results = ([unreduced]), factors = [3]
// CHECK: nn.transpose {{.*}}#galvatron.sharding<results = ([unreduced])>
// CHECK-NEXT: return {galvatron.sharding = #galvatron.sharding<operands = {0 = [replicated]}>}

// CHECK-LABEL: func.func private @pooled.{{.*}}backward(
// CHECK: nn.linear_input_grad {{.*}}results = ([unreduced]), factors = [2]
// CHECK: nn.mean_grad {{.*}}#galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>
// CHECK-NEXT: return {{%[0-9]+}}
