// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// What is wrong with blocks of rows and with operations on them.

// rows, constraint 1
// expected-error@below {{expected blocks of rows of a length of at least 1 on at least 2 ranks, found 4 and 1}}
func.func private @one_rank(tensor<8x16xf32, #nn.rows<length = 4, degree = 1>>)

// -----

// rows, constraint 2
// expected-error@below {{expected 2 blocks of 3 rows to be samples of 4}}
func.func private @no_samples(tensor<3x16xf32, #nn.rows<length = 4, degree = 2>>)

// -----

// rows, constraint 2
// expected-error@below {{expected a block of rows to have a dimension of them, found none}}
func.func private @no_dimension(tensor<f32, #nn.rows<length = 4, degree = 2>>)

// -----

// gather_rows, (C1)
func.func @gather(%x: tensor<6x16xf32, #nn.rows<length = 4, degree = 2>>) {
  // expected-error@below {{to be a block of the rows of 'tensor<2x4x16xf32>'}}
  %y = galvatron.gather_rows %x over tp : tensor<6x16xf32, #nn.rows<length = 4, degree = 2>> -> tensor<2x4x16xf32>
  return
}

// -----

// reduce_scatter_rows, (C1)
func.func @scatter(%x: tensor<3x4x16xf32>) {
  // expected-error@below {{to be a block of the rows of 'tensor<3x4x16xf32>'}}
  %y = galvatron.reduce_scatter_rows %x over tp : tensor<3x4x16xf32> -> tensor<6x16xf32>
  return
}

// -----

// slice_rows, (C1)
func.func @slice(%x: tensor<?x4x16xf32>) {
  // expected-error@below {{to be a block of the rows of 'tensor<?x4x16xf32>'}}
  %y = galvatron.slice_rows %x over tp : tensor<?x4x16xf32> -> tensor<?x16xf32, #nn.rows<length = 5, degree = 2>>
  return
}

// -----

// shift, (C1)
func.func @shift_of_all_rows(%x: tensor<2x4x8xf32>) {
  // expected-error@below {{expected a block of rows, found 'tensor<2x4x8xf32>'}}
  %y = galvatron.shift %x over cp : tensor<2x4x8xf32>
  return
}

// -----

// all_to_all, (C1)
func.func @exchange(%x: tensor<2x4x8xf32>) {
  // expected-error@below {{expected a block of rows and a part of dimension 2 of the tensor that it is of, found 'tensor<2x4x8xf32>' and 'tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>'}}
  %y = galvatron.all_to_all %x dim 2 over cp : tensor<2x4x8xf32> -> tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>
  return
}

// -----

// all_to_all, (C1)
func.func @exchange_of_positions(%x: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>) {
  // expected-error@below {{a part of dimension 1 of the tensor that it is of}}
  %y = galvatron.all_to_all %x dim 1 over cp : tensor<4x8xf32, #nn.rows<length = 4, degree = 2>> -> tensor<2x2x8xf32>
  return
}

// -----

// all_to_all, (C1): three key heads of two devices
func.func @exchange_of_too_few(%x: tensor<4x3x8xf32, #nn.rows<length = 4, degree = 2>>) {
  // expected-error@below {{a part of dimension 2 of the tensor that it is of}}
  %y = galvatron.all_to_all %x dim 2 over cp : tensor<4x3x8xf32, #nn.rows<length = 4, degree = 2>> -> tensor<2x4x1x8xf32>
  return
}

// -----

// rows, constraint 2
// expected-error@below {{expected a balanced block of an even number of rows, found 3}}
func.func private @no_halves(tensor<3x16xf32, #nn.rows<length = 6, degree = 2, balanced = true>>)

// -----

// rows, constraint 2
// expected-error@below {{expected a block of rows to have a dimension of them, found none}}
func.func private @nothing_behind(tensor<3xf32, #nn.rows<length = 6, degree = 2, behind = 1>>)

// -----

// ring_attention, constraint 1
func.func @ring_of_all_keys(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32>, %v: tensor<4x2x2xf32>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected queries and keys to be blocks of the same rows, found 'tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>' and 'tensor<4x2x2xf32>'}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32>, tensor<4x2x2xf32>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 1
func.func @ring_of_other_blocks(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 4>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 4>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected queries and keys to be blocks of the same rows}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 4>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 4>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 1
func.func @ring_of_three_key_heads(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x3x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x3x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected key heads to divide the 4 heads, found 3}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x3x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x3x2xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 2
func.func @ring_of_another_width(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'o' of type}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x6xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 2
func.func @ring_of_whole_statistics(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'lse' of type}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32>)
  return
}

// -----

// ring_attention, constraint 3
func.func @ring_from_another_type(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'before' of type}}
  %o, %lse = nn.ring_attention %q, %k, %v from %l, %l {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 4
func.func @ring_of_too_few_blocks(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'distance' to be one of 0 to 1, found 2}}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 2 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 5
func.func @ring_that_drops_all(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'dropout' }}
  %o, %lse = nn.ring_attention %q, %k, %v {scale = 0.5 : f64, distance = 1 : i64, dropout = 1.0 : f64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention, constraint 6
func.func @ring_with_a_mask_of_other_samples(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %v: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %b: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %l: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %m: tensor<3x4xi32>) {
  // expected-error@below {{expected 'mask' of shape [2, 4], found [3, 4]}}
  %o, %lse = nn.ring_attention %q, %k, %v mask %m {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<3x4xi32>) -> (tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention_grad, constraint 1
func.func @ring_grad_of_whole_outputs(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %o: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %lse: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %d: tensor<4x8xf32>) {
  // expected-error@below {{expected 'dout' of type}}
  %dq, %dk, %dv = nn.ring_attention_grad %q, %k, %k, %o, %lse, %d {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32>) -> (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention_grad, constraint 2
func.func @ring_grad_of_another_type(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %o: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %lse: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %d: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>) {
  // expected-error@below {{expected 'dk' of type}}
  %dq, %dk, %dv = nn.ring_attention_grad %q, %k, %k, %o, %lse, %d {scale = 0.5 : f64, distance = 1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// ring_attention_grad, constraint 4
func.func @ring_grad_of_too_few_blocks(%q: tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, %k: tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, %o: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, %lse: tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, %d: tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>) {
  // expected-error@below {{expected 'distance' to be one of 0 to 1, found -1}}
  %dq, %dk, %dv = nn.ring_attention_grad %q, %k, %k, %o, %lse, %d {scale = 0.5 : f64, distance = -1 : i64} : (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x4xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x8xf32, #nn.rows<length = 4, degree = 2>>) -> (tensor<4x4x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>, tensor<4x2x2xf32, #nn.rows<length = 4, degree = 2>>)
  return
}

// -----

// round, constraint 1
func.func @round_of_another_shape(%x: tensor<4x8xf32>) {
  // expected-error@below {{expected 'y' of shape [4, 8], found [8, 4]}}
  %y = nn.round %x : (tensor<4x8xf32>) -> tensor<8x4xbf16>
  return
}

// -----

// unpack, constraint 1
func.func @unpack_of_two(%x: tensor<4x2x8xf32>) {
  // expected-error@below {{expected 'qkv' to be [rows, 3, heads * head size] of 'tensor<4x4x2xf32>', found 'tensor<4x2x8xf32>'}}
  %q, %k, %v = nn.unpack %x : (tensor<4x2x8xf32>) -> (tensor<4x4x2xf32>, tensor<4x4x2xf32>, tensor<4x4x2xf32>)
  return
}

// -----

// pack, constraint 1
func.func @pack_of_other_heads(%q: tensor<4x4x2xf32>, %k: tensor<4x2x4xf32>) {
  // expected-error@below {{expected 'k' of type 'tensor<4x4x2xf32>', found 'tensor<4x2x4xf32>'}}
  %x = nn.pack %q, %k, %q : (tensor<4x4x2xf32>, tensor<4x2x4xf32>, tensor<4x4x2xf32>) -> tensor<4x3x8xf32>
  return
}

// -----

// rows, constraint 1
// expected-error@below {{expected 4 blocks of rows to be as many of each block that they are cut from, found 3 of these}}
func.func private @as_many_of_each(tensor<3x8xf32, #nn.rows<length = 3, degree = 4, within = 3>>)
