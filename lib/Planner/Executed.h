//===- Executed.h - Plans by their simulated time ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_EXECUTED_H
#define GALVATRON_LIB_PLANNER_EXECUTED_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"

#include <optional>

namespace galvatron::planner {

/// The way in which a plan that is one of many is priced.
struct Pricing {
  /// Milliseconds above which a plan is of no interest: of one that takes
  /// longer for sure only a lower bound is worked out, and of one that does, no
  /// upper bound, nor what describe() says.
  std::optional<double> worthMs;
  /// Passes are listed for what they take; of whole stages that order is taken
  /// only where a step is shorter than in the one for equal times.
  bool lists = false;
  /// True if a plan is priced by the formula alone: nothing is simulated.
  bool formulaOnly = false;
};

/// A `Pricing::worthMs`: what a batch takes at this rate and, for what doubles
/// round, a little more.
inline double worthMs(int64_t batch, double samplesPerSecond) {
  return 1e3 * static_cast<double>(batch) / samplesPerSecond * (1 + 1e-9);
}

/// True if each plan of a search has its passes listed by what they take: its
/// schedule does that, and it takes a millisecond or two. Others have them
/// listed where the search ends.
inline bool listsEach(const Plan &plan) {
  return plan.schedule->listsByTimes() &&
         plan.pipelineDegree * plan.microBatches <= 64;
}

/// Bytes by which a stage of a plan exceeds its budget, as evaluate() says;
/// negative: it fits. Sets whether the stage gathers ahead. Errors: a layer
/// cannot have its strategy.
llvm::Expected<int64_t> stageExcess(LayerModel &model, const Cluster &cluster,
                                    Plan &plan, int64_t stage,
                                    std::optional<int64_t> memory);

/// Sets iteration, throughput and bound of a priced plan to what the simulator
/// says of its step, and when its stages sum gradients, where it leaves that
/// open, to what is fastest of what is tried (docs/search.md). Errors: those of
/// simulationOutline() and simulate().
llvm::Error priceExecuted(LayerModel &model, const Cluster &cluster, Plan &plan,
                          const Pricing &pricing = {});

/// Lists the passes of a plan of whole stages where that was not done when it
/// was priced (`listsEach`), and takes that order if it is executed faster. Not
/// of one that is far slower than `samplesPerSecond`. Errors: as above.
llvm::Error listAtEnd(LayerModel &model, const Cluster &cluster,
                      std::optional<double> samplesPerSecond,
                      PlannerResult &found);

/// Says of what model and cluster a priced plan is, and what its layers keep.
/// Errors: a layer cannot have its strategy.
llvm::Error describe(LayerModel &model, const Cluster &cluster, Plan &plan);

/// Returns evaluate() of a plan that is one of many, as far as `pricing` asks.
llvm::Expected<PlannerResult>
evaluateAmong(LayerModel &model, const Cluster &cluster, const Plan &given,
              std::optional<int64_t> memory, const Pricing &pricing);

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_EXECUTED_H
