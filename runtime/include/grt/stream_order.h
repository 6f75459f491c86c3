//===- stream_order.h - What streams of a layer function share --*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which operations of a layer function must not run at the same time, and which
// of them events order. galvatron-assign-streams makes the events, the verifier
// of grt.func and the runtime that loads a program prove that they are enough;
// all ask here.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_STREAM_ORDER_H
#define GRT_STREAM_ORDER_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace galvatron::streams {

/// Number of streams, equal to GRT_STREAM_COUNT. Stream 0 is that of all
/// kernels.
inline constexpr size_t kStreams = 6;

/// A position on every stream: numbers of operations, -1 for none.
using Positions = std::array<int, kStreams>;

/// Bytes that an operation uses. Only uses of one memory meet: a region is one,
/// and so is a transient buffer from its begin to its end, since lifetimes keep
/// those apart that share a place.
struct ByteUse {
  int64_t memory = 0;
  uint64_t begin = 0, end = 0;
  bool writes = false;
};

/// An operation of a layer function that takes a place on its stream. Lifetime
/// marks stand on stream 0, as kernels do.
struct Operation {
  enum class Kind : uint8_t {
    Work,
    Begin, ///< of a buffer's life
    Return ///< the function's end, which waits for all streams
  };
  Kind kind = Kind::Work;
  uint8_t stream = 0;
  int axis = -1; ///< of a collective
  std::vector<ByteUse> uses;
};

/// Returns, by operation and by other stream, the last operation that must have
/// ended before it starts. The first of `operations` is the function's start.
std::vector<Positions> findNeeds(const std::vector<Operation> &operations);

/// Follows the events of a function: which operations of all streams are known
/// to have ended when a stream gets to its next one.
class Progress {
public:
  Progress();

  /// Operation `number` is put on its stream.
  void run(size_t stream, int number) { known[stream][stream] = number; }
  /// Operations that an event recorded on the stream now would stand for.
  const Positions &at(size_t stream) const { return known[stream]; }
  /// The stream waits for an event that was recorded at `positions`.
  void wait(size_t stream, const Positions &positions);
  /// The first stream of which `needs` asks for more than the stream knows.
  std::optional<size_t> findMissing(size_t stream,
                                    const Positions &needs) const;

private:
  std::array<Positions, kStreams> known;
};

} // namespace galvatron::streams

#endif // GRT_STREAM_ORDER_H
