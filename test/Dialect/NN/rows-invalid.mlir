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
