//===- Transients.h - Placement of a function's temporaries -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The function part of galvatron-allocate-arena. The planner calls it too, on
// one layer function at a time, so that the bytes it compares with the budget
// are the bytes the program asks for.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_TRANSFORMS_TRANSIENTS_H
#define GALVATRON_DIALECT_GRT_TRANSFORMS_TRANSIENTS_H

#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Dialect/GRT/IR/GRT.h"

#include <vector>

namespace mlir::grt {

/// A block of memory needed from time `begin` to time `end`, both included.
struct Interval {
  int64_t begin;
  int64_t end;
  int64_t bytes; ///< a multiple of kAlignment
  int64_t offset = 0;
};

/// Gives every interval an offset so that no two that share a time share a
/// byte, and returns the bytes needed in all. Offline best fit in several
/// orders, the smallest result is kept; never below peakBytes().
int64_t placeIntervals(std::vector<Interval> &intervals);

/// The most bytes that are needed at one time: the lower bound of any
/// placement.
int64_t peakBytes(const std::vector<Interval> &intervals);

/// Places the transient buffers of `func` by the lifetimes that grt.begin and
/// grt.end mark, and sets `transient_bytes`. Offsets that are already there are
/// replaced; buffers without a use are erased. Fails, with a diagnostic, on a
/// used buffer without lifetime.
LogicalResult allocateTransients(FuncOp func);

/// The bytes that an allocated function takes besides what outlives it; nothing
/// for a function that is not there.
struct FunctionBytes {
  int64_t transient = 0;
  int64_t gathered = 0; ///< parameters that are gathered for it
  /// The transient buffers that its collectives use, and those in the stash.
  std::vector<::galvatron::CollectiveBuffer> buffers, stashBuffers;

  static FunctionBytes of(FuncOp func);
};

/// Sets what the footprint says of temporaries and of gathered parameters among
/// them. Under checkpointing (`recompute` is there) the recomputed stash stands
/// in front of those of the backward pass, and both functions read the same
/// gathered parameters. `weight` is there if the backward pass is split.
void setTransients(::galvatron::LayerFootprint &footprint,
                   const FunctionBytes &forward, const FunctionBytes &recompute,
                   const FunctionBytes &backward, const FunctionBytes &weight,
                   int64_t recomputeStashBytes);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_TRANSFORMS_TRANSIENTS_H
