//===- step_end.h - Losses, norms and what is decided ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks tell each other at the end of a step: losses and squares of
// gradients. All see the same numbers, so all decide the same of the update.
// Where they go on without the others the numbers are heard a step later.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_STEP_END_H
#define GRT_CORE_STEP_END_H

#include "core/told_numbers.h"
#include "grt/session.h"
#include "grt/update_decision.h"

#include <cstdint>
#include <vector>

namespace grt {

class Rank;

/// Of the last pass over a batch, in training or evaluation; the same on all
/// ranks unless it says otherwise.
struct StepResults {
  /// What was added to the loss here.
  LossSums ownLoss;
  /// Not where ranks go on without waiting for each other, see
  /// RunState::ahead; only `ownLoss` then.
  LossSums lossSum;
  double gradientNorm = 0;
  /// Where there are several processes: what any of them asked for with this
  /// step, or, where ranks go on without the others, with the one before.
  uint32_t requestsHeard = 0;
  /// The most bytes that any rank had in use until the end of the step; only
  /// where all ranks meet there.
  uint64_t peakBytes = 0;
  /// The loss or the norm is not finite, so nothing was updated.
  bool updateLeftOut = false;
  StepKind stepKind = StepKind::Calls;
};

/// What every rank tells all others at the end of a pass, in one message.
struct RankNumbers {
  double squares = 0;        ///< of its gradients
  double loss = 0;           ///< summed
  double requests = 0;       ///< bits of its process
  double peakBytes = 0;      ///< RankMemory::measuredPeakBytes
  double squaredLogSums = 0; ///< LossSums::squares
  static constexpr size_t count = 5;

  /// By rank, from `mine` of each.
  static void gather(Communicator &host, const RankNumbers &mine,
                     std::vector<RankNumbers> &all) {
    static_assert(sizeof(RankNumbers) == count * sizeof(double));
    host.gather({&mine.squares, count},
                {&all.front().squares, count * all.size()});
  }
};

class StepEnd {
public:
  explicit StepEnd(Rank &rank) : rank(rank) {}

  /// The task of that name: the norm, and the decision where all meet.
  void norm();
  // The norm in its parts: what the device does, and what the host does with
  // it.
  void sumNorm();
  void fetch(bool withNorm);
  /// Those that were fetched, and of the batch's parts before.
  void addLosses();
  /// Sums of those that were fetched; 0 of a rank without any.
  LossSums fetchedLosses() const;
  /// Returns when what was fetched, or what a graph has left, is with all.
  void gather(bool ofGraph = false);
  void decide(bool onDevice = false);

  /// The newest weights were not made by the last step.
  void forget() {
    normBefore = -1;
    told.forget();
  }

  /// Where results of a step arrive; null if this rank has none.
  struct Fetched {
    const double *losses = nullptr, *norm = nullptr, *normAtHome = nullptr;
  };
  Fetched fetched;
  std::vector<RankNumbers> gathered; ///< by rank
  std::vector<int> withLoss;         ///< ranks of the last layer
  /// The same for the decision, kept so that a step takes no memory.
  std::vector<RankResults> decidedBy;
  double normBefore = -1; ///< of the last step's gradients; -1: not known

private:
  /// Returns when the results of a step that is one graph are there.
  void awaitGraph();
  /// Where ranks go on without the others: those that have losses tell them.
  void shareLosses();
  /// The norm of a batch whose gradients are late is told to all ranks; what
  /// clips is that of the batch before.
  void normLate();
  /// What all ranks have told with the last step, if that was not heard yet.
  void hear();

  Rank &rank;
  ToldNumbers told;
  uint64_t lastStep = 0; ///< whose norm was told last
};

} // namespace grt

#endif // GRT_CORE_STEP_END_H
