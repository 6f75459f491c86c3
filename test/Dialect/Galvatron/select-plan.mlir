// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-select-plan=cluster=4xcpu batch=8" --remarks-filter=galvatron-planner 2>&1 | FileCheck %s
// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-select-plan=cluster=4xcpu batch=8 pipeline-degree=2 micro-batches=4 schedule=gpipe strategy=tp2.ckpt" | FileCheck %s --check-prefix=FORCED
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-select-plan=cluster=4xcpu batch=8 memory=1KiB" 2>&1 | FileCheck %s --check-prefix=MEMORY
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-select-plan=batch=8 2>&1 | FileCheck %s --check-prefix=CLUSTER
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-select-plan=cluster=4xcpu keep-plan" 2>&1 | FileCheck %s --check-prefix=NOPLAN
// RUN: galvatron-opt %s "--galvatron-select-plan=cluster=4xcpu batch=8" | FileCheck %s --check-prefix=OPAQUE
// What a profile keeps between its passes takes memory.
// RUN: not galvatron-opt %s "--galvatron-select-plan=cluster=4xcpu batch=8 memory=1KiB strategy=dp4" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: sed 's/intermediate_bytes = 512/intermediate_bytes = 4608/' %s > %t.more.mlir
// RUN: not galvatron-opt %t.more.mlir "--galvatron-select-plan=cluster=4xcpu batch=8 memory=1KiB strategy=dp4" 2>&1 | FileCheck %s --check-prefix=MORE
// A plan comes out of pricing as it went in.
// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-select-plan=cluster=4xcpu batch=8 pipeline-degree=2 space=base" | galvatron-opt --galvatron-select-plan=keep-plan | FileCheck %s --check-prefix=KEPT

// CHECK: remark: [Analysis] decision
// CHECK: galvatron.cluster = #galvatron.cluster<name = "4xcpu"
// CHECK: galvatron.plan = #galvatron.plan<batch = 8
// CHECK: galvatron.plan_report = "{
// CHECK: galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>
// CHECK: galvatron.layer "embed" {{.*}} {stage = 0 : i64, strategy = #galvatron.strategy<

// FORCED: galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 4, schedule = "gpipe", pipeline_degree = 2>
// FORCED-COUNT-6: strategy = #galvatron.strategy<[tp = 2], ckpt>

// MEMORY: error: no plan of space {{.*}} needs {{[0-9]+}} bytes {{.*}}, available are 1024 bytes
// CLUSTER: expected a cluster: the attribute 'galvatron.cluster', or a name or file
// NOPLAN: expected a 'galvatron.plan' attribute
// FEW: activations 1.12 KiB
// MORE: activations 9.12 KiB
// OPAQUE: galvatron.plan_report = "{{.*}}peak-is\22:\22estimate
// OPAQUE: galvatron.layer "a"({{.*}} strategy = #galvatron.strategy<
// KEPT: galvatron.plan = #galvatron.plan<batch = 8
// KEPT: galvatron.plan_report = "{{.*}}space\22:\22given
// KEPT: galvatron.layer "head" {{.*}}{stage = 1 : i64

galvatron.model @measured(%x0: tensor<?x4xf32> is <images>) {
  %x1 = galvatron.layer "a"(%x0) {profile = #galvatron.profile<forward_ms = 3.0, backward_ms = 6.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x2 = galvatron.layer "b"(%x1) {profile = #galvatron.profile<forward_flops = 3.0e6, forward_moved_bytes = 4096, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  galvatron.output %x2 : tensor<?x4xf32>
}
