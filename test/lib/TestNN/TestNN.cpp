//===- TestNN.cpp - Operations that only the tests know -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestNN.h"
#include "ReferenceExecutor.h"

#include <cmath>

using namespace mlir;
using namespace mlir::test_nn;

#include "TestNNDialect.cpp.inc"

void TestNNDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "TestNNOps.cpp.inc"
      >();
}

namespace {

/// Every dimension of every operand and result is the same factor.
nn::FactorRule elementwise(Operation *op) {
  SmallVector<int> all;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    all.push_back(int(dim));
  nn::FactorRule rule;
  rule.operands.assign(op->getNumOperands(), all);
  rule.results.assign(op->getNumResults(), all);
  return rule;
}

int64_t size(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

} // namespace

//===----------------------------------------------------------------------===//
// scale
//===----------------------------------------------------------------------===//

void ScaleOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                            ArrayRef<bool> needed,
                            MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = ScaleOp::create(builder, getLoc(), getX().getType(),
                                    grads[0], getFactorAttr());
}

nn::FactorRule ScaleOp::getFactorRule() { return elementwise(*this); }

bool ScaleOp::propagatesPartialSums(ArrayRef<bool>) { return true; }

void ScaleOp::emitKernels(nn::KernelEmitter &emitter, ArrayRef<Value> operands,
                          ArrayRef<Value> results) {
  emitter.kernel("scale", {operands[0], results[0]}, {size(getX())},
                 {getFactor().convertToDouble()});
}

int ScaleOp::getReusableOperand(unsigned) { return 0; }

//===----------------------------------------------------------------------===//
// scaled_gelu
//===----------------------------------------------------------------------===//

double ScaledGeluOp::getFlops(int64_t samples) {
  return 15 * double(nn::countElements(getX().getType(), samples));
}

void ScaledGeluOp::buildGradient(OpBuilder &builder, ArrayRef<Value> grads,
                                 ArrayRef<bool> needed,
                                 MutableArrayRef<Value> operandGrads) {
  operandGrads[0] = ScaledGeluGradOp::create(
      builder, getLoc(), getX().getType(), getX(), grads[0], getFactorAttr());
}

nn::FactorRule ScaledGeluOp::getFactorRule() { return elementwise(*this); }

void ScaledGeluOp::emitKernels(nn::KernelEmitter &emitter,
                               ArrayRef<Value> operands,
                               ArrayRef<Value> results) {
  Value plain = emitter.temporary(cast<RankedTensorType>(getX().getType()));
  emitter.kernel("gelu", {operands[0], plain}, {size(getX()), 1});
  emitter.kernel("scale", {plain, results[0]}, {size(getX())},
                 {getFactor().convertToDouble()});
}

double ScaledGeluGradOp::getFlops(int64_t samples) {
  return 25 * double(nn::countElements(getX().getType(), samples));
}

nn::FactorRule ScaledGeluGradOp::getFactorRule() { return elementwise(*this); }

void ScaledGeluGradOp::emitKernels(nn::KernelEmitter &emitter,
                                   ArrayRef<Value> operands,
                                   ArrayRef<Value> results) {
  Value scaled = emitter.temporary(cast<RankedTensorType>(getX().getType()));
  emitter.kernel("scale", {operands[1], scaled}, {size(getX())},
                 {getFactor().convertToDouble()});
  emitter.kernel("gelu_grad", {operands[0], scaled, results[0]},
                 {size(getX()), 1});
}

//===----------------------------------------------------------------------===//
// Reference
//===----------------------------------------------------------------------===//

void test_nn::registerReferenceEvaluators() {
  using ::galvatron::reference::Context;
  using ::galvatron::reference::Rank;
  using ::galvatron::reference::registerEvaluator;
  using ::galvatron::reference::Tensor;
  using Operands = ArrayRef<const Tensor *>;
  using Results = MutableArrayRef<Tensor>;

  static constexpr double kPi = 3.14159265358979323846;
  static const double kScale = std::sqrt(2 / kPi);
  static constexpr double kCubic = 0.044715;

  registerEvaluator("test_nn.scale", [](Operation *op, Operands in, Results out,
                                        const Context &, Rank) {
    double factor = cast<ScaleOp>(op).getFactor().convertToDouble();
    for (int64_t i = 0; i < in[0]->size(); ++i)
      out[0].values[i] = factor * in[0]->values[i];
  });
  registerEvaluator(
      "test_nn.scaled_gelu",
      [](Operation *op, Operands in, Results out, const Context &, Rank) {
        double factor = cast<ScaledGeluOp>(op).getFactor().convertToDouble();
        for (int64_t i = 0; i < in[0]->size(); ++i) {
          double x = in[0]->values[i];
          double t = std::tanh(kScale * (x + kCubic * x * x * x));
          out[0].values[i] = factor * 0.5 * x * (1 + t);
        }
      });
  registerEvaluator("test_nn.scaled_gelu_grad", [](Operation *op, Operands in,
                                                   Results out, const Context &,
                                                   Rank) {
    double factor = cast<ScaledGeluGradOp>(op).getFactor().convertToDouble();
    for (int64_t i = 0; i < in[0]->size(); ++i) {
      double x = in[0]->values[i];
      double t = std::tanh(kScale * (x + kCubic * x * x * x));
      double slope = kScale * (1 + 3 * kCubic * x * x);
      out[0].values[i] = factor * in[1]->values[i] *
                         (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope);
    }
  });
}

#define GET_OP_CLASSES
#include "TestNNOps.cpp.inc"
