//===- SplitBackward.h - Backward functions in two parts --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the pass galvatron-split-backward does to one function, for it and for
// the planner's footprints. Arguments and results of the two parts carry more
// marks than those of other layer functions:
//
//   nn.parameter = i   on a result with role parameter_gradient: whose it is
//   nn.kept            on a stash argument of the input part: the weight part
//                      reads it too, so it lives on
//   nn.ended           on a stash argument of the weight part: it does not read
//                      it, and the input part has ended it
//   nn.wide            on a stash value: a parameter's gradient, in the type
//                      that gradients are summed in
//
//   nn.offset = bytes  on a stash value of both parts: where it lies, once that
//                      is decided (convert-nn-to-grt)
//
// Stash results of the input part are, in order, the last stash arguments of
// the weight part.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {

inline constexpr llvm::StringLiteral kParameterAttr = "nn.parameter";
inline constexpr llvm::StringLiteral kKeptAttr = "nn.kept";
inline constexpr llvm::StringLiteral kEndedAttr = "nn.ended";
inline constexpr llvm::StringLiteral kWideAttr = "nn.wide";
inline constexpr llvm::StringLiteral kOffsetAttr = "nn.offset";

/// Makes a partitioned backward function, with its collectives and fused, the
/// input part of itself, and builds its weight part behind it. Null if it
/// cannot be split: the function is what it was.
func::FuncOp splitBackward(func::FuncOp backward, llvm::StringRef name);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_SPLITBACKWARD_H
