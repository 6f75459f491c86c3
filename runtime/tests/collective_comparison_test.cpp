//===- collective_comparison_test.cpp - Which collective a run hangs in ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/collective_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>

using namespace grt;

namespace {

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

constexpr auto allReduce = CollectiveKind::AllReduce;
constexpr auto allGather = CollectiveKind::AllGather;

CommunicatorState on(std::string name, std::vector<int> members,
                     CollectiveKind kind, uint64_t enqueued, uint64_t done,
                     uint64_t bytes = 4096) {
  CommunicatorState state{
      std::move(name), std::move(members), enqueued, enqueued, done, {}};
  for (uint64_t number = done + 1; number <= enqueued; ++number)
    state.calls.push_back({number, number, kind, 0, false, bytes});
  return state;
}

RankCollectives rank(int number, RankCollectives::Host host,
                     std::vector<CommunicatorState> communicators,
                     std::vector<int> peers = {}) {
  return {number, true, host, std::move(peers), std::move(communicators)};
}

constexpr auto runs = RankCollectives::Runs;
constexpr auto isIn = RankCollectives::InCollective;
constexpr auto waitsForDevice = RankCollectives::ForDevice;

TEST(CollectiveComparison, Cases) {
  const std::vector<int> two{0, 1}, three{0, 1, 2};
  auto late = [](CommunicatorState state) {
    --state.started;
    return state;
  };
  auto graph = [](CommunicatorState state) {
    for (CollectiveCall &call : state.calls)
      call.inGraph = true;
    return state;
  };
  auto second = [](CommunicatorState state, uint64_t order) {
    for (CollectiveCall &call : state.calls)
      call.order = order;
    return state;
  };
  struct Case {
    const char *what;
    std::vector<RankCollectives> ranks;
    Absent absent;
    std::string text;
  };
  const Case cases[] = {
      {"nobody is in any",
       {rank(0, runs, {on("tensor", two, allReduce, 7, 7)}),
        rank(1, runs, {on("tensor", two, allReduce, 7, 7)})},
       Absent::Silent,
       ""},
      {"one has not come",
       {rank(0, isIn, {on("tensor", two, allReduce, 812, 811)}),
        rank(1, runs, {on("tensor", two, allReduce, 811, 811)})},
       Absent::Silent,
       "; rank 1 never enqueued all-reduce 812 of 'tensor' (ranks 0 and 1)"},
      {"one that has never come at all",
       {rank(0, isIn, {on("tensor", two, allReduce, 1, 0)}), rank(1, runs, {})},
       Absent::Silent,
       "; rank 1 never enqueued all-reduce 1 of 'tensor' (ranks 0 and 1)"},
      {"one that moved meanwhile says nothing",
       {rank(0, isIn, {on("tensor", two, allReduce, 1, 0)}),
        {1, false, runs, {}, {}}},
       Absent::Silent,
       ""},
      {"one that does not answer",
       {rank(0, isIn, {on("tensor", three, allReduce, 9, 8)}),
        rank(2, isIn, {on("tensor", three, allReduce, 9, 8)})},
       Absent::Silent,
       "; rank 1 does not answer, and ranks 0 and 2 wait in all-reduce 9 of "
       "'tensor' (ranks 0 to 2)"},
      {"one that was not asked",
       {rank(0, isIn, {on("tensor", three, allReduce, 9, 8)}),
        rank(2, runs, {on("tensor", three, allReduce, 8, 8)})},
       Absent::Unknown,
       "; rank 2 never enqueued all-reduce 9 of 'tensor' (ranks 0 to 2)"},
      {"all came, one does not end",
       {rank(0, waitsForDevice, {on("zdp", three, allGather, 14, 12)}),
        rank(1, waitsForDevice, {on("zdp", three, allGather, 14, 11)}),
        rank(2, waitsForDevice, {on("zdp", three, allGather, 14, 12)})},
       Absent::Silent,
       "; all ranks enqueued all-gather 12 of 'zdp' (ranks 0 to 2), rank 1 "
       "never finished"},
      {"all came, none ends",
       {rank(0, waitsForDevice, {on("zdp", two, allGather, 12, 11)}),
        rank(1, waitsForDevice, {on("zdp", two, allGather, 12, 11)})},
       Absent::Silent,
       "; all ranks enqueued all-gather 12 of 'zdp' (ranks 0 and 1), and none "
       "finished"},
      {"all came, one device is at something before",
       {rank(0, waitsForDevice, {on("zdp", two, allGather, 12, 11)}),
        rank(1, waitsForDevice, {late(on("zdp", two, allGather, 12, 11))})},
       Absent::Silent,
       "; all ranks enqueued all-gather 12 of 'zdp' (ranks 0 and 1), rank 1 "
       "never started it"},
      {"in a graph nobody knows which",
       {rank(0, waitsForDevice,
             {graph(on("zdp", two, allGather, 12, 4)),
              graph(on("tensor", two, allReduce, 3, 1))}),
        rank(1, waitsForDevice,
             {graph(on("zdp", two, allGather, 12, 12)),
              graph(on("tensor", two, allReduce, 3, 1))})},
       Absent::Silent,
       "; all ranks started a graph with all-gather 5 of 'zdp' (ranks 0 and "
       "1), ranks 0 and 1 never finished; --no-cuda-graph names the "
       "collective"},
      {"bytes differ",
       {rank(0, isIn, {on("dp", three, allReduce, 40, 39, 4096)}),
        rank(1, isIn, {on("dp", three, allReduce, 40, 39, 4096)}),
        rank(2, isIn, {on("dp", three, allReduce, 40, 39, 8192)})},
       Absent::Silent,
       "; ranks 0 and 2 disagree: all-reduce 40 of 'dp' (ranks 0 to 2), of "
       "4096 bytes against 8192 bytes"},
      {"kinds differ",
       {rank(0, isIn, {on("dp", two, allReduce, 40, 39)}),
        rank(1, isIn, {on("dp", two, allGather, 40, 39)})},
       Absent::Silent,
       "; ranks 0 and 1 disagree: collective 40 of 'dp' (ranks 0 and 1), "
       "all-reduce of 4096 bytes against all-gather of 4096 bytes"},
      {"who waits for one that waits is not named",
       {rank(0, isIn, {on("a", {0, 1}, allReduce, 2, 1)}),
        rank(1, isIn,
             {on("a", {0, 1}, allReduce, 1, 1),
              on("b", {1, 2}, allGather, 5, 4)}),
        rank(2, runs, {on("b", {1, 2}, allGather, 4, 4)})},
       Absent::Silent,
       "; rank 2 never enqueued all-gather 5 of 'b' (ranks 1 and 2)"},
      {"one waits for a message of another",
       {rank(0, isIn, {on("a", {0, 1}, allReduce, 2, 1)}),
        rank(1, RankCollectives::ForRanks, {on("a", {0, 1}, allReduce, 1, 1)},
             {2}),
        rank(2, isIn, {on("b", {2, 3}, allGather, 5, 4)}),
        rank(3, runs, {on("b", {2, 3}, allGather, 4, 4)})},
       Absent::Silent,
       "; rank 3 never enqueued all-gather 5 of 'b' (ranks 2 and 3)"},
      {"a transfer",
       {rank(4, isIn, {on("", {4, 6}, CollectiveKind::Transfer, 3, 2)}),
        rank(6, runs, {on("", {4, 6}, CollectiveKind::Transfer, 2, 2)})},
       Absent::Silent,
       "; rank 6 never enqueued transfer 3 from rank 4 to rank 6"},
      {"two that wait for each other",
       {rank(0, isIn,
             {on("a", two, allReduce, 2, 1), on("b", two, allGather, 4, 4)}),
        rank(1, isIn,
             {on("a", two, allReduce, 1, 1), on("b", two, allGather, 5, 4)})},
       Absent::Silent,
       "; ranks 0 and 1 wait for each other: all-reduce 2 of 'a' (ranks 0 and "
       "1) waits for rank 1, all-gather 5 of 'b' (ranks 0 and 1) waits for "
       "rank 0"},
      {"two devices with two orders",
       {rank(0, waitsForDevice,
             {second(on("a", two, allReduce, 2, 1), 10),
              late(second(on("b", two, allGather, 5, 4), 11))}),
        rank(1, waitsForDevice,
             {late(second(on("a", two, allReduce, 2, 1), 11)),
              second(on("b", two, allGather, 5, 4), 10)})},
       Absent::Silent,
       "; ranks 0 and 1 wait for each other: all-reduce 2 of 'a' (ranks 0 and "
       "1) waits for all-gather 5 of 'b' (ranks 0 and 1), all-gather 5 of 'b' "
       "(ranks 0 and 1) waits for all-reduce 2 of 'a' (ranks 0 and 1)"},
  };
  for (const Case &each : cases)
    EXPECT_EQ(findingsText(compareCollectives(each.ranks, each.absent)),
              each.text)
        << each.what;
}

//===----------------------------------------------------------------------===//
// Random schedules with one fault
//===----------------------------------------------------------------------===//

struct Op {
  int communicator;
  CollectiveKind kind;
  uint64_t bytes;
  uint8_t stream;
  bool hostWaits; ///< for all that the rank has put on streams
};

enum class Injected { None, Stop, Skip, Swap, Bytes, Kind, Hang, Silent };

/// Ranks that carry out what is left of one random program, on hosts that wait
/// in each call, or on streams of devices.
class RandomSchedule {
public:
  explicit RandomSchedule(unsigned seed) : random(seed) {
    world = draw(2, 8);
    onDevice = draw(0, 1);
    const int communicators = draw(1, 6);
    for (int i = 0; i < communicators; ++i) {
      std::vector<int> all(static_cast<size_t>(world));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      all.resize(size_t(draw(2, world)));
      std::sort(all.begin(), all.end());
      members.push_back(all);
    }
    const int length = draw(10, 60);
    // Layers are alike: few sizes, one kind and one stream of a communicator.
    for (int i = 0; i < length; ++i) {
      const int on = draw(0, communicators - 1);
      program.push_back({on, CollectiveKind((on + draw(0, 4) / 4) % 3),
                         uint64_t(draw(1, 3)) * 1024, uint8_t(on % 3),
                         draw(0, 7) == 0});
    }
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back();
      for (const Op &op : program)
        if (isMember(rank, op.communicator))
          ranks.back().ops.push_back(op);
    }
  }

  bool isMember(int rank, int communicator) const {
    const std::vector<int> &of = members[size_t(communicator)];
    return std::count(of.begin(), of.end(), rank) > 0;
  }

  /// Draws where a fault is; false where this schedule has no room for it.
  bool inject(Injected kind) {
    fault = kind;
    victim = draw(0, world - 1);
    std::vector<Op> &ops = ranks[size_t(victim)].ops;
    if (ops.size() < 2)
      return false;
    at = size_t(draw(0, int(ops.size()) - 2));
    faulty = ops[at];
    uint64_t before = 0;
    for (size_t i = 0; i < at; ++i)
      before += ops[i].communicator == faulty.communicator;
    number = before + 1;
    switch (kind) {
    case Injected::Skip:
      ops.erase(ops.begin() + ptrdiff_t(at));
      break;
    case Injected::Swap:
      if (ops[at].communicator == ops[at + 1].communicator &&
          ops[at].kind == ops[at + 1].kind &&
          ops[at].bytes == ops[at + 1].bytes)
        return false;
      other = ops[at + 1];
      std::swap(ops[at], ops[at + 1]);
      break;
    case Injected::Bytes:
      ops[at].bytes += 1024 * 7;
      break;
    case Injected::Kind:
      ops[at].kind = CollectiveKind((int(ops[at].kind) + 1) % 3);
      break;
    default:
      break;
    }
    return true;
  }

  /// Runs until nothing moves; returns whether all ranks came to the end.
  bool run() {
    bool moved = true;
    while (moved) {
      moved = false;
      std::vector<int> order(static_cast<size_t>(world));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (int rank : order)
        moved |= advanceHost(rank);
      for (size_t i = 0; i < members.size(); ++i)
        moved |= complete(int(i));
    }
    return std::all_of(ranks.begin(), ranks.end(), [](const Rank &rank) {
      return rank.next == rank.ops.size() && rank.pending.empty();
    });
  }

  std::vector<RankCollectives> records() {
    std::vector<RankCollectives> all;
    for (int number = 0; number < world; ++number) {
      if (fault == Injected::Silent && number == victim)
        continue;
      Rank &rank = ranks[size_t(number)];
      RankCollectives record{number, true, RankCollectives::Runs, {}, {}};
      if (rank.next < rank.ops.size() && !stops(number))
        record.host = onDevice ? RankCollectives::ForDevice
                               : RankCollectives::InCollective;
      else if (!rank.pending.empty() && !stops(number))
        record.host = RankCollectives::ForDevice;
      for (size_t i = 0; i < members.size(); ++i)
        if (isMember(number, int(i))) {
          CommunicatorState state{"c" + std::to_string(i), members[i],
                                  rank.enqueued[int(i)],   0,
                                  rank.done[int(i)],       {}};
          state.started = state.done;
          for (const Pending &call : rank.pending)
            if (call.op.communicator == int(i) && hasStarted(rank, call))
              state.started = call.call.number;
          for (const auto &[on, call] : rank.calls)
            if (on == int(i))
              state.calls.push_back(call);
          record.communicators.push_back(state);
        }
      all.push_back(record);
    }
    return all;
  }

  /// True if findings name the injected fault, and no other rank.
  bool isNamed(const std::vector<CollectiveFinding> &findings) const {
    const std::string name = "c" + std::to_string(faulty.communicator);
    auto has = [&](const CollectiveFinding &one, int rank) {
      return std::count(one.ranks.begin(), one.ranks.end(), rank) > 0;
    };
    auto isOf = [&](const CollectiveFinding &one) {
      const bool isPair = members[size_t(faulty.communicator)].size() == 2;
      switch (fault) {
      case Injected::Stop:
        return one.kind == CollectiveFinding::Missing &&
               one.ranks == std::vector<int>{victim};
      case Injected::Silent:
        return one.kind == CollectiveFinding::Silent &&
               one.ranks == std::vector<int>{victim};
      case Injected::Hang:
        return one.kind == CollectiveFinding::Unfinished &&
               one.communicator == name && one.number == number &&
               has(one, victim);
      case Injected::Bytes:
      case Injected::Kind:
        return one.kind == CollectiveFinding::Disagree &&
               one.communicator == name &&
               one.text.find(" " + std::to_string(number) + " of") !=
                   std::string::npos &&
               (isPair || has(one, victim));
      default:
        // A call that is made too early or not at all shows in others: their
        // calls meet its next ones, or two wait for each other.
        return (one.kind == CollectiveFinding::Disagree &&
                (one.communicator == name ||
                 (other && one.communicator ==
                               "c" + std::to_string(other->communicator)))) ||
               has(one, victim);
      }
    };
    return !findings.empty() &&
           std::all_of(findings.begin(), findings.end(), isOf);
  }

  std::mt19937 random;
  int world = 0;
  bool onDevice = false;
  std::vector<std::vector<int>> members;
  std::vector<Op> program;
  Injected fault = Injected::None;
  int victim = 0;
  size_t at = 0;
  Op faulty{};
  std::optional<Op> other;
  uint64_t number = 0;

private:
  struct Pending {
    Op op;
    CollectiveCall call;
  };
  struct Rank {
    std::vector<Op> ops;
    size_t next = 0;
    bool waited = false; ///< by the host, before the next
    uint64_t order = 0;
    std::deque<Pending> pending; ///< enqueued and not done
    std::map<int, uint64_t> enqueued, done;
    std::vector<std::pair<int, CollectiveCall>> calls;
  };

  int draw(int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  }
  bool stops(int rank) const {
    return (fault == Injected::Stop || fault == Injected::Silent) &&
           rank == victim && ranks[size_t(rank)].next == at;
  }
  bool advanceHost(int number) {
    Rank &rank = ranks[size_t(number)];
    if (rank.next == rank.ops.size() || stops(number))
      return false;
    const Op &op = rank.ops[rank.next];
    if ((!onDevice || op.hostWaits) && !rank.pending.empty())
      return false;
    CollectiveCall call{++rank.enqueued[op.communicator],
                        ++rank.order,
                        op.kind,
                        op.stream,
                        false,
                        op.bytes};
    rank.pending.push_back({op, call});
    rank.calls.push_back({op.communicator, call});
    ++rank.next;
    return true;
  }
  /// Streams and communicators keep their order.
  static bool hasStarted(const Rank &rank, const Pending &of) {
    for (const Pending &each : rank.pending) {
      if (&each == &of)
        return true;
      if (each.op.stream == of.op.stream ||
          each.op.communicator == of.op.communicator)
        return false;
    }
    return false;
  }
  bool complete(int communicator) {
    std::vector<std::pair<Rank *, size_t>> heads;
    for (int rank : members[size_t(communicator)]) {
      Rank &of = ranks[size_t(rank)];
      auto at = std::find_if(of.pending.begin(), of.pending.end(),
                             [&](const Pending &each) {
                               return each.op.communicator == communicator;
                             });
      // A rank whose call hung on another member is done here.
      if (at == of.pending.end() || !hasStarted(of, *at) ||
          at->op.kind != first(heads, at->op).kind ||
          at->op.bytes != first(heads, at->op).bytes ||
          (!heads.empty() &&
           at->call.number !=
               heads[0].first->pending[heads[0].second].call.number))
        return false;
      heads.push_back({&of, size_t(at - of.pending.begin())});
    }
    const uint64_t reached =
        heads[0].first->pending[heads[0].second].call.number;
    bool moved = false;
    for (auto [rank, index] : heads) {
      if (fault == Injected::Hang && rank == &ranks[size_t(victim)] &&
          communicator == faulty.communicator && reached == this->number)
        continue;
      rank->done[communicator] = rank->pending[index].call.number;
      rank->pending.erase(rank->pending.begin() + ptrdiff_t(index));
      moved = true;
    }
    return moved;
  }
  static const Op &first(const std::vector<std::pair<Rank *, size_t>> &heads,
                         const Op &own) {
    return heads.empty() ? own : heads[0].first->pending[heads[0].second].op;
  }

  std::vector<Rank> ranks;
};

TEST(CollectiveComparison, NamesTheFaultOfRandomSchedules) {
  const std::pair<Injected, const char *> faults[] = {
      {Injected::Stop, "stop"},    {Injected::Skip, "skip"},
      {Injected::Swap, "swap"},    {Injected::Bytes, "bytes"},
      {Injected::Kind, "kind"},    {Injected::Hang, "hang"},
      {Injected::Silent, "silent"}};
  int all = 0, named = 0;
  for (auto [fault, what] : faults) {
    int hung = 0, found = 0;
    std::string unnamed;
    for (unsigned seed = 0; hung < 1000; ++seed) {
      ASSERT_LT(seed, 20000u) << what;
      RandomSchedule simulation(seed);
      if (!simulation.inject(fault) || simulation.run())
        continue;
      ++hung;
      std::vector<RankCollectives> records = simulation.records();
      auto findings = compareCollectives(records, Absent::Silent);
      if (simulation.isNamed(findings))
        ++found;
      else if (unnamed.size() < 2000)
        unnamed += "\nseed " + std::to_string(seed) + ", rank " +
                   std::to_string(simulation.victim) + ", call " +
                   std::to_string(simulation.number) + " of c" +
                   std::to_string(simulation.faulty.communicator) +
                   (simulation.onDevice ? ", device" : ", host") +
                   findingsText(findings);
    }
    EXPECT_GE(found, 990) << what << unnamed;
    all += hung;
    named += found;
  }
  EXPECT_GE(named * 100, all * 99);
}

TEST(CollectiveComparison, NamesNothingWithoutAFault) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    RandomSchedule simulation(seed);
    ASSERT_TRUE(simulation.run()) << seed;
    std::vector<RankCollectives> records = simulation.records();
    EXPECT_EQ(findingsText(compareCollectives(records, Absent::Silent)), "")
        << seed;
  }
}

} // namespace
