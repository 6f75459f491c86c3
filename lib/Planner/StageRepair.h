//===- StageRepair.h - Plans whose stages are made to fit -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan with a stage that does not fit fits if enough of the stage's layers
// are recomputed: half of those that keep their values, then half of the rest,
// and so on. Once all stages fit, as many of the last half as may be keep their
// values after all, or layers have a point (docs/kept.md) where the stage's
// layers take less time so. A heuristic: which layers do, and that a stage has
// one point, are no optimum.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_STAGEREPAIR_H
#define GALVATRON_LIB_PLANNER_STAGEREPAIR_H

#include "BusyBound.h"
#include "Spaces.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>
#include <string>
#include <vector>

namespace galvatron::planner {

class StageRepair {
public:
  /// The inputs of a repair, which outlive it.
  struct Context {
    LayerModel &model;
    const Cluster &cluster;
    const PlannerOptions &options;
    const Space &space;
    BusyBound &bound;
    bool recomputes; ///< whether the space has recomputation
    /// Returns true once time is up: what fits then is not improved.
    llvm::function_ref<bool()> stopped;
  };
  StageRepair(const Context &context, Plan plan)
      : context(context), current(std::move(plan)), given(current.layers),
        excess(current.stages.size()), recomputed(current.stages.size()),
        added(current.stages.size()) {}

  const Plan &plan() const { return current; }
  /// Bytes by which the worst stage is beyond its budget; at most 0: the plan
  /// fits. Nothing, and refusal(), if a layer cannot have its strategy.
  std::optional<int64_t> worstExcess();
  const std::string &refusal() const { return reason; }
  /// Recomputes half of the layers that keep their values, in every stage that
  /// does not fit or in the worst one. False if one has no such layer.
  bool recompute(bool everyStage);
  /// The plan that fits, with as little recomputed as must be.
  Plan finish() &&;

private:
  std::optional<int64_t> excessOf(Plan &plan, size_t stage);
  bool giveFewest(Plan &plan, size_t stage, llvm::ArrayRef<size_t> some,
                  llvm::function_ref<Strategy(const Strategy &)> with);
  void keepPoints(size_t stage);
  bool mayChange(size_t layer) const { return context.space.mayChange(layer); }

  Context context;
  Plan current;
  std::vector<PlanLayer> given; ///< before anything was recomputed
  /// By stage: bytes beyond the budget, as far as they are known; the layers
  /// that are recomputed, and the last ones of these.
  std::vector<std::optional<int64_t>> excess;
  std::vector<std::vector<size_t>> recomputed, added;
  size_t worst = 0;
  std::string reason;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_STAGEREPAIR_H
