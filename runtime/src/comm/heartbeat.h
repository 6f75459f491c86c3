//===- heartbeat.h - What processes say of their ranks --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_HEARTBEAT_H
#define GRT_COMM_HEARTBEAT_H

#include "comm/collective_comparison.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// A rank as its process last described it.
struct RankReport {
  static constexpr size_t mostPeers = 16; ///< of those that it waits for
  static constexpr size_t mostText = 235;
  uint64_t progress = 0;
  bool busy = false, waiting = false;
  std::vector<int> peers; ///< whom it waits for
  std::string doing;
  /// True if the rank stands still and `communicators` has the collectives that
  /// it called; false for a rank that moves, or that has more than a beat
  /// carries.
  bool known = false;
  RankCollectives::Host host = RankCollectives::Runs;
  std::vector<CommunicatorState> communicators;
};

/// A process as somebody knows it.
struct ProcessReport {
  enum State : uint8_t {
    Alive,
    Leaving, ///< its connection will close, or has, and that is no failure
    Lost,    ///< its connection closed without a word
  };
  int process = 0;
  State state = Alive;
  /// Seconds since it was last heard of.
  double age = 0;
  int firstRank = 0;
  std::vector<RankReport> ranks;
};

/// Reports as bytes: 13 for a process, 13 and its text for a rank, 4 for each
/// that it waits for, and some 50 for each of its communicators, where they
/// are known. And back; nothing for bytes that are none.
std::string encode(const std::vector<ProcessReport> &reports);
std::optional<std::vector<ProcessReport>> decodeReports(std::string_view bytes);

} // namespace grt

#endif // GRT_COMM_HEARTBEAT_H
