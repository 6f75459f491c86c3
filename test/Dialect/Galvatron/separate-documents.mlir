// RUN: galvatron-opt %s -split-input-file --galvatron-separate-documents=length=3 -verify-diagnostics | FileCheck %s

// Bodies that do not depend on documents stay as they are; those that do take
// where they begin behind their other inputs.

// CHECK-LABEL: func.func private @embed(%arg0: tensor<?x8xi32>, %arg1: tensor<?x8xi32>, %arg2: tensor<9x4xf32>, %arg3: tensor<8x4xf32>)
// CHECK: nn.position_add %{{.*}}, %arg3 starts %arg1
// CHECK-LABEL: func.func private @block(%arg0: tensor<?x8x4xf32>, %arg1: tensor<?x8xi32>, %arg2: tensor<4x3x4xf32>)
// CHECK: nn.attention %{{.*}} starts %arg1 {causal, document_length = 3 : i64
// CHECK-LABEL: func.func private @head(%arg0: tensor<?x8x4xf32>, %arg1: tensor<?x8xi32>, %arg2: tensor<9x4xf32>)
// CHECK: galvatron.model @m(%tokens: {{.*}}, %labels: {{.*}}, %document_starts: tensor<?x8xi32> is <document_starts, below = 8>)
// CHECK: galvatron.layer "embed" @embed(%tokens, %document_starts)
// CHECK: galvatron.layer "h.0" @block(%{{.*}}, %document_starts)
// CHECK: galvatron.layer "h.1" @block(%{{.*}}, %document_starts)
// CHECK: galvatron.layer "head" @head(%{{.*}}, %labels) params
galvatron.parameter @words : tensor<9x4xf32> {init = "zeros"}
galvatron.parameter @positions : tensor<8x4xf32> {init = "zeros"}
galvatron.parameter @qkv.0 : tensor<4x3x4xf32> {init = "zeros"}
galvatron.parameter @qkv.1 : tensor<4x3x4xf32> {init = "zeros"}
galvatron.parameter @out : tensor<9x4xf32> {init = "zeros"}
func.func private @embed(%t: tensor<?x8xi32>, %w: tensor<9x4xf32>, %p: tensor<8x4xf32>) -> tensor<?x8x4xf32> {
  %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<9x4xf32>) -> tensor<?x8x4xf32>
  %1 = nn.position_add %0, %p : (tensor<?x8x4xf32>, tensor<8x4xf32>) -> tensor<?x8x4xf32>
  return %1 : tensor<?x8x4xf32>
}
func.func private @block(%x: tensor<?x8x4xf32>, %w: tensor<4x3x4xf32>) -> tensor<?x8x4xf32> {
  %0 = nn.linear %x, %w : (tensor<?x8x4xf32>, tensor<4x3x4xf32>) -> tensor<?x8x3x4xf32>
  %o, %lse = nn.attention %0 {causal, heads = 1 : i64, scale = 0.5 : f64} : (tensor<?x8x3x4xf32>) -> (tensor<?x8x4xf32>, tensor<?x1x8xf32>)
  return %o : tensor<?x8x4xf32>
}
func.func private @head(%x: tensor<?x8x4xf32>, %l: tensor<?x8xi32>, %w: tensor<9x4xf32>) -> tensor<1xf64> {
  %0 = nn.linear %x, %w {transpose_weight} : (tensor<?x8x4xf32>, tensor<9x4xf32>) -> tensor<?x8x9xf32>
  %loss, %d = nn.cross_entropy %0, %l {classes = 9 : i64} : (tensor<?x8x9xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x9xf32>)
  return %loss : tensor<1xf64>
}
galvatron.model @m(%tokens: tensor<?x8xi32> is <tokens, below = 9>, %labels: tensor<?x8xi32> is <labels, below = 9>) {
  %0 = galvatron.layer "embed" @embed(%tokens) params [@words, @positions] : (tensor<?x8xi32>) -> tensor<?x8x4xf32>
  %1 = galvatron.layer "h.0" @block(%0) params [@qkv.0] : (tensor<?x8x4xf32>) -> tensor<?x8x4xf32>
  %2 = galvatron.layer "h.1" @block(%1) params [@qkv.1] : (tensor<?x8x4xf32>) -> tensor<?x8x4xf32>
  %3 = galvatron.layer "head" @head(%2, %labels) params [@out] : (tensor<?x8x4xf32>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %3 : tensor<1xf64>
}

// -----

func.func private @mean(%t: tensor<?x8x4xf32>) -> tensor<?x4xf32> {
  // expected-error@below {{mixes the positions of a sample, expected operations that keep its documents apart}}
  %0 = nn.mean %t : (tensor<?x8x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
galvatron.model @pooled(%tokens: tensor<?x8xi32> is <tokens, below = 9>, %x: tensor<?x8x4xf32> is <mask>) {
  %0 = galvatron.layer "pool" @mean(%x) : (tensor<?x8x4xf32>) -> tensor<?x4xf32>
  galvatron.output %0 : tensor<?x4xf32>
}

// -----

// expected-error@below {{expected a row of tokens, whose documents are kept apart, found none}}
galvatron.model @images(%images: tensor<?x8x4xf32> is <images>) {
  galvatron.output
}

// -----

// expected-error@below {{expected one row of tokens whose documents are kept apart, found 'tokens' and 'more'}}
galvatron.model @two(%tokens: tensor<?x8xi32> is <tokens, below = 9>, %more: tensor<?x8xi32> is <tokens, name = "more", below = 9>) {
  galvatron.output
}

// -----

// expected-error@below {{expected a model that does not keep documents apart, found 'document_starts', by which it does}}
galvatron.model @apart(%tokens: tensor<?x8xi32> is <tokens, below = 9>, %s: tensor<?x8xi32> is <document_starts, below = 8>) {
  galvatron.output
}

// -----

// expected-error@below {{expected attention whose documents are kept apart, found none}}
galvatron.model @nothing(%tokens: tensor<?x8xi32> is <tokens, below = 9>) {
  galvatron.output
}
