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

#include "core/batch_in_flight.h"
#include "core/memory_in_use.h"
#include "grt/update_decision.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace grt {

/// Of the last pass over a batch, in training or evaluation; the same on all
/// ranks unless it says otherwise.
struct StepResults {
  /// What was added to the loss here.
  LossSums ownLoss;
  /// Not where ranks go on without waiting for each other, see
  /// StepEnd::goesAhead; only `ownLoss` then.
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
  double squares = 0;     ///< of its gradients
  LossSums loss;          ///< what was added to it there
  uint64_t requests = 0;  ///< bits of its process
  uint64_t peakBytes = 0; ///< RankMemory::measuredPeakBytes
};

/// Runs the commands with which a step or an evaluation ends.
class StepEnd {
public:
  /// `goesAhead`: see the member.
  StepEnd(const RankFacts &facts, const RankMemories &memories,
          const Observer &observer, BatchInFlight &batch,
          const MemoryInUse &inUse, bool goesAhead)
      : goesAhead(goesAhead), facts(facts), memories(memories),
        observer(observer), batch(batch), inUse(inUse) {}

  /// All ranks tell each other losses and squares of gradients, which have been
  /// put on COMPUTE, and decide alike how to clip, and whether to update if the
  /// decision is `ofUpdate`.
  void decide(bool ofUpdate);
  /// Squares are told to all ranks. What clips is the norm of the batch before,
  /// which all have heard by now. Throws if that is not finite.
  void decideLate();
  /// Tells the batch's loss to `lossIsKnown`.
  void tellLoss();
  /// Tells losses and requests to all ranks, and takes what they told before.
  void tellAll();
  /// All ranks tell each other losses.
  void meet();
  /// The newest weights were not made by the last step.
  void forget() {
    normBefore = -1;
    told.forget();
  }

  // Parts of it, for steps that are graphs: what the device does, and what the
  // host does with it.
  void fetch(bool withNorm);
  void decideFetched(bool ofUpdate, bool onDevice);
  /// Sums of those that were fetched; 0 of a rank without any.
  LossSums fetchedLosses() const;

  /// Nothing is allocated later for so many ranks.
  void reserve(size_t ranks) {
    gathered.reserve(ranks);
    decidedBy.resize(ranks);
  }

  /// Ranks do not meet at the end of a step.
  const bool goesAhead;
  StepResults results;
  /// Called with its loss as soon as it is known, where ranks go on without
  /// each other.
  std::function<void(const LossSums &)> lossIsKnown;
  /// Where results of a step arrive; null if this rank has none.
  struct Fetched {
    const double *losses = nullptr, *norm = nullptr, *normAtHome = nullptr;
  };
  Fetched fetched;
  RankMessages<RankNumbers> gathered{MessageKind::StepNumbers, 1};
  double normBefore = -1; ///< of the last step's gradients; -1: not known
  /// Behind the results of a step that is one graph.
  static constexpr uint32_t resultsEvent =
      Device::firstOwnEvent + GRT_STREAM_COUNT;

private:
  /// Those that were fetched, and of the batch's parts before.
  void addLosses();
  void gather(bool ofGraph);
  /// Returns when the results of a step that is one graph are there.
  void awaitGraph();
  /// Throws where the device has decided otherwise.
  void checkDecision(const UpdateDecision &decision) const;
  /// What all ranks have told with the last step, if that was not heard yet.
  std::optional<ToldNumbers::Sums> hear();

  const RankFacts &facts;
  const RankMemories &memories;
  const Observer &observer;
  BatchInFlight &batch;
  const MemoryInUse &inUse;
  /// What is decided by, kept so that a step takes no memory.
  std::vector<RankResults> decidedBy;
  /// The step block as a graph leaves it, where the device decides.
  const grt_step *graphStep = nullptr;
  bool eventsTell = true; ///< when results of a graph are there
  ToldNumbers told;
  /// Whether numbers of the step were told with its squares.
  bool hasTold = false;
};

} // namespace grt

#endif // GRT_CORE_STEP_END_H
