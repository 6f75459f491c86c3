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

/// Operations of a body that bound it, counted once in forward, and in backward
/// once for the operands that have a gradient and once for the others: matrix
/// products have twice the work there, and so MFU is counted. What is not
/// trained, and what nothing trained has made, has none.
static double countBodyFlops(func::FuncOp body) {
  DenseSet<Value> frozen;
  for (BlockArgument argument : body.getArguments())
    if (nn::isFrozen(body, argument.getArgNumber()))
      frozen.insert(argument);
  double flops = 0;
  for (Operation &op : body.getBody().front()) {
    auto isFrozen = [&](Value value) { return frozen.contains(value); };
    bool all = llvm::all_of(op.getOperands(), isFrozen);
    if (all)
      frozen.insert(op.result_begin(), op.result_end());
    auto cost = dyn_cast<nn::CostOpInterface>(op);
    if (!cost || !isComputeBound(cost, 1))
      continue;
    flops += (all                                        ? 1
              : llvm::any_of(op.getOperands(), isFrozen) ? 2
                                                         : 3) *
             cost.getFlops(1);
  }
  return flops;
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
        entry->second = countBodyFlops(body);
    flops += entry->second;
  }
  return flops;
}
