// RUN: galvatron-opt %s --galvatron-split-blocks --split-input-file --verify-diagnostics | FileCheck %s

// A cut stands behind the sum of the first half: in front of it two values
// cross. What reads no matrix goes to the part in front, and each part keeps
// the factors of its own arguments. The layer behind keeps its dropout key.

// CHECK-LABEL: func.func private @block.0(
// CHECK-SAME: %[[X:.*]]: tensor<?x4x8xf32>, %{{.*}}: tensor<8x8xf32> {nn.factors = ["", "a"]}, %{{.*}}: tensor<8xf32>
// CHECK-SAME: nn.factor_units = {a = 8 : i64}
// CHECK: nn.linear %[[X]]
// CHECK: %[[SUM:.*]] = nn.add %[[X]]
// CHECK: nn.rms_norm %[[SUM]]
// CHECK: return %y
// CHECK-LABEL: func.func private @block.1(
// CHECK-SAME: %[[X:.*]]: tensor<?x4x8xf32>, %{{.*}}: tensor<8x8xf32> {nn.factors = ["", "b"]}
// CHECK-SAME: nn.factor_units = {b = 4 : i64}
// CHECK: nn.linear %[[X]]
// CHECK: nn.dropout %{{.*}} {op_index = 3 : i64
// CHECK-NOT: @block(
// CHECK: galvatron.layer "l.attn" @block.0(%{{.*}}) params [@l.attn.w, @l.norm]
// CHECK-NOT: dropout_key
// CHECK: galvatron.layer "l.mlp" @block.1(%{{.*}}) params [@l.mlp.w] {dropout_key = 1 : i64}
// CHECK: galvatron.layer "m.attn" @block.0(%{{.*}}) params [@m.attn.w, @m.norm] {dropout_key = 2 : i64}
// CHECK: galvatron.layer "m.mlp" {{.*}} {dropout_key = 2 : i64}
module {
  galvatron.parameter @l.attn.w : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @l.norm : tensor<8xf32> {init = "ones"}
  galvatron.parameter @l.mlp.w : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @m.attn.w : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @m.norm : tensor<8xf32> {init = "ones"}
  galvatron.parameter @m.mlp.w : tensor<8x8xf32> {init = "ones"}
  func.func private @block(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32> {nn.factors = ["", "a"]}, %n: tensor<8xf32>, %v: tensor<8x8xf32> {nn.factors = ["", "b"]}) -> tensor<?x4x8xf32> attributes {nn.factor_units = {a = 8 : i64, b = 4 : i64}} {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %1 = nn.add %x, %0 : (tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %y, %stats = nn.rms_norm %1, %n {eps = 1.0e-05 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>) -> (tensor<?x4x8xf32>, tensor<?x4x1xf32>)
    %2 = nn.linear %y, %v : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %3 = nn.dropout %2 {op_index = 3 : i64, p = 1.000000e-01 : f64} : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %4 = nn.add %y, %3 : (tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    return %4 : tensor<?x4x8xf32>
  }
  func.func private @enter(%x: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.dropout %x {p = 1.000000e-01 : f64} : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    return %0 : tensor<?x4x8xf32>
  }
  galvatron.model @m(%in: tensor<?x4x8xf32>) {
    %x = galvatron.layer "e" @enter(%in) : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %0 = galvatron.layer "l" @block(%x) params [@l.attn.w, @l.norm, @l.mlp.w] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %1 = galvatron.layer "m" @block(%0) params [@m.attn.w, @m.norm, @m.mlp.w] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    galvatron.output %1 : tensor<?x4x8xf32>
  }
}

// -----

// Halves side by side, a matrix that both halves read, and a layer that hands
// on something else than it takes stay whole. Names that do not tell parts
// apart are numbers.

// CHECK: func.func private @beside(
// CHECK: func.func private @shares(
// CHECK: func.func private @converts(
// CHECK: galvatron.layer "c" @converts
// CHECK: galvatron.layer "a" @beside
// CHECK: galvatron.layer "b" @shares
// CHECK: galvatron.layer "d.0" @two.0(%{{.*}}) params [@k.a.w]
// CHECK: galvatron.layer "d.1" @two.1(%{{.*}}) params [@k.a.v, @k.b]
module {
  galvatron.parameter @p : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @q : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @r : tensor<6x8xf32> {init = "ones"}
  galvatron.parameter @k.a.w : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @k.a.v : tensor<8x8xf32> {init = "ones"}
  galvatron.parameter @k.b : tensor<8xf32> {init = "ones"}
  func.func private @beside(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>, %v: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %1 = nn.add %x, %0 : (tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %2 = nn.linear %x, %v : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %3 = nn.add %1, %2 : (tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    return %3 : tensor<?x4x8xf32>
  }
  func.func private @shares(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %1 = nn.linear %0, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    return %1 : tensor<?x4x8xf32>
  }
  func.func private @converts(%x: tensor<?x4x6xf32>, %w: tensor<6x8xf32>, %v: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x6xf32>, tensor<6x8xf32>) -> tensor<?x4x8xf32>
    %1 = nn.linear %0, %v : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    return %1 : tensor<?x4x8xf32>
  }
  func.func private @two(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>, %v: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %1 = nn.linear %0, %v : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    %2 = nn.bias_add %1, %b : (tensor<?x4x8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
    return %2 : tensor<?x4x8xf32>
  }
  galvatron.model @m(%x: tensor<?x4x6xf32>) {
    %0 = galvatron.layer "c" @converts(%x) params [@r, @p] : (tensor<?x4x6xf32>) -> tensor<?x4x8xf32>
    %1 = galvatron.layer "a" @beside(%0) params [@p, @q] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %2 = galvatron.layer "b" @shares(%1) params [@p] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    %3 = galvatron.layer "d" @two(%2) params [@k.a.w, @k.a.v, @k.b] : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    galvatron.output %3 : tensor<?x4x8xf32>
  }
}

// -----

module {
  galvatron.parameter @p : tensor<8x8xf32> {init = "ones"}
  func.func private @f(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    return %0 : tensor<?x4x8xf32>
  }
  galvatron.model @m(%x: tensor<?x4x8xf32>) {
    // expected-error @+1 {{expected a layer that is not planned yet, found one with a strategy, a stage or functions of passes}}
    %0 = galvatron.layer "l" @f(%x) params [@p] {strategy = #galvatron.strategy<[dp = 2]>} : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    galvatron.output %0 : tensor<?x4x8xf32>
  }
}

// -----

module {
  galvatron.parameter @p : tensor<8x8xf32> {init = "ones"}
  func.func private @f(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
    %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
    return %0 : tensor<?x4x8xf32>
  }
  galvatron.model @m(%x: tensor<?x4x8xf32>) {
    // expected-error @+1 {{expected 'dropout_key' not to be negative, found -1}}
    %0 = galvatron.layer "l" @f(%x) params [@p] {dropout_key = -1 : i64} : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
    galvatron.output %0 : tensor<?x4x8xf32>
  }
}
