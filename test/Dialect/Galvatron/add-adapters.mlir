// RUN: galvatron-opt %s --galvatron-add-adapters="rank=2 alpha=3 layers=up" | FileCheck %s

// The adapter of a weight whose rows are cut, [out, in] as PyTorch has it. B is
// cut as the weight is, A is whole. Layers whose adapters are the same share a
// body; what is declared before is frozen, with an adapter or without.

// CHECK: module attributes {galvatron.adapters = #galvatron.adapters<rank = 2, alpha = 3.000000e+00 : f64, in_first = false, modules = ["l.up", "m.up"]>}
// CHECK: galvatron.parameter @l.up.weight : tensor<8x4xf32> {frozen, init = "ones"}
// CHECK: galvatron.parameter @base_model.model.l.up.lora_A.weight : tensor<2x4xf32> {decay, init = "normal", std = 0.288{{[0-9]+}} : f64}
// CHECK: galvatron.parameter @base_model.model.l.up.lora_B.weight : tensor<8x2xf32> {decay, init = "zeros"}
// CHECK: galvatron.parameter @l.norm : tensor<4xf32> {frozen, init = "ones"}
// CHECK: func.func private @[[BODY:.*]](%[[X:.*]]: tensor<?x3x4xf32>, %[[W:.*]]: tensor<8x4xf32> {nn.factors = ["ffn", ""], nn.frozen}, %{{.*}}: tensor<8x4xf32> {nn.factors = ["ffn", ""], nn.frozen}, %{{.*}}: tensor<4xf32> {nn.frozen}, %[[A:.*]]: tensor<2x4xf32>, %[[B:.*]]: tensor<8x2xf32> {nn.factors = ["ffn", ""]})
// CHECK: %[[Y:.*]] = nn.linear %[[X]], %[[W]] {transpose_weight}
// CHECK: %[[H:.*]] = nn.linear %[[X]], %[[A]] {transpose_weight} : (tensor<?x3x4xf32>, tensor<2x4xf32>) -> tensor<?x3x2xf32>
// CHECK: %[[S:.*]] = nn.scale %[[H]] {factor = 1.500000e+00 : f64}
// CHECK: %[[UP:.*]] = nn.linear %[[S]], %[[B]] {transpose_weight}
// CHECK: %[[SUM:.*]] = nn.add %[[Y]], %[[UP]]
// CHECK: nn.gelu %[[SUM]]
// CHECK: galvatron.layer "l" @[[BODY]](%{{.*}}) params [@l.up.weight, @l.down.weight, @l.norm, @base_model.model.l.up.lora_A.weight, @base_model.model.l.up.lora_B.weight]
// CHECK: galvatron.layer "m" @[[BODY]](
module {
  galvatron.parameter @l.up.weight : tensor<8x4xf32> {init = "ones"}
  galvatron.parameter @l.down.weight : tensor<8x4xf32> {init = "ones"}
  galvatron.parameter @l.norm : tensor<4xf32> {init = "ones"}
  galvatron.parameter @m.up.weight : tensor<8x4xf32> {init = "ones"}
  galvatron.parameter @m.down.weight : tensor<8x4xf32> {init = "ones"}
  galvatron.parameter @m.norm : tensor<4xf32> {init = "ones"}
  func.func private @block(%x: tensor<?x3x4xf32>, %up: tensor<8x4xf32> {nn.factors = ["ffn", ""]}, %down: tensor<8x4xf32> {nn.factors = ["ffn", ""]}, %n: tensor<4xf32>) -> tensor<?x3x4xf32> attributes {nn.factor_units = {ffn = 8 : i64}} {
    %0 = nn.linear %x, %up {transpose_weight} : (tensor<?x3x4xf32>, tensor<8x4xf32>) -> tensor<?x3x8xf32>
    %1 = nn.gelu %0 : (tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
    %2 = nn.linear %1, %down : (tensor<?x3x8xf32>, tensor<8x4xf32>) -> tensor<?x3x4xf32>
    %3 = nn.bias_add %2, %n : (tensor<?x3x4xf32>, tensor<4xf32>) -> tensor<?x3x4xf32>
    return %3 : tensor<?x3x4xf32>
  }
  galvatron.model @model(%in: tensor<?x3x4xf32>) {
    %0 = galvatron.layer "l" @block(%in) params [@l.up.weight, @l.down.weight, @l.norm] : (tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
    %1 = galvatron.layer "m" @block(%0) params [@m.up.weight, @m.down.weight, @m.norm] : (tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
    galvatron.output %1 : tensor<?x3x4xf32>
  }
}
