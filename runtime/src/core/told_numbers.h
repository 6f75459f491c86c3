//===- told_numbers.h - Numbers that ranks tell without meeting -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TOLD_NUMBERS_H
#define GRT_CORE_TOLD_NUMBERS_H

#include "comm/rank_messages.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace grt {

/// Sums over the rows of a batch whose labels count.
struct LossSums {
  double loss = 0;
  /// The sum of the squared logarithms of the sums of exponentials of logits:
  /// the z-loss before its factor. Only programs with two values of a loss have
  /// it.
  double squares = 0;

  LossSums &operator+=(const LossSums &other) {
    loss += other.loss;
    squares += other.squares;
    return *this;
  }
};

/// Numbers that every rank tells all others with a step, and hears from them
/// later.
class ToldNumbers {
public:
  struct Sums {
    uint32_t requests = 0; ///< of any rank
    double squares = 0;    ///< of all gradients
  };

  void tell(Communicator &host, const LossSums &loss, uint32_t requests,
            double squares) {
    ++steps;
    const Message mine{expected, loss, squares, requests};
    host.tell(steps, std::as_bytes(std::span(&mine, 1)));
    awaited = true;
  }
  /// Of the last step; nothing if that was heard already.
  std::optional<Sums> hear(Communicator &host) {
    if (!std::exchange(awaited, false))
      return std::nullopt;
    Sums sums;
    for (int rank = 0; rank < host.size(); ++rank) {
      const Message heard = messageOf(host, rank);
      sums.requests |= uint32_t(heard.requests);
      sums.squares += heard.squares;
    }
    return sums;
  }
  /// The loss that a rank has told with the last step.
  LossSums lossOf(Communicator &host, int rank) const {
    return messageOf(host, rank).loss;
  }
  /// Nobody asks any more for what was told.
  void forget() { awaited = false; }

private:
  struct Message {
    MessageHeader header;
    LossSums loss;
    double squares = 0;
    uint64_t requests = 0;
  };
  static_assert(sizeof(Message) <= Communicator::mostToldBytes);
  static constexpr MessageHeader expected{
      MessageKind::ToldNumbers, sizeof(Message) - sizeof(MessageHeader), 1};

  Message messageOf(Communicator &host, int rank) const {
    Message heard;
    host.hear(rank, steps, std::as_writable_bytes(std::span(&heard, 1)));
    checkHeader(rank, heard.header, expected);
    return heard;
  }

  uint64_t steps = 0; ///< that were told
  bool awaited = false;
};

} // namespace grt

#endif // GRT_CORE_TOLD_NUMBERS_H
