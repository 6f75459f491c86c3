//===- FunctionValues.h - What layer functions compute ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From `differentiate` on a layer's functions say what they compute: the phase
// that makes them numbers the values that they return, or leave in buffers, and
// writes the number on them as `galvatron.values`. IR of a phase that is read
// again is refused where a function computes something else.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H

#include "galvatron/Dialect/Galvatron/IR/FunctionValuesAttr.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace mlir::galvatron {

/// The number of the values that a function of tensors returns, as 16
/// hexadecimal digits: operations with their attributes, and from which
/// arguments they come. Operations that nothing returned needs, and the order
/// of those that do not need each other, change nothing.
std::string numberValues(func::FuncOp function);

/// Checks that a function has a number, and that it is `found`.
LogicalResult verifyValues(Operation *function, StringRef found);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H
