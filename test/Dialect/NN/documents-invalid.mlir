// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// The constraints of NNOps.td that are of documents.

// position_add, constraint 4
func.func @positions_of_other_documents(%x: tensor<?x8x16xf32>, %t: tensor<12x16xf32>, %starts: tensor<?x7xi32>) {
  // expected-error@below {{expected 'starts' of shape [?, 8], found [?, 7]}}
  %y = nn.position_add %x, %t starts %starts : (tensor<?x8x16xf32>, tensor<12x16xf32>, tensor<?x7xi32>) -> tensor<?x8x16xf32>
  return
}

// -----

// position_grad, constraint 3
func.func @gradient_of_other_documents(%x: tensor<?x8x16xf32>, %starts: tensor<?x7xi32>) {
  // expected-error@below {{expected 'starts' of shape [?, 8], found [?, 7]}}
  %dt = nn.position_grad %x starts %starts : (tensor<?x8x16xf32>, tensor<?x7xi32>) -> tensor<12x16xf32>
  return
}

// -----

// attention, constraint 6
func.func @attention_of_other_documents(%qkv: tensor<?x8x3x16xf32>, %starts: tensor<?x7xi32>) {
  // expected-error@below {{expected 'starts' of shape [?, 8], found [?, 7]}}
  %o, %lse = nn.attention %qkv starts %starts {causal, heads = 4 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x7xi32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 6
func.func @attention_both_ways(%qkv: tensor<?x8x3x16xf32>, %starts: tensor<?x8xi32>) {
  // expected-error@below {{expected 'causal' beside 'starts'}}
  %o, %lse = nn.attention %qkv starts %starts {heads = 4 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8xi32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention, constraint 7
func.func @length_without_documents(%qkv: tensor<?x8x3x16xf32>) {
  // expected-error@below {{expected 'document_length' to be 0 without 'starts', found 3}}
  %o, %lse = nn.attention %qkv {causal, heads = 4 : i64, scale = 0.5 : f64, document_length = 3 : i64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// attention_grad, constraint 7
func.func @gradient_both_ways(%qkv: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %lse: tensor<?x4x8xf32>, %starts: tensor<?x8xi32>) {
  // expected-error@below {{expected 'causal' beside 'starts'}}
  %d = nn.attention_grad %qkv, %o, %lse, %o starts %starts {heads = 4 : i64, scale = 0.5 : f64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// attention_grad, constraint 8
func.func @negative_length(%qkv: tensor<?x8x3x16xf32>, %o: tensor<?x8x16xf32>, %lse: tensor<?x4x8xf32>, %starts: tensor<?x8xi32>) {
  // expected-error@below {{expected 'document_length' to be 0 or positive, found -1}}
  %d = nn.attention_grad %qkv, %o, %lse, %o starts %starts {causal, heads = 4 : i64, scale = 0.5 : f64, document_length = -1 : i64} : (tensor<?x8x3x16xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>, tensor<?x8xi32>) -> tensor<?x8x3x16xf32>
  return
}

// -----

// grouped_attention, constraint 9
func.func @more_keys_than_queries(%q: tensor<?x8x4x4xf32>, %k: tensor<?x9x4x4xf32>, %starts: tensor<?x8xi32>) {
  // expected-error@below {{expected as many keys as the 8 queries beside 'starts', found 9}}
  %o, %lse = nn.grouped_attention %q, %k, %k starts %starts {causal, scale = 0.5 : f64} : (tensor<?x8x4x4xf32>, tensor<?x9x4x4xf32>, tensor<?x9x4x4xf32>, tensor<?x8xi32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// grouped_attention, constraint 10
func.func @length_of_no_documents(%q: tensor<?x8x4x4xf32>) {
  // expected-error@below {{expected 'document_length' to be 0 without 'starts', found 2}}
  %o, %lse = nn.grouped_attention %q, %q, %q {causal, scale = 0.5 : f64, document_length = 2 : i64} : (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 10
func.func @gradient_of_documents_elsewhere(%q: tensor<?x8x4x4xf32>, %o: tensor<?x8x16xf32>, %lse: tensor<?x4x8xf32>, %starts: tensor<?x9xi32>) {
  // expected-error@below {{expected 'starts' of shape [?, 8], found [?, 9]}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %q, %q, %o, %lse, %o starts %starts {causal, scale = 0.5 : f64} : (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>, tensor<?x9xi32>) -> (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>)
  return
}

// -----

// grouped_attention_grad, constraint 11
func.func @gradient_of_a_negative_length(%q: tensor<?x8x4x4xf32>, %o: tensor<?x8x16xf32>, %lse: tensor<?x4x8xf32>, %starts: tensor<?x8xi32>) {
  // expected-error@below {{expected 'document_length' to be 0 or positive, found -2}}
  %dq, %dk, %dv = nn.grouped_attention_grad %q, %q, %q, %o, %lse, %o starts %starts {causal, scale = 0.5 : f64, document_length = -2 : i64} : (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x16xf32>, tensor<?x4x8xf32>, tensor<?x8x16xf32>, tensor<?x8xi32>) -> (tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>, tensor<?x8x4x4xf32>)
  return
}
