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
