//===- NNScaling.cpp - Norms without weights, factors of columns ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers and kernels of the operations of NNScalingOps.td. The numbers in
// comments are those of the constraints there.
//
//===----------------------------------------------------------------------===//

#include "NNShapes.h"
#include "NNVerify.h"

#include <cmath>

using namespace mlir;
using namespace mlir::nn;
using namespace mlir::nn::verifiers;

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

LogicalResult StandardizeOp::verify() {
  if (failed(expectVector(*this, "x", getX())) ||
      failed(expectType(*this, "y", getY(), getX().getType())) || // 1
      failed(expectShape(*this, "stats", getStats(),
                         withLast(shapeOf(getX()), 2))) || // 2
      failed(expectElements(*this, getX(), {}, {{"stats", getStats()}})))
    return failure();
  double eps = getEps().convertToDouble();
  if (!(eps > 0)) // 3
    return emitOpError() << "expected 'eps' to be positive, found " << eps;
  return success();
}

LogicalResult StandardizeGradOp::verify() {
  if (failed(expectVector(*this, "x", getX())) ||
      failed(expectType(*this, "dy", getDy(), getX().getType())) ||
      failed(expectType(*this, "dx", getDx(), getX().getType())) || // 1
      failed(expectElements(*this, getX(), {}, {{"stats", getStats()}})))
    return failure();
  return expectShape(*this, "stats", getStats(),
                     withLast(shapeOf(getX()), 2)); // 2
}

/// Checks the constant of a clipped value and of its gradient.
static LogicalResult verifyLimit(Operation *op, double limit) {
  if (limit > 0 && std::isfinite(limit))
    return success();
  return op->emitOpError() << "expected 'limit' to be positive, found "
                           << limit;
}

LogicalResult ClipOp::verify() {
  if (failed(verifyLimit(*this, getLimit().convertToDouble()))) // 2
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 1
}

LogicalResult ClipGradOp::verify() {
  if (failed(expectType(*this, "dy", getDy(), getX().getType())) || // 1
      failed(verifyLimit(*this, getLimit().convertToDouble())))     // 2
    return failure();
  return expectType(*this, "dx", getDx(), getX().getType()); // 1
}

/// Checks that `value` has the last dimensions of `like`, at least one.
static LogicalResult expectLastOf(Operation *op, StringRef name, Value value,
                                  Value like) {
  ArrayRef<int64_t> whole = shapeOf(like);
  size_t rank = std::clamp<size_t>(shapeOf(value).size(), 1, whole.size());
  return expectShape(op, name, value, whole.take_back(rank));
}

LogicalResult ColumnScaleOp::verify() {
  if (failed(expectVector(*this, "x", getX())) ||
      failed(expectLastOf(*this, "scale", getScale(), getX())) || // 1
      failed(expectElements(*this, getX(), {{"scale", getScale()}})))
    return failure();
  return expectType(*this, "y", getY(), getX().getType()); // 2
}

LogicalResult ColumnScaleGradOp::verify() {
  if (failed(expectVector(*this, "dy", getDy())) ||
      failed(expectType(*this, "x", getX(), getDy().getType())) || // 1
      failed(expectElements(*this, getDy(), {}, {{"dscale", getDscale()}})))
    return failure();
  return expectLastOf(*this, "dscale", getDscale(), getDy()); // 2
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void StandardizeOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  int64_t n = last(getX());
  emitter.kernel("plain_norm", {operands[0], results[0], results[1]},
                 {size(getX()) / n, n}, {getEps().convertToDouble()});
}

void StandardizeGradOp::emitKernels(KernelEmitter &emitter,
                                    ArrayRef<Value> operands,
                                    ArrayRef<Value> results) {
  int64_t n = last(getX());
  emitter.kernel("plain_norm_grad",
                 {operands[0], operands[1], operands[2], results[0]},
                 {size(getX()) / n, n});
}
int StandardizeGradOp::getReusableOperand(unsigned) { return 0; }

void ClipOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  emitter.kernel("clip", {operands[0], results[0]}, {size(getX())},
                 {getLimit().convertToDouble()});
}
int ClipOp::getReusableOperand(unsigned) { return 0; }

void ClipGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  emitter.kernel("clip_grad", {operands[0], operands[1], results[0]},
                 {size(getX())}, {getLimit().convertToDouble()});
}
int ClipGradOp::getReusableOperand(unsigned) { return 1; }

void ColumnScaleOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  int64_t n = size(getScale());
  emitter.kernel("column_scale", {operands[0], operands[1], results[0]},
                 {size(getX()) / n, n});
}
int ColumnScaleOp::getReusableOperand(unsigned) { return 0; }

void ColumnScaleGradOp::emitKernels(KernelEmitter &emitter,
                                    ArrayRef<Value> operands,
                                    ArrayRef<Value> results) {
  int64_t n = size(getDscale());
  emitter.kernel("column_scale_grad", {operands[0], operands[1], results[0]},
                 {size(getX()) / n, n, emitter.accumulateMode(0)});
}

bool ColumnScaleGradOp::supportsAccumulation(unsigned) { return true; }
