//===- JoinedSums.cpp - Sums over ranks that are one call -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::grt;

JoinedSums JoinedSums::from(Operation *op) {
  auto isOfRun = [](Operation *of, mlir::galvatron::AllReduceOp first) {
    auto sum = dyn_cast_or_null<mlir::galvatron::AllReduceOp>(of);
    if (!sum || sum.getAxis() != first.getAxis() ||
        sum.getOutput().getType().getElementType() !=
            first.getOutput().getType().getElementType())
      return false;
    auto function = sum->getParentOfType<func::FuncOp>();
    return llvm::all_of(sum.getOutput().getUses(), [&](OpOperand &use) {
      return isa<func::ReturnOp>(use.getOwner()) &&
             nn::getResultRole(function, use.getOperandNumber()) ==
                 nn::ValueRole::ParameterGradient;
    });
  };
  JoinedSums run;
  auto first = dyn_cast<mlir::galvatron::AllReduceOp>(op);
  if (!first || !isOfRun(first, first) || isOfRun(op->getPrevNode(), first))
    return run;
  for (Operation *next = op; isOfRun(next, first); next = next->getNextNode())
    run.sums.push_back(cast<mlir::galvatron::AllReduceOp>(next));
  if (run.sums.size() == 1)
    run.sums.clear();
  return run;
}

int64_t JoinedSums::bytes() const {
  int64_t bytes = 0;
  for (mlir::galvatron::AllReduceOp sum : sums)
    bytes += alignBytes(getByteSize(sum.getOutput().getType()));
  return bytes;
}
