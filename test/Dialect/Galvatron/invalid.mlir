// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

// parameter C1
// expected-error @+1 {{expected a tensor type of static shape with at least one element, found 'tensor<?xf32>'}}
galvatron.parameter @p : tensor<?xf32> {init = "zeros"}

// -----
// parameter C1
// expected-error @+1 {{expected parameter 'p' to take at most 70368744177664 bytes, found 'tensor<1073741824x3x1073741824xf32>'}}
galvatron.parameter @p : tensor<1073741824x3x1073741824xf32> {init = "zeros"}

// -----
// parameter C2
// expected-error @+1 {{expected 'init' to be 'normal', 'constant', 'zeros', 'ones', 'sinusoids' or 'cache', found 'uniform'}}
galvatron.parameter @p : tensor<4xf32> {init = "uniform"}

// -----
// parameter C2
// expected-error @+1 {{expected 'frozen' beside the init 'sinusoids'}}
galvatron.parameter @p : tensor<4x2xf32> {init = "sinusoids"}

// -----
// parameter C2
// expected-error @+1 {{expected a matrix beside the init 'sinusoids', found 'tensor<4xf32>'}}
galvatron.parameter @p : tensor<4xf32> {frozen, init = "sinusoids"}

// -----
// parameter C3
// expected-error @+1 {{expected 'std' beside the init 'normal'}}
galvatron.parameter @p : tensor<4xf32> {init = "normal"}

// -----
// parameter C3
// expected-error @+1 {{expected no 'std' beside the init 'zeros'}}
galvatron.parameter @p : tensor<4xf32> {init = "zeros", std = 1.0 : f64}

// -----
// parameter C3
// expected-error @+1 {{expected 'std' to be positive, found}}
galvatron.parameter @p : tensor<4xf32> {init = "normal", std = -1.0 : f64}

// -----

// expected-error @+1 {{expected 'value' beside the init 'constant'}}
galvatron.parameter @w : tensor<2xf32> {init = "constant"}

// -----

// expected-error @+1 {{expected no 'value' beside the init 'ones'}}
galvatron.parameter @w : tensor<2xf32> {init = "ones", value = 1.0 : f64}

// -----

// expected-error @+1 {{expected 'value' to be finite, found}}
galvatron.parameter @w : tensor<2xf32> {init = "constant", value = 0x7FF0000000000000 : f64}

// -----
// parameter C4
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
galvatron.parameter @"" : tensor<4xf32> {init = "zeros"}

// -----
// parameter C5
// expected-error @+1 {{expected 'copies' to hold other names, each once, found "p"}}
galvatron.parameter @p : tensor<4xf32> {copies = ["q", "p"], init = "zeros"}

// -----
// parameter C5
// expected-error @+1 {{expected 'copies' to hold other names, each once, found "q"}}
galvatron.parameter @p : tensor<4xf32> {copies = ["q", "q"], init = "zeros"}

// -----
// parameter C5
// expected-error @+1 {{expected 'copies' to hold other names, each once, found ""}}
galvatron.parameter @p : tensor<4xf32> {copies = [""], init = "zeros"}

// -----

// expected-error @+1 {{expected at least one row inside the stride of 4, found 3 from 2 on}}
galvatron.parameter @p : tensor<6xf32> {init = "zeros", part = #galvatron.part<of = "q", first = 2, count = 3, stride = 4>}

// -----

// expected-error @+1 {{expected at least one row inside the stride of 4, found 0 from 0 on}}
galvatron.parameter @p : tensor<6xf32> {init = "zeros", part = #galvatron.part<of = "q", first = 0, count = 0, stride = 4>}

// -----

// expected-error @+1 {{expected the name of a tensor, found none}}
galvatron.parameter @p : tensor<6xf32> {init = "zeros", part = #galvatron.part<of = "", first = 0, count = 2, stride = 4>}

// -----

// expected-error @+1 {{expected a multiple of the part's 4 rows, found 6}}
galvatron.parameter @p : tensor<6xf32> {init = "zeros", part = #galvatron.part<of = "q", first = 0, count = 4, stride = 4>}

// -----

// expected-error @+1 {{expected 'part' or 'copies', found both}}
galvatron.parameter @p : tensor<6xf32> {copies = ["q"], init = "zeros", part = #galvatron.part<of = "r", first = 0, count = 2, stride = 4>}

// -----
// model C9
// expected-error @+1 {{attribute 'sym_name' failed to satisfy constraint: string attribute that is not empty}}
galvatron.model @""(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  galvatron.output
}

// -----
// model C1
// expected-error @+1 {{expected argument 0 to be a tensor whose first dimension alone is dynamic, found 'tensor<2x4xi32>'}}
galvatron.model @m(%t: tensor<2x4xi32>) {
  galvatron.output
}

// -----
// model C2
// expected-error @+1 {{expected arguments of different names, found two called 'tokens'}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>, %u: tensor<?x4xi32> is <token_types, name = "tokens", below = 2>) {
  galvatron.output
}

// -----
// model C2
// expected-error @+1 {{expected data 'tokens' to have the type of its argument, 'tensor<?x4xi32>', found 'tensor<?x5xi32>'}}
"galvatron.model"() <{data = [#galvatron.data<tokens, below = 16> : tensor<?x5xi32>], sym_name = "m"}> ({
^bb0(%t: tensor<?x4xi32>):
  galvatron.output
}) : () -> ()

// -----
// model C2
// expected-error @+1 {{expected the data of 1 arguments, found 0}}
"galvatron.model"() <{data = [], sym_name = "m"}> ({
^bb0(%t: tensor<?x4xi32>):
  galvatron.output
}) : () -> ()

// -----
// model, syntax
// expected-error @+1 {{expected all arguments to say what they are, or none; found 1 of 2}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32>) {
  galvatron.output
}

// -----
// data C1
// expected-error @+1 {{expected data of kind 'tokens', 'labels', 'classes', 'token_types', 'mask', 'document_starts', 'cache_rows', 'positions', 'source_rows', 'source_lengths' or 'images', found 'sounds'}}
galvatron.model @m(%t: tensor<?x4xf32> is <sounds>) {
  galvatron.output
}

// -----
// data C2
// expected-error @+1 {{expected data of kind 'images' to have a name that is not empty}}
galvatron.model @m(%t: tensor<?x4xf32> is <images, name = "">) {
  galvatron.output
}

// -----
// data C3
// expected-error @+1 {{expected data 'images' to be a tensor whose first dimension alone is dynamic, found 'tensor<?x?xf32>'}}
galvatron.model @m(%t: tensor<?x?xf32> is <images>) {
  galvatron.output
}

// -----
// data C3
// expected-error @+1 {{expected data 'images' of kind 'images' to have elements of type f32, f64 or bf16, found 'i8'}}
galvatron.model @m(%t: tensor<?x3x8x8xi8> is <images>) {
  galvatron.output
}

// -----
// data C3
// expected-error @+1 {{expected data 'tokens' of kind 'tokens' to have elements of type i32, found 'i64'}}
galvatron.model @m(%t: tensor<?x4xi64> is <tokens, below = 16>) {
  galvatron.output
}

// -----
// data C4
// expected-error @+1 {{expected integers 'mask' to have a bound 'below' of at least 1, found none}}
galvatron.model @m(%t: tensor<?x4xi32> is <mask>) {
  galvatron.output
}

// -----
// data C4
// expected-error @+1 {{expected 'below' to be at least 1, found 0}}
galvatron.model @m(%t: tensor<?x4xi32> is <mask, below = 0>) {
  galvatron.output
}

// -----
// data C4
// expected-error @+1 {{expected no bound 'below' of 'mask', whose elements are no integers, found 2}}
galvatron.model @m(%t: tensor<?x4xf32> is <mask, below = 2>) {
  galvatron.output
}

// -----
// data C4
// expected-error @+1 {{expected 'below' of 'tokens' to be at most 2147483647, found 2147483648}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 2147483648>) {
  galvatron.output
}

// -----
// data C5
// expected-error-re @+1 {{expected a sample of 'images' to take at most {{[0-9]+}} bytes, found 'tensor<?x1000000x1000000x1000000xf32>'}}
galvatron.model @m(%t: tensor<?x1000000x1000000x1000000xf32> is <images>) {
  galvatron.output
}

// -----
// data, syntax
// expected-error @+1 {{expected 'name' or 'below', each once and in this order}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, above = 2>) {
  galvatron.output
}

// -----
// data, syntax
// expected-error @+1 {{expected the type of the data behind it}}
module attributes {grt.model = {name = "m", data = [#galvatron.data<tokens, below = 2>]}} {}

// -----
// model C3
// expected-error @+1 {{expected only layers, stages, transfers and reshards in a model, found 'galvatron.all_reduce'}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-note @+1 {{it stands here}}
  %0 = galvatron.all_reduce %t over tp : tensor<?x4xi32>
  galvatron.output
}

// -----
// model C4
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-note @+1 {{which stands here}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  // expected-error @+1 {{expected a name of its own, found 'a' of another layer}}
  %1 = galvatron.layer "a" @f(%0) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// model C5
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected the first layer in stage 0, found stage 1}}
  %0 = galvatron.layer "a" @f(%t) {stage = 1 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// model C5
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.layer "a" @f(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  // expected-error @+1 {{expected stage 0 or 1 after a layer of stage 0, found 2}}
  %1 = galvatron.layer "b" @f(%0) {stage = 2 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// model C5
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected stage 0, found 1}}
  galvatron.stage 1 devices [0] {
  }
  galvatron.output
}

// -----
// model C6
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.layer "a" @f(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  // expected-error @+1 {{expected either every layer to have a stage or none, but 'b' has none}}
  %1 = galvatron.layer "b" @f(%0) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// model C7
// expected-error @+1 {{expected 'config' to be the text of a JSON object, found another value}}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) attributes {config = "[]"} {
  galvatron.output
}

// -----
// model C8
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-note @+1 {{the other stage is here}}
  galvatron.stage 0 devices [0, 1] {
  }
  // expected-error @+1 {{expected devices of its own, found device 1 of stage 0}}
  galvatron.stage 1 devices [1, 2] {
  }
  galvatron.output
}

// -----
// layer C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected layer 'a' to have either a body or a profile, found neither}}
  %0 = galvatron.layer "a"(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C2
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'callee' to name a function, found no 'f'}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C2
// expected-note @+1 {{which stands here}}
galvatron.parameter @f : tensor<4xf32> {init = "zeros"}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'forward' to name a function, but 'f' is a 'galvatron.parameter'}}
  %0 = galvatron.layer "a"(%t) {forward = @f} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C3
func.func private @f(tensor<?x4xi32>, tensor<4xf32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'p' to name a galvatron.parameter, found no such symbol}}
  %0 = galvatron.layer "a" @f(%t) params [@p] : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C3
func.func private @f(tensor<?x4xi32>, tensor<4xf32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'f' to name a galvatron.parameter, but it is a 'func.func'}}
  %0 = galvatron.layer "a" @f(%t) params [@f] : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C4
// expected-note @+1 {{'f' is here}}
func.func private @f(tensor<?x4xi32>, tensor<4xf32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected the 2 arguments of 'f', found 1 operands and 0 parameters}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C4
// expected-note @+1 {{'f' is here}}
func.func private @f(tensor<?x8xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected operand 0 of type 'tensor<?x8xi32>', found 'tensor<?x4xi32>'}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C4
// expected-note @+1 {{'f' is here}}
func.func private @f(tensor<?x4xi32>) -> tensor<?x8xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected result 0 of type 'tensor<?x8xi32>', found 'tensor<?x4xi32>'}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C5
galvatron.parameter @p : tensor<4xf32> {init = "zeros"}
// expected-note @+1 {{'f' is here}}
func.func private @f(tensor<?x4xi32>, tensor<5xf32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{passes parameter 'p' of type 'tensor<4xf32>' as 'tensor<5xf32>', expected the same element type and number of elements}}
  %0 = galvatron.layer "a" @f(%t) params [@p] : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C6
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'stage' not to be negative, found -1}}
  %0 = galvatron.layer "a" @f(%t) {stage = -1 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C7
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected a strategy with ckpt beside 'recompute'}}
  %0 = galvatron.layer "a" @f(%t) {recompute = @f, strategy = #galvatron.strategy<[tp = 2]>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C13
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected a strategy with a point beside 'kept'}}
  %0 = galvatron.layer "a" @f(%t) {kept = #galvatron.kept<"0123456789abcdef", ["3"]>, strategy = #galvatron.strategy<[tp = 2], ckpt>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// a profile without one of its numbers
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{struct is missing required parameter: boundary_bytes}}
  %0 = galvatron.layer "a"(%t) {profile = #galvatron.profile<forward_ms = 1.0, parameter_bytes = 1>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// profile C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'forward_ms', or 'forward_flops' and 'forward_moved_bytes', in the profile of a layer}}
  %0 = galvatron.layer "a"(%t) {profile = #galvatron.profile<parameter_bytes = 1, boundary_bytes = 1, intermediate_bytes = 1>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// profile C2
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'parameter_bytes' of a profile not to be negative, found -1}}
  %0 = galvatron.layer "a"(%t) {profile = #galvatron.profile<forward_ms = 1.0, parameter_bytes = -1, boundary_bytes = 1, intermediate_bytes = 1>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C8
galvatron.parameter @p : tensor<4xf32> {init = "zeros"}
func.func private @f(tensor<?x4xi32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected each parameter once, found 'p' twice}}
  %0 = galvatron.layer "a" @f(%t) params [@p, @p] : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// stage C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected distinct, non-negative devices, found 1 twice}}
  galvatron.stage 0 devices [1, 1] {
  }
  galvatron.output
}

// -----
// stage C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected at least one device}}
  galvatron.stage 0 devices [] {
  }
  galvatron.output
}

// -----
// stage C2
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.stage 0 devices [0] -> tensor<?x8xi32> {
    // expected-error @+1 {{expected the types of the stage's results}}
    galvatron.yield %t : tensor<?x4xi32>
  }
  galvatron.output
}

// -----
// stage C3
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  galvatron.stage 0 devices [0] {
    // expected-error @+1 {{expected stage 0 of the operation around it}}
    %0 = galvatron.layer "a" @f(%t) {stage = 1 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  }
  galvatron.output
}

// -----
// stage C4
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  galvatron.stage 0 devices [0, 1] {
    // expected-error @+1 {{expected a strategy for the 2 devices of its stage, found 'tp4' for 4}}
    %0 = galvatron.layer "a" @f(%t) {stage = 0 : i64, strategy = #galvatron.strategy<[tp = 4]>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  }
  galvatron.output
}

// -----
// stage C5
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.stage 0 devices [0] -> tensor<?x4xi32> {
    %1 = galvatron.layer "a" @f(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
    galvatron.yield %1 : tensor<?x4xi32>
  }
  galvatron.stage 1 devices [1] {
    // expected-error @+1 {{expected values of stage 1 or transferred to it, found one from outside}}
    %1 = galvatron.layer "b" @f(%0) {stage = 1 : i64} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  }
  galvatron.output
}

// -----
// stage C6
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected only layers and reshards in a stage, found 'galvatron.gather_parameters'}}
  galvatron.stage 0 devices [0] {
    galvatron.gather_parameters over sdp
  }
  galvatron.output
}

// -----
// transfer C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected a transfer to the next stage, found from 0 to 2}}
  %0 = galvatron.transfer %t from 0 to 2 : tensor<?x4xi32>
  galvatron.output
}

// -----
// transfer C2
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected a value of stage 0}}
  %0 = galvatron.transfer %t from 0 to 1 : tensor<?x4xi32>
  galvatron.output
}

// -----
// reshard C1
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected strategies for the same devices, found 'dp2' for 2 and 'tp4' for 4}}
  %0 = galvatron.reshard %t from <[dp = 2]> to <[tp = 4]> : tensor<?x4xi32>
  galvatron.output
}

// -----
// all_gather C1
func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{behind a new dimension of at least 2, found 'tensor<1x2x8xf32>'}}
  %0 = galvatron.all_gather %x over tp : tensor<2x8xf32> -> tensor<1x2x8xf32>
  return
}

// -----
// gather_parameters C1
func.func @f() {
  // expected-error @+1 {{expected the axis 'sdp', found 'tp'}}
  galvatron.gather_parameters over tp
  return
}

// -----
// reduce_scatter_gradients C1
func.func @f() {
  // expected-error @+1 {{expected the axis 'sdp', found 'dp'}}
  galvatron.reduce_scatter_gradients over dp
  return
}

// -----
// layer C4
// expected-note @+1 {{'f' is here}}
func.func private @f(tensor<?x4xi32>) -> (tensor<?x4xi32>, tensor<?x4xi32>)
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected the 2 results of 'f', found 1}}
  %0 = galvatron.layer "a" @f(%t) : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C9
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'weight' beside 'backward' and without 'recompute'}}
  %0 = galvatron.layer "a" @f(%t) {weight = @f} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C10
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected 'pack_forward' beside 'forward', and 'pack_layout' beside both it and 'layout'}}
  %0 = galvatron.layer "a" @f(%t) {pack_forward = @f} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C11
// expected-error @+1 {{expected 'nn.role' on argument 1 of the layer function 'f.forward', found none}}
func.func private @f.forward(tensor<?x4xi32> {nn.role = "input"}, tensor<4xf32>) -> (tensor<?x4xi32> {nn.role = "output"})
galvatron.parameter @p : tensor<4xf32> {init = "zeros"}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.layer "a"(%t) params [@p] {forward = @f.forward} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C11
// expected-error @+1 {{expected 'nn.role' on result 0 of the layer function 'f.backward', found none}}
func.func private @f.backward(tensor<?x4xi32> {nn.role = "input"}) -> tensor<?x4xi32>
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  %0 = galvatron.layer "a" @f(%t) {backward = @f.backward} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C11
// expected-note @+1 {{'f.forward' is here}}
func.func private @f.forward(tensor<?x4xi32> {nn.role = "input"}, tensor<4xf32> {nn.role = "parameter"}) -> (tensor<?x4xi32> {nn.role = "output"})
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected as many parameters as 'f.forward' has, 1, found 0}}
  %0 = galvatron.layer "a"(%t) {forward = @f.forward} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C11
// expected-note @+1 {{'f.forward' is here}}
func.func private @f.forward(tensor<?x4xi32> {nn.role = "input"}, tensor<2xf32> {nn.role = "parameter", galvatron.slice = #galvatron.slice<global_shape = [4], state = <[split 0]>>}) -> (tensor<?x4xi32> {nn.role = "output"})
galvatron.parameter @p : tensor<5xf32> {init = "zeros"}
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected argument 1 of 'f.forward' to be a view of 'p', 'tensor<5xf32>', found 'tensor<4xf32>'}}
  %0 = galvatron.layer "a"(%t) params [@p] {forward = @f.forward} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----
// layer C12
func.func private @f(tensor<?x4xi32>) -> tensor<?x4xi32>
galvatron.model @m(%t: tensor<?x4xi32> is <tokens, below = 16>) {
  // expected-error @+1 {{expected the tensors of its layout to be its parameters, in their order}}
  %0 = galvatron.layer "a" @f(%t) {layout = #galvatron.layout<samples = 1, input_bytes = 0, output_bytes = 0, stash_bytes = 0,
    tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [16], local_shape = [16], tp_dim = -1>],
    groups = [#galvatron.flat_group<elements = 16, shard_elements = 16>, #galvatron.flat_group<elements = 0, shard_elements = 0>], data = []>} : (tensor<?x4xi32>) -> tensor<?x4xi32>
  galvatron.output
}

// -----

// expected-error @+1 {{expected 'config' to be the text of a JSON object}}
galvatron.model @m(%x: tensor<?x4xf32> is <images>) attributes {config = "{"} {
  galvatron.output
}

// -----

// expected-error @+1 {{expected 'config' to be the text of a JSON object}}
galvatron.model @m(%x: tensor<?x4xf32> is <images>) attributes {config = "[]"} {
  galvatron.output
}
