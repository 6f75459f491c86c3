//===- InitAllPasses.h - Registers the passes -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_INITALLPASSES_H
#define GALVATRON_INITALLPASSES_H

#include "galvatron/Conversion/GRTToLLVM/GRTToLLVM.h"
#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "galvatron/Pipelines/PhasePipeline.h"
#include "mlir/Transforms/Passes.h"

namespace galvatron {

/// Every pass of this project, its pipelines, and the upstream clean-ups that
/// go well with them.
inline void registerAllPasses() {
  mlir::galvatron::registerGalvatronPasses();
  mlir::grt::registerGRTPasses();
  mlir::nn::registerNNPasses();
  mlir::registerGRTToLLVMPasses();
  mlir::registerNNToGRTPasses();
  registerPhasePipelines();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  mlir::registerStripDebugInfoPass();
}

} // namespace galvatron

#endif // GALVATRON_INITALLPASSES_H
