// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:single;embed-mlp.1:sdp2.ckpt;head:tp2 batch=8 micro-batches=2 stages=2,4 cluster=4xcpu" --remarks-filter=galvatron-planner 2>&1 | FileCheck %s
// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 pipeline-degree=4 schedule=gpipe" | FileCheck %s --check-prefix=EVEN
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=nobody:dp2 batch=8" 2>&1 | FileCheck %s --check-prefix=NOBODY
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=head-embed:dp2 batch=8" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=embed:star2 batch=8" 2>&1 | FileCheck %s --check-prefix=NOTATION
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2" 2>&1 | FileCheck %s --check-prefix=BATCH
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 stages=2,2" 2>&1 | FileCheck %s --check-prefix=SUM
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 pipeline-degree=7" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=* batch=8" 2>&1 | FileCheck %s --check-prefix=COLON
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 pipeline-degree=2 stages=2,2,2" 2>&1 | FileCheck %s --check-prefix=CHUNKS
// The cluster of a module stays what it is; the same once more is no other one.
// RUN: galvatron-opt %examples/toy/toy.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 cluster=4xcpu" -o %t.mlir
// RUN: galvatron-opt %t.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 cluster=4xcpu" | FileCheck %s --check-prefix=SAME
// RUN: not galvatron-opt %t.mlir "--galvatron-assign-strategies=layers=*:dp2 batch=8 cluster=8xcpu" 2>&1 | FileCheck %s --check-prefix=OTHER

// Later entries win; a range goes by the order of the model.
// CHECK: Remark="by hand: sdp2.ckpt for 'embed-mlp.1'"
// CHECK: galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 2>
// CHECK: "embed" {{.*}} {stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2], ckpt>}
// CHECK: "mlp.0" {{.*}} {stage = 0 : i64, strategy = #galvatron.strategy<[sdp = 2], ckpt>}
// CHECK: "mlp.1" {{.*}} {stage = 1 : i64, strategy = #galvatron.strategy<[sdp = 2], ckpt>}
// CHECK: "mlp.2" {{.*}} {stage = 1 : i64, strategy = #galvatron.strategy<[]>}
// CHECK: "head" {{.*}} {stage = 1 : i64, strategy = #galvatron.strategy<[tp = 2]>}

// Six layers in four stages: the first two are one longer.
// EVEN: schedule = "gpipe", pipeline_degree = 4
// EVEN: "mlp.0" {{.*}} {stage = 0 : i64
// EVEN: "mlp.1" {{.*}} {stage = 1 : i64
// EVEN: "mlp.3" {{.*}} {stage = 2 : i64
// EVEN: "head" {{.*}} {stage = 3 : i64

// NOBODY: expected the name of a layer or a range of layers, found 'nobody'
// ORDER: expected a range in the order of the model, found 'head-embed'
// NOTATION: star2
// BATCH: expected the option 'batch', or a 'galvatron.plan' with the batch
// SUM: expected positive numbers in 'stages' that sum up to the 6 layers of the model
// FEW: expected at least one layer for each of 7 stages, found 6 layers
// CHUNKS: expected 2 numbers of layers in 'stages', or a multiple of that, found 3
// COLON: expected 'layer:strategy' or 'first-last:strategy', found '*'
// SAME: galvatron.cluster = #galvatron.cluster<name = "4xcpu"
// OTHER: expected the module's cluster '4xcpu', found '8xcpu', which differs from it
