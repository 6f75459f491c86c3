//===- NNFactors.cpp - Factors of nn operations ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace mlir::nn;

namespace {

size_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

/// `count` consecutive factor numbers from `first`.
SmallVector<int> factors(int first, size_t count) {
  SmallVector<int> result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(first + int(i));
  return result;
}

SmallVector<int> concat(ArrayRef<int> a, ArrayRef<int> b) {
  SmallVector<int> result(a.begin(), a.end());
  result.append(b.begin(), b.end());
  return result;
}

/// All operands and results have the same shape and every dimension may be
/// split.
FactorRule elementwise(Operation *op) {
  SmallVector<int> all = factors(0, rankOf(op->getResult(0)));
  FactorRule rule;
  rule.operands.assign(op->getNumOperands(), all);
  rule.results.assign(op->getNumResults(), all);
  return rule;
}

/// Factors of a linear's operands: rows, contracted dimension, outputs.
struct LinearFactors {
  SmallVector<int> x, w, y, bias;
};
LinearFactors linearFactors(size_t xRank, size_t wRank, bool transpose) {
  SmallVector<int> rows = factors(0, xRank - 1);
  int in = int(xRank) - 1;
  SmallVector<int> out = factors(in + 1, wRank - 1);
  LinearFactors result;
  result.x = concat(rows, in);
  result.w = transpose ? concat(out, in) : concat(in, out);
  result.y = concat(rows, out);
  result.bias = out;
  return result;
}

/// The rows of `x` may be split together with those of a same-rank tensor; the
/// last dimensions must be whole because they are normalised over.
SmallVector<int> allButLastDims(size_t rank, size_t normed = 1) {
  SmallVector<int> result = factors(0, rank - normed);
  result.append(normed, kNoFactor);
  return result;
}

/// Marks a dropout whose last dimension is split. A block of rows has one
/// dimension for samples and positions, which have a factor each.
LogicalResult partitionDropout(Operation *op, int factor,
                               llvm::function_ref<void()> setSharded) {
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  const auto factorCount = int(type.getRank()) + (RowsAttr::of(type) ? 1 : 0);
  if (factor == factorCount - 1) {
    setSharded();
    return success();
  }
  return op->emitOpError()
         << "expected a split of the last dimension only: the mask is keyed by "
            "the global row";
}

constexpr int kHeads = 1, kVocabulary = 0, kSliced = 0;
/// Of operations that work on positions by their number.
constexpr int kPositions = 2;

} // namespace

std::optional<std::pair<int, int>> nn::getRowFactors(FactorOpInterface op,
                                                     const FactorRule &rule) {
  if (!op.takesRows())
    return std::nullopt;
  using Dims = std::pair<RankedTensorType, ArrayRef<int>>;
  SmallVector<Dims> all;
  for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
    all.push_back({cast<RankedTensorType>(operand.getType()), dims});
  for (auto [result, dims] : llvm::zip_equal(op->getResults(), rule.results))
    all.push_back({cast<RankedTensorType>(result.getType()), dims});
  // The second dimension of a tensor of rank 2 may be no position.
  const bool mixes = op.mixesPositions();
  auto *first = llvm::find_if(all, [&](const Dims &value) {
    return value.first.getRank() >= 3 && value.first.isDynamicDim(0) &&
           (!mixes || value.second[1] != kNoFactor);
  });
  if (first == all.end())
    return std::nullopt;
  std::pair<int, int> rows = {first->second[0], first->second[1]};
  if (rows.first == kNoFactor || rows.second == kNoFactor)
    return std::nullopt;
  for (const auto &[type, dims] : all) {
    if (!isa<FloatType>(type.getElementType()) ||
        (!llvm::is_contained(dims, rows.first) &&
         !llvm::is_contained(dims, rows.second)))
      continue;
    if (dims.size() < 2 || dims[0] != rows.first ||
        (dims[1] != rows.second && !mixes))
      return std::nullopt;
  }
  return rows;
}

// Shards of a table that is looked up from another row on would not be alike.
FactorRule EmbeddingOp::getFactorRule() {
  SmallVector<int> rows = factors(2, rankOf(getTokens()));
  const int tableRows = getFirst() == 0 ? kVocabulary : kNoFactor;
  return {{rows, {tableRows, 1}}, {concat(rows, 1)}};
}
LogicalResult EmbeddingOp::partition(OpBuilder &, int factor,
                                     const ShardContext &) {
  if (factor == kVocabulary)
    setSharded(true);
  return success();
}

// Its tokens are data of all ranks.
bool EmbeddingOp::takesRows() { return false; }

FactorRule EmbeddingGradOp::getFactorRule() {
  SmallVector<int> rows = factors(2, rankOf(getTokens()));
  const int tableRows = getFirst() == 0 ? kVocabulary : kNoFactor;
  return {{rows, concat(rows, 1), {tableRows, 1}}, {{tableRows, 1}}};
}
LogicalResult EmbeddingGradOp::partition(OpBuilder &, int factor,
                                         const ShardContext &) {
  if (factor == kVocabulary)
    setSharded(true);
  return success();
}

// Tokens are those of all rows.
bool EmbeddingGradOp::countsPositions() { return true; }

FactorRule PositionAddOp::getFactorRule() {
  FactorRule rule{{{0, kPositions, 1}, {kNoFactor, 1}}, {{0, kPositions, 1}}};
  if (getStarts())
    rule.operands.push_back({0, kNoFactor});
  return rule;
}
bool PositionAddOp::takesRows() { return !getStarts(); }
bool PositionAddOp::countsPositions() { return true; }

FactorRule PositionGradOp::getFactorRule() {
  FactorRule rule{{{0, kPositions, 1}}, {{kNoFactor, 1}}};
  if (getStarts())
    rule.operands.push_back({0, kNoFactor});
  return rule;
}
bool PositionGradOp::takesRows() { return !getStarts(); }
bool PositionGradOp::countsPositions() { return true; }

// Every rank of a group that splits a body has whole images.
FactorRule PatchesOp::getFactorRule() {
  return {{{0, kNoFactor, kNoFactor, kNoFactor}}, {{0, kNoFactor, kNoFactor}}};
}

/// Between a grid and its windows channels stay what they are, unless several
/// positions have theirs side by side.
static FactorRule windowsRule(bool merge, bool join) {
  SmallVector<int> grid = {0, kNoFactor, merge ? kNoFactor : 1}, windows = grid;
  if (!merge)
    windows = {0, kNoFactor, kNoFactor, 1};
  return join ? FactorRule{{windows}, {grid}} : FactorRule{{grid}, {windows}};
}

FactorRule WindowsOp::getFactorRule() {
  return windowsRule(getMerge(), /*join=*/false);
}
bool WindowsOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}
FactorRule JoinWindowsOp::getFactorRule() {
  return windowsRule(getMerge(), /*join=*/true);
}
bool JoinWindowsOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}

FactorRule WindowAttentionOp::getFactorRule() {
  SmallVector<int> heads = {0, kNoFactor, kNoFactor, kHeads, kNoFactor};
  return {
      {heads, heads, heads, {kNoFactor, kHeads}},
      {{0, kNoFactor, kNoFactor, kHeads}, {0, kNoFactor, kHeads, kNoFactor}}};
}
bool WindowAttentionOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}
FactorRule WindowAttentionGradOp::getFactorRule() {
  SmallVector<int> heads = {0, kNoFactor, kNoFactor, kHeads, kNoFactor};
  SmallVector<int> o = {0, kNoFactor, kNoFactor, kHeads};
  SmallVector<int> table = {kNoFactor, kHeads};
  return {{heads, heads, heads, o, {0, kNoFactor, kHeads, kNoFactor}, o, table},
          {heads, heads, heads, table}};
}
bool WindowAttentionGradOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}

bool WindowAttentionOp::takesRows() { return false; }
bool WindowAttentionOp::mixesPositions() { return true; }
bool WindowAttentionGradOp::takesRows() { return false; }
bool WindowAttentionGradOp::mixesPositions() { return true; }

// One number multiplies all of a sample.
FactorRule DropPathOp::getFactorRule() { return elementwise(*this); }
bool DropPathOp::takesRows() { return false; }
bool DropPathOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}

// Beside the first position there are two widths, which nothing cuts.
FactorRule MeanOp::getFactorRule() {
  int width = getBesideFirst() ? kNoFactor : 1;
  return {{{0, kNoFactor, width}}, {{0, width}}};
}
bool MeanOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}
FactorRule MeanGradOp::getFactorRule() {
  int width = getBesideFirst() ? kNoFactor : 1;
  return {{{0, width}}, {{0, kNoFactor, width}}};
}

FactorRule TransposeOp::getFactorRule() {
  SmallVector<int> x = factors(0, rankOf(getX())), y = x;
  std::swap(y[y.size() - 2], y.back());
  return {{x}, {y}};
}
bool TransposeOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}

/// Gives the factors of a part's dimensions: only `dim` may be split.
static SmallVector<int> partDims(size_t rank, int64_t dim) {
  SmallVector<int> dims(rank, kNoFactor);
  dims[dim] = kSliced;
  return dims;
}
/// How many ranks share a part.
static int64_t ranksOfPart(Value whole, Value part, int64_t dim,
                           const ShardContext &shards) {
  auto sizeOf = [&](Value value) {
    return cast<RankedTensorType>(value.getType()).getDimSize(dim);
  };
  return shards.size() / (sizeOf(whole) / sizeOf(part));
}
FactorRule OwnPartOp::getFactorRule() {
  size_t rank = rankOf(getX());
  return {{SmallVector<int>(rank, kNoFactor)},
          {partDims(rank, int64_t(getDim()))}};
}
int OwnPartOp::getSlicedFactor() { return kSliced; }
LogicalResult OwnPartOp::partition(OpBuilder &, int,
                                   const ShardContext &shards) {
  setRanks(ranksOfPart(getX(), getY(), int64_t(getDim()), shards));
  return success();
}
FactorRule OwnPartGradOp::getFactorRule() {
  size_t rank = rankOf(getDx());
  return {{partDims(rank, int64_t(getDim()))},
          {SmallVector<int>(rank, kNoFactor)}};
}
LogicalResult OwnPartGradOp::partition(OpBuilder &, int,
                                       const ShardContext &shards) {
  setRanks(ranksOfPart(getDx(), getDy(), int64_t(getDim()), shards));
  return success();
}

FactorRule PrependOp::getFactorRule() {
  return {{{0, kNoFactor, 1}, {1}}, {{0, kNoFactor, 1}}};
}
FactorRule PrependGradOp::getFactorRule() {
  return {{{0, kNoFactor, 1}}, {{0, kNoFactor, 1}, {1}}};
}

FactorRule TakeOp::getFactorRule() { return {{{0, kNoFactor, 1}}, {{0, 1}}}; }
FactorRule TakeGradOp::getFactorRule() {
  return {{{0, 1}}, {{0, kNoFactor, 1}}};
}

FactorRule LinearOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getX()), rankOf(getW()), getTransposeWeight());
  FactorRule rule{{f.x, f.w}, {f.y}};
  if (getBias())
    rule.operands.push_back(f.bias);
  return rule;
}

FactorRule LinearInputGradOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getDx()), rankOf(getW()), getTransposeWeight());
  return {{f.y, f.w}, {f.x}};
}

FactorRule LinearWeightGradOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getX()), rankOf(getDw()), getTransposeWeight());
  return {{f.x, f.y}, {f.w}};
}

FactorRule LinearGeluOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getX()), rankOf(getW()), getTransposeWeight());
  int contracted = f.x.back();
  llvm::replace(f.x, contracted, kNoFactor);
  llvm::replace(f.w, contracted, kNoFactor);
  FactorRule rule{{f.x, f.w, f.bias}, {f.y}};
  if (getPre())
    rule.results.push_back(f.y);
  return rule;
}

FactorRule LinearGeluGradOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getDx()), rankOf(getW()), getTransposeWeight());
  for (int contracted : f.bias) {
    llvm::replace(f.y, contracted, kNoFactor);
    llvm::replace(f.w, contracted, kNoFactor);
  }
  return {{f.y, f.w, f.x}, {f.x}};
}

FactorRule LinearWeightBiasGradOp::getFactorRule() {
  LinearFactors f =
      linearFactors(rankOf(getX()), rankOf(getDw()), /*transpose=*/false);
  return {{f.x, f.y}, {f.w, f.bias}};
}
// The gradient of the bias is of `dy` alone: with the columns of `x` split it
// is whole on every rank, beside a slice of the weight's.
bool LinearWeightBiasGradOp::isPartialResult(unsigned index, int factor) {
  return index != 1 || factor != int(rankOf(getX())) - 1;
}

FactorRule BiasAddOp::getFactorRule() {
  SmallVector<int> x = factors(0, rankOf(getX()));
  SmallVector<int> bias(ArrayRef<int>(x).take_back(rankOf(getBias())));
  return {{x, bias}, {x}};
}

FactorRule BiasGradOp::getFactorRule() {
  SmallVector<int> dy = factors(0, rankOf(getDy()));
  SmallVector<int> bias(ArrayRef<int>(dy).take_back(rankOf(getDbias())));
  return {{dy}, {bias}};
}

FactorRule LayerNormOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  FactorRule rule{{x, {kNoFactor}}, {x, x}};
  if (getBeta())
    rule.operands.push_back({kNoFactor});
  return rule;
}

FactorRule LayerNormGradOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  FactorRule rule{{x, x, x, {kNoFactor}}, {x, {kNoFactor}}};
  if (getDbeta())
    rule.results.push_back({kNoFactor});
  return rule;
}

FactorRule StandardizeOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  return {{x}, {x, x}};
}

FactorRule StandardizeGradOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  return {{x, x, x}, {x}};
}

FactorRule AddLayerNormOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  return {{x, x, {kNoFactor}, {kNoFactor}}, {x, x, x}};
}

FactorRule LayerNormAddGradOp::getFactorRule() {
  SmallVector<int> x = allButLastDims(rankOf(getX()));
  return {{x, x, x, {kNoFactor}, x}, {x, {kNoFactor}, {kNoFactor}}};
}

FactorRule RMSNormOp::getFactorRule() {
  SmallVector<int> gamma(rankOf(getGamma()), kNoFactor);
  SmallVector<int> x = allButLastDims(rankOf(getX()), gamma.size());
  return {{x, gamma}, {x, x}};
}

FactorRule RMSNormGradOp::getFactorRule() {
  SmallVector<int> gamma(rankOf(getGamma()), kNoFactor);
  SmallVector<int> x = allButLastDims(rankOf(getX()), gamma.size());
  return {{x, x, x, gamma}, {x, gamma}};
}

bool RotaryOp::countsPositions() { return true; }
// Pairs stand in one head.
FactorRule RotaryOp::getFactorRule() {
  SmallVector<int> x = {0, kPositions, kHeads, kNoFactor};
  FactorRule rule{{x}, {x}};
  if (getAt())
    rule.operands.push_back({0, kNoFactor});
  return rule;
}
bool RotaryOp::takesRows() { return !getAt(); }

FactorRule GatedSiluOp::getFactorRule() { return elementwise(*this); }
FactorRule GatedSiluGradOp::getFactorRule() { return elementwise(*this); }

FactorRule GatedGeluOp::getFactorRule() { return elementwise(*this); }
FactorRule GatedGeluGradOp::getFactorRule() { return elementwise(*this); }

FactorRule ReluOp::getFactorRule() { return elementwise(*this); }
FactorRule ReluGradOp::getFactorRule() { return elementwise(*this); }

FactorRule SoftCapOp::getFactorRule() { return elementwise(*this); }
FactorRule SoftCapGradOp::getFactorRule() { return elementwise(*this); }

FactorRule ClipOp::getFactorRule() { return elementwise(*this); }
FactorRule ClipGradOp::getFactorRule() { return elementwise(*this); }

FactorRule ColumnScaleOp::getFactorRule() {
  SmallVector<int> x = factors(0, rankOf(getX()));
  ArrayRef<int> scale = ArrayRef(x).take_back(rankOf(getScale()));
  return {{x, llvm::to_vector(scale)}, {x}};
}
bool ColumnScaleOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0] && !partialOperands[1];
}
FactorRule ColumnScaleGradOp::getFactorRule() {
  SmallVector<int> dy = factors(0, rankOf(getDy()));
  ArrayRef<int> dscale = ArrayRef(dy).take_back(rankOf(getDscale()));
  return {{dy, dy}, {llvm::to_vector(dscale)}};
}

FactorRule ScaleOp::getFactorRule() { return elementwise(*this); }
bool ScaleOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return partialOperands[0];
}

// Every rank has the rows of all heads; attention takes those of its own.
FactorRule RelativeBiasOp::getFactorRule() {
  return {{{kNoFactor, kNoFactor}}, {{0, kNoFactor, kNoFactor}}};
}
FactorRule RelativeBiasGradOp::getFactorRule() {
  return {{{0, kNoFactor, kNoFactor}}, {{kNoFactor, kNoFactor}}};
}

FactorRule GeluOp::getFactorRule() { return elementwise(*this); }
FactorRule GeluGradOp::getFactorRule() { return elementwise(*this); }

FactorRule BiasGeluOp::getFactorRule() {
  SmallVector<int> x = factors(0, rankOf(getX()));
  SmallVector<int> bias(ArrayRef<int>(x).take_back(rankOf(getBias())));
  return {{x, bias}, {x, x}};
}

FactorRule AttentionOp::getFactorRule() {
  FactorRule rule{{{0, kNoFactor, kNoFactor, kHeads}},
                  {{0, kPositions, kHeads}, {0, kHeads, kPositions}}};
  if (getStarts())
    rule.operands.push_back({0, kNoFactor});
  return rule;
}
/// Marks an attention that has the heads of a block, not of a tensor-parallel
/// rank alone.
template <typename OpTy>
static void markHeads(OpTy op, int factor, const ShardContext &shards) {
  if (factor == kHeads && !shards.numbersParts())
    op.setHeadsOfBlocks(true);
}
LogicalResult AttentionOp::partition(OpBuilder &, int factor,
                                     const ShardContext &shards) {
  if (factor == kHeads)
    setHeads(getHeads() / shards.size());
  markHeads(*this, factor, shards);
  return success();
}
HeadCounts AttentionOp::getHeadCounts() {
  return {kHeads, {int64_t(getHeads())}, getHeadsOfBlocks()};
}

// The kernel numbers heads as rank * local heads + head for the dropout key.
bool AttentionOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}

bool AttentionOp::takesRows() { return !getStarts(); }
bool AttentionOp::mixesPositions() { return true; }
bool AttentionOp::weighsLatePositions() { return getCausal(); }

FactorRule AttentionGradOp::getFactorRule() {
  SmallVector<int> qkv = {0, kNoFactor, kNoFactor, kHeads};
  SmallVector<int> o = {0, kPositions, kHeads};
  FactorRule rule{{qkv, o, {0, kHeads, kPositions}, o}, {qkv}};
  if (getStarts())
    rule.operands.push_back({0, kNoFactor});
  return rule;
}
LogicalResult AttentionGradOp::partition(OpBuilder &, int factor,
                                         const ShardContext &shards) {
  if (factor == kHeads)
    setHeads(getHeads() / shards.size());
  markHeads(*this, factor, shards);
  return success();
}
HeadCounts AttentionGradOp::getHeadCounts() {
  return {kHeads, {int64_t(getHeads())}, getHeadsOfBlocks()};
}

bool AttentionGradOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}

bool AttentionGradOp::takesRows() { return !getStarts(); }
bool AttentionGradOp::mixesPositions() { return true; }

/// Adds those of the operands that may be missing.
template <typename OpTy> static void addMaskAndBias(OpTy op, FactorRule &rule) {
  if (op.getMask())
    rule.operands.push_back({0, kNoFactor});
  if (op.getStarts())
    rule.operands.push_back({0, kNoFactor});
  if (op.getBias())
    rule.operands.push_back({0, kNoFactor, kNoFactor});
}

// Query heads and key heads are split alike: a rank has the key heads of its
// query heads.
FactorRule GroupedAttentionOp::getFactorRule() {
  SmallVector<int> queries = {0, kPositions, kHeads, kNoFactor};
  SmallVector<int> keys = {0, kNoFactor, kHeads, kNoFactor};
  FactorRule rule{{queries, keys, keys},
                  {{0, kPositions, kHeads}, {0, kHeads, kPositions}}};
  addMaskAndBias(*this, rule);
  return rule;
}
/// Gives the heads of queries and of keys, which are fewer or as many.
template <typename OpTy> static HeadCounts headsOfGroups(OpTy op) {
  auto headsOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getDimSize(2);
  };
  HeadCounts heads = {kHeads, {headsOf(op.getQ())}, op.getHeadsOfBlocks()};
  if (headsOf(op.getK()) != headsOf(op.getQ()))
    heads.counts.push_back(headsOf(op.getK()));
  return heads;
}
LogicalResult GroupedAttentionOp::partition(OpBuilder &, int factor,
                                            const ShardContext &shards) {
  markHeads(*this, factor, shards);
  return success();
}
HeadCounts GroupedAttentionOp::getHeadCounts() { return headsOfGroups(*this); }
// The kernel finds the rows of its heads in the bias, and their slopes, by
// their global numbers.
template <typename OpTy>
static bool mayBeReplicatedByHeads(OpTy op, const ShardContext &axis) {
  return !axis.numbersParts() || (op.getDropout().convertToDouble() == 0 &&
                                  !op.getBias() && op.getDistance().isZero());
}
bool GroupedAttentionOp::mayBeReplicated(const ShardContext &axis) {
  return mayBeReplicatedByHeads(*this, axis);
}

// Biases are by distance and documents by their starts, of whole samples; the
// kernel that changes scores knows no blocks.
template <typename OpTy> static bool takesRowsOfQueries(OpTy op) {
  return !op.getBias() && !op.getStarts() && op.getCap().isZero() &&
         op.getDistance().isZero();
}
bool GroupedAttentionOp::takesRows() { return takesRowsOfQueries(*this); }
bool GroupedAttentionOp::mixesPositions() { return true; }
bool GroupedAttentionOp::weighsLatePositions() { return getCausal(); }

FactorRule CachedAttentionOp::getFactorRule() {
  FactorRule rule;
  if (getParts().size() == 1)
    rule.operands.push_back({0, kNoFactor, kNoFactor, kHeads});
  else
    rule.operands.append(3, {0, kNoFactor, kHeads, kNoFactor});
  rule.operands.append(2, {kNoFactor, kHeads, kNoFactor, kNoFactor});
  rule.operands.append(2, {0, kNoFactor});
  if (getBias())
    rule.operands.push_back({0, kNoFactor, kNoFactor});
  rule.results.push_back({0, kNoFactor, kHeads});
  return rule;
}
LogicalResult CachedAttentionOp::partition(OpBuilder &, int factor,
                                           const ShardContext &shards) {
  if (factor == kHeads)
    setHeads(getHeads() / shards.size());
  return success();
}
// The kernel finds the slopes and biases of its heads by their global numbers.
bool CachedAttentionOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || (getDistance().isZero() && !getBias());
}
bool CachedAttentionOp::takesRows() { return false; }
bool CachedAttentionOp::mixesPositions() { return true; }

FactorRule CachedCrossAttentionOp::getFactorRule() {
  FactorRule rule;
  rule.operands.append(3, {0, kNoFactor, kHeads, kNoFactor});
  rule.operands.append(2, {kNoFactor, kHeads, kNoFactor, kNoFactor});
  rule.operands.append(3, {0, kNoFactor});
  rule.results.push_back({0, kNoFactor, kHeads});
  return rule;
}
LogicalResult CachedCrossAttentionOp::partition(OpBuilder &, int,
                                                const ShardContext &) {
  return success();
}
bool CachedCrossAttentionOp::takesRows() { return false; }
bool CachedCrossAttentionOp::mixesPositions() { return true; }

FactorRule GroupedAttentionGradOp::getFactorRule() {
  SmallVector<int> queries = {0, kPositions, kHeads, kNoFactor};
  SmallVector<int> keys = {0, kNoFactor, kHeads, kNoFactor};
  SmallVector<int> o = {0, kPositions, kHeads};
  FactorRule rule{{queries, keys, keys, o, {0, kHeads, kPositions}, o},
                  {queries, keys, keys}};
  addMaskAndBias(*this, rule);
  // Zeros where the heads are another rank's: a partial sum.
  if (getBias())
    rule.results.push_back({0, kNoFactor, kNoFactor});
  return rule;
}
LogicalResult GroupedAttentionGradOp::partition(OpBuilder &, int factor,
                                                const ShardContext &shards) {
  markHeads(*this, factor, shards);
  return success();
}
HeadCounts GroupedAttentionGradOp::getHeadCounts() {
  return headsOfGroups(*this);
}
bool GroupedAttentionGradOp::mayBeReplicated(const ShardContext &axis) {
  return mayBeReplicatedByHeads(*this, axis);
}

bool GroupedAttentionGradOp::takesRows() { return takesRowsOfQueries(*this); }
bool GroupedAttentionGradOp::mixesPositions() { return true; }

FactorRule DropoutOp::getFactorRule() { return elementwise(*this); }
LogicalResult DropoutOp::partition(OpBuilder &, int factor,
                                   const ShardContext &) {
  return partitionDropout(*this, factor, [&] { setColSharded(true); });
}

FactorRule DropoutAddOp::getFactorRule() { return elementwise(*this); }
LogicalResult DropoutAddOp::partition(OpBuilder &, int factor,
                                      const ShardContext &) {
  return partitionDropout(*this, factor, [&] { setColSharded(true); });
}

FactorRule AddOp::getFactorRule() { return elementwise(*this); }
bool AddOp::propagatesPartialSums(ArrayRef<bool> partialOperands) {
  return llvm::all_of(partialOperands, [](bool partial) { return partial; });
}

FactorRule CrossEntropyOp::getFactorRule() {
  SmallVector<int> rows = factors(1, rankOf(getLabels()));
  SmallVector<int> logits = concat(rows, kVocabulary);
  FactorRule rule{{logits, rows}, {{kNoFactor}, logits}};
  if (getStats())
    rule.operands.push_back(concat(kNoFactor, concat(rows, kNoFactor)));
  return rule;
}
// Labels are those of all rows.
bool CrossEntropyOp::countsPositions() { return true; }
// The loss is summed over the rows; shards of the vocabulary are combined.
bool CrossEntropyOp::isPartialResult(unsigned, int factor) {
  return factor != kVocabulary;
}
LogicalResult CrossEntropyOp::partition(OpBuilder &builder, int factor,
                                        const ShardContext &shards) {
  if (factor != kVocabulary)
    return success();
  // Each shard contributes a few numbers a row; every rank then combines all
  // shards' numbers in the same order.
  auto logits = cast<RankedTensorType>(getLogits().getType());
  SmallVector<int64_t> shape(logits.getShape());
  shape.back() = getStatistics();
  Type element = logits.getElementType();
  if (!element.isF64())
    element = builder.getF32Type();
  auto stats = SoftmaxStatsOp::create(
      builder, getLoc(),
      RankedTensorType::get(shape, element, logits.getEncoding()), getLogits(),
      getLabels(), getClasses(), /*total=*/isRegularized());
  Value all = shards.allGather(builder, getLoc(), stats);
  getStatsMutable().assign(all);
  return success();
}

FactorRule SoftmaxStatsOp::getFactorRule() {
  SmallVector<int> rows = factors(1, rankOf(getLabels()));
  return {{concat(rows, kVocabulary), rows}, {concat(rows, kNoFactor)}};
}
