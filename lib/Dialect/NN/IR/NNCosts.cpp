//===- NNCosts.cpp - Work of nn operations --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Matrix products are exact: 2 * rows * in * out. Causal attention counts the
// half of the scores that it computes. Element-wise operations count a handful
// of FLOPs an element; they are bound by memory and their time comes from the
// bytes they move.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>

using namespace mlir;
using namespace mlir::nn;

namespace {

double elements(Value value, int64_t samples) {
  return double(countElements(value.getType(), samples));
}

/// Rows of an activation: all dimensions but the last.
double rowsOf(Value value, int64_t samples) {
  return elements(value, samples) /
         double(cast<RankedTensorType>(value.getType()).getShape().back());
}

/// The part of all pairs of a query and a key that documents leave, of which
/// causal ones see half. With a mean length over tokens, the sum of squared
/// lengths is the tokens times it.
double seenOf(double keys, bool causal, int64_t documentLength) {
  double seen = documentLength > 0 && double(documentLength) < keys
                    ? double(documentLength) / keys
                    : 1.0;
  return seen * (causal ? 0.5 : 1.0);
}

/// Pairs of a query and a key of one head that the busiest rank has where a
/// block of rows is cut from samples of `length` queries and `keys` keys.
/// Blocks that are whole samples have the same, as have balanced ones; else of
/// one sample under causal masking the last block has most.
double pairsOfBusiestBlock(RowsAttr block, double rows, double keys,
                           bool causal) {
  if (!causal)
    return rows * keys;
  const auto length = double(block.getLength());
  // Of queries [0, n) of a sample.
  auto pairsUpTo = [&](double n) { return n * (n / 2 + keys - length); };
  // A row and the one that mirrors it see the same number of keys together.
  if (block.getBalanced())
    return rows * pairsUpTo(length) / length;
  double most = 0;
  for (int64_t rank = 0; rank < block.getDegree(); ++rank) {
    double begin = double(rank) * rows, end = begin + rows;
    double first = std::floor(begin / length), last = std::floor(end / length);
    double pairs = (last - first) * pairsUpTo(length) +
                   pairsUpTo(end - last * length) -
                   pairsUpTo(begin - first * length);
    most = std::max(most, pairs);
  }
  return most;
}

/// FLOPs and elements of a product of attention on a block of rows, of so many
/// heads; the keys of one sample are counted for each of its queries' share.
struct BlockProduct {
  double flops, elements;
};
BlockProduct blockProduct(Value o, double heads, double size, double keys,
                          bool causal, double window, int64_t samples) {
  auto type = cast<RankedTensorType>(o.getType());
  double rows = elements(o, samples) / (heads * size);
  double pairs = pairsOfBusiestBlock(RowsAttr::of(type), rows, keys, causal);
  if (window > 0)
    pairs = std::min(pairs, rows * window);
  double seen = pairs / (rows * keys);
  return {2 * heads * size * pairs,
          seen * heads * (rows * size + keys * size + rows * keys)};
}

template <typename OpTy> BlockProduct blockOfPacked(OpTy op, int64_t samples) {
  auto qkv = cast<RankedTensorType>(op.getQkv().getType());
  auto heads = double(op.getHeads());
  return blockProduct(op.getO(), heads, double(qkv.getDimSize(3)) / heads,
                      double(qkv.getDimSize(1)), op.getCausal(), /*window=*/0,
                      samples);
}

/// FLOPs of one of attention's products over all heads:
/// 2 * samples * heads * positions^2 * head size, half of it if causal.
template <typename OpTy> double attentionProduct(OpTy op, int64_t samples) {
  if (RowsAttr::of(op.getO().getType()))
    return blockOfPacked(op, samples).flops;
  Value qkv = op.getQkv();
  auto type = cast<RankedTensorType>(qkv.getType());
  double positions = double(type.getDimSize(1));
  double perPair = elements(qkv, samples) / 3 / positions; // samples * width
  return 2 * perPair * positions * positions *
         seenOf(positions, op.getCausal(), op.getDocumentLength());
}

/// Elements of one of them: per head [positions x head size], its transpose and
/// the scores, as much of them as its FLOPs count.
template <typename OpTy>
double attentionProductElements(OpTy op, int64_t samples) {
  if (RowsAttr::of(op.getO().getType()))
    return blockOfPacked(op, samples).elements;
  Value qkv = op.getQkv();
  auto type = cast<RankedTensorType>(qkv.getType());
  double positions = double(type.getDimSize(1));
  double vectors = elements(qkv, samples) / 3;
  double sequences = vectors / (positions * double(type.getDimSize(3)));
  double scores = sequences * double(op.getHeads()) * positions * positions;
  return (2 * vectors + scores) *
         seenOf(positions, op.getCausal(), op.getDocumentLength());
}

/// One product of `grouped_attention` over all heads: its FLOPs, and the
/// elements of its operands and scores as far as queries see keys.
struct GroupedProduct {
  double flops, elements;
};
template <typename OpTy>
GroupedProduct groupedProduct(OpTy op, int64_t samples) {
  auto q = cast<RankedTensorType>(op.getQ().getType());
  if (RowsAttr::of(q)) {
    auto keys = cast<RankedTensorType>(op.getK().getType());
    BlockProduct block = blockProduct(
        op.getO(), double(q.getDimSize(1)), double(q.getDimSize(2)),
        double(keys.getDimSize(1)), op.getCausal(),
        double(op.getWindow()) * (op.getCausal() ? 1 : 2), samples);
    return {block.flops, block.elements};
  }
  double queries = double(q.getDimSize(1));
  double keys =
      double(cast<RankedTensorType>(op.getK().getType()).getDimSize(1));
  double pairs =
      queries * keys * seenOf(keys, op.getCausal(), op.getDocumentLength());
  // The first queries have fewer keys behind them than the window holds, and
  // where it has two sides the last ones fewer in front.
  const double sides = op.getCausal() ? 1 : 2;
  if (double window = double(op.getWindow()); window > 0 && window < keys)
    pairs = std::min(pairs, sides * (queries * window - 0.5 * window * window));
  double seen = pairs / (queries * keys);
  double vectors = elements(op.getQ(), samples);
  double heads = vectors / (queries * double(q.getDimSize(3)));
  return {2 * heads * double(q.getDimSize(3)) * pairs,
          seen * (vectors * (1 + keys / queries) + heads * queries * keys)};
}

/// The same of `window_attention`.
template <typename OpTy>
GroupedProduct windowProduct(OpTy op, int64_t samples) {
  ArrayRef<int64_t> q = cast<RankedTensorType>(op.getQ().getType()).getShape();
  double vectors = elements(op.getQ(), samples);
  double scores = vectors / double(q[4]) * double(q[2]);
  return {2 * scores * double(q[4]), 2 * vectors + scores};
}

} // namespace

double EmbeddingOp::getFlops(int64_t samples) { return 0; }
// Only the rows looked up are read, not the table.
double EmbeddingOp::getMovedBytes(int64_t samples) {
  return double(countBytes(getTokens().getType(), samples)) +
         2.0 * double(countBytes(getY().getType(), samples));
}

double EmbeddingGradOp::getFlops(int64_t samples) {
  return elements(getDy(), samples);
}
// The whole table's gradient is written once, then rows are read and added to.
double EmbeddingGradOp::getMovedBytes(int64_t samples) {
  return double(countBytes(getTokens().getType(), samples)) +
         3.0 * double(countBytes(getDy().getType(), samples)) +
         double(countBytes(getDtable().getType(), samples));
}

// They move data.
double PatchesOp::getFlops(int64_t samples) { return 0; }
double WindowsOp::getFlops(int64_t samples) { return 0; }
double JoinWindowsOp::getFlops(int64_t samples) { return 0; }
double TransposeOp::getFlops(int64_t samples) { return 0; }
double OwnPartOp::getFlops(int64_t samples) { return 0; }
// Of `x` only the part is read.
double OwnPartOp::getMovedBytes(int64_t samples) {
  return 2.0 * double(countBytes(getY().getType(), samples));
}
double OwnPartGradOp::getFlops(int64_t samples) { return 0; }
double MeanOp::getFlops(int64_t samples) { return elements(getX(), samples); }
double PrependOp::getFlops(int64_t samples) { return 0; }
double PrependGradOp::getFlops(int64_t samples) {
  return elements(getDy(), samples) /
         double(cast<RankedTensorType>(getDy().getType()).getDimSize(1));
}
double TakeOp::getFlops(int64_t samples) { return 0; }
// Of `x` only the position that is taken is read.
double TakeOp::getMovedBytes(int64_t samples) {
  return 2.0 * double(countBytes(getY().getType(), samples));
}
double TakeGradOp::getFlops(int64_t samples) { return 0; }

double LinearOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getX(), samples) * elements(getW(), samples);
}

double LinearInputGradOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getDx(), samples) * elements(getW(), samples);
}

double LinearWeightGradOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getX(), samples) * elements(getDw(), samples);
}

// What stands behind a product is done on its results while they are in
// registers; it is counted neither as work nor as elements of the product.
double LinearGeluOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getX(), samples) * elements(getW(), samples);
}
double LinearGeluOp::getProductElements(int64_t samples) {
  return elements(getX(), samples) + elements(getW(), samples) +
         elements(getY(), samples);
}
double LinearGeluGradOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getDx(), samples) * elements(getW(), samples);
}
double LinearGeluGradOp::getProductElements(int64_t samples) {
  return elements(getDy(), samples) + elements(getW(), samples) +
         elements(getDx(), samples);
}
double LinearWeightBiasGradOp::getFlops(int64_t samples) {
  return 2.0 * rowsOf(getX(), samples) * elements(getDw(), samples);
}

double BiasGradOp::getFlops(int64_t samples) {
  return elements(getDy(), samples);
}
double LayerNormOp::getFlops(int64_t samples) {
  return 8 * elements(getX(), samples);
}
double LayerNormGradOp::getFlops(int64_t samples) {
  return 14 * elements(getX(), samples);
}
double AddLayerNormOp::getFlops(int64_t samples) {
  return (getP().convertToDouble() > 0 ? 10 : 9) * elements(getX(), samples);
}
double LayerNormAddGradOp::getFlops(int64_t samples) {
  return 15 * elements(getX(), samples);
}
double StandardizeOp::getFlops(int64_t samples) {
  return 6 * elements(getX(), samples);
}
double StandardizeGradOp::getFlops(int64_t samples) {
  return 11 * elements(getX(), samples);
}
double RMSNormOp::getFlops(int64_t samples) {
  return 5 * elements(getX(), samples);
}
double RMSNormGradOp::getFlops(int64_t samples) {
  return 10 * elements(getX(), samples);
}
double RotaryOp::getFlops(int64_t samples) {
  return 3 * elements(getX(), samples);
}
double GatedSiluOp::getFlops(int64_t samples) {
  return 13 * elements(getGate(), samples);
}
double GatedSiluGradOp::getFlops(int64_t samples) {
  return 18 * elements(getGate(), samples);
}
double GatedGeluOp::getFlops(int64_t samples) {
  return 15 * elements(getGate(), samples);
}
double GatedGeluGradOp::getFlops(int64_t samples) {
  return 27 * elements(getGate(), samples);
}
double ReluOp::getFlops(int64_t samples) { return elements(getX(), samples); }
double ReluGradOp::getFlops(int64_t samples) {
  return elements(getY(), samples);
}
// A hyperbolic tangent is counted as the GELU that has one.
double SoftCapOp::getFlops(int64_t samples) {
  return 14 * elements(getX(), samples);
}
double SoftCapGradOp::getFlops(int64_t samples) {
  return 4 * elements(getY(), samples);
}
double ClipOp::getFlops(int64_t samples) {
  return 2 * elements(getX(), samples);
}
double ClipGradOp::getFlops(int64_t samples) {
  return 2 * elements(getX(), samples);
}
double ColumnScaleOp::getFlops(int64_t samples) {
  return elements(getX(), samples);
}
double ColumnScaleGradOp::getFlops(int64_t samples) {
  return 2 * elements(getX(), samples);
}
// It moves data.
double RelativeBiasOp::getFlops(int64_t samples) { return 0; }
double RelativeBiasGradOp::getFlops(int64_t samples) {
  return elements(getDbias(), samples);
}
double GeluOp::getFlops(int64_t samples) {
  return 14 * elements(getX(), samples);
}
double GeluGradOp::getFlops(int64_t samples) {
  return 24 * elements(getX(), samples);
}
double BiasGeluOp::getFlops(int64_t samples) {
  return 15 * elements(getX(), samples);
}
double DropoutAddOp::getFlops(int64_t samples) {
  return 2 * elements(getX(), samples);
}

// Scores and the weighted sum of values.
double AttentionOp::getFlops(int64_t samples) {
  return 2 * attentionProduct(*this, samples);
}
double AttentionOp::getProductElements(int64_t samples) {
  return 2 * attentionProductElements(*this, samples);
}
bool AttentionOp::isAttention() { return true; }
// Scores again, then the gradients of values, probabilities, queries and keys.
double AttentionGradOp::getFlops(int64_t samples) {
  return 5 * attentionProduct(*this, samples);
}
double AttentionGradOp::getProductElements(int64_t samples) {
  return 5 * attentionProductElements(*this, samples);
}
bool AttentionGradOp::isAttention() { return true; }

double GroupedAttentionOp::getFlops(int64_t samples) {
  return 2 * groupedProduct(*this, samples).flops;
}
double GroupedAttentionOp::getProductElements(int64_t samples) {
  return 2 * groupedProduct(*this, samples).elements;
}
bool GroupedAttentionOp::isAttention() { return true; }
double GroupedAttentionGradOp::getFlops(int64_t samples) {
  return 5 * groupedProduct(*this, samples).flops;
}
double GroupedAttentionGradOp::getProductElements(int64_t samples) {
  return 5 * groupedProduct(*this, samples).elements;
}
bool GroupedAttentionGradOp::isAttention() { return true; }

double CachedAttentionOp::getFlops(int64_t samples) {
  auto keys = cast<RankedTensorType>(getKeys().getType());
  return 4 * elements(getO(), samples) * double(keys.getDimSize(2));
}

double CachedCrossAttentionOp::getFlops(int64_t samples) {
  auto keys = cast<RankedTensorType>(getKeys().getType());
  return 4 * elements(getO(), samples) * double(keys.getDimSize(2));
}

double WindowAttentionOp::getFlops(int64_t samples) {
  return 2 * windowProduct(*this, samples).flops;
}
double WindowAttentionOp::getProductElements(int64_t samples) {
  return 2 * windowProduct(*this, samples).elements;
}
bool WindowAttentionOp::isAttention() { return true; }
double WindowAttentionGradOp::getFlops(int64_t samples) {
  return 5 * windowProduct(*this, samples).flops;
}
double WindowAttentionGradOp::getProductElements(int64_t samples) {
  return 5 * windowProduct(*this, samples).elements;
}
bool WindowAttentionGradOp::isAttention() { return true; }

double CrossEntropyOp::getFlops(int64_t samples) {
  return (getStats() ? 4 : 8) * elements(getLogits(), samples);
}
double SoftmaxStatsOp::getFlops(int64_t samples) {
  return 4 * elements(getLogits(), samples);
}
