// RUN: galvatron-opt %s --galvatron-balance-pipeline=stages=3 --remarks-filter=galvatron-planner 2>&1 | FileCheck %s
// RUN: galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs --galvatron-balance-pipeline=stages=2 | FileCheck %s --check-prefix=FLOPS
// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 pipeline-degree=2 cluster=4xcpu" --galvatron-balance-pipeline --galvatron-annotate-costs --galvatron-select-plan=keep-plan --galvatron-verify-phase=phase=plan | FileCheck %s --check-prefix=PLANNED
// RUN: sed '1i module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "gpipe", pipeline_degree = 2, memory = 4096, offload = "optimizer">} {' %s > %t.kept.mlir; echo '}' >> %t.kept.mlir
// RUN: galvatron-opt %t.kept.mlir --galvatron-balance-pipeline=stages=3 | FileCheck %s --check-prefix=KEPT
// RUN: not galvatron-opt %s --galvatron-balance-pipeline 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not galvatron-opt %s --galvatron-balance-pipeline=stages=7 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-balance-pipeline=stages=2 2>&1 | FileCheck %s --check-prefix=COSTS
// RUN: sed 's/forward_ms = 6.0/forward_ms = 6.0e+15/' %s > %t.mlir; not galvatron-opt %t.mlir --galvatron-balance-pipeline=stages=3 2>&1 | FileCheck %s --check-prefix=LARGE

// LARGE: expected the work of layer 'c' to be below 4.803840e+16 to be added up, found 6.000000e+21
// Times 9, 9, 18, 6, 6, 6 (forward and backward): the least largest stage is 18.
// CHECK: Remark="layers per stage: 2, 1, 3"
// CHECK: "b"({{.*}}stage = 0 : i64
// CHECK: "c"({{.*}}stage = 1 : i64
// CHECK: "d"({{.*}}stage = 2 : i64
// FLOPS: "mlp.1" {{.*}}stage = 0 : i64
// FLOPS: "mlp.2" {{.*}}stage = 1 : i64
// PLANNED: galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 1, schedule = "1f1b", pipeline_degree = 2>
// Another number of stages leaves the rest of a plan as it is.
// KEPT: galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "gpipe", pipeline_degree = 3, memory = 4096, offload = "optimizer">
// NONE: expected the option 'stages', or a 'galvatron.plan' with the pipeline degree
// MANY: expected at least one layer for each of 7 stages, found 6
// COSTS: expected costs, or a strategy, a plan and a cluster: run 'galvatron-annotate-costs' first

galvatron.model @measured(%x0: tensor<?x4xf32> is <images>) {
  %x1 = galvatron.layer "a"(%x0) {profile = #galvatron.profile<forward_ms = 3.0, backward_ms = 6.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x2 = galvatron.layer "b"(%x1) {profile = #galvatron.profile<forward_ms = 3.0, backward_ms = 6.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x3 = galvatron.layer "c"(%x2) {profile = #galvatron.profile<forward_ms = 6.0, backward_ms = 12.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x4 = galvatron.layer "d"(%x3) {profile = #galvatron.profile<forward_ms = 2.0, backward_ms = 4.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x5 = galvatron.layer "e"(%x4) {profile = #galvatron.profile<forward_ms = 2.0, backward_ms = 4.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %x6 = galvatron.layer "f"(%x5) {profile = #galvatron.profile<forward_ms = 2.0, backward_ms = 4.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  galvatron.output %x6 : tensor<?x4xf32>
}
