//===- VerifyData.h - Bounds of data against their readers ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYDATA_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYDATA_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

namespace mlir::galvatron {

/// (M1) Checks, of all layers with functions of tensors, that integers which
/// are data are within the tables and classes that they number: `below` of the
/// model's data is at most as many. Fails with a diagnostic at the layer.
LogicalResult verifyDataBounds(ModelOp model);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_VERIFYDATA_H
