//===- Planner.cpp - From a model and a cluster to a plan -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidate.h"
#include "MicroBatchRule.h"
#include "Spaces.h"

#include "galvatron/Planner/Explain.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Search/PipelinePartition.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <numeric>
#include <queue>
#include <tuple>

using namespace llvm;

namespace galvatron {

std::vector<int64_t> evenPartition(int64_t layers, int64_t stages) {
  std::vector<int64_t> sizes(stages, layers / stages);
  for (int64_t s = 0; s < layers % stages; ++s)
    ++sizes[s];
  return sizes;
}

std::vector<std::vector<int64_t>> stageDevices(int64_t devices,
                                               int64_t stages) {
  std::vector<std::vector<int64_t>> groups;
  int64_t size = devices / stages;
  for (int64_t s = 0; s < stages; ++s) {
    groups.emplace_back(size);
    std::iota(groups.back().begin(), groups.back().end(), s * size);
  }
  return groups;
}

namespace {

using namespace planner;

std::string milliseconds(Picoseconds time) {
  std::string text;
  raw_string_ostream(text) << format("%.3f ms", toMilliseconds(time));
  return text;
}

std::string bytesText(int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + printBytesRounded(bytes) + ")";
}

/// a / b < c / d for positive times and batches, without rounding.
bool fasterPerSample(Picoseconds a, int64_t b, Picoseconds c, int64_t d) {
  return static_cast<__int128>(a) * d < static_cast<__int128>(c) * b;
}

/// The whole search of one call.
class Search {
public:
  Search(LayerModel &model, const Cluster &cluster,
         const PlannerOptions &options, Space space)
      : model(model), cluster(cluster), options(options),
        space(std::move(space)), tables(model, cluster) {}

  Expected<PlannerResult> run();

  /// The least excess over the budget of all candidates (negative: fits).
  std::optional<int64_t> leastExcess(int64_t batch);

private:
  struct Incumbent {
    Shape shape;
    Solved solved;
  };

  /// A shape on its way: its bound gets better step by step. At first it is
  /// the bound without memory, with a candidate the one with memory.
  struct Entry {
    Picoseconds bound;
    size_t order;
    std::shared_ptr<Shape> shape;
    std::shared_ptr<Candidate> candidate;
  };
  struct Later {
    bool operator()(const Entry &a, const Entry &b) const {
      return std::tie(a.bound, a.order) > std::tie(b.bound, b.order);
    }
  };

  std::vector<Shape> shapesOf(int64_t batch);
  std::vector<int64_t> timeBalance(const Shape &shape);
  const StrategySet &strategySet(int64_t groupSize);
  std::shared_ptr<Candidate> candidateOf(const Shape &shape);
  std::vector<std::shared_ptr<Candidate>> candidatesOf(int64_t batch);
  Picoseconds freeBoundOf(const Shape &shape);
  bool searchBatch(int64_t batch, size_t &tried);
  Picoseconds limitFor(int64_t batch) const;
  Plan toPlan(const Incumbent &best) const;
  Infeasible explain(int64_t batch);
  void log(const Twine &text) {
    // A sweep has thousands of candidates; the first ones tell the story.
    constexpr size_t most = 4000;
    if (decisions.size() < most)
      decisions.push_back(text.str());
    else
      ++unlogged;
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  Space space;
  CostTables tables;
  std::map<int64_t, StrategySet> sets;
  /// By pipeline degree, samples of a micro-batch and partition; nothing if a
  /// layer has no strategy there.
  std::map<std::tuple<int64_t, int64_t, std::vector<int64_t>>,
           std::optional<FreeBound>>
      freeBounds;
  /// Time-balanced partitions by pipeline degree and samples.
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> balances;
  std::optional<Incumbent> best;
  std::vector<std::string> decisions;
  size_t unlogged = 0; ///< decisions beyond the most that are kept
  std::string refusal;
};

const StrategySet &Search::strategySet(int64_t groupSize) {
  auto it = sets.find(groupSize);
  if (it == sets.end())
    it = sets.emplace(groupSize, StrategySet::make(space.strategies(groupSize)))
             .first;
  return it->second;
}

/// Layer times for the balance: each layer's cheapest strategy, without
/// gradient synchronisation, on the first stage's devices.
std::vector<int64_t> Search::timeBalance(const Shape &shape) {
  std::vector<Picoseconds> times;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    const KindOptions &kind = tables.kindOptions(
        model.kindOf(l), *shape.set, shape.devices[0], shape.samples());
    Picoseconds least = 0;
    bool first = true;
    for (const KindOption &option : kind.options) {
      least = first ? option.timeNosync : std::min(least, option.timeNosync);
      first = false;
    }
    times.push_back(least);
  }
  return minMaxPartition(times, shape.pipelineDegree)->layersPerStage;
}

std::vector<Shape> Search::shapesOf(int64_t batch) {
  std::vector<Shape> shapes;
  auto layers = static_cast<int64_t>(model.layerCount());
  int64_t devices = cluster.deviceCount();
  for (int64_t degree : space.pipelineDegrees) {
    if (degree > layers)
      continue;
    const StrategySet &set = strategySet(devices / degree);
    if (set.strategies.empty())
      continue;
    std::optional<int64_t> required = options.microBatches;
    if (options.microBatchRule == MicroBatchRule::Paper) {
      required =
          paperMicroBatches(batch, degree, devices / degree,
                            options.schedule.value_or(ScheduleKind::OneFOneB));
      if (!required)
        continue;
    }
    for (int64_t microBatches : divisors(batch)) {
      if (required && *required != microBatches)
        continue;
      if (batch / microBatches % set.sampleMultiple != 0)
        continue;
      Shape shape;
      shape.batch = batch;
      shape.pipelineDegree = degree;
      shape.microBatches = microBatches;
      shape.schedule = options.schedule.value_or(ScheduleKind::OneFOneB);
      shape.set = &set;
      shape.devices = stageDevices(devices, degree);
      for (const std::vector<int64_t> &group : shape.devices)
        shape.memory.push_back(cluster.budgetOf(group, options.memory));
      std::vector<int64_t> even = evenPartition(layers, degree);
      if (space.even || degree == 1) {
        shape.partition = even;
        shape.partitionName = "even";
        shapes.push_back(shape);
      }
      if (space.timeBalanced && degree > 1) {
        auto [it, fresh] = balances.try_emplace({degree, shape.samples()});
        if (fresh)
          it->second = timeBalance(shape);
        const std::vector<int64_t> &balanced = it->second;
        if (space.even && balanced == even)
          continue;
        shape.partition = balanced;
        shape.partitionName = "time-balanced";
        shapes.push_back(std::move(shape));
      }
    }
  }
  return shapes;
}

std::shared_ptr<Candidate> Search::candidateOf(const Shape &shape) {
  std::string reason;
  std::optional<Candidate> candidate =
      Candidate::make(model, tables, shape, reason);
  if (candidate)
    return std::make_shared<Candidate>(std::move(*candidate));
  log(shape.str() + ": rejected, " + reason);
  if (refusal.empty())
    refusal = reason;
  return nullptr;
}

std::vector<std::shared_ptr<Candidate>> Search::candidatesOf(int64_t batch) {
  std::vector<std::shared_ptr<Candidate>> candidates;
  for (const Shape &shape : shapesOf(batch))
    if (std::shared_ptr<Candidate> candidate = candidateOf(shape))
      candidates.push_back(std::move(candidate));
  return candidates;
}

/// A bound that all batches with such micro-batches share; kNoBound if a layer
/// has no strategy.
Picoseconds Search::freeBoundOf(const Shape &shape) {
  auto [it, fresh] = freeBounds.try_emplace(
      {shape.pipelineDegree, shape.samples(), shape.partition});
  if (fresh) {
    // Two micro-batches, so that the times without synchronisation count.
    Shape probe = shape;
    probe.microBatches = 2;
    probe.batch = 2 * shape.samples();
    if (std::shared_ptr<Candidate> candidate = candidateOf(probe))
      it->second = candidate->freeBound();
  }
  if (!it->second)
    return kNoBound;
  return it->second->time + (shape.microBatches - 1) * it->second->nosync;
}

/// The most that a plan of this batch may cost to be better than the best.
Picoseconds Search::limitFor(int64_t batch) const {
  if (!best)
    return kNoBound;
  __int128 product = static_cast<__int128>(best->solved.cost) * batch;
  return static_cast<Picoseconds>((product - 1) / best->shape.batch);
}

/// Best-first over the shapes of a batch. False if there is no candidate.
bool Search::searchBatch(int64_t batch, size_t &tried) {
  std::priority_queue<Entry, std::vector<Entry>, Later> queue;
  size_t order = 0;
  for (Shape &shape : shapesOf(batch)) {
    Picoseconds bound = freeBoundOf(shape);
    if (bound < kNoBound)
      queue.push(
          {bound, order++, std::make_shared<Shape>(std::move(shape)), nullptr});
  }
  bool any = !queue.empty();
  while (!queue.empty()) {
    Entry entry = queue.top();
    queue.pop();
    Picoseconds limit = limitFor(batch);
    if (entry.bound > limit) {
      log(entry.shape->str() + ": rejected, at least " +
          milliseconds(entry.bound) + " whatever its strategies");
      continue;
    }
    if (!entry.candidate) {
      entry.candidate = candidateOf(*entry.shape);
      entry.bound = std::max(entry.bound, entry.candidate->bound());
      if (entry.bound >= kNoBound)
        log(entry.shape->str() + ": rejected, does not fit into memory");
      else
        queue.push(std::move(entry));
      continue;
    }
    std::string name = entry.shape->str();
    ++tried;
    std::optional<Solved> solved = entry.candidate->solve(limit);
    if (!solved) {
      log(name + ": rejected, " +
          (best ? "not faster than the best so far"
                : "does not fit into memory"));
      continue;
    }
    log(name + ": " + milliseconds(solved->cost) + ", the best so far");
    best = Incumbent{*entry.shape, std::move(*solved)};
  }
  return any;
}

Plan Search::toPlan(const Incumbent &incumbent) const {
  const Shape &shape = incumbent.shape;
  Plan plan;
  plan.toolVersion = options.toolVersion;
  plan.space = space.name;
  plan.training = options.training;
  plan.batch = shape.batch;
  plan.microBatches = shape.microBatches;
  plan.schedule = shape.schedule;
  plan.pipelineDegree = shape.pipelineDegree;
  int64_t layer = 0;
  for (size_t s = 0; s < shape.partition.size(); ++s) {
    PlanStage stage;
    stage.devices = shape.devices[s];
    stage.firstLayer = layer;
    stage.layerCount = shape.partition[s];
    plan.stages.push_back(stage);
    for (int64_t i = 0; i < shape.partition[s]; ++i, ++layer)
      plan.layers.push_back(
          {model.layerName(layer), static_cast<int64_t>(s),
           shape.set->strategies[incumbent.solved.strategies[layer]]});
  }
  return plan;
}

std::optional<int64_t> Search::leastExcess(int64_t batch) {
  std::optional<int64_t> least;
  for (const std::shared_ptr<Candidate> &candidate : candidatesOf(batch)) {
    int64_t excess = candidate->memoryNeed().excess();
    least = least ? std::min(*least, excess) : excess;
  }
  return least;
}

Infeasible Search::explain(int64_t batch) {
  Infeasible infeasible;
  std::vector<std::shared_ptr<Candidate>> candidates = candidatesOf(batch);
  if (candidates.empty()) {
    infeasible.reason =
        refusal.empty()
            ? "no pipeline degree and number of micro-batches of space '" +
                  space.name + "' divides a batch of " + std::to_string(batch) +
                  " on " + std::to_string(cluster.deviceCount()) + " devices"
            : refusal;
    if (refusal.empty())
      infeasible.relaxations.push_back("use a batch that is a multiple of " +
                                       std::to_string(cluster.deviceCount()));
    return infeasible;
  }
  std::optional<MemoryNeed> need;
  std::vector<int64_t> devices; ///< of the stage in need
  std::string shape;
  for (const std::shared_ptr<Candidate> &candidate : candidates) {
    MemoryNeed own = candidate->memoryNeed();
    if (need && own.excess() >= need->excess())
      continue;
    need = own;
    shape = candidate->shape().str();
    devices = candidate->shape().devices[own.stage];
  }
  infeasible.reason =
      "no plan of space '" + space.name + "' fits: with the least memory (" +
      shape + ") stage " + std::to_string(need->stage) + " needs " +
      bytesText(need->needed) + ", available are " + bytesText(need->available);
  infeasible.stage = need->stage;
  infeasible.neededBytes = need->needed;
  infeasible.availableBytes = need->available;
  infeasible.ledger = need->ledger;
  infeasible.fittingMemory = cluster.memoryFor(devices, need->needed);
  infeasible.relaxations.push_back("raise the memory of each device to " +
                                   bytesText(infeasible.fittingMemory));
  if (!options.relaxations)
    return infeasible;

  // Each relaxation is tried before it is offered.
  auto helps = [&](PlannerOptions changed, int64_t changedBatch) {
    Expected<Space> other = getSpace(changed, cluster.deviceCount());
    if (!other) {
      consumeError(other.takeError());
      return false;
    }
    Search search(model, cluster, changed, *other);
    std::optional<int64_t> excess = search.leastExcess(changedBatch);
    return excess && *excess <= 0;
  };
  if (options.strategy && !options.strategy->checkpoint()) {
    PlannerOptions changed = options;
    changed.strategy = options.strategy->withCheckpoint(true);
    if (helps(changed, batch))
      infeasible.relaxations.push_back("use strategy '" +
                                       changed.strategy->str() + "'");
  }
  if (options.microBatches) {
    PlannerOptions changed = options;
    changed.microBatches.reset();
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave the number of micro-batches to the search");
  }
  if (options.strategy || options.pipelineDegree) {
    PlannerOptions changed = options;
    changed.strategy.reset();
    changed.pipelineDegree.reset();
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave strategy and pipeline degree to the search");
  }
  if (space.name != "bmw" && space.name != "base") {
    PlannerOptions changed = options;
    changed.space = "base";
    if (helps(changed, batch))
      infeasible.relaxations.push_back("use space 'base'");
  }
  return infeasible;
}

Expected<PlannerResult> Search::run() {
  auto begin = std::chrono::steady_clock::now();
  size_t tried = 0;
  std::vector<int64_t> batches;
  if (options.batch) {
    batches = {*options.batch};
  } else {
    for (int64_t batch = options.batchStep; batch <= options.maxBatch;
         batch += options.batchStep)
      batches.push_back(batch);
  }
  // Cost and batch of the best plan with at most that batch, for the end rule.
  std::map<int64_t, std::pair<Picoseconds, int64_t>> history;
  std::optional<int64_t> firstTried;
  int64_t misfits = 0;
  for (int64_t batch : batches) {
    if (!searchBatch(batch, tried))
      continue;
    firstTried = firstTried.value_or(batch);
    if (options.microBatchRule == MicroBatchRule::Paper) {
      // Algorithm 1: until nothing fits. A batch with awkward divisors may not
      // fit although larger ones do.
      std::optional<int64_t> excess = leastExcess(batch);
      misfits = excess && *excess <= 0 ? 0 : misfits + 1;
      if (misfits < kPaperSweepPatience)
        continue;
      log("batch " + Twine(batch) + ": the sweep ends, nothing fits any more");
      break;
    }
    if (!best)
      continue;
    history[batch] = {best->solved.cost, best->shape.batch};
    // The sweep ends when doubling the batch gained less than half a percent.
    auto half = history.upper_bound(batch / 2);
    if (half != history.begin()) {
      auto [cost, size] = std::prev(half)->second;
      if (!fasterPerSample(best->solved.cost * 201, best->shape.batch,
                           cost * 200, size)) {
        log("batch " + Twine(batch) +
            ": the sweep ends, doubling the batch gained less than 0.5%");
        break;
      }
    }
  }
  double elapsed = std::chrono::duration<double, std::milli>(
                       std::chrono::steady_clock::now() - begin)
                       .count();
  if (!best) {
    int64_t batch = firstTried.value_or(batches.front());
    Infeasible infeasible = explain(batch);
    if (options.relaxations && infeasible.neededBytes > 0)
      relaxInput(model, cluster, options, batch, infeasible);
    log(infeasible.reason);
    return PlannerResult{std::move(infeasible), std::move(decisions)};
  }
  Expected<PlannerResult> priced =
      evaluate(model, cluster, toPlan(*best), options.memory);
  if (!priced)
    return priced.takeError();
  // Two independent sums of the same plan.
  if (!priced->feasible() ||
      priced->plan().iterationMs != toMilliseconds(best->solved.cost))
    return makeError(
        "internal error: the search and the evaluation disagree on " +
        best->shape.str() + ": " + milliseconds(best->solved.cost) + " and " +
        (priced->feasible() ? std::to_string(priced->plan().iterationMs) + " ms"
                            : priced->infeasible().reason));
  Plan plan = priced->plan();
  plan.searchMs = elapsed;
  if (unlogged > 0)
    decisions.push_back(std::to_string(unlogged) +
                        " more decisions like these");
  decisions.push_back("chosen: " + best->shape.str() + ", " +
                      milliseconds(best->solved.cost) + ", after solving " +
                      std::to_string(tried) + " candidates");
  return PlannerResult{std::move(plan), std::move(decisions)};
}

} // namespace

Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options) {
  int64_t devices = cluster.deviceCount();
  auto layers = static_cast<int64_t>(model.layerCount());
  Expected<Space> space = planner::getSpace(options, devices);
  if (!space)
    return space.takeError();
  if (layers < 1)
    return makeError("model '" + model.name() + "' has no layers");
  if (options.batch && *options.batch < 1)
    return makeError("expected a batch of at least 1, found " +
                     Twine(*options.batch));
  if (!options.batch && (options.batchStep < 1 || options.maxBatch < 1))
    return makeError("expected a batch step and a largest batch of at least 1");
  if (!options.batch && options.maxBatch < options.batchStep)
    return makeError("the largest batch " + Twine(options.maxBatch) +
                     " is below the batch step " + Twine(options.batchStep));
  std::string ofBatch =
      options.batch ? " of " + std::to_string(*options.batch) : std::string();
  if (options.microBatches &&
      (*options.microBatches < 1 ||
       (options.batch && *options.batch % *options.microBatches != 0)))
    return makeError(Twine(*options.microBatches) +
                     " micro-batches do not divide the batch" + ofBatch);
  if (options.microBatches && options.microBatchRule == MicroBatchRule::Paper)
    return makeError("expected either a number of micro-batches or a rule for "
                     "it, found both");
  if (options.memory && *options.memory < 1)
    return makeError("expected a memory above 0");
  std::vector<int64_t> all(devices);
  std::iota(all.begin(), all.end(), 0);
  if (cluster.flopsOf(all, model.dtype()) == 0)
    return makeError("cluster '" + cluster.name() +
                     "': a device type has no flops for dtype '" +
                     model.dtype() + "'");
  int64_t fewest = *std::min_element(space->pipelineDegrees.begin(),
                                     space->pipelineDegrees.end());
  if (layers < fewest)
    return makeError("model '" + model.name() + "' has " + Twine(layers) +
                     " layers, fewer than the " + Twine(fewest) +
                     " stages of the pipeline");
  if (options.strategy && options.batch && options.microBatches) {
    int64_t samples = *options.batch / *options.microBatches;
    if (samples % options.strategy->sampleShards() != 0)
      return makeError("strategy '" + options.strategy->str() +
                       "' cuts a micro-batch into " +
                       Twine(options.strategy->sampleShards()) +
                       " blocks, which does not divide its " + Twine(samples) +
                       " samples");
  }
  return Search(model, cluster, options, std::move(*space)).run();
}

} // namespace galvatron
