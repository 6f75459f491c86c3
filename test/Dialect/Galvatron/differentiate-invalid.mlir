// RUN: galvatron-opt %s -split-input-file -verify-diagnostics --galvatron-differentiate-layers

galvatron.parameter @w : tensor<16xf32> {init = "zeros"}
// expected-error@below {{expected every floating-point argument to reach the result, argument 1 does not}}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16xf32>) -> tensor<?x8x16xf32> {
  %y = nn.gelu %x : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @a_parameter_without_use(%x: tensor<?x8x16xf32>) {seq_len = 8 : i64, vocab = 33 : i64} {
  %0 = galvatron.layer "l" @body(%x) params [@w] : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

// expected-error@below {{expected a body with at least one operation}}
func.func private @body(%x: tensor<?x8x16xf32>) -> tensor<?x8x16xf32> {
  return %x : tensor<?x8x16xf32>
}
galvatron.model @a_body_that_does_nothing(%x: tensor<?x8x16xf32>) {seq_len = 8 : i64, vocab = 33 : i64} {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

galvatron.model @an_opaque_layer(%x: tensor<?x8x16xf32>) {seq_len = 8 : i64, vocab = 33 : i64} {
  // expected-error@below {{opaque layer 'l' has a profile but no body: it can be planned, not compiled}}
  %0 = galvatron.layer "l"(%x) {profile = {forward_ms = 1.5, parameter_bytes = 64 : i64, boundary_bytes = 64 : i64, intermediate_bytes = 64 : i64}} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}

// -----

// expected-error@below {{expected body 'body' to be defined by one block}}
func.func private @body(tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
galvatron.model @a_body_that_is_only_declared(%x: tensor<?x8x16xf32>) {seq_len = 8 : i64, vocab = 33 : i64} {
  %0 = galvatron.layer "l" @body(%x) : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
