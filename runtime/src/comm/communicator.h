//===- communicator.h - Collectives and transfers between ranks -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the executor asks of a way for ranks to talk. One object per rank; its
// calls come from that rank's thread. Calls are blocking with rendezvous
// semantics: no send is buffered, and a call returns when its buffers may be
// used again. Over the memory of a device calls return at once and all this
// happens on a stream. Every implementation passes conformance/comm.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_COMMUNICATOR_H
#define GRT_COMM_COMMUNICATOR_H

#include "base/error.h"
#include "grt/abi.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace grt {

/// A set of ranks with an order, made once per distinct rank list. The order of
/// the list is the order of indices, of concatenation and of summation.
class Group {
public:
  explicit Group(std::vector<int> ranks) : members(std::move(ranks)) {}
  virtual ~Group() = default;
  const std::vector<int> &ranks() const { return members; }
  int size() const { return int(members.size()); }
  /// The place of a rank in the order; throws Error if it is no member.
  int indexOf(int rank) const {
    const auto at = std::find(members.begin(), members.end(), rank);
    if (at == members.end())
      fail("rank " + std::to_string(rank) + " is no member of the group");
    return int(at - members.begin());
  }

private:
  std::vector<int> members;
};

/// A row of a rank's part of an exchange: `units` consecutive units to or from
/// `peer`, starting at `localUnit` of this rank's buffer. A receive also says
/// where the units stand in the peer's buffer.
struct ExchangeRow {
  int64_t localUnit = 0;
  int64_t peerUnit = 0;
  int64_t units = 0;
};

/// All rows between this rank and one peer, in one direction.
struct ExchangePeer {
  int peer = 0;
  std::vector<ExchangeRow> rows;
};

/// A rank's part of an exchange. Sender and receiver hold the same rows in the
/// same order. A rank may be its own peer; the two ranges must not overlap
/// then.
struct ExchangeTable {
  std::vector<ExchangePeer> sends;
  std::vector<ExchangePeer> receives; ///< ascending peers
  bool empty() const { return sends.empty() && receives.empty(); }
};

/// One exchange of a grouped operation: a table, its buffers and what arriving
/// data does.
struct ExchangeCall {
  const ExchangeTable *table = nullptr;
  const void *source = nullptr; ///< base of unit 0 of what is sent
  void *destination = nullptr;  ///< base of unit 0 of what is received
  uint64_t bytesPerUnit = 0;
  /// destination += arriving, in order of peers; the same on both sides.
  bool add = false;
  grt_dtype dtype = GRT_U8; ///< element type if `add`
};

/// The units that a member of a group sends to and receives from each member in
/// an all-to-all, by the index in the group; 0 is allowed. Blocks
/// stand one behind the other, in the order of the group's list. What one
/// member sends to another is what that one receives of it.
struct BlockCounts {
  std::span<const uint64_t> sends, receives;
  uint64_t bytesPerUnit = 0;
  uint64_t mostSent = 0;     ///< units that there is memory for in the input
  uint64_t mostReceived = 0; ///< and in the output
};

class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The group of these ranks, this rank among them; made on first use. Every
  /// member asks at load, in the same order. Lives as long as the communicator.
  virtual Group &group(const std::vector<int> &ranks) = 0;

  /// The calls that follow are put on this stream of the rank's device; at
  /// first GRT_STREAM_COMPUTE. Nothing where there are no streams.
  virtual void onStream(grt_stream) {}

  // Collectives throw Error, which says what was expected and found, where an
  // argument of this rank cannot be right. Arguments that differ between
  // members show as an error or as a wait that ends with the run.

  /// `data` becomes the sum over the group, with the same bits on every member:
  /// each element is added in the order of the group's list. Of F32, F64 and
  /// BF16.
  virtual void allReduce(Group &group, void *data, uint64_t count,
                         grt_dtype dtype) = 0;
  /// `out` = the members' inputs of `bytes` each, in the group's order. `in`
  /// may be its own place in `out`.
  virtual void allGather(Group &group, const void *in, void *out,
                         uint64_t bytes) = 0;
  /// out[count] = (accumulate ? out : 0) + slice i of the sum of all inputs, i
  /// the member's index; inputs have size() * count elements. `out` may be the
  /// member's own slice of `in` if not accumulating; if accumulating that slice
  /// is undefined afterwards.
  virtual void reduceScatter(Group &group, const void *in, void *out,
                             uint64_t count, grt_dtype dtype,
                             bool accumulate) = 0;
  /// `data` becomes the largest over the group of each element, with the same
  /// bits on every member; where one of them is no number, it is unspecified
  /// which of the members' values it is. Of F32, F64, BF16, I32 and U8.
  virtual void allReduceMax(Group &group, void *data, uint64_t count,
                            grt_dtype dtype) = 0;
  /// Block i of `out` = block j of member i's `in`, j this member's index;
  /// blocks have `bytes` bytes, one for each member. `in` and `out` do not
  /// overlap.
  virtual void allToAll(Group &group, const void *in, void *out,
                        uint64_t bytes) = 0;
  /// Exchanges blocks whose sizes `counts` gives. A member that has nothing to
  /// send or receive calls it too.
  virtual void allToAll(Group &group, const void *in, void *out,
                        const BlockCounts &counts) = 0;
  /// `out` = `in`, of `bytes` bytes, of the member whose index is `distance`
  /// below this one's, around the group; negative distances go the other way.
  /// `in` and `out` do not overlap.
  virtual void shift(Group &group, const void *in, void *out, uint64_t bytes,
                     int64_t distance) = 0;
  /// Performs the calls as one grouped operation: every send and receive of all
  /// of them makes progress independently of the others. Of several calls that
  /// send to one peer each comes after the one before, and meets the peer's
  /// calls that receive from here in their order, be they in one operation of
  /// the peer's or in several.
  virtual void exchange(std::span<const ExchangeCall> calls) = 0;
  /// `out` = the messages `in` of all ranks, in their order; all have one
  /// length. RankMessages says what is in them.
  virtual void gather(std::span<const std::byte> in,
                      std::span<std::byte> out) = 0;

  // Messages that nobody waits for, between ranks that are batches apart. Of
  // the host's memory only: communicators of devices refuse them.

  /// Announces the number of boxes for messages; every rank calls it before the
  /// first message.
  virtual void reserveBoxes(size_t boxes);
  /// Leaves what `send`, of the call's table, has for its peer, and returns
  /// without it. A box holds one message between two ranks: the one before must
  /// have been taken (`awaitTaken`). What is left stays as it is until then.
  virtual void post(const ExchangeCall &call, const ExchangePeer &send,
                    size_t box);
  /// Returns when what was posted may be changed: at once, if nothing was.
  virtual void awaitTaken(int peer, size_t box);
  /// Waits for what a peer has posted, and does with it what the call says.
  /// Messages of several boxes are taken in the order in which they were
  /// posted.
  virtual void take(const ExchangeCall &call, const ExchangePeer &receive,
                    size_t box);
  /// Tells all other ranks a message, as `number`-th time, from 1 on; all of
  /// those that hear this rank hear every time.
  static constexpr size_t mostToldBytes = 64;
  /// Most times that a rank may tell before the first is heard.
  static constexpr size_t toldTimes = 4;
  virtual void tell(uint64_t number, std::span<const std::byte> message);
  /// Waits for what another rank has told, of as many bytes.
  virtual void hear(int from, uint64_t number, std::span<std::byte> message);

  /// Wakes every rank that waits or will wait; their calls throw Aborted.
  virtual void abort() = 0;

private:
  [[noreturn]] static void refuse();
};

inline void Communicator::reserveBoxes(size_t) { refuse(); }
inline void Communicator::post(const ExchangeCall &, const ExchangePeer &,
                               size_t) {
  refuse();
}
inline void Communicator::awaitTaken(int, size_t) { refuse(); }
inline void Communicator::take(const ExchangeCall &, const ExchangePeer &,
                               size_t) {
  refuse();
}
inline void Communicator::tell(uint64_t, std::span<const std::byte>) {
  refuse();
}
inline void Communicator::hear(int, uint64_t, std::span<std::byte>) {
  refuse();
}
inline void Communicator::refuse() {
  fail("messages that nobody waits for are of the host's memory");
}

} // namespace grt

#endif // GRT_COMM_COMMUNICATOR_H
