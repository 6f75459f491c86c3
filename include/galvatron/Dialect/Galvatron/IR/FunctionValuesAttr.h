//===- FunctionValuesAttr.h - Name of an attribute --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_FUNCTIONVALUESATTR_H
#define GALVATRON_DIALECT_GALVATRON_IR_FUNCTIONVALUESATTR_H

#include "llvm/ADT/StringRef.h"

namespace mlir::galvatron {

/// The number of what a layer's function computes, as a string, on functions of
/// tensors and of buffers, and behind a blank two characters for each of its
/// parts, which tell where another function differs
/// (Transforms/FunctionValues.h).
inline constexpr llvm::StringLiteral kValuesAttr = "galvatron.values";

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_FUNCTIONVALUESATTR_H
