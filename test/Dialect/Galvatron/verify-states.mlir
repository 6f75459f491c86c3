// RUN: galvatron-opt %examples/toy/toy.mlir --galvatron-annotate-costs "--galvatron-assign-strategies=layers=*:tp2 batch=8 cluster=2xcpu" --galvatron-apply-training "--galvatron-pipeline=from=plan to=partition keep-plan" -o %t.mlir
// RUN: galvatron-opt %t.mlir --galvatron-verify-phase=phase=partition -o /dev/null
// RUN: sed 's/\(all_reduce .* over *\)tp/\1dp/' %t.mlir > %t.dp.mlir
// RUN: not galvatron-opt %t.dp.mlir --galvatron-verify-phase=phase=partition 2>&1 | FileCheck %s --check-prefix=OVER
// RUN: sed 's/\(galvatron.slice<global_shape = \[8, 16\]\), state = <.split 1.>/\1, state = <[split 0]>/' %t.mlir > %t.split.mlir
// RUN: not galvatron-opt %t.split.mlir --galvatron-verify-phase=phase=partition 2>&1 | FileCheck %s --check-prefix=SPLIT

// Collectives of local functions are checked behind partition, by the states that
// follow from the slices of the arguments.

// OVER: error: 'galvatron.all_reduce' op expected an axis of the function, found 'dp'
// SPLIT: error: on axis 'tp': expected operand {{[0-9]}}
