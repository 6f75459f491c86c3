//===- SplitBackward.h - Backward functions in two parts --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The work of the pass galvatron-split-backward on one function, for it and for
// the planner's footprints. What arguments and results of the two parts are
// besides their roles, PartValueAttr says.
//
// Stash results of the input part are, in order, the last stash arguments of
// the weight part.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {

/// Makes a partitioned backward function, with its collectives and fused, the
/// input part of itself, and builds its weight part behind it. Null if it
/// cannot be split: the function is what it was.
func::FuncOp splitBackward(func::FuncOp backward, llvm::StringRef name);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H
