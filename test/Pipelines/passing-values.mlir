// RUN: galvatron-opt %s --galvatron-apply-training --galvatron-annotate-costs "--galvatron-assign-strategies=cluster=2xcpu layers=*:dp2;b:tp2 batch=8 micro-batches=2 pipeline-degree=1 schedule=1f1b" --galvatron-select-plan=keep-plan -o %t.mlir
// RUN: galvatron-opt %t.mlir "--galvatron-pipeline=from=plan to=allocate" | FileCheck %s
// RUN: galvatron-opt %s --galvatron-apply-training --galvatron-annotate-costs "--galvatron-assign-strategies=cluster=4xcpu layers=*:dp2;b:tp2 batch=8 micro-batches=2 pipeline-degree=2 schedule=1f1b" --galvatron-select-plan=keep-plan -o %t.cut.mlir
// RUN: galvatron-opt %t.cut.mlir "--galvatron-pipeline=from=plan to=allocate" | FileCheck %s --check-prefix=CUT
// RUN: galvatron-plan %s --cluster=4xcpu --batch=8 --json=%t.json > %t.txt
// RUN: galvatron-compile %s --plan=%t.json --cluster=4xcpu -o %t.gvx

// The embedding's output is used three layers later. What the planner prices is
// what the program asks for, byte for byte.

// CHECK: \22peak-bytes\22:[[BYTES:[0-9]+]],
// What layer a gives and the embedding's output change the layout together.
// CHECK: grt.exchange @"stage0.dp2-to-tp2" bytes_per_unit 2048
// CHECK-SAME: {tensors = array<i64: 1024, 0, 0, 1024, 2048, 4096>}
// CHECK: grt.role @stage0
// CHECK-SAME: arena_bytes = [[BYTES]] : i64
// Layer a uses what passes it, from its own input; layer b does not.
// CHECK: grt.layer "a"
// CHECK-SAME: behind_bytes = 4096 : i64
// CHECK-SAME: front_bytes = 2048 : i64
// CHECK-SAME: passes = array<i64: 1, 0, 0, 2048, 2048, 1>
// CHECK: grt.layer "b"
// CHECK-SAME: input_bytes = 8192 : i64
// CHECK-SAME: passes = array<i64: 2, 4096, 4096, 4096, 4096, 0>
// CHECK: grt.layer "c"
// CHECK-SAME: inputs = array<i64: 3, 0, 0, 2048, 3, 2048, 2048, 2048>

// CUT: \22peak-bytes\22:[[FIRST:[0-9]+]],
// CUT-SAME: \22peak-bytes\22:[[SECOND:[0-9]+]],
// CUT: grt.role @stage0
// CUT-SAME: arena_bytes = [[FIRST]] : i64
// CUT: grt.role @stage1
// CUT-SAME: arena_bytes = [[SECOND]] : i64

module {
  galvatron.parameter @wte : tensor<61x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @wpe : tensor<8x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @a.w1 : tensor<32x64xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @a.w2 : tensor<64x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @b.w1 : tensor<32x64xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @b.w2 : tensor<64x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @c.w1 : tensor<32x64xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @c.w2 : tensor<64x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  galvatron.parameter @unembed : tensor<61x32xf32> {decay, init = "normal", std = 2.0e-2 : f64}
  func.func private @embed(%t: tensor<?x8xi32>, %w: tensor<61x32xf32> {nn.factors = ["vocab", ""]}, %p: tensor<8x32xf32>) -> tensor<?x8x32xf32> attributes {nn.factor_units = {vocab = 61 : i64}, nn.uneven = ["vocab"]} {
    %0 = nn.embedding %t, %w : (tensor<?x8xi32>, tensor<61x32xf32>) -> tensor<?x8x32xf32>
    %1 = nn.position_add %0, %p : (tensor<?x8x32xf32>, tensor<8x32xf32>) -> tensor<?x8x32xf32>
    return %1 : tensor<?x8x32xf32>
  }
  func.func private @block(%x: tensor<?x8x32xf32>, %w: tensor<32x64xf32> {nn.factors = ["", "ffn"]}, %v: tensor<64x32xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x32xf32> attributes {nn.factor_units = {ffn = 64 : i64}} {
    %0 = nn.linear %x, %w : (tensor<?x8x32xf32>, tensor<32x64xf32>) -> tensor<?x8x64xf32>
    %1 = nn.gelu %0 {approximate} : (tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
    %2 = nn.linear %1, %v : (tensor<?x8x64xf32>, tensor<64x32xf32>) -> tensor<?x8x32xf32>
    %3 = nn.add %x, %2 : (tensor<?x8x32xf32>, tensor<?x8x32xf32>) -> tensor<?x8x32xf32>
    return %3 : tensor<?x8x32xf32>
  }
  func.func private @join(%x: tensor<?x8x32xf32>, %s: tensor<?x8x32xf32>, %w: tensor<32x64xf32> {nn.factors = ["", "ffn"]}, %v: tensor<64x32xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x32xf32> attributes {nn.factor_units = {ffn = 64 : i64}} {
    %0 = nn.linear %s, %w : (tensor<?x8x32xf32>, tensor<32x64xf32>) -> tensor<?x8x64xf32>
    %1 = nn.gelu %0 {approximate} : (tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
    %2 = nn.linear %1, %v : (tensor<?x8x64xf32>, tensor<64x32xf32>) -> tensor<?x8x32xf32>
    %3 = nn.add %x, %2 : (tensor<?x8x32xf32>, tensor<?x8x32xf32>) -> tensor<?x8x32xf32>
    return %3 : tensor<?x8x32xf32>
  }
  func.func private @head(%x: tensor<?x8x32xf32>, %l: tensor<?x8xi32>, %w: tensor<61x32xf32> {nn.factors = ["vocab", ""]}) -> tensor<1xf64> attributes {nn.factor_units = {vocab = 61 : i64}, nn.uneven = ["vocab"]} {
    %0 = nn.linear %x, %w {transpose_weight} : (tensor<?x8x32xf32>, tensor<61x32xf32>) -> tensor<?x8x61xf32>
    %loss, %d = nn.cross_entropy %0, %l {classes = 61 : i64} : (tensor<?x8x61xf32>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x61xf32>)
    return %loss : tensor<1xf64>
  }
  galvatron.model @skips(%t: tensor<?x8xi32> is <tokens, below = 61>, %l: tensor<?x8xi32> is <labels, below = 61>) {
    %x = galvatron.layer "wte" @embed(%t) params [@wte, @wpe] : (tensor<?x8xi32>) -> tensor<?x8x32xf32>
    %a = galvatron.layer "a" @block(%x) params [@a.w1, @a.w2] : (tensor<?x8x32xf32>) -> tensor<?x8x32xf32>
    %b = galvatron.layer "b" @block(%a) params [@b.w1, @b.w2] : (tensor<?x8x32xf32>) -> tensor<?x8x32xf32>
    %c = galvatron.layer "c" @join(%b, %x) params [@c.w1, @c.w2] : (tensor<?x8x32xf32>, tensor<?x8x32xf32>) -> tensor<?x8x32xf32>
    %h = galvatron.layer "head" @head(%c, %l) params [@unembed] : (tensor<?x8x32xf32>, tensor<?x8xi32>) -> tensor<1xf64>
    galvatron.output %h : tensor<1xf64>
  }
}
