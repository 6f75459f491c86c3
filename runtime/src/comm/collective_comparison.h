//===- collective_comparison.h - Which collective a run hangs in ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Members of a communicator call the same collectives in the same order, so the
// calls of each are numbered from 1 and those of one number belong together.
// Where a run hangs, what each rank called last on each communicator says who
// has not come, who called something else, and whose call never ended. Most
// ranks only wait for others that wait; those findings are given from which
// the others follow.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_COLLECTIVE_COMPARISON_H
#define GRT_COMM_COLLECTIVE_COMPARISON_H

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace grt {

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  Gather,   ///< of numbers of the host
  Transfer, ///< from the first member to the second
  AllReduceMax,
  AllToAll, ///< with equal blocks; blocks of their own sizes are transfers
  Shift,
};
inline constexpr uint8_t collectiveKinds = 8;
const char *collectiveName(CollectiveKind kind);

struct CollectiveCall {
  uint64_t number = 0; ///< of its communicator's, from 1
  uint64_t order = 0;  ///< among all calls of the rank
  CollectiveKind kind = CollectiveKind::AllReduce;
  uint8_t stream = 0;   ///< a grt_stream
  bool inGraph = false; ///< put there by the start of a graph
  uint64_t bytes = 0;   ///< that every member gives (reduce-scatter: gets)
};

/// Ranks in an order, kept as runs of one distance: groups of thousands are
/// two or three of those.
class RankList {
public:
  struct Run {
    int first, stride;
    uint64_t count;
    auto operator<=>(const Run &) const = default;
  };

  RankList() = default;
  RankList(std::span<const int> ranks);
  RankList(const std::vector<int> &ranks)
      : RankList(std::span<const int>(ranks)) {}
  std::vector<int> ranks() const;
  auto operator<=>(const RankList &) const = default;

  std::vector<Run> runs;
};

/// One rank's view of one communicator. The rank knows that calls up to `done`
/// have ended, and that its device has done all that comes before the calls up
/// to `started`.
struct CommunicatorState {
  std::string name; ///< its purpose; equal on all members
  RankList members;
  uint64_t enqueued = 0, started = 0, done = 0;
  std::vector<CollectiveCall> calls; ///< some of the last, ascending
};

struct RankCollectives {
  /// State of the rank's thread.
  enum Host : uint8_t {
    Runs,         ///< it waits for nobody
    InCollective, ///< it is in calls that have not ended
    ForDevice,    ///< it waits for all that its device was given
    ForRanks,     ///< it waits for `peers` in another way
  };
  int rank = 0;
  /// True if `communicators` has all of the rank's; nothing is concluded from a
  /// rank that moves.
  bool known = true;
  Host host = Runs;
  std::vector<int> peers;
  std::vector<CommunicatorState> communicators;
};

struct CollectiveFinding {
  enum Kind {
    Disagree,   ///< calls of one number differ
    Silent,     ///< members that do not answer
    Missing,    ///< members that never enqueued a call of others
    Unfinished, ///< all enqueued it, and `ranks` never finished
    Circle,     ///< ranks wait for each other in different calls
  };
  Kind kind;
  std::vector<int> ranks; ///< that are named
  std::string communicator;
  uint64_t number = 0;
  std::string text;
};

/// Meaning of members that are not among the ranks.
enum class Absent {
  Silent, ///< they were asked, and do not answer
  Unknown ///< nobody asked them
};

/// Compares ranks that stand still. Empty where no collective is under way.
std::vector<CollectiveFinding>
compareCollectives(std::span<const RankCollectives> ranks, Absent absent);

/// "rank 3", "ranks 0 to 3", "ranks 0, 2 and 5".
std::string rankNames(std::vector<int> ranks);

/// The first findings behind each other, each with "; " in front, for the end
/// of a message.
std::string findingsText(std::span<const CollectiveFinding> findings);

} // namespace grt

#endif // GRT_COMM_COLLECTIVE_COMPARISON_H
