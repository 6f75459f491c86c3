// RUN: galvatron-opt %s -split-input-file -verify-diagnostics --galvatron-differentiate-layers

galvatron.parameter @w : tensor<16xf32> {init = "zeros"}
// expected-error@below {{expected every argument but data to reach the result, argument 1 does not}}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16xf32>) -> tensor<?x8x16xf32> {
  %y = nn.gelu %x : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @a_parameter_without_use(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w] : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

// expected-error@below {{expected a body with at least one operation}}
func.func private @body(%x: tensor<?x8x16xf32>) -> tensor<?x8x16xf32> {
  return %x : tensor<?x8x16xf32>
}
galvatron.model @a_body_that_does_nothing(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

galvatron.model @an_opaque_layer(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{expected layer 'l' to have a body, found a profile alone: it can be planned, not compiled}}
  %0 = galvatron.layer "l"(%x) {profile = #galvatron.profile<forward_ms = 1.5, parameter_bytes = 64, boundary_bytes = 64, intermediate_bytes = 64>} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

// expected-error@below {{expected body 'body' to be defined by one block}}
func.func private @body(tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
galvatron.model @a_body_that_is_only_declared(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

galvatron.parameter @w : tensor<16xf32> {init = "zeros"}
// expected-error@below {{expected the values of 'body' to take at most 70368744177664 bytes with 1 samples, the largest is a result of 'nn.linear' of type 'tensor<?x1099511627776x1099511627776xf32>'}}
func.func private @body(%x: tensor<?x1099511627776x1xf32>, %w: tensor<1x1099511627776xf32>) -> tensor<?x1099511627776x1099511627776xf32> {
  %y = nn.linear %x, %w : (tensor<?x1099511627776x1xf32>, tensor<1x1099511627776xf32>) -> tensor<?x1099511627776x1099511627776xf32>
  return %y : tensor<?x1099511627776x1099511627776xf32>
}
galvatron.parameter @v : tensor<1x1099511627776xf32> {init = "zeros"}
galvatron.model @sizes_wrap(%x: tensor<?x1099511627776x1xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@v] : (tensor<?x1099511627776x1xf32>) -> tensor<?x1099511627776x1099511627776xf32>
  galvatron.output %0 : tensor<?x1099511627776x1099511627776xf32>
}

// -----

// Two operations that share a key would drop the same elements; one that draws
// nothing may have any.

func.func private @body(%x: tensor<?x8x16xf32>) -> tensor<?x8x16xf32> {
  %0 = nn.dropout %x {p = 0.0 : f64, op_index = 1 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // expected-note@below {{the other one is here}}
  %1 = nn.dropout %0 {p = 0.1 : f64, op_index = 1 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  // expected-error@below {{expected another 'op_index' than 1, which another operation of body 'body' has: they would draw the same random numbers}}
  %2 = nn.dropout %1 {p = 0.1 : f64, op_index = 1 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %2 : tensor<?x8x16xf32>
}
galvatron.model @one_mask_for_two(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

// Attention of grouped heads draws as well.

func.func private @body(%q: tensor<?x8x4x4xf32>) -> tensor<?x8x16xf32> {
  // expected-note@below {{the other one is here}}
  %0 = nn.dropout %q {p = 0.1 : f64, op_index = 2 : i64} : (tensor<?x8x4x4xf32>) -> tensor<?x8x4x4xf32>
  // expected-error@below {{expected another 'op_index' than 2, which another operation of body 'body' has: they would draw the same random numbers}}
  %1, %lse = nn.grouped_attention %0, %0, %0 {causal, scale = 0.5 : f64, dropout = 0.1 : f64, op_index = 2 : i64} : (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return %1 : tensor<?x8x16xf32>
}
galvatron.model @one_mask_for_attention_too(%x: tensor<?x8x4x4xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x4x4xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
