// RUN: galvatron-opt %s --split-input-file --galvatron-split-stages --verify-diagnostics | FileCheck %s

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c6 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 6, link = #l>]>

// What leaves a stage is what its last layer gives, and it goes to the next one.
// CHECK-LABEL: galvatron.model @chain
// CHECK-SAME: (%[[T:[a-z]*]]: tensor<?x4xi32> is <tokens, below = 16>, %[[L:[a-z]*]]: tensor<?x4xi32> is <labels, below = 16>)
// CHECK: %[[S0:.*]] = galvatron.stage 0 devices [0, 1] -> tensor<?x4xf32> {
// CHECK-NEXT: %[[A:.*]] = galvatron.layer "a" @first(%[[T]])
// CHECK-NEXT: galvatron.yield %[[A]] : tensor<?x4xf32>
// CHECK: %[[T1:.*]] = galvatron.transfer %[[S0]] from 0 to 1
// CHECK: %[[S1:.*]] = galvatron.stage 1 devices [2, 3] -> tensor<?x4xf32> {
// CHECK-NEXT: %[[B:.*]] = galvatron.layer "b" @step(%[[T1]])
// CHECK-NEXT: %[[C:.*]] = galvatron.layer "c" @step(%[[B]])
// CHECK-NEXT: galvatron.yield %[[C]] : tensor<?x4xf32>
// CHECK: %[[T2:.*]] = galvatron.transfer %[[S1]] from 1 to 2
// CHECK: %[[S2:.*]] = galvatron.stage 2 devices [4, 5] -> tensor<1xf64> {
// CHECK-NEXT: galvatron.layer "d" @last(%[[T2]], %[[L]])
// CHECK: galvatron.output %[[S2]]
module attributes {galvatron.cluster = #c6, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 3>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
  func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @chain(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    %a = galvatron.layer "a" @first(%t) {stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xi32>) -> tensor<?x4xf32>
    %b = galvatron.layer "b" @step(%a) {stage = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %c = galvatron.layer "c" @step(%b) {stage = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %d = galvatron.layer "d" @last(%c, %l) {stage = 2 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %d : tensor<1xf64>
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>

// A plan of one stage needs no word on every layer.
// CHECK-LABEL: galvatron.model @one_stage
// CHECK: galvatron.stage 0 devices [0, 1] -> tensor<1xf64> {
// CHECK-NEXT: galvatron.layer "a" @first({{.*}}) {stage = 0 : i64
// CHECK-NEXT: galvatron.layer "d" @last({{.*}}) {stage = 0 : i64
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @one_stage(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    %a = galvatron.layer "a" @first(%t) {strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xi32>) -> tensor<?x4xf32>
    %d = galvatron.layer "d" @last(%a, %l) {strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %d : tensor<1xf64>
  }
}

// -----

// expected-error @+1 {{expected a 'galvatron.cluster' attribute to split stages by}}
module attributes {galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>} {
  galvatron.model @no_cluster(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
}

// -----

// expected-error @+1 {{expected a 'galvatron.plan' attribute to split stages by}}
module {
  galvatron.model @no_plan(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c6 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 6, link = #l>]>
// expected-error @+1 {{expected 'pipeline_degree' to divide the 6 devices of the cluster, found 4}}
module attributes {galvatron.cluster = #c6, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 4>} {
  galvatron.model @four_stages_of_six_devices(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 2>} {
  func.func private @only(tensor<?x4xi32>) -> tensor<1xf64>
  // expected-error @+1 {{expected layers in each of the 2 stages of the plan, found none in stage 1}}
  galvatron.model @a_stage_is_empty(%t: tensor<?x4xi32> is <labels, below = 16>) {
    %a = galvatron.layer "a" @only(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 2>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @without_stages(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    // expected-error @+1 {{expected 'stage', found none}}
    %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
    %b = galvatron.layer "b" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %b : tensor<1xf64>
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @more_stages_than_the_plan_has(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    %a = galvatron.layer "a" @first(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4xf32>
    // expected-error @+1 {{expected a stage below the 1 of the plan, found stage 1: schedule '1f1b' has one chunk a stage, found 2}}
    %b = galvatron.layer "b" @last(%a, %l) {stage = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %b : tensor<1xf64>
  }
}

// -----

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c2 = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>]>
module attributes {galvatron.cluster = #c2, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>} {
  func.func private @only(tensor<?x4xi32>) -> tensor<1xf64>
  // expected-error @+1 {{expected a model without stages, found 1}}
  galvatron.model @split_twice(%t: tensor<?x4xi32> is <labels, below = 16>) {
    %s = galvatron.stage 0 devices [0, 1] -> tensor<1xf64> {
      %a = galvatron.layer "a" @only(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<1xf64>
      galvatron.yield %a : tensor<1xf64>
    }
    galvatron.output %s : tensor<1xf64>
  }
}

// -----

module {
  // expected-note @+1 {{the first model is here}}
  galvatron.model @one(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
  // expected-error @+1 {{is the second model of the module, expected one}}
  galvatron.model @two(%t: tensor<?x4xi32> is <tokens, below = 16>) {
    galvatron.output
  }
}
