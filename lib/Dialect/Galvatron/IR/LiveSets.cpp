//===- LiveSets.cpp - Values alive between two layers ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"

using namespace mlir;
using namespace mlir::galvatron;

Value mlir::galvatron::getOrigin(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto reshard = dyn_cast<ReshardOp>(op))
      value = reshard.getInput();
    else if (auto transfer = dyn_cast<TransferOp>(op))
      value = transfer.getInput();
    else if (auto stage = dyn_cast<StageOp>(op))
      value = stage.getBlock().getTerminator()->getOperand(
          cast<OpResult>(value).getResultNumber());
    else
      break;
  }
  return value;
}

SmallVector<LiveSet> mlir::galvatron::getLiveSets(ModelOp model) {
  SmallVector<LayerOp, 8> layers = model.getLayers();
  // By value: the number of the last layer that uses it.
  DenseMap<Value, size_t> lastUse;
  for (auto [number, layer] : llvm::enumerate(layers))
    for (Value operand : layer.getInputs())
      lastUse[getOrigin(operand)] = number;
  SmallVector<LiveSet> sets(layers.size() + 1);
  for (size_t next = 1; next < layers.size(); ++next) {
    auto add = [&](OpResult value) {
      auto use = lastUse.find(value);
      if (use != lastUse.end() && use->second >= next)
        sets[next].push_back(value);
    };
    for (OpResult result : layers[next - 1]->getResults())
      add(result);
    for (OpResult value : sets[next - 1])
      add(value);
  }
  return sets;
}

size_t mlir::galvatron::countMade(const LiveSet &set, LayerOp layer) {
  return llvm::count_if(
      set, [&](OpResult value) { return value.getOwner() == layer; });
}

int64_t mlir::galvatron::getSampleBytes(Value value) {
  auto tensor = cast<RankedTensorType>(value.getType());
  int64_t bytes = tensor.getElementTypeBitWidth() / 8;
  for (int64_t dim : tensor.getShape().drop_front())
    bytes *= dim;
  return bytes;
}
