// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// One case for every numbered constraint of these operations.

// grouped_attention, constraint 8
func.func @bias_of_other_distances(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %b: tensor<?x12x15xf32>) {
  // expected-error@below {{expected 'bias' of shape [?, 12, 16], found [?, 12, 15]}}
  %o, %lse = nn.grouped_attention %q, %k, %k bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x15xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 8
func.func @bias_of_other_heads(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %b: tensor<?x10x16xf32>) {
  // expected-error@below {{expected 'bias' of a multiple of the 6 heads, found 10}}
  %o, %lse = nn.grouped_attention %q, %k, %k bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x10x16xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 8
func.func @bias_without_a_scale(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %b: tensor<?x12x16xf32>) {
  // expected-error@below {{expected a 'scale' other than 0 beside a bias}}
  %o, %lse = nn.grouped_attention %q, %k, %k bias %b {scale = 0.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, types
func.func @bias_of_another_type(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %b: tensor<?x12x16xf64>) {
  // expected-error@below {{expected 'bias' of element type 'f32', found 'f64'}}
  %o, %lse = nn.grouped_attention %q, %k, %k bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf64>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 8
func.func @bias_of_other_distances_backward(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %b: tensor<?x12x15xf32>) {
  // expected-error@below {{expected 'bias' of shape [?, 12, 16], found [?, 12, 15]}}
  %dq, %dk, %dv, %db = nn.grouped_attention_grad %q, %k, %k, %o, %l, %o bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x12x15xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x15xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 9
func.func @bias_without_a_gradient(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %b: tensor<?x12x16xf32>) {
  // expected-error@below {{expected 'dbias' if and only if there is a 'bias'}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %o bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x12x16xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 9
func.func @gradient_without_a_bias(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %b: tensor<?x12x16xf32>) {
  // expected-error@below {{expected 'dbias' if and only if there is a 'bias'}}
  %dq, %dk, %dv, %db = nn.grouped_attention_grad %q, %k, %k, %o, %l, %o {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x12x16xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 9
func.func @gradient_of_other_heads(%q: tensor<?x8x6x4xf32>, %k: tensor<?x9x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %b: tensor<?x12x16xf32>) {
  // expected-error@below {{expected 'dbias' of type 'tensor<?x12x16xf32>', found 'tensor<?x6x16xf32>'}}
  %dq, %dk, %dv, %db = nn.grouped_attention_grad %q, %k, %k, %o, %l, %o bias %b {scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>, tensor<?x12x16xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x9x2x4xf32>, tensor<?x9x2x4xf32>, tensor<?x6x16xf32>)
  return
}

// -----

// relative_bias, constraint 1
func.func @table_of_rank_3(%t: tensor<32x6x1xf32>) {
  // expected-error@below {{expected 'table' of rank 2, found 'tensor<32x6x1xf32>'}}
  %b = nn.relative_bias %t {max_distance = 128 : i64} : (tensor<32x6x1xf32>) -> tensor<?x6x15xf32>
  return
}

// -----

// relative_bias, constraint 1
func.func @one_bucket(%t: tensor<1x6xf32>) {
  // expected-error@below {{expected 2 to 256 buckets, found 1}}
  %b = nn.relative_bias %t {max_distance = 128 : i64} : (tensor<1x6xf32>) -> tensor<?x6x15xf32>
  return
}

// -----

// relative_bias, constraint 1
func.func @three_buckets_both_ways(%t: tensor<3x6xf32>) {
  // expected-error@below {{expected 4 to 256 buckets, found 3}}
  %b = nn.relative_bias %t {bidirectional, max_distance = 128 : i64} : (tensor<3x6xf32>) -> tensor<?x6x15xf32>
  return
}

// -----

// relative_bias, constraint 1
func.func @too_many_buckets(%t: tensor<257x6xf32>) {
  // expected-error@below {{expected 2 to 256 buckets, found 257}}
  %b = nn.relative_bias %t {max_distance = 500 : i64} : (tensor<257x6xf32>) -> tensor<?x6x15xf32>
  return
}

// -----

// relative_bias, constraint 2
func.func @rows_of_other_heads(%t: tensor<32x6xf32>) {
  // expected-error@below {{expected 'bias' of shape [?, 6, 15], found [?, 5, 15]}}
  %b = nn.relative_bias %t {max_distance = 128 : i64} : (tensor<32x6xf32>) -> tensor<?x5x15xf32>
  return
}

// -----

// relative_bias, constraint 2
func.func @an_even_number_of_distances(%t: tensor<32x6xf32>) {
  // expected-error@below {{expected 'bias' of an odd number of distances, found 16}}
  %b = nn.relative_bias %t {max_distance = 128 : i64} : (tensor<32x6xf32>) -> tensor<?x6x16xf32>
  return
}

// -----

// relative_bias, constraint 3
func.func @a_distance_among_the_near_ones(%t: tensor<32x6xf32>) {
  // expected-error@below {{expected 'max_distance' of more than 16, found 16}}
  %b = nn.relative_bias %t {max_distance = 16 : i64} : (tensor<32x6xf32>) -> tensor<?x6x15xf32>
  return
}

// -----

// relative_bias_grad, constraint 1
func.func @table_of_rank_3_backward(%b: tensor<?x6x15xf32>) {
  // expected-error@below {{expected 'dtable' of rank 2, found 'tensor<32x6x1xf32>'}}
  %t = nn.relative_bias_grad %b {max_distance = 128 : i64} : (tensor<?x6x15xf32>) -> tensor<32x6x1xf32>
  return
}

// -----

// relative_bias_grad, constraint 1
func.func @one_bucket_backward(%b: tensor<?x6x15xf32>) {
  // expected-error@below {{expected 2 to 256 buckets, found 1}}
  %t = nn.relative_bias_grad %b {max_distance = 128 : i64} : (tensor<?x6x15xf32>) -> tensor<1x6xf32>
  return
}

// -----

// relative_bias_grad, constraint 1
func.func @three_buckets_both_ways_backward(%b: tensor<?x6x15xf32>) {
  // expected-error@below {{expected 4 to 256 buckets, found 3}}
  %t = nn.relative_bias_grad %b {bidirectional, max_distance = 128 : i64} : (tensor<?x6x15xf32>) -> tensor<3x6xf32>
  return
}

// -----

// relative_bias_grad, constraint 1
func.func @too_many_buckets_backward(%b: tensor<?x6x15xf32>) {
  // expected-error@below {{expected 2 to 256 buckets, found 257}}
  %t = nn.relative_bias_grad %b {max_distance = 500 : i64} : (tensor<?x6x15xf32>) -> tensor<257x6xf32>
  return
}

// -----

// relative_bias_grad, constraint 2
func.func @rows_of_other_heads_backward(%b: tensor<?x5x15xf32>) {
  // expected-error@below {{expected 'dbias' of shape [?, 6, 15], found [?, 5, 15]}}
  %t = nn.relative_bias_grad %b {max_distance = 128 : i64} : (tensor<?x5x15xf32>) -> tensor<32x6xf32>
  return
}

// -----

// relative_bias_grad, constraint 2
func.func @an_even_number_of_distances_backward(%b: tensor<?x6x16xf32>) {
  // expected-error@below {{expected 'dbias' of an odd number of distances, found 16}}
  %t = nn.relative_bias_grad %b {max_distance = 128 : i64} : (tensor<?x6x16xf32>) -> tensor<32x6xf32>
  return
}

// -----

// relative_bias_grad, constraint 3
func.func @a_distance_among_the_near_ones_backward(%b: tensor<?x6x15xf32>) {
  // expected-error@below {{expected 'max_distance' of more than 16, found 16}}
  %t = nn.relative_bias_grad %b {max_distance = 16 : i64} : (tensor<?x6x15xf32>) -> tensor<32x6xf32>
  return
}

// -----

// gated_gelu, constraint 1
func.func @gated_gelu_of_another_type(%g: tensor<?x8x16xf32>, %u: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'up' of type}}
  %y = nn.gated_gelu %g, %u : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// gated_gelu_grad, constraint 1
func.func @gated_gelu_grad_of_another_type(%g: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dup' of type}}
  %a, %b = nn.gated_gelu_grad %g, %g, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x15xf32>)
  return
}

// -----

// relu, constraint 1
func.func @relu_to_another_type(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'y' of type}}
  %y = nn.relu %x : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// relu_grad, constraint 1
func.func @relu_grad_of_another_type(%y: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'dy' of type}}
  %dx = nn.relu_grad %y, %d : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// scale, constraint 1
func.func @scale_to_another_type(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'y' of type}}
  %y = nn.scale %x {factor = 2.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}
