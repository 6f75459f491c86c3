// RUN: galvatron-opt %s -split-input-file "--galvatron-keep-keys=rows=3 length=6" -verify-diagnostics | FileCheck %s

// Samples have one position; attention writes to caches, which are parameters of
// its layer, and learnt positions are rows of their table. Dropout is gone.

// CHECK-LABEL: func.func private @embed(%arg0: tensor<?x1xi32>, %arg1: tensor<?x1xi32>, %arg2: tensor<9x4xf32> {nn.frozen}, %arg3: tensor<8x4xf32> {nn.frozen})
// CHECK: %[[WORDS:.*]] = nn.embedding %arg0, %arg2
// CHECK: %[[PLACES:.*]] = nn.embedding %arg1, %arg3
// CHECK: nn.add %[[WORDS]], %[[PLACES]]
// CHECK-NOT: nn.dropout
// CHECK-LABEL: func.func private @block(%arg0: tensor<?x1x4xf32> {nn.frozen}, %arg1: tensor<?x1xi32>, %arg2: tensor<?x1xi32>, %arg3: tensor<4x3x4xf32> {nn.factors = ["", "", "heads"], nn.frozen}, %arg4: tensor<3x2x6x2xf32> {nn.factors = ["", "heads", "", ""], nn.frozen}, %arg5: tensor<3x2x6x2xf32> {nn.factors = ["", "heads", "", ""], nn.frozen})
// CHECK: nn.cached_attention %{{.*}} keys %arg4 values %arg5 rows %arg1 at %arg2 {heads = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK-SAME: -> tensor<?x1x4xf32>
// CHECK-LABEL: func.func private @head(%arg0: tensor<?x1x4xf32> {nn.frozen}, %arg1: tensor<?x1xi32>, %arg2: tensor<9x4xf32> {nn.frozen})
// CHECK: galvatron.parameter @h.0.cache.keys : tensor<3x2x6x2xf32> {frozen, init = "cache"}
// CHECK: galvatron.model @m(%tokens: tensor<?x1xi32> is <tokens, below = 9>, %labels: {{.*}}, %cache_rows: tensor<?x1xi32> is <cache_rows, below = 3>, %positions: tensor<?x1xi32> is <positions, below = 6>)
// CHECK: galvatron.layer "embed" @embed(%tokens, %positions)
// CHECK: galvatron.layer "h.0" @block(%{{.*}}, %cache_rows, %positions) params [@qkv.0, @h.0.cache.keys, @h.0.cache.values]
// CHECK: galvatron.layer "h.1" @block(%{{.*}}, %cache_rows, %positions) params [@qkv.1, @h.1.cache.keys, @h.1.cache.values]
// CHECK: galvatron.layer "head" @head(%{{.*}}, %labels) params
galvatron.parameter @words : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @places : tensor<8x4xf32> {init = "zeros"}
galvatron.parameter @qkv.0 : tensor<4x3x4xf32> {init = "zeros"}
galvatron.parameter @qkv.1 : tensor<4x3x4xf32> {init = "zeros"}
galvatron.parameter @out : tensor<9x4xf32> {init = "zeros"}
func.func private @embed(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>, %p: tensor<8x4xf32>) -> tensor<?x8x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  %1 = nn.position_add %0, %p : (tensor<?x8x4xf32>, tensor<8x4xf32>) -> tensor<?x8x4xf32>
  %2 = nn.dropout %1 {p = 0.1 : f64} : (tensor<?x8x4xf32>) -> tensor<?x8x4xf32>
  return %2 : tensor<?x8x4xf32>
}
func.func private @block(%x: tensor<?x8x4xf32>, %w: tensor<4x3x4xf32> {nn.factors = ["", "", "heads"]}) -> tensor<?x8x4xf32> attributes {nn.factor_units = {heads = 2 : i64}} {
  %0 = nn.linear %x, %w : (tensor<?x8x4xf32>, tensor<4x3x4xf32>) -> tensor<?x8x3x4xf32>
  %o, %lse = nn.attention %0 {causal, heads = 2 : i64, scale = 0.5 : f64} : (tensor<?x8x3x4xf32>) -> (tensor<?x8x4xf32>, tensor<?x2x8xf32>)
  return %o : tensor<?x8x4xf32>
}
func.func private @head(%x: tensor<?x8x4xf32>, %l: tensor<?x8xi32>, %w: tensor<9x4xf32>) -> tensor<1xf64> {
  %0 = nn.linear %x, %w {transpose_weight} : (tensor<?x8x4xf32>, tensor<9x4xf32>) -> tensor<?x8x9xf32>
  %loss, %d = nn.cross_entropy %0, %l {classes = 9 : i64} : (tensor<?x8x9xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x9xf32>)
  return %loss : tensor<1xf64>
}
galvatron.model @m(%tokens: tensor<?x8xi32> is <tokens, below = 9>, %labels: tensor<?x8xi32> is <labels, below = 9>) {
  %0 = galvatron.layer "embed" @embed(%tokens) params [@words, @places] : (tensor<?x8xi32>) -> tensor<?x8x4xf32>
  %1 = galvatron.layer "h.0" @block(%0) params [@qkv.0] : (tensor<?x8x4xf32>) -> tensor<?x8x4xf32>
  %2 = galvatron.layer "h.1" @block(%1) params [@qkv.1] : (tensor<?x8x4xf32>) -> tensor<?x8x4xf32>
  %3 = galvatron.layer "head" @head(%2, %labels) params [@out] : (tensor<?x8x4xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %3 : tensor<1xf64>
}

// -----

// Rotations are of given positions; a window has as many places, one that no
// position leaves has all of them.

// CHECK-LABEL: func.func private @grouped(
// CHECK: nn.rotary %{{.*}} at %arg2
// CHECK: nn.cached_attention %{{.*}}, %{{.*}}, %{{.*}} keys %arg6 values %arg7 rows %arg1 at %arg2 {heads = 4 : i64, scale = 1.000000e+00 : f64, window = 3 : i64}
// CHECK-SAME: tensor<3x2x3x2xf32>
// CHECK: nn.cached_attention %{{.*}}, %{{.*}}, %{{.*}} keys %arg8 values %arg9 rows %arg1 at %arg2 {cap = 2.000000e+00 : f64, heads = 4 : i64, scale = 1.000000e+00 : f64}
// CHECK-SAME: tensor<3x2x6x2xf32>
galvatron.parameter @q : tensor<4x2x8xf32> {init = "zeros"}
galvatron.parameter @k : tensor<2x2x8xf32> {init = "zeros"}
galvatron.parameter @v : tensor<2x2x8xf32> {init = "zeros"}
func.func private @grouped(%x: tensor<?x8x8xf32>, %wq: tensor<4x2x8xf32>, %wk: tensor<2x2x8xf32>, %wv: tensor<2x2x8xf32>) -> tensor<?x8x8xf32> {
  %q = nn.linear %x, %wq {transpose_weight} : (tensor<?x8x8xf32>, tensor<4x2x8xf32>) -> tensor<?x8x4x2xf32>
  %k = nn.linear %x, %wk {transpose_weight} : (tensor<?x8x8xf32>, tensor<2x2x8xf32>) -> tensor<?x8x2x2xf32>
  %v = nn.linear %x, %wv {transpose_weight} : (tensor<?x8x8xf32>, tensor<2x2x8xf32>) -> tensor<?x8x2x2xf32>
  %r = nn.rotary %k {frequencies = array<f64: 1.0>} : (tensor<?x8x2x2xf32>) -> tensor<?x8x2x2xf32>
  %o, %lse = nn.grouped_attention %q, %r, %v {causal, window = 3 : i64, scale = 1.0 : f64} : (tensor<?x8x4x2xf32>, tensor<?x8x2x2xf32>, tensor<?x8x2x2xf32>) -> (tensor<?x8x8xf32>, tensor<?x4x8xf32>)
  %p, %lsf = nn.grouped_attention %q, %r, %v {causal, window = 7 : i64, scale = 1.0 : f64, cap = 2.0 : f64} : (tensor<?x8x4x2xf32>, tensor<?x8x2x2xf32>, tensor<?x8x2x2xf32>) -> (tensor<?x8x8xf32>, tensor<?x4x8xf32>)
  %s = nn.add %o, %p : (tensor<?x8x8xf32>, tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  return %s : tensor<?x8x8xf32>
}
func.func private @start(%t: tensor<?x8xi32>, %w: tensor<9x8xf32>) -> tensor<?x8x8xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x8xf32>) -> tensor<?x8x8xf32>
  return %0 : tensor<?x8x8xf32>
}
galvatron.parameter @words : tensor<9x8xf32> {init = "zeros"}
// CHECK: galvatron.parameter @b.cache.values.1 : tensor<3x2x6x2xf32>
galvatron.model @two(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  %0 = galvatron.layer "a" @start(%tokens) params [@words] : (tensor<?x8xi32>) -> tensor<?x8x8xf32>
  %1 = galvatron.layer "b" @grouped(%0) params [@q, @k, @v] : (tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  galvatron.output %1 : tensor<?x8x8xf32>
}

// -----

// A table whose first rows are of no position is read from the row of position
// 0 on; slopes of distances stay.

// CHECK-LABEL: func.func private @offset(
// CHECK: nn.embedding %arg1, %{{.*}} {first = 2 : i64} : (tensor<?x1xi32>, tensor<10x8xf32>)
// CHECK-LABEL: func.func private @sloped(
// CHECK: nn.cached_attention %{{.*}} {distance = 1.000000e+00 : f64, heads = 4 : i64, scale = 5.000000e-01 : f64}
func.func private @offset(%t: tensor<?x8xi32>, %w: tensor<9x8xf32>, %p: tensor<10x8xf32>) -> tensor<?x8x8xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x8xf32>) -> tensor<?x8x8xf32>
  %1 = nn.position_add %0, %p {first = 2 : i64} : (tensor<?x8x8xf32>, tensor<10x8xf32>) -> tensor<?x8x8xf32>
  return %1 : tensor<?x8x8xf32>
}
func.func private @sloped(%x: tensor<?x8x8xf32>, %w: tensor<4x2x8xf32>) -> tensor<?x8x8xf32> {
  %q = nn.linear %x, %w {transpose_weight} : (tensor<?x8x8xf32>, tensor<4x2x8xf32>) -> tensor<?x8x4x2xf32>
  %o, %lse = nn.grouped_attention %q, %q, %q {causal, scale = 0.5 : f64, distance = 1.0 : f64} : (tensor<?x8x4x2xf32>, tensor<?x8x4x2xf32>, tensor<?x8x4x2xf32>) -> (tensor<?x8x8xf32>, tensor<?x4x8xf32>)
  return %o : tensor<?x8x8xf32>
}
galvatron.parameter @words : tensor<9x8xf32> {init = "zeros"}
galvatron.parameter @places : tensor<10x8xf32> {init = "zeros"}
galvatron.parameter @q : tensor<4x2x8xf32> {init = "zeros"}
galvatron.model @slopes(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  %0 = galvatron.layer "a" @offset(%tokens) params [@words, @places] : (tensor<?x8xi32>) -> tensor<?x8x8xf32>
  %1 = galvatron.layer "b" @sloped(%0) params [@q] : (tensor<?x8x8xf32>) -> tensor<?x8x8xf32>
  galvatron.output %1 : tensor<?x8x8xf32>
}

// -----

// Biases of distances stay those of all, of parameters alone.

// CHECK-LABEL: func.func private @biased(
// CHECK: %[[BIAS:.*]] = nn.relative_bias
// CHECK: nn.cached_attention %{{.*}} bias %[[BIAS]] {heads = 4 : i64, scale = 5.000000e-01 : f64} : {{.*}}, tensor<?x4x15xf32>) -> tensor<?x1x8xf32>
func.func private @biased(%t: tensor<?x8xi32>, %w: tensor<9x8xf32>, %p: tensor<4x2x8xf32>, %b: tensor<6x4xf32>) -> tensor<?x8x8xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x8xf32>) -> tensor<?x8x8xf32>
  %q = nn.linear %0, %p {transpose_weight} : (tensor<?x8x8xf32>, tensor<4x2x8xf32>) -> tensor<?x8x4x2xf32>
  %bias = nn.relative_bias %b {max_distance = 7 : i64} : (tensor<6x4xf32>) -> tensor<?x4x15xf32>
  %o, %lse = nn.grouped_attention %q, %q, %q bias %bias {causal, scale = 0.5 : f64} : (tensor<?x8x4x2xf32>, tensor<?x8x4x2xf32>, tensor<?x8x4x2xf32>, tensor<?x4x15xf32>) -> (tensor<?x8x8xf32>, tensor<?x4x8xf32>)
  return %o : tensor<?x8x8xf32>
}
galvatron.parameter @words : tensor<9x8xf32> {init = "zeros"}
galvatron.parameter @q : tensor<4x2x8xf32> {init = "zeros"}
galvatron.parameter @table : tensor<6x4xf32> {init = "zeros"}
galvatron.model @relative(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  %0 = galvatron.layer "a" @biased(%tokens) params [@words, @q, @table] : (tensor<?x8xi32>) -> tensor<?x8x8xf32>
  galvatron.output %0 : tensor<?x8x8xf32>
}

// -----

func.func private @both(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>, %p: tensor<4x3x4xf32>) -> tensor<?x8x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  %1 = nn.linear %0, %p : (tensor<?x8x4xf32>, tensor<4x3x4xf32>) -> tensor<?x8x3x4xf32>
  // expected-error@below {{sees positions behind its own, expected operations that compute one position from the keys and values of those before it}}
  %o, %lse = nn.attention %1 {heads = 1 : i64, scale = 0.5 : f64} : (tensor<?x8x3x4xf32>) -> (tensor<?x8x4xf32>, tensor<?x1x8xf32>)
  return %o : tensor<?x8x4xf32>
}
galvatron.parameter @words : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @qkv : tensor<4x3x4xf32> {init = "zeros"}
galvatron.model @encoder(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  %0 = galvatron.layer "a" @both(%tokens) params [@words, @qkv] : (tensor<?x8xi32>) -> tensor<?x8x4xf32>
  galvatron.output %0 : tensor<?x8x4xf32>
}

// -----

// expected-error@below {{expected a decoder, which reads tokens and the labels behind them, or one behind an encoder of tokens and their mask, found 'images' besides}}
galvatron.model @images(%images: tensor<?x8x4xf32> is <images>) {
  galvatron.output
}

// -----

// expected-error@below {{expected attention whose keys and values are kept, found none}}
galvatron.model @words(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  galvatron.output
}

// -----

// expected-error@below {{expected 'frozen' beside the init 'cache'}}
galvatron.parameter @trained : tensor<9xf32> {init = "cache"}

// -----

// An encoder reads what it did, of as many positions as the decoder has; what it
// makes is marked, and attention to it keeps its keys. Words are one position.

// CHECK-LABEL: func.func private @encode(%arg0: tensor<?x4xi32> {nn.made_of = "source"}, %arg1: tensor<9x4xf32> {nn.frozen}) -> tensor<?x4x4xf32>
// CHECK-LABEL: func.func private @decode(%arg0: tensor<?x1xi32>, %arg1: tensor<?x4x4xf32> {nn.frozen, nn.made_of = "source"}, %arg2: tensor<?x4xi32> {nn.made_of = "source"}, %arg3: tensor<?x1xi32>, %arg4: tensor<?x1xi32>, %arg5: tensor<?x1xi32>, %arg6: tensor<?x1xi32>, %arg7: tensor<9x4xf32> {nn.frozen}, %arg8: tensor<2x2x4xf32> {nn.frozen}, %arg9: tensor<3x2x6x2xf32> {nn.frozen}, %arg10: tensor<3x2x6x2xf32> {nn.frozen}, %arg11: tensor<3x2x4x2xf32> {nn.frozen}, %arg12: tensor<3x2x4x2xf32> {nn.frozen}) -> tensor<?x1x4xf32>
// CHECK: %[[K:.*]] = nn.linear %arg1, %arg8
// CHECK: nn.cached_cross_attention %{{.*}}, %[[K]], %[[K]] keys %arg11 values %arg12 begins %arg5 rows %arg3 lengths %arg6 {scale = 1.000000e+00 : f64}
// CHECK: galvatron.model @both(%tokens: tensor<?x4xi32> is <tokens, below = 9>, %mask: tensor<?x4xi32> is <mask, below = 2>, %words: tensor<?x1xi32> is <tokens, name = "words", below = 9>, %cache_rows: tensor<?x1xi32> is <cache_rows, below = 3>, %positions: {{.*}}, %source_rows: tensor<?x1xi32> is <source_rows, below = 3>, %source_lengths: tensor<?x1xi32> is <source_lengths, below = 5>)
func.func private @encode(%t: tensor<?x4xi32>, %w: tensor<9x4xf32>) -> tensor<?x4x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x4xi32>, tensor<9x4xf32>) -> tensor<?x4x4xf32>
  return %0 : tensor<?x4x4xf32>
}
func.func private @decode(%t: tensor<?x4xi32>, %m: tensor<?x4x4xf32>, %mask: tensor<?x4xi32>, %w: tensor<9x4xf32>, %p: tensor<2x2x4xf32>) -> tensor<?x4x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x4xi32>, tensor<9x4xf32>) -> tensor<?x4x4xf32>
  %q = nn.linear %0, %p {transpose_weight} : (tensor<?x4x4xf32>, tensor<2x2x4xf32>) -> tensor<?x4x2x2xf32>
  %k = nn.linear %m, %p {transpose_weight} : (tensor<?x4x4xf32>, tensor<2x2x4xf32>) -> tensor<?x4x2x2xf32>
  %o, %lse = nn.grouped_attention %q, %q, %q {causal, scale = 1.0 : f64} : (tensor<?x4x2x2xf32>, tensor<?x4x2x2xf32>, tensor<?x4x2x2xf32>) -> (tensor<?x4x4xf32>, tensor<?x2x4xf32>)
  %x, %lsx = nn.grouped_attention %q, %k, %k mask %mask {scale = 1.0 : f64} : (tensor<?x4x2x2xf32>, tensor<?x4x2x2xf32>, tensor<?x4x2x2xf32>, tensor<?x4xi32>) -> (tensor<?x4x4xf32>, tensor<?x2x4xf32>)
  %s = nn.add %o, %x : (tensor<?x4x4xf32>, tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  return %s : tensor<?x4x4xf32>
}
galvatron.parameter @w : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @w2 : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @p : tensor<2x2x4xf32> {init = "zeros"}
galvatron.model @both(%tokens: tensor<?x4xi32> is <tokens, below = 9>, %mask: tensor<?x4xi32> is <mask, below = 2>, %words: tensor<?x4xi32> is <tokens, name = "words", below = 9>) {
  %0 = galvatron.layer "a" @encode(%tokens) params [@w] : (tensor<?x4xi32>) -> tensor<?x4x4xf32>
  %1 = galvatron.layer "b" @decode(%words, %0, %mask) params [@w2, @p] : (tensor<?x4xi32>, tensor<?x4x4xf32>, tensor<?x4xi32>) -> tensor<?x4x4xf32>
  galvatron.output %1 : tensor<?x4x4xf32>
}

// -----

func.func private @encode(%t: tensor<?x4xi32>, %w: tensor<9x4xf32>) -> tensor<?x4x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x4xi32>, tensor<9x4xf32>) -> tensor<?x4x4xf32>
  return %0 : tensor<?x4x4xf32>
}
func.func private @mixed(%t: tensor<?x4xi32>, %m: tensor<?x4x4xf32>, %w: tensor<9x4xf32>) -> tensor<?x4x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x4xi32>, tensor<9x4xf32>) -> tensor<?x4x4xf32>
  // expected-error@below {{expected attention alone to read what an encoder makes beside the positions of a decoder, found another operation}}
  %s = nn.add %0, %m : (tensor<?x4x4xf32>, tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  return %s : tensor<?x4x4xf32>
}
galvatron.parameter @w : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @w2 : tensor<9x4xf32> {init = "zeros"}
galvatron.model @adds(%tokens: tensor<?x4xi32> is <tokens, below = 9>, %words: tensor<?x4xi32> is <tokens, name = "words", below = 9>) {
  %0 = galvatron.layer "a" @encode(%tokens) params [@w] : (tensor<?x4xi32>) -> tensor<?x4x4xf32>
  %1 = galvatron.layer "b" @mixed(%words, %0) params [@w2] : (tensor<?x4xi32>, tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  galvatron.output %1 : tensor<?x4x4xf32>
}
