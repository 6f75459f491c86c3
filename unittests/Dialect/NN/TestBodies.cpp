//===- TestBodies.cpp - Layer bodies for tests ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestBodies.h"
#include "TestNN.h"
#include "galvatron/InitAllDialects.h"
#include "mlir/Parser/Parser.h"

#include <cmath>

using namespace galvatron::tests;
using galvatron::reference::Tensor;

std::unique_ptr<mlir::MLIRContext> galvatron::tests::makeContext() {
  mlir::test_nn::registerReferenceEvaluators();
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  registry.insert<mlir::test_nn::TestNNDialect>();
  auto context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  return context;
}

mlir::OwningOpRef<mlir::ModuleOp>
galvatron::tests::parseModule(mlir::MLIRContext &context,
                              llvm::StringRef text) {
  return mlir::parseSourceString<mlir::ModuleOp>(text, &context);
}

llvm::StringRef galvatron::tests::bodiesText() {
  return R"mlir(
func.func private @embed(%tokens: tensor<?x8xi32>,
    %wte: tensor<33x16xf64> {nn.factors = ["vocab", ""]},
    %wpe: tensor<12x16xf64>) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %0 = nn.embedding %tokens, %wte : (tensor<?x8xi32>, tensor<33x16xf64>) -> tensor<?x8x16xf64>
  %1 = nn.position_add %0, %wpe : (tensor<?x8x16xf64>, tensor<12x16xf64>) -> tensor<?x8x16xf64>
  %2 = nn.dropout %1 {p = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %2 : tensor<?x8x16xf64>
}
func.func private @block(%x: tensor<?x8x16xf64>, %g1: tensor<16xf64>, %b1: tensor<16xf64>,
    %wqkv: tensor<16x3x16xf64> {nn.factors = ["", "", "heads"]},
    %bqkv: tensor<3x16xf64> {nn.factors = ["", "heads"]},
    %wo: tensor<16x16xf64> {nn.factors = ["heads", ""]}, %bo: tensor<16xf64>,
    %g2: tensor<16xf64>, %b2: tensor<16xf64>,
    %wi: tensor<16x24xf64> {nn.factors = ["", "ffn"]},
    %bi: tensor<24xf64> {nn.factors = ["ffn"]},
    %wf: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %bf: tensor<16xf64>) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {heads = 4 : i64, ffn = 24 : i64}} {
  %n1, %s1 = nn.layer_norm %x, %g1, %b1 {eps = 1.0e-5 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x2xf64>)
  %q = nn.linear %n1, %wqkv : (tensor<?x8x16xf64>, tensor<16x3x16xf64>) -> tensor<?x8x3x16xf64>
  %qb = nn.bias_add %q, %bqkv : (tensor<?x8x3x16xf64>, tensor<3x16xf64>) -> tensor<?x8x3x16xf64>
  %o, %lse = nn.attention %qb {heads = 4 : i64, causal, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x8x3x16xf64>) -> (tensor<?x8x16xf64>, tensor<?x4x8xf64>)
  %p = nn.linear %o, %wo : (tensor<?x8x16xf64>, tensor<16x16xf64>) -> tensor<?x8x16xf64>
  %pb = nn.bias_add %p, %bo : (tensor<?x8x16xf64>, tensor<16xf64>) -> tensor<?x8x16xf64>
  %pd = nn.dropout %pb {p = 1.0e-1 : f64, op_index = 1 : i64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %r1 = nn.add %x, %pd : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %n2, %s2 = nn.layer_norm %r1, %g2, %b2 {eps = 1.0e-5 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x2xf64>)
  %h = nn.linear %n2, %wi : (tensor<?x8x16xf64>, tensor<16x24xf64>) -> tensor<?x8x24xf64>
  %hb = nn.bias_add %h, %bi : (tensor<?x8x24xf64>, tensor<24xf64>) -> tensor<?x8x24xf64>
  %a = nn.gelu %hb {approximate} : (tensor<?x8x24xf64>) -> tensor<?x8x24xf64>
  %f = nn.linear %a, %wf : (tensor<?x8x24xf64>, tensor<24x16xf64>) -> tensor<?x8x16xf64>
  %fb = nn.bias_add %f, %bf : (tensor<?x8x16xf64>, tensor<16xf64>) -> tensor<?x8x16xf64>
  %fd = nn.dropout %fb {p = 1.0e-1 : f64, op_index = 2 : i64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %r2 = nn.add %r1, %fd : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %r2 : tensor<?x8x16xf64>
}
func.func private @head(%x: tensor<?x8x16xf64>, %labels: tensor<?x8xi32>,
    %g: tensor<16xf64>, %b: tensor<16xf64>,
    %wte: tensor<33x16xf64> {nn.factors = ["vocab", ""]}) -> tensor<1xf64>
    attributes {nn.factor_units = {vocab = 33 : i64}, nn.uneven = ["vocab"]} {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x2xf64>)
  %l = nn.linear %n, %wte {transpose_weight} : (tensor<?x8x16xf64>, tensor<33x16xf64>) -> tensor<?x8x33xf64>
  %loss, %d = nn.cross_entropy %l, %labels {classes = 33 : i64} : (tensor<?x8x33xf64>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x33xf64>)
  return %loss : tensor<1xf64>
}
func.func private @gated(%x: tensor<?x8x16xf64>, %g1: tensor<16xf64>,
    %wq: tensor<8x4x16xf64> {nn.factors = ["heads", "", ""]},
    %bq: tensor<8x4xf64> {nn.factors = ["heads", ""]},
    %wk: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wv: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %gq: tensor<4xf64>, %gk: tensor<4xf64>,
    %wo: tensor<16x32xf64> {nn.factors = ["", "heads"]}, %g2: tensor<16xf64>,
    %wg: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %wu: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %wd: tensor<16x24xf64> {nn.factors = ["", "ffn"]}) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {heads = 4 : i64, ffn = 24 : i64}} {
  %n1, %s1 = nn.rms_norm %x, %g1 {eps = 1.0e-6 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x1xf64>)
  %q0 = nn.linear %n1, %wq {transpose_weight} : (tensor<?x8x16xf64>, tensor<8x4x16xf64>) -> tensor<?x8x8x4xf64>
  %q1 = nn.bias_add %q0, %bq : (tensor<?x8x8x4xf64>, tensor<8x4xf64>) -> tensor<?x8x8x4xf64>
  %k0 = nn.linear %n1, %wk {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %v = nn.linear %n1, %wv {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %q2, %sq = nn.rms_norm %q1, %gq {eps = 1.0e-6 : f64} : (tensor<?x8x8x4xf64>, tensor<4xf64>) -> (tensor<?x8x8x4xf64>, tensor<?x8x8x1xf64>)
  %k1, %sk = nn.rms_norm %k0, %gk {eps = 1.0e-6 : f64} : (tensor<?x8x4x4xf64>, tensor<4xf64>) -> (tensor<?x8x4x4xf64>, tensor<?x8x4x1xf64>)
  %q = nn.rotary %q2 {frequencies = array<f64: 1.0, 0.2>} : (tensor<?x8x8x4xf64>) -> tensor<?x8x8x4xf64>
  %k = nn.rotary %k1 {frequencies = array<f64: 1.0, 0.2>} : (tensor<?x8x4x4xf64>) -> tensor<?x8x4x4xf64>
  %o, %lse = nn.grouped_attention %q, %k, %v {causal, scale = 5.0e-1 : f64, window = 5 : i64, dropout = 1.0e-1 : f64} : (tensor<?x8x8x4xf64>, tensor<?x8x4x4xf64>, tensor<?x8x4x4xf64>) -> (tensor<?x8x32xf64>, tensor<?x8x8xf64>)
  %p = nn.linear %o, %wo {transpose_weight} : (tensor<?x8x32xf64>, tensor<16x32xf64>) -> tensor<?x8x16xf64>
  %r1 = nn.add %x, %p : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %n2, %s2 = nn.rms_norm %r1, %g2 {eps = 1.0e-6 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x1xf64>)
  %gate = nn.linear %n2, %wg {transpose_weight} : (tensor<?x8x16xf64>, tensor<24x16xf64>) -> tensor<?x8x24xf64>
  %up = nn.linear %n2, %wu {transpose_weight} : (tensor<?x8x16xf64>, tensor<24x16xf64>) -> tensor<?x8x24xf64>
  %h = nn.gated_silu %gate, %up : (tensor<?x8x24xf64>, tensor<?x8x24xf64>) -> tensor<?x8x24xf64>
  %f = nn.linear %h, %wd {transpose_weight} : (tensor<?x8x24xf64>, tensor<16x24xf64>) -> tensor<?x8x16xf64>
  %r2 = nn.add %r1, %f : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %r2 : tensor<?x8x16xf64>
}
func.func private @shared(%x: tensor<?x8x16xf64>,
    %wq: tensor<8x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wk: tensor<2x4x16xf64> {nn.factors = ["key_heads", "", ""]},
    %bk: tensor<2x4xf64> {nn.factors = ["key_heads", ""]}, %gk: tensor<4xf64>,
    %wv: tensor<16x2x4xf64> {nn.factors = ["", "key_heads", ""]},
    %wo: tensor<16x32xf64> {nn.factors = ["", "heads"]}) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {heads = 8 : i64, key_heads = 2 : i64}, nn.shared = ["key_heads"]} {
  %q = nn.linear %x, %wq {transpose_weight} : (tensor<?x8x16xf64>, tensor<8x4x16xf64>) -> tensor<?x8x8x4xf64>
  %k0 = nn.linear %x, %wk {transpose_weight} : (tensor<?x8x16xf64>, tensor<2x4x16xf64>) -> tensor<?x8x2x4xf64>
  %k1 = nn.bias_add %k0, %bk : (tensor<?x8x2x4xf64>, tensor<2x4xf64>) -> tensor<?x8x2x4xf64>
  %k, %s = nn.rms_norm %k1, %gk {eps = 1.0e-6 : f64} : (tensor<?x8x2x4xf64>, tensor<4xf64>) -> (tensor<?x8x2x4xf64>, tensor<?x8x2x1xf64>)
  %v = nn.linear %x, %wv : (tensor<?x8x16xf64>, tensor<16x2x4xf64>) -> tensor<?x8x2x4xf64>
  %o, %lse = nn.grouped_attention %q, %k, %v {causal, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64} : (tensor<?x8x8x4xf64>, tensor<?x8x2x4xf64>, tensor<?x8x2x4xf64>) -> (tensor<?x8x32xf64>, tensor<?x8x8xf64>)
  %p = nn.linear %o, %wo {transpose_weight} : (tensor<?x8x32xf64>, tensor<16x32xf64>) -> tensor<?x8x16xf64>
  %r = nn.add %x, %p : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %r : tensor<?x8x16xf64>
}
func.func private @masked(%x: tensor<?x8x16xf64>, %mask: tensor<?x8xi32>,
    %wq: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %bq: tensor<4x4xf64> {nn.factors = ["heads", ""]},
    %wk: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wv: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wo: tensor<16x16xf64> {nn.factors = ["", "heads"]}, %bo: tensor<16xf64>,
    %g1: tensor<16xf64>, %b1: tensor<16xf64>,
    %wi: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %bi: tensor<24xf64> {nn.factors = ["ffn"]},
    %wf: tensor<16x24xf64> {nn.factors = ["", "ffn"]},
    %g2: tensor<16xf64>, %b2: tensor<16xf64>) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {heads = 4 : i64, ffn = 24 : i64}} {
  %q0 = nn.linear %x, %wq {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %q = nn.bias_add %q0, %bq : (tensor<?x8x4x4xf64>, tensor<4x4xf64>) -> tensor<?x8x4x4xf64>
  %k = nn.linear %x, %wk {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %v = nn.linear %x, %wv {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %o, %lse = nn.grouped_attention %q, %k, %v mask %mask {scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64} : (tensor<?x8x4x4xf64>, tensor<?x8x4x4xf64>, tensor<?x8x4x4xf64>, tensor<?x8xi32>) -> (tensor<?x8x16xf64>, tensor<?x4x8xf64>)
  %p0 = nn.linear %o, %wo {transpose_weight} : (tensor<?x8x16xf64>, tensor<16x16xf64>) -> tensor<?x8x16xf64>
  %p1 = nn.bias_add %p0, %bo : (tensor<?x8x16xf64>, tensor<16xf64>) -> tensor<?x8x16xf64>
  %p = nn.dropout %p1 {p = 1.0e-1 : f64, op_index = 1 : i64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %r1 = nn.add %x, %p : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %n1, %s1 = nn.layer_norm %r1, %g1, %b1 {eps = 1.0e-5 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x2xf64>)
  %h0 = nn.linear %n1, %wi {transpose_weight} : (tensor<?x8x16xf64>, tensor<24x16xf64>) -> tensor<?x8x24xf64>
  %h1 = nn.bias_add %h0, %bi : (tensor<?x8x24xf64>, tensor<24xf64>) -> tensor<?x8x24xf64>
  %h = nn.gelu %h1 : (tensor<?x8x24xf64>) -> tensor<?x8x24xf64>
  %f = nn.linear %h, %wf {transpose_weight} : (tensor<?x8x24xf64>, tensor<16x24xf64>) -> tensor<?x8x16xf64>
  %r2 = nn.add %n1, %f : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %n2, %s2 = nn.layer_norm %r2, %g2, %b2 {eps = 1.0e-5 : f64} : (tensor<?x8x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x8x16xf64>, tensor<?x8x2xf64>)
  return %n2 : tensor<?x8x16xf64>
}
func.func private @biased(%x: tensor<?x8x16xf64>, %bias: tensor<?x4x15xf64>,
    %wq: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wk: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wv: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wo: tensor<16x16xf64> {nn.factors = ["", "heads"]},
    %wg: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %wu: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %wf: tensor<16x24xf64> {nn.factors = ["", "ffn"]}) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {heads = 4 : i64, ffn = 24 : i64}} {
  %q = nn.linear %x, %wq {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %k = nn.linear %x, %wk {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %v = nn.linear %x, %wv {transpose_weight} : (tensor<?x8x16xf64>, tensor<4x4x16xf64>) -> tensor<?x8x4x4xf64>
  %o, %lse = nn.grouped_attention %q, %k, %v bias %bias {scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64} : (tensor<?x8x4x4xf64>, tensor<?x8x4x4xf64>, tensor<?x8x4x4xf64>, tensor<?x4x15xf64>) -> (tensor<?x8x16xf64>, tensor<?x4x8xf64>)
  %p = nn.linear %o, %wo {transpose_weight} : (tensor<?x8x16xf64>, tensor<16x16xf64>) -> tensor<?x8x16xf64>
  %s = nn.scale %p {factor = 2.5e-1 : f64} : (tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %r = nn.add %x, %s : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %g = nn.linear %r, %wg {transpose_weight} : (tensor<?x8x16xf64>, tensor<24x16xf64>) -> tensor<?x8x24xf64>
  %u0 = nn.linear %r, %wu {transpose_weight} : (tensor<?x8x16xf64>, tensor<24x16xf64>) -> tensor<?x8x24xf64>
  %u = nn.relu %u0 : (tensor<?x8x24xf64>) -> tensor<?x8x24xf64>
  %h = nn.gated_gelu %g, %u : (tensor<?x8x24xf64>, tensor<?x8x24xf64>) -> tensor<?x8x24xf64>
  %f = nn.linear %h, %wf {transpose_weight} : (tensor<?x8x24xf64>, tensor<16x24xf64>) -> tensor<?x8x16xf64>
  %y = nn.add %r, %f : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  return %y : tensor<?x8x16xf64>
}
func.func private @windowed(%x: tensor<?x15x16xf64>, %g: tensor<16xf64>, %b: tensor<16xf64>,
    %t: tensor<9x4xf64> {nn.factors = ["", "heads"]},
    %wq: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %bq: tensor<4x4xf64> {nn.factors = ["heads", ""]},
    %wk: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wv: tensor<4x4x16xf64> {nn.factors = ["heads", "", ""]},
    %wo: tensor<16x16xf64> {nn.factors = ["", "heads"]}, %bo: tensor<16xf64>,
    %gm: tensor<64xf64>, %bm: tensor<64xf64>, %wm: tensor<32x64xf64>) -> tensor<?x6x32xf64>
    attributes {nn.factor_units = {heads = 4 : i64}} {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x15x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x15x16xf64>, tensor<?x15x2xf64>)
  %w = nn.windows %n {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 1 : i64} : (tensor<?x15x16xf64>) -> tensor<?x6x4x16xf64>
  %q0 = nn.linear %w, %wq {transpose_weight} : (tensor<?x6x4x16xf64>, tensor<4x4x16xf64>) -> tensor<?x6x4x4x4xf64>
  %q = nn.bias_add %q0, %bq : (tensor<?x6x4x4x4xf64>, tensor<4x4xf64>) -> tensor<?x6x4x4x4xf64>
  %k = nn.linear %w, %wk {transpose_weight} : (tensor<?x6x4x16xf64>, tensor<4x4x16xf64>) -> tensor<?x6x4x4x4xf64>
  %v = nn.linear %w, %wv {transpose_weight} : (tensor<?x6x4x16xf64>, tensor<4x4x16xf64>) -> tensor<?x6x4x4x4xf64>
  %o, %lse = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, shift = 1 : i64, scale = 5.0e-1 : f64, dropout = 1.0e-1 : f64, op_index = 0 : i64} : (tensor<?x6x4x4x4xf64>, tensor<?x6x4x4x4xf64>, tensor<?x6x4x4x4xf64>, tensor<9x4xf64>) -> (tensor<?x6x4x16xf64>, tensor<?x6x4x4xf64>)
  %j = nn.join_windows %o {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 1 : i64} : (tensor<?x6x4x16xf64>) -> tensor<?x15x16xf64>
  %p0 = nn.linear %j, %wo {transpose_weight} : (tensor<?x15x16xf64>, tensor<16x16xf64>) -> tensor<?x15x16xf64>
  %p = nn.bias_add %p0, %bo : (tensor<?x15x16xf64>, tensor<16xf64>) -> tensor<?x15x16xf64>
  %d = nn.drop_path %p {rate = 2.0e-1 : f64, first_layer = 0 : i64, op_index = 1 : i64} : (tensor<?x15x16xf64>) -> tensor<?x15x16xf64>
  %r = nn.add %x, %d : (tensor<?x15x16xf64>, tensor<?x15x16xf64>) -> tensor<?x15x16xf64>
  %m = nn.windows %r {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x15x16xf64>) -> tensor<?x6x64xf64>
  %nm, %sm = nn.layer_norm %m, %gm, %bm {eps = 1.0e-5 : f64} : (tensor<?x6x64xf64>, tensor<64xf64>, tensor<64xf64>) -> (tensor<?x6x64xf64>, tensor<?x6x2xf64>)
  %y = nn.linear %nm, %wm {transpose_weight} : (tensor<?x6x64xf64>, tensor<32x64xf64>) -> tensor<?x6x32xf64>
  return %y : tensor<?x6x32xf64>
}
func.func private @mixed(%x: tensor<?x8x16xf64>,
    %wi: tensor<24x8xf64> {nn.factors = ["ffn", ""]},
    %bi: tensor<24xf64> {nn.factors = ["ffn"]},
    %wf: tensor<8x24xf64> {nn.factors = ["", "ffn"]},
    %wl: tensor<12x16xf64> {nn.factors = ["wide", ""]},
    %wm: tensor<16x12xf64> {nn.factors = ["", "wide"]}) -> tensor<?x16xf64>
    attributes {nn.factor_units = {ffn = 24 : i64, wide = 12 : i64}} {
  %t = nn.transpose %x : (tensor<?x8x16xf64>) -> tensor<?x16x8xf64>
  %h0 = nn.linear %t, %wi {transpose_weight} : (tensor<?x16x8xf64>, tensor<24x8xf64>) -> tensor<?x16x24xf64>
  %h1 = nn.bias_add %h0, %bi : (tensor<?x16x24xf64>, tensor<24xf64>) -> tensor<?x16x24xf64>
  %h = nn.gelu %h1 : (tensor<?x16x24xf64>) -> tensor<?x16x24xf64>
  %f = nn.linear %h, %wf {transpose_weight} : (tensor<?x16x24xf64>, tensor<8x24xf64>) -> tensor<?x16x8xf64>
  %u = nn.transpose %f : (tensor<?x16x8xf64>) -> tensor<?x8x16xf64>
  %r = nn.add %x, %u : (tensor<?x8x16xf64>, tensor<?x8x16xf64>) -> tensor<?x8x16xf64>
  %l = nn.linear %r, %wl {transpose_weight} : (tensor<?x8x16xf64>, tensor<12x16xf64>) -> tensor<?x8x12xf64>
  %m = nn.mean %l : (tensor<?x8x12xf64>) -> tensor<?x12xf64>
  %y = nn.linear %m, %wm {transpose_weight} : (tensor<?x12xf64>, tensor<16x12xf64>) -> tensor<?x16xf64>
  return %y : tensor<?x16xf64>
}
func.func private @classes(%x: tensor<?x8x16xf64>, %labels: tensor<?xi32>,
    %c: tensor<16xf64>, %g: tensor<16xf64>, %b: tensor<16xf64>,
    %w: tensor<33x16xf64> {nn.factors = ["classes", ""]},
    %bw: tensor<33xf64> {nn.factors = ["classes"]}) -> tensor<1xf64>
    attributes {nn.factor_units = {classes = 33 : i64}, nn.uneven = ["classes"]} {
  %p = nn.prepend %x, %c : (tensor<?x8x16xf64>, tensor<16xf64>) -> tensor<?x9x16xf64>
  %n, %s = nn.layer_norm %p, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x9x16xf64>, tensor<16xf64>, tensor<16xf64>) -> (tensor<?x9x16xf64>, tensor<?x9x2xf64>)
  %t0 = nn.take %n {position = 0 : i64} : (tensor<?x9x16xf64>) -> tensor<?x16xf64>
  %t4 = nn.take %n {position = 4 : i64} : (tensor<?x9x16xf64>) -> tensor<?x16xf64>
  %t = nn.add %t0, %t4 : (tensor<?x16xf64>, tensor<?x16xf64>) -> tensor<?x16xf64>
  %l = nn.linear %t, %w {transpose_weight} : (tensor<?x16xf64>, tensor<33x16xf64>) -> tensor<?x33xf64>
  %lb = nn.bias_add %l, %bw : (tensor<?x33xf64>, tensor<33xf64>) -> tensor<?x33xf64>
  %loss, %d = nn.cross_entropy %lb, %labels {classes = 33 : i64} : (tensor<?x33xf64>, tensor<?xi32>) -> (tensor<1xf64>, tensor<?x33xf64>)
  return %loss : tensor<1xf64>
}
func.func private @test(%x: tensor<?x8x16xf64>,
    %wi: tensor<16x24xf64> {nn.factors = ["", "ffn"]},
    %wf: tensor<24x16xf64> {nn.factors = ["ffn", ""]},
    %bf: tensor<16xf64>) -> tensor<?x8x16xf64>
    attributes {nn.factor_units = {ffn = 24 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf64>, tensor<16x24xf64>) -> tensor<?x8x24xf64>
  %a = test_nn.scaled_gelu %h {factor = 1.5 : f64} : tensor<?x8x24xf64>
  %f = nn.linear %a, %wf : (tensor<?x8x24xf64>, tensor<24x16xf64>) -> tensor<?x8x16xf64>
  %s = test_nn.scale %f {factor = 0.5 : f64} : tensor<?x8x16xf64>
  %r = nn.bias_add %s, %bf : (tensor<?x8x16xf64>, tensor<16xf64>) -> tensor<?x8x16xf64>
  return %r : tensor<?x8x16xf64>
}
)mlir";
}

double Numbers::uniform() {
  return double(engine()) / 4294967296.0 * 2.0 - 1.0;
}

int64_t Numbers::below(int64_t bound) { return int64_t(engine()) % bound; }

Tensor Numbers::tensor(mlir::Type type, int64_t samples, int64_t classes) {
  auto ranked = llvm::cast<mlir::RankedTensorType>(type);
  std::vector<int64_t> shape;
  for (int64_t dim : ranked.getShape())
    shape.push_back(mlir::ShapedType::isDynamic(dim) ? samples : dim);
  Tensor result = Tensor::zeros(shape);
  for (double &value : result.values)
    value = ranked.getElementType().isInteger() ? double(below(classes))
                                                : uniform();
  return result;
}

std::vector<Tensor> galvatron::tests::makeArguments(mlir::func::FuncOp function,
                                                    int64_t samples,
                                                    int64_t classes,
                                                    Numbers &numbers) {
  std::vector<Tensor> arguments;
  for (mlir::Type type : function.getArgumentTypes())
    arguments.push_back(numbers.tensor(type, samples, classes));
  return arguments;
}

double galvatron::tests::relativeError(const Tensor &actual,
                                       const Tensor &expected) {
  if (actual.shape != expected.shape)
    return INFINITY;
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    double delta = actual.values[i] - expected.values[i];
    difference += delta * delta;
    norm += expected.values[i] * expected.values[i];
  }
  if (norm == 0)
    return difference == 0 ? 0 : INFINITY;
  return std::sqrt(difference / norm);
}

std::vector<unsigned>
galvatron::tests::argumentsWith(mlir::func::FuncOp function,
                                std::vector<mlir::nn::ValueRole> roles) {
  std::vector<unsigned> found;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (llvm::is_contained(roles, mlir::nn::getArgRole(function, i)))
      found.push_back(i);
  return found;
}

std::vector<unsigned>
galvatron::tests::resultsWith(mlir::func::FuncOp function,
                              std::vector<mlir::nn::ValueRole> roles) {
  std::vector<unsigned> found;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (llvm::is_contained(roles, mlir::nn::getResultRole(function, i)))
      found.push_back(i);
  return found;
}

llvm::SmallVector<bool>
galvatron::tests::integersOf(mlir::func::FuncOp function, unsigned count) {
  llvm::SmallVector<bool> result;
  for (mlir::Type type : function.getArgumentTypes().take_front(count))
    result.push_back(
        llvm::cast<mlir::RankedTensorType>(type).getElementType().isInteger());
  return result;
}
