//===- ChunkedSearch.cpp - Plans with several chunks a stage --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of a rank is the sum over its chunks, which lie far apart in the
// model: no prefix of the layers says whether a stage fits, so the search over
// pipelines of whole stages (docs/search.md) does not carry over. Here every
// shape (pipeline degree, micro-batches) starts from one strategy for all
// layers, cut into chunks of the least largest time, or of stages that take the
// same time; where a stage does not fit, its layers are recomputed, or have a
// point; and the best of these is improved kind of layer by kind of layer, and
// by layers that move to other chunks. All plans are priced by evaluate(), so
// what is returned fits and takes what is said. How much faster others may be
// is told by bounds of every shape (ChunkedProblem.h), whether plans were found
// or not. The same changes make plans of whole stages faster.
//
//===----------------------------------------------------------------------===//

#include "ChunkedSearch.h"

#include "BusyBound.h"
#include "ChunkedProblem.h"
#include "Executed.h"
#include "StageRepair.h"
#include "galvatron/Planner/Budget.h"
#include "galvatron/Planner/Gap.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Search/PipelinePartition.h"
#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Simulate/Simulate.h"
#include "galvatron/Support/Threads.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>

using namespace llvm;

namespace galvatron::planner {

namespace {

/// An initial plan may be so much slower than one of another schedule and
/// still be improved. A heuristic: localSearch() gained at most 1.8% in 12
/// cases of both schedules with chunks (docs/benchmarks.md).
constexpr double kCutoffSlack = 1.05;
/// Steps of more operations are simulated coarsely first, a stage's pass over a
/// micro-batch as one operation: a third of the work or less.
constexpr size_t kFewOperations = 4000;
/// The most that a coarse simulation may be below the whole one: 3% was seen.
constexpr double kCoarseness = 1.03;
/// That factor for two plans that differ in one kind of layer or one cut, where
/// both are simulated coarsely.
constexpr double kCoarsenessBeside = 1.001;
/// Another strategy for a kind of layers that made the plan it was tried on
/// slower by more than this factor is tried again only when no other change
/// helps.
constexpr double kSlowerForGood = 1.002;

/// A plan that is repaired may be above what it has to beat by this factor, by
/// its lower bound. A heuristic: layers that keep more in the end take less.
constexpr double kRepairSlack = 1.05;
/// A best plan that is slower than a known one by more is changed in fewer
/// ways.
constexpr double kFarBehind = 1.02;

/// Rounds where chunks are given, and the number of turns of these and options.
constexpr unsigned kRoundsOfTurn = 60;
constexpr int kTurns = 3;
/// The most work of changes to a plan of whole stages, about a second: the
/// operations of a step for each plan that is priced, a third of them where it
/// is simulated coarsely first, and what trying it takes besides. Less on many
/// devices, where each takes longer.
constexpr size_t kMostWorkOfChanges = 1'500'000;
constexpr size_t kWorkOfChange = 500;
constexpr size_t kDevicesOfChanges = 64;
/// Layers move between any two chunks where there are no more of them.
constexpr size_t kFewChunks = 8;
/// The most work of branching: chunks times layers and options, summed up over
/// the nodes that are divided.
constexpr size_t kMostWork = 200'000;

class ChunkedSearch {
public:
  ChunkedSearch(LayerModel &model, const Cluster &cluster,
                const PlannerOptions &options, const Space &space)
      : model(model), cluster(cluster), options(options), space(space),
        chunks(chunksOf(options)),
        layers(static_cast<int64_t>(model.layerCount())),
        bound(model, cluster, *options.schedule, chunks),
        recomputes(any_of(
            space.strategies(cluster.deviceCount() /
                             space.pipelineDegrees.front()),
            [](const Strategy &strategy) { return strategy.checkpoint(); })) {
    if (space.anyGroups)
      bound.setAnyGroups();
  }

  Expected<PlannerResult> run() {
    // Points come where they help, and where nothing fits without.
    tryInitialPlans(/*points=*/false);
    if (!best && tried > 0 && !space.fixed && space.points > 0)
      tryInitialPlans(/*points=*/true);
    if (!best && !anyBelowCutoff && !closest &&
        (tried == 0 || !options.samplesPerSecondKnown))
      return makeError(nothing());
    if (!best)
      return withoutPlan();
    const bool given = space.fixed && !options.partition.empty() &&
                       options.microBatches && options.batch &&
                       space.pipelineDegrees.size() == 1;
    if (!given || options.boundsGivenPlan) {
      boundShapes();
      if (space.points > 0)
        localSearch(/*points=*/false);
      for (const BoundedShape &shape : shapes)
        if (shape.search.least() < limitSeconds())
          tryPrices(*shape.problem, shape.plan);
      localSearch(/*points=*/true);
      branchShapes();
      bool better = false;
      for (const BoundedShape &shape : shapes)
        for (const HomesSolution &solution : shape.search.solutions())
          if (!stopped() && solution.longest < limitSeconds())
            better |= offer(planOf(*shape.problem, shape.plan, solution));
      if (better)
        localSearch(/*points=*/true);
    }
    // Shapes that take long to list were listed for the times of others.
    if (lists() && !listsEach(best->plan())) {
      Plan plan = best->plan();
      if (Error error = listByTimes(plan))
        return std::move(error);
      offer(std::move(plan));
    }
    Plan &plan = std::get<Plan>(best->outcome);
    plan.foundBy = "heuristic";
    setLeastMs(plan, leastMs());
    plan.space = space.name;
    plan.toolVersion = options.toolVersion;
    plan.training = options.training;
    log(Twine(tried) + " plans priced");
    best->decisions = decisions;
    return std::move(*best);
  }

  /// Changes a plan as long as that makes it faster.
  void improve(PlannerResult &found) {
    const double leastMs = leastMsOf(found.plan());
    const double rate = found.plan().samplesPerSecond;
    if (rate < options.samplesPerSecondKnown.value_or(0))
      return;
    best = found;
    // An order that was listed for its times is not that of others.
    if (!listsEach(best->plan()))
      std::get<Plan>(best->outcome).passTimes.clear();
    const auto devices = static_cast<size_t>(cluster.deviceCount());
    mostWork = kMostWorkOfChanges * kDevicesOfChanges /
               std::max(kDevicesOfChanges, devices);
    localSearch(/*points=*/true);
    log(Twine(tried) +
        (tried == 1 ? " plan that differs" : " plans that differ") +
        " in a kind of layer or a cut priced");
    llvm::append_range(found.decisions, decisions);
    if (best->plan().samplesPerSecond <= rate)
      return;
    Plan &better = std::get<Plan>(best->outcome);
    better.foundBy = "heuristic";
    better.provenGapPercent = found.plan().provenGapPercent;
    better.provenAmong = found.plan().provenAmong;
    setLeastMs(better, leastMs);
    found.outcome = std::move(better);
    found.formulaMs = best->formulaMs;
  }

private:
  /// The result where no plan was found: its reason, and a bound of all plans.
  PlannerResult withoutPlan() {
    Infeasible infeasible;
    if (anyBelowCutoff)
      infeasible.reason = "no further: other schedules' plans are faster than "
                          "what changes of single layers bring";
    else if (closest)
      infeasible = *closest;
    else
      infeasible.reason = nothing();
    if (anyBelowCutoff)
      log(infeasible.reason);
    if (!closest)
      log(Twine(tried) + " plans priced");
    boundShapes();
    branchShapes();
    PlannerResult none{std::move(infeasible), decisions};
    none.leastMs = leastMs();
    return none;
  }

  /// A plan there must be, if one is found in a while; what makes it better is
  /// for the time that is left.
  bool stopped() {
    if (workOfChanges > mostWork)
      return true;
    if (!options.isLate())
      return false;
    auto now = std::chrono::steady_clock::now();
    if (!stoppedAt)
      stoppedAt = now;
    constexpr std::chrono::milliseconds grace(250);
    return best || options.samplesPerSecondKnown || now - *stoppedAt > grace;
  }
  void log(const Twine &text) { decisions.push_back(text.str()); }

  std::string nothing() const {
    return "no pipeline degree and number of micro-batches of the space can "
           "have schedule '" +
           options.schedule->name().str() + "' with " + std::to_string(chunks) +
           " chunks a stage: " +
           (reason.empty() ? "no batch was tried" : reason);
  }

  /// The batch, or doublings of the step: larger ones take the same time a
  /// sample once the pipeline is full.
  std::vector<int64_t> batches() const {
    if (options.batch)
      return {*options.batch};
    std::vector<int64_t> list;
    for (int64_t batch = options.batchStep; batch <= options.maxBatch;
         batch *= 2)
      list.push_back(batch);
    return list;
  }

  /// Calls `visit` with the pipeline degree, the micro-batches and the
  /// strategies of all shapes of a batch.
  void
  forEachShape(int64_t batch,
               function_ref<void(int64_t, int64_t, ArrayRef<Strategy>)> visit) {
    for (int64_t degree : space.pipelineDegrees) {
      if (degree * chunks > layers) {
        reason = "model '" + model.name() + "' has " + std::to_string(layers) +
                 " layers, fewer than the " + std::to_string(degree * chunks) +
                 " chunks";
        continue;
      }
      std::vector<Strategy> strategies =
          space.strategies(cluster.deviceCount() / degree);
      for (int64_t microBatches : divisors(batch)) {
        if (stopped() || strategies.empty())
          break;
        if (options.microBatches && microBatches != *options.microBatches)
          continue;
        if (Error refused = options.schedule->check(ScheduleShape::of(
                degree, microBatches, chunks, options.offload)))
          reason = toString(std::move(refused));
        else
          visit(degree, microBatches, strategies);
      }
    }
  }

  /// Adds the plans of one strategy each, with a point if `points`.
  void addInitialPlans(int64_t batch, bool points) {
    forEachShape(batch, [&](int64_t degree, int64_t microBatches,
                            ArrayRef<Strategy> strategies) {
      for (const Strategy &strategy : strategies) {
        if (stopped())
          return;
        // Recomputation comes where it must.
        if (!space.fixed &&
            (strategy.checkpoint() || (strategy.point() > 0) != points))
          continue;
        if (!strategy.divides(batch / microBatches))
          continue;
        InitialPlan initial{
            0, initialPlans.size(), batch, microBatches, degree, strategy};
        initial.least = bound.leastSecondsAnywhere(planOf(initial)) /
                        static_cast<double>(batch);
        initialPlans.push_back(std::move(initial));
      }
    });
  }

  /// A plan without a partition: one strategy for all layers of a shape.
  struct InitialPlan {
    double least; ///< seconds a sample
    size_t number;
    int64_t batch, microBatches, degree;
    Strategy strategy;
  };

  Plan planOf(const InitialPlan &initial) const {
    Plan plan;
    plan.objective = options.objective;
    plan.schedule = options.schedule;
    plan.offload = options.offload;
    plan.batch = initial.batch;
    plan.microBatches = initial.microBatches;
    plan.pipelineDegree = initial.degree;
    for (std::vector<int64_t> &devices :
         stageDevices(cluster.deviceCount(), initial.degree)) {
      plan.stages.emplace_back();
      plan.stages.back().devices = std::move(devices);
    }
    for (int64_t l = 0; l < layers; ++l) {
      const std::optional<Strategy> *pin =
          space.pins.empty() ? nullptr : &space.pins[l];
      plan.layers.push_back(
          {model.layerName(l), 0, pin && *pin ? **pin : initial.strategy});
    }
    return plan;
  }

  void setPartition(Plan &plan, ArrayRef<int64_t> sizes) const {
    std::vector<std::vector<LayerRange>> ranges(plan.stages.size());
    ScheduleShape shape{plan.pipelineDegree, plan.microBatches, chunks};
    int64_t next = 0;
    for (auto [chunk, size] : enumerate(sizes)) {
      int64_t home = options.schedule->home(shape, static_cast<int64_t>(chunk));
      ranges[home].push_back({next, size});
      for (int64_t l = next; l < next + size; ++l)
        plan.layers[l].stage = home;
      next += size;
    }
    for (auto [stage, list] : zip_equal(plan.stages, ranges))
      stage.setRanges(list);
  }

  /// The fastest first, as far as bounds tell: those behind are often ruled out
  /// by what was found. Of equally fast plans the one counts whose shape comes
  /// first in the space.
  void tryInitialPlans(bool points) {
    for (int64_t batch : batches())
      addInitialPlans(batch, points);
    llvm::sort(initialPlans, [](const InitialPlan &a, const InitialPlan &b) {
      return std::tie(a.least, a.number) < std::tie(b.least, b.number);
    });
    for (InitialPlan &initial : initialPlans) {
      if (stopped() ||
          (best && initial.least * best->plan().samplesPerSecond > 1))
        break;
      if (isBelowCutoff(1 / initial.least))
        break;
      atInitialPlan = initial.number;
      Plan plan = planOf(initial);
      // Once time is up, all layers are recomputed at once.
      bool isLate = options.isLate() && recomputes;
      for (size_t l = 0; l < plan.layers.size(); ++l)
        if (isLate && space.mayChange(l))
          plan.layers[l].strategy =
              plan.layers[l].strategy.withCheckpoint(true);
      tryInitialPlan(std::move(plan));
    }
    initialPlans.clear();
    atInitialPlan.reset();
  }

  void tryInitialPlan(Plan plan) {
    int64_t all = plan.pipelineDegree * chunks;
    if (!options.partition.empty()) {
      setPartition(plan, options.partition);
    } else {
      setPartition(plan, evenPartition(layers, all));
      if (!isWorthwhile(plan, bound.leastSecondsAnywhere(plan)))
        return;
      Expected<std::vector<Picoseconds>> times = bound.layerTimes(plan);
      if (!times) {
        // A layer that cannot have the strategy.
        reason = toString(times.takeError());
        return;
      }
      if (std::optional<PartitionSolution> cut = minMaxPartition(*times, all)) {
        setPartition(plan, cut->layersPerStage);
        Plan balanced = plan;
        setPartition(balanced, balance(plan, cut->layersPerStage, *times));
        if (chunkSizes(balanced) != chunkSizes(plan))
          offer(std::move(balanced));
      }
    }
    offer(std::move(plan));
  }

  /// A lower bound of all plans for the batch; 0 unless all shapes were
  /// bounded.
  double leastMs() const {
    if (!bounded)
      return 0;
    double least = *bounded;
    for (const BoundedShape &shape : shapes)
      least = std::min(least, shape.search.least());
    return least * 1e3;
  }
  /// The batch whose plans are bounded.
  int64_t batchOfBounds() const {
    return best ? best->plan().batch
                : options.batch.value_or(options.batchStep);
  }
  /// The seconds above which no plan for the batch needs a bound: the best
  /// plan's seconds, or what is known.
  double limitSeconds() const {
    double rate = std::max(best ? best->plan().samplesPerSecond : 0,
                           options.samplesPerSecondKnown.value_or(0));
    return static_cast<double>(batchOfBounds()) / rate;
  }

  /// Bounds what any plan of the batch takes, shape by shape, and keeps the
  /// shapes that may have a faster one.
  void boundShapes() {
    const double limit = limitSeconds();
    int64_t batch = batchOfBounds();
    std::vector<std::pair<Plan, ChunkedProblem>> made;
    forEachShape(batch, [&](int64_t degree, int64_t microBatches,
                            ArrayRef<Strategy> strategies) {
      Plan plan =
          planOf({0, 0, batch, microBatches, degree, strategies.front()});
      if (std::optional<ChunkedProblem> problem =
              ChunkedProblem::make(model, cluster, options, space, plan, bound))
        made.emplace_back(std::move(plan), std::move(*problem));
    });
    std::vector<std::optional<BoundedShape>> searched(made.size());
    std::atomic<bool> isCut = false;
    forEachOn(options.threads, made.size(), [&](size_t i) {
      if (options.isLate()) {
        isCut = true;
        return;
      }
      auto &[plan, problem] = made[i];
      searched[i].emplace(std::move(plan), std::move(problem), limit);
      if (searched[i]->search.least() >= limit)
        searched[i].reset();
    });
    for (std::optional<BoundedShape> &shape : searched)
      if (shape)
        shapes.push_back(std::move(*shape));
    if (!stopped() && !isCut)
      bounded = limit;
  }

  /// Branches in the shape with the least bound, as long as that helps.
  void branchShapes() {
    size_t work = 0;
    double before = 0;
    for (int idle = 0; !shapes.empty() && work < kMostWork && !stopped();) {
      BoundedShape &least =
          *std::ranges::min_element(shapes, {}, [](const BoundedShape &shape) {
            return shape.search.least();
          });
      idle = least.search.least() > before * (1 + BoundedShape::kLeastRise)
                 ? 0
                 : idle + 1;
      if (idle == 0)
        before = least.search.least();
      if (idle > BoundedShape::kIdleNodes ||
          !least.search.branch(limitSeconds()))
        return;
      work += least.workOfNode();
    }
  }

  /// Plans of a shape by prices: options for chunks that are balanced, and
  /// chunks balanced for these options, in turns.
  void tryPrices(const ChunkedProblem &problem, const Plan &shape) {
    HomesProblem homes = problem.homes;
    std::vector<int64_t> sizes =
        options.partition.empty()
            ? evenPartition(layers, shape.pipelineDegree * chunks)
            : options.partition;
    for (int turn = 0; turn < kTurns && !stopped(); ++turn) {
      homes.partition = sizes;
      double limit =
          static_cast<double>(shape.batch) / best->plan().samplesPerSecond;
      std::vector<HomesSolution> solutions =
          HomesSearch(homes, 2 * limit, kRoundsOfTurn).solutions();
      if (solutions.empty())
        return;
      for (const HomesSolution &solution : solutions)
        offer(planOf(problem, shape, solution));
      if (!options.partition.empty())
        return;
      std::vector<Picoseconds> times;
      for (auto [chunk, size] : enumerate(sizes))
        for (int64_t i = 0; i < size; ++i) {
          size_t layer = times.size();
          const HomesOption &option =
              homes.optionSets[homes.layers[homes.chunks[chunk].place][layer]]
                              [solutions.front().choice[layer]];
          times.push_back(toPicoseconds(option.forward + option.backward));
        }
      std::vector<int64_t> next = balance(shape, sizes, times);
      if (next == sizes)
        return;
      sizes = std::move(next);
    }
  }

  /// The plan of a shape with a solution's chunks and options.
  Plan planOf(const ChunkedProblem &problem, const Plan &shape,
              const HomesSolution &solution) const {
    Plan plan = shape;
    setPartition(plan, solution.partition);
    size_t layer = 0;
    for (auto [chunk, size] : enumerate(solution.partition))
      for (int64_t i = 0; i < size; ++i, ++layer)
        plan.layers[layer].strategy =
            problem.strategyOf(solution, chunk, layer);
    return plan;
  }

  static std::vector<int64_t> chunkSizes(const Plan &plan) {
    std::vector<int64_t> sizes;
    for (const PlanChunk &chunk : plan.chunks())
      sizes.push_back(chunk.layers.count);
    return sizes;
  }

  /// Moves layers over cuts as long as stages, and then chunks, come closer to
  /// each other in their times: what a stage takes is the sum of its chunks,
  /// which no cut into chunks of the least largest time looks at.
  std::vector<int64_t> balance(const Plan &plan, std::vector<int64_t> sizes,
                               ArrayRef<Picoseconds> times) const {
    ScheduleShape shape{plan.pipelineDegree, plan.microBatches, chunks};
    std::vector<size_t> homes;
    for (size_t chunk = 0; chunk < sizes.size(); ++chunk)
      homes.push_back(static_cast<size_t>(
          options.schedule->home(shape, static_cast<int64_t>(chunk))));
    std::vector<double> before = {0}; // of the layers in front of each
    for (Picoseconds time : times)
      before.push_back(before.back() + static_cast<double>(time));
    std::vector<double> loads;
    auto unevenness = [&](ArrayRef<int64_t> sizes) {
      loads.assign(plan.pipelineDegree, 0);
      std::pair<double, double> squares{0, 0}; // of stages, of chunks
      int64_t layer = 0;
      for (auto [home, size] : zip_equal(homes, sizes)) {
        double sum = before[layer + size] - before[layer];
        layer += size;
        loads[home] += sum;
        squares.second += sum * sum;
      }
      for (double load : loads)
        squares.first += load * load;
      return squares;
    };
    auto least = unevenness(sizes);
    for (bool better = true; better;) {
      better = false;
      // A move goes from a chunk to any other, and chunks between move on by a
      // layer.
      for (size_t from = 0; from < sizes.size(); ++from)
        for (size_t to = 0; to < sizes.size(); ++to) {
          if (from == to || sizes[from] == 1)
            continue;
          --sizes[from], ++sizes[to];
          auto now = unevenness(sizes);
          if (now < least) {
            least = now;
            better = true;
          } else {
            ++sizes[from], --sizes[to];
          }
        }
    }
    return sizes;
  }

  /// Prices a plan; while a stage does not fit, half of its layers that keep
  /// their values are recomputed, and once it fits as few of them as may be, or
  /// layers have a point. Returns true if it is the best one now. One that is
  /// `isBeside` differs from the best one in a kind of layer or a cut.
  bool offer(Plan plan, bool isBeside = false) {
    // The plan may be a changed copy: what was found for the other one's layers
    // is not its own.
    plan.offload = options.offload;
    for (PlanLayer &layer : plan.layers)
      layer.kept.reset();
    for (PlanStage &stage : plan.stages)
      stage.sums = SumTiming::ByRule;
    const double least = bound.leastSeconds(plan);
    mostRate = static_cast<double>(plan.batch) / least;
    if (!isWorthwhile(plan, least))
      return false;
    auto isStopped = [this] { return stopped(); };
    StageRepair repair(
        {model, cluster, options, space, bound, recomputes, isStopped},
        std::move(plan));
    while (!stopped()) {
      // More may be recomputed than must be in the end.
      if (!isWorthwhile(repair.plan(),
                        bound.leastSeconds(repair.plan()) / kRepairSlack))
        return false;
      ++tried;
      workOfChanges += kWorkOfChange;
      std::optional<int64_t> excess = repair.worstExcess();
      if (!excess) {
        reason = repair.refusal();
        return false;
      }
      if (*excess <= 0) {
        Plan fitting = std::move(repair).finish();
        return isWorthwhile(fitting, bound.leastSeconds(fitting)) &&
               price(std::move(fitting), isBeside);
      }
      reason = "no plan fits into memory";
      // Without any plan the worst stage alone is repaired: each step may be
      // the closest to fitting, which a refusal names.
      if (!noteClosest(repair.plan(), *excess) ||
          !repair.recompute(/*everyStage=*/best.has_value()))
        return false;
    }
    return false;
  }

  /// Notes a plan that does not fit by so many bytes, if none is closer to
  /// fitting. False after an error.
  bool noteClosest(const Plan &plan, int64_t excess) {
    if (best || options.samplesPerSecondKnown ||
        (closest && excess >= closest->neededBytes - closest->availableBytes))
      return true;
    Expected<PlannerResult> priced =
        evaluate(model, cluster, plan, options.memory);
    if (!priced) {
      reason = toString(priced.takeError());
      return false;
    }
    if (!priced->feasible())
      closest = priced->infeasible();
    return true;
  }

  /// Prices a plan that fits. Returns true if it is the best one now.
  bool price(Plan plan, bool isBeside) {
    // Nothing is offloaded if no layer's strategy is.
    const Offload given = plan.offload;
    if (given.byLayer())
      plan.offload = plan.homesOfLayers();
    Pricing pricing;
    pricing.lists = listsEach(plan);
    double rate = best ? best->plan().samplesPerSecond : 0;
    if (best)
      rate /= atInitialPlan ? 1 + 1e-9 : 1;
    if (options.samplesPerSecondKnown)
      rate = std::max(rate, *options.samplesPerSecondKnown / kCutoffSlack);
    if (rate > 0)
      pricing.worthMs = 1e3 * static_cast<double>(plan.batch) / rate;
    const size_t operations = stepOperations(plan);
    if (pricing.worthMs && !pricing.lists && operations > kFewOperations) {
      workOfChanges += operations / 3;
      if (isScreenedOut(plan, *pricing.worthMs, isBeside))
        return false;
    }
    workOfChanges += operations;
    // Gathers ahead were chosen with the homes that were given: other homes
    // need the whole evaluation.
    if (pricing.worthMs && plan.offload == given && isSlower(plan, pricing))
      return false;
    Expected<PlannerResult> priced =
        evaluateAmong(model, cluster, plan, options.memory, pricing);
    if (!priced) {
      reason = toString(priced.takeError());
      return false;
    }
    if (!priced->feasible())
      return false;
    mostRate = std::min(mostRate, priced->plan().samplesPerSecond);
    if (isBelowCutoff(priced->plan().samplesPerSecond))
      return false;
    std::optional<Infeasible> full =
        fullHost(cluster, priced->plan(), options.hostMemory);
    if (!full)
      return take(std::move(*priced));
    // Recomputed values have no home there, so that does not help.
    if (!closest || full->neededBytes - full->availableBytes <
                        closest->neededBytes - closest->availableBytes)
      closest = std::move(full);
    return false;
  }

  /// Returns true if a plan that fits is simulated in more time than it is
  /// worth: most are, and need no more than that.
  bool isSlower(Plan plan, const Pricing &pricing) {
    if (options.objective != Objective::Executed)
      return false;
    if (Error error = priceExecuted(model, cluster, plan, pricing)) {
      reason = toString(std::move(error));
      return true;
    }
    mostRate = std::min(mostRate, plan.samplesPerSecond);
    constexpr double rounding = 1 + 1e-9;
    return isBelowCutoff(plan.samplesPerSecond) ||
           plan.iterationMs > *pricing.worthMs * rounding;
  }

  /// Returns true if a plan takes more than `worthMs` by its lower bound, or by
  /// a coarse simulation, or one that was made from the best plan more than
  /// that. Which plans are tried is a heuristic, so this may be one.
  bool isScreenedOut(const Plan &plan, double worthMs, bool isBeside) {
    Expected<SimulationInput> input = simulationOutline(model, cluster, plan);
    if (!input) {
      consumeError(input.takeError());
      return false; // and is told by the whole simulation
    }
    auto batch = static_cast<double>(plan.batch);
    double least = leastStepSeconds(*input);
    if (isBelowCutoff(batch / least) || least * 1e3 > worthMs)
      return true;
    std::optional<double> coarse = coarseMs(*input);
    if (!coarse)
      return false;
    if (isBelowCutoff(1e3 * batch * kCoarseness / *coarse))
      return true;
    if (atInitialPlan || !isBeside)
      return *coarse > worthMs * kCoarseness;
    if (!coarseBestMs) {
      Expected<SimulationInput> known =
          simulationOutline(model, cluster, best->plan());
      if (known)
        coarseBestMs = coarseMs(*known);
      else
        consumeError(known.takeError());
    }
    if (!coarseBestMs)
      return false;
    // One schedule's plan that is slower than another's needs to gain.
    if (isBehind(1))
      return *coarse >= *coarseBestMs;
    return *coarse > *coarseBestMs * kCoarsenessBeside;
  }

  /// The milliseconds of a coarsely simulated step; nothing after an error.
  static std::optional<double> coarseMs(const SimulationInput &input) {
    Expected<double> seconds = simulatedSeconds(input, /*mostOperations=*/0);
    if (!seconds) {
      consumeError(seconds.takeError());
      return std::nullopt;
    }
    return *seconds * 1e3;
  }

  bool lists() const { return options.schedule->listsByTimes(); }
  /// Lists the passes of a plan by what they take.
  Error listByTimes(Plan &plan) {
    plan.passTimes.clear();
    Expected<SimulationInput> input = simulationOutline(model, cluster, plan);
    if (!input)
      return input.takeError();
    plan.passTimes = passTimes(*input);
    return Error::success();
  }

  bool take(PlannerResult result) {
    const Plan &plan = result.plan();
    if (best) {
      double rate = best->plan().samplesPerSecond;
      bool isFirst =
          atInitialPlan && bestInitialPlan && *atInitialPlan < *bestInitialPlan;
      if (rate > plan.samplesPerSecond ||
          (rate == plan.samplesPerSecond && !isFirst))
        return false;
    }
    bestInitialPlan = atInitialPlan;
    coarseBestMs.reset();
    log(plan.summary() + formatv(": {0:f3} ms", plan.iterationMs).str());
    best = std::move(result);
    return true;
  }

  /// Returns true if a rate is too far below what another schedule has; then
  /// plans were left out by what is known.
  bool isBelowCutoff(double samplesPerSecond) {
    bool isBelow =
        options.samplesPerSecondKnown &&
        samplesPerSecond * kCutoffSlack < *options.samplesPerSecondKnown;
    anyBelowCutoff |= isBelow;
    return isBelow;
  }
  /// Returns true if a plan that takes at least so long can be the best one.
  bool isWorthwhile(const Plan &plan, double leastSeconds) {
    auto batch = static_cast<double>(plan.batch);
    if (isBelowCutoff(batch / leastSeconds))
      return false;
    if (!best)
      return true;
    double least = leastSeconds * best->plan().samplesPerSecond;
    return atInitialPlan ? least <= batch : least < batch;
  }
  /// Another strategy for all layers of a kind, as long as that helps; one with
  /// a point only if `points`.
  void localSearch(bool points) {
    std::map<std::pair<size_t, Strategy>, double> slowerThen;
    std::set<size_t> kinds;
    for (int64_t l = 0; l < layers; ++l)
      kinds.insert(model.kindOf(l));
    bool isAll = true; // whether all changes are tried
    for (bool better = true; (better || !isAll) && !stopped();) {
      isAll = !better || slowerThen.empty();
      better = false;
      Plan from = best->plan();
      // The values that layers keep are read off their strategies.
      for (PlanLayer &layer : from.layers)
        layer.kept.reset();
      // Strategies are those of groups of a size.
      std::set<size_t> sizes;
      std::vector<Strategy> strategies;
      for (const PlanStage &stage : from.stages)
        if (sizes.insert(stage.devices.size()).second)
          llvm::append_range(strategies, space.strategies(static_cast<int64_t>(
                                             stage.devices.size())));
      for (size_t kind : kinds)
        for (const Strategy &strategy : strategies) {
          if (stopped() || !strategy.divides(from.microBatchSamples()) ||
              (!points && strategy.point() > 0))
            continue;
          double &then = slowerThen[{kind, strategy}];
          if (!isAll && then > kSlowerForGood)
            continue;
          Plan plan = from;
          bool changed = false;
          for (size_t l = 0; l < plan.layers.size(); ++l)
            if (model.kindOf(l) == kind && space.mayChange(l) &&
                isOfStage(plan, l, strategy) &&
                !(plan.layers[l].strategy == strategy)) {
              plan.layers[l].strategy = strategy;
              changed = true;
            }
          // Strategies that recompute differ in nothing where all is kept.
          bool recomputes = strategy.checkpoint() || strategy.point() > 0;
          if (!changed)
            continue;
          better |= recomputes ? offer(std::move(plan), /*isBeside=*/true)
                               : offerBoth(std::move(plan));
          then = from.samplesPerSecond / mostRate;
        }
      better |= moveCuts();
      if (std::optional<Plan> keeping = keepingAll(best->plan()))
        better |= offer(std::move(*keeping));
    }
  }

  static bool isOfStage(const Plan &plan, size_t layer,
                        const Strategy &strategy) {
    const PlanStage &stage = plan.stages[plan.layers[layer].stage];
    return strategy.devices() == static_cast<int64_t>(stage.devices.size());
  }

  /// The plan with layers that keep all of their values, if that is another
  /// one: what is computed again may not be in the right places any more.
  std::optional<Plan> keepingAll(Plan plan) const {
    bool changed = false;
    for (size_t l = 0; l < plan.layers.size(); ++l) {
      Strategy &own = plan.layers[l].strategy;
      if (!space.mayChange(l) || (!own.checkpoint() && own.point() == 0))
        continue;
      own = own.withCheckpoint(false);
      changed = true;
    }
    return changed ? std::optional(std::move(plan)) : std::nullopt;
  }

  /// Returns true if another schedule's plan is faster than the best one by
  /// more than this factor.
  bool isBehind(double factor) const {
    return best->plan().samplesPerSecond * factor <
           options.samplesPerSecondKnown.value_or(0);
  }
  /// Offers a plan as it is and, if the best one is not far behind, with layers
  /// that keep all of their values.
  bool offerBoth(Plan plan) {
    std::optional<Plan> keeping;
    if (!isBehind(kFarBehind))
      keeping = keepingAll(plan);
    bool isBetter = offer(std::move(plan), /*isBeside=*/true);
    if (!keeping)
      return isBetter;
    const double asItIs = mostRate;
    isBetter |= offer(std::move(*keeping));
    mostRate = std::max(mostRate, asItIs);
    return isBetter;
  }

  /// Moves a layer to another chunk, where that helps: from each chunk to its
  /// neighbours, and from those of the slowest stage, or from any of few, to
  /// any.
  bool moveCuts() {
    if (!options.partition.empty())
      return false;
    bool moved = false;
    std::vector<int64_t> sizes = chunkSizes(best->plan());
    auto move = [&](size_t from, size_t to) {
      if (stopped() || sizes[from] == 1)
        return;
      std::vector<int64_t> other = sizes;
      --other[from], ++other[to];
      Plan plan = best->plan();
      setPartition(plan, other);
      // A layer's strategy is none of groups of another size.
      for (size_t l = 0; l < plan.layers.size(); ++l)
        if (!isOfStage(plan, l, plan.layers[l].strategy))
          return;
      if (offerBoth(std::move(plan))) {
        sizes = other;
        moved = true;
      }
    };
    for (size_t cut = 0; cut + 1 < sizes.size(); ++cut) {
      move(cut, cut + 1);
      move(cut + 1, cut);
    }
    std::vector<size_t> all(sizes.size());
    std::iota(all.begin(), all.end(), 0);
    for (size_t from :
         sizes.size() <= kFewChunks ? all : chunksOfSlowest(best->plan()))
      for (size_t to = 0; to < sizes.size(); ++to)
        if (to > from + 1 || to + 1 < from)
          move(from, to);
    return moved;
  }

  /// The chunks of the stage whose layers take longest.
  std::vector<size_t> chunksOfSlowest(const Plan &plan) {
    std::vector<Picoseconds> loads(plan.stages.size(), 0);
    if (Expected<std::vector<Picoseconds>> times = bound.layerTimes(plan))
      for (auto [layer, time] : zip_equal(plan.layers, *times))
        loads[layer.stage] += time;
    else
      consumeError(times.takeError());
    auto slowest = llvm::max_element(loads) - loads.begin();
    std::vector<size_t> list;
    for (auto [number, chunk] : enumerate(plan.chunks()))
      if (chunk.stage == slowest)
        list.push_back(number);
    return list;
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  const Space &space;
  int64_t chunks, layers;
  BusyBound bound;
  bool recomputes; ///< whether the space has recomputation
  std::vector<InitialPlan> initialPlans;
  std::optional<size_t> atInitialPlan, bestInitialPlan;
  std::optional<std::chrono::steady_clock::time_point> stoppedAt;
  std::optional<PlannerResult> best;
  std::optional<double> coarseBestMs; ///< of `best`, once it was asked for
  /// Samples per second of the plan offered last, at most.
  double mostRate = 0;
  std::optional<Infeasible> closest; ///< that does not fit
  std::vector<BoundedShape> shapes;  ///< those whose bounds are below the limit
  /// The limit that shapes were bounded with, once all were.
  std::optional<double> bounded;
  bool anyBelowCutoff = false; ///< plans were left out by what is known
  std::string reason;          ///< why the last shape was left out
  std::vector<std::string> decisions;
  size_t tried = 0;
  size_t workOfChanges = 0;
  size_t mostWork = std::numeric_limits<size_t>::max();
};

} // namespace

Expected<PlannerResult> planChunked(LayerModel &model, const Cluster &cluster,
                                    const PlannerOptions &options,
                                    const Space &space) {
  return ChunkedSearch(model, cluster, options, space).run();
}

void searchLocally(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, const Space &space,
                   PlannerResult &found) {
  ChunkedSearch(model, cluster, options, space).improve(found);
}

} // namespace galvatron::planner
