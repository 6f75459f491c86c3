// Attributes by which passes tell each other of layers and functions.

// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// costs C1
// expected-error @+1 {{expected 'backward_bytes' of a layer's costs not to be negative, found -4}}
#costs = #galvatron.costs<parameters = 1, parameter_bytes = 4, boundary_bytes = 4, intermediate_bytes = 0, backward_bytes = -4, forward_flops = 1.0, backward_flops = 1.0, forward_moved_bytes = 1.0, backward_moved_bytes = 1.0>

// -----
// costs C1
// expected-error @+1 {{expected 'forward_flops' of a layer's costs to be a non-negative f64, found 1.000000e+00 : f32}}
#costs = #galvatron.costs<parameters = 1, parameter_bytes = 4, boundary_bytes = 4, intermediate_bytes = 0, backward_bytes = 4, forward_flops = 1.0 : f32, backward_flops = 1.0, forward_moved_bytes = 1.0, backward_moved_bytes = 1.0>

// -----
// flat_tensor C1
// expected-error @+1 {{expected a group from 0 to 3 for tensor @w, found 4}}
#tensor = #galvatron.flat_tensor<parameter = @w, group = 4, offset = 0, view = [4], local_shape = [4]>

// -----
// flat_tensor C1
// expected-error @+1 {{expected the offset of tensor @w not to be negative, found -8}}
#tensor = #galvatron.flat_tensor<parameter = @w, group = 0, offset = -8, view = [4], local_shape = [4]>

// -----
// flat_tensor C2
// expected-error @+1 {{expected 'view' and 'local_shape' of equal rank for tensor @w, found 2 and 1}}
#tensor = #galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [4, 4], local_shape = [4]>

// -----
// flat_tensor C3
// expected-error @+1 {{expected 'tp_dim' to be -1 or a dimension of the view for tensor @w, found 1}}
#tensor = #galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [4], local_shape = [4], tp_dim = 1>

// -----
// flat_group C1
// expected-error @+1 {{expected a group's shard of at most its 4 elements, found 8}}
#group = #galvatron.flat_group<elements = 4, shard_elements = 8>

// -----
// layout C1
#group = #galvatron.flat_group<elements = 0, shard_elements = 0>
// expected-error @+1 {{expected at least one sample in the layout of a layer, found 0}}
#layout = #galvatron.layout<samples = 0, input_bytes = 0, output_bytes = 0, stash_bytes = 0, tensors = [], groups = [#group, #group]>

// -----
// layout C1
#group = #galvatron.flat_group<elements = 0, shard_elements = 0>
// expected-error @+1 {{expected 'stash_bytes' of a layout not to be negative, found -1}}
#layout = #galvatron.layout<samples = 1, input_bytes = 0, output_bytes = 0, stash_bytes = -1, tensors = [], groups = [#group, #group]>

// -----
// layout C2
#group = #galvatron.flat_group<elements = 0, shard_elements = 0>
// expected-error @+1 {{expected tensors to be #galvatron.flat_tensor, found 4}}
#layout = #galvatron.layout<samples = 1, input_bytes = 0, output_bytes = 0, stash_bytes = 0, tensors = [4], groups = [#group, #group]>

// -----
// layout C2
#group = #galvatron.flat_group<elements = 16, shard_elements = 16>
#tensor = #galvatron.flat_tensor<parameter = @w, group = 0, offset = 14, view = [4], local_shape = [4]>
// expected-error @+1 {{expected tensor @w to lie inside the 16 elements of group 0, found elements 14 to 18}}
#layout = #galvatron.layout<samples = 1, input_bytes = 0, output_bytes = 0, stash_bytes = 0, tensors = [#tensor], groups = [#group, #group]>

// -----
// layout C3
#group = #galvatron.flat_group<elements = 0, shard_elements = 0>
// expected-error @+1 {{expected names of data in the layout of a layer, found [4]}}
#layout = #galvatron.layout<samples = 1, input_bytes = 0, output_bytes = 0, stash_bytes = 0, tensors = [], groups = [#group, #group], data = [4]>

// -----
// partition C1
// expected-error @+1 {{expected degrees of a partition of at least 1, found 0}}
func.func private @f() attributes {galvatron.partition = #galvatron.partition<direction = forward, sdp = 0>}

// -----
// partition C1
// expected-error @+1 {{expected a degree of at least 2 of axis 'tp', found 1}}
func.func private @f() attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 1]>}

// -----
// partition C2
// expected-error @+1 {{expected paradigms that work inside functions as axes, found 'sdp'}}
func.func private @f() attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [sdp = 2]>}

// -----
// partition C2
// expected-error @+1 {{expected each axis once, found 'tp' twice}}
func.func private @f() attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 2, tp = 2]>}

// -----
// part_value C1
// expected-error @+1 {{expected numbers of at least -1, found -2}}
func.func private @f(tensor<4xf32> {galvatron.part_value = #galvatron.part_value<offset = -2>})

// -----
// part_value C2
// expected-error @+1 {{expected nothing of a kept value for the gradient of parameter 3}}
func.func private @f() -> (tensor<4xf32> {galvatron.part_value = #galvatron.part_value<parameter = 3, wide = true>})

// -----
// expected-error @+1 {{expected 'galvatron.part_value' of argument 0 to be a #galvatron.part_value, found unit}}
func.func private @f(tensor<4xf32> {galvatron.part_value})

// -----
// expected-error @+1 {{expected attribute 'galvatron.partition' to be a #galvatron.partition, found "forward"}}
func.func private @f() attributes {galvatron.partition = "forward"}

// -----
// expected-error @+1 {{expected attribute 'galvatron.partition' on a function, found it on 'builtin.module'}}
module attributes {galvatron.partition = #galvatron.partition<direction = forward>} {}

// -----
// state C1
// expected-error @+1 {{expected a state on at least one axis}}
module attributes {test.a = #galvatron.state<[]>} {}

// -----
// expected-error @+1 {{expected 'replicated', 'unreduced', 'rows' or 'split'}}
module attributes {test.a = #galvatron.state<[whole]>} {}

// -----
// expected-error @+1 {{expected a dimension that is split, found -1}}
module attributes {test.a = #galvatron.state<[split -1]>} {}

// -----
// sharding C1
// expected-error @+1 {{expected states and factors of a sharding to speak of as many axes, 1}}
module attributes {test.a = #galvatron.sharding<results = ([split 1], [split 1, replicated])>} {}

// -----
// sharding C1
// expected-error @+1 {{expected states and factors of a sharding to speak of as many axes, 2}}
module attributes {test.a = #galvatron.sharding<factors = [0, 1], operands = {0 = [replicated]}>} {}

// -----
// sharding C2
// expected-error @+1 {{expected a factor of an operation, or -1, found -2}}
module attributes {test.a = #galvatron.sharding<factors = [-2]>} {}

// -----
// sharding C3
// expected-error @+1 {{expected ascending numbers of operands, found 0 behind 1}}
module attributes {test.a = #galvatron.sharding<operands = {1 = [replicated], 0 = [replicated]}>} {}

// -----
// sharding C3
// expected-error @+1 {{expected ascending numbers of operands, found -1 behind -1}}
module attributes {test.a = #galvatron.sharding<operands = {-1 = [replicated]}>} {}

// -----
// expected-error @+1 {{expected 'results', 'factors' and 'operands' once each, found 'reduce'}}
module attributes {test.a = #galvatron.sharding<reduce = [0]>} {}

// -----
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{expected attribute 'galvatron.sharding' to speak of 1 results, found 2}}
  %0 = nn.gelu %x {galvatron.sharding = #galvatron.sharding<results = ([split 1], [split 1])>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{expected attribute 'galvatron.sharding' to speak of 1 operands, found number 1}}
  %0 = nn.gelu %x {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {1 = [replicated]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 2]>} {
  // expected-error @+1 {{expected 'galvatron.sharding' to speak of 1 axes, found 2}}
  %0 = nn.gelu %x {galvatron.sharding = #galvatron.sharding<results = ([split 1, replicated])>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----
// expected-error @+1 {{expected 'galvatron.slice' to speak of 0 axes, found 1}}
func.func private @f(tensor<4xf32> {galvatron.slice = #galvatron.slice<state = <[split 0]>>}) attributes {galvatron.partition = #galvatron.partition<direction = forward>}

// -----
// slice C1
// expected-error @+1 {{expected a slice to be replicated or split in a dimension of its global shape, found 'split 2'}}
func.func private @f(%x: tensor<4xf32> {galvatron.slice = #galvatron.slice<global_shape = [8, 1], state = <[split 2]>>})

// -----
// slice C1
// expected-error @+1 {{expected a slice to be replicated or split in a dimension of its global shape, found 'unreduced'}}
func.func private @f(%x: tensor<4xf32> {galvatron.slice = #galvatron.slice<state = <[unreduced]>>})

// -----
// expected-error @+1 {{expected 'galvatron.slice' of argument 0 to be a #galvatron.slice, found 0}}
func.func private @f(%x: tensor<4xf32> {galvatron.slice = 0})

// -----
// expected-error @+1 {{expected an attribute of the galvatron dialect, found 'galvatron.split', which is none}}
func.func private @f(%x: tensor<4xf32> {galvatron.split = 0})

// -----

// expected-error @+1 {{expected 'parameter_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, parameter_bytes = -3, boundary_bytes = 0, intermediate_bytes = 0>} {}

// -----

// expected-error @+1 {{expected 'boundary_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 0, boundary_bytes = -3, intermediate_bytes = 0>} {}

// -----

// expected-error @+1 {{expected 'intermediate_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = -3>} {}

// -----

// expected-error @+1 {{expected 'tp_allreduce_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = 0, tp_allreduce_bytes = -3>} {}

// -----

// expected-error @+1 {{expected 'tp_replicated_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = 0, tp_replicated_bytes = -3>} {}

// -----

// expected-error @+1 {{expected 'forward_moved_bytes' of a profile not to be negative, found -3}}
module attributes {test.a = #galvatron.profile<forward_flops = 1.0, forward_moved_bytes = -3, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = 0>} {}

// -----

// expected-error @+1 {{expected 'backward_ms' of a profile to be a non-negative f64, found -1.000000e+00}}
module attributes {test.a = #galvatron.profile<forward_ms = 1.0, backward_ms = -1.0, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = 0>} {}

// -----

// expected-error @+1 {{expected 'forward_ms', or 'forward_flops' and 'forward_moved_bytes', in the profile of a layer}}
module attributes {test.a = #galvatron.profile<forward_flops = 1.0, parameter_bytes = 0, boundary_bytes = 0, intermediate_bytes = 0>} {}
