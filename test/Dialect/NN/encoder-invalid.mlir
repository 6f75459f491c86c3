// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// One case for every numbered constraint of these operations in NNOps.td.

// grouped_attention, constraint 7
func.func @mask_of_queries(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %m: tensor<?x8xi32>) {
  // expected-error@below {{expected 'mask' of shape [?, 9], found [?, 8]}}
  %o, %lse = nn.grouped_attention %q, %k, %k mask %m {scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8xi32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, types
func.func @mask_of_numbers(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %m: tensor<?x9xf32>) {
  // expected-error@below {{operand #3 must be ranked tensor of 32-bit signless integer values, but got 'tensor<?x9xf32>'}}
  %o, %lse = nn.grouped_attention %q, %k, %k mask %m {scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 7
func.func @mask_of_queries_backward(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %m: tensor<?x8xi32>) {
  // expected-error@below {{expected 'mask' of shape [?, 9], found [?, 8]}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %o mask %m {scale = 5.0e-1 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x8xi32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>)
  return
}

// -----

// embedding, constraint 3
func.func @padding_that_is_no_token(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>) {
  // expected-error@below {{expected 'padding' to be a token, found -1}}
  %y = nn.embedding %t, %w {padding = -1 : i64} : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  return
}

// -----

// embedding_grad, constraint 3
func.func @padding_that_is_no_token_backward(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>, %y: tensor<?x8x4xf32>) {
  // expected-error@below {{expected 'padding' to be a token, found -2}}
  %d = nn.embedding_grad %t, %y, %w {padding = -2 : i64} : (tensor<?x8xi32>, tensor<?x8x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return
}

// -----

// patches, constraint 1
func.func @patches_without_channels(%i: tensor<?x32x32xf32>) {
  // expected-error@below {{expected 'images' of rank 4, found 'tensor<?x32x32xf32>'}}
  %x = nn.patches %i {rows = 8 : i64, columns = 8 : i64} : (tensor<?x32x32xf32>) -> tensor<?x16x64xf32>
  return
}

// -----

// patches, element types
func.func @patches_of_other_numbers(%i: tensor<?x1x32x32xf64>) {
  // expected-error@below {{expected 'y' of element type 'f64', found 'f32'}}
  %x = nn.patches %i {rows = 8 : i64, columns = 8 : i64} : (tensor<?x1x32x32xf64>) -> tensor<?x16x64xf32>
  return
}

// -----

// patches, constraint 2
func.func @patches_without_rows(%i: tensor<?x1x32x32xf32>) {
  // expected-error@below {{expected patches within images of 32 by 32, found 0 by 8}}
  %x = nn.patches %i {rows = 0 : i64, columns = 8 : i64} : (tensor<?x1x32x32xf32>) -> tensor<?x16x64xf32>
  return
}

// -----

// patches, constraint 2
func.func @patches_wider_than_the_image(%i: tensor<?x1x32x32xf32>) {
  // expected-error@below {{expected patches within images of 32 by 32, found 8 by 33}}
  %x = nn.patches %i {rows = 8 : i64, columns = 33 : i64} : (tensor<?x1x32x32xf32>) -> tensor<?x16x64xf32>
  return
}

// -----

// patches, constraint 3
func.func @patches_of_another_number(%i: tensor<?x3x32x33xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 16, 192], found [?, 20, 192]}}
  %x = nn.patches %i {rows = 8 : i64, columns = 8 : i64} : (tensor<?x3x32x33xf32>) -> tensor<?x20x192xf32>
  return
}

// -----

// prepend, constraint 1
func.func @prepend_of_another_width(%x: tensor<?x4x8xf32>, %t: tensor<7xf32>) {
  // expected-error@below {{expected 'token' of shape [8], found [7]}}
  %y = nn.prepend %x, %t : (tensor<?x4x8xf32>, tensor<7xf32>) -> tensor<?x5x8xf32>
  return
}

// -----

// prepend, constraint 2
func.func @prepend_without_a_place(%x: tensor<?x4x8xf32>, %t: tensor<8xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 5, 8], found [?, 4, 8]}}
  %y = nn.prepend %x, %t : (tensor<?x4x8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
  return
}

// -----

// prepend_grad, constraint 1
func.func @prepend_grad_of_another_width(%d: tensor<?x5x8xf32>) {
  // expected-error@below {{expected 'dtoken' of shape [8], found [9]}}
  %x, %t = nn.prepend_grad %d : (tensor<?x5x8xf32>) -> (tensor<?x4x8xf32>, tensor<9xf32>)
  return
}

// -----

// prepend_grad, constraint 2
func.func @prepend_grad_of_all(%d: tensor<?x5x8xf32>) {
  // expected-error@below {{expected 'dx' of shape [?, 4, 8], found [?, 5, 8]}}
  %x, %t = nn.prepend_grad %d : (tensor<?x5x8xf32>) -> (tensor<?x5x8xf32>, tensor<8xf32>)
  return
}

// -----

// take, constraint 1
func.func @take_behind_the_end(%x: tensor<?x4x8xf32>) {
  // expected-error@below {{expected 'position' in [0, 4), found 4}}
  %y = nn.take %x {position = 4 : i64} : (tensor<?x4x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// take, constraint 2
func.func @take_of_another_width(%x: tensor<?x4x8xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 8], found [?, 9]}}
  %y = nn.take %x {position = 3 : i64} : (tensor<?x4x8xf32>) -> tensor<?x9xf32>
  return
}

// -----

// take_grad, constraint 1
func.func @take_grad_in_front_of_the_beginning(%d: tensor<?x8xf32>) {
  // expected-error@below {{expected 'position' in [0, 4), found -1}}
  %x = nn.take_grad %d {position = -1 : i64} : (tensor<?x8xf32>) -> tensor<?x4x8xf32>
  return
}

// -----

// take_grad, constraint 2
func.func @take_grad_of_another_type(%d: tensor<?x8xf32>) {
  // expected-error@below {{expected 'dy' of element type 'f64', found 'f32'}}
  %x = nn.take_grad %d {position = 0 : i64} : (tensor<?x8xf32>) -> tensor<?x4x8xf64>
  return
}
