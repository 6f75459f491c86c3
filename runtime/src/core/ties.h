//===- ties.h - Parameters that two layers share --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The owner of a tied parameter adds the gradients of those that borrow it, and
// gives them its new values. At the end of a step both ends meet.
//
// Under a schedule that goes on neither end waits for the other, as long as
// that is not far behind. The borrower leaves a copy of its gradient, as the
// next batch's first backward pass is next; the owner takes it for its own
// update of the same batch, which comes later in any case. The owner leaves the
// value where it is, as its next update is a batch away; the borrower takes it
// before its own next update, or before its first forward pass that needs it.
// Over the memory of devices both ends meet instead.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TIES_H
#define GRT_CORE_TIES_H

#include "core/memory_in_use.h"
#include "core/rank_streams.h"

#include <vector>

namespace grt {

class Ties {
public:
  /// A tie that has an end here.
  struct Own {
    size_t number; ///< of the manifest's
    bool owns = false, borrows = false;
    /// The two ends are roles that need not meet.
    bool isLeft = false;
    bool reduces = true; ///< the borrower has gradients
    /// The side that sums and copies; beside a device both ends are at one
    /// place (RankLoader::checkTies).
    const Side *side = nullptr;
  };

  Ties(RankMemories &memories, Observer &observer, MemoryInUse &inUse,
       RankStreams &streams)
      : facts(memories.facts), memories(memories), observer(observer),
        inUse(inUse), streams(streams) {}

  /// Gradients go to their owners, or values to those that borrow them.
  void run(bool reduce);
  /// Takes values of the last update, if that was not done yet.
  void takeValues();
  /// Returns when others have taken the values that an update changes.
  void awaitTaken() const;
  ExchangeCall callOf(size_t tie, bool reduce) const;

  /// Set when the rank is loaded.
  std::vector<Own> own;
  /// Where gradients wait to be added, on a device.
  Extent scratch;

private:
  /// An end that this rank has: where its gradient or value lies.
  char *addressOf(const TieEnd &end, bool gradient) const;
  /// Tells a checking backend what the host itself uses.
  void note(const Tie &tie, bool reduce) const;
  void copyGradients();
  void leaveGradients(size_t tie);
  void leaveValues(size_t tie);
  void take(size_t tie, bool reduce);

  const RankFacts &facts;
  RankMemories &memories;
  Observer &observer;
  MemoryInUse &inUse;
  RankStreams &streams;
  bool awaitsValues = false; ///< those of the last update are under way
};

} // namespace grt

#endif // GRT_CORE_TIES_H
