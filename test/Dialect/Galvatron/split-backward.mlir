// Backward functions in two parts. Four blocks of one body: replicated, sharded,
// sharded and recomputed, tensor parallel.

// RUN: galvatron-import %examples/gpt2-tiny/config.json | galvatron-opt --galvatron-apply-training --galvatron-annotate-costs --galvatron-assign-strategies="cluster=4xcpu layers=*:dp2;h.1:sdp2;h.2:sdp2.ckpt;h.3:tp2 batch=8 micro-batches=2 pipeline-degree=2 schedule=zb-h1" -o %t.mlir
// RUN: galvatron-opt %t.mlir --galvatron-pipeline="from=plan to=partition" -o %t.whole.mlir
// RUN: galvatron-opt %t.whole.mlir --pass-pipeline="builtin.module(func.func(nn-fuse),galvatron-split-backward)" -o %t.split.mlir
// RUN: FileCheck %s < %t.split.mlir
// RUN: FileCheck %s --check-prefix=LAYERS < %t.split.mlir
// RUN: echo "module {}" | not galvatron-opt --galvatron-split-backward 2>&1 | FileCheck %s --check-prefix=NO-MODEL
// NO-MODEL: expected a 'galvatron.model' in the module, found none

// Under another schedule nothing is split.
// RUN: sed s/zb-h1/1f1b/ %t.whole.mlir | galvatron-opt --pass-pipeline="builtin.module(func.func(nn-fuse),galvatron-split-backward)" | FileCheck %s --check-prefix=WHOLE
// WHOLE-NOT: weight = @
// WHOLE-NOT: direction = weight

// All-reduces are those of input gradients, in their order; what the weight part
// reads of the stash lives on, and what it does not has ended.
// CHECK-LABEL: func.func private @gpt2.block.tp2.b4.backward(
// CHECK-SAME: tensor<4x32x64xf32> {galvatron.part_value = #galvatron.part_value<lifetime = kept>, nn.role = "stash"}, %{{.*}}: tensor<4x32x2xf32> {nn.role = "stash"}
// CHECK-SAME: -> (tensor<4x32x64xf32> {nn.role = "input_gradient"}, tensor<64xf32> {galvatron.part_value = #galvatron.part_value<parameter = 0>, nn.role = "parameter_gradient"}, tensor<64xf32> {galvatron.part_value = #galvatron.part_value<parameter = 1>, nn.role = "parameter_gradient"}, tensor<64xf32> {galvatron.part_value = #galvatron.part_value<parameter = 6>, nn.role = "parameter_gradient"}, tensor<64xf32> {galvatron.part_value = #galvatron.part_value<parameter = 7>, nn.role = "parameter_gradient"}, tensor<4x32x64xf32> {nn.role = "stash"}, tensor<4x32x128xf32> {nn.role = "stash"}, tensor<4x32x64xf32> {nn.role = "stash"}, tensor<4x32x3x32xf32> {nn.role = "stash"})
// CHECK-NOT: weight_grad
// CHECK: galvatron.all_reduce
// CHECK: nn.layer_norm_add_grad
// CHECK: galvatron.all_reduce
// CHECK: nn.layer_norm_add_grad
// CHECK-NEXT: return
// CHECK-LABEL: func.func private @gpt2.block.tp2.b4.weight(
// CHECK-NOT: nn.role = "gradient"
// CHECK-SAME: tensor<4x32x64xf32> {nn.role = "stash"}, %{{.*}}: tensor<4x32x2xf32> {galvatron.part_value = #galvatron.part_value<lifetime = ended>, nn.role = "stash"}
// CHECK-SAME: galvatron.partition = #galvatron.partition<direction = weight, axes = [tp = 2]>
// CHECK-NOT: galvatron.
// CHECK-COUNT-4: nn.linear_weight_grad
// CHECK: return

// A recomputed layer stays whole.
// CHECK-NOT: sdp2.b2.ckpt.weight

// Sharded gradients are scattered in one piece: those of norms wait for it, in
// the type of the sum.
// CHECK-LABEL: func.func private @gpt2.block.sdp2.b2.backward(
// CHECK-NOT: parameter_gradient
// CHECK-SAME: tensor<64xf32> {galvatron.part_value = #galvatron.part_value<wide = true>, nn.role = "stash"}
// CHECK: galvatron.gather_parameters
// CHECK-NOT: galvatron.reduce_scatter_gradients
// CHECK-LABEL: func.func private @gpt2.block.sdp2.b2.weight(
// CHECK-SAME: tensor<64xf32> {galvatron.part_value = #galvatron.part_value<wide = true>, nn.role = "stash"}
// CHECK-SAME: {galvatron.part_value = #galvatron.part_value<parameter = 0>, nn.role = "parameter_gradient"}
// CHECK-SAME: {galvatron.part_value = #galvatron.part_value<parameter = 11>, nn.role = "parameter_gradient"}
// CHECK-NOT: galvatron.gather_parameters
// CHECK: galvatron.reduce_scatter_gradients

// The embedding has no gradient of an input.
// LAYERS: galvatron.layer "wte"
// LAYERS-NOT: weight = @
// LAYERS: galvatron.layer "h.0"
// LAYERS-SAME: weight = @gpt2.block.b2.weight
// LAYERS: galvatron.layer "h.1"
// LAYERS-SAME: weight = @gpt2.block.sdp2.b2.weight
// LAYERS: galvatron.layer "h.2"
// LAYERS-NOT: weight = @
// LAYERS: galvatron.layer "h.3"
// LAYERS-SAME: weight = @gpt2.block.tp2.b4.weight
// LAYERS: galvatron.layer "head"
// LAYERS-SAME: weight = @gpt2.head.b2.borrow2.weight
