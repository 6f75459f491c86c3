//===- Passes.td - Passes of the galvatron dialect ---------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// differentiate, partition
//===----------------------------------------------------------------------===//

def GalvatronDifferentiateLayers
    : Pass<"galvatron-differentiate-layers", "::mlir::ModuleOp"> {
  let summary = "Makes forward, backward and update functions of every body";
}

def GalvatronInsertRecompute
    : Pass<"galvatron-insert-recompute", "::mlir::ModuleOp"> {
  let summary = "Makes recompute functions for the layers with ckpt";
}

def GalvatronPartitionLayers
    : Pass<"galvatron-partition-layers", "::mlir::ModuleOp"> {
  let summary = "Clones the layer functions per strategy, with local shapes";
}

def GalvatronInsertCollectives
    : Pass<"galvatron-insert-collectives", "::mlir::ModuleOp"> {
  let summary = "Inserts the collectives of layers and the reshards between them";
}

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PASSES_TD
