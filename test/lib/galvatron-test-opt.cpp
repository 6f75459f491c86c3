//===- galvatron-test-opt.cpp - Passes with test operations ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes from differentiation to kernels, unchanged, on modules that may
// hold operations of the `test_nn` dialect.
//
//===----------------------------------------------------------------------===//

#include "TestNN.h"
#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "galvatron/InitAllDialects.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  galvatron::registerAllDialects(registry);
  registry.insert<mlir::test_nn::TestNNDialect>();

  mlir::registerTransformsPasses();
  mlir::galvatron::registerGalvatronDifferentiateLayers();
  mlir::galvatron::registerGalvatronInsertRecompute();
  mlir::galvatron::registerGalvatronPartitionLayers();
  mlir::galvatron::registerGalvatronInsertCollectives();
  mlir::nn::registerNNFusePass();
  mlir::nn::registerNNFuseProductsPass();
  mlir::registerConvertNNToGRT();
  mlir::test_nn::registerPrintInterfaces();
  mlir::test_nn::registerPrintKernels();
  mlir::test_nn::registerMutateKernels();
  mlir::grt::registerAllocateArena();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Galvatron optimizer driver with test operations\n",
      registry));
}
