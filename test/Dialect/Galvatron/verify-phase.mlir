// RUN: galvatron-opt %s --split-input-file --galvatron-verify-phase=phase=import
// RUN: not galvatron-opt %s --galvatron-verify-phase=phase=imported 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not galvatron-opt %s --split-input-file --galvatron-verify-phase=phase=annotate 2>&1 | FileCheck %s --check-prefix=ANNOTATE
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-assign-strategies=layers=embed-mlp.3:dp4 batch=8 cluster=4xcpu" --galvatron-apply-training --galvatron-verify-phase=phase=plan 2>&1 | FileCheck %s --check-prefix=STRATEGY
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-assign-strategies=layers=*:dp2 batch=8 cluster=4xcpu" --galvatron-apply-training --galvatron-verify-phase=phase=plan 2>&1 | FileCheck %s --check-prefix=DEVICES
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-assign-strategies=layers=*:dp4 batch=6 cluster=4xcpu" --galvatron-apply-training --galvatron-verify-phase=phase=plan 2>&1 | FileCheck %s --check-prefix=SAMPLES
// RUN: not galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-select-plan=cluster=4xcpu batch=8" --galvatron-verify-phase=phase=split 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-assign-strategies=layers=*:dp2 batch=8 cluster=4xcpu pipeline-degree=2 micro-batches=2" --galvatron-apply-training --galvatron-split-stages | sed 's/devices \[2, 3\]/devices [2, 7]/' > %t.mlir
// RUN: not galvatron-opt %t.mlir --galvatron-verify-phase=phase=split 2>&1 | FileCheck %s --check-prefix=ELSEWHERE
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-pipeline=to=split cluster=4xcpu batch=8" --galvatron-verify-phase=phase=differentiate 2>&1 | FileCheck %s --check-prefix=DIFFERENTIATE
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-pipeline=to=differentiate cluster=4xcpu batch=8" --galvatron-verify-phase=phase=partition 2>&1 | FileCheck %s --check-prefix=PARTITION
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-pipeline=to=partition cluster=4xcpu batch=8" --galvatron-verify-phase=phase=bufferize 2>&1 | FileCheck %s --check-prefix=BUFFERIZE
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-pipeline=to=bufferize cluster=4xcpu batch=8" --galvatron-verify-phase=phase=schedule 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: not galvatron-opt %examples/toy/toy.mlir "--galvatron-pipeline=to=schedule cluster=4xcpu batch=8" --galvatron-verify-phase=phase=allocate 2>&1 | FileCheck %s --check-prefix=ALLOCATE

// UNKNOWN: unknown phase 'imported', expected one of import, annotate, plan
// ANNOTATE: expected 'costs' on layer 'a'
// STRATEGY: expected a strategy for layer 'head', found none
// DEVICES: dp2
// SAMPLES: 6
// SPLIT: expected {{[0-9]+}} stages as the plan says, found 0
// ELSEWHERE: error: plan: stage 1: the stages have 4 devices, expected 0 to 3, found 7
// DIFFERENTIATE: expected forward and backward functions for layer 'embed'
// PARTITION: expected local sample counts, found '?'
// BUFFERIZE: 'func.func' is illegal after the phase 'bufferize', expected it to have been converted
// SCHEDULE: 'galvatron.model' is illegal after the phase 'schedule', expected it to have been converted
// ALLOCATE: expected an arena layout

func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}
