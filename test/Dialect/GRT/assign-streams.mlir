// RUN: galvatron-opt %s --galvatron-assign-streams=backend=cuda | FileCheck %s
// RUN: galvatron-opt %s --galvatron-assign-streams=backend=cuda --galvatron-allocate-arena=functions-only | FileCheck %s --check-prefix=PLACED
// RUN: galvatron-opt %s --galvatron-assign-streams=backend=cpu | FileCheck %s --check-prefix=CPU
// RUN: galvatron-opt %s --galvatron-assign-streams | FileCheck %s --check-prefix=CPU
// RUN: not galvatron-opt %s --galvatron-assign-streams=backend=cuda --galvatron-assign-streams=backend=cuda 2>&1 | FileCheck %s --check-prefix=TWICE

// CPU-NOT: grt.record
// CPU-NOT: grt.wait
// CPU-NOT: on gather
// TWICE: expected no events before 'galvatron-assign-streams'

// Both collectives leave compute. The gather waits for all that stands in front
// of its buffer's begin, and so for all that used those bytes before; its first
// reader waits for it. What comes between runs beside it.
// CHECK-LABEL: grt.func @gather_and_scatter
grt.func @gather_and_scatter {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %sum = grt.buffer gradient at 0 : memref<64xf32>
  %x = grt.buffer input at 0 : memref<4x64xf32>
  %dy = grt.buffer grad_in at 0 : memref<4x64xf32>
  %full = grt.buffer transient : memref<4x64xf32>
  %grads = grt.buffer transient : memref<4x64xf32>
  // CHECK: grt.record 0 on compute
  // CHECK-NEXT: grt.begin %[[FULL:.*]] :
  // CHECK-NEXT: grt.wait 0 on gather
  // CHECK-NEXT: grt.all_gather %{{.*}} to %[[FULL]] over sdp on gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.kernel scale
  // CHECK-NEXT: grt.wait 1 on compute
  // CHECK-NEXT: grt.kernel add
  grt.begin %full : memref<4x64xf32>
  grt.all_gather %shard to %full over sdp : memref<64xf32> to memref<4x64xf32>
  grt.kernel scale(%x, %x) ints [256] reals [2.0] : memref<4x64xf32>, memref<4x64xf32>
  grt.kernel add(%x, %full, %dy) ints [256] : memref<4x64xf32>, memref<4x64xf32>, memref<4x64xf32>
  // The end of the gathered buffer needs nothing more: compute has waited.
  // CHECK-NEXT: grt.end %[[FULL]]
  // CHECK-NEXT: grt.begin %[[GRADS:.*]] :
  // CHECK-NEXT: grt.kernel scale
  // The scatter waits for its source. That the two collectives over one axis
  // have one order follows: compute had waited for the first.
  // CHECK-NEXT: grt.record 2 on compute
  // CHECK-NEXT: grt.wait 2 on gradient
  // CHECK-NEXT: grt.reduce_scatter %[[GRADS]] to %{{.*}} over sdp acc 2 on gradient
  // CHECK-NEXT: grt.record 3 on gradient
  // The kernel between touches neither; the buffer's end waits.
  // CHECK-NEXT: grt.kernel scale
  // CHECK-NEXT: grt.wait 3 on compute
  // CHECK-NEXT: grt.end %[[GRADS]]
  // CHECK-NEXT: }
  grt.end %full : memref<4x64xf32>
  grt.begin %grads : memref<4x64xf32>
  grt.kernel scale(%dy, %grads) ints [256] reals [0.5] : memref<4x64xf32>, memref<4x64xf32>
  grt.reduce_scatter %grads to %sum over sdp acc 2 : memref<4x64xf32> to memref<64xf32>
  grt.kernel scale(%x, %x) ints [256] reals [2.0] : memref<4x64xf32>, memref<4x64xf32>
  grt.end %grads : memref<4x64xf32>
  // PLACED: grt.func @gather_and_scatter attributes {transient_bytes = 1024 : i64}
}

// Of two gathers only the second is waited for: it stands behind the first.
// CHECK-LABEL: grt.func @two_gathers_one_wait
grt.func @two_gathers_one_wait {
  %a = grt.buffer parameter at 0 : memref<64xf32>
  %b = grt.buffer parameter at 256 : memref<64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  %first = grt.buffer stash at 0 : memref<2x64xf32>
  %second = grt.buffer stash at 512 : memref<2x64xf32>
  // No mark in front: the function's start is what they wait for.
  // CHECK: grt.record 0 on compute
  // CHECK-NEXT: grt.wait 0 on gather
  // CHECK-NEXT: grt.all_gather
  // CHECK-NEXT: grt.all_gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.wait 1 on compute
  // CHECK-NEXT: grt.kernel add
  // CHECK-NEXT: }
  grt.all_gather %a to %first over sdp : memref<64xf32> to memref<2x64xf32>
  grt.all_gather %b to %second over sdp : memref<64xf32> to memref<2x64xf32>
  grt.kernel add(%first, %second, %y) ints [128] : memref<2x64xf32>, memref<2x64xf32>, memref<2x64xf32>
}

// Two begins without work between them are one place.
// CHECK-LABEL: grt.func @two_begins_one_event
grt.func @two_begins_one_event {
  %a = grt.buffer parameter at 0 : memref<64xf32>
  %b = grt.buffer parameter at 256 : memref<64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  %first = grt.buffer transient : memref<2x64xf32>
  %second = grt.buffer transient : memref<2x64xf32>
  // CHECK: grt.kernel zero
  // CHECK-NEXT: grt.record 0 on compute
  // CHECK-NEXT: grt.begin
  // CHECK-NEXT: grt.wait 0 on gather
  // CHECK-NEXT: grt.all_gather
  // CHECK-NEXT: grt.begin
  // CHECK-NEXT: grt.all_gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.wait 1 on compute
  grt.kernel zero(%y) : memref<2x64xf32>
  grt.begin %first : memref<2x64xf32>
  grt.all_gather %a to %first over sdp : memref<64xf32> to memref<2x64xf32>
  grt.begin %second : memref<2x64xf32>
  grt.all_gather %b to %second over sdp : memref<64xf32> to memref<2x64xf32>
  grt.kernel add(%first, %second, %y) ints [128] : memref<2x64xf32>, memref<2x64xf32>, memref<2x64xf32>
  grt.end %first : memref<2x64xf32>
  grt.end %second : memref<2x64xf32>
}

// Views of one buffer, and buffers of one region, meet where their bytes do.
// CHECK-LABEL: grt.func @aliases
grt.func @aliases {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  %half = grt.view %full at 256 : memref<2x64xf32> to memref<64xf32>
  %same = grt.buffer stash at 448 : memref<16xf32>
  %behind = grt.buffer stash at 512 : memref<64xf32>
  // CHECK: grt.all_gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.kernel zero(%{{.*}}) : memref<64xf32>
  // CHECK-NEXT: grt.wait 1 on compute
  // CHECK-NEXT: grt.kernel zero(%{{.*}}) : memref<16xf32>
  // CHECK-NEXT: grt.kernel zero
  // CHECK-NEXT: }
  grt.all_gather %shard to %full over sdp : memref<64xf32> to memref<2x64xf32>
  grt.kernel zero(%behind) : memref<64xf32>
  grt.kernel zero(%same) : memref<16xf32>
  grt.kernel zero(%half) : memref<64xf32>
}

// What tensor parallelism exchanges is needed at once; a gather of anything but
// parameters too.
// CHECK-LABEL: grt.func @tensor_parallel
grt.func @tensor_parallel {
  %x = grt.buffer input at 0 : memref<64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  // CHECK-NOT: record
  // CHECK: grt.all_reduce %{{.*}} over tp : memref<64xf32>
  // CHECK-NEXT: grt.all_gather %{{.*}} over tp : memref<64xf32>
  grt.all_reduce %x over tp : memref<64xf32>
  grt.all_gather %x to %y over tp : memref<64xf32> to memref<2x64xf32>
}

// Nobody reads what was gathered: the function's end waits.
// CHECK-LABEL: grt.func @joined_at_the_end
grt.func @joined_at_the_end {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  // CHECK: grt.all_gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.wait 1 on compute
  // CHECK-NEXT: }
  grt.all_gather %shard to %full over sdp : memref<64xf32> to memref<2x64xf32>
}

// Keys of a ring's next step arrive beside the attention of this one, which
// waits for nothing: the shift waits for what stands in front of its buffer's
// begin, and the next step for the shift. What comes home is used at once and
// stays on compute, behind the shift over the same axis.
// CHECK-LABEL: grt.func @ring
grt.func @ring {
  %q = grt.buffer stash at 0 : memref<16x8xf32>
  %k = grt.buffer stash at 512 : memref<16x8xf32>
  %dk = grt.buffer stash at 1024 : memref<16x8xf32>
  %o = grt.buffer output at 0 : memref<16x8xf32>
  %next = grt.buffer transient : memref<16x8xf32>
  %home = grt.buffer transient : memref<16x8xf32>
  // CHECK: grt.record 0 on compute
  // CHECK-NEXT: grt.begin %[[NEXT:.*]] :
  // CHECK-NEXT: grt.wait 0 on gather
  // CHECK-NEXT: grt.shift %{{.*}} to %[[NEXT]] by 1 over cp on gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.kernel add
  // CHECK-NEXT: grt.begin
  // CHECK-NEXT: grt.wait 1 on compute
  // CHECK-NEXT: grt.shift %{{.*}} by 1 over cp :
  // CHECK-NEXT: grt.kernel add(%{{.*}}, %[[NEXT]], %{{.*}})
  // CHECK-NOT: record
  // CHECK: }
  grt.begin %next : memref<16x8xf32>
  grt.shift %k to %next by 1 over cp : memref<16x8xf32> to memref<16x8xf32>
  grt.kernel add(%q, %k, %o) ints [128] : memref<16x8xf32>, memref<16x8xf32>, memref<16x8xf32>
  grt.begin %home : memref<16x8xf32>
  grt.shift %dk to %home by 1 over cp : memref<16x8xf32> to memref<16x8xf32>
  grt.kernel add(%home, %next, %o) ints [128] : memref<16x8xf32>, memref<16x8xf32>, memref<16x8xf32>
  grt.end %next : memref<16x8xf32>
  grt.end %home : memref<16x8xf32>
}

// Parameters may be cut among the ranks of a ring: a scatter of gradients waits
// for a shift before it, on which nothing else of it depends.
// CHECK-LABEL: grt.func @ring_beside_scatter
grt.func @ring_beside_scatter {
  %q = grt.buffer stash at 0 : memref<16x8xf32>
  %k = grt.buffer stash at 512 : memref<16x8xf32>
  %grads = grt.buffer stash at 1024 : memref<4x64xf32>
  %sum = grt.buffer gradient at 0 : memref<64xf32>
  %next = grt.buffer output at 0 : memref<16x8xf32>
  // CHECK: grt.shift %{{.*}} over cp on gather
  // CHECK-NEXT: grt.record 1 on gather
  // CHECK-NEXT: grt.kernel add
  // CHECK-NEXT: grt.wait 1 on gradient
  // CHECK-NEXT: grt.reduce_scatter %{{.*}} over sdp acc 2 on gradient
  grt.shift %k to %next by 1 over cp : memref<16x8xf32> to memref<16x8xf32>
  grt.kernel add(%q, %k, %q) ints [128] : memref<16x8xf32>, memref<16x8xf32>, memref<16x8xf32>
  grt.reduce_scatter %grads to %sum over sdp acc 2 : memref<4x64xf32> to memref<64xf32>
  grt.kernel add(%q, %next, %q) ints [128] : memref<16x8xf32>, memref<16x8xf32>, memref<16x8xf32>
}
