// RUN: galvatron-opt %s --galvatron-verify-schedule --split-input-file --verify-diagnostics

// A sound program
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// A missing receive
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 1 'transfer send-activation mb 0': no receive of the activation of micro-batch 0 in role 1 (ranks 2, 3)}}
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 3 'transfer send-activation mb 1, recv-gradient mb 0': no receive of the activation of micro-batch 1 in role 1 (ranks 2, 3)}}
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 0 'forward mb 0 slot 0': its activation has not been received}}
    grt.task forward micro_batch 0 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 1 'backward mb 0 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 0 slot 0
    grt.task transfer send_gradient 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 3 'forward mb 1 slot 0': its activation has not been received}}
    grt.task forward micro_batch 1 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 4 'backward mb 1 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// A receive of another micro-batch
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 1 'transfer send-activation mb 0': meets role 1 (ranks 2, 3) steady task 0 'transfer recv-activation mb 1': the activation of micro-batch 0 where the activation of micro-batch 1 is expected}}
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 1 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 1 'forward mb 0 slot 0': its activation has not been received}}
    grt.task forward micro_batch 0 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 2 'backward mb 0 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 0 send_gradient 0 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 4 'forward mb 1 slot 0': slot 0 does not hold its activation}}
    grt.task forward micro_batch 1 slot 0
    // expected-error @+1 {{role 1 (ranks 2, 3) steady task 5 'backward mb 1 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Each side of a steady exchange sends first: a cycle of waits
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 3 'transfer send-activation mb 1': deadlock: waits for role 1 (ranks 2, 3) steady task 4 'transfer recv-activation mb 1', but role 1 (ranks 2, 3) is at role 1 (ranks 2, 3) steady task 3 'transfer send-gradient mb 0', which waits for role 0 (ranks 0, 1) steady task 4 'transfer recv-gradient mb 0', but role 0 (ranks 0, 1) is at role 0 (ranks 0, 1) steady task 3 'transfer send-activation mb 1'}}
    grt.task transfer send_activation 1
    grt.task transfer recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer send_gradient 0
    grt.task transfer recv_activation 1 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Collectives of the whole world in different orders
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task update
    // expected-error @+1 {{role 1 (ranks 2, 3) step-end task 2 'norm': expected the order sync-gradients, tie-reduce, norm, update, tie-broadcast}}
    grt.task norm
  }
}

// -----

// A collective that one role leaves out
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    // expected-error @+1 {{role 0 (ranks 0, 1) step-end task 1 'norm': has no counterpart in role 1 (ranks 2, 3)}}
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task update
  }
}

// -----

// A micro-batch that never runs backward
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
// expected-error @+1 {{role 0 (ranks 0, 1) steady: micro-batch 1 is never run backward}}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
  }
  grt.part step_end {
    // expected-error @+1 {{role 0 (ranks 0, 1) step-end task 0 'sync-gradients': gradients are reduced before micro-batch 1 is added}}
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// A slot taken while its micro-batch is still needed
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 2 'forward mb 1 slot 0': slot 0 still holds micro-batch 0}}
    grt.task forward micro_batch 1 slot 0
    grt.task transfer send_activation 1 recv_gradient 0
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 4 'backward mb 0 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 6 'backward mb 1 slot 0': slot 0 does not hold its activations}}
    grt.task backward micro_batch 1 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Backward before the gradient has come
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    // expected-error @+1 {{role 0 (ranks 0, 1) steady task 5 'backward mb 1 slot 1': its gradient has not been received}}
    grt.task backward micro_batch 1 slot 1
    grt.task transfer recv_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// The two sides of a cut name different exchanges
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
// expected-note @+1 {{which stands here}}
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
// expected-error @+1 {{'grt.role' op expected 'recv_activation' to name 'a' as 'send_activation' of role 'stage0' does, found 'g'}}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @g, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// An exchange that sends from a rank of another role
grt.func @f {}
// expected-note @+1 {{exchange 'a' stands here}}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [2, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
// expected-error @+1 {{'grt.role' op expected exchange 'a' to send from ranks of role 'stage0', found rank 2}}
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// An exchange that leaves a rank out
grt.func @f {}
// expected-note @+1 {{exchange 'a' stands here}}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
// expected-error @+1 {{'grt.role' op expected rank 3 to receive 1 samples in exchange 'a', found 0}}
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// A role without a schedule
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
// expected-error @+1 {{'grt.role' op expected a schedule of role 'stage1', found none}}
grt.role @stage1 stage 1 devices [2, 3] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// A rank of two roles
grt.func @f {}
grt.exchange @a bytes_per_unit 4 transfers [[0, 2, 0, 0, 1], [1, 3, 0, 0, 1]]
grt.exchange @g bytes_per_unit 4 transfers [[2, 0, 0, 0, 1], [3, 1, 0, 0, 1]]
// expected-note @+1 {{which stands here}}
grt.role @stage0 stage 0 devices [0, 1] slots 2 attributes {send_activation = @a, recv_gradient = @g} {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
// expected-error @+1 {{'grt.role' op expected devices of its own, found device 1 of role 'stage0'}}
grt.role @stage1 stage 1 devices [2, 1] slots 1 attributes {recv_activation = @a, send_gradient = @g} {
  grt.layer "head" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0
    grt.task forward micro_batch 1 slot 1
    grt.task transfer send_activation 1 recv_gradient 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_gradient 1
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
grt.schedule @stage1.schedule role @stage1 {
  grt.part steady {
    grt.task transfer recv_activation 0 slot 0
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
    grt.task transfer recv_activation 1 send_gradient 0 slot 0
    grt.task forward micro_batch 1 slot 0
    grt.task backward micro_batch 1 slot 0
    grt.task transfer send_gradient 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Gradients reduced behind the last backward pass: groups of one rank in common
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 2 {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2, tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 2, tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 1 slot 1
    grt.task backward micro_batch 0 slot 0
    grt.task backward micro_batch 1 slot 1 sync_behind
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// They are not complete yet
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 2 {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2, tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 1 slot 1
    // expected-error @+1 {{role 0 (ranks 0, 1, 2, 3) steady task 2 'backward mb 0 slot 0 sync-behind': gradients are reduced before micro-batch 1 is added}}
    grt.task backward micro_batch 0 slot 0 sync_behind
    // expected-error @+1 {{role 0 (ranks 0, 1, 2, 3) steady task 3 'backward mb 1 slot 1': gradients were already reduced behind a backward task before}}
    grt.task backward micro_batch 1 slot 1
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// The all-reduce over ranks 0 to 3 would run beside gathers over the same
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 2 {
  // expected-error @+1 {{expected 'gather_awaits_sums': the sum of gradients of layer 1 (dp4) would run beside sharded parameters of layer 0 (sdp4)}}
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 1 slot 1
    grt.task backward micro_batch 0 slot 0
    // expected-note @+1 {{gradients are reduced behind backward passes}}
    grt.task backward micro_batch 1 slot 1 sync_behind
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// It waits for the all-reduce
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 2 {
  grt.layer "embed" {gather_awaits_sums, index = 0 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[dp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 1 slot 1
    grt.task backward micro_batch 0 slot 0
    grt.task backward micro_batch 1 slot 1 sync_behind
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// In the other order of layers the gathers are over by then
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 2 {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task forward micro_batch 1 slot 1
    grt.task backward micro_batch 0 slot 0
    grt.task backward micro_batch 1 slot 1 sync_behind
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Parameters gathered beside the neighbour, which holds the same samples
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 1 {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 2, tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 2, tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, forward_ahead, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Parameters cannot be gathered beside a reshard
grt.func @f {}
grt.exchange @there bytes_per_unit 4 transfers [[0, 0, 0, 0, 1], [1, 1, 0, 0, 1], [2, 2, 0, 0, 1], [3, 3, 0, 0, 1]]
grt.exchange @back bytes_per_unit 4 transfers [[0, 0, 0, 0, 1], [1, 1, 0, 0, 1], [2, 2, 0, 0, 1], [3, 3, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 1 {
  // expected-note @+1 {{beside this layer}}
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[tp = 2, sdp = 2]>, samples = 1 : i64, forward = @f, backward = @f, forward_reshard = @there, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{'grt.layer' op expected parameters that can be gathered ahead in forward: the gather of sdp4 would run beside the reshard from tp2.sdp2}}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, backward_reshard = @back, forward_ahead, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Nothing to gather
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 1 {
  // expected-error @+1 {{expected parameters that can be gathered ahead in backward: nothing of it (dp4) is sharded}}
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[dp = 4]>, samples = 1 : i64, forward = @f, backward = @f, backward_ahead, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  // expected-note @+1 {{beside this layer}}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Nothing runs before the last layer in backward
grt.func @f {}
grt.role @stage0 stage 0 devices [0, 1, 2, 3] slots 1 {
  grt.layer "embed" {index = 0 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, backward_ahead, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{expected a layer behind to gather ahead in backward}}
  grt.layer "block" {index = 1 : i64, strategy = #galvatron.strategy<[sdp = 4]>, samples = 1 : i64, forward = @f, backward = @f, backward_ahead, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// expected-error@below {{expected roles with schedules: run 'galvatron-schedule-tasks' first}}
module {
}

// -----

// Layers of other samples, and exchanges between them
grt.func @f {}
grt.exchange @x bytes_per_unit 4 transfers [[0, 0, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0] slots 1 {
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{expected no forward reshard on the last layer of a chunk}}
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64, forward_reshard = @x}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Layers of other samples, and exchanges between them
grt.func @f {}
grt.exchange @x bytes_per_unit 4 transfers [[0, 0, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected no backward reshard on the first layer of a chunk}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64, backward_reshard = @x}
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Layers of other samples, and exchanges between them
grt.func @f {}
grt.exchange @x bytes_per_unit 4 transfers [[0, 0, 0, 0, 1]]
grt.role @stage0 stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a forward reshard from 1 to 2 samples}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 2 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}

// -----

// Layers of other samples, and exchanges between them
grt.func @f {}
grt.exchange @x bytes_per_unit 4 transfers [[0, 0, 0, 0, 1]]
grt.exchange @y bytes_per_unit 4 transfers [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]
grt.role @stage0 stage 0 devices [0] slots 1 {
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64, forward_reshard = @y}
  // expected-error @+1 {{expected a backward reshard from 2 to 1 samples}}
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 2 : i64, forward = @f, backward = @f, tensors = [], groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>], input_bytes = 4 : i64, output_bytes = 4 : i64, stash_bytes = 0 : i64}
}
grt.schedule @stage0.schedule role @stage0 {
  grt.part steady {
    grt.task forward micro_batch 0 slot 0
    grt.task backward micro_batch 0 slot 0
  }
  grt.part step_end {
    grt.task sync_gradients
    grt.task norm
    grt.task update
  }
}
