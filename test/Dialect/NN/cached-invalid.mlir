// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// cached_attention, constraint 1
func.func @parts(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'qkv', or 'q', 'k' and 'v', found 2 operands in front of 'keys'}}
  %o = nn.cached_attention %qkv, %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 1
func.func @positions(%qkv: tensor<?x2x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'qkv' of shape}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x2x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 2
func.func @key_heads(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected key heads to divide the 3 heads, found 2}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 3 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 3
func.func @caches_that_are_made(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  %s = nn.scale %k {factor = 2.0 : f64} : (tensor<3x2x6x4xf32>) -> tensor<3x2x6x4xf32>
  // expected-error@below {{expected 'keys' and 'values' to be arguments, which stay, found a result of 'nn.scale'}}
  %o = nn.cached_attention %qkv keys %s values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 3
func.func @other_values(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x7x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'values'}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x7x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 4
func.func @rows(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x2xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'rows' of shape}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x2xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 5
func.func @output(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x9xf32> {
  // expected-error@below {{expected 'o' of shape}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x9xf32>
  return %o : tensor<?x1x9xf32>
}

// -----

// cached_attention, constraint 6
func.func @window(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'window' between 0 and the 6 places, found 7}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64, window = 7 : i64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 6
func.func @cap(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'cap' to be 0 or positive}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64, cap = -1.0 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// cached_attention, constraint 6
func.func @distance(%qkv: tensor<?x1x3x8xf32>, %k: tensor<3x2x6x4xf32>, %v: tensor<3x2x6x4xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x8xf32> {
  // expected-error@below {{expected 'distance' to be finite, found INF}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64, distance = 0x7FF0000000000000 : f64} : (tensor<?x1x3x8xf32>, tensor<3x2x6x4xf32>, tensor<3x2x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return %o : tensor<?x1x8xf32>
}

// -----

// embedding, constraint 4
func.func @no_row(%p: tensor<?x1xi32>, %w: tensor<9x4xf32>) {
  // expected-error@below {{expected 'first' to be one of the 9 rows of the table, found 9}}
  %y = nn.embedding %p, %w {first = 9 : i64} : (tensor<?x1xi32>, tensor<9x4xf32>) -> tensor<?x1x4xf32>
  return
}

// -----

// embedding, constraint 4
func.func @first_row_of_a_shard(%p: tensor<?x1xi32>, %w: tensor<9x4xf32>) {
  // expected-error@below {{expected 'first' to be 0 with 'sharded', found 2}}
  %y = nn.embedding %p, %w {first = 2 : i64, sharded} : (tensor<?x1xi32>, tensor<9x4xf32>) -> tensor<?x1x4xf32>
  return
}

// -----

// embedding_grad, constraint 4
func.func @no_row_backward(%p: tensor<?x1xi32>, %w: tensor<9x4xf32>, %y: tensor<?x1x4xf32>) {
  // expected-error@below {{expected 'first' to be one of the 9 rows of the table, found -1}}
  %d = nn.embedding_grad %p, %y, %w {first = -1 : i64} : (tensor<?x1xi32>, tensor<?x1x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return
}

// -----

// cached_attention, constraint 7
func.func @wide_heads(%qkv: tensor<?x1x3x4096xf32>, %k: tensor<3x2x6x2048xf32>, %v: tensor<3x2x6x2048xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>) -> tensor<?x1x4096xf32> {
  // expected-error@below {{expected heads of at most 1024 elements, found 2048}}
  %o = nn.cached_attention %qkv keys %k values %v rows %r at %p {heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x1x3x4096xf32>, tensor<3x2x6x2048xf32>, tensor<3x2x6x2048xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x4096xf32>
  return %o : tensor<?x1x4096xf32>
}

// -----

// rotary, constraint 5
func.func @rotary_at(%x: tensor<?x1x2x2xf32>, %p: tensor<?x2xi32>) {
  // expected-error@below {{expected 'at' of shape}}
  %y = nn.rotary %x at %p {frequencies = array<f64: 1.0>} : (tensor<?x1x2x2xf32>, tensor<?x2xi32>) -> tensor<?x1x2x2xf32>
  return
}

// -----

// cached_attention, constraint 8
func.func @few_distances(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %b: tensor<?x4x9xf32>) {
  // expected-error@below {{expected 'bias' of a multiple of the 4 heads and an odd number of at least 11 distances, found 4 and 9}}
  %o = nn.cached_attention %q, %n, %n keys %k values %v rows %r at %r bias %b {heads = 4 : i64, scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x4x9xf32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_attention, constraint 8
func.func @even_distances(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %b: tensor<?x4x12xf32>) {
  // expected-error@below {{an odd number of at least 11 distances, found 4 and 12}}
  %o = nn.cached_attention %q, %n, %n keys %k values %v rows %r at %r bias %b {heads = 4 : i64, scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x4x12xf32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_attention, constraint 8
func.func @heads_of_a_bias(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %b: tensor<?x6x11xf32>) {
  // expected-error@below {{expected 'bias' of a multiple of the 4 heads}}
  %o = nn.cached_attention %q, %n, %n keys %k values %v rows %r at %r bias %b {heads = 4 : i64, scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x6x11xf32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_attention, constraint 8
func.func @window_and_bias(%q: tensor<?x1x4x2xf32>, %n: tensor<?x1x2x2xf32>, %k: tensor<3x2x6x2xf32>, %v: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %b: tensor<?x4x11xf32>) {
  // expected-error@below {{expected no window, cap or distance beside 'bias'}}
  %o = nn.cached_attention %q, %n, %n keys %k values %v rows %r at %r bias %b {heads = 4 : i64, scale = 1.0 : f64, window = 3 : i64} : (tensor<?x1x4x2xf32>, tensor<?x1x2x2xf32>, tensor<?x1x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x4x11xf32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 1
func.func @two_queries(%q: tensor<?x2x4x2xf32>, %k: tensor<?x6x2x2xf32>, %v: tensor<?x6x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected 'q' of shape}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x2x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 2
func.func @few_keys(%q: tensor<?x1x4x2xf32>, %k: tensor<?x5x2x2xf32>, %v: tensor<?x5x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected 'k' of shape}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x5x2x2xf32>, tensor<?x5x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 2
func.func @other_values_of_a_source(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x2x2xf32>, %v: tensor<?x6x2x3xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected 'v'}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x3xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 2
func.func @heads_of_a_source(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x3x2xf32>, %v: tensor<?x6x3x2xf32>, %ks: tensor<3x3x6x2xf32>, %vs: tensor<3x3x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected key heads to divide the 4 heads, found 3}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x3x2xf32>, tensor<?x6x3x2xf32>, tensor<3x3x6x2xf32>, tensor<3x3x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 3
func.func @other_kept_values(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x2x2xf32>, %v: tensor<?x6x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x7x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected 'values'}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x7x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 4
func.func @two_lengths(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x2x2xf32>, %v: tensor<?x6x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x2xi32>) {
  // expected-error@below {{expected 'lengths' of shape}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x2xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// cached_cross_attention, constraint 5
func.func @wide_result(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x2x2xf32>, %v: tensor<?x6x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %vs: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected 'o' of shape}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x9xf32>
  return
}

// -----

// cached_cross_attention, constraint 6
func.func @wide_heads_of_a_source(%q: tensor<?x1x4x2048xf32>, %k: tensor<?x6x2x2048xf32>, %v: tensor<?x6x2x2048xf32>, %ks: tensor<3x2x6x2048xf32>, %vs: tensor<3x2x6x2048xf32>, %r: tensor<?x1xi32>, %l: tensor<?x1xi32>) {
  // expected-error@below {{expected heads of at most 1024 elements, found 2048}}
  %o = nn.cached_cross_attention %q, %k, %v keys %ks values %vs begins %r rows %r lengths %l {scale = 1.0 : f64} : (tensor<?x1x4x2048xf32>, tensor<?x6x2x2048xf32>, tensor<?x6x2x2048xf32>, tensor<3x2x6x2048xf32>, tensor<3x2x6x2048xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8192xf32>
  return
}

// -----

// cached_cross_attention, constraint 3
func.func @made_keys(%q: tensor<?x1x4x2xf32>, %k: tensor<?x6x2x2xf32>, %ks: tensor<3x2x6x2xf32>, %r: tensor<?x1xi32>) {
  %made = nn.scale %ks {factor = 2.0 : f64} : (tensor<3x2x6x2xf32>) -> tensor<3x2x6x2xf32>
  // expected-error@below {{expected 'keys' and 'values' to be arguments, which stay, found a result of 'nn.scale'}}
  %o = nn.cached_cross_attention %q, %k, %k keys %made values %ks begins %r rows %r lengths %r {scale = 1.0 : f64} : (tensor<?x1x4x2xf32>, tensor<?x6x2x2xf32>, tensor<?x6x2x2xf32>, tensor<3x2x6x2xf32>, tensor<3x2x6x2xf32>, tensor<?x1xi32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x8xf32>
  return
}

// -----

// expected-error@below {{expected 'nn.made_of' to be 'source' or 'parameters' on an argument of a function, found "words"}}
func.func private @made_of_words(%x: tensor<?x6x2xf32> {nn.made_of = "words"})
