// RUN: galvatron-opt %s --galvatron-split-stages --galvatron-insert-collectives | FileCheck %s

// Values that pass layers: a value goes through every stage on its way, and is
// resharded where the layers that it passes change the layout.

#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
#c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 6, link = #l>]>

// CHECK: %[[S0:.*]]:2 = galvatron.stage 0
// CHECK: %[[A:.*]]:2 = galvatron.layer "a"
// CHECK: galvatron.yield %[[A]]#0, %[[A]]#1
// CHECK-DAG: %[[X1:.*]] = galvatron.transfer %[[S0]]#0 from 0 to 1
// CHECK-DAG: %[[Y1:.*]] = galvatron.transfer %[[S0]]#1 from 0 to 1
// CHECK: %[[S1:.*]] = galvatron.stage 1
// CHECK: %[[B:.*]] = galvatron.layer "b" @step(%[[X1]])
// CHECK: galvatron.yield %[[B]]
// The second result passes stage 1.
// CHECK-DAG: %[[Y2:.*]] = galvatron.transfer %[[Y1]] from 1 to 2
// CHECK-DAG: %[[B2:.*]] = galvatron.transfer %[[S1]] from 1 to 2
// CHECK: galvatron.stage 2
// CHECK: %[[C:.*]] = galvatron.layer "c" @step(%[[B2]])
// Between c and d, what c gives and what passes it change the layout.
// CHECK-DAG: %[[CR:.*]] = galvatron.reshard %[[C]] from <[dp = 2]> to <[tp = 2]>
// CHECK-DAG: %[[YR:.*]] = galvatron.reshard %[[Y2]] from <[dp = 2]> to <[tp = 2]>
// CHECK: %[[D:.*]] = galvatron.layer "d" @step(%[[CR]])
// CHECK: galvatron.layer "e" @last(%[[YR]], %[[D]],
module attributes {galvatron.cluster = #c, galvatron.plan = #galvatron.plan<batch = 4, micro_batches = 1, schedule = "1f1b", pipeline_degree = 3>} {
  func.func private @first(tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x2xf32>)
  func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
  func.func private @last(tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @passing(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    %a:2 = galvatron.layer "a" @first(%t) {stage = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x2xf32>)
    %b = galvatron.layer "b" @step(%a#0) {stage = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %c = galvatron.layer "c" @step(%b) {stage = 2 : i64, strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %d = galvatron.layer "d" @step(%c) {stage = 2 : i64, strategy = #galvatron.strategy<[tp = 2]>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %e = galvatron.layer "e" @last(%a#1, %d, %l) {stage = 2 : i64, strategy = #galvatron.strategy<[tp = 2]>} : (tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %e : tensor<1xf64>
  }
}
