//===- VerifyData.cpp - Bounds of data against their readers --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/VerifyData.h"

#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionsByName.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::galvatron;

/// Rows of a table on all ranks together; nothing if it is no parameter.
static std::optional<int64_t> countRows(func::FuncOp function, Value table) {
  auto argument = dyn_cast<BlockArgument>(table);
  if (!argument)
    return std::nullopt;
  SliceAttr slice = SliceAttr::of(function, argument.getArgNumber());
  return slice && slice.getGlobalShape()
             ? slice.getGlobalShape()[0]
             : cast<RankedTensorType>(table.getType()).getDimSize(0);
}

/// The number of values that an operation tells apart in the integers `data`;
/// nothing if it does not.
static std::optional<int64_t> countValues(func::FuncOp function, Operation *op,
                                          Value data) {
  if (auto embedding = dyn_cast<nn::EmbeddingOp>(op)) {
    if (embedding.getTokens() != data)
      return std::nullopt;
    std::optional<int64_t> rows = countRows(function, embedding.getTable());
    return rows ? std::optional(*rows - int64_t(embedding.getFirst()))
                : std::nullopt;
  }
  if (auto loss = dyn_cast<nn::CrossEntropyOp>(op))
    return loss.getClasses();
  if (auto stats = dyn_cast<nn::SoftmaxStatsOp>(op))
    return stats.getClasses();
  if (auto cached = dyn_cast<nn::CachedAttentionOp>(op)) {
    ArrayRef<int64_t> cache =
        cast<RankedTensorType>(cached.getKeys().getType()).getShape();
    if (cached.getRows() == data)
      return cache[0];
    // With a window places are used again.
    if (cached.getPositions() == data && cached.getWindow() == 0)
      return cache[2];
  }
  if (auto cached = dyn_cast<nn::CachedCrossAttentionOp>(op)) {
    ArrayRef<int64_t> cache =
        cast<RankedTensorType>(cached.getKeys().getType()).getShape();
    if (cached.getRows() == data || cached.getBegins() == data)
      return cache[0];
    if (cached.getLengths() == data)
      return cache[2] + 1;
  }
  return std::nullopt;
}

/// Whether an operation reads the integers `data` as the rows of a cache and as
/// nothing else.
static bool readsRows(Operation *op, Value data) {
  if (auto cross = dyn_cast<nn::CachedCrossAttentionOp>(op))
    return cross.getLengths() != data;
  auto cached = dyn_cast<nn::CachedAttentionOp>(op);
  return cached && cached.getRows() == data && cached.getPositions() != data;
}

LogicalResult mlir::galvatron::verifyDataBounds(ModelOp model) {
  SmallVector<DataAttr> data = model.getDeclaredData();
  if (data.empty())
    return success();
  FunctionsByName functions(model->getParentOfType<ModuleOp>());
  for (LayerOp layer : model.getLayers()) {
    if (!llvm::is_contained(layer.getDataInputs(), true))
      continue;
    FlatSymbolRefAttr callee = layer.getCalleeAttr();
    FlatSymbolRefAttr symbol = callee ? callee : layer.getForwardAttr();
    func::FuncOp function = functions.lookup(symbol);
    if (!function || function.isExternal())
      continue;
    // Derived functions have what is data by its role, in the same order.
    SmallVector<unsigned> positions;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (callee ? i < layer.getInputs().size() && layer.getDataArgument(i)
                 : nn::getArgRole(function, i) == nn::ValueRole::Data)
        positions.push_back(i);
    auto *position = positions.begin();
    for (unsigned i = 0; i < layer.getInputs().size(); ++i) {
      BlockArgument argument = layer.getDataArgument(i);
      if (!argument || position == positions.end())
        continue;
      DataAttr datum = data[argument.getArgNumber()];
      Value value = function.getArgument(*position++);
      for (Operation *user : value.getUsers()) {
        if (mayHaveNoRow(datum.getKind()) && !readsRows(user, value))
          return (layer.emitOpError()
                  << "(M1) expected '" << datum.getName()
                  << "', which may be -1, to be read as the rows of a cache "
                     "alone, found another use in layer '"
                  << layer.getLayerName() << "'")
                     .attachNote(user->getLoc())
                 << "by this operation";
        std::optional<int64_t> count = countValues(function, user, value);
        if (count && datum.getBelow() > *count)
          return (layer.emitOpError()
                  << "(M1) expected '" << datum.getName() << "' below the "
                  << *count << " values that layer '" << layer.getLayerName()
                  << "' tells apart, found below " << datum.getBelow())
                     .attachNote(user->getLoc())
                 << "by this operation";
      }
    }
  }
  return success();
}
