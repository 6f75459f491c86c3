//===- StreamOrder.h - What streams of a layer function share ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which operations of a layer function must not run at the same time, and which
// of them events order. galvatron-assign-streams makes the events, the verifier
// of grt.func proves that they are enough; both ask here.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_STREAMORDER_H
#define GALVATRON_DIALECT_GRT_IR_STREAMORDER_H

#include "galvatron/Dialect/GRT/IR/GRT.h"

#include <array>
#include <vector>

namespace mlir::grt {

inline constexpr unsigned kStreamCount = getMaxEnumValForStream() + 1;

/// Most events of one function; the same number as GRT_FUNCTION_EVENTS.
inline constexpr unsigned kFunctionEvents = 64;

/// The stream that an operation of a layer function is put on. Lifetime marks
/// stand on `compute`, as kernels do.
Stream getStream(Operation *op);

/// A position on every stream: numbers of operations, -1 for none.
using StreamPositions = std::array<int, kStreamCount>;

/// One operation of a layer function that takes a place on its stream.
struct StreamOperation {
  Operation *op; ///< null: the function's start, which comes first
  Stream stream;
  /// By other stream the last operation that must have ended before this one
  /// starts.
  StreamPositions needs;
};

/// Operations in the order of the function, the start in front, the return
/// last. Buffers, views and events are left out.
std::vector<StreamOperation> getStreamOperations(FuncOp func);

/// Follows the events of a function: which operations of all streams are known
/// to have ended when a stream gets to its next one.
class StreamProgress {
public:
  StreamProgress();

  /// Operation `number` is put on its stream.
  void run(Stream stream, int number) {
    known[index(stream)][index(stream)] = number;
  }
  /// What an event recorded on the stream now would stand for.
  const StreamPositions &at(Stream stream) const {
    return known[index(stream)];
  }
  /// The stream waits for an event that was recorded at `positions`.
  void wait(Stream stream, const StreamPositions &positions);
  /// The first stream of which `needs` asks for more than the stream knows.
  std::optional<Stream> findMissing(Stream stream,
                                    const StreamPositions &needs) const;

private:
  static size_t index(Stream stream) { return static_cast<size_t>(stream); }

  std::array<StreamPositions, kStreamCount> known;
};

/// Constraints C4 to C6 of grt.func.
LogicalResult verifyStreamOrder(FuncOp func);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_STREAMORDER_H
