//===- Planner.h - From a model and a cluster to a plan ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Algorithms 1-3 of arXiv 2307.02031 with an exact search: over batches,
// pipeline degrees, micro-batch counts, partitions and, for every layer,
// strategies. Under the formulas of docs/cost-model.md no feasible plan of the
// chosen space is faster than the one returned (docs/search.md). The same input
// gives the same plan.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_PLANNER_H
#define GALVATRON_PLANNER_PLANNER_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Planner/Pins.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Cancellation.h"

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace galvatron {

class Threads;

/// The way in which micro-batches are chosen: searched over all divisors of the
/// batch, or fixed by a rule of thumb, for rerunning the paper's tables
/// (docs/cost-model.md, "The paper's micro-batches"). Under the rule the batch
/// grows until nothing fits, whatever `maxBatch` is.
enum class MicroBatchRule { Search, Paper };

/// The devices that stages of space 'bmw' may have.
enum class Groups : uint8_t {
  Equal, ///< equally many, consecutive
  Any    ///< unequal groups in any order, too (docs/search.md)
};
/// Reads "equal" or "any"; the error lists both.
llvm::Expected<Groups> parseGroups(llvm::StringRef text);

/// Chunks of a stage, if a schedule with several is asked for and no number is.
constexpr int64_t kDefaultChunks = 2;

/// Some seconds of search (docs/search.md, "Order").
constexpr uint64_t kDefaultMostSteps = 50'000'000;

/// The progress of a search, for a line that a terminal shows.
struct PlannerProgress {
  int64_t batch = 0;           ///< the largest of those at hand
  size_t solved = 0;           ///< shapes whose optimum was looked for
  size_t open = 0;             ///< shapes of these batches not yet ruled out
  double samplesPerSecond = 0; ///< of the best plan so far; 0: none yet
  /// The percent by which another plan of these batches may be faster.
  std::optional<double> gapPercent;
};

struct PlannerOptions {
  /// One of plannerSpaces(): which strategies, degrees and partitions are
  /// searched (docs/search.md, "Spaces").
  std::string space = "bmw";
  /// Replaces the memory of every device, bytes.
  std::optional<int64_t> memory;
  /// Either a batch, or a sweep over multiples of `batchStep` up to `maxBatch`.
  std::optional<int64_t> batch;
  int64_t maxBatch = 2048;
  int64_t batchStep = 8;
  MicroBatchRule microBatchRule = MicroBatchRule::Search;
  // Forced parts of the plan.
  std::optional<int64_t> pipelineDegree;
  std::optional<int64_t> microBatches;
  const Schedule *schedule = nullptr; ///< null: the default one
  /// Tries all schedules that change nothing but time and memory, and takes the
  /// plan that is executed fastest; `schedule` is null.
  bool anySchedule = false;
  /// Chunks of a stage, where the schedule has several; 0: kDefaultChunks.
  int64_t chunks = 0;
  /// Layers per stage; per chunk in the order of the model, where stages have
  /// several.
  std::vector<int64_t> partition;
  /// The one strategy of all layers; replaces the space's strategies.
  std::optional<Strategy> strategy;
  /// Layers whose strategy is given, be it of the space or not; all others have
  /// those of the space, or `strategy`.
  std::vector<LayerPin> pins;
  /// Schedules whose gradients are late are looked at beside all others.
  bool allowDelayed = false;
  /// The states that are offloaded to the host. Offload::Layers is searched as
  /// everything else is; of others plans are found by a heuristic, as for
  /// several chunks a stage.
  Offload offload = Offload::Off;
  /// Under Offload::Layers: states, too, and not only activations.
  bool offloadStates = true;
  /// Every choice of `offload` is tried that changes nothing but time and
  /// memory, nothing on the host among them; the plan that is executed fastest
  /// is taken.
  bool anyOffload = false;
  /// Bytes of every node's host for what has its home there; each of the node's
  /// devices may take an equal share. Nothing: no bound.
  std::optional<int64_t> hostMemory;
  bool keepDpSdp = false;
  /// Strategies with two levels that cut rows (SpaceOptions).
  bool blocksOfBlocks = false;
  /// Strategies that keep a part of a layer's values are searched beside those
  /// that keep all or none, in spaces that have both (docs/kept.md).
  bool selective = false;
  /// Words for the values that layers keep which have them (selectValues());
  /// beside one strategy for all layers they are forced, in a selective search
  /// they are the one point of these layers. Empty: points are found.
  std::vector<std::string> keep;
  /// The paradigms strategies are made of, in spaces that leave it open; empty:
  /// those of ParadigmSet::searched(), and under Objective::Executed, where
  /// samples are long, those that cut positions as well (docs/search.md).
  std::vector<Paradigm> paradigms;
  /// Stop when the best plan is proven to be within this many percent of the
  /// optimum.
  double gapPercent = 0;
  /// Looked at by all that takes long, questions about the plan included. Once
  /// it is requested the best plan so far is returned within half a second; if
  /// there is none, one that fits; and if nothing fits, why. Null: never.
  const Cancellation *cancellation = nullptr;
  /// Called now and then, at most once a turn of the search, by one thread at a
  /// time.
  std::function<void(const PlannerProgress &)> progress;
  /// The threads that searches which do not depend on each other are spread
  /// over; plans are the same for any number. Null: the calling one.
  Threads *threads = nullptr;
  /// Stop likewise after about so many steps (PipelineStatistics::steps) in one
  /// batch of the paper's rule, one doubling of another sweep, or the one batch
  /// given; 0: no limit. What is counted does not depend on the machine, so
  /// neither do plans. Only problems of about a thousand devices come that far.
  uint64_t mostSteps = kDefaultMostSteps;
  /// True if an infeasible outcome says what would help, which takes further
  /// searches.
  bool relaxations = true;
  /// True if an infeasible outcome says what does not fit, which takes the
  /// least memory of every shape.
  bool reasons = true;
  /// True if plans of whole stages are bounded by what any of them takes.
  bool proves = true;
  /// True if a bound is looked for of what a plan takes that the other options
  /// say whole.
  bool boundsGivenPlan = true;
  TrainingOptions training;
  std::string toolVersion;
  /// The groups of devices; nothing: unequal groups on clusters whose nodes
  /// differ, if the space and the other options allow them. Groups::Any where
  /// they do not is an error.
  std::optional<Groups> groups;
  /// Plans one batch with as few sequences of groups as a sweep has.
  bool fewGroups = false;
  /// Some of the last devices may stay idle (Planner/IdleDevices.h).
  bool mayIdle = false;
  /// The quantity that is minimised; docs/search.md, "The objective".
  Objective objective = Objective::Executed;
  /// A plan that another schedule or space has: plans that are slower for sure
  /// need not be found. With chunks, nor do those that are not likely to become
  /// as fast; the outcome is infeasible if there is no other.
  std::optional<double> samplesPerSecondKnown;

  /// Returns true once `cancellation` is requested.
  bool isLate() const { return cancellation && cancellation->requested(); }
};

/// Names of the spaces that plan() accepts; those of published planners are
/// baselines (Baselines/Baselines.h).
std::vector<std::string> plannerSpaces();

/// Another shape than the plan's: its optimum, or a bound that proves that it
/// is no better, by the formula that is searched.
struct RunnerUp {
  int64_t pipelineDegree = 1, microBatches = 1;
  double iterationMs = 0; ///< of the optimum, or at least
  double samplesPerSecond = 0;
};

struct PlannerResult {
  std::variant<Plan, Infeasible> outcome;
  /// The choices and rejections, with their reasons, in order.
  std::vector<std::string> decisions;
  /// The next best pairs of pipeline degree and micro-batches, each at its best
  /// batch, fastest first; at most 16.
  std::vector<RunnerUp> runnersUp;
  /// Steps of the searches within shapes, see PipelineStatistics.
  uint64_t steps = 0;
  /// The plan's time by the formula that is searched, ms.
  double formulaMs = 0;
  /// A lower bound of what any plan that was asked for takes to execute, ms, of
  /// one batch: of a search that ended because a faster plan is known, at most
  /// what that takes; infinite if no plan fits for sure; 0 if nothing is
  /// proven.
  double leastMs = 0;
  /// Devices without a part in the plan (PlannerOptions::mayIdle).
  int64_t idleDevices = 0;
  /// The time of the best plan with all devices, ms, if some stay idle and
  /// there is one.
  std::optional<double> allDevicesMs;

  bool feasible() const { return std::holds_alternative<Plan>(outcome); }
  const Plan &plan() const { return std::get<Plan>(outcome); }
  const Infeasible &infeasible() const { return std::get<Infeasible>(outcome); }
};

/// The best plan. Errors are wrong usage (unknown space, a degree that does not
/// divide the devices, fewer layers than stages, ...); a model that does not
/// fit is not an error but an Infeasible outcome.
llvm::Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                                   const PlannerOptions &options);

/// Prices a plan that somebody else made: fills times, ledgers, peaks and
/// iteration time from the plan's stages (devices, layers), strategies, batch,
/// micro-batches and schedule, under the plan's objective: if that is the
/// executed time, a plan that fits is simulated. Shares no sums with the
/// search. Errors: the plan does not match model or cluster, or a layer cannot
/// have its strategy.
llvm::Expected<PlannerResult> evaluate(LayerModel &model,
                                       const Cluster &cluster,
                                       const Plan &given,
                                       std::optional<int64_t> memory = {});

/// Stage sizes of the even partition: the first (layers mod stages) stages are
/// one longer.
std::vector<int64_t> evenPartition(int64_t layers, int64_t stages);

/// The devices of each stage where a plan says nothing else: consecutive ranks,
/// equal groups.
std::vector<std::vector<int64_t>> stageDevices(int64_t devices, int64_t stages);

} // namespace galvatron

#endif // GALVATRON_PLANNER_PLANNER_H
