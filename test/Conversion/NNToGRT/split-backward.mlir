// What the input part of a backward pass keeps for the weight part lies in the
// place of what nobody reads any more, or behind the stash.

// RUN: galvatron-import %examples/gpt2-tiny/config.json | galvatron-opt --galvatron-apply-training --galvatron-annotate-costs --galvatron-assign-strategies="cluster=2xcpu layers=*:single batch=2 micro-batches=2 pipeline-degree=2 schedule=zb-h1" | galvatron-opt --galvatron-pipeline="from=plan to=bufferize" | FileCheck %s

// CHECK-LABEL: grt.func @gpt2.block.b1.forward
// CHECK-SAME: stash_bytes = 123904

// 1x32x256 before the GELU are free behind it: gradients of 1x32x64 and 1x32x192
// fit there. Their life begins where its ends.
// CHECK-LABEL: grt.func @gpt2.block.b1.backward
// CHECK-SAME: stash_bytes = 164864
// CHECK-DAG: %[[PRE:.*]] = grt.buffer stash at [[AT:[0-9]+]] : memref<1x32x256xf32>
// CHECK-DAG: %[[OUT:.*]] = grt.buffer stash at [[AT]] : memref<1x32x64xf32>
// CHECK-DAG: %[[QKV:.*]] = grt.buffer stash at {{[0-9]+}} : memref<1x32x3x64xf32>
// CHECK: grt.kernel gelu_grad(%[[PRE]],
// CHECK-NEXT: grt.end %[[PRE]]
// CHECK: grt.begin %[[OUT]]
// CHECK: grt.kernel attention_grad
// CHECK-NOT: grt.end %[[OUT]]
// CHECK-LABEL: grt.func @gpt2.block.b1.weight
// CHECK-SAME: stash_bytes = 164864
// CHECK: %[[OUT:.*]] = grt.buffer stash at [[AT]] : memref<1x32x64xf32>
// CHECK: grt.end %[[OUT]]

// CHECK: galvatron.layer "h.0"
// CHECK-SAME: stash_bytes = 164864
// CHECK-SAME: weight = @gpt2.block.b1.weight
