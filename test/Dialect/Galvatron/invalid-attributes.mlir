// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

// strategy: syntax
// expected-error @+1 {{expected a paradigm 'dp', 'sdp', 'tp', 'zdp', 'tsp', 'cp', 'scp', 'zcp', 'up', 'sup', 'ring' or 'sring', found 'pp'}}
func.func private @a() attributes {s = #galvatron.strategy<[pp = 2]>}

// -----

// expected-error @+1 {{expected 'ckpt', 'opt_host' or 'act_host', in this order and each once}}
func.func private @a() attributes {s = #galvatron.strategy<[tp = 2], opt_host, ckpt>}

// -----
// strategy C1
// expected-error @+1 {{expected every paradigm at most once in a strategy, found two levels of 'tp'}}
func.func private @a() attributes {s = #galvatron.strategy<[tp = 2, tp = 4]>}

// -----
// strategy C3
// expected-error @+1 {{'zdp' is data parallelism whose optimizer state is sharded, expected no 'dp' beside it}}
func.func private @a() attributes {s = #galvatron.strategy<[zdp = 2, dp = 2]>}

// -----
// strategy C2
// expected-error @+1 {{expected a degree of at least 2 for 'dp', found 1}}
func.func private @a() attributes {s = #galvatron.strategy<[dp = 1]>}

// -----
// strategy C4
// expected-error @+1 {{expected a point from 1 to 9, found 10}}
func.func private @a() attributes {s = #galvatron.strategy<[tp = 2], ckpt = 10>}

// -----
// kept C1
// expected-error @+1 {{expected an operation's number and, unless it is 0, a result's, like '7' or '7:1', found '7:'}}
func.func private @a() attributes {k = #galvatron.kept<"0123456789abcdef", ["3", "7:"]>}

// -----
// kept C1
// expected-error @+1 {{expected kept values as strings, found 3 : i64}}
func.func private @a() attributes {k = #galvatron.kept<"0123456789abcdef", [3]>}

// -----
// kept C2
// expected-error @+1 {{expected kept values in ascending order, found '3:1' behind '4'}}
func.func private @a() attributes {k = #galvatron.kept<"0123456789abcdef", ["4", "3:1"]>}

// -----
// plan C1
// expected-error @+1 {{expected 'pipeline_degree' of a plan to be at least 1, found 0}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 0>}

// -----
// plan C1
// expected-error @+1 {{expected 'memory' of a plan not to be negative, found -1}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 1, memory = -1>}

// -----
// plan C2
// expected-error @+1 {{expected 'micro_batches' to divide 'batch', found 3 and 8}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 3, schedule = "1f1b", pipeline_degree = 1>}

// -----
// plan C3
// expected-error @+1 {{unknown schedule 'fifo', expected '1f1b', 'gpipe', 'interleaved', '2bw', 'zb-h1', 'zb-h2', 'zb-v', 'harmony-pp' or 'harmony-dp'}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "fifo", pipeline_degree = 1>}

// -----
// plan C7
// expected-error @+1 {{expected 'pass_times' of a plan to have four numbers of every chunk, found 7}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "zb-v", pipeline_degree = 2, pass_times = [1, 1, 1, 0, 1, 1, 1]>}

// -----
// plan C7
// expected-error @+1 {{'pass_times' of a plan: schedule '1f1b' has one order of passes: expected no times that they take}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, pass_times = [1, 1, 1, 0, 1, 1, 1, 0]>}

// -----
// plan C7
// expected-error @+1 {{'pass_times' of a plan: expected times of passes from 0 to 1048576, found -2}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "zb-v", pipeline_degree = 2, pass_times = [1, 1, 1, 0, 1, 1, -2, 0, 1, 1, 1, 0, 1, 1, 1, 0]>}

// -----
// plan C4
// expected-error @+1 {{expected 'devices' of a plan to have a list for each of 2 stages, found 1}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, devices = [array<i64: 0, 1>]>}

// -----
// plan C5
// expected-error @+1 {{expected a list of devices for every stage, found array<i64>}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, devices = [array<i64: 0, 1>, array<i64>]>}

// -----
// plan C5
// expected-error @+1 {{expected the devices 0 to 2 in 'devices', each once, found 3}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, devices = [array<i64: 3, 1>, array<i64: 0>]>}

// -----
// plan C5
// expected-error @+1 {{expected the devices 0 to 2 in 'devices', each once, found 1}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, devices = [array<i64: 2, 1>, array<i64: 1>]>}

// -----
// training C1
// expected-error @+2 {{expected 'optimizer' to be 'adamw', 'adam' or 'sgd', found 'lion'}}
// expected-error @+1 {{failed to parse Galvatron_TrainingAttr parameter 'optimizer'}}
func.func private @a() attributes {t = #galvatron.training<optimizer = "lion", dtype = "f32", clip = true, dropout = true>}

// -----
// training C2
// expected-error @+1 {{expected 'dtype' to be 'f32', 'tf32', 'f16', 'bf16' or 'f64', found 'f8'}}
func.func private @a() attributes {t = #galvatron.training<optimizer = "adam", dtype = "f8", clip = true, dropout = true>}

// -----
// training C3
// expected-error @+1 {{expected 'clip_delayed' with 'clip'}}
func.func private @a() attributes {p = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, clip_delayed = true, dropout = true>}

// -----
// link C1
// expected-error @+1 {{expected 'bandwidth' of a link to be a positive f64, found 0.000000e+00}}
func.func private @a() attributes {l = #galvatron.link<bandwidth = 0.0 : f64, latency = 0.0 : f64>}

// -----
// link C1
// expected-error @+1 {{expected 'latency' of a link to be a non-negative f64, found -1.000000e+00}}
func.func private @a() attributes {l = #galvatron.link<bandwidth = 1.0 : f64, latency = -1.0 : f64>}

// -----
// device type C1
// expected-error @+1 {{device type 'd': expected 'memory' to be positive, found 0}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 0, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>}

// -----
// device type C2
// expected-error @+1 {{device type 'd': expected 'backend' to be 'cpu' or 'cuda', found 'tpu'}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "tpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>}

// -----
// device type C3
// expected-error @+1 {{device type 'd': expected 'flops' for at least one element type}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>}

// -----
// device type C3
// expected-error @+1 {{device type 'd': expected 'flops' of 'f32' to be a positive f64, found 1 : i64}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1 : i64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>}

// -----
// device type C4
// expected-error @+1 {{device type 'd': expected 'overlap_slowdown' to be an f64 of at least 1, found 5.000000e-01}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 0.5 : f64, kernel_overhead = 0.0 : f64>}

// -----
// device type C5
// expected-error @+1 {{device type 'd': expected an efficiency to be pairs of a size and a fraction, found [6.400000e+01, 5.000000e-01, 1.280000e+02]}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64, efficiency = [64.0 : f64, 0.5 : f64, 128.0 : f64]>}

// -----
// device type C6
// expected-error @+1 {{device type 'd': expected 'optimizer_bandwidth' to be a non-negative f64, found -1.000000e+00 : f64}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64, optimizer_bandwidth = -1.0 : f64>}

// -----
// device type C6
// expected-error @+1 {{device type 'd': expected 'host_overhead' to be a non-negative f64, found -1.000000e+00 : f64}}
func.func private @a() attributes {d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64, host_overhead = -1.0 : f64>}

// -----
// collective C1
// expected-error @+1 {{expected 'all-reduce', 'all-gather', 'reduce-scatter', 'send', 'all-to-all' or 'shift', found 'gossip'}}
func.func private @a() attributes {c = #galvatron.collective<kind = "gossip", ranks = 2, across_nodes = false, stride = 0, concurrent = 1, times = [1.0, 1.0]>}

// -----
// collective C2
// expected-error @+1 {{expected 'times' to be pairs of bytes and seconds, found [1.000000e+00]}}
func.func private @a() attributes {c = #galvatron.collective<kind = "send", ranks = 2, across_nodes = false, stride = 0, concurrent = 1, times = [1.0]>}

// -----
// node C1
// expected-error @+1 {{expected 'count' and 'devices' of a node to be at least 1, found 1 and 0}}
func.func private @a() attributes {n = #galvatron.node<count = 1, device_type = "d", devices = 0>}

// -----
// cluster C1
// expected-error @+1 {{cluster 'c': expected at least one device type and one node}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [], nodes = []>}

// -----
// cluster C1
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected device types of different names, found two 'd'}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d, #d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 1>]>}

// -----
// cluster C2
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected a node of one of the device types, found 'e'}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "e", devices = 1>]>}

// -----
// cluster C3
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected a link in a node of 2 devices}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2>]>}

// -----
// cluster C4
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected a network between 2 nodes}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 2, device_type = "d", devices = 1>]>}

// -----
// cluster C5
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
#l = #galvatron.link<bandwidth = 1.0 : f64, latency = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected 'bandwidth_matrix' to have 2 rows of 2 f64 numbers}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 2, link = #l>], bandwidth_matrix = [array<f64: 1.0, 1.0>]>}

// -----
// cluster C6
#d = #galvatron.device_type<name = "d", backend = "cpu", memory = 1, flops = {f32 = 1.0 : f64}, memory_bandwidth = 1.0 : f64, overlap_slowdown = 1.0 : f64, kernel_overhead = 0.0 : f64>
// expected-error @+1 {{cluster 'c': expected #galvatron.collective, found 1 : i64}}
func.func private @a() attributes {c = #galvatron.cluster<name = "c", device_types = [#d], nodes = [#galvatron.node<count = 1, device_type = "d", devices = 1>], collectives = [1 : i64]>}

// -----

// expected-error @+1 {{expected 'sums' of a plan to have a name for each of 2 stages, found ["overlap"]}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, sums = ["overlap"]>}

// -----

// expected-error @+1 {{expected 'sums' of a plan to have a name for each of 2 stages, found ["overlap", 1]}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, sums = ["overlap", 1 : i64]>}

// -----

// expected-error @+1 {{'sums' of a plan: expected 'by-rule', 'overlap' or 'at-end', found 'late'}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, sums = ["by-rule", "late"]>}

// -----

// expected-error @+1 {{expected no 'sums' of a plan where all stages are 'by-rule', found ["by-rule", "by-rule"]}}
func.func private @a() attributes {p = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 2, sums = ["by-rule", "by-rule"]>}

// -----
// module attributes C1
// expected-error @+1 {{expected attribute 'galvatron.plan' on a module, found it on 'func.func'}}
func.func private @a() attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "1f1b", pipeline_degree = 1>}

// -----
// module attributes C2
// expected-error @+1 {{expected attribute 'galvatron.plan' to be a #galvatron.plan, found 1 : i64}}
module attributes {galvatron.plan = 1 : i64} {}

// -----
// module attributes C2
// expected-error @+1 {{expected attribute 'galvatron.cluster' to be a #galvatron.cluster, found "4xcpu"}}
module attributes {galvatron.cluster = "4xcpu"} {}

// -----
// module attributes C3
// expected-error @+1 {{expected an attribute of the galvatron dialect, found 'galvatron.plans', which is none}}
module attributes {galvatron.plans = 1 : i64} {}

// -----
// module attributes C4
// expected-error @+1 {{expected attribute 'galvatron.notes' to be a list of strings, found [1]}}
module attributes {galvatron.notes = [1]} {}

// -----

// expected-error @+1 {{expected attribute 'galvatron.plan_report' to hold JSON}}
module attributes {galvatron.plan_report = "{"} {}

// -----

// expected-error @+1 {{schedule '1f1b' has the chunks of its stages, no packs of layers}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>, array<i64: 0, 2>]>}

// -----

// expected-error @+1 {{expected forward packs of the layers in front of the last backward pack}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0, 2>, array<i64: 0, 2>]>}

// -----

// expected-error @+1 {{needs states and stashes with their home on the host}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, packs = [array<i64: 0>, array<i64: 0, 2>]>}

// -----

// expected-error @+1 {{expected 'forward_micro_batches' to divide 'batch', beside 'packs', found 3 and 4}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>, array<i64: 0, 2>], forward_micro_batches = 3>}

// -----

// expected-error @+1 {{expected 'forward_micro_batches' to divide 'batch', beside 'packs', found 2 and 4}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1, forward_micro_batches = 2>}

// -----

// expected-error @+1 {{regroups whole micro-batches: expected as many of one direction as of the other, or a multiple, found 2 of forward and 3 of backward packs}}
func.func private @a() attributes {p = #galvatron.plan<batch = 6, micro_batches = 3, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>, array<i64: 0, 2>], forward_micro_batches = 2>}

// -----

// expected-error @+1 {{expected two lists of first layers as 'packs' of a plan}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>]>}

// -----

// plan C6
// expected-error @+1 {{expected 'offload' of a plan to be 'optimizer' or 'all', found 'off', which no plan says}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1, offload = "off">}

// -----

// plan C8
// expected-error @+1 {{expected two lists of first layers as 'packs' of a plan, found [array<i64: 0>]}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>]>}

// -----

// plan C8
// expected-error @+1 {{expected a backward pack in 'packs' of a plan}}
func.func private @a() attributes {p = #galvatron.plan<batch = 4, micro_batches = 2, schedule = "harmony-pp", pipeline_degree = 1, offload = "all", packs = [array<i64: 0>, array<i64>]>}

// -----

// training C3
// expected-error @+1 {{expected 'clip_delayed' with 'clip', found it without}}
func.func private @a() attributes {p = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, clip_delayed = true>}

// -----

// expected-error @+1 {{expected a label smoothing from 0 to below 1, found 1}}
func.func private @a() attributes {p = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, label_smoothing = 1.0 : f64>}

// -----

// expected-error @+1 {{expected 'label_smoothing' and 'z_loss' other than 0, found 0}}
func.func private @a() attributes {p = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, z_loss = 0.0 : f64>}

// -----

// expected-error @+1 {{expected a factor of the z-loss from 0 to below 1000000, found -1}}
func.func private @a() attributes {p = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, z_loss = -1.0 : f64>}
