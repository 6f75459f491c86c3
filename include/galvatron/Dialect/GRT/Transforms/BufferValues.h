//===- BufferValues.h - What functions on buffers compute -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_TRANSFORMS_BUFFERVALUES_H
#define GALVATRON_DIALECT_GRT_TRANSFORMS_BUFFERVALUES_H

#include "galvatron/Dialect/GRT/IR/GRT.h"

#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::grt {

/// The number of what a function leaves in the regions that others see:
/// kernels, collectives and their integers, and from which bytes of which
/// regions their operands come. Where temporaries lie, on which streams
/// operations are, and the order of those that do not need each other, change
/// nothing. Fails, with a diagnostic, where a temporary, or what the function
/// has begun to keep, is read before it was written.
FailureOr<mlir::galvatron::NumberedValues> numberValues(FuncOp func);

/// The number of what a role is made of: its devices, slots, chunks and layers
/// with all that these say, the exchanges that they name, and the model's data;
/// not what `galvatron-allocate-arena` adds.
mlir::galvatron::NumberedValues numberRole(RoleOp role, SymbolTable &symbols);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_TRANSFORMS_BUFFERVALUES_H
