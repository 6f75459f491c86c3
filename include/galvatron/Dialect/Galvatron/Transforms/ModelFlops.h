//===- ModelFlops.h - Work of a model's products ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_MODELFLOPS_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_MODELFLOPS_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"

namespace mlir::galvatron {

/// Whether an operation is taken to be limited by arithmetic rather than by
/// memory.
bool isComputeBound(nn::CostOpInterface op, int64_t samples);

/// Floating-point operations of one sample's forward and backward pass on one
/// device, without recomputation: what MFU is measured against. 0 if a layer
/// has no body.
double countModelFlopsPerSample(ModuleOp module);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_MODELFLOPS_H
