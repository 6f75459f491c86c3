//===- WholeSamples.cpp - Operations that take whole samples --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/WholeSamples.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::nn;

static constexpr llvm::StringLiteral kPackedDocuments =
    "packs documents into a sample";

template <typename OpTy> static std::string whyGroupedIsWhole(OpTy op) {
  if (op.getStarts())
    return kPackedDocuments.str();
  if (op.getBias())
    return "has biases by distance";
  if (!op.getDistance().isZero())
    return "has slopes by distance";
  return "caps scores";
}

std::string nn::whyWholeSamples(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<GroupedAttentionOp, GroupedAttentionGradOp>(
          [](auto grouped) { return whyGroupedIsWhole(grouped); })
      .Case<AttentionOp, AttentionGradOp>(
          [](auto) { return kPackedDocuments.str(); })
      .Case<WindowAttentionOp, WindowAttentionGradOp>(
          [](auto) { return std::string("has windows of an image"); })
      .Default([](Operation *) { return std::string("mixes positions"); });
}

std::string nn::waysToCutPositions(FactorOpInterface op) {
  if (op.getHeadCounts().counts.empty())
    return "'tsp'";
  return op.takesRows() ? "'cp', 'up' or 'tsp'" : "'up' or 'tsp'";
}
