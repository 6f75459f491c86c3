// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// grt.role
//===----------------------------------------------------------------------===//

// C5
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
grt.role @"" stage 0 devices [0] slots 1 {}

// -----

// grt.schedule C4
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
grt.schedule @"" role @r {}

// -----

// grt.exchange C4
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
grt.exchange @"" bytes_per_unit 4 transfers []

// -----

// C1
// expected-error @+1 {{expected at least one device}}
grt.role @r stage 0 devices [] slots 1 {}

// -----

// C1
// expected-error @+1 {{expected distinct devices, found 1 twice}}
grt.role @r stage 0 devices [1, 1] slots 1 {}

// -----

// C1
// expected-error @+1 {{expected device numbers that are not negative, found -1}}
grt.role @r stage 0 devices [-1] slots 1 {}

// -----

// C2
// expected-error @+1 {{expected at least one slot, found 0}}
grt.role @r stage 0 devices [0] slots 0 {}

// -----

// C3
// expected-error @+1 {{expected at least one layer}}
grt.role @r stage 0 devices [0] slots 1 {}

// -----

// C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  grt.layer "a" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{expected layer indices to ascend, found 1 after 1}}
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C4
grt.func @f {}
// expected-error @+1 {{expected send_activation to name a 'grt.exchange', found 'f'}}
grt.role @r stage 0 devices [0] slots 1 attributes {send_activation = @f} {
  grt.layer "a" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

//===----------------------------------------------------------------------===//
// grt.layer
//===----------------------------------------------------------------------===//

// C1
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected at least one sample, found 0}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 0 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C2
module attributes {grt.model = #grt.model<name = "m", data = [#galvatron.data<tokens, below = 8> : tensor<?x4xi32>]>} {
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected data of 'grt.model', found 'pixels'}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64, data = ["pixels"]}
}
}

// -----

// C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected forward to name a 'grt.func', found 'g'}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @g, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C4
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a recompute function only if the strategy checkpoints, found strategy 'single'}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, recompute = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C5
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected 2 groups of parameters, or 4 if some are not trained, found [#galvatron.flat_group<elements = 0, shard_elements = 0>]}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C5
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected tensor @w to lie inside the 16 elements of group 0, found elements 8 to 24}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 8, view = [16], local_shape = [16], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 16, shard_elements = 16>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C9
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected tensor @w to name a 'galvatron.parameter', found no such symbol}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [16], local_shape = [16], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 16, shard_elements = 16>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C9
galvatron.parameter @w : tensor<17xf32> {init = "zeros"}
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected tensor @w to have a view of the 17 elements of 'tensor<17xf32>', found 16}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [16], local_shape = [16], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 16, shard_elements = 16>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C10
galvatron.parameter @w : tensor<16xf32> {init = "zeros"}
grt.func @f {}
grt.func @norm {
  %g = grt.buffer gradient at 0 : memref<16xf32>
  // expected-note @+1 {{in this call}}
  grt.kernel norm(%g) ints [16, 1, 0, 15, 0] : memref<16xf32>
}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected segments that are tensors of the layer, found 15 elements at 0}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, norm = @norm,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [16], local_shape = [16], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 16, shard_elements = 16>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C6
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a strategy for the role's 1 devices, found 'tp2' for 2}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[tp = 2]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

//===----------------------------------------------------------------------===//
// grt.schedule, grt.part, grt.task
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected role to name a 'grt.role', found 'nobody'}}
grt.schedule @s role @nobody {
  grt.part steady {}
}

// -----

// C2
grt.schedule @s role @nobody {
  grt.part step_end {}
  // expected-error @+1 {{expected parts in order and each once, found 'steady' after 'step_end'}}
  grt.part steady {}
}

// -----

// C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  grt.layer "a" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected one of the 1 slots of 'r', found 1}}
    grt.task forward micro_batch 0 slot 1
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a micro-batch and a slot for 'forward'}}
    grt.task forward micro_batch 0
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a transfer to send or to receive}}
    grt.task transfer
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a chunk for each of 2 messages, found 1}}
    grt.task transfer send_activation 0 send_gradient 0 chunks [0]
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected sends and receives in a transfer only, found one in 'norm'}}
    grt.task norm send_activation 0
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a slot for the received activation}}
    grt.task transfer recv_activation 0
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a slot below 65536, found 65536}}
    grt.task forward micro_batch 0 slot 65536
  }
}

// -----

// C6
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected 'sync_behind' on a backward task or its weight part only, found it on 'forward'}}
    grt.task forward micro_batch 0 slot 0 sync_behind
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected 'sync_behind' on a backward task or its weight part only, found it on 'backward_input'}}
    grt.task backward_input micro_batch 0 slot 0 sync_behind
  }
}

// -----

// C1
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a micro-batch and a slot for 'backward_weight'}}
    grt.task backward_weight micro_batch 0
  }
}

// -----

// C9
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected 'out', 'parameters', 'gradients', 'activations' and 'optimizer' on a swap only, found one on 'forward'}}
    grt.task forward micro_batch 0 slot 0 parameters
  }
}

// -----

// C9
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap to bring 'parameters', 'gradients' or both, 'activations' or 'optimizer', or to take 'gradients', 'activations' or 'parameters optimizer' out}}
    grt.task swap out parameters
  }
}

// -----

// C9
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap to bring 'parameters', 'gradients' or both, 'activations' or 'optimizer', or to take 'gradients', 'activations' or 'parameters optimizer' out}}
    grt.task swap
  }
}

// -----

//===----------------------------------------------------------------------===//
// Module attributes
//===----------------------------------------------------------------------===//

// expected-error @+1 {{expected a #grt.model as 'grt.model', found {data = [4]}}}
module attributes {grt.model = {data = [4 : i64]}} {}

// -----

// expected-error @+1 {{expected 'grt.model', found 'grt.plan'}}
module attributes {grt.plan = 1 : i64} {}

// -----

// expected-error @+1 {{expected 'grt.model' on a module, found it here}}
grt.exchange @e bytes_per_unit 4 transfers [] {grt.model = 1 : i64}

// -----

// C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected rows of 4 numbers in 'inputs', none negative, found 3 numbers}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64, front_bytes = 128 : i64, behind_bytes = 128 : i64, inputs = array<i64: 0, 0, 0>}
}

// -----

// C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected rows of 6 numbers in 'passes', none negative, found 6 numbers}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64, front_bytes = 128 : i64, behind_bytes = 128 : i64, passes = array<i64: 0, -64, 0, 0, 64, 0>}
}

// -----

// C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a holder in front of layer 0 of the role in 'inputs', found 1}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64, front_bytes = 128 : i64, behind_bytes = 128 : i64, inputs = array<i64: 1, 0, 0, 64>}
}

// -----

// C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a tensor within the 128 bytes in front and the 128 behind in 'passes', found row 0}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 64 : i64, output_bytes = 64 : i64, stash_bytes = 0 : i64, front_bytes = 128 : i64, behind_bytes = 128 : i64, passes = array<i64: 0, 0, 64, 128, 64, 0>}
}

// -----

// grt.exchange C5
// expected-error @+1 {{expected tensors of 3 numbers, none negative, whose bytes add up to 96, found 6 numbers and 64 bytes}}
grt.exchange @e bytes_per_unit 96 transfers [] {tensors = array<i64: 32, 0, 0, 32, 64, 64>}

// -----

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

// C6
grt.func @f {}
// expected-error @+1 {{expected a 'grt.chunk' in front of all layers}}
grt.role @r stage 0 devices [0] slots 2 {
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 0 slots 2
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C6
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 2 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{expected chunk numbers to ascend, found 0 after 2}}
  grt.chunk 0 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C6
grt.func @f {}
// expected-error @+1 {{expected 3 slots as its chunks have, found 2}}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 2
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// C6
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  // expected-error @+1 {{expected at least one layer behind it}}
  grt.chunk 2 slots 1
}

// -----

// C6
grt.exchange @x bytes_per_unit 4 transfers []
grt.func @f {}
// expected-error @+1 {{expected exchanges of its chunks, found its own 'x'}}
grt.role @r stage 0 devices [0] slots 2 attributes {send_activation = @x} {
  grt.chunk 0 slots 2
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// grt.chunk C1
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a number below 65536, found 65536}}
  grt.chunk 65536 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// grt.chunk C1
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected at least one slot, found 0}}
  grt.chunk 0 slots 0
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// grt.chunk C2
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected send_activation to name a 'grt.exchange', found 'f'}}
  grt.chunk 0 slots 1 {send_activation = @f}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// grt.schedule C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected a chunk of 'r', found 1}}
    grt.task forward chunk 1 micro_batch 0 slot 0
  }
}

// -----

// grt.schedule C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected the chunk of 'r' that it is of}}
    grt.task forward micro_batch 0 slot 0
  }
}

// -----

// grt.schedule C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected a chunk of 'r', found 3}}
    grt.task transfer send_activation 0 chunks [3]
  }
}

// -----

// grt.task C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected no chunk for 'norm'}}
    grt.task norm chunk 0
  }
}

// -----

// grt.task C7
grt.func @f {}
grt.role @r stage 0 devices [0] slots 2 {
  grt.chunk 0 slots 1
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  grt.chunk 2 slots 1
  grt.layer "b" {index = 1 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}
grt.schedule @s role @r {
  grt.part steady {
    // expected-error @+1 {{expected chunks of messages in a transfer only, found them in 'forward'}}
    grt.task forward chunk 0 micro_batch 0 slot 0 chunks [0]
  }
}

// -----

// grt.role: places, not a negative number of them
// expected-error @+1 {{expected no negative number of waiting places, found -1}}
grt.role @r stage 0 devices [0] slots 0 attributes {waiting_places = -1 : i64} {}

// -----

// grt.chunk C3
grt.func @f {}
grt.role @r stage 0 devices [0] slots 0 attributes {waiting_places = 1 : i64} {
  // expected-error @+1 {{expected 'stash_from' and 'recv_stash' together, on a chunk that runs backward}}
  grt.chunk 0 slots 0 {stash_from = 0 : i64}
}

// -----

// grt.task C7, of packs
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a peer for each of 1 messages, found 2}}
    grt.task transfer send_stash 0 chunks [0] peers [3, 4]
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a slot for the received stash}}
    grt.task transfer recv_stash 0 chunks [3] peers [0]
  }
}

// -----

// A weight part of a layer that recomputes
grt.func @f {}
grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected a weight part only of a layer that is not recomputed}}
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[], ckpt>, samples = 1 : i64, forward = @f, recompute = @f, backward = @f, weight = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// expected-error @+1 {{expected transfers of 5 numbers, found 4 numbers in all}}
"grt.exchange"() <{bytes_per_unit = 4 : i64, sym_name = "e", transfers = array<i64: 0, 1, 0, 0>}> : () -> ()
