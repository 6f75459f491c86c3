//===- WholeSamples.h - Operations that take whole samples ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Words for a refusal: what makes an operation that mixes positions take all of
// a sample's, and the paradigms that cut positions on both sides of it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_WHOLESAMPLES_H
#define GALVATRON_DIALECT_NN_IR_WHOLESAMPLES_H

#include "galvatron/Dialect/NN/IR/NN.h"

#include <string>

namespace mlir::nn {

/// Returns what keeps an operation from blocks of positions: "has biases by
/// distance".
std::string whyWholeSamples(Operation *op);

/// Returns the paradigms, quoted, that cut positions in front of the operation
/// and behind it, and leave it whole samples (`up`, `tsp`), or, where it takes
/// blocks of queries, all of its keys (`cp`).
std::string waysToCutPositions(FactorOpInterface op);

} // namespace mlir::nn

#endif // GALVATRON_DIALECT_NN_IR_WHOLESAMPLES_H
