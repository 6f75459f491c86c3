//===- StreamOrder.h - What streams of a layer function share ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of streams (grt/stream_order.h) as functions of the dialect have
// it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_STREAMORDER_H
#define GALVATRON_DIALECT_GRT_IR_STREAMORDER_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "grt/stream_order.h"

#include <vector>

namespace mlir::grt {

static_assert(::galvatron::streams::kStreams == getMaxEnumValForStream() + 1);

/// Most events of one function; the same number as GRT_FUNCTION_EVENTS.
inline constexpr unsigned kFunctionEvents = 64;

/// Shifts of a function that leave `compute`, at most: the first ones beside
/// which a kernel stands. Each takes an event, and those of other collectives
/// have room beside them.
inline constexpr int kMostShiftsAside = 48;

/// The stream that an operation of a layer function is put on. Lifetime marks
/// stand on `compute`, as kernels do.
Stream getStream(Operation *op);

/// A position on every stream: numbers of operations, -1 for none.
using StreamPositions = ::galvatron::streams::Positions;

/// One operation of a layer function that takes a place on its stream.
struct StreamOperation {
  Operation *op; ///< null: the function's start, which comes first
  Stream stream;
  /// The last operation of each other stream, by stream, that must have ended
  /// before this one starts.
  StreamPositions needs;
};

/// Operations in the order of the function, the start in front, the return
/// last. Buffers, views and events are left out.
std::vector<StreamOperation> getStreamOperations(FuncOp func);

/// Constraints C4 to C6 of grt.func.
LogicalResult verifyStreamOrder(FuncOp func);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_STREAMORDER_H
