// RUN: galvatron-opt %s --split-input-file --galvatron-split-stages --verify-diagnostics | FileCheck %s

// A plan may name the devices of its stages: in any order, groups of any size.

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c6 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 6, link = #l>]>

// CHECK-LABEL: galvatron.model @placed
// CHECK: galvatron.stage 0 devices [5] ->
// CHECK: galvatron.stage 1 devices [1, 0, 2] ->
// CHECK: galvatron.stage 2 devices [3, 4] ->
module attributes {galvatron.cluster = #c6, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 3, devices = [array<i64: 5>, array<i64: 1, 0, 2>, array<i64: 3, 4>]>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
  func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @placed(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    %a = galvatron.layer "a" @first(%t) {stage = 0 : i64, strategy = #galvatron.strategy<[]>} : (tensor<?x4xi32>) -> tensor<?x4xf32>
    %b = galvatron.layer "b" @step(%a) {stage = 1 : i64, strategy = #galvatron.strategy<[dp = 3]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %c = galvatron.layer "c" @step(%b) {stage = 1 : i64, strategy = #galvatron.strategy<[dp = 3]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %d = galvatron.layer "d" @last(%c, %l) {stage = 2 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %d : tensor<1xf64>
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>

// expected-error @+1 {{expected 'devices' of the plan to be among the 2 devices of the cluster, found 3}}
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 2, devices = [array<i64: 2>, array<i64: 0, 1>]>} {
  galvatron.model @some_devices(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
}
