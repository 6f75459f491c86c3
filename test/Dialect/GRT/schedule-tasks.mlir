// RUN: galvatron-opt %s --galvatron-schedule-tasks --galvatron-verify-schedule | FileCheck %s
// RUN: galvatron-opt %s --galvatron-schedule-tasks --galvatron-verify-schedule --galvatron-allocate-arena | FileCheck %s --check-prefix=ARENA

// Two stages of two ranks: the first changes the layout between its layers, so a
// reshard stands between them; the head borrows the embedding's table.

// CHECK: module attributes
// CHECK-SAME: grt.model = #grt.model<name = "toy", data = [#galvatron.data<tokens, below = 16> : tensor<?x4xi32>, #galvatron.data<labels, below = 16> : tensor<?x4xi32>], config = "{}">
module attributes {
  galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 2>,
  galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
  galvatron.parameter @wte : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @w : tensor<8x8xf32> {decay, init = "zeros"}
  grt.func @embed.forward {
    %t = grt.buffer transient : memref<160xi8>
    grt.begin %t : memref<160xi8>
    grt.end %t : memref<160xi8>
  }
  grt.func @embed.backward {}
  grt.func @block.forward {
    %t = grt.buffer transient : memref<200xi8>
    grt.begin %t : memref<200xi8>
    grt.kernel zero(%t) : memref<200xi8>
    grt.end %t : memref<200xi8>
  }
  grt.func @block.recompute {}
  grt.func @block.backward {
    %t = grt.buffer transient : memref<100xi8>
    grt.begin %t : memref<100xi8>
    grt.kernel zero(%t) : memref<100xi8>
    grt.end %t : memref<100xi8>
  }
  grt.func @head.forward {}
  grt.func @head.backward {}
  grt.func @update {}
  // CHECK-NOT: galvatron.model
  galvatron.model @toy(%tokens: tensor<?x4xi32> is <tokens, below = 16>,
                       %labels: tensor<?x4xi32> is <labels, below = 16>)
      attributes {config = "{}"} {
    %s = galvatron.stage 0 devices [0, 1] -> tensor<?x4x8xf32> {
      %0 = galvatron.layer "embed"(%tokens) params [@wte] {
          strategy = #galvatron.strategy<[dp = 2]>, stage = 0 : i64,
          forward = @embed.forward, backward = @embed.backward, update = @update, norm = @update,
          layout = #galvatron.layout<samples = 2, input_bytes = 0, output_bytes = 256, stash_bytes = 0,
            recompute_stash_bytes = 0, bytes_per_unit = 128, data = ["tokens"],
            tensors = [#galvatron.flat_tensor<parameter = @wte, group = 0, offset = 0, view = [16, 8], local_shape = [16, 8], tp_dim = -1>],
            groups = [#galvatron.flat_group<elements = 128, shard_elements = 128>, #galvatron.flat_group<elements = 0, shard_elements = 0>]>}
          : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
      %1 = galvatron.layer "block"(%0) params [@w] {
          strategy = #galvatron.strategy<[tp = 2], ckpt>, stage = 0 : i64,
          forward = @block.forward, recompute = @block.recompute, backward = @block.backward, update = @update, norm = @update,
          layout = #galvatron.layout<samples = 4, input_bytes = 512, output_bytes = 512, stash_bytes = 0,
            recompute_stash_bytes = 320, bytes_per_unit = 128,
            tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [8, 8], local_shape = [8, 4], tp_dim = 1>],
            groups = [#galvatron.flat_group<elements = 32, shard_elements = 32>, #galvatron.flat_group<elements = 0, shard_elements = 0>]>}
          : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
      galvatron.yield %1 : tensor<?x4x8xf32>
    }
    %t = galvatron.transfer %s from 0 to 1 : tensor<?x4x8xf32>
    %u = galvatron.stage 1 devices [2, 3] -> tensor<1xf64> {
      %2 = galvatron.layer "head"(%t, %labels) params [@wte] {
          strategy = #galvatron.strategy<[sdp = 2]>, stage = 1 : i64,
          forward = @head.forward, backward = @head.backward,
          layout = #galvatron.layout<samples = 2, input_bytes = 256, output_bytes = 0, stash_bytes = 64, data = ["labels"],
            tensors = [#galvatron.flat_tensor<parameter = @wte, group = 1, offset = 0, view = [16, 8], local_shape = [16, 8], tp_dim = -1>],
            groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 128, shard_elements = 64>]>}
          : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<1xf64>
      galvatron.yield %2 : tensor<1xf64>
    }
    galvatron.output %u : tensor<1xf64>
  }
}

// CHECK: grt.exchange @"stage0.dp2-to-tp2" bytes_per_unit 128 transfers {{\[\[}}0, 0, 0, 0, 2], [1, 0, 0, 2, 2], [0, 1, 0, 0, 2], [1, 1, 0, 2, 2]]
// CHECK: grt.exchange @"stage0.tp2-to-dp2" bytes_per_unit 128 transfers {{\[\[}}0, 0, 0, 0, 2], [1, 1, 2, 0, 2]]
// CHECK: grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {recv_gradient = @cut0.gradient, send_activation = @cut0.activation} {
// CHECK-NEXT: grt.layer "embed" {
// CHECK-SAME: data = ["tokens"]
// CHECK-SAME: forward_reshard = @"stage0.dp2-to-tp2"
// CHECK-SAME: index = 0
// CHECK-SAME: samples = 2
// CHECK-NEXT: grt.layer "block" {
// CHECK-SAME: backward_reshard = @"stage0.tp2-to-dp2"
// CHECK-SAME: index = 1
// CHECK-SAME: recompute = @block.recompute
// CHECK: grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @cut0.activation, send_gradient = @cut0.gradient} {
// CHECK-NEXT: grt.layer "head" {
// CHECK: grt.exchange @cut0.activation bytes_per_unit 128 transfers
// CHECK: grt.exchange @cut0.gradient bytes_per_unit 128 transfers

// CHECK: grt.schedule @stage0.schedule role @stage0 {
// CHECK-NEXT: grt.part steady {
// CHECK-NEXT: grt.task forward micro_batch 0 slot 0
// CHECK-NEXT: grt.task transfer send_activation 0
// CHECK-NEXT: grt.task forward micro_batch 1 slot 1
// CHECK-NEXT: grt.task transfer send_activation 1 recv_gradient 0
// CHECK-NEXT: grt.task backward micro_batch 0 slot 0
// CHECK-NEXT: grt.task transfer recv_gradient 1
// CHECK-NEXT: grt.task backward micro_batch 1 slot 1
// CHECK-NEXT: }
// CHECK-NEXT: grt.part step_end {
// CHECK-NEXT: grt.task sync_gradients
// CHECK-NEXT: grt.task tie_reduce
// CHECK-NEXT: grt.task norm
// CHECK-NEXT: grt.task update
// CHECK-NEXT: grt.task tie_broadcast
// CHECK-NEXT: }
// CHECK-NEXT: grt.part evaluate {

// CHECK: grt.schedule @stage1.schedule role @stage1 {
// CHECK-NEXT: grt.part steady {
// CHECK-NEXT: grt.task transfer recv_activation 0 slot 0
// CHECK-NEXT: grt.task forward micro_batch 0 slot 0
// CHECK-NEXT: grt.task backward micro_batch 0 slot 0
// CHECK-NEXT: grt.task transfer recv_activation 1 send_gradient 0 slot 0

// The first stage keeps two micro-batches, and the bytes behind the block's slot
// are mapped behind both, at multiples of 4096. Backward needs 448 of them: 320 of
// recomputed stash in front of 128 of temporaries. Forward needs 256 + 512 of
// output; what exceeds backward's lies where gradients are between layers, so that
// region, of 1024, follows the 448. The last stage has one slot and none.

// ARENA: grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {
// ARENA-SAME: arena = #grt.arena<parameters = <16384, 640>, gradients = <17024, 640>, optimizer = <17664, 1280>, slots = <3584, 8704>, transient = <4096, 1472>, boundary = <4544, 1024>, data = <[[D:[0-9]+]], 128>, loss = <{{[0-9]+}}, 0>, step = <{{[0-9]+}}, 256>, copies = [array<i64: 0, [[D]], 128>], window = [4096, 4096, 8192]>, arena_bytes = 21824 : i64
// ARENA-SAME: ledger = #grt.ledger<parameters = 640, gradients = 640, optimizer = 1280, activations = 1024, backward = 448, communication = 1024, workspace = 16384, runtime = 384>
// ARENA-SAME: slot_bytes = 512
// ARENA-NEXT: grt.layer "embed" {
// ARENA-SAME: grad_in = 0
// ARENA-SAME: output = boundary
// ARENA-NEXT: grt.layer "block" {
// ARENA-SAME: grad_in = 0
// ARENA-SAME: grad_out = 1
// ARENA-SAME: output = boundary
// ARENA: grt.role @stage1
// ARENA-NEXT: grt.layer "head" {
// ARENA-SAME: grad_out = 1
// ARENA-SAME: output = loss
