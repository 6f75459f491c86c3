//===- ties.h - Parameters that two layers share --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs commands over ties: the owner of a tied parameter adds the gradients of
// those that borrow it, and gives them its new values. tieCommands() says when.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TIES_H
#define GRT_CORE_TIES_H

#include "core/memory_in_use.h"
#include "core/rank_streams.h"
#include "grt/program_file.h"

#include <vector>

namespace grt {

class Ties {
public:
  Ties(RankMemories &memories, Observer &observer, MemoryInUse &inUse,
       RankStreams &streams)
      : facts(memories.facts), memories(memories), observer(observer),
        inUse(inUse), streams(streams) {}

  void run(const gvx::Command &command);

  /// The exchange of gradients or values over a tie that has an end here.
  ExchangeCall callOf(size_t tie, bool reduce) const;
  /// The side that sums and copies; beside a device both ends are at one place
  /// (RankLoader::checkTies).
  const Side &sideOf(const Tie &tie) const;
  bool owns(const Tie &tie) const { return tie.owner.role == facts.roleNumber; }
  bool isHere(const Tie &tie) const {
    return owns(tie) || tie.borrower.role == facts.roleNumber;
  }

  // Set when the rank is loaded.
  /// Where gradients wait to be added, on a device.
  Extent scratch;
  /// By tie: values of its owner's last update are under way to here.
  std::vector<bool> expected;

private:
  /// An end that this rank has: where its gradient or value lies.
  char *addressOf(const TieEnd &end, bool gradient) const;
  /// Tells a checking backend what the host itself uses.
  void note(const Tie &tie, bool reduce) const;
  void meet(size_t tie, bool reduce);
  void keepGradients(size_t layer);
  void leave(size_t tie);
  void take(size_t tie);
  void awaitTaken(size_t tie) const;
  /// Where a layer's borrowed gradients are left: bytes behind them.
  uint64_t behindBorrowed(const Layer &layer) const;

  const RankFacts &facts;
  RankMemories &memories;
  Observer &observer;
  MemoryInUse &inUse;
  RankStreams &streams;
};

} // namespace grt

#endif // GRT_CORE_TIES_H
