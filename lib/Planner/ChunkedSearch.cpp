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
// same time; where a stage does not fit, its layers are recomputed; and the
// best of these is improved kind of layer by kind of layer, and cut by cut. All
// plans are priced by evaluate(), so what is returned fits and takes what is
// said, and nothing is proven of others.
//
//===----------------------------------------------------------------------===//

#include "ChunkedSearch.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Search/PipelinePartition.h"
#include "galvatron/Simulate/Simulate.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <cmath>
#include <set>

using namespace llvm;

namespace galvatron::planner {

std::optional<Infeasible> fullHost(const Cluster &cluster, const Plan &plan,
                                   std::optional<int64_t> hostMemory) {
  std::optional<Infeasible> worst;
  for (auto [number, stage] : enumerate(plan.stages)) {
    int64_t needed = stage.hostLedger.total(), share = needed;
    for (int64_t device : stage.devices)
      if (hostMemory)
        share = std::min(
            share,
            *hostMemory /
                cluster.nodeGroups()[cluster.nodeGroupOf(device)].devices);
    if (needed <= share ||
        (worst && needed - share <= worst->neededBytes - worst->availableBytes))
      continue;
    Infeasible infeasible;
    infeasible.reason = "the host's memory does not hold the states: stage " +
                        std::to_string(number) + " needs " +
                        std::to_string(needed) +
                        " bytes, a device's share is " + std::to_string(share);
    infeasible.stage = static_cast<int64_t>(number);
    infeasible.neededBytes = needed;
    infeasible.availableBytes = share;
    infeasible.ledger = stage.hostLedger;
    worst = std::move(infeasible);
  }
  return worst;
}

int64_t chunksOf(const PlannerOptions &options) {
  if (!options.schedule)
    return 1;
  // Whole stages, where the schedule can have them.
  Error refused = options.schedule->check({2, 1, 1});
  if (!refused)
    return 1;
  consumeError(std::move(refused));
  return options.chunks ? options.chunks : kDefaultChunks;
}

namespace {

class ChunkedSearch {
public:
  ChunkedSearch(LayerModel &model, const Cluster &cluster,
                const PlannerOptions &options, const Space &space)
      : model(model), cluster(cluster), options(options), space(space),
        chunks(chunksOf(options)),
        layers(static_cast<int64_t>(model.layerCount())) {}

  Expected<PlannerResult> run() {
    auto begin = std::chrono::steady_clock::now();
    for (int64_t batch : batches())
      for (int64_t degree : space.pipelineDegrees)
        tryDegree(batch, degree);
    if (!best && !closest)
      return makeError(nothing());
    if (!best)
      return PlannerResult{*closest, decisions};
    improve();
    // Those that take long to list were listed for the times of others.
    if (lists() && !listsEach(best->plan())) {
      Plan plan = best->plan();
      if (Error error = listByTimes(plan))
        return std::move(error);
      offer(std::move(plan));
    }
    Plan &plan = std::get<Plan>(best->outcome);
    plan.foundBy = "heuristic";
    plan.space = space.name;
    plan.toolVersion = options.toolVersion;
    plan.training = options.training;
    std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - begin;
    plan.searchMs = passed.count();
    log(Twine(tried) + " plans priced");
    best->decisions = decisions;
    return std::move(*best);
  }

private:
  bool stopped() const {
    return options.cancellation && options.cancellation->requested();
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

  void tryDegree(int64_t batch, int64_t degree) {
    if (degree * chunks > layers) {
      reason = "model '" + model.name() + "' has " + std::to_string(layers) +
               " layers, fewer than the " + std::to_string(degree * chunks) +
               " chunks";
      return;
    }
    std::vector<Strategy> strategies =
        space.strategies(cluster.deviceCount() / degree);
    for (int64_t microBatches : divisors(batch)) {
      if (options.microBatches && microBatches != *options.microBatches)
        continue;
      if (Error refused = options.schedule->check(ScheduleShape::of(
              degree, microBatches, chunks, options.offload))) {
        reason = toString(std::move(refused));
        continue;
      }
      Plan plan;
      plan.objective = options.objective;
      plan.schedule = options.schedule;
      plan.offload = options.offload;
      plan.batch = batch;
      plan.microBatches = microBatches;
      plan.pipelineDegree = degree;
      for (std::vector<int64_t> &devices :
           stageDevices(cluster.deviceCount(), degree)) {
        plan.stages.emplace_back();
        plan.stages.back().devices = std::move(devices);
      }
      for (const Strategy &strategy : strategies) {
        if (stopped())
          return;
        // Recomputation comes where it must.
        if (!space.fixed && strategy.checkpoint())
          continue;
        if (plan.microBatchSamples() % strategy.sampleShards() == 0)
          trySeed(plan, strategy);
      }
    }
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

  void trySeed(Plan plan, const Strategy &strategy) {
    for (int64_t l = 0; l < layers; ++l) {
      const std::optional<Strategy> *pin =
          space.pins.empty() ? nullptr : &space.pins[l];
      plan.layers.push_back(
          {model.layerName(l), 0, pin && *pin ? **pin : strategy});
    }
    int64_t all = plan.pipelineDegree * chunks;
    if (!options.partition.empty()) {
      setPartition(plan, options.partition);
    } else {
      setPartition(plan, evenPartition(layers, all));
      Expected<std::vector<Picoseconds>> times = layerTimes(plan);
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
    auto unevenness = [&](ArrayRef<int64_t> sizes) {
      std::vector<double> loads(plan.pipelineDegree, 0);
      std::pair<double, double> squares{0, 0}; // of stages, of chunks
      size_t layer = 0;
      for (auto [chunk, size] : enumerate(sizes)) {
        double sum = 0;
        for (int64_t end = size; end > 0; --end)
          sum += static_cast<double>(times[layer++]);
        loads[options.schedule->home(shape, static_cast<int64_t>(chunk))] +=
            sum;
        squares.second += sum * sum;
      }
      for (double load : loads)
        squares.first += load * load;
      return squares;
    };
    auto least = unevenness(sizes);
    for (bool better = true; better;) {
      better = false;
      // From a chunk to any other, so that those between move on by a layer.
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

  /// Of one micro-batch, by the formulas of a layer.
  Expected<std::vector<Picoseconds>> layerTimes(Plan plan) {
    plan.objective = Objective::Paper;
    constexpr int64_t plenty = int64_t(1) << 60; // of memory, so that it fits
    Expected<PlannerResult> priced = evaluate(model, cluster, plan, plenty);
    if (!priced)
      return priced.takeError();
    if (!priced->feasible())
      return makeError(priced->infeasible().reason);
    std::vector<Picoseconds> times;
    for (const PlanLayer &layer : priced->plan().layers)
      times.push_back(
          static_cast<Picoseconds>(std::llround(layer.timeNosyncMs * 1e9)));
    return times;
  }

  /// Prices a plan; while a stage does not fit, half of its layers that keep
  /// their values are recomputed. Whether it is the best one now.
  bool offer(Plan plan) {
    while (!stopped()) {
      ++tried;
      if (lists() && listsEach(plan))
        if (Error error = listByTimes(plan)) {
          reason = toString(std::move(error));
          return false;
        }
      Expected<PlannerResult> priced =
          evaluate(model, cluster, plan, options.memory);
      if (!priced) {
        reason = toString(priced.takeError());
        return false;
      }
      if (priced->feasible()) {
        std::optional<Infeasible> full =
            fullHost(cluster, priced->plan(), options.hostMemory);
        if (!full)
          return take(std::move(*priced));
        // What is recomputed has no home there, so that does not help.
        if (!closest || full->neededBytes - full->availableBytes <
                            closest->neededBytes - closest->availableBytes)
          closest = std::move(full);
        return false;
      }
      const Infeasible &why = priced->infeasible();
      if (!closest || why.neededBytes - why.availableBytes <
                          closest->neededBytes - closest->availableBytes)
        closest = why;
      std::vector<size_t> keeping;
      for (size_t l : plan.stages[why.stage].layers())
        if (!plan.layers[l].strategy.checkpoint() && mayChange(l))
          keeping.push_back(l);
      if (keeping.empty() || !recomputes())
        return false;
      keeping.resize((keeping.size() + 1) / 2);
      for (size_t l : keeping)
        plan.layers[l].strategy = plan.layers[l].strategy.withCheckpoint(true);
    }
    return false;
  }

  bool lists() const { return options.schedule->listsByTimes(); }
  /// Whether it takes a millisecond or two.
  static bool listsEach(const Plan &plan) {
    return plan.pipelineDegree * plan.microBatches <= 64;
  }
  /// Has the passes of a plan listed for what they take.
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
    if (best && best->plan().samplesPerSecond >= plan.samplesPerSecond)
      return false;
    log(plan.summary() + formatv(": {0:f3} ms", plan.iterationMs).str());
    best = std::move(result);
    return true;
  }

  bool mayChange(size_t layer) const {
    return !space.fixed && (space.pins.empty() || !space.pins[layer]);
  }
  /// Whether the space has recomputation.
  bool recomputes() const {
    return any_of(
        space.strategies(cluster.deviceCount() / space.pipelineDegrees.front()),
        [](const Strategy &strategy) { return strategy.checkpoint(); });
  }

  /// Another strategy for all layers of a kind, as long as that helps.
  void improve() {
    std::set<size_t> kinds;
    for (int64_t l = 0; l < layers; ++l)
      kinds.insert(model.kindOf(l));
    for (bool better = true; better && !stopped();) {
      better = false;
      Plan from = best->plan();
      std::vector<Strategy> strategies =
          space.strategies(cluster.deviceCount() / from.pipelineDegree);
      for (size_t kind : kinds)
        for (const Strategy &strategy : strategies) {
          if (stopped() ||
              from.microBatchSamples() % strategy.sampleShards() != 0)
            continue;
          Plan plan = from;
          bool changed = false;
          for (size_t l = 0; l < plan.layers.size(); ++l)
            if (model.kindOf(l) == kind && mayChange(l) &&
                !(plan.layers[l].strategy == strategy)) {
              plan.layers[l].strategy = strategy;
              changed = true;
            }
          if (changed)
            better |= offer(std::move(plan));
        }
      better |= moveCuts();
    }
  }

  /// A layer more in one chunk and one less in its neighbour, where that helps.
  bool moveCuts() {
    if (!options.partition.empty())
      return false;
    bool moved = false;
    std::vector<int64_t> sizes = chunkSizes(best->plan());
    for (size_t cut = 0; cut + 1 < sizes.size(); ++cut)
      for (auto [from, to] : {std::pair(cut, cut + 1), {cut + 1, cut}}) {
        if (stopped() || sizes[from] == 1)
          continue;
        std::vector<int64_t> other = sizes;
        --other[from], ++other[to];
        Plan plan = best->plan();
        setPartition(plan, other);
        if (offer(std::move(plan))) {
          sizes = other;
          moved = true;
        }
      }
    return moved;
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  const Space &space;
  int64_t chunks, layers;
  std::optional<PlannerResult> best;
  std::optional<Infeasible> closest; ///< that does not fit
  std::string reason;                ///< why the last shape was left out
  std::vector<std::string> decisions;
  size_t tried = 0;
};

} // namespace

Expected<PlannerResult> planChunked(LayerModel &model, const Cluster &cluster,
                                    const PlannerOptions &options,
                                    const Space &space) {
  return ChunkedSearch(model, cluster, options, space).run();
}

} // namespace galvatron::planner
