//===- rank_messages.h - Messages between hosts of ranks ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages that ranks send each other beside the data of collectives: losses,
// figures, errors. A message is bytes: a header, which says what it is, and
// fields of one type behind it. Ranks that are at different places of a run are
// found by the headers.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_RANK_MESSAGES_H
#define GRT_COMM_RANK_MESSAGES_H

#include "comm/communicator.h"

#include <algorithm>
#include <type_traits>

namespace grt {

/// What the fields of a message are.
enum class MessageKind : uint32_t {
  StepNumbers = 1,
  ToldNumbers,
  NotFinite,
  Failure,
  FailureText,
  HostMemory,
  CheckpointCopies,
  CheckpointFits,
  Replicas,
  RankMemory,
  RankWork,
  Hits,
  Predictions,
  ScoresPart,
  Scores,
  HostName,
  Times
};

/// What stands in front of a message's fields.
struct MessageHeader {
  MessageKind kind = MessageKind::StepNumbers;
  uint32_t fieldBytes = 0; ///< of one value
  uint64_t count = 0;      ///< of values

  bool operator==(const MessageHeader &) const = default;
};

/// Throws Error, which names both, if the message of a rank is not what this
/// rank expects.
void checkHeader(int rank, const MessageHeader &found,
                 const MessageHeader &expected);

/// One message of each rank, of so many values. Padding of values is sent with
/// them, and means nothing.
template <typename T> class RankMessages {
  static_assert(std::is_trivially_copyable_v<T> &&
                alignof(T) <= alignof(uint64_t));

public:
  RankMessages(MessageKind kind, size_t count, size_t ranks = 0)
      : header{kind, sizeof(T), count},
        words((sizeof(header) + count * sizeof(T) + 7) / 8), all(words) {
    reserve(ranks);
  }

  /// Takes the memory for the messages of so many ranks.
  void reserve(size_t ranks) {
    all.resize(words * (1 + ranks));
    *at<MessageHeader>(0) = header;
  }
  size_t ranks() const { return all.size() / words - 1; }
  size_t count() const { return header.count; }

  /// The values of this rank's message.
  std::span<T> mine() { return {at<T>(headerWords), count()}; }
  /// Exchanges them. Throws if another rank's message is of another kind or
  /// length.
  void gather(Communicator &host) {
    const std::span<uint64_t> memory(all);
    host.gather(std::as_bytes(memory.first(words)),
                std::as_writable_bytes(memory.subspan(words)));
    for (size_t rank = 0; rank < ranks(); ++rank)
      checkHeader(int(rank), *at<MessageHeader>(words * (1 + rank)), header);
  }
  /// The values of a rank's message, once they were gathered.
  std::span<const T> of(size_t rank) const {
    return {at<const T>(words * (1 + rank) + headerWords), count()};
  }
  /// The first of them.
  const T &operator[](size_t rank) const { return of(rank).front(); }
  /// Those of all ranks, in their order.
  std::vector<T> values() const {
    std::vector<T> values;
    for (size_t rank = 0; rank < ranks(); ++rank)
      values.insert(values.end(), of(rank).begin(), of(rank).end());
    return values;
  }

private:
  static constexpr size_t headerWords = sizeof(MessageHeader) / 8;

  template <typename V> V *at(size_t word) const {
    return reinterpret_cast<V *>(const_cast<uint64_t *>(all.data()) + word);
  }

  MessageHeader header;
  size_t words;              ///< of a message
  std::vector<uint64_t> all; ///< this rank's message, then those of all ranks
};

/// What every rank has, in the order of ranks.
template <typename T>
std::vector<T> gatherOfRanks(Communicator &host, MessageKind kind,
                             std::span<const T> mine) {
  RankMessages<T> messages(kind, mine.size(), size_t(host.size()));
  std::copy(mine.begin(), mine.end(), messages.mine().begin());
  messages.gather(host);
  return messages.values();
}

/// The one value of every rank.
template <typename T>
std::vector<T> gatherOfRanks(Communicator &host, MessageKind kind,
                             const T &mine) {
  return gatherOfRanks(host, kind, std::span<const T>(&mine, 1));
}

} // namespace grt

#endif // GRT_COMM_RANK_MESSAGES_H
