//===- LeastTransients.h - Bounds of a function's temporaries ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_FOOTPRINT_LEASTTRANSIENTS_H
#define GALVATRON_LIB_FOOTPRINT_LEASTTRANSIENTS_H

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"

namespace mlir::galvatron {

/// A lower bound of the bytes of the transient region of a partitioned function
/// with `?` samples, once it is converted for so many samples and allocated:
/// the most that its values and whole gradients take between two operations.
/// Workspaces of kernels are not counted. `layout` is that of the parameters
/// of a backward function, no part of a split one; others have null.
int64_t leastTransientBytes(func::FuncOp function, int64_t samples,
                            const grt::FlatLayout *layout);

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_FOOTPRINT_LEASTTRANSIENTS_H
