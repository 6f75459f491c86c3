//===- NNVerify.cpp - Verifiers of nn operations --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in comments are those of the constraints in NNOps.td.
//
//===----------------------------------------------------------------------===//

#include "NNVerify.h"

#include <cmath>

using namespace mlir;
using namespace mlir::nn;
using namespace mlir::nn::verifiers;

namespace {

/// Output dimensions and the contracted dimension of a linear's weight.
std::pair<SmallVector<int64_t>, int64_t> splitWeight(ArrayRef<int64_t> w,
                                                     bool transpose) {
  if (transpose)
    return {SmallVector<int64_t>(w.drop_back()), w.back()};
  return {SmallVector<int64_t>(w.drop_front()), w.front()};
}

LogicalResult expectWeight(Operation *op, Value w) {
  if (shapeOf(w).size() >= 2)
    return success();
  return op->emitOpError() << "expected 'w' of rank >= 2, found "
                           << w.getType();
}

LogicalResult verifyDropout(Operation *op, Value x, double p) {
  if (failed(expectProbability(op, "p", p)))
    return failure();
  if (shapeOf(x).size() < 2)
    return op->emitOpError()
           << "expected 'x' of rank >= 2, found " << x.getType();
  return success();
}

/// What `embedding` and its gradient share; the number is that of both.
template <typename OpTy> LogicalResult verifyPadding(OpTy op) {
  IntegerAttr padding = op.getPaddingAttr();
  if (!padding || padding.getInt() >= 0) // 3
    return success();
  return op.emitOpError() << "expected 'padding' to be a token, found "
                          << padding.getInt();
}

/// What `windows` and `join_windows` share, with the grid of the one and the
/// windows of the other; the numbers are those of both.
template <typename OpTy>
LogicalResult verifyWindows(OpTy op, StringRef gridName, Value grid,
                            StringRef windowsName, Value windows) {
  if (failed(expectRank(op, gridName, grid, 3)) ||
      failed(expectElements(op, grid, {{windowsName, windows}})))
    return failure();
  int64_t rows = op.getRows(), columns = op.getColumns();
  if (rows < 1 || columns < 1) // 1
    return op.emitOpError() << "expected a grid with positions, found " << rows
                            << " by " << columns;
  ArrayRef<int64_t> shape = shapeOf(grid);
  if (failed(expectShape(op, gridName, grid,
                         {shape[0], rows * columns, shape[2]}))) // 1
    return failure();
  int64_t window = op.getWindow(), shift = op.getShift();
  if (window < 1 || shift < 0 || shift >= window) // 2
    return op.emitOpError() << "expected a positive 'window' and a 'shift' "
                               "below it, found "
                            << window << " and " << shift;
  int64_t count =
      llvm::divideCeil(rows, window) * llvm::divideCeil(columns, window);
  SmallVector<int64_t> expected = {shape[0], count};
  if (op.getMerge())
    expected.push_back(window * window * shape[2]);
  else
    expected.append({window * window, shape[2]});
  return expectShape(op, windowsName, windows, expected); // 3
}

/// The mean over the positions of `whole`; the numbers are those of the mean
/// and of its gradient.
LogicalResult verifyMean(Operation *op, StringRef wholeName, Value whole,
                         StringRef meanName, Value mean, bool besideFirst) {
  if (failed(expectRank(op, wholeName, whole, 3)) || // 1
      failed(expectElements(op, whole, {{meanName, mean}})))
    return failure();
  ArrayRef<int64_t> shape = shapeOf(whole);
  if (besideFirst && shape[1] < 2) // 1
    return op->emitOpError()
           << "expected at least two positions, found " << shape[1];
  return expectShape(op, meanName, mean,
                     {shape[0], (besideFirst ? 2 : 1) * shape[2]}); // 2
}

/// `position` is one of those of `x`, a tensor of rank 3, and `row` what stands
/// there in every sample.
LogicalResult verifyTake(Operation *op, StringRef wholeName, Value whole,
                         StringRef rowName, Value row, int64_t position) {
  if (failed(expectRank(op, wholeName, whole, 3)) ||
      failed(expectElements(op, whole, {{rowName, row}})))
    return failure();
  ArrayRef<int64_t> shape = shapeOf(whole);
  if (position < 0 || position >= shape[1]) // 1
    return op->emitOpError() << "expected 'position' in [0, " << shape[1]
                             << "), found " << position;
  return expectShape(op, rowName, row, {shape[0], shape[2]}); // 2
}

} // namespace

LogicalResult PatchesOp::verify() {
  if (failed(expectRank(*this, "images", getImages(), 4)) || // 1
      failed(expectElements(*this, getImages(), {{"y", getY()}})))
    return failure();
  ArrayRef<int64_t> images = shapeOf(getImages());
  int64_t rows = getRows(), columns = getColumns();
  bool within = getPad() || (rows <= images[2] && columns <= images[3]);
  if (rows < 1 || columns < 1 || !within) // 2
    return emitOpError() << "expected patches within images of " << images[2]
                         << " by " << images[3] << ", found " << rows << " by "
                         << columns;
  auto patches = [&](int64_t pixels, int64_t size) -> int64_t {
    return getPad() ? llvm::divideCeil(pixels, size) : pixels / size;
  };
  return expectShape(*this, "y", getY(),
                     {images[0],
                      patches(images[2], rows) * patches(images[3], columns),
                      images[1] * rows * columns}); // 3
}

LogicalResult WindowsOp::verify() {
  return verifyWindows(*this, "x", getX(), "y", getY());
}

LogicalResult JoinWindowsOp::verify() {
  return verifyWindows(*this, "y", getY(), "x", getX());
}

LogicalResult DropPathOp::verify() {
  if (failed(expectType(*this, "y", getY(), getX().getType())) || // 1
      failed(
          expectProbability(*this, "rate", getRate().convertToDouble()))) // 2
    return failure();
  if (shapeOf(getX()).size() < 2) // 3
    return emitOpError() << "expected 'x' of rank >= 2, found "
                         << getX().getType();
  if (int64_t(getFirstLayer()) < 0) // 4
    return emitOpError() << "expected 'first_layer' of at least 0, found "
                         << int64_t(getFirstLayer());
  return success();
}

LogicalResult MeanOp::verify() {
  return verifyMean(*this, "x", getX(), "y", getY(), getBesideFirst());
}

LogicalResult MeanGradOp::verify() {
  return verifyMean(*this, "dx", getDx(), "dy", getDy(), getBesideFirst());
}

LogicalResult TransposeOp::verify() {
  SmallVector<int64_t> shape(shapeOf(getX()));
  if (shape.size() < 3) // 1
    return emitOpError() << "expected 'x' of rank >= 3, found "
                         << getX().getType();
  if (failed(expectElements(*this, getX(), {{"y", getY()}})))
    return failure();
  std::swap(shape[shape.size() - 2], shape.back());
  return expectShape(*this, "y", getY(), shape); // 2
}

/// The numbers are those of own_part.
static LogicalResult verifyPart(Operation *op, StringRef wholeName, Value whole,
                                StringRef partName, Value part, int64_t dim,
                                int64_t ranks) {
  SmallVector<int64_t> shape(shapeOf(whole));
  if (failed(expectRank(op, partName, part, shape.size()))) // 1
    return failure();
  if (dim < 0 || dim >= int64_t(shape.size())) // 1
    return op->emitOpError() << "expected 'dim' to be a dimension of "
                             << whole.getType() << ", found " << dim;
  int64_t own = shapeOf(part)[dim];
  if (own < 1 || shape[dim] % own != 0) // 2
    return op->emitOpError() << "expected dimension " << dim << " of '"
                             << partName << "' to divide the " << shape[dim]
                             << " of '" << wholeName << "', found " << own;
  if (ranks < 1) // 3
    return op->emitOpError()
           << "expected 'ranks' to be positive, found " << ranks;
  shape[dim] = own;
  if (failed(expectElements(op, whole, {{partName, part}})))
    return failure();
  return expectShape(op, partName, part, shape); // 2
}

LogicalResult OwnPartOp::verify() {
  return verifyPart(*this, "x", getX(), "y", getY(), int64_t(getDim()),
                    int64_t(getRanks()));
}
LogicalResult OwnPartGradOp::verify() {
  return verifyPart(*this, "dx", getDx(), "dy", getDy(), int64_t(getDim()),
                    int64_t(getRanks()));
}

LogicalResult PrependOp::verify() {
  if (failed(expectRank(*this, "x", getX(), 3)) ||
      failed(expectElements(*this, getX(),
                            {{"token", getToken()}, {"y", getY()}})))
    return failure();
  ArrayRef<int64_t> x = shapeOf(getX());
  if (failed(expectShape(*this, "token", getToken(), x[2]))) // 1
    return failure();
  return expectShape(*this, "y", getY(), {x[0], x[1] + 1, x[2]}); // 2
}

LogicalResult PrependGradOp::verify() {
  if (failed(expectRank(*this, "dy", getDy(), 3)) ||
      failed(expectElements(*this, getDy(), {{"dx", getDx()}},
                            {{"dtoken", getDtoken()}})))
    return failure();
  ArrayRef<int64_t> dy = shapeOf(getDy());
  if (failed(expectShape(*this, "dtoken", getDtoken(), dy[2]))) // 1
    return failure();
  return expectShape(*this, "dx", getDx(), {dy[0], dy[1] - 1, dy[2]}); // 2
}

LogicalResult TakeOp::verify() {
  return verifyTake(*this, "x", getX(), "y", getY(), getPosition());
}

LogicalResult TakeGradOp::verify() {
  return verifyTake(*this, "dx", getDx(), "dy", getDy(), getPosition());
}

/// Checks the first row of a table that is looked up; the number is that of
/// both operations.
template <typename OpTy> static LogicalResult verifyFirstRow(OpTy op) {
  const int64_t first = op.getFirst(), rows = shapeOf(op.getTable())[0];
  if (first < 0 || first >= rows) // 4
    return op.emitOpError() << "expected 'first' to be one of the " << rows
                            << " rows of the table, found " << first;
  if (first != 0 && op.getSharded()) // 4
    return op.emitOpError()
           << "expected 'first' to be 0 with 'sharded', found " << first;
  return success();
}

LogicalResult EmbeddingOp::verify() {
  if (failed(expectRank(*this, "table", getTable(), 2)) || // 1
      failed(expectElements(*this, getTable(), {{"y", getY()}})) ||
      failed(verifyPadding(*this)) || // 3
      failed(verifyFirstRow(*this)))  // 4
    return failure();
  return expectShape(*this, "y", getY(),
                     append(shapeOf(getTokens()), shapeOf(getTable())[1])); // 2
}

LogicalResult EmbeddingGradOp::verify() {
  if (failed(expectShape(*this, "dtable", getDtable(),
                         shapeOf(getTable()))) || // 1
      failed(expectRank(*this, "table", getTable(), 2)) ||
      failed(expectElements(*this, getTable(), {{"dy", getDy()}},
                            {{"dtable", getDtable()}})) ||
      failed(verifyPadding(*this)) || // 3
      failed(verifyFirstRow(*this)))  // 4
    return failure();
  const SmallVector<int64_t> expected =
      append(shapeOf(getTokens()), shapeOf(getTable())[1]);
  if (wholeShapeOf(getDy()) != expected) // 2
    return expectShape(*this, "dy", getDy(), expected);
  return success();
}

static LogicalResult verifyPosition(Operation *op, StringRef xName, Value x,
                                    StringRef tableName, Value table,
                                    int64_t first) {
  SmallVector<int64_t> shape = wholeShapeOf(x);
  if (shape.size() != 3)
    return expectRank(op, xName, x, 3);
  if (failed(expectRank(op, tableName, table, 2)))
    return failure();
  if (shape[2] != shapeOf(table)[1]) // 1
    return op->emitOpError() << "expected '" << tableName << "' of width "
                             << shape[2] << ", found " << shapeOf(table)[1];
  if (first < 0)
    return op->emitOpError()
           << "expected 'first' of at least 0, found " << first;
  if (shapeOf(table)[0] < first || shapeOf(table)[0] - first < shape[1]) // 2
    return op->emitOpError()
           << "expected '" << tableName << "' of at least " << shape[1]
           << " rows"
           << (first ? " from row " + std::to_string(first) + " on" : "")
           << ", found " << shapeOf(table)[0];
  return success();
}

LogicalResult PositionAddOp::verify() {
  if (failed(verifyPosition(*this, "x", getX(), "table", getTable(),
                            getFirst())) ||
      failed(expectStarts(*this, getStarts(), wholeShapeOf(getX())[0],
                          wholeShapeOf(getX())[1])) || // 4
      failed(expectElements(*this, getX(), {{"table", getTable()}})))
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 3
}

LogicalResult PositionGradOp::verify() {
  if (failed(verifyPosition(*this, "dy", getDy(), "dtable", getDtable(),
                            getFirst())) ||
      failed(expectStarts(*this, getStarts(), wholeShapeOf(getDy())[0],
                          wholeShapeOf(getDy())[1]))) // 3
    return failure();
  return expectElements(*this, getDy(), {}, {{"dtable", getDtable()}});
}

/// What `linear` and `linear_gelu` ask of their product; the numbers are those
/// of both.
template <typename OpTy> static LogicalResult verifyLinear(OpTy op) {
  ArrayRef<int64_t> x = shapeOf(op.getX()), w = shapeOf(op.getW());
  if (failed(expectVector(op, "x", op.getX())) ||
      failed(expectWeight(op, op.getW())) || // 1
      failed(expectElements(
          op, op.getX(),
          {{"w", op.getW()}, {"bias", op.getBias()}, {"y", op.getY()}})))
    return failure();
  auto [out, in] = splitWeight(w, op.getTransposeWeight());
  if (x.back() != in) // 1
    return op.emitOpError() << "expected the contracted dimension of 'w' to be "
                            << x.back() << ", found " << in;
  if (failed(expectShape(op, "y", op.getY(), append(x.drop_back(), out)))) // 2
    return failure();
  if (op.getBias()) // 3
    return expectShape(op, "bias", op.getBias(), out);
  return success();
}

/// The same for `linear_input_grad` and `linear_gelu_grad`.
template <typename OpTy> static LogicalResult verifyInputGrad(OpTy op) {
  ArrayRef<int64_t> dy = shapeOf(op.getDy());
  if (failed(expectWeight(op, op.getW())) || // 1
      failed(expectElements(op, op.getDy(),
                            {{"w", op.getW()}, {"dx", op.getDx()}})))
    return failure();
  auto [out, in] = splitWeight(shapeOf(op.getW()), op.getTransposeWeight());
  if (dy.size() <= out.size() || dy.take_back(out.size()) != ArrayRef(out)) // 1
    return op.emitOpError() << "expected 'dy' to end in " << printShape(out)
                            << ", found " << printShape(dy);
  return expectShape(op, "dx", op.getDx(),
                     append(dy.drop_back(out.size()), in)); // 2
}

/// The same for `linear_weight_grad` and `linear_weight_bias_grad`.
template <typename OpTy>
static LogicalResult verifyWeightGrad(OpTy op, bool transpose) {
  ArrayRef<int64_t> x = shapeOf(op.getX()), dy = shapeOf(op.getDy());
  if (failed(expectVector(op, "x", op.getX())) ||
      failed(expectElements(op, op.getX(), {{"dy", op.getDy()}},
                            {{"dw", op.getDw()}})))
    return failure();
  ArrayRef<int64_t> rows = x.drop_back();
  if (dy.size() <= rows.size() || dy.take_front(rows.size()) != rows) // 1
    return op.emitOpError() << "expected 'dy' to start with "
                            << printShape(rows) << ", found " << printShape(dy);
  SmallVector<int64_t> out(dy.drop_front(rows.size()));
  SmallVector<int64_t> expected =
      transpose ? append(out, x.back()) : append(x.back(), out);
  return expectShape(op, "dw", op.getDw(), expected); // 2
}

LogicalResult LinearOp::verify() { return verifyLinear(*this); }

LogicalResult LinearInputGradOp::verify() { return verifyInputGrad(*this); }

LogicalResult LinearWeightGradOp::verify() {
  return verifyWeightGrad(*this, getTransposeWeight());
}

LogicalResult LinearGeluOp::verify() {
  if (failed(verifyLinear(*this))) // 1, 2, 3
    return failure();
  if (getPre()) // 2
    return expectType(*this, "pre", getPre(), getY().getType());
  return success();
}

LogicalResult LinearGeluGradOp::verify() {
  if (failed(verifyInputGrad(*this))) // 1, 2
    return failure();
  return expectType(*this, "x", getX(), getDx().getType()); // 3
}

LogicalResult LinearWeightBiasGradOp::verify() {
  if (failed(verifyWeightGrad(*this, /*transpose=*/false)) || // 1, 2
      failed(expectElements(*this, getX(), {}, {{"dbias", getDbias()}})))
    return failure();
  return expectShape(
      *this, "dbias", getDbias(),
      shapeOf(getDy()).drop_front(shapeOf(getX()).size() - 1)); // 3
}

LogicalResult BiasAddOp::verify() {
  if (failed(expectTrailing(*this, "bias", getBias(), getX())) || // 1
      failed(expectElements(*this, getX(), {{"bias", getBias()}})))
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 2
}

LogicalResult BiasGradOp::verify() {
  if (failed(expectElements(*this, getDy(), {}, {{"dbias", getDbias()}})))
    return failure();
  return expectTrailing(*this, "dbias", getDbias(), getDy()); // 1
}

/// What `layer_norm` and `add_layer_norm` ask of their normalisation; the
/// numbers are those of the former's constraints.
template <typename OpTy> static LogicalResult verifyNorm(OpTy op) {
  ArrayRef<int64_t> x = shapeOf(op.getX());
  if (failed(expectVector(op, "x", op.getX())))
    return failure();
  if (failed(expectShape(op, "gamma", op.getGamma(), x.back())) ||
      (op.getBeta() &&
       failed(expectShape(op, "beta", op.getBeta(), x.back()))) ||       // 1
      failed(expectType(op, "y", op.getY(), op.getX().getType())) ||     // 2
      failed(expectShape(op, "stats", op.getStats(), withLast(x, 2))) || // 3
      failed(expectElements(op, op.getX(), {{"gamma", op.getGamma()}},
                            {{"stats", op.getStats()}})) ||
      (op.getBeta() &&
       failed(expectElements(op, op.getX(), {{"beta", op.getBeta()}}))))
    return failure();
  double eps = op.getEps().convertToDouble();
  if (!(eps > 0)) // 4
    return op.emitOpError() << "expected 'eps' to be positive, found " << eps;
  return success();
}

/// The same for `layer_norm_grad` and `layer_norm_add_grad`.
template <typename OpTy> static LogicalResult verifyNormGrad(OpTy op) {
  ArrayRef<int64_t> x = shapeOf(op.getX());
  if (failed(expectVector(op, "x", op.getX())) ||
      failed(expectElements(
          op, op.getX(), {{"gamma", op.getGamma()}},
          {{"stats", op.getStats()}, {"dgamma", op.getDgamma()}})) ||
      (op.getDbeta() &&
       failed(expectElements(op, op.getX(), {}, {{"dbeta", op.getDbeta()}}))))
    return failure();
  if (failed(expectType(op, "dy", op.getDy(), op.getX().getType())) ||
      failed(expectType(op, "dx", op.getDx(), op.getX().getType())) || // 1
      failed(expectShape(op, "gamma", op.getGamma(), x.back())) ||
      failed(expectShape(op, "dgamma", op.getDgamma(), x.back())) ||
      (op.getDbeta() &&
       failed(expectShape(op, "dbeta", op.getDbeta(), x.back())))) // 2
    return failure();
  return expectShape(op, "stats", op.getStats(), withLast(x, 2)); // 3
}

LogicalResult LayerNormOp::verify() { return verifyNorm(*this); }

LogicalResult LayerNormGradOp::verify() { return verifyNormGrad(*this); }

LogicalResult AddLayerNormOp::verify() {
  Type x = getX().getType();
  if (failed(expectType(*this, "residual", getResidual(), x)) ||
      failed(expectType(*this, "sum", getSum(), x)) || // 1
      failed(verifyNorm(*this)))                       // 1, 2, 3, 4
    return failure();
  return verifyDropout(*this, getX(), getP().convertToDouble()); // 5, 6
}

LogicalResult LayerNormAddGradOp::verify() {
  if (failed(expectType(*this, "residual", getResidual(),
                        getX().getType()))) // 1
    return failure();
  return verifyNormGrad(*this); // 1, 2, 3
}

/// `gamma` has the last dimensions of `x`, `stats` 1 in place of them.
template <typename OpTy> static LogicalResult verifyRmsShapes(OpTy op) {
  ArrayRef<int64_t> x = shapeOf(op.getX()), gamma = shapeOf(op.getGamma());
  if (failed(expectVector(op, "gamma", op.getGamma())))
    return failure();
  if (gamma.size() > x.size())
    return op.emitOpError() << "expected 'gamma' of at most the rank of 'x', "
                            << x.size() << ", found " << gamma.size();
  if (failed(
          expectShape(op, "gamma", op.getGamma(), x.take_back(gamma.size()))))
    return failure();
  SmallVector<int64_t> stats(x.drop_back(gamma.size()));
  stats.append(gamma.size(), 1);
  return expectShape(op, "stats", op.getStats(), stats);
}

LogicalResult RMSNormOp::verify() {
  if (failed(verifyRmsShapes(*this)) ||                           // 1, 3
      failed(expectType(*this, "y", getY(), getX().getType())) || // 2
      failed(expectElements(*this, getX(), {{"gamma", getGamma()}},
                            {{"stats", getStats()}})))
    return failure();
  double eps = getEps().convertToDouble();
  if (!(eps > 0)) // 4
    return emitOpError() << "expected 'eps' to be positive, found " << eps;
  return success();
}

LogicalResult RMSNormGradOp::verify() {
  if (failed(verifyRmsShapes(*this)) || // 2, 3
      failed(
          expectElements(*this, getX(), {{"gamma", getGamma()}},
                         {{"stats", getStats()}, {"dgamma", getDgamma()}})) ||
      failed(expectType(*this, "dy", getDy(), getX().getType())) ||
      failed(expectType(*this, "dx", getDx(), getX().getType()))) // 1
    return failure();
  return expectShape(*this, "dgamma", getDgamma(),
                     shapeOf(getGamma())); // 2
}

LogicalResult RotaryOp::verify() {
  if (wholeShapeOf(getX()).size() != 4) // 1
    return expectRank(*this, "x", getX(), 4);
  int64_t pairs = int64_t(getFrequencies().size());
  int64_t most = std::min(shapeOf(getX()).back() / 2, kMostRotaryPairs);
  if (pairs > most) // 2
    return emitOpError() << "expected at most " << most
                         << " frequencies for heads of "
                         << shapeOf(getX()).back() << ", found " << pairs;
  double factor = getFactor().convertToDouble();
  if (!(factor > 0)) // 3
    return emitOpError() << "expected 'factor' to be positive, found "
                         << factor;
  if (getAt() && failed(expectShape(*this, "at", getAt(),
                                    shapeOf(getX()).take_front(2)))) // 5
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 4
}

/// What a gate opens has its shape, whatever the activation.
template <class Op> static LogicalResult verifyGated(Op op) {
  Type type = op.getGate().getType();
  if (failed(expectType(op, "up", op.getUp(), type)))
    return failure();
  return expectType(op, "y", op.getY(), type); // 1
}

template <class Op> static LogicalResult verifyGatedGrad(Op op) {
  Type type = op.getGate().getType();
  if (failed(expectType(op, "up", op.getUp(), type)) ||
      failed(expectType(op, "dy", op.getDy(), type)) ||
      failed(expectType(op, "dgate", op.getDgate(), type)))
    return failure();
  return expectType(op, "dup", op.getDup(), type); // 1
}

LogicalResult GatedSiluOp::verify() { return verifyGated(*this); }

LogicalResult GatedSiluGradOp::verify() { return verifyGatedGrad(*this); }

LogicalResult GatedGeluOp::verify() { return verifyGated(*this); }

LogicalResult GatedGeluGradOp::verify() { return verifyGatedGrad(*this); }

LogicalResult ReluOp::verify() {
  return expectType(*this, "y", getY(), getX().getType()); // 1
}

LogicalResult ReluGradOp::verify() {
  if (failed(expectType(*this, "dy", getDy(), getY().getType())))
    return failure();
  return expectType(*this, "dx", getDx(), getY().getType()); // 1
}

/// Checks the constant of a soft cap and of its gradient.
static LogicalResult verifyCap(Operation *op, double cap) {
  if (cap > 0 && std::isfinite(cap))
    return success();
  return op->emitOpError() << "expected 'cap' to be positive, found " << cap;
}

LogicalResult SoftCapOp::verify() {
  if (failed(verifyCap(*this, getCap().convertToDouble()))) // 2
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 1
}

LogicalResult SoftCapGradOp::verify() {
  if (failed(expectType(*this, "dy", getDy(), getY().getType())) || // 1
      failed(verifyCap(*this, getCap().convertToDouble())))         // 2
    return failure();
  return expectType(*this, "dx", getDx(), getY().getType()); // 1
}

LogicalResult ScaleOp::verify() {
  return expectType(*this, "y", getY(), getX().getType()); // 1
}

LogicalResult GeluOp::verify() {
  return expectType(*this, "y", getY(), getX().getType()); // 1
}

LogicalResult GeluGradOp::verify() {
  if (failed(expectType(*this, "dy", getDy(), getX().getType())))
    return failure();
  return expectType(*this, "dx", getDx(), getX().getType()); // 1
}

LogicalResult BiasGeluOp::verify() {
  if (failed(expectTrailing(*this, "bias", getBias(), getX())) || // 1
      failed(expectElements(*this, getX(), {{"bias", getBias()}})) ||
      failed(expectType(*this, "pre", getPre(), getX().getType())))
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 2
}

LogicalResult DropoutOp::verify() {
  if (failed(expectType(*this, "y", getY(), getX().getType()))) // 1
    return failure();
  return verifyDropout(*this, getX(), getP().convertToDouble()); // 2, 3
}

LogicalResult DropoutAddOp::verify() {
  if (failed(expectType(*this, "residual", getResidual(), getX().getType())) ||
      failed(expectType(*this, "y", getY(), getX().getType()))) // 1
    return failure();
  return verifyDropout(*this, getX(), getP().convertToDouble()); // 2, 3
}

LogicalResult AddOp::verify() {
  if (failed(expectType(*this, "b", getB(), getA().getType())))
    return failure();
  return expectType(*this, "y", getY(), getA().getType()); // 1
}

LogicalResult CrossEntropyOp::verify() {
  ArrayRef<int64_t> logits = shapeOf(getLogits());
  if (failed(expectVector(*this, "logits", getLogits())) ||
      failed(expectElements(*this, getLogits(), {}, {{"stats", getStats()}})))
    return failure();
  SmallVector<int64_t> whole = wholeShapeOf(getLogits());
  if (ArrayRef(whole).drop_back() != shapeOf(getLabels())) // 1
    return emitOpError() << "expected 'labels' of shape "
                         << printShape(ArrayRef(whole).drop_back())
                         << ", found " << printShape(shapeOf(getLabels()));
  if (failed(expectType(*this, "dlogits", getDlogits(),
                        getLogits().getType())) || // 2
      failed(expectShape(*this, "loss", getLoss(),
                         isRegularized() ? 2 : 1))) // 3
    return failure();
  double smoothing = getSmoothing().convertToDouble(),
         zLoss = getZLoss().convertToDouble();
  if (!(smoothing >= 0 && smoothing < 1 && zLoss >= 0 &&
        getZLoss().isFinite())) // 6
    return emitOpError()
           << "expected 'smoothing' from 0 to below 1 and 'z_loss' "
              "of at least 0, found "
           << smoothing << " and " << zLoss;
  if (!getStats() && logits.back() != int64_t(getClasses())) // 4
    return emitOpError() << "expected 'logits' of " << getClasses()
                         << " classes, found " << logits.back();
  if (!getStats())
    return success();
  ArrayRef<int64_t> stats = shapeOf(getStats());
  SmallVector<int64_t> rows = withLast(logits, getStatistics());
  if (stats.size() != rows.size() + 1 ||
      stats.drop_front() != ArrayRef(rows)) // 5
    return emitOpError() << "expected 'stats' of shape [shards, "
                         << StringRef(printShape(rows)).drop_front()
                         << ", found " << printShape(stats);
  return success();
}

LogicalResult SoftmaxStatsOp::verify() {
  ArrayRef<int64_t> logits = shapeOf(getLogits());
  if (failed(expectVector(*this, "logits", getLogits())) ||
      failed(expectElements(*this, getLogits(), {}, {{"stats", getStats()}})))
    return failure();
  SmallVector<int64_t> whole = wholeShapeOf(getLogits());
  if (ArrayRef(whole).drop_back() != shapeOf(getLabels())) // 1
    return emitOpError() << "expected 'labels' of shape "
                         << printShape(ArrayRef(whole).drop_back())
                         << ", found " << printShape(shapeOf(getLabels()));
  return expectShape(*this, "stats", getStats(),
                     withLast(logits, getTotal() ? 4 : 3)); // 2
}
