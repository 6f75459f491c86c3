//===- Concurrency.h - Collectives side by side -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any two collectives whose groups share two or more ranks need one order on
// all of these. On devices with streams it is a question of the strategies of a
// stage's layers what may run beside what.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_CONCURRENCY_H
#define GALVATRON_STRATEGY_CONCURRENCY_H

#include "galvatron/Strategy/Strategy.h"
#include "galvatron/Strategy/SumTiming.h"

#include <string>
#include <vector>

namespace galvatron {

/// True if some group of the levels in `ofOne` of one strategy has two or more
/// ranks in common with some group of those in `ofOther` of the other, of the
/// same stage: two collectives of such groups need one order on these ranks. A
/// group may be that of several levels together.
bool groupsShareRanks(const Strategy &one, ParadigmSet ofOne,
                      const Strategy &other, ParadigmSet ofOther);

/// The parts of a layer's backward pass that wait for the end of the sums of
/// gradients that were begun behind layers above it: collectives that share two
/// or more ranks with one of those sums, as such two need one order on all of
/// these ranks. Of each the reason, empty where it need not wait.
struct AwaitedSums {
  std::string gather;  ///< of the layer's parameters
  std::string pass;    ///< the layer's backward functions
  std::string reshard; ///< of the gradient that goes to the layer below

  bool any() const {
    return !gather.empty() || !pass.empty() || !reshard.empty();
  }
};
/// The awaited sums by layer of a stage with these strategies, whose sums begin
/// behind the backward passes of their layers, and behind the reshard in front
/// of it.
std::vector<AwaitedSums> awaitedSums(llvm::ArrayRef<Strategy> layers);

/// The place of a stage whose gradients are summed.
struct SumsPlace {
  /// Nobody waits for the gradient of its input.
  bool isFirst = false;
  /// Chunks take turns: what waits for a chunk's sums may be another chunk's,
  /// so nothing may.
  bool hasSeveralChunks = false;
};
/// Whether gradients of a stage with these strategies are summed at all.
bool sumsGradients(llvm::ArrayRef<Strategy> layers);
/// Why sums of a stage with these strategies cannot run beside backward passes;
/// empty if they can, or if there are none.
std::string whyNotOverlapSums(llvm::ArrayRef<Strategy> layers, SumsPlace place);
/// Whether there are sums and they do. By the rule they do on the first stage,
/// and elsewhere where nothing has to wait, as a wait holds up the stage
/// before. SumTiming::Overlap where that cannot be had is for callers to
/// refuse; here it is AtEnd.
bool overlapsSums(llvm::ArrayRef<Strategy> layers, SumTiming chosen,
                  SumsPlace place);

/// Why the sharded parameters of `layer` cannot be gathered while `beside`, its
/// neighbour in the stage, computes: as above, collectives would run beside
/// each other that need one order. Empty if they can. What scatters the
/// neighbour's gradients does not matter: it waits for the gather.
std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer);

/// Which layers of a role may be gathered while the layer that runs before them
/// computes.
struct GatherAhead {
  bool forward = false, backward = false;
};
std::vector<GatherAhead> gathersAhead(llvm::ArrayRef<Strategy> layers);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_CONCURRENCY_H
