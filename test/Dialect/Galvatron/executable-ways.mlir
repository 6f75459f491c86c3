// RUN: not galvatron-opt %s "--galvatron-select-plan=cluster=4xcpu batch=8" 2>&1 | FileCheck %s
// RUN: not galvatron-opt %s "--galvatron-assign-strategies=layers=*:dp4 batch=8 cluster=4xcpu" --galvatron-select-plan=keep-plan 2>&1 | FileCheck %s
// RUN: not galvatron-opt %s "--galvatron-assign-strategies=layers=*:dp4 batch=8 cluster=4xcpu" --galvatron-balance-pipeline=stages=1 2>&1 | FileCheck %s
// RUN: not galvatron-opt %s "--galvatron-assign-strategies=layers=*:dp4 batch=8 cluster=4xcpu" --galvatron-split-stages 2>&1 | FileCheck %s
// RUN: not galvatron-opt %s --galvatron-schedule-tasks 2>&1 | FileCheck %s
// RUN: not galvatron-plan %s --cluster=4xcpu --batch=8 2>&1 | FileCheck %s

// A model that is not a chain is refused by whatever plans it, cuts it into
// stages or turns it into roles, alone or in a pipeline.

// CHECK: layer 'c' uses a result of layer 'a', expected results of the layer in front of it alone, 'b'
galvatron.model @skip(%t: tensor<?x4xf32> is <images>) {
  %a = galvatron.layer "a"(%t) {profile = #galvatron.profile<forward_ms = 3.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = galvatron.layer "b"(%a) {profile = #galvatron.profile<forward_ms = 3.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %c = galvatron.layer "c"(%b, %a) {profile = #galvatron.profile<forward_ms = 3.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 512>} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  galvatron.output %c : tensor<?x4xf32>
}
