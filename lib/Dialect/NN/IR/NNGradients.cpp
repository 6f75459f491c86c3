//===- NNGradients.cpp - Gradients of nn operations -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace mlir::nn;

/// The type of a parameter's gradient: sums over many samples are not rounded
/// to the compute type.
static Type sumType(Value parameter) {
  auto type = cast<RankedTensorType>(parameter.getType());
  return type.clone(accumulatorElement(type.getElementType()));
}

void EmbeddingOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  if (needed[1])
    operandGrads[1] = EmbeddingGradOp::create(
        builder, getLoc(), sumType(getTable()), getTokens(), grads[0],
        getTable(), getShardedAttr(), getPaddingAttr(), getFirstAttr());
}

void PositionAddOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                  ArrayRef<bool> needed,
                                  MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = grads[0];
  if (needed[1])
    operandGrads[1] =
        PositionGradOp::create(builder, getLoc(), sumType(getTable()), grads[0],
                               getStarts(), getFirstAttr());
}

// Images are data.
void PatchesOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {}

void WindowsOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = JoinWindowsOp::create(
      builder, getLoc(), getX().getType(), grads[0], getRowsAttr(),
      getColumnsAttr(), getWindowAttr(), getShiftAttr(), getMergeAttr());
}

void JoinWindowsOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                  ArrayRef<bool> needed,
                                  MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = WindowsOp::create(
      builder, getLoc(), getX().getType(), grads[0], getRowsAttr(),
      getColumnsAttr(), getWindowAttr(), getShiftAttr(), getMergeAttr());
}

void WindowAttentionOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                      ArrayRef<bool> needed,
                                      MutableArrayRef<Value> operandGrads) {
  Type type = getQ().getType();
  auto grad = WindowAttentionGradOp::create(
      builder, getLoc(), TypeRange{type, type, type, sumType(getTable())},
      getQ(), getK(), getV(), getO(), getLse(), grads[0], getTable(),
      getWindowAttr(), getAcrossAttr(), getShiftAttr(), getScaleAttr(),
      getDropoutAttr(), getOpIndexAttr());
  llvm::copy(grad.getResults(), operandGrads.begin());
}

// As for dropout: the mask is a function of the key and the sample.
void DropPathOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                               ArrayRef<bool> needed,
                               MutableArrayRef<Value> operandGrads) {
  operandGrads[0] =
      DropPathOp::create(builder, getLoc(), getX().getType(), grads[0],
                         getRateAttr(), getFirstLayerAttr(), getOpIndexAttr());
}

void MeanOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                           ArrayRef<bool> needed,
                           MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = MeanGradOp::create(builder, getLoc(), getX().getType(),
                                       grads[0], getBesideFirstAttr());
}

void TransposeOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  operandGrads[0] =
      TransposeOp::create(builder, getLoc(), getX().getType(), grads[0]);
}

void PrependOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  auto grad = PrependGradOp::create(
      builder, getLoc(), TypeRange{getX().getType(), sumType(getToken())},
      grads[0]);
  llvm::copy(grad.getResults(), operandGrads.begin());
}

void TakeOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                           ArrayRef<bool> needed,
                           MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = TakeGradOp::create(builder, getLoc(), getX().getType(),
                                       grads[0], getPositionAttr());
}

void LinearOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                             ArrayRef<bool> needed,
                             MutableArrayRef<Value> operandGrads) {
  if (needed[0])
    operandGrads[0] =
        LinearInputGradOp::create(builder, getLoc(), getX().getType(), grads[0],
                                  getW(), getTransposeWeightAttr());
  if (needed[1])
    operandGrads[1] =
        LinearWeightGradOp::create(builder, getLoc(), sumType(getW()), getX(),
                                   grads[0], getTransposeWeightAttr());
  if (getBias() && needed[2])
    operandGrads[2] =
        BiasGradOp::create(builder, getLoc(), sumType(getBias()), grads[0]);
}

void BiasAddOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = grads[0];
  if (needed[1])
    operandGrads[1] =
        BiasGradOp::create(builder, getLoc(), sumType(getBias()), grads[0]);
}

void LayerNormOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  auto grad = LayerNormGradOp::create(builder, getLoc(), getX().getType(),
                                      sumType(getGamma()),
                                      getBeta() ? sumType(getBeta()) : Type(),
                                      grads[0], getX(), getStats(), getGamma());
  llvm::copy(grad.getResults(), operandGrads.begin());
}

void StandardizeOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                  ArrayRef<bool> needed,
                                  MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = StandardizeGradOp::create(
      builder, getLoc(), getX().getType(), grads[0], getX(), getStats());
}

void RMSNormOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  auto grad = RMSNormGradOp::create(
      builder, getLoc(), TypeRange{getX().getType(), sumType(getGamma())},
      grads[0], getX(), getStats(), getGamma(), getUnitOffsetAttr());
  llvm::copy(grad.getResults(), operandGrads.begin());
}

// A rotation's transpose is its inverse.
void RotaryOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                             ArrayRef<bool> needed,
                             MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = RotaryOp::create(
      builder, getLoc(), getX().getType(), grads[0], getAt(),
      getFrequenciesAttr(), getFactorAttr(),
      getInverse() ? UnitAttr() : builder.getUnitAttr(), getInterleavedAttr());
}

void GatedSiluOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  Type type = getGate().getType();
  auto grad = GatedSiluGradOp::create(builder, getLoc(), TypeRange{type, type},
                                      getGate(), getUp(), grads[0]);
  llvm::copy(grad.getResults(), operandGrads.begin());
}

void GatedGeluOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  Type type = getGate().getType();
  auto grad =
      GatedGeluGradOp::create(builder, getLoc(), TypeRange{type, type},
                              getGate(), getUp(), grads[0], getExactAttr());
  llvm::copy(grad.getResults(), operandGrads.begin());
}

void ReluOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                           ArrayRef<bool> needed,
                           MutableArrayRef<Value> operandGrads) {
  operandGrads[0] =
      ReluGradOp::create(builder, getLoc(), getX().getType(), getY(), grads[0]);
}

void SoftCapOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = SoftCapGradOp::create(builder, getLoc(), getX().getType(),
                                          getY(), grads[0], getCapAttr());
}

void ClipOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                           ArrayRef<bool> needed,
                           MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = ClipGradOp::create(builder, getLoc(), getX().getType(),
                                       getX(), grads[0], getLimitAttr());
}

void ColumnScaleOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                  ArrayRef<bool> needed,
                                  MutableArrayRef<Value> operandGrads) {
  if (needed[0])
    operandGrads[0] = ColumnScaleOp::create(builder, getLoc(), getX().getType(),
                                            grads[0], getScale());
  if (needed[1])
    operandGrads[1] = ColumnScaleGradOp::create(
        builder, getLoc(), sumType(getScale()), grads[0], getX());
}

void ScaleOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                            ArrayRef<bool> needed,
                            MutableArrayRef<Value> operandGrads) {
  operandGrads[0] =
      ScaleOp::create(builder, getLoc(), getX().getType(), grads[0],
                      getFactorAttr(), getRoundedAttr());
}

void RelativeBiasOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                   ArrayRef<bool> needed,
                                   MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = RelativeBiasGradOp::create(
      builder, getLoc(), sumType(getTable()), grads[0], getMaxDistanceAttr(),
      getBidirectionalAttr());
}

void GeluOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                           ArrayRef<bool> needed,
                           MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = GeluGradOp::create(builder, getLoc(), getX().getType(),
                                       getX(), grads[0], getApproximateAttr());
}

void AttentionOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                ArrayRef<bool> needed,
                                MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = AttentionGradOp::create(
      builder, getLoc(), getQkv().getType(), getQkv(), getO(), getLse(),
      grads[0], getStarts(), getHeadsAttr(), getCausalAttr(), getScaleAttr(),
      getDropoutAttr(), getOpIndexAttr(), getDocumentLengthAttr());
}

void GroupedAttentionOp::buildGradient(OpBuilder &builder,
                                       ArrayRef<Value> grads,
                                       ArrayRef<bool> needed,
                                       MutableArrayRef<Value> operandGrads) {
  auto grad = GroupedAttentionGradOp::create(
      builder, getLoc(), getQ().getType(), getK().getType(), getV().getType(),
      getBias() ? getBias().getType() : Type(), getQ(), getK(), getV(), getO(),
      getLse(), grads[0], getMask(), getStarts(), getBias(), getCausalAttr(),
      getScaleAttr(), getWindowAttr(), getDropoutAttr(), getOpIndexAttr(),
      getDocumentLengthAttr(), getCapAttr(), getDistanceAttr());
  llvm::copy(grad.getResults().take_front(3), operandGrads.begin());
  // The last operand.
  if (getBias())
    operandGrads.back() = grad.getDbias();
}

/// The gradient of what nothing flows back to.
static Value zerosLike(OpBuilder &builder, Location loc, Value value) {
  return ScaleOp::create(builder, loc, value.getType(), value,
                         builder.getF64FloatAttr(0), /*rounded=*/UnitAttr());
}

void CachedAttentionOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                      ArrayRef<bool> needed,
                                      MutableArrayRef<Value> operandGrads) {
  for (auto [index, part] : llvm::enumerate(getParts()))
    operandGrads[index] = zerosLike(builder, getLoc(), part);
  // The last operand.
  if (getBias())
    operandGrads.back() = zerosLike(builder, getLoc(), getBias());
}

void CachedCrossAttentionOp::buildGradient(
    OpBuilder &builder, ArrayRef<Value> grads, ArrayRef<bool> needed,
    MutableArrayRef<Value> operandGrads) {
  for (unsigned part : {0u, 1u, 2u}) // q, k and v
    operandGrads[part] =
        zerosLike(builder, getLoc(), getOperation()->getOperand(part));
}

// The mask is a function of the key and the element index, so the gradient is
// the same operation on the gradient.
void DropoutOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                              ArrayRef<bool> needed,
                              MutableArrayRef<Value> operandGrads) {
  operandGrads[0] =
      DropoutOp::create(builder, getLoc(), getX().getType(), grads[0],
                        getPAttr(), getOpIndexAttr(), getColShardedAttr());
}

void AddOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                          ArrayRef<bool> needed,
                          MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = grads[0];
  operandGrads[1] = grads[0];
}

// The forward pass already computed the gradient of the mean loss; the loss is
// the end of the model, so nothing multiplies it.
void CrossEntropyOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                   ArrayRef<bool> needed,
                                   MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = getDlogits();
}
