//===- VerifyStates.h - States of values in local functions -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks that the collectives of a partitioned function are the right ones.
// The states of arguments on every axis stand in their slices; the state of
// every other value follows operation by operation, by the rules of factors
// alone. Nothing that the propagation of factors wrote down is used, so that
// the check holds behind every pass that changes local functions.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYSTATES_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYSTATES_H

#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"

namespace mlir::galvatron {

/// Verifies the functions of a layer behind the insertion of collectives.
/// Fails, with a diagnostic at the operation, if on some axis
/// - an operation that is not linear in it takes a term of a sum, or a
/// dimension
///   that it cannot split, or operands that do not match;
/// - a value is summed or gathered that is no term of a sum, or over ranks that
///   are no axis of the function;
/// - an output or a gradient of an input is not the same on all ranks, or a
///   gradient of a parameter is not split as the parameter is;
/// - a stash leaves in another state than backward takes it in.
LogicalResult verifyStates(const LayerFunctions &functions);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYSTATES_H
