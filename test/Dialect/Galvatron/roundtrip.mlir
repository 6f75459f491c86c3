// RUN: galvatron-opt %s | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s

// CHECK-LABEL: module attributes
// CHECK-DAG: galvatron.cluster = #galvatron.cluster<name = "pair", device_types = [#galvatron.device_type<name = "cpu-core", backend = "cpu", memory = 4294967296, flops = {f32 = 6.100000e+10 : f64, f64 = 8.000000e+09 : f64}, memory_bandwidth = 9.000000e+09 : f64, overlap_slowdown = 1.300000e+00 : f64, kernel_overhead = 2.000000e-06 : f64, optimizer_bandwidth = 5.000000e+09 : f64, host_overhead = 1.000000e-05 : f64>], nodes = [#galvatron.node<count = 2, device_type = "cpu-core", devices = 2, link = <bandwidth = 3.100000e+09 : f64, latency = 1.500000e-05 : f64>>], network = <bandwidth = 1.250000e+10 : f64, latency = 1.000000e-05 : f64>>
// CHECK-DAG: galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, memory = 1048576, sums = ["overlap", "by-rule"]>
// CHECK-DAG: galvatron.plan_report = "{}"
// CHECK-DAG: galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, decay_all = true>
module attributes {
  galvatron.cluster = #galvatron.cluster<name = "pair",
    device_types = [#galvatron.device_type<name = "cpu-core", backend = "cpu",
      memory = 4294967296, flops = {f32 = 6.1e10 : f64, f64 = 8.0e9 : f64},
      memory_bandwidth = 9.0e9 : f64, overlap_slowdown = 1.3 : f64, kernel_overhead = 2.0e-6 : f64,
      optimizer_bandwidth = 5.0e9 : f64, host_overhead = 1.0e-5 : f64>],
    nodes = [#galvatron.node<count = 2, device_type = "cpu-core", devices = 2,
      link = #galvatron.link<bandwidth = 3.1e9 : f64, latency = 1.5e-5 : f64>>],
    network = #galvatron.link<bandwidth = 1.25e10 : f64, latency = 1.0e-5 : f64>>,
  galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, decay_all = true>,
  galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, memory = 1048576, sums = ["overlap", "by-rule"]>,
  galvatron.plan_report = "{}"} {
  // CHECK: galvatron.parameter @wte.weight : tensor<16x8xf32> {decay, init = "normal", std = 2.000000e-02 : f64}
  galvatron.parameter @wte.weight : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  // CHECK: galvatron.parameter @"h 0" : tensor<8xf32> {init = "zeros"}
  galvatron.parameter @"h 0" : tensor<8xf32> {init = "zeros"}
  func.func private @embed(tensor<?x4xi32>, tensor<16x8xf32>) -> tensor<?x4x8xf32>
  // A parameter is passed as a view.
  func.func private @block(tensor<?x4x8xf32>, tensor<2x4xf32>) -> tensor<?x4x8xf32>
  func.func private @head(tensor<?x4x8xf32>, tensor<?x4xi32>, tensor<16x8xf32>) -> tensor<1xf64>

  // CHECK: galvatron.model @planned(%tokens: tensor<?x4xi32> is <tokens, below = 16>, %labels: tensor<?x4xi32> is <labels, below = 16>) attributes {config = "{\22a\22:1}"} {
  // CHECK: %[[X:.*]] = galvatron.layer "wte" @embed(%{{.*}}) params [@wte.weight] {stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2]>} : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
  // CHECK: %[[Y:.*]] = galvatron.layer "h.0" @block(%[[X]]) params [@"h 0"] {stage = 0 : i64, strategy = #galvatron.strategy<[tp = 2], ckpt, opt_host>}
  // CHECK: galvatron.layer "head" @head(%[[Y]], %{{.*}}) params [@wte.weight] {kept = #galvatron.kept<"0123456789abcdef", ["3", "9:1"]>, stage = 1 : i64, strategy = #galvatron.strategy<[], ckpt = 2, act_host>}
  // CHECK: galvatron.output %{{.*}} : tensor<1xf64>
  galvatron.model @planned(%tokens: tensor<?x4xi32> is <tokens, below = 16>,
                           %labels: tensor<?x4xi32> is <labels, below = 16>)
      attributes {config = "{\22a\22:1}"} {
    %0 = galvatron.layer "wte" @embed(%tokens) params [@wte.weight] {strategy = #galvatron.strategy<[sdp = 2]>, stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
    %1 = galvatron.layer "h.0" @block(%0) params [@"h 0"] {strategy = #galvatron.strategy<[tp = 2], ckpt, opt_host>, stage = 0 : i64} : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %2 = galvatron.layer "head" @head(%1, %labels) params [@wte.weight] {strategy = #galvatron.strategy<[], ckpt = 2, act_host>, kept = #galvatron.kept<"0123456789abcdef", ["3", "9:1"]>, stage = 1 : i64} : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %2 : tensor<1xf64>
  }

  // An opaque layer: measured, not executable.
  // CHECK: galvatron.layer "measured"(%{{.*}}) {profile = #galvatron.profile<parameter_bytes = 64, boundary_bytes = 128, intermediate_bytes = 512, forward_ms = 1.000000e+00 : f64, backward_ms = 2.000000e+00 : f64>} : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
  galvatron.model @opaque(%tokens: tensor<?x4xi32> is <tokens, below = 16>) {
    %0 = galvatron.layer "measured"(%tokens) {profile = #galvatron.profile<forward_ms = 1.0, backward_ms = 2.0, parameter_bytes = 64, boundary_bytes = 128, intermediate_bytes = 512>} : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
    galvatron.output %0 : tensor<?x4x8xf32>
  }

  // Two boundary tensors, one of them relayed to the last stage.
  func.func private @fork(tensor<?x4xi32>) -> (tensor<?x4x8xf32>, tensor<?x2xf32>)
  func.func private @join(tensor<?x4x8xf32>, tensor<?x2xf32>) -> tensor<1xf64>
  // CHECK-LABEL: galvatron.model @staged
  // CHECK: %[[S:.*]]:2 = galvatron.stage 0 devices [0, 1] -> tensor<?x4x8xf32>, tensor<?x2xf32> {
  // CHECK: galvatron.yield %{{.*}}, %{{.*}} : tensor<?x4x8xf32>, tensor<?x2xf32>
  // CHECK: %[[T:.*]] = galvatron.transfer %[[S]]#0 from 0 to 1 : tensor<?x4x8xf32>
  // CHECK: %[[U:.*]] = galvatron.transfer %[[S]]#1 from 0 to 1 : tensor<?x2xf32>
  // CHECK: galvatron.stage 1 devices [2, 3] -> tensor<1xf64> {
  // CHECK: galvatron.reshard %[[T]] from <[dp = 2]> to <[tp = 2], ckpt> : tensor<?x4x8xf32>
  galvatron.model @staged(%tokens: tensor<?x4xi32> is <tokens, below = 16>) {
    %0:2 = galvatron.stage 0 devices [0, 1] -> tensor<?x4x8xf32>, tensor<?x2xf32> {
      %2:2 = galvatron.layer "fork" @fork(%tokens) {strategy = #galvatron.strategy<[dp = 2]>, stage = 0 : i64} : (tensor<?x4xi32>) -> (tensor<?x4x8xf32>, tensor<?x2xf32>)
      galvatron.yield %2#0, %2#1 : tensor<?x4x8xf32>, tensor<?x2xf32>
    }
    %a = galvatron.transfer %0#0 from 0 to 1 : tensor<?x4x8xf32>
    %b = galvatron.transfer %0#1 from 0 to 1 : tensor<?x2xf32>
    %1 = galvatron.stage 1 devices [2, 3] -> tensor<1xf64> {
      %c = galvatron.reshard %a from <[dp = 2]> to <[tp = 2], ckpt> : tensor<?x4x8xf32>
      %2 = galvatron.layer "join" @join(%c, %b) {strategy = #galvatron.strategy<[tp = 2], ckpt>, stage = 1 : i64} : (tensor<?x4x8xf32>, tensor<?x2xf32>) -> tensor<1xf64>
      galvatron.yield %2 : tensor<1xf64>
    }
    galvatron.output %1 : tensor<1xf64>
  }

  // CHECK-LABEL: func.func @collectives
  // CHECK: galvatron.gather_parameters over sdp
  // CHECK: galvatron.all_reduce %{{.*}} over tp : tensor<2x8xf32>
  // CHECK: galvatron.all_gather %{{.*}} over tp : tensor<2x8xf32> -> tensor<4x2x8xf32>
  // CHECK: galvatron.reduce_scatter_gradients over sdp
  func.func @collectives(%x: tensor<2x8xf32>) -> tensor<4x2x8xf32> {
    galvatron.gather_parameters over sdp
    %0 = galvatron.all_reduce %x over tp : tensor<2x8xf32>
    %1 = galvatron.all_gather %0 over tp : tensor<2x8xf32> -> tensor<4x2x8xf32>
    galvatron.reduce_scatter_gradients over sdp
    return %1 : tensor<4x2x8xf32>
  }
}
