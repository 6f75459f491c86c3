//===- ModelFlops.cpp - Work of a model that MFU is measured against ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"

#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::galvatron;

/// Processors sit around 10 to 200 FLOPs a byte.
static constexpr double kComputeBound = 4;

bool mlir::galvatron::isComputeBound(nn::CostOpInterface op, int64_t samples) {
  return op.getFlops(samples) > kComputeBound * op.getMovedBytes(samples);
}

static bool hasFrozenOperand(Operation *op, func::FuncOp body) {
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    auto argument = dyn_cast<BlockArgument>(operand);
    return argument && nn::isFrozen(body, argument.getArgNumber());
  });
}

double mlir::galvatron::countModelFlopsPerSample(ModuleOp module) {
  ModelOp model = getModel(module);
  if (!model)
    return 0;
  SymbolTable symbols(module);
  llvm::StringMap<double> bodies;
  double flops = 0;
  for (LayerOp layer : model.getLayers()) {
    if (!layer.getCalleeAttr())
      return 0;
    auto [entry, inserted] = bodies.try_emplace(layer.getCallee().value(), 0);
    if (inserted)
      if (auto body = symbols.lookup<func::FuncOp>(layer.getCallee().value()))
        body.walk([&](nn::CostOpInterface op) {
          // Matrix products have twice the work in backward; so MFU is counted.
          // Those with a weight that is not trained have one product less.
          if (isComputeBound(op, 1))
            entry->second +=
                (hasFrozenOperand(op, body) ? 2 : 3) * op.getFlops(1);
        });
    flops += entry->second;
  }
  return flops;
}
