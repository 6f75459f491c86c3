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
