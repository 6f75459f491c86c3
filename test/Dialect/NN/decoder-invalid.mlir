// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// One case for every numbered constraint of these operations in NNOps.td.

// rms_norm, constraint 1
func.func @rms_norm_of_another_width(%x: tensor<?x8x16xf32>, %g: tensor<15xf32>) {
  // expected-error@below {{expected 'gamma' of shape [16], found [15]}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x16xf32>, tensor<15xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x1xf32>)
  return
}

// -----

// rms_norm, constraint 1, over two dimensions
func.func @rms_norm_of_other_heads(%x: tensor<?x8x4x16xf32>, %g: tensor<2x16xf32>) {
  // expected-error@below {{expected 'gamma' of shape [4, 16], found [2, 16]}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x4x16xf32>, tensor<2x16xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x1x1xf32>)
  return
}

// -----

// rms_norm, constraint 1, over more dimensions than there are
func.func @rms_norm_of_a_row(%x: tensor<16xf32>, %g: tensor<1x16xf32>) {
  // expected-error@below {{expected 'gamma' of at most the rank of 'x', 1, found 2}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<16xf32>, tensor<1x16xf32>) -> (tensor<16xf32>, tensor<1xf32>)
  return
}

// -----

// rms_norm, constraint 3, over two dimensions
func.func @rms_norm_with_statistics_of_heads(%x: tensor<?x8x4x16xf32>, %g: tensor<4x16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 1, 1], found [?, 8, 4, 1]}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x4x16xf32>, tensor<4x16xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x4x1xf32>)
  return
}

// -----

// rms_norm, constraint 2
func.func @rms_norm_of_another_type(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x16xf32>', found 'tensor<?x9x16xf32>'}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x9x16xf32>, tensor<?x8x1xf32>)
  return
}

// -----

// rms_norm, constraint 3
func.func @rms_norm_with_two_statistics(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 1], found [?, 8, 2]}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// rms_norm, element types
func.func @rms_norm_with_narrow_statistics(%x: tensor<?x8x16xbf16>, %g: tensor<16xbf16>) {
  // expected-error@below {{op result #1 must be ranked tensor of 32-bit float or 64-bit float values, but got 'tensor<?x8x1xbf16>'}}
  %y, %s = nn.rms_norm %x, %g {eps = 1.0e-6 : f64} : (tensor<?x8x16xbf16>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x8x1xbf16>)
  return
}

// -----

// rms_norm, constraint 4
func.func @rms_norm_without_eps(%x: tensor<?x8x16xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'eps' to be positive, found 0.000000e+00}}
  %y, %s = nn.rms_norm %x, %g {eps = 0.0 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x1xf32>)
  return
}

// -----

// rms_norm_grad, constraint 1
func.func @rms_norm_grad_of_another_type(%d: tensor<?x9x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x1xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dy' of type 'tensor<?x8x16xf32>', found 'tensor<?x9x16xf32>'}}
  %dx, %dg = nn.rms_norm_grad %d, %x, %s, %g : (tensor<?x9x16xf32>, tensor<?x8x16xf32>, tensor<?x8x1xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>)
  return
}

// -----

// rms_norm_grad, constraint 2
func.func @rms_norm_grad_of_another_width(%d: tensor<?x8x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x1xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'dgamma' of shape [16], found [15]}}
  %dx, %dg = nn.rms_norm_grad %d, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x1xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<15xf32>)
  return
}

// -----

// rms_norm_grad, constraint 3
func.func @rms_norm_grad_with_two_statistics(%d: tensor<?x8x16xf32>, %x: tensor<?x8x16xf32>, %s: tensor<?x8x2xf32>, %g: tensor<16xf32>) {
  // expected-error@below {{expected 'stats' of shape [?, 8, 1], found [?, 8, 2]}}
  %dx, %dg = nn.rms_norm_grad %d, %x, %s, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<16xf32>)
  return
}

// -----

// rotary, constraint 1
func.func @rotary_of_rank_3(%x: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'x' of rank 4, found 'tensor<?x8x16xf32>'}}
  %y = nn.rotary %x {frequencies = array<f64: 1.0>} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// rotary, constraint 2
func.func @rotary_of_too_many_pairs(%x: tensor<?x8x6x4xf32>) {
  // expected-error@below {{expected at most 2 frequencies for heads of 4, found 3}}
  %y = nn.rotary %x {frequencies = array<f64: 1.0, 0.5, 0.1>} : (tensor<?x8x6x4xf32>) -> tensor<?x8x6x4xf32>
  return
}

// -----

// rotary, constraint 3
func.func @rotary_with_negative_factor(%x: tensor<?x8x6x4xf32>) {
  // expected-error@below {{expected 'factor' to be positive, found -1.000000e+00}}
  %y = nn.rotary %x {frequencies = array<f64: 1.0>, factor = -1.0 : f64} : (tensor<?x8x6x4xf32>) -> tensor<?x8x6x4xf32>
  return
}

// -----

// rotary, constraint 4
func.func @rotary_of_another_type(%x: tensor<?x8x6x4xf32>) {
  // expected-error@below {{expected 'y' of type 'tensor<?x8x6x4xf32>', found 'tensor<?x8x6x5xf32>'}}
  %y = nn.rotary %x {frequencies = array<f64: 1.0>} : (tensor<?x8x6x4xf32>) -> tensor<?x8x6x5xf32>
  return
}

// -----

// gated_silu, constraint 1
func.func @gated_silu_of_another_type(%g: tensor<?x8x16xf32>, %u: tensor<?x8x15xf32>) {
  // expected-error@below {{expected 'up' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %y = nn.gated_silu %g, %u : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// gated_silu_grad, constraint 1
func.func @gated_silu_grad_of_another_type(%g: tensor<?x8x16xf32>) {
  // expected-error@below {{expected 'dup' of type 'tensor<?x8x16xf32>', found 'tensor<?x8x15xf32>'}}
  %a, %b = nn.gated_silu_grad %g, %g, %g : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x15xf32>)
  return
}

// -----

// grouped_attention, constraint 1
func.func @grouped_attention_of_rank_3(%q: tensor<?x8x24xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x8x2x4xf32>) {
  // expected-error@below {{expected 'q' of rank 4, found 'tensor<?x8x24xf32>'}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x24xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 1
func.func @grouped_attention_of_another_head_size(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x5xf32>, %v: tensor<?x8x2x5xf32>) {
  // expected-error@below {{expected 'k' of shape [?, 8, 2, 4], found [?, 8, 2, 5]}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x5xf32>, tensor<?x8x2x5xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 1
func.func @grouped_attention_with_fewer_values(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x7x2x4xf32>) {
  // expected-error@below {{expected 'v' of type 'tensor<?x8x2x4xf32>', found 'tensor<?x7x2x4xf32>'}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x7x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 2
func.func @grouped_attention_of_uneven_groups(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x4x4xf32>, %v: tensor<?x8x4x4xf32>) {
  // expected-error@below {{expected key heads to divide the 6 heads, found 4}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 3
func.func @grouped_attention_of_another_width(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x8x2x4xf32>) {
  // expected-error@below {{expected 'o' of shape [?, 8, 24], found [?, 8, 23]}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x23xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 4
func.func @grouped_attention_with_statistics_of_key_heads(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x8x2x4xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 6, 8], found [?, 2, 8]}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x2x8xf32>)
  return
}

// -----

// grouped_attention, constraint 5
func.func @grouped_attention_that_drops_all(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x8x2x4xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found 1.000000e+00}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64, dropout = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention, constraint 6
func.func @grouped_attention_in_a_negative_window(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %v: tensor<?x8x2x4xf32>) {
  // expected-error@below {{expected 'window' to be 0 or positive, found -1}}
  %o, %l = nn.grouped_attention %q, %k, %v {causal, scale = 1.0 : f64, window = -1 : i64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 1
func.func @grouped_attention_grad_of_rank_3(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x8xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected 'k' of rank 4, found 'tensor<?x8x8xf32>'}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x8xf32>, tensor<?x8x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 2
func.func @grouped_attention_grad_of_uneven_groups(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x4x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected key heads to divide the 6 heads, found 4}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 3
func.func @grouped_attention_grad_of_another_width(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x23xf32>) {
  // expected-error@below {{expected 'dout' of type 'tensor<?x8x24xf32>', found 'tensor<?x8x23xf32>'}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x23xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 4
func.func @grouped_attention_grad_with_statistics_of_key_heads(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x2x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 6, 8], found [?, 2, 8]}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x2x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 5
func.func @grouped_attention_grad_that_drops_all(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found 1.000000e+00}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64, dropout = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 6
func.func @grouped_attention_grad_in_no_window(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected 'window' to be 0 or positive, found -3}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {scale = 1.0 : f64, window = -3 : i64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 7
func.func @grouped_attention_grad_of_another_type(%q: tensor<?x8x6x4xf32>, %k: tensor<?x8x2x4xf32>, %o: tensor<?x8x24xf32>, %l: tensor<?x6x8xf32>, %d: tensor<?x8x24xf32>) {
  // expected-error@below {{expected 'dv' of type 'tensor<?x8x2x4xf32>', found 'tensor<?x8x6x4xf32>'}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %k, %k, %o, %l, %d {causal, scale = 1.0 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x24xf32>, tensor<?x6x8xf32>, tensor<?x8x24xf32>) -> (tensor<?x8x6x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x6x4xf32>)
  return
}

// -----

// grouped_attention, constraint 11
func.func @negative_cap(%q: tensor<?x8x2x4xf32>) {
  // expected-error @below {{expected 'cap' to be 0 or positive, found -1.000000e+00}}
  %o, %l = nn.grouped_attention %q, %q, %q {causal, scale = 1.0 : f64, cap = -1.0 : f64} : (tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x8xf32>, tensor<?x2x8xf32>)
  return
}

// -----

// grouped_attention, constraint 11
func.func @distances_both_ways(%q: tensor<?x8x2x4xf32>) {
  // expected-error @below {{expected 'causal' beside 'distance'}}
  %o, %l = nn.grouped_attention %q, %q, %q {scale = 1.0 : f64, distance = 1.0 : f64} : (tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>) -> (tensor<?x8x8xf32>, tensor<?x2x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 12
func.func @cap_beside_a_bias(%q: tensor<?x8x2x4xf32>, %o: tensor<?x8x8xf32>, %l: tensor<?x2x8xf32>, %b: tensor<?x2x15xf32>) {
  // expected-error @below {{expected no 'bias' beside 'cap' and 'distance'}}
  %a, %c, %d, %e = nn.grouped_attention_grad %q, %q, %q, %o, %l, %o bias %b {causal, scale = 1.0 : f64, cap = 2.0 : f64} : (tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x8xf32>, tensor<?x2x8xf32>, tensor<?x8x8xf32>, tensor<?x2x15xf32>) -> (tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x8x2x4xf32>, tensor<?x2x15xf32>)
  return
}

// -----

// soft_cap, constraint 1
func.func @soft_cap_of_another_type(%x: tensor<?x8x16xf32>) {
  // expected-error @below {{'y'}}
  %y = nn.soft_cap %x {cap = 1.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// soft_cap, constraint 2
func.func @no_cap(%x: tensor<?x8x16xf32>) {
  // expected-error @below {{expected 'cap' to be positive, found 0.000000e+00}}
  %y = nn.soft_cap %x {cap = 0.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// soft_cap_grad, constraint 1
func.func @soft_cap_grad_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>) {
  // expected-error @below {{'dy'}}
  %y = nn.soft_cap_grad %x, %d {cap = 1.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// soft_cap_grad, constraint 2
func.func @no_cap_grad(%x: tensor<?x8x16xf32>) {
  // expected-error @below {{expected 'cap' to be positive, found -2.000000e+00}}
  %y = nn.soft_cap_grad %x, %x {cap = -2.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// clip, constraint 1
func.func @clip_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'y'}}
  %y = nn.clip %x {limit = 1.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x15xf32>
  return
}

// -----

// clip, constraint 2
func.func @no_limit(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{expected 'limit' to be positive, found 0.000000e+00}}
  %y = nn.clip %x {limit = 0.0 : f64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// clip_grad, constraint 1
func.func @clip_grad_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'dy'}}
  %y = nn.clip_grad %x, %d {limit = 1.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// clip_grad, constraint 2
func.func @no_limit_grad(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{expected 'limit' to be positive, found -1.000000e+00}}
  %y = nn.clip_grad %x, %x {limit = -1.0 : f64} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// column_scale, constraint 1
func.func @column_scale_by_another_width(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'scale'}}
  %y = nn.column_scale %x, %v : (tensor<?x8x16xf32>, tensor<15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// column_scale, constraint 2
func.func @column_scale_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'y'}}
  %y = nn.column_scale %d, %v : (tensor<?x8x15xf32>, tensor<15xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// column_scale_grad, constraint 1
func.func @column_scale_grad_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'x'}}
  %y = nn.column_scale_grad %x, %d : (tensor<?x8x16xf32>, tensor<?x8x15xf32>) -> tensor<16xf32>
  return
}

// -----

// column_scale_grad, constraint 2
func.func @column_scale_grad_of_another_width(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'dscale'}}
  %y = nn.column_scale_grad %x, %x : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<15xf32>
  return
}

// -----

// standardize, constraint 1
func.func @standardize_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'y'}}
  %y, %t = nn.standardize %x {eps = 1.0 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x15xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// standardize, constraint 2
func.func @standardize_with_one_number(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'stats'}}
  %y, %t = nn.standardize %x {eps = 1.0 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x1xf32>)
  return
}

// -----

// standardize, constraint 3
func.func @standardize_without_eps(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{expected 'eps' to be positive}}
  %y, %t = nn.standardize %x {eps = 0.0 : f64} : (tensor<?x8x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return
}

// -----

// standardize_grad, constraint 1
func.func @standardize_grad_of_another_type(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'dy'}}
  %y = nn.standardize_grad %d, %x, %s : (tensor<?x8x15xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf32>) -> tensor<?x8x16xf32>
  return
}

// -----

// standardize_grad, constraint 2
func.func @standardize_grad_of_other_numbers(%x: tensor<?x8x16xf32>, %d: tensor<?x8x15xf32>, %v: tensor<15xf32>, %s: tensor<?x8x2xf32>, %w: tensor<?x8x2xf64>) {
  // expected-error @below {{'stats' of element type}}
  %y = nn.standardize_grad %x, %x, %w : (tensor<?x8x16xf32>, tensor<?x8x16xf32>, tensor<?x8x2xf64>) -> tensor<?x8x16xf32>
  return
}

// -----

// mean, constraint 1
func.func @mean_beside_nothing(%x: tensor<?x1x16xf32>) {
  // expected-error @below {{expected at least two positions, found 1}}
  %y = nn.mean %x {beside_first} : (tensor<?x1x16xf32>) -> tensor<?x32xf32>
  return
}

// -----

// mean, constraint 2
func.func @mean_beside_first_of_one_width(%x: tensor<?x8x16xf32>) {
  // expected-error @below {{'y'}}
  %y = nn.mean %x {beside_first} : (tensor<?x8x16xf32>) -> tensor<?x16xf32>
  return
}
