//===- LayerSteps.h - From a layer's body to its kernels --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order in which a layer's functions are made is written here, once. The
// phases of compilation run it as passes over a module; the planner's
// footprints (lib/Footprint) run the same steps on the functions of one layer.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CONVERSION_NNTOGRT_LAYERSTEPS_H
#define GALVATRON_CONVERSION_NNTOGRT_LAYERSTEPS_H

#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"
#include "mlir/Pass/PassManager.h"

namespace mlir::grt {

/// The steps of a layer, in their order.
enum class LayerStep {
  Differentiate, ///< forward and backward function of a body
  Recompute,     ///< a function that computes again, cut out of the forward one
  Partition,     ///< both for a strategy: factors of operations are cut
  Collectives,   ///< local types, and the collectives that they need
  Fuse,          ///< neighbouring operations become one
  SplitBackward, ///< backward functions in two parts
  FuseProducts,  ///< products take over what follows them, on some devices
  PlaceKept,     ///< where values between two parts of a backward pass lie
  Convert        ///< operations become kernels on buffers
};

/// The place and the pass of a step in the pipelines.
struct LayerStepInfo {
  LayerStep step;
  galvatron::Phase phase;
  /// Adds its pass; null if it is part of the last step's pass, which knows the
  /// device.
  void (*addPass)(OpPassManager &manager);
};

/// Returns all steps, in their order.
llvm::ArrayRef<LayerStepInfo> layerSteps();
/// Returns the steps from `first` to `last`, both included.
llvm::ArrayRef<LayerStepInfo> layerSteps(LayerStep first, LayerStep last);

/// Adds the passes of a phase's steps.
void addLayerSteps(OpPassManager &manager, galvatron::Phase phase);

} // namespace mlir::grt

#endif // GALVATRON_CONVERSION_NNTOGRT_LAYERSTEPS_H
