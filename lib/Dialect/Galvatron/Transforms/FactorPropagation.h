//===- FactorPropagation.h - States of a function's values ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_FACTORPROPAGATION_H
#define GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_FACTORPROPAGATION_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {

/// States of one value, by axis.
using AxisStates = SmallVector<AxisState, 2>;

/// Gives the dimension of a parameter that an axis splits, or -1: the one with
/// a factor, on the axis of tensor parallelism.
int64_t getSplitDim(func::FuncOp function, unsigned argument,
                    ::galvatron::LayerAxis axis);

/// True if a layer with this forward function has balanced blocks of rows where
/// ranks divide positions: some operation has more work for late positions.
bool weighsLatePositions(func::FuncOp forward);

/// Propagates the splits of the parameters through a partitioned function, axis
/// by axis, and writes down the states that it finds: `galvatron.slice` on
/// arguments, `galvatron.sharding` on operations. `stash` gives the states of
/// the stash arguments, in their order, and `balanced` what blocks of positions
/// are. Gradients of parameters stay terms of sums on an axis that divides
/// positions. Returns the states of the stash results; fails, with a
/// diagnostic, if it meets a dimension that cannot be split.
FailureOr<SmallVector<AxisStates>> propagateFactors(func::FuncOp function,
                                                    ArrayRef<AxisStates> stash,
                                                    bool balanced);

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_DIALECT_GALVATRON_TRANSFORMS_FACTORPROPAGATION_H
