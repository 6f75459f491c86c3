//===- TwoBufferPlan.cpp - PipeDream-2BW on a model's layers --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Algorithm 1 of arXiv 2006.09503, appendix A, with the times and the ledger of
// docs/cost-model.md instead of closed forms: every depth that divides the
// devices, its replicas side by side; every number of micro-batches; with and
// without recomputation; and for each the best stages.
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"
#include "galvatron/Cost/RoundedTimes.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Simulate/DelayedSteps.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/TextTable.h"
#include "llvm/Support/Format.h"

#include <chrono>

using namespace llvm;

namespace galvatron::baselines {

namespace {

/// Stages of one depth, micro-batch count and strategy.
struct DelayedChoice {
  Plan plan;             ///< devices, layers, strategies
  Picoseconds batch = 0; ///< time of a batch in the steady state
  double samplesPerSecond() const {
    return static_cast<double>(plan.batch) * 1e12 / static_cast<double>(batch);
  }
};

class DelayedPlanner {
public:
  DelayedPlanner(LayerModel &model, const Cluster &cluster,
                 const PlannerOptions &options)
      : model(model), cluster(cluster), options(options),
        layers(static_cast<int64_t>(model.layerCount())) {}

  Error run() {
    for (int64_t depth : divisors(cluster.deviceCount())) {
      if (options.pipelineDegree.value_or(depth) != depth || depth > layers)
        continue;
      for (int64_t m : divisors(*options.batch)) {
        // Fewer micro-batches are sound and slow: only when asked for.
        if (options.microBatches ? *options.microBatches != m : m < depth)
          continue;
        for (bool recompute : {false, true})
          if (Error error = consider(depth, m, recompute))
            return error;
      }
    }
    return Error::success();
  }

  std::optional<DelayedChoice> best;
  /// The fastest without and with recomputation.
  std::optional<DelayedChoice> bestOf[2];
  /// The bytes needed and there of the shape whose fullest stage is the least.
  int64_t needed = 0, available = 0;
  int64_t shapes = 0;

private:
  Error consider(int64_t depth, int64_t m, bool recompute) {
    int64_t width = cluster.deviceCount() / depth;
    if (*options.batch / m % width != 0)
      return Error::success();
    SmallVector<Level, 1> levels;
    if (width > 1)
      levels.push_back({Paradigm::DP, width});
    strategy = cantFail(Strategy::get(levels, recompute));
    microBatches = m;
    samples = *options.batch / m;
    devices = stageDevices(cluster.deviceCount(), depth);
    ++shapes;
    if (Error error = priceLayers())
      return error;
    std::vector<int64_t> partition;
    Picoseconds batch = choosePartition(partition);
    if (partition.empty())
      return Error::success();
    DelayedChoice choice{makePlan(partition, recompute), batch};
    for (std::optional<DelayedChoice> *kept : {&best, &bestOf[recompute]})
      if (!*kept || batch < (*kept)->batch)
        *kept = choice;
    return Error::success();
  }

  /// Time of every layer on every stage in a batch, as prefix sums, and of the
  /// transfers if a stage ends behind it.
  Error priceLayers() {
    std::vector<CoreContention> contention =
        pipelineContention(cluster, devices, microBatches);
    times.assign(devices.size(), {0});
    forwardCut.assign(devices.size(), std::vector<Picoseconds>(layers, 0));
    backwardCut = forwardCut;
    footprints.clear();
    for (int64_t l = 0; l < layers; ++l) {
      Expected<int64_t> local = strategy.localSamples(samples);
      if (!local)
        return local.takeError();
      Expected<LayerFootprint> footprint =
          model.footprint(model.kindOf(l), strategy, *local);
      if (!footprint)
        return footprint.takeError();
      footprints.push_back(std::move(*footprint));
    }
    for (size_t s = 0; s < devices.size(); ++s) {
      StrategyLinks links = linksOf(cluster, strategy, devices[s]);
      ReshardRate onward, back;
      if (s + 1 < devices.size()) {
        onward = reshardRate(cluster, strategy, strategy, devices[s],
                             devices[s + 1]);
        back = reshardRate(cluster, strategy, strategy, devices[s + 1],
                           devices[s]);
      }
      for (int64_t l = 0; l < layers; ++l) {
        LayerTimeParts parts =
            layerTimeParts(footprints[l], strategy, links, cluster, devices[s],
                           model.dtype(), contention[s]);
        LayerTime cost = layerTime(parts);
        Picoseconds nosync = layerNosyncPicoseconds(cost);
        times[s].push_back(times[s].back() + microBatches * nosync +
                           layerPicoseconds(cost) - nosync +
                           updatePicoseconds(parts, 1));
        int64_t bytes = model.boundaryBytesPerSample(l);
        if (s + 1 < devices.size()) {
          forwardCut[s][l] =
              microBatches * transferPicoseconds(onward, bytes, samples);
          backwardCut[s][l] =
              microBatches * transferPicoseconds(back, bytes, samples);
        }
      }
    }
    return Error::success();
  }

  /// Time of a batch on stage `s` with the layers from `begin` to before `end`.
  Picoseconds stageTime(size_t s, int64_t begin, int64_t end) const {
    return times[s][end] - times[s][begin] +
           (s + 1 < devices.size() ? forwardCut[s][end - 1] : 0) +
           (s > 0 ? backwardCut[s - 1][begin - 1] : 0);
  }

  /// A stage's ledger, with a second version of the weights and the data of two
  /// batches.
  int64_t stageBytes(size_t s, int64_t begin, int64_t end) const {
    std::vector<StageLayer> contents;
    for (int64_t l = begin; l < end; ++l)
      contents.push_back(
          {footprints[l], cantFail(strategy.localSamples(samples))});
    connectLayers(contents, std::vector<Strategy>(contents.size(), strategy),
                  model, static_cast<size_t>(begin));
    StageShape shape;
    shape.inFlight = static_cast<int64_t>(devices.size() - s);
    shape.microBatches = microBatches;
    shape.lastStage = s + 1 == devices.size();
    shape.backend = backendTraits(cluster.backendOf(devices[s]));
    shape.weightVersions = shape.batches = 2;
    return stageLedger(contents, shape).total();
  }

  /// Layers per stage with the least time of the slowest stage among those that
  /// fit; empty if none does. More layers never need less memory, so the most
  /// that a stage can have is found by bisection.
  Picoseconds choosePartition(std::vector<int64_t> &partition) {
    size_t depth = devices.size();
    std::vector<std::vector<Picoseconds>> least(
        depth + 1, std::vector<Picoseconds>(layers + 1, kNoBound));
    std::vector<std::vector<int64_t>> from(depth + 1,
                                           std::vector<int64_t>(layers + 1, 0));
    least[0][0] = 0;
    int64_t tightest = 0;
    for (size_t s = 0; s < depth; ++s) {
      int64_t budget = cluster.budgetOf(devices[s], options.memory);
      for (int64_t begin = 0; begin < layers; ++begin) {
        if (least[s][begin] == kNoBound)
          continue;
        int64_t fits = begin, over = layers + 1;
        while (over - fits > 1) {
          int64_t middle = fits + (over - fits) / 2;
          (stageBytes(s, begin, middle) <= budget ? fits : over) = middle;
        }
        if (fits == begin &&
            (tightest == 0 || stageBytes(s, begin, begin + 1) < tightest))
          tightest = stageBytes(s, begin, begin + 1);
        for (int64_t end = begin + 1; end <= fits; ++end) {
          Picoseconds time =
              std::max(least[s][begin], stageTime(s, begin, end));
          if (time < least[s + 1][end]) {
            least[s + 1][end] = time;
            from[s + 1][end] = begin;
          }
        }
      }
    }
    if (least[depth][layers] == kNoBound) {
      noteNeed(tightest);
      return kNoBound;
    }
    for (int64_t s = static_cast<int64_t>(depth), end = layers; s > 0; --s) {
      partition.insert(partition.begin(), end - from[s][end]);
      end = from[s][end];
    }
    return least[depth][layers];
  }

  /// The need of the even partition, or of one layer that alone is too much.
  void noteNeed(int64_t tightest) {
    int64_t fullest = tightest, begin = 0;
    std::vector<int64_t> even =
        evenPartition(layers, static_cast<int64_t>(devices.size()));
    for (size_t s = 0; s < even.size(); ++s) {
      fullest = std::max(fullest, stageBytes(s, begin, begin + even[s]));
      begin += even[s];
    }
    if (needed != 0 && fullest >= needed)
      return;
    needed = fullest;
    available = cluster.budgetOf(devices[0], options.memory);
  }

  Plan makePlan(const std::vector<int64_t> &partition, bool recompute) const {
    Plan plan;
    plan.space = options.space;
    plan.training = options.training;
    plan.toolVersion = options.toolVersion;
    plan.batch = *options.batch;
    plan.microBatches = microBatches;
    plan.pipelineDegree = static_cast<int64_t>(devices.size());
    int64_t layer = 0;
    for (size_t s = 0; s < devices.size(); ++s) {
      PlanStage stage;
      stage.devices = devices[s];
      stage.firstLayer = layer;
      stage.layerCount = partition[s];
      plan.stages.push_back(std::move(stage));
      for (int64_t i = 0; i < partition[s]; ++i, ++layer)
        plan.layers.push_back(
            {model.layerName(layer), static_cast<int64_t>(s), strategy});
    }
    return plan;
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  int64_t layers;
  // State of the shape at hand.
  Strategy strategy;
  int64_t microBatches = 1, samples = 1;
  std::vector<std::vector<int64_t>> devices;
  std::vector<LayerFootprint> footprints;
  std::vector<std::vector<Picoseconds>> times; ///< [stage][first layers]
  std::vector<std::vector<Picoseconds>> forwardCut, backwardCut;
};

/// The stage's times per micro-batch; transfers are the sending stage's.
std::vector<DelayedStage> delayedStages(const Plan &plan) {
  std::vector<DelayedStage> stages;
  auto count = static_cast<double>(plan.stages.size());
  for (const PlanStage &stage : plan.stages) {
    DelayedStage delayed;
    delayed.forward = toPicoseconds(stage.forwardMs / 1000);
    delayed.backward =
        toPicoseconds((stage.timeNosyncMs - stage.forwardMs) / 1000);
    delayed.update = toPicoseconds((stage.timeMs - stage.timeNosyncMs +
                                    stage.optimizerMs * (1 - 1 / count)) /
                                   1000);
    stages.push_back(delayed);
  }
  return stages;
}

std::string table(const Plan &plan, const DelayedPlanner &planner,
                  std::optional<double> simulatedMs) {
  std::string text;
  raw_string_ostream os(text);
  const Strategy &strategy = plan.layers.front().strategy;
  auto width = static_cast<int64_t>(plan.stages.front().devices.size());
  os << "plan for '" << plan.model << "' on '" << plan.cluster
     << "', space 2bw: planned, not executed yet\n"
     << "  depth " << plan.pipelineDegree << ", width " << width
     << ", micro-batches " << plan.microBatches << " of "
     << plan.microBatchSamples() / width << " samples a replica, "
     << (strategy.checkpoint() ? "with" : "without") << " recomputation\n"
     << format("  a batch of %lld in %.3f ms, %.2f samples/s",
               static_cast<long long>(plan.batch), plan.iterationMs,
               plan.samplesPerSecond)
     << "; weights are one batch late\n";
  if (simulatedMs)
    os << format("  executed: %.3f ms\n", *simulatedMs);
  for (bool recompute : {false, true})
    if (planner.bestOf[recompute])
      os << format(
          "  best %s recomputation: %.2f samples/s, depth %lld, %lld "
          "micro-batches\n",
          recompute ? "with" : "without",
          planner.bestOf[recompute]->samplesPerSecond(),
          static_cast<long long>(
              planner.bestOf[recompute]->plan.pipelineDegree),
          static_cast<long long>(planner.bestOf[recompute]->plan.microBatches));
    else
      os << "  nothing fits " << (recompute ? "with" : "without")
         << " recomputation\n";
  TextTable rows("llrrl");
  rows.row({"stage", "devices", "layers", "ms a batch", "memory, estimated"});
  auto m = static_cast<double>(plan.microBatches);
  auto count = static_cast<double>(plan.stages.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage &stage = plan.stages[s];
    rows.row({std::to_string(s), deviceRange(stage.devices),
              std::to_string(stage.layerCount),
              formatv("{0:f3}", (m - 1) * stage.timeNosyncMs + stage.timeMs +
                                    stage.optimizerMs * (1 - 1 / count))
                  .str(),
              printBytesRounded(stage.peakBytes) + " of " +
                  printBytesRounded(stage.availableBytes)});
  }
  rows.print(os);
  return text;
}

} // namespace

Expected<BaselineReport> reportTwoBuffers(LayerModel &model,
                                          const Cluster &cluster,
                                          const PlannerOptions &options,
                                          bool simulate) {
  auto begin = std::chrono::steady_clock::now();
  DelayedPlanner planner(model, cluster, options);
  if (Error error = planner.run())
    return std::move(error);
  BaselineReport answer;
  if (!planner.best) {
    Infeasible infeasible;
    if (planner.shapes == 0)
      infeasible.reason =
          "no depth, width and number of micro-batches cut the batch of " +
          std::to_string(*options.batch) + " and the " +
          std::to_string(cluster.deviceCount()) + " devices evenly";
    else
      infeasible.reason = "no plan of space '2bw' fits: a device needs at "
                          "least about " +
                          printBytesRounded(planner.needed);
    infeasible.neededBytes = planner.needed;
    infeasible.availableBytes = planner.available;
    answer.infeasible = std::move(infeasible);
    return answer;
  }
  // evaluate() fills in times and the ledger of 1F1B, in which as many
  // micro-batches are in flight.
  Expected<PlannerResult> priced =
      evaluate(model, cluster, planner.best->plan, options.memory);
  if (!priced)
    return priced.takeError();
  if (!priced->feasible())
    return makeError("space '2bw': its plan does not fit without the second "
                     "version of the weights: " +
                     priced->infeasible().reason);
  Plan plan = priced->plan();
  for (PlanStage &stage : plan.stages) {
    stage.ledger.parameters *= 2;
    stage.peakBytes = stage.ledger.total();
  }
  plan.space = options.space;
  plan.iterationMs = toMilliseconds(planner.best->batch);
  plan.samplesPerSecond = planner.best->samplesPerSecond();
  plan.searchMs = std::chrono::duration<double, std::milli>(
                      std::chrono::steady_clock::now() - begin)
                      .count();
  if (simulate)
    plan.simulatedIterationMs = toMilliseconds(
        simulateDelayed(delayedStages(plan), plan.microBatches).batch);
  json::Value value = plan.toJson();
  answer.json = std::move(*value.getAsObject());
  answer.json["schedule"] = "2bw";
  answer.json["weight-versions"] = 2;
  answer.json["width"] =
      static_cast<int64_t>(plan.stages.front().devices.size());
  answer.json["recompute"] = plan.layers.front().strategy.checkpoint();
  answer.text = table(plan, planner, plan.simulatedIterationMs);
  return answer;
}

} // namespace galvatron::baselines
