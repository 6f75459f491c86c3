// RUN: galvatron-opt %s --split-input-file --galvatron-split-stages --verify-diagnostics

// Models that the dialect can say and the compiler does not execute.

// An opaque layer among them: planned only, and as a chain.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @both(tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @an_opaque_layer_is_passed(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-note @+1 {{'a' is here}}
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %b = galvatron.layer "b"(%a) {profile = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 64, boundary_bytes = 16, intermediate_bytes = 16>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // expected-error @+1 {{layer 'c' uses a result of layer 'a', expected results of the layer in front of it alone, 'b': opaque layers are a chain}}
  %c = galvatron.layer "c" @both(%b, %a) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%c, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// One result as two operands.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @both(tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @one_result_twice(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-note @+1 {{'a' is here}}
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  // expected-error @+1 {{layer 'c' takes result 0 of layer 'a' twice, expected it once}}
  %c = galvatron.layer "c" @both(%a, %a) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%c, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// A result that nobody uses.
func.func private @pair(tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @a_result_is_dropped(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{layer 'a' gives result 1 to no layer, expected a use}}
  %a:2 = galvatron.layer "a" @pair(%t) : (tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  %c = galvatron.layer "c" @step(%a#0) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%c, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// A layer that takes nothing from those in front of it.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<1xf64>
galvatron.model @nothing_in_front(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  // expected-error @+1 {{layer 'b' takes nothing of the layers in front of it, expected a result of one of them}}
  %b = galvatron.layer "b" @first(%l) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %b) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// The model returns what an inner layer gives.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @the_output_is_an_inner_result(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  // expected-error @+1 {{returns a result of layer 'a', expected results of the last layer, 'd'}}
  galvatron.output %a : tensor<?x4xf32>
}

// -----

// Tensors between layers of two element types.
func.func private @pair(tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x4xf64>)
func.func private @both(tensor<?x4xf32>, tensor<?x4xf64>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @two_element_types(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{layer 'a' gives 'tensor<?x4xf64>' to later layers, expected elements of type 'f32' as earlier layers give}}
  %a:2 = galvatron.layer "a" @pair(%t) : (tensor<?x4xi32>) -> (tensor<?x4xf32>, tensor<?x4xf64>)
  %c = galvatron.layer "c" @both(%a#0, %a#1) : (tensor<?x4xf32>, tensor<?x4xf64>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%c, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// Integers have no gradient; as operands of a body they are data.
func.func private @integers(tensor<?x4xi32>) -> tensor<?x4xi32>
func.func private @take(tensor<?x4xi32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @a_boundary_of_integers(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{layer 'a' gives 'tensor<?x4xi32>' to later layers, expected a floating-point tensor whose first dimension alone is dynamic}}
  %a = galvatron.layer "a" @integers(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  %d = galvatron.layer "d" @take(%a, %l) : (tensor<?x4xi32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// Every rank would take its samples of it.
func.func private @table(tensor<?x4xi32>) -> tensor<4xf32>
func.func private @read(tensor<4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @a_boundary_without_samples(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{layer 'a' gives 'tensor<4xf32>' to later layers, expected a floating-point tensor whose first dimension alone is dynamic}}
  %a = galvatron.layer "a" @table(%t) : (tensor<?x4xi32>) -> tensor<4xf32>
  %d = galvatron.layer "d" @read(%a, %l) : (tensor<4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// The last layer gives no loss.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
galvatron.model @no_loss(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  // expected-error @+1 {{expected the last layer, 'b', to give the loss, a 'tensor<1xf64>', found 'tensor<?x4xf32>'}}
  %b = galvatron.layer "b" @step(%a) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  galvatron.output %b : tensor<?x4xf32>
}

// -----

// A loss is summed in f64, whatever the model computes in; and it is one number.
func.func private @first(tensor<?x4xi32>) -> tensor<1xf32>
galvatron.model @a_loss_in_f32(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{expected the last layer, 'a', to give the loss, a 'tensor<1xf64>', found 'tensor<1xf32>'}}
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<1xf32>
  galvatron.output %a : tensor<1xf32>
}

// -----

func.func private @first(tensor<?x4xi32>) -> tensor<2xf64>
galvatron.model @two_losses(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{expected the last layer, 'a', to give the loss, a 'tensor<1xf64>', found 'tensor<2xf64>'}}
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<2xf64>
  galvatron.output %a : tensor<2xf64>
}

// -----

// Two with a z-loss, whose sum is the second.
module attributes {galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = false, dropout = true, z_loss = 1.0e-4 : f64>} {
  func.func private @first(tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.model @one_loss(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
    // expected-error @+1 {{expected the last layer, 'a', to give the loss, a 'tensor<2xf64>', found 'tensor<1xf64>'}}
    %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.output %a : tensor<1xf64>
  }
}

// -----

// What an argument is must be said.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
// expected-error @+1 {{argument 0 of type 'tensor<?x4xi32>' does not say what it is, expected 'is <kind, ..>' behind it}}
galvatron.model @undeclared(%t: tensor<?x4xi32>, %l: tensor<?x4xi32>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// Nobody would be served by a file of it.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
// expected-error @+1 {{no layer reads 'mask', expected one that does}}
galvatron.model @unread(%t: tensor<?x4xi32> is <tokens, below = 16>, %m: tensor<?x4xf32> is <mask>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// The loss is a mean over labels; of token types nobody knows how many count.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
// expected-error @+1 {{expected an argument that the loss is a mean over, such as 'labels' or 'classes', found none}}
galvatron.model @nothing_is_counted(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <token_types, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// A step has one number of values that the loss is divided by.
func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
// expected-error @+1 {{expected one argument that the loss is a mean over, found 'labels' and 'classes'}}
galvatron.model @two_are_counted(%t: tensor<?x4xi32> is <labels, below = 16>, %l: tensor<?x4xi32> is <classes, below = 16>) {
  %a = galvatron.layer "a" @first(%t) : (tensor<?x4xi32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// One body has one backward function: for an image there is no gradient.
func.func private @step(tensor<?x4xf32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @an_image_and_an_activation(%t: tensor<?x4xf32> is <images>, %l: tensor<?x4xi32> is <classes, below = 16>) {
  // expected-note @+1 {{'a' is here}}
  %a = galvatron.layer "a" @step(%t) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // expected-error @+1 {{operand 0 of layer 'a' is an argument of the model, that of layer 'b', which has the same body, is not: expected layers of one body to read alike}}
  %b = galvatron.layer "b" @step(%a) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%b, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// The first layer reads nothing.
func.func private @nothing() -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @no_tokens(%l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{expected the first layer, 'a', to read an argument of the model}}
  %a = galvatron.layer "a" @nothing() : () -> tensor<?x4xf32>
  %d = galvatron.layer "d" @last(%a, %l) : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %d : tensor<1xf64>
}

// -----

// Parameters of one body have two element types.
// expected-note @+1 {{'w' is here}}
galvatron.parameter @w : tensor<4x4xf32> {init = "zeros"}
galvatron.parameter @b : tensor<4xf64> {init = "zeros"}
func.func private @linear(tensor<?x4xi32>, tensor<4x4xf32>, tensor<4xf64>) -> tensor<1xf64>
galvatron.model @mixed_types(%t: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{parameter 'b' of layer 'a' has the element type 'f64', expected that of 'w', 'f32': all parameters of a model have one}}
  %a = galvatron.layer "a" @linear(%t) params [@w, @b] : (tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %a : tensor<1xf64>
}

// -----

// Half precision without an f32 range has no kernels.
galvatron.parameter @w : tensor<4x4xf16> {init = "zeros"}
func.func private @linear(tensor<?x4xi32>, tensor<4x4xf16>) -> tensor<1xf64>
galvatron.model @f16(%t: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{parameter 'w' of layer 'a' has the element type 'f16', expected f32, f64 or bf16}}
  %a = galvatron.layer "a" @linear(%t) params [@w] : (tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %a : tensor<1xf64>
}

// -----

galvatron.parameter @w : tensor<4x4xf8E4M3FN> {init = "zeros"}
func.func private @linear(tensor<?x4xi32>, tensor<4x4xf8E4M3FN>) -> tensor<1xf64>
galvatron.model @f8(%t: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{parameter 'w' of layer 'a' has the element type 'f8E4M3FN', expected f32, f64 or bf16}}
  %a = galvatron.layer "a" @linear(%t) params [@w] : (tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %a : tensor<1xf64>
}

// -----

// The training says another type than the parameters have.
module attributes {galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "bf16", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<4x4xf32> {init = "zeros"}
func.func private @linear(tensor<?x4xi32>, tensor<4x4xf32>) -> tensor<1xf64>
galvatron.model @another_type_than_trained(%t: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{parameter 'w' of layer 'a' has the element type 'f32', expected that of 'galvatron.training', bf16}}
  %a = galvatron.layer "a" @linear(%t) params [@w] : (tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %a : tensor<1xf64>
}
}
