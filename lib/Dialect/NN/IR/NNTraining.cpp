//===- NNTraining.cpp - How training options change nn operations ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace mlir::nn;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

ElementRole LayerNormOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole LayerNormGradOp::getElementRole(unsigned index) {
  return index > 0 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole AddLayerNormOp::getElementRole(unsigned index) {
  return index == 2 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole LayerNormAddGradOp::getElementRole(unsigned index) {
  return index > 0 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole StandardizeOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole ColumnScaleGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole RMSNormOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole RMSNormGradOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole GroupedAttentionOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole WindowAttentionOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole WindowAttentionGradOp::getElementRole(unsigned index) {
  return index == 3 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole AttentionOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole CrossEntropyOp::getElementRole(unsigned index) {
  return index == 0 ? ElementRole::Fixed : ElementRole::Compute;
}
ElementRole SoftmaxStatsOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole EmbeddingGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole RelativeBiasGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole OwnPartGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole PositionGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole PrependGradOp::getElementRole(unsigned index) {
  return index == 1 ? ElementRole::Accumulator : ElementRole::Compute;
}
ElementRole LinearWeightGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole LinearWeightBiasGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole BiasGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

static FloatAttr noDropout(Operation *op) {
  return FloatAttr::get(Float64Type::get(op->getContext()), 0.0);
}

static std::optional<int64_t> randomKey(const APFloat &probability,
                                        uint64_t opIndex) {
  return probability.isZero() ? std::nullopt
                              : std::optional(static_cast<int64_t>(opIndex));
}

std::optional<int64_t> DropoutOp::getRandomKey() {
  return randomKey(getP(), getOpIndex());
}
std::optional<int64_t> AttentionOp::getRandomKey() {
  return randomKey(getDropout(), getOpIndex());
}
std::optional<int64_t> GroupedAttentionOp::getRandomKey() {
  return randomKey(getDropout(), getOpIndex());
}

std::optional<int64_t> WindowAttentionOp::getRandomKey() {
  return randomKey(getDropout(), getOpIndex());
}
std::optional<int64_t> DropPathOp::getRandomKey() {
  return randomKey(getRate(), getOpIndex());
}

void DropoutOp::removeDropout() {
  getY().replaceAllUsesWith(getX());
  erase();
}
void DropPathOp::removeDropout() {
  getY().replaceAllUsesWith(getX());
  erase();
}
void WindowAttentionOp::removeDropout() { setDropoutAttr(noDropout(*this)); }
void WindowAttentionGradOp::removeDropout() {
  setDropoutAttr(noDropout(*this));
}
void DropoutAddOp::removeDropout() { setPAttr(noDropout(*this)); }
void AddLayerNormOp::removeDropout() { setPAttr(noDropout(*this)); }
void AttentionOp::removeDropout() { setDropoutAttr(noDropout(*this)); }
void AttentionGradOp::removeDropout() { setDropoutAttr(noDropout(*this)); }
void GroupedAttentionOp::removeDropout() { setDropoutAttr(noDropout(*this)); }
void GroupedAttentionGradOp::removeDropout() {
  setDropoutAttr(noDropout(*this));
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

bool CrossEntropyOp::addLossTerms(double smoothing, double zLoss) {
  setSmoothing(APFloat(smoothing));
  setZLoss(APFloat(zLoss));
  auto loss = cast<RankedTensorType>(getLoss().getType());
  getLoss().setType(loss.clone(ArrayRef<int64_t>{isRegularized() ? 2 : 1}));
  return true;
}

//===----------------------------------------------------------------------===//
// Documents
//===----------------------------------------------------------------------===//

/// Error: positions of a sample are mixed whatever their documents.
static LogicalResult refuseDocuments(Operation *op) {
  return op->emitOpError()
         << "mixes the positions of a sample, expected operations that keep "
            "its documents apart";
}

LogicalResult PatchesOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult PrependOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult TakeOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult MeanOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult TransposeOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult WindowsOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult JoinWindowsOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}
LogicalResult WindowAttentionOp::separateDocuments(Value, int64_t) {
  return refuseDocuments(*this);
}

/// Whether `x`, [samples, positions, ..], has the positions of `starts`.
static bool hasPositionsOf(Value x, Value starts) {
  return cast<RankedTensorType>(x.getType()).getDimSize(1) ==
         cast<RankedTensorType>(starts.getType()).getDimSize(1);
}

LogicalResult PositionAddOp::separateDocuments(Value starts, int64_t) {
  if (!hasPositionsOf(getX(), starts))
    return refuseDocuments(*this);
  getStartsMutable().assign(starts);
  return success();
}

// Windows and biases go by the distance of two positions, which is the same in
// their document; so do the scores of rotated queries and keys, whose rotations
// count from the first position of the sample.
LogicalResult AttentionOp::separateDocuments(Value starts, int64_t length) {
  if (!getCausal() || !hasPositionsOf(getQkv(), starts))
    return refuseDocuments(*this);
  getStartsMutable().assign(starts);
  setDocumentLength(length);
  return success();
}
LogicalResult GroupedAttentionOp::separateDocuments(Value starts,
                                                    int64_t length) {
  if (!getCausal() || !hasPositionsOf(getQ(), starts) ||
      !hasPositionsOf(getK(), starts))
    return refuseDocuments(*this);
  getStartsMutable().assign(starts);
  setDocumentLength(length);
  return success();
}

//===----------------------------------------------------------------------===//
// Keys and values that are kept
//===----------------------------------------------------------------------===//

/// Error: there is no form of the operation that computes one position.
static LogicalResult refuseToKeep(Operation *op, StringRef why) {
  return op->emitOpError()
         << why
         << ", expected operations that compute one position from the "
            "keys and values of those before it";
}

static constexpr StringLiteral kMixesOthers = "needs other positions";

LogicalResult PatchesOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult PrependOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult TakeOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult MeanOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult TransposeOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult WindowsOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult JoinWindowsOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult WindowAttentionOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, kMixesOthers);
}
LogicalResult RelativeBiasOp::keepKeys(OpBuilder &, KeptKeys &) {
  return refuseToKeep(*this, "makes biases of all distances");
}

// A learnt position is a row of its table.
LogicalResult PositionAddOp::keepKeys(OpBuilder &builder, KeptKeys &kept) {
  if (getStarts())
    return refuseToKeep(*this, "keeps documents apart");
  Value row = EmbeddingOp::create(builder, getLoc(), getX().getType(),
                                  kept.positions, getTable(),
                                  /*sharded=*/UnitAttr(),
                                  /*padding=*/IntegerAttr(), getFirstAttr());
  Value sum = AddOp::create(builder, getLoc(), getY().getType(), getX(), row);
  getY().replaceAllUsesWith(sum);
  erase();
  return success();
}

LogicalResult RotaryOp::keepKeys(OpBuilder &, KeptKeys &kept) {
  getAtMutable().assign(kept.positions);
  return success();
}

/// The factor that a weight gives what is computed from it: that of the product
/// which `value` is, or is a function of; empty if there is none.
static StringRef findWeightFactor(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto product = dyn_cast<LinearOp>(op)) {
      auto weight = dyn_cast<BlockArgument>(product.getW());
      if (!weight)
        return {};
      auto body = cast<FunctionOpInterface>(weight.getOwner()->getParentOp());
      auto names =
          body.getArgAttrOfType<ArrayAttr>(weight.getArgNumber(), kFactorsAttr);
      if (names)
        for (auto name : names.getAsRange<StringAttr>())
          if (!name.empty())
            return name.getValue();
      return {};
    }
    if (op->getNumOperands() == 0)
      return {};
    value = op->getOperand(0);
  }
  return {};
}

/// Puts attention to kept keys in the place of `op`, whose heads these are.
template <typename OpTy>
static void replaceByCached(OpTy op, OpBuilder &builder, KeptKeys &kept,
                            ValueRange parts, Value keyPart, int64_t heads,
                            int64_t keyHeads, int64_t headSize, int64_t window,
                            FloatAttr cap, FloatAttr distance, Value bias) {
  const int64_t places =
      window > 0 ? std::min(window, kept.length) : kept.length;
  const StringRef factor = findWeightFactor(keyPart);
  Value keys = kept.add(keyPart, keyHeads, places, headSize, factor);
  Value values = kept.add(keyPart, keyHeads, places, headSize, factor);
  // A window that no position leaves is none.
  if (window > places)
    window = 0;
  Value o = CachedAttentionOp::create(
      builder, op.getLoc(), op.getO().getType(), parts, keys, values, kept.rows,
      kept.positions, bias, builder.getI64IntegerAttr(heads), op.getScaleAttr(),
      builder.getI64IntegerAttr(window), cap, distance);
  op.getO().replaceAllUsesWith(o);
  op.erase();
}

LogicalResult AttentionOp::keepKeys(OpBuilder &builder, KeptKeys &kept) {
  if (!getCausal() || getStarts())
    return refuseToKeep(*this, getCausal() ? "keeps documents apart"
                                           : "sees positions behind its own");
  const int64_t heads = getHeads();
  const int64_t width =
      cast<RankedTensorType>(getQkv().getType()).getShape().back();
  replaceByCached(*this, builder, kept, getQkv(), getQkv(), heads, heads,
                  width / heads, /*window=*/0, builder.getF64FloatAttr(0),
                  builder.getF64FloatAttr(0), /*bias=*/{});
  return success();
}

/// Puts attention to the kept keys of a source in the place of `op`.
static LogicalResult keepSource(GroupedAttentionOp op, OpBuilder &builder,
                                KeptKeys &kept) {
  if (op.getCausal() || op.getWindow() || op.getStarts() || op.getBias() ||
      !op.getCap().isZero() || !op.getDistance().isZero())
    return refuseToKeep(op, "sees a part of what an encoder makes, or by "
                            "distance");
  if (op.getMask() && !kept.isOfSource(op.getMask()))
    return refuseToKeep(op, "has a mask of positions");
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(op.getK().getType()).getShape();
  const StringRef factor = findWeightFactor(op.getK());
  Value keys = kept.add(op.getK(), shape[2], shape[1], shape[3], factor);
  Value values = kept.add(op.getK(), shape[2], shape[1], shape[3], factor);
  Value o = CachedCrossAttentionOp::create(
      builder, op.getLoc(), op.getO().getType(), op.getQ(), op.getK(),
      op.getV(), keys, values, kept.sourceRows, kept.rows, kept.sourceLengths,
      op.getScaleAttr());
  op.getO().replaceAllUsesWith(o);
  op.erase();
  return success();
}

LogicalResult GroupedAttentionOp::keepKeys(OpBuilder &builder, KeptKeys &kept) {
  if (kept.isOfSource(getK()))
    return keepSource(*this, builder, kept);
  if (!getCausal())
    return refuseToKeep(*this, "sees positions behind its own");
  if (getStarts() || getMask())
    return refuseToKeep(*this, getStarts() ? "keeps documents apart"
                                           : "has a mask of positions");
  if (getBias() && getWindow())
    return refuseToKeep(*this, "has biases of distance and a window");
  ArrayRef<int64_t> keys = cast<RankedTensorType>(getK().getType()).getShape();
  const int64_t heads = cast<RankedTensorType>(getQ().getType()).getDimSize(2);
  replaceByCached(*this, builder, kept, {getQ(), getK(), getV()}, getK(), heads,
                  keys[2], keys[3], getWindow(), getCapAttr(),
                  getDistanceAttr(), getBias());
  return success();
}
