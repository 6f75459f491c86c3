//===- LayerSteps.cpp - From a layer's body to its kernels ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/LayerSteps.h"

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::grt;
using mlir::galvatron::Phase;

ArrayRef<LayerStepInfo> grt::layerSteps() {
  static const LayerStepInfo steps[] = {
      {LayerStep::Differentiate, Phase::Differentiate,
       [](OpPassManager &manager) {
         manager.addPass(mlir::galvatron::createGalvatronDifferentiateLayers());
       }},
      // Recompute functions are cut out of the forward functions, stash
      // included. They must be functions of their own: in one region with the
      // forward pass CSE would merge them.
      {LayerStep::Recompute, Phase::Differentiate,
       [](OpPassManager &manager) {
         manager.addPass(mlir::galvatron::createGalvatronInsertRecompute());
       }},
      // Dead operations are gone from recompute functions by now, so that no
      // collective is inserted for a value that nobody needs.
      {LayerStep::Partition, Phase::Partition,
       [](OpPassManager &manager) {
         manager.addPass(mlir::galvatron::createGalvatronPartitionLayers());
       }},
      // Types become local here, and partial sums are reduced before the first
      // operation that is not linear in them.
      {LayerStep::Collectives, Phase::Partition,
       [](OpPassManager &manager) {
         manager.addPass(mlir::galvatron::createGalvatronInsertCollectives());
       }},
      // Fusion comes after the collectives: an all-reduce between a product and
      // its bias keeps the two apart.
      {LayerStep::Fuse, Phase::Bufferize,
       [](OpPassManager &manager) {
         manager.addNestedPass<func::FuncOp>(nn::createNNFusePass());
       }},
      // A fused operation belongs to one part of a backward pass.
      {LayerStep::SplitBackward, Phase::Bufferize,
       [](OpPassManager &manager) {
         manager.addPass(mlir::galvatron::createGalvatronSplitBackward());
       }},
      // A product and what it takes over may belong to different parts.
      {LayerStep::FuseProducts, Phase::Bufferize, nullptr},
      // Both parts know all that they keep.
      {LayerStep::PlaceKept, Phase::Bufferize, nullptr},
      {LayerStep::Convert, Phase::Bufferize,
       [](OpPassManager &manager) { manager.addPass(createConvertNNToGRT()); }},
  };
  return steps;
}

ArrayRef<LayerStepInfo> grt::layerSteps(LayerStep first, LayerStep last) {
  auto number = static_cast<size_t>(first);
  return layerSteps().slice(number, static_cast<size_t>(last) - number + 1);
}

void grt::addLayerSteps(OpPassManager &manager, Phase phase) {
  for (const LayerStepInfo &info : layerSteps())
    if (info.phase == phase && info.addPass)
      info.addPass(manager);
}
