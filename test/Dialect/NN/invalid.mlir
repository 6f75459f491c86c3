// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// One case for every numbered constraint of NNOps.td, in its order.

// embedding, constraint 1
func.func @embedding_table_of_rank_3(%t: tensor<?x8xi32>, %w: tensor<4x8x16xf32>) {
  // expected-error@below {{expected 'table' of rank 2, found 'tensor<4x8x16xf32>'}}
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<4x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// embedding, constraint 2
func.func @embedding_of_another_width(%t: tensor<?x8xi32>, %w: tensor<32x16xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 8, 16], found [?, 8, 17]}}
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<32x16xf32>) -> tensor<?x8x17xf32>
  return
}

// -----

// embedding_grad, constraint 1
func.func @embedding_grad_of_another_type(%t: tensor<?x8xi32>, %d: tensor<?x8x16xf32>, %w: tensor<32x16xf32>) {
  // expected-error@below {{expected 'dtable' of shape [32, 16], found [31, 16]}}
  %0 = nn.embedding_grad %t, %d, %w : (tensor<?x8xi32>, tensor<?x8x16xf32>, tensor<32x16xf32>) -> tensor<31x16xf32>
  return
}

// -----

// embedding_grad, constraint 2
func.func @embedding_grad_of_other_positions(%t: tensor<?x8xi32>, %d: tensor<?x9x16xf32>, %w: tensor<32x16xf32>) {
  // expected-error@below {{expected 'dy' of shape [?, 8, 16], found [?, 9, 16]}}
  %0 = nn.embedding_grad %t, %d, %w : (tensor<?x8xi32>, tensor<?x9x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  return
}

// -----

// position_add, constraint 1
func.func @position_add_of_rank_2(%x: tensor<?x16xf32>, %w: tensor<12x16xf32>) {
  // expected-error@below {{expected 'x' of rank 3, found 'tensor<?x16xf32>'}}
  %0 = nn.position_add %x, %w : (tensor<?x16xf32>, tensor<12x16xf32>) -> tensor<?x16xf32>
  return
}

// -----

// position_add, constraint 1
func.func @position_add_of_another_width(%x: tensor<?x8x16xf32>, %w: tensor<12x15xf32>) {
  // expected-error@below {{expected 'table' of width 16, found 15}}
  %0 = nn.position_add %x, %w : (tensor<?x8x16xf32>, tensor<12x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// position_add, constraint 2
func.func @position_add_with_too_few_rows(%x: tensor<?x8x16xf32>, %w: tensor<7x16xf32>) {
  // expected-error@below {{expected 'table' of at least 8 rows, found 7}}
  %0 = nn.position_add %x, %w : (tensor<?x8x16xf32>, tensor<7x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// position_add, constraint 3
func.func @position_add_of_another_type(%x: tensor<?x8x16xf32>, %w: tensor<12x16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<2x8x16xf32>'}}
  %0 = nn.position_add %x, %w : (tensor<?x8x16xf32>, tensor<12x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// position_grad, constraint 1
func.func @position_grad_of_rank_3(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dtable' of rank 2, found 'tensor<1x12x16xf32>'}}
  %0 = nn.position_grad %x : (tensor<?x8x16xf32>) -> tensor<1x12x16xf32>
  return
}

// -----

// position_grad, constraint 2
func.func @position_grad_with_too_few_rows(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dtable' of at least 8 rows, found 7}}
  %0 = nn.position_grad %x : (tensor<?x8x16xf32>) -> tensor<7x16xf32>
  return
}

// -----

// linear, constraint 1
func.func @linear_weight_of_rank_1(%x: tensor<?x8x16xf32>, %w: tensor<16xf32>) {
  // expected-error@below {{expected 'w' of rank >= 2, found 'tensor<16xf32>'}}
  %0 = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8xf32>
  return
}

// -----

// linear, constraint 1
func.func @linear_of_a_number(%x: tensor<f32>, %w: tensor<16x4xf32>) {
  // expected-error@below {{expected 'x' of rank >= 1, found 'tensor<f32>'}}
  %0 = nn.linear %x, %w : (tensor<f32>, tensor<16x4xf32>) -> tensor<4xf32>
  return
}

// -----

// linear, constraint 1
func.func @linear_of_another_contraction(%x: tensor<?x8x16xf32>, %w: tensor<15x4xf32>) {
  // expected-error@below {{expected the contracted dimension of 'w' to be 16, found 15}}
  %0 = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<15x4xf32>) -> tensor<?x8x4xf32>
  return
}

// -----

// linear, constraint 1
func.func @linear_of_a_weight_the_other_way_round(%x: tensor<?x8x16xf32>, %w: tensor<16x4xf32>) {
  // expected-error@below {{expected the contracted dimension of 'w' to be 16, found 4}}
  %0 = nn.linear %x, %w {transpose_weight} : (tensor<?x8x16xf32>, tensor<16x4xf32>) -> tensor<?x8x4xf32>
  return
}

// -----

// linear, constraint 2
func.func @linear_of_another_output(%x: tensor<?x8x16xf32>, %w: tensor<16x3x4xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 8, 3, 4], found [?, 8, 12]}}
  %0 = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x3x4xf32>) -> tensor<?x8x12xf32>
  return
}

// -----

// linear, constraint 3
func.func @linear_with_another_bias(%x: tensor<?x8x16xf32>, %w: tensor<16x3x4xf32>, %b: tensor<4xf32>) {
  // expected-error@below {{expected 'bias' of shape [3, 4], found [4]}}
  %0 = nn.linear %x, %w bias %b : (tensor<?x8x16xf32>, tensor<16x3x4xf32>, tensor<4xf32>) -> tensor<?x8x3x4xf32>
  return
}

// -----

// linear, constraint 4
func.func @linear_of_two_element_types(%x: tensor<?x8x16xf32>, %w: tensor<16x4xf64>) {
  // expected-error@below {{expected 'w' of element type 'f32', found 'f64'}}
  %0 = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x4xf64>) -> tensor<?x8x4xf32>
  return
}

// -----

// linear_input_grad, constraint 1
func.func @linear_input_grad_of_other_outputs(%d: tensor<?x8x5xf32>, %w: tensor<16x4xf32>) {
  // expected-error@below {{expected 'dy' to end in [4], found [?, 8, 5]}}
  %0 = nn.linear_input_grad %d, %w : (tensor<?x8x5xf32>, tensor<16x4xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// linear_input_grad, constraint 1
func.func @linear_input_grad_of_a_vector(%d: tensor<?x8x5xf32>, %w: tensor<16xf32>) {
  // expected-error@below {{expected 'w' of rank >= 2, found 'tensor<16xf32>'}}
  %0 = nn.linear_input_grad %d, %w : (tensor<?x8x5xf32>, tensor<16xf32>) -> tensor<?x8x5x16xf32>
  return
}

// -----

// linear_input_grad, constraint 2
func.func @linear_input_grad_of_another_input(%d: tensor<?x8x4xf32>, %w: tensor<16x4xf32>) {
  // expected-error@below {{expected 'dx' of shape [?, 8, 16], found [?, 8, 15]}}
  %0 = nn.linear_input_grad %d, %w : (tensor<?x8x4xf32>, tensor<16x4xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// linear_weight_grad, constraint 1
func.func @linear_weight_grad_of_other_rows(%x: tensor<?x8x16xf32>, %d: tensor<?x9x4xf32>) {
  // expected-error@below {{expected 'dy' to start with [?, 8], found [?, 9, 4]}}
  %0 = nn.linear_weight_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x9x4xf32>) -> tensor<16x4xf32>
  return
}

// -----

// linear_weight_grad, constraint 1
func.func @linear_weight_grad_of_a_number(%x: tensor<f32>, %d: tensor<4xf32>) {
  // expected-error@below {{expected 'x' of rank >= 1, found 'tensor<f32>'}}
  %0 = nn.linear_weight_grad %x, %d : (tensor<f32>, tensor<4xf32>) -> tensor<1x4xf32>
  return
}

// -----

// linear_weight_grad, constraint 2
func.func @linear_weight_grad_in_another_order(%x: tensor<?x8x16xf32>, %d: tensor<?x8x4xf32>) {
  // expected-error@below {{expected 'dw' of shape [4, 16], found [16, 4]}}
  %0 = nn.linear_weight_grad %x, %d {transpose_weight} : (tensor<?x8x16xf32>, tensor<?x8x4xf32>) -> tensor<16x4xf32>
  return
}

// -----

// bias_add, constraint 1
func.func @bias_add_of_another_width(%x: tensor<?x8x16xf32>, %b: tensor<8xf32>) {
  // expected-error@below {{expected the shape of 'bias' to be a trailing part of [?, 8, 16], found [8]}}
  %0 = nn.bias_add %x, %b : (tensor<?x8x16xf32>, tensor<8xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// bias_add, constraint 2
func.func @bias_add_of_another_type(%x: tensor<?x8x16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x16xf64>'}}
  %0 = nn.bias_add %x, %b : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf64>
  return
}

// -----

// bias_grad, constraint 1
func.func @bias_grad_of_another_width(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected the shape of 'dbias' to be a trailing part of [?, 8, 16], found [8]}}
  %0 = nn.bias_grad %x : (tensor<?x8x16xf32>) -> tensor<8xf32>
  return
}

// -----

// layer_norm, constraint 1
func.func @layer_norm_with_a_short_gamma(%x: tensor<?x8x16xf32>, %g: tensor<15xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'gamma' of shape [16], found [15]}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<15xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// layer_norm, constraint 1
func.func @layer_norm_with_a_short_beta(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<15xf32>) {
  // expected-error@below {{expected 'beta' of shape [16], found [15]}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<15xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// layer_norm, constraint 1
func.func @layer_norm_of_a_number(%x: tensor<f32>, %g: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'x' of rank >= 1, found 'tensor<f32>'}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<f32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<2xf32>)
  return
}

// -----

// layer_norm, constraint 2
func.func @layer_norm_of_another_type(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x17xf32>'}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x17xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// layer_norm, constraint 3
func.func @layer_norm_with_three_statistics(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 2], found [?, 8, 3]}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x3xf32>)
  return
}

// -----

// layer_norm, constraint 4
func.func @layer_norm_without_eps(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'eps' to be positive, found 0}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 0.0 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// layer_norm, constraint 5
func.func @layer_norm_with_statistics_of_another_type(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of element type 'f32', found 'f64'}}
  %0, %1 = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf64>)
  return
}

// -----

// layer_norm_grad, constraint 1
func.func @layer_norm_grad_of_another_dx(%d: tensor<?x8x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dx' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x17xf32>'}}
  %0, %1, %2 = nn.layer_norm_grad %d, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x17xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

// layer_norm_grad, constraint 1
func.func @layer_norm_grad_of_another_dy(%d: tensor<?x8x17xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dy' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x17xf32>'}}
  %0, %1, %2 = nn.layer_norm_grad %d, %x, %s, %g : (tensor<?x8x17xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

// layer_norm_grad, constraint 2
func.func @layer_norm_grad_of_a_short_dgamma(%d: tensor<?x8x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dgamma' of shape [16], found [15]}}
  %0, %1, %2 = nn.layer_norm_grad %d, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<15xf32>, tensor<16xf32>)
  return
}

// -----

// layer_norm_grad, constraint 3
func.func @layer_norm_grad_of_three_statistics(%d: tensor<?x8x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x3xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 2], found [?, 8, 3]}}
  %0, %1, %2 = nn.layer_norm_grad %d, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x3xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

// gelu, constraint 1
func.func @gelu_of_another_type(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.gelu %x : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// gelu_grad, constraint 1
func.func @gelu_grad_of_another_dy(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'dy' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.gelu_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// gelu_grad, constraint 1
func.func @gelu_grad_of_another_dx(%x: tensor<?x8x16xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dx' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.gelu_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// bias_gelu, constraint 1
func.func @bias_gelu_of_another_width(%x: tensor<?x8x16xf32>, %b: tensor<8xf32>) {
  // expected-error@below {{expected the shape of 'bias' to be a trailing part of [?, 8, 16], found [8]}}
  %0, %1 = nn.bias_gelu %x, %b : (tensor<?x8x16xf32>, tensor<8xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>)
  return
}

// -----

// bias_gelu, constraint 2
func.func @bias_gelu_of_another_pre(%x: tensor<?x8x16xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'pre' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0, %1 = nn.bias_gelu %x, %b : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x15xf32>, tensor<?x8x16xf32>)
  return
}

// -----

// linear_gelu, constraint 1
func.func @linear_gelu_of_another_contraction(%x: tensor<?x8x16xf32>, %w: tensor<15x4xf32>, %b: tensor<4xf32>) {
  // expected-error@below {{expected the contracted dimension of 'w' to be 16, found 15}}
  %0 = nn.linear_gelu %x, %w, %b : (tensor<?x8x16xf32>, tensor<15x4xf32>, tensor<4xf32>) -> tensor<?x8x4xf32>
  return
}

// -----

// linear_gelu, constraint 2
func.func @linear_gelu_of_another_output(%x: tensor<?x8x16xf32>, %w: tensor<16x3x4xf32>, %b: tensor<3x4xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 8, 3, 4], found [?, 8, 12]}}
  %0 = nn.linear_gelu %x, %w, %b : (tensor<?x8x16xf32>, tensor<16x3x4xf32>, tensor<3x4xf32>) -> tensor<?x8x12xf32>
  return
}

// -----

// linear_gelu, constraint 2
func.func @linear_gelu_of_another_pre(%x: tensor<?x8x16xf32>, %w: tensor<16x4xf32>, %b: tensor<4xf32>) {
  // expected-error@below {{expected 'pre' of type 'tensor<?x8x4xf32>', found 'tensor<?x8x5xf32>'}}
  %0, %1 = nn.linear_gelu %x, %w, %b : (tensor<?x8x16xf32>, tensor<16x4xf32>, tensor<4xf32>) -> (tensor<?x8x4xf32>, tensor<?x8x5xf32>)
  return
}

// -----

// linear_gelu, constraint 3
func.func @linear_gelu_with_another_bias(%x: tensor<?x8x16xf32>, %w: tensor<16x3x4xf32>, %b: tensor<4xf32>) {
  // expected-error@below {{expected 'bias' of shape [3, 4], found [4]}}
  %0 = nn.linear_gelu %x, %w, %b : (tensor<?x8x16xf32>, tensor<16x3x4xf32>, tensor<4xf32>) -> tensor<?x8x3x4xf32>
  return
}

// -----

// linear_gelu_grad, constraint 1
func.func @linear_gelu_grad_of_another_gradient(%d: tensor<?x8x5xf32>, %w: tensor<16x4xf32>, %x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dy' to end in [4], found [?, 8, 5]}}
  %0 = nn.linear_gelu_grad %d, %w, %x : (tensor<?x8x5xf32>, tensor<16x4xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// linear_gelu_grad, constraint 2
func.func @linear_gelu_grad_of_another_input(%d: tensor<?x8x4xf32>, %w: tensor<16x4xf32>, %x: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'dx' of shape [?, 8, 16], found [?, 8, 15]}}
  %0 = nn.linear_gelu_grad %d, %w, %x : (tensor<?x8x4xf32>, tensor<16x4xf32>, tensor<?x8x15xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// linear_gelu_grad, constraint 3
func.func @linear_gelu_grad_at_another_place(%d: tensor<?x8x4xf32>, %w: tensor<16x4xf32>, %x: tensor<?x9x16xf32>) {
  // expected-error@below {{expected 'x' of type 'tensor<?x8x16xf32>', found 'tensor<?x9x16xf32>'}}
  %0 = nn.linear_gelu_grad %d, %w, %x : (tensor<?x8x4xf32>, tensor<16x4xf32>, tensor<?x9x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// linear_weight_bias_grad, constraint 1
func.func @linear_weight_bias_grad_of_other_rows(%x: tensor<?x8x16xf32>, %d: tensor<?x9x4xf32>) {
  // expected-error@below {{expected 'dy' to start with [?, 8], found [?, 9, 4]}}
  %0, %1 = nn.linear_weight_bias_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x9x4xf32>) -> (tensor<16x4xf32>, tensor<4xf32>)
  return
}

// -----

// linear_weight_bias_grad, constraint 2
func.func @linear_weight_bias_grad_in_another_order(%x: tensor<?x8x16xf32>, %d: tensor<?x8x4xf32>) {
  // expected-error@below {{expected 'dw' of shape [16, 4], found [4, 16]}}
  %0, %1 = nn.linear_weight_bias_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x8x4xf32>) -> (tensor<4x16xf32>, tensor<4xf32>)
  return
}

// -----

// linear_weight_bias_grad, constraint 3
func.func @linear_weight_bias_grad_of_another_bias(%x: tensor<?x8x16xf32>, %d: tensor<?x8x3x4xf32>) {
  // expected-error@below {{expected 'dbias' of shape [3, 4], found [4]}}
  %0, %1 = nn.linear_weight_bias_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x8x3x4xf32>) -> (tensor<16x3x4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @linear_weight_bias_grad_of_the_wrong_type(%x: tensor<?x8x16xbf16>, %d: tensor<?x8x4xbf16>) {
  // expected-error@below {{expected 'dbias' of element type 'f32', found 'f64'}}
  %0, %1 = nn.linear_weight_bias_grad %x, %d : (tensor<?x8x16xbf16>, tensor<?x8x4xbf16>) -> (tensor<16x4xf32>, tensor<4xf64>)
  return
}

// -----

// add_layer_norm, constraint 1
func.func @add_layer_norm_of_another_residual(%x: tensor<?x8x16xf32>, %r: tensor<?x8x15xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'residual' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0, %1, %2 = nn.add_layer_norm %x, %r, %g, %g {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<?x8x15xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// add_layer_norm, constraint 2
func.func @add_layer_norm_of_another_scale(%x: tensor<?x8x16xf32>, %g: tensor<15xf32>, %b: tensor<16xf32>) {
  // expected-error@below {{expected 'gamma' of shape [16], found [15]}}
  %0, %1, %2 = nn.add_layer_norm %x, %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<15xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// add_layer_norm, constraint 3
func.func @add_layer_norm_of_other_statistics(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 2], found [?, 8, 3]}}
  %0, %1, %2 = nn.add_layer_norm %x, %x, %g, %g {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x3xf32>)
  return
}

// -----

// add_layer_norm, constraint 4
func.func @add_layer_norm_without_eps(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'eps' to be positive, found 0.0}}
  %0, %1, %2 = nn.add_layer_norm %x, %x, %g, %g {eps = 0.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// add_layer_norm, constraint 5
func.func @add_layer_norm_that_drops_all(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'p' in [0, 1), found 1.0}}
  %0, %1, %2 = nn.add_layer_norm %x, %x, %g, %g {eps = 1.0e-5 : f64, p = 1.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// add_layer_norm, constraint 6
func.func @add_layer_norm_of_a_vector(%x: tensor<16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'x' of rank >= 2, found 'tensor<16xf32>'}}
  %0, %1, %2 = nn.add_layer_norm %x, %x, %g, %g {eps = 1.0e-5 : f64} : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<2xf32>)
  return
}

// -----

// layer_norm_add_grad, constraint 1
func.func @layer_norm_add_grad_of_another_residual(%x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>, %r: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'residual' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0, %1, %2 = nn.layer_norm_add_grad %x, %x, %s, %g, %r : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>, tensor<?x8x15xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

// layer_norm_add_grad, constraint 2
func.func @layer_norm_add_grad_of_another_scale(%x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dgamma' of shape [16], found [15]}}
  %0, %1, %2 = nn.layer_norm_add_grad %x, %x, %s, %g, %x : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<15xf32>, tensor<16xf32>)
  return
}

// -----

// layer_norm_add_grad, constraint 3
func.func @layer_norm_add_grad_of_other_statistics(%x: tensor<?x8x16xf32>, %s: tensor<?x8x3xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 2], found [?, 8, 3]}}
  %0, %1, %2 = nn.layer_norm_add_grad %x, %x, %s, %g, %x : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x3xf32>, tensor<16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

// attention, constraint 1
func.func @attention_of_rank_3(%q: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'qkv' of shape [samples, positions, 3, heads * head size], found [?, 8, 16]}}
  %0, %1 = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 1
func.func @attention_of_two_parts(%q: tensor<?x8x2x16xf32>) {
  // expected-error@below {{expected 'qkv' of shape [samples, positions, 3, heads * head size], found [?, 8, 2, 16]}}
  %0, %1 = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x2x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 2
func.func @attention_of_five_heads(%q: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'heads' to divide 16, found 5}}
  %0, %1 = nn.attention %q {heads = 5 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x5x8xf32>)
  return
}

// -----

// attention, constraint 2
func.func @attention_of_no_heads(%q: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'heads' to divide 16, found 0}}
  %0, %1 = nn.attention %q {heads = 0 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 3
func.func @attention_of_another_output(%q: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'o' of shape [?, 8, 16], found [?, 8, 48]}}
  %0, %1 = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x48xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 4
func.func @attention_of_another_lse(%q: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 4, 8], found [?, 8, 4]}}
  %0, %1 = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x4xf32>)
  return
}

// -----

// attention, constraint 5
func.func @attention_dropping_all(%q: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found 1}}
  %0, %1 = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64, dropout = 1.0 : f64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention_grad, constraint 1
func.func @attention_grad_of_two_parts(%q: tensor<?x8x2x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'qkv' of shape [samples, positions, 3, heads * head size], found [?, 8, 2, 16]}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x2x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>) -> tensor<?x8x2x16xf32>
  return
}

// -----

// attention_grad, constraint 2
func.func @attention_grad_of_five_heads(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'heads' to divide 16, found 5}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 5 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// attention_grad, constraint 3
func.func @attention_grad_of_another_output(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x15xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'o' of shape [?, 8, 16], found [?, 8, 15]}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x15xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// attention_grad, constraint 3
func.func @attention_grad_of_another_dout(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'dout' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x15xf32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// attention_grad, constraint 4
func.func @attention_grad_of_another_lse(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x8x4xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 4, 8], found [?, 8, 4]}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x8x4xf32>, tensor<?x8x16xf32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// attention_grad, constraint 5
func.func @attention_grad_of_another_dqkv(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dqkv' of type 'tensor<?x8x3x16xf32>', found 'tensor<?x8x3x15xf32>'}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>) -> tensor<?x8x3x15xf32>
  return
}

// -----

// attention_grad, constraint 6
func.func @attention_grad_dropping_less_than_nothing(%q: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %l: tensor<?x4x8xf32>, %d: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found -1.0}}
  %0 = nn.attention_grad %q, %o, %l, %d {heads = 4 : i64, causal, scale = 0.5 : f64, dropout = -0.1 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// dropout, constraint 1
func.func @dropout_of_another_type(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.dropout %x {p = 0.1 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// dropout, constraint 2
func.func @dropout_of_everything(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'p' in [0, 1), found 1}}
  %0 = nn.dropout %x {p = 1.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// dropout, constraint 3
func.func @dropout_of_a_vector(%x: tensor<?xf32>) {
  // expected-error@below {{expected 'x' of rank >= 2, found 'tensor<?xf32>'}}
  %0 = nn.dropout %x {p = 0.1 : f64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// dropout_add, constraint 1
func.func @dropout_add_of_another_residual(%x: tensor<?x8x16xf32>, %r: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'residual' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.dropout_add %x, %r {p = 0.1 : f64} : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// dropout_add, constraint 2
func.func @dropout_add_of_less_than_nothing(%x: tensor<?x8x16xf32>, %r: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'p' in [0, 1), found -5.0}}
  %0 = nn.dropout_add %x, %r {p = -0.5 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// dropout_add, constraint 3
func.func @dropout_add_of_a_vector(%x: tensor<?xf32>) {
  // expected-error@below {{expected 'x' of rank >= 2, found 'tensor<?xf32>'}}
  %0 = nn.dropout_add %x, %x {p = 0.1 : f64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// add, constraint 1
func.func @add_of_two_types(%x: tensor<?x8x16xf32>, %r: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'b' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %0 = nn.add %x, %r : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// cross_entropy, constraint 1
func.func @cross_entropy_of_other_labels(%l: tensor<?x8x33xf32>, %t: tensor<?x9xi32>) {
  // expected-error@below {{expected 'labels' of shape [?, 8], found [?, 9]}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x9xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 1
func.func @cross_entropy_of_a_number(%l: tensor<f32>, %t: tensor<i32>) {
  // expected-error@below {{expected 'logits' of rank >= 1, found 'tensor<f32>'}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64} : (tensor<f32>, tensor<i32>) -> (tensor<1xf64>, tensor<f32>)
  return
}

// -----

// cross_entropy, constraint 2
func.func @cross_entropy_of_another_gradient(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'dlogits' of type 'tensor<?x8x33xf32>', found 'tensor<?x8x16xf32>'}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x16xf32>)
  return
}

// -----

// cross_entropy, constraint 3
func.func @cross_entropy_of_two_losses(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'loss' of shape [1], found [2]}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<2xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 3
func.func @cross_entropy_with_a_z_loss_of_one_loss(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'loss' of shape [2], found [1]}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64, z_loss = 1.0e-4 : f64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 4
func.func @cross_entropy_of_too_few_logits(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'logits' of 34 classes, found 33}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 34 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 5
func.func @cross_entropy_of_other_statistics(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>, %s: tensor<?x8x3xf32>) {
  // expected-error@below {{expected 'stats' of shape [shards, ?, 8, 3], found [?, 8, 3]}}
  %0, %1 = nn.cross_entropy %l, %t stats %s {classes = 65 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>, tensor<?x8x3xf32>) -> (tensor<1xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 5
func.func @cross_entropy_with_smoothing_of_three_statistics(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>, %s: tensor<2x?x8x3xf32>) {
  // expected-error@below {{expected 'stats' of shape [shards, ?, 8, 4], found [2, ?, 8, 3]}}
  %0, %1 = nn.cross_entropy %l, %t stats %s {classes = 65 : i64, smoothing = 1.0e-1 : f64} : (tensor<?x8x33xf32>, tensor<?x8xi32>, tensor<2x?x8x3xf32>) -> (tensor<2xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// cross_entropy, constraint 6
func.func @cross_entropy_with_nothing_of_the_label(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'smoothing' from 0 to below 1 and 'z_loss' of at least 0, found 1.000000e+00 and 0.000000e+00}}
  %0, %1 = nn.cross_entropy %l, %t {classes = 33 : i64, smoothing = 1.0 : f64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> (tensor<2xf64>, tensor<?x8x33xf32>)
  return
}

// -----

// softmax_stats, constraint 1
func.func @softmax_stats_of_other_labels(%l: tensor<?x8x33xf32>, %t: tensor<?x9xi32>) {
  // expected-error@below {{expected 'labels' of shape [?, 8], found [?, 9]}}
  %0 = nn.softmax_stats %l, %t {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x9xi32>) -> tensor<?x8x3xf32>
  return
}

// -----

// softmax_stats, constraint 2
func.func @softmax_stats_with_a_total_of_three_numbers(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 4], found [?, 8, 3]}}
  %0 = nn.softmax_stats %l, %t {classes = 33 : i64, total} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> tensor<?x8x3xf32>
  return
}

// -----

// softmax_stats, constraint 2
func.func @softmax_stats_of_two_numbers(%l: tensor<?x8x33xf32>, %t: tensor<?x8xi32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 3], found [?, 8, 2]}}
  %0 = nn.softmax_stats %l, %t {classes = 33 : i64} : (tensor<?x8x33xf32>, tensor<?x8xi32>) -> tensor<?x8x2xf32>
  return
}

// -----

// Sums over samples have the accumulator type.
func.func @weight_gradient_in_single_precision(%x: tensor<?x8x16xf64>, %d: tensor<?x8x4xf64>) {
  // expected-error@below {{expected 'dw' of element type 'f64', found 'f32'}}
  %0 = nn.linear_weight_grad %x, %d : (tensor<?x8x16xf64>, tensor<?x8x4xf64>) -> tensor<16x4xf32>
  return
}

// -----

func.func @position_gradient_in_double_precision(%d: tensor<?x8x16xbf16>) {
  // expected-error@below {{expected 'dtable' of element type 'f32', found 'f64'}}
  %0 = nn.position_grad %d : (tensor<?x8x16xbf16>) -> tensor<12x16xf64>
  return
}
