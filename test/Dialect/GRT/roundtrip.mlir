// RUN: galvatron-opt %s | FileCheck %s
// RUN: galvatron-opt %s --mlir-print-op-generic | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --emit-bytecode | galvatron-opt | FileCheck %s
// RUN: galvatron-opt %s --cse --canonicalize | FileCheck %s --check-prefix=KEPT

galvatron.parameter @w : tensor<32xf32> {init = "zeros"}

// CHECK-LABEL: grt.func @block.forward attributes {input_bytes = 786432 : i64, output_bytes = 786432 : i64, stash_bytes = 2048 : i64}
// KEPT-LABEL: grt.func @block.forward
grt.func @block.forward attributes {stash_bytes = 2048 : i64, input_bytes = 786432 : i64, output_bytes = 786432 : i64} {
  // CHECK: grt.buffer input at 0 : memref<4x64x768xf32>
  %x = grt.buffer input at 0 : memref<4x64x768xf32>
  %g = grt.buffer parameter at 0 : memref<768xf32>
  %b = grt.buffer parameter at 3072 : memref<768xf32>
  %w = grt.buffer parameter at 6144 : memref<768x768xf32>
  %s = grt.buffer stash at 0 : memref<4x64x2xf32>
  // CHECK: grt.buffer transient : memref<4x64x768xf32>
  // Two transient buffers of one type stay two.
  // KEPT-COUNT-2: grt.buffer transient : memref<4x
  %t = grt.buffer transient : memref<4x64x768xf32>
  %u = grt.buffer transient : memref<4x64x768xf32>
  %y = grt.buffer output at 0 : memref<4x64x768xf32>
  // CHECK: grt.begin %{{.*}} : memref<4x64x2xf32>
  grt.begin %s : memref<4x64x2xf32>
  grt.begin %t : memref<4x64x768xf32>
  // CHECK: grt.kernel layer_norm(%{{.*}}) ints [256, 768] reals [1.000000e-05] {label = "ln_1"} : memref<4x64x768xf32>, memref<768xf32>
  grt.kernel layer_norm(%x, %g, %b, %t, %s) ints [256, 768] reals [1.0e-5] {label = "ln_1"} : memref<4x64x768xf32>, memref<768xf32>, memref<768xf32>, memref<4x64x768xf32>, memref<4x64x2xf32>
  grt.begin %u : memref<4x64x768xf32>
  grt.kernel gemm(%t, %w, %u) ints [256, 768, 768, 0, 0, 0, 0] : memref<4x64x768xf32>, memref<768x768xf32>, memref<4x64x768xf32>
  // With and without scratch, and the operand before it that may be missing.
  %s1 = grt.buffer transient : memref<4096xi8>
  grt.begin %s1 : memref<4096xi8>
  // CHECK: grt.kernel gemm({{(%[a-z0-9_]+(, )?){5}[)]}} ints [256, 768, 768, 0, 0, 0, 1]
  grt.kernel gemm(%t, %w, %u, %b, %s1) ints [256, 768, 768, 0, 0, 0, 1] : memref<4x64x768xf32>, memref<768x768xf32>, memref<4x64x768xf32>, memref<768xf32>, memref<4096xi8>
  // CHECK: grt.kernel gemm_gelu({{(%[a-z0-9_]+(, )?){5}[)]}} ints [256, 768, 768, 0, 0, 1, 0]
  grt.kernel gemm_gelu(%t, %w, %b, %u, %s1) ints [256, 768, 768, 0, 0, 1, 0] : memref<4x64x768xf32>, memref<768x768xf32>, memref<768xf32>, memref<4x64x768xf32>, memref<4096xi8>
  grt.end %s1 : memref<4096xi8>
  // CHECK: grt.end
  grt.end %t : memref<4x64x768xf32>
  // CHECK: grt.all_reduce %{{.*}} over tp {label = "c_proj"} : memref<4x64x768xf32>
  // KEPT: grt.all_reduce
  grt.all_reduce %u over tp {label = "c_proj"} : memref<4x64x768xf32>
  grt.kernel add(%x, %u, %y) ints [196608] : memref<4x64x768xf32>, memref<4x64x768xf32>, memref<4x64x768xf32>
  grt.end %u : memref<4x64x768xf32>
  grt.return
}

// CHECK-LABEL: grt.func @gathered.backward
grt.func @gathered.backward {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %sum = grt.buffer gradient at 0 : memref<64xf32>
  %exchanged = grt.buffer grad_out at 0 : memref<4x64xf32>
  %counts = grt.buffer data at 0 : memref<4x4xi32>
  %full = grt.buffer transient at 0 : memref<4x64xf32>
  grt.begin %full : memref<4x64xf32>
  // CHECK: grt.all_gather %{{.*}} to %{{.*}} over sdp : memref<64xf32> to memref<4x64xf32>
  grt.all_gather %shard to %full over sdp : memref<64xf32> to memref<4x64xf32>
  // CHECK: grt.view %{{.*}} at 256 : memref<4x64xf32> to memref<64xf32>
  %v = grt.view %full at 256 : memref<4x64xf32> to memref<64xf32>
  // CHECK: grt.kernel zero(%{{.*}}) : memref<64xf32>
  grt.kernel zero(%v) : memref<64xf32>
  // CHECK: grt.reduce_scatter %{{.*}} to %{{.*}} over sdp acc 2 : memref<4x64xf32> to memref<64xf32>
  grt.reduce_scatter %full to %sum over sdp acc 2 : memref<4x64xf32> to memref<64xf32>
  // CHECK: grt.all_to_all %{{.*}} to %{{.*}} over cp : memref<4x64xf32> to memref<4x64xf32>
  grt.all_to_all %full to %exchanged over cp : memref<4x64xf32> to memref<4x64xf32>
  // CHECK: grt.shift %{{.*}} to %{{.*}} by 1 over cp : memref<4x64xf32> to memref<4x64xf32>
  grt.shift %full to %exchanged by 1 over cp : memref<4x64xf32> to memref<4x64xf32>
  // CHECK: grt.all_reduce_max %{{.*}} over tp {label = "scale"} : memref<4x64xf32>
  grt.all_reduce_max %full over tp {label = "scale"} : memref<4x64xf32>
  // CHECK: grt.all_to_all_counts %{{.*}} to %{{.*}} by %{{.*}} units 256 over tp : memref<4x64xf32> to memref<4x64xf32> by memref<4x4xi32>
  grt.all_to_all_counts %full to %exchanged by %counts units 256 over tp : memref<4x64xf32> to memref<4x64xf32> by memref<4x4xi32>
  grt.end %full : memref<4x64xf32>
  grt.return
}

// CHECK-LABEL: grt.func @on_streams
// KEPT-LABEL: grt.func @on_streams
grt.func @on_streams {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<4x64xf32>
  // CHECK: grt.record 0 on compute
  // KEPT: grt.record 0 on compute
  grt.record 0 on compute
  // CHECK-NEXT: grt.wait 0 on gather
  // KEPT-NEXT: grt.wait 0 on gather
  grt.wait 0 on gather
  // CHECK-NEXT: grt.all_gather %{{.*}} to %{{.*}} over sdp on gather {label = "gather"} : memref<64xf32> to memref<4x64xf32>
  grt.all_gather %shard to %full over sdp on gather {label = "gather"} : memref<64xf32> to memref<4x64xf32>
  grt.record 1 on gather
  grt.wait 1 on compute
  // `compute` is not written.
  // CHECK: grt.all_reduce %{{.*}} over tp : memref<4x64xf32>
  grt.all_reduce %full over tp on compute : memref<4x64xf32>
  grt.return
}

// CHECK: grt.exchange @reshard.0 bytes_per_unit 196608 transfers {{\[\[}}0, 1, 0, 0, 2], [1, 0, 2, 0, 2]]
grt.exchange @reshard.0 bytes_per_unit 196608 transfers [[0, 1, 0, 0, 2], [1, 0, 2, 0, 2]]
// CHECK: grt.exchange @nothing bytes_per_unit 4 transfers []
grt.exchange @nothing bytes_per_unit 4 transfers []

// CHECK: grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {recv_gradient = @nothing, send_activation = @nothing} {
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @nothing, recv_gradient = @nothing} {
  // CHECK-NEXT: grt.layer "h.0" {backward = @gathered.backward
  grt.layer "h.0" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 2]>, samples = 4 : i64,
    forward = @block.forward, backward = @gathered.backward,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [4, 8], local_shape = [4, 8], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 64, shard_elements = 32>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64, forward_reshard = @reshard.0}
}

// CHECK: grt.schedule @stage0.schedule role @stage0 {
grt.schedule @stage0.schedule role @stage0 {
  // CHECK-NEXT: grt.part steady {
  grt.part steady {
    // CHECK-NEXT: grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 0 slot 0
    // CHECK-NEXT: grt.task transfer send_activation 0 recv_gradient 0
    grt.task transfer send_activation 0 recv_gradient 0
    // CHECK-NEXT: grt.task backward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  // CHECK: grt.part step_end {
  grt.part step_end {
    // CHECK-NEXT: grt.task sync_gradients
    grt.task sync_gradients
    grt.task tie_reduce
    grt.task norm
    grt.task update
    // CHECK: grt.task tie_broadcast
    grt.task tie_broadcast
  }
}

// CHECK: grt.role @chunked stage 0 devices [0, 1] slots 3 {
grt.role @chunked stage 0 devices [0, 1] slots 3 {
  // CHECK-NEXT: grt.chunk 0 slots 2 {send_activation = @nothing}
  grt.chunk 0 slots 2 {send_activation = @nothing}
  grt.layer "h.0" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 2]>, samples = 4 : i64,
    forward = @block.forward, backward = @gathered.backward, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64}
  // CHECK: grt.chunk 2 slots 1 {recv_activation = @nothing}
  grt.chunk 2 slots 1 {recv_activation = @nothing}
  grt.layer "h.4" {index = 5 : i64, strategy = #galvatron.strategy<[sdp = 2]>, samples = 4 : i64,
    forward = @block.forward, backward = @gathered.backward, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64}
}

grt.schedule @chunked.schedule role @chunked {
  // CHECK: grt.part steady {
  grt.part steady {
    // CHECK-NEXT: grt.task forward chunk 0 micro_batch 1 slot 1
    grt.task forward chunk 0 micro_batch 1 slot 1
    // CHECK-NEXT: grt.task transfer send_activation 1 recv_activation 0 slot 0 chunks [0, 2]
    grt.task transfer send_activation 1 recv_activation 0 slot 0 chunks [0, 2]
    // CHECK-NEXT: grt.task backward chunk 2 micro_batch 0 slot 0 sync_behind
    grt.task backward chunk 2 micro_batch 0 slot 0 sync_behind
    // CHECK-NEXT: grt.task swap chunk 2 parameters gradients
    grt.task swap chunk 2 parameters gradients
    // CHECK-NEXT: grt.task swap chunk 2 optimizer
    grt.task swap chunk 2 optimizer
    // CHECK-NEXT: grt.task swap chunk 2 out parameters optimizer
    grt.task swap chunk 2 out parameters optimizer
    // CHECK-NEXT: grt.task swap chunk 2 out gradients
    grt.task swap chunk 2 out gradients
    // CHECK-NEXT: grt.task swap chunk 2 micro_batch 1 slot 1 out activations
    grt.task swap chunk 2 micro_batch 1 slot 1 out activations
    // CHECK-NEXT: grt.task swap chunk 2 parameters on in after [1, 2] records 3
    grt.task swap chunk 2 parameters on in after [1, 2] records 3
    // CHECK-NEXT: grt.task backward_input chunk 0 micro_batch 0 slot 0
    grt.task backward_input chunk 0 micro_batch 0 slot 0
    // CHECK-NEXT: grt.task backward_weight chunk 0 micro_batch 0 slot 0 sync_behind
    grt.task backward_weight chunk 0 micro_batch 0 slot 0 sync_behind
    // CHECK-NEXT: grt.task update chunk 2
    grt.task update chunk 2
  }
}

// Packs: one that runs forward only, and one that recomputes.
// CHECK: grt.role @packed stage 1 devices [2] slots 2 attributes {waiting_places = 2 : i64} {
grt.role @packed stage 1 devices [2] slots 2 attributes {waiting_places = 2 : i64} {
  // CHECK-NEXT: grt.chunk 1 slots 0 {forward_only, send_activation = @nothing}
  grt.chunk 1 slots 0 {forward_only, send_activation = @nothing}
  grt.layer "h.3" {index = 4 : i64, strategy = #galvatron.strategy<[]>, samples = 4 : i64,
    forward = @block.forward, backward = @gathered.backward, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64}
  // CHECK: grt.chunk 4 slots 2 {recv_stash = @nothing, stash_from = 0 : i64}
  grt.chunk 4 slots 2 {recv_stash = @nothing, stash_from = 0 : i64}
  grt.layer "h.0" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 4 : i64,
    forward = @block.forward, backward = @gathered.backward, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64}
}

grt.schedule @packed.schedule role @packed {
  // CHECK: grt.part steady {
  grt.part steady {
    // CHECK-NEXT: grt.task transfer send_activation 0 recv_gradient 1 slot 1 chunks [1, 4] peers [2, 5]
    grt.task transfer send_activation 0 recv_gradient 1 slot 1 chunks [1, 4] peers [2, 5]
    // CHECK-NEXT: grt.task transfer recv_stash 0 slot 0 chunks [4] peers [0]
    grt.task transfer recv_stash 0 slot 0 chunks [4] peers [0]
    // CHECK-NEXT: grt.task swap chunk 4 micro_batch 0 slot 0 activations
    grt.task swap chunk 4 micro_batch 0 slot 0 activations
  }
}
