//===- InitAllPasses.cpp - Registers the passes ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/InitAllPasses.h"

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "galvatron/Pipelines/PhasePipeline.h"
#include "galvatron/Target/Passes.h"
#include "mlir/Transforms/Passes.h"

void galvatron::registerAllPasses() {
  mlir::galvatron::registerGalvatronPasses();
  mlir::grt::registerGRTPasses();
  mlir::nn::registerNNPasses();
  mlir::registerNNToGRTPasses();
  mlir::galvatron::registerGalvatronTargetPasses();
  registerPhasePipelines();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  mlir::registerStripDebugInfoPass();
}
