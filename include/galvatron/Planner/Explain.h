//===- Explain.h - Why this plan, and why not another -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Questions about a plan. Every answer is found by planning or pricing again
// under the same cost model, never by a rule of thumb: a runner-up is the
// optimum of the search without the chosen plan's degree, micro-batches,
// partition or strategies. docs/planning.md shows how to read the answers.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_EXPLAIN_H
#define GALVATRON_PLANNER_EXPLAIN_H

#include "galvatron/Planner/IdleDevices.h"

namespace galvatron {

/// The answer to what was asked once PlannerOptions::cancellation was
/// requested, or while it was being looked for.
inline constexpr const char *kTimeWasUp = "not looked for, time was up";

/// Samples per second of `to` over those of `from`, minus 1.
double throughputChange(const Plan &from, const Plan &to);
/// The differences of two plans, as phrases: "pipeline degree 2 -> 4", "12 of
/// 26 layers have another strategy". Empty for plans that do the same.
std::vector<std::string> planDifferences(const Plan &from, const Plan &to);
/// The figures of a plan without its stages and layers, for lists of plans:
/// iteration, throughput, batch, degrees, peak, time split, strategies.
llvm::json::Object planFigures(const Plan &plan);
/// "stage 0 needs 24.1 GiB of 24.0 GiB", or the reason if memory is not it.
std::string shortReason(const Infeasible &infeasible);

//===----------------------------------------------------------------------===//
// Runner-ups and changes
//===----------------------------------------------------------------------===//

/// The best plan under one changed condition.
struct Alternative {
  std::string what;         ///< "pipeline degree 4", "twice the bandwidth"
  std::optional<Plan> plan; ///< nothing if there is none
  std::string reason;       ///< then why
};

struct Explanation {
  /// The plan that changes are compared with: the chosen plan, or what the
  /// search finds if the plan was given by hand.
  Plan base;
  /// The plans at the chosen batch, fastest first, then those without a plan.
  /// Plans that are the same are one entry.
  std::vector<Alternative> runnersUp;
  /// Conditions whose best plan is the chosen one.
  std::vector<std::string> samePlan;
  /// The plans that 20% more memory, memory without end, twice the bandwidth
  /// and twice the batch would give.
  std::vector<Alternative> changes;
  /// True if more memory alone would give a faster plan.
  bool memoryBinds = false;

  llvm::json::Value toJson(const Plan &chosen) const;
  void print(llvm::raw_ostream &os, const Plan &chosen) const;
};

/// `options` are those that `chosen` was planned with.
llvm::Expected<Explanation> explain(LayerModel &model, const Cluster &cluster,
                                    const PlannerOptions &options,
                                    const Plan &chosen);

//===----------------------------------------------------------------------===//
// Why not this strategy?
//===----------------------------------------------------------------------===//

/// The question of one strategy for all layers, on stages of as many devices as
/// it takes.
struct StrategyQuestion {
  Strategy strategy;
  std::optional<int64_t> pipelineDegree;

  /// Reads "tp4", "sdp4.tp2.ckpt,pp=2".
  static llvm::Expected<StrategyQuestion> parse(llvm::StringRef text);
};

struct WhyNot {
  Strategy strategy;
  int64_t pipelineDegree = 0; ///< 0: no number of stages fills the cluster
  /// Why the search does not look at it. It is priced nevertheless.
  std::vector<std::string> outsideSpace;
  std::optional<Plan> plan; ///< the best one, at the chosen batch
  std::optional<Infeasible> infeasible;
  std::string refusal; ///< why there can be no such plan; else empty

  llvm::json::Value toJson(const Plan &chosen) const;
  void print(llvm::raw_ostream &os, const Plan &chosen) const;
};

/// Forces the strategy, with the pipeline degree given or implied, and lets the
/// search choose the rest at the batch of `chosen`.
WhyNot whyNot(LayerModel &model, const Cluster &cluster,
              const PlannerOptions &options, const Plan &chosen,
              const StrategyQuestion &question);

//===----------------------------------------------------------------------===//
// Two plans side by side
//===----------------------------------------------------------------------===//

struct Comparison {
  Plan chosen, other; ///< both priced under one model and cluster
  /// Layers in runs in which neither plan changes stage or strategy.
  std::vector<LayerRun> runs;

  llvm::json::Value toJson() const;
  void print(llvm::raw_ostream &os) const;
};

/// Prices `other` again under the chosen plan's conditions; it need not fit.
/// Errors: it belongs to another model, cluster or kind of training.
llvm::Expected<Comparison> compare(LayerModel &model, const Cluster &cluster,
                                   const PlannerOptions &options,
                                   const Plan &chosen, const Plan &other);

//===----------------------------------------------------------------------===//
// Memory against throughput
//===----------------------------------------------------------------------===//

struct ParetoPoint {
  int64_t peakBytes = 0; ///< of the fullest stage
  Plan plan;
};

/// Plans for a ladder of `steps` budgets between the least memory that any plan
/// needs and what the fastest one takes (at most four times the chosen plan's
/// budget), and the chosen plan; those that another beats in both memory and
/// throughput are dropped. Memory ascends.
/// Every device is given the same budget, and `planOn` plans.
llvm::Expected<std::vector<ParetoPoint>>
paretoFront(const Cluster &cluster, const PlannerOptions &options,
            const Plan &chosen, PlanFunction planOn, int steps = 12);

//===----------------------------------------------------------------------===//
// Changes that would make it fit, and decisions
//===----------------------------------------------------------------------===//

/// Adds to an outcome that fails for want of memory at `batch` which smaller
/// batch and which larger number of devices would fit, each tried. The batch is
/// the largest of those tried: halves, and 32 steps between the first half that
/// fits and its double. The device count is the least of at most 32 tried, up
/// to eight times as many.
void relaxInput(LayerModel &model, const Cluster &cluster,
                const PlannerOptions &options, int64_t batch,
                Infeasible &infeasible);

/// Adds what helps a batch that no plan divides among the devices: the most of
/// them that one does, and the next larger batch. Both are tried first.
void relaxDivision(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, int64_t batch,
                   Infeasible &infeasible);

/// Folds neighbouring decisions whose verdict ("rejected, at least 3.2 ms ...")
/// differs in nothing but numbers: the first, how many more there are, and the
/// last.
std::vector<std::string> foldDecisions(llvm::ArrayRef<std::string> decisions);

} // namespace galvatron

#endif // GALVATRON_PLANNER_EXPLAIN_H
