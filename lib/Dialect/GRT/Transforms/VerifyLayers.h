//===- VerifyLayers.h - Layers of roles against each other ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_DIALECT_GRT_TRANSFORMS_VERIFYLAYERS_H
#define GALVATRON_LIB_DIALECT_GRT_TRANSFORMS_VERIFYLAYERS_H

#include "galvatron/Dialect/GRT/Transforms/Roles.h"

namespace mlir::grt {

/// Checks the invariants R1 to R8 and R10 of docs/invariants.md: what layers
/// say of their functions, parameters, data and neighbours.
LogicalResult verifyLayers(ReadProgram &read);

/// (M1) Checks that integers which are data are within the tables and classes
/// that a forward function numbers by them. `data` are those that the layer
/// reads, in the order of the function; a table is cut in `parts`.
LogicalResult verifyDataBounds(Operation *layer, FuncOp forward,
                               ArrayRef<mlir::galvatron::DataAttr> data,
                               int64_t parts);

} // namespace mlir::grt

#endif // GALVATRON_LIB_DIALECT_GRT_TRANSFORMS_VERIFYLAYERS_H
