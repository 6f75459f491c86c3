//===- RowKernels.h - Kernels that move blocks of rows ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_CONVERSION_NNTOGRT_ROWKERNELS_H
#define GALVATRON_LIB_CONVERSION_NNTOGRT_ROWKERNELS_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

namespace mlir::grt {

/// Copies rows from their order into that of balanced blocks of `degree` ranks,
/// one block behind the other, or `back`.
void dealRows(OpBuilder &builder, Location loc, Value from, Value to,
              int64_t degree, bool back);

/// Takes a rank's block of rows, which need not begin with a sample, from the
/// buffer of the whole.
void sliceRows(OpBuilder &builder, mlir::galvatron::SliceRowsOp slice,
               Value whole, Value block);

/// Exchanges a block of rows for all rows of a part of a dimension, or back:
/// the parts that go to each rank are put one behind the other, or what comes
/// from each side by side, in `packed`, of the part's size.
void exchangeRows(OpBuilder &builder, mlir::galvatron::AllToAllOp exchange,
                  Value from, Value packed, Value to);

} // namespace mlir::grt

#endif // GALVATRON_LIB_CONVERSION_NNTOGRT_ROWKERNELS_H
