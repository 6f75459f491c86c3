//===- Planner.cpp - From a model and a cluster to a plan -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"
#include "Candidate.h"
#include "Executed.h"
#include "MicroBatchRule.h"
#include "Spaces.h"

#include "galvatron/Planner/Explain.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Search/QuickPipeline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <limits>
#include <numeric>
#include <set>
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

/// a / b < c / d for positive times (below 2^90) and batches, without rounding.
bool fasterPerSample(__int128 a, int64_t b, __int128 c, int64_t d) {
  return a * d < c * b;
}

/// time + (m - 1) * nosync; what is longer than any pipeline is just below
/// kNoBound, which stands for "nothing fits".
Picoseconds pipelineBound(int64_t microBatches, Picoseconds time,
                          Picoseconds nosync) {
  __int128 sum = static_cast<__int128>(microBatches - 1) * nosync + time;
  return static_cast<Picoseconds>(std::min<__int128>(sum, kNoBound - 1));
}

constexpr uint64_t kNoStepLimit = std::numeric_limits<uint64_t>::max();

/// The whole search of one call.
class Search {
public:
  Search(LayerModel &model, const Cluster &cluster,
         const PlannerOptions &options, Space space)
      : model(model), cluster(cluster), options(options),
        space(std::move(space)), tables(model, cluster, options.objective),
        begin(std::chrono::steady_clock::now()) {
    tables.setCancellation(options.cancellation);
  }

  Expected<PlannerResult> run();

  /// The least excess over the budget of all candidates (negative: fits).
  std::optional<int64_t> leastExcess(int64_t batch);

private:
  struct Incumbent {
    Shape shape;
    Solved solved;
  };
  /// What found a plan: the exact search; quickPipeline(); Algorithm 2.
  enum class Finder { Exact, Quick, Heuristic };

  /// Shapes on their way that differ in nothing but the number of
  /// micro-batches, and hold the same numbers of them in flight. More of them
  /// take less time per sample, whatever the plan, and a little more memory:
  /// the entry stands for the most micro-batches, with the memory of the
  /// fewest. What solves it and fits is better than all the others of the
  /// family. Its bound gets better step by step: without memory, with memory
  /// and without transfers, by bounds, by failed attempts.
  struct Entry {
    Picoseconds bound;
    size_t order;
    Shape shape;
    std::vector<int64_t> fewer; ///< micro-batches of the others, descending
    enum { Free, Shared, Relaxed, Tightened, Open } level = Free;
    std::shared_ptr<Candidate> candidate; ///< of the search
    std::shared_ptr<PipelineSearch> search;
    Picoseconds slack = 0;
  };
  /// The shape with the least bound of time per sample first.
  struct Later {
    bool operator()(const Entry &a, const Entry &b) const {
      __int128 left = static_cast<__int128>(a.bound) * b.shape.batch;
      __int128 right = static_cast<__int128>(b.bound) * a.shape.batch;
      return left != right ? left > right : a.order > b.order;
    }
  };
  using Queue = std::vector<Entry>; ///< a heap by Later

  const Layout *layoutOf(int64_t degree);
  std::vector<int64_t> microBatchesOf(int64_t batch, int64_t degree) const;
  std::vector<Shape> shapesOf(int64_t batch);
  std::unique_ptr<Candidate> candidateOf(const Shape &shape, int64_t fewest = 0,
                                         bool transfers = true);
  /// Enough where only memory is asked for.
  std::unique_ptr<Candidate> leanCandidateOf(const Shape &shape) {
    return candidateOf(shape, /*fewest=*/0, /*transfers=*/false);
  }
  bool openProblem(Entry &entry, bool transfers);
  /// Lets the entry's search take a turn within what is left of time and steps,
  /// and counts its steps. It goes on where it was stopped.
  template <typename Turn> auto inSearchOf(Entry &entry, Turn turn) {
    PipelineSearch &search = *entry.search;
    uint64_t taken = search.statistics().steps;
    uint64_t left = mostSteps - std::min(steps, mostSteps);
    search.setCancellation(options.cancellation);
    search.setMostSteps(taken + std::min(left, kNoStepLimit - taken));
    auto result = turn(search);
    steps += search.statistics().steps - taken;
    return result;
  }
  Shape withMicroBatches(const Shape &shape, int64_t count) const {
    Shape other = shape;
    other.microBatches = count;
    other.batch = count * shape.samples();
    return other;
  }
  std::vector<int64_t> partitionOf(const PipelineProblem &problem) const;
  Picoseconds freeBoundOf(const Shape &shape);
  Picoseconds sharedBoundOf(const Shape &shape);
  bool searchBatches(ArrayRef<int64_t> batches);
  /// Raises the entry's bound, not much above `enough`, or solves it. True if
  /// it is done with.
  bool improve(Entry &entry, Picoseconds enough, Queue &queue);
  bool finish(Entry &entry, const PipelineSolution &found, Queue &queue);
  void giveUp(const Entry &entry, Queue &queue);
  void pushRest(const Entry &entry, Picoseconds bound, Queue &queue);
  void push(Queue &queue, Entry entry) const {
    queue.push_back(std::move(entry));
    std::push_heap(queue.begin(), queue.end(), Later());
  }
  void accept(const Shape &shape, Solved solved, Finder by = Finder::Exact);
  void report(ArrayRef<int64_t> batches, const Queue &queue) const;
  bool rescue(const Queue &queue);
  void reject(const Queue &rest);
  double gapTo(Picoseconds bound, int64_t batch) const;
  void note(const Shape &shape, Picoseconds time, const Solved *solved);
  Picoseconds limitFor(int64_t batch) const;
  double elapsedSeconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  }
  bool late() const {
    return options.cancellation && options.cancellation->requested();
  }
  /// Time is up, or the batches searched have had their steps.
  bool spent() const { return steps >= mostSteps || late(); }
  std::vector<std::vector<int64_t>> batchGroups() const;
  bool fits(ArrayRef<int64_t> batches);
  std::optional<Picoseconds> compareHeuristic();
  Expected<PlannerResult> price(const Incumbent &found);
  void addAlternatives();
  void priceRest(Queue &queue);
  void proveRest(ArrayRef<std::vector<int64_t>> groups);
  Plan toPlan(const Incumbent &best) const;
  Infeasible explain(int64_t batch);
  void log(const Twine &text) { decisions.push_back(text.str()); }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  Space space;
  CostTables tables;
  std::chrono::steady_clock::time_point begin;
  std::map<int64_t, StrategySet> sets; ///< by group size
  std::map<int64_t, Layout> layouts;   ///< by pipeline degree
  /// By pipeline degree, samples of a micro-batch, and micro-batches as far as
  /// times depend on them.
  std::map<std::tuple<int64_t, int64_t, int64_t>, FreeBound> freeBounds;
  /// The same, and micro-batches as far as memory depends on them.
  std::map<std::tuple<int64_t, int64_t, int64_t>, PipelineBounds> sharedBounds;
  std::optional<Incumbent> best;
  std::vector<Incumbent> alternatives; ///< to the best, by the formula
  Finder finder = Finder::Exact;       ///< of the best plan
  double gapPercent = 0;
  /// Some shape was not priced before time was up: no gap is proven.
  bool unpriced = false;
  std::map<std::pair<int64_t, int64_t>, RunnerUp> runnersUp;
  std::vector<std::string> decisions;
  std::string refusal;
  /// Shapes that were not searched, and what they take at least.
  struct LeftOut {
    Picoseconds bound;
    int64_t batch;
  };
  std::vector<LeftOut> leftOut;
  size_t solvedCount = 0, order = 0;
  uint64_t steps = 0;     ///< of all searches within shapes so far
  uint64_t mostSteps = 0; ///< at which the batches at hand are given up
  bool givenUp = false;   ///< some batches were
};

const Layout *Search::layoutOf(int64_t degree) {
  auto [it, fresh] = layouts.try_emplace(degree);
  Layout &layout = it->second;
  if (!fresh)
    return &layout;
  int64_t devices = cluster.deviceCount();
  auto [set, isNew] = sets.try_emplace(devices / degree);
  if (isNew)
    set->second = StrategySet::make(space.strategies(devices / degree));
  layout.degree = degree;
  layout.set = &set->second;
  layout.devices = stageDevices(devices, degree);
  for (size_t s = 0; s < layout.devices.size(); ++s) {
    layout.memory.push_back(
        cluster.budgetOf(layout.devices[s], options.memory));
    layout.backend.push_back(
        backendTraits(cluster.backendOf(layout.devices[s])));
    layout.place.push_back(tables.placeOf(layout.devices[s]));
    if (s > 0)
      layout.cutPlace.push_back(
          tables.placeOf(layout.devices[s - 1], layout.devices[s]));
  }
  return &layout;
}

std::vector<int64_t> Search::microBatchesOf(int64_t batch,
                                            int64_t degree) const {
  if (options.microBatches)
    return batch % *options.microBatches == 0
               ? std::vector<int64_t>{*options.microBatches}
               : std::vector<int64_t>();
  if (options.microBatchRule == MicroBatchRule::Search)
    return divisors(batch);
  std::optional<int64_t> fixed =
      paperMicroBatches(batch, degree, cluster.deviceCount() / degree,
                        options.schedule.value_or(ScheduleKind::OneFOneB));
  return fixed ? std::vector<int64_t>{*fixed} : std::vector<int64_t>();
}

std::vector<Shape> Search::shapesOf(int64_t batch) {
  std::vector<Shape> shapes;
  auto layers = static_cast<int64_t>(model.layerCount());
  for (int64_t degree : space.pipelineDegrees) {
    if (degree > layers)
      continue;
    const Layout *layout = layoutOf(degree);
    for (int64_t microBatches : microBatchesOf(batch, degree)) {
      int64_t samples = batch / microBatches;
      // A strategy that does not divide the samples is left out; a number of
      // micro-batches that leaves none is no shape.
      if (none_of(layout->set->strategies, [&](const Strategy &strategy) {
            return samples % strategy.sampleShards() == 0;
          }))
        continue;
      shapes.push_back({batch, microBatches,
                        options.schedule.value_or(ScheduleKind::OneFOneB),
                        layout});
    }
  }
  return shapes;
}

/// The partition that the space prescribes; empty if it is searched.
std::vector<int64_t> Search::partitionOf(const PipelineProblem &problem) const {
  switch (space.partition) {
  case PartitionMode::Free:
  case PartitionMode::BiObjective:
    return {};
  case PartitionMode::Even:
    return evenPartition(static_cast<int64_t>(problem.layerCount()),
                         static_cast<int64_t>(problem.stages.size()));
  case PartitionMode::TimeBalanced:
    return timeBalanced(problem);
  case PartitionMode::MemoryBalanced:
    return memoryBalanced(problem);
  case PartitionMode::Given:
    return options.partition;
  }
  return {};
}

std::unique_ptr<Candidate> Search::candidateOf(const Shape &shape,
                                               int64_t fewest, bool transfers) {
  std::string reason;
  std::unique_ptr<Candidate> candidate =
      Candidate::make(model, tables, shape, reason, fewest, transfers);
  if (!candidate) {
    if (tables.incomplete())
      return nullptr;
    log(shape.str() + ": rejected, " + reason);
    if (refusal.empty())
      refusal = reason;
    return nullptr;
  }
  candidate->setPartition(partitionOf(candidate->problem()));
  return candidate;
}

Picoseconds Search::freeBoundOf(const Shape &shape) {
  auto [it, fresh] =
      freeBounds.try_emplace({shape.degree(), shape.samples(),
                              tables.sharesCores() ? shape.microBatches : 0});
  if (fresh) {
    it->second = freeBound(model, tables, shape);
    if (tables.incomplete()) {
      freeBounds.erase(it);
      return 0;
    }
  }
  if (it->second.time >= kNoBound)
    return kNoBound;
  return pipelineBound(shape.microBatches, it->second.time, it->second.nosync);
}

/// A bound that all shapes share whose stages hold the same numbers of
/// micro-batches: made for the fewest, of which data takes least memory. With
/// one stage a single cost decides, which depends on all micro-batches.
Picoseconds Search::sharedBoundOf(const Shape &shape) {
  int64_t microBatches = shape.microBatches;
  if (shape.schedule == ScheduleKind::OneFOneB && shape.degree() > 1 &&
      !tables.sharesCores())
    microBatches = std::min(microBatches, shape.degree());
  auto [it, fresh] =
      sharedBounds.try_emplace({shape.degree(), shape.samples(), microBatches});
  if (fresh) {
    Shape fewest = shape;
    fewest.microBatches = microBatches;
    fewest.batch = microBatches * shape.samples();
    std::string reason;
    std::unique_ptr<Candidate> candidate = Candidate::make(
        model, tables, fewest, reason, /*fewest=*/0, /*transfers=*/false);
    if (!candidate && tables.incomplete()) {
      sharedBounds.erase(it);
      return 0;
    }
    // A problem that cannot be posed says nothing about what fits.
    it->second = candidate ? PipelineSearch::bounds(candidate->problem())
                           : PipelineBounds{};
  }
  const PipelineBounds &bounds = it->second;
  if (bounds.time >= kNoBound || bounds.nosync >= kNoBound)
    return kNoBound;
  return pipelineBound(shape.microBatches, bounds.time, bounds.nosync);
}

/// The most that a plan of this batch may cost to be better than the best.
Picoseconds Search::limitFor(int64_t batch) const {
  if (!best)
    return kNoBound;
  __int128 product = static_cast<__int128>(best->solved.cost) * batch;
  return static_cast<Picoseconds>((product - 1) / best->shape.batch);
}

static double samplesPerSecond(const Shape &shape, Picoseconds time) {
  return static_cast<double>(shape.batch) * 1e12 /
         static_cast<double>(std::max<Picoseconds>(time, 1));
}

void Search::note(const Shape &shape, Picoseconds time, const Solved *solved) {
  RunnerUp fresh;
  fresh.batch = shape.batch;
  fresh.pipelineDegree = shape.degree();
  fresh.microBatches = shape.microBatches;
  fresh.iterationMs = toMilliseconds(time);
  fresh.samplesPerSecond = samplesPerSecond(shape, time);
  fresh.exact = solved != nullptr;
  if (solved)
    fresh.partition = solved->partition;
  auto [it, isNew] =
      runnersUp.try_emplace({fresh.pipelineDegree, fresh.microBatches}, fresh);
  if (!isNew && fresh.samplesPerSecond > it->second.samplesPerSecond)
    it->second = fresh;
}

void Search::accept(const Shape &shape, Solved solved, Finder by) {
  note(shape, solved.cost, &solved);
  finder = by;
  log(shape.str() + ": " + milliseconds(solved.cost) + ", the best so far");
  // What was the best for a while may be executed faster.
  if (best)
    alternatives.push_back(std::move(*best));
  best = Incumbent{shape, std::move(solved)};
}

/// By how many percent a plan of that cost would be faster than the best.
double Search::gapTo(Picoseconds bound, int64_t batch) const {
  double other = static_cast<double>(std::max<Picoseconds>(bound, 1)) /
                 static_cast<double>(batch);
  double own = static_cast<double>(best->solved.cost) /
               static_cast<double>(best->shape.batch);
  return std::max(0.0, (own / other - 1) * 100);
}

/// Takes over a family's solution. One that does not fit where it has to leaves
/// its shape to be solved on its own, and the rest of the family.
bool Search::finish(Entry &entry, const PipelineSolution &found, Queue &queue) {
  const Shape shape = entry.shape;
  if (entry.fewer.empty()) {
    accept(shape, entry.candidate->toSolved(found));
    return true;
  }
  std::unique_ptr<Candidate> own = candidateOf(shape);
  if (own &&
      evaluatePipeline(own->problem(), found.partition, found.choice).fits) {
    accept(shape, own->toSolved(found));
    return true;
  }
  Entry alone;
  alone.bound = found.cost;
  alone.order = order++;
  alone.shape = shape;
  alone.level = Entry::Shared;
  push(queue, std::move(alone));
  pushRest(entry, found.cost, queue);
  return true;
}

/// Queues a family without its most micro-batches. `bound` is that of all of
/// it.
void Search::pushRest(const Entry &entry, Picoseconds bound, Queue &queue) {
  Entry rest;
  rest.shape = withMicroBatches(entry.shape, entry.fewer.front());
  rest.fewer.assign(entry.fewer.begin() + 1, entry.fewer.end());
  // Per sample no faster than the whole family.
  rest.bound = static_cast<Picoseconds>(static_cast<__int128>(bound) *
                                        rest.shape.batch / entry.shape.batch);
  rest.order = order++;
  rest.level = Entry::Shared;
  push(queue, std::move(rest));
}

/// Leaves out a shape whose times or bytes are too large to be summed. It may
/// be the best one, so that its bound counts in what is proven; the others of
/// its family may be summed.
void Search::giveUp(const Entry &entry, Queue &queue) {
  leftOut.push_back({entry.bound, entry.shape.batch});
  if (!entry.fewer.empty())
    pushRest(entry, entry.bound, queue);
}

/// Makes the entry's problem; false if it cannot be posed.
bool Search::openProblem(Entry &entry, bool transfers) {
  int64_t fewest = entry.fewer.empty() ? 0 : entry.fewer.back();
  entry.search.reset();
  entry.candidate = candidateOf(entry.shape, fewest, transfers);
  if (!entry.candidate)
    return false;
  entry.search = std::make_shared<PipelineSearch>(entry.candidate->problem());
  return true;
}

/// Stages of so many devices have large tables of transfers.
constexpr int64_t kManyDevices = 128;

bool Search::improve(Entry &entry, Picoseconds enough, Queue &queue) {
  const Shape &shape = entry.shape;
  Picoseconds limit = limitFor(shape.batch);
  if (entry.level == Entry::Free) {
    entry.level = Entry::Shared;
    entry.bound = std::max(entry.bound, sharedBoundOf(shape));
    return entry.bound >= kNoBound;
  }
  Picoseconds most = std::min(limit, enough);
  if (entry.level == Entry::Shared) {
    bool relaxed = cluster.deviceCount() / shape.degree() >= kManyDevices &&
                   space.partition == PartitionMode::Free;
    entry.level = relaxed ? Entry::Relaxed : Entry::Tightened;
    if (!openProblem(entry, /*transfers=*/!relaxed)) {
      if (tables.incomplete())
        return false;
      giveUp(entry, queue);
      return true;
    }
  }
  if (entry.level == Entry::Relaxed) {
    // The moves between layers are dear to price: only for what is as good
    // without them.
    bool found = inSearchOf(entry, [&](PipelineSearch &search) {
      return search.solve(most).has_value();
    });
    entry.bound = std::max(entry.bound, entry.search->lowerBound());
    if (!found)
      return entry.bound >= kNoBound;
    entry.level = Entry::Tightened;
    if (!openProblem(entry, /*transfers=*/true)) {
      if (tables.incomplete())
        return false;
      giveUp(entry, queue);
      return true;
    }
  }
  if (entry.level == Entry::Tightened) {
    entry.bound =
        std::max(entry.bound, inSearchOf(entry, [&](PipelineSearch &search) {
                   return search.tighten(most);
                 }));
    if (entry.bound <= most) {
      entry.level = Entry::Open;
      entry.slack = std::max<Picoseconds>(16, entry.bound / 2000);
    }
    return entry.bound >= kNoBound;
  }
  ++solvedCount;
  if (space.partition == PartitionMode::BiObjective && shape.degree() > 1) {
    BiObjectiveResult found =
        biObjective(entry.candidate->problem(), options.cancellation);
    if (found.best) {
      Solved solved = entry.candidate->toSolved(*found.best);
      if (solved.cost <= limit)
        accept(shape, std::move(solved), Finder::Heuristic);
      else
        note(shape, solved.cost, &solved);
    }
    return true;
  }
  // Guess that the optimum is close to the bound; a failed guess is a bound.
  Picoseconds guess = std::min(limit, entry.bound + entry.slack);
  entry.slack *= 2;
  std::optional<PipelineSolution> found = inSearchOf(
      entry, [&](PipelineSearch &search) { return search.attempt(guess); });
  if (found && !entry.search->stopped())
    return finish(entry, *found, queue);
  if (found && entry.fewer.empty())
    accept(shape, entry.candidate->toSolved(*found));
  entry.bound = std::max(entry.bound, entry.search->lowerBound());
  return entry.bound >= kNoBound;
}

/// For what is left to do once time is up, beyond what must be done: with the
/// rest it stays below half a second.
constexpr double kGraceSeconds = 0.2;

/// Time is up and there is no plan: the best of a few quick ones for the shapes
/// with the least bounds, or the leanest one of the first shape that has one.
bool Search::rescue(const Queue &queue) {
  // What is needed for one plan is priced whatever the time; others only if
  // they take no longer than this.
  Cancellation grace;
  grace.setSeconds(kGraceSeconds);
  tables.setCancellation(nullptr);
  bool hurried = late();
  auto enough = [&] { return best && hurried && grace.requested(); };
  Queue sorted = queue;
  llvm::sort(sorted,
             [](const Entry &a, const Entry &b) { return Later()(b, a); });
  constexpr size_t most = 12;
  size_t tried = 0;
  for (const Entry &entry : sorted) {
    // Where stages are large, moves are dear to price.
    if (cluster.deviceCount() / entry.shape.degree() >= kManyDevices)
      continue;
    std::unique_ptr<Candidate> candidate = candidateOf(entry.shape);
    if (!candidate)
      continue;
    const PipelineProblem &problem = candidate->problem();
    std::vector<std::vector<int64_t>> partitions = {problem.partition};
    if (problem.partition.empty())
      partitions = {timeBalanced(problem), memoryBalanced(problem),
                    evenPartition(static_cast<int64_t>(problem.layerCount()),
                                  entry.shape.degree())};
    for (const std::vector<int64_t> &partition : partitions) {
      std::optional<PipelineSolution> found = quickPipeline(problem, partition);
      if (found &&
          (!best || fasterPerSample(found->cost, entry.shape.batch,
                                    best->solved.cost, best->shape.batch)))
        accept(entry.shape, candidate->toSolved(*found), Finder::Quick);
    }
    if (++tried == most || enough())
      break;
  }
  if (best) {
    tables.setCancellation(options.cancellation);
    return true;
  }
  for (const Entry &entry : sorted) {
    std::unique_ptr<Candidate> candidate = candidateOf(entry.shape);
    if (!candidate)
      continue;
    PipelineNeed need = leastNeed(candidate->problem());
    if (need.excess > 0)
      continue;
    need.solution.cost =
        evaluatePipeline(candidate->problem(), need.solution.partition,
                         need.solution.choice)
            .cost;
    accept(entry.shape, candidate->toSolved(need.solution), Finder::Quick);
    break;
  }
  tables.setCancellation(options.cancellation);
  return best.has_value();
}

/// What is left in the queue once no shape of it can be better.
void Search::reject(const Queue &rest) {
  Queue sorted = rest;
  llvm::sort(sorted,
             [](const Entry &a, const Entry &b) { return Later()(b, a); });
  // A sweep leaves thousands; the nearest ones tell the story.
  constexpr size_t most = 40;
  for (size_t i = 0; i < sorted.size(); ++i) {
    note(sorted[i].shape, sorted[i].bound, nullptr);
    if (i < most)
      log(sorted[i].shape.str() + ": rejected, at least " +
          milliseconds(sorted[i].bound) + " whatever its strategies");
  }
  if (sorted.size() > most)
    log("and " + Twine(sorted.size() - most) +
        " more: rejected, slower per sample than these");
}

void Search::report(ArrayRef<int64_t> batches, const Queue &queue) const {
  if (!options.progress)
    return;
  PlannerProgress progress;
  progress.batch = batches.back();
  progress.solved = solvedCount;
  progress.open = queue.size();
  if (best) {
    progress.samplesPerSecond =
        samplesPerSecond(best->shape, best->solved.cost);
    if (const Entry &next = queue.front(); next.bound > 0)
      progress.gapPercent = gapTo(next.bound, next.shape.batch);
  }
  options.progress(progress);
}

/// Best-first over all shapes of some batches, against the best so far. False
/// if there is no shape.
bool Search::searchBatches(ArrayRef<int64_t> batches) {
  Queue queue;
  bool any = false;
  // Heuristics promise nothing for other shapes than their own. And where cores
  // are shared more micro-batches make each of them slower.
  bool families =
      space.partition != PartitionMode::BiObjective && !tables.sharesCores();
  std::map<std::pair<int64_t, int64_t>, size_t> familyOf;
  for (int64_t batch : batches)
    for (Shape &shape : shapesOf(batch)) {
      any = true;
      Entry entry;
      entry.bound = freeBoundOf(shape);
      entry.order = order++;
      entry.shape = shape;
      if (entry.bound >= kNoBound) {
        if (refusal.empty())
          candidateOf(shape);
        continue;
      }
      if (families && shape.schedule == ScheduleKind::OneFOneB &&
          shape.microBatches >= shape.degree()) {
        auto [it, fresh] = familyOf.try_emplace(
            {shape.degree(), shape.samples()}, queue.size());
        if (!fresh) {
          // Batches ascend.
          Entry &known = queue[it->second];
          entry.fewer = std::move(known.fewer);
          entry.fewer.insert(entry.fewer.begin(), known.shape.microBatches);
          known = std::move(entry);
          continue;
        }
      }
      queue.push_back(std::move(entry));
    }
  std::make_heap(queue.begin(), queue.end(), Later());
  while (!queue.empty()) {
    const Entry &next = queue.front();
    report(batches, queue);
    if (!best && spent() && !rescue(queue)) {
      // Nothing fits, which explain() says.
      if (late())
        break;
      mostSteps = kNoStepLimit;
    }
    if (best) {
      bool done = next.bound > limitFor(next.shape.batch);
      if (next.bound == 0 && late()) {
        priceRest(queue);
        unpriced |= queue.front().bound == 0;
        if (queue.front().bound > 0)
          continue;
      }
      double gap = done ? 0 : gapTo(next.bound, next.shape.batch);
      if (done || gap <= options.gapPercent || spent()) {
        if (!done && gap > options.gapPercent && steps >= mostSteps) {
          givenUp = true;
          log("batch " + Twine(batches.back()) + ": the search ends after " +
              Twine(steps) + " steps, within " +
              Twine(formatv("{0:f2}", gap).str()) + "% of the optimum");
        }
        gapPercent = std::max(gapPercent, gap);
        break;
      }
    }
    std::pop_heap(queue.begin(), queue.end(), Later());
    Entry entry = std::move(queue.back());
    queue.pop_back();
    // A bound that is a little above the next one's has done its duty; much
    // less, and two shapes take many turns.
    Picoseconds enough = kNoBound;
    if (!queue.empty())
      enough = static_cast<Picoseconds>(std::min<__int128>(
          kNoBound, static_cast<__int128>(queue.front().bound) *
                        entry.shape.batch * 104 /
                        (queue.front().shape.batch * 100)));
    if (!improve(entry, enough, queue)) {
      push(queue, std::move(entry));
    } else if (entry.bound >= kNoBound) {
      log(entry.shape.str() + ": rejected, does not fit into memory");
    }
  }
  reject(queue);
  return any;
}

/// The batches of a sweep by doublings: the sweep may end after each group.
/// Under the paper's rule batch by batch.
std::vector<std::vector<int64_t>> Search::batchGroups() const {
  if (options.batch)
    return {{*options.batch}};
  bool paper = options.microBatchRule == MicroBatchRule::Paper;
  constexpr int64_t farthest = int64_t(1) << 17;
  int64_t most = paper ? farthest : options.maxBatch;
  std::vector<std::vector<int64_t>> groups;
  for (int64_t end = options.batchStep, batch = options.batchStep;
       batch <= most;) {
    groups.emplace_back();
    if (paper) {
      groups.back().push_back(batch);
      batch += options.batchStep;
      continue;
    }
    for (; batch <= std::min(end, most); batch += options.batchStep)
      groups.back().push_back(batch);
    end *= 2;
  }
  return groups;
}

/// Bounds of the entries that were not priced before time was up.
void Search::priceRest(Queue &queue) {
  Cancellation grace;
  grace.setSeconds(kGraceSeconds);
  tables.setCancellation(&grace);
  for (Entry &entry : queue)
    if (entry.bound == 0)
      entry.bound = freeBoundOf(entry.shape);
  tables.setCancellation(options.cancellation);
  std::make_heap(queue.begin(), queue.end(), Later());
}

/// What is proven holds for all batches that the sweep would have seen. Their
/// layers may have to be priced for that: only for so long.
void Search::proveRest(ArrayRef<std::vector<int64_t>> groups) {
  Cancellation grace;
  grace.setSeconds(unpriced ? 0 : kGraceSeconds);
  if (late())
    tables.setCancellation(&grace);
  for (const std::vector<int64_t> &group : groups)
    for (int64_t batch : group)
      for (const Shape &shape : shapesOf(batch)) {
        Picoseconds bound = freeBoundOf(shape);
        if (bound > limitFor(shape.batch))
          continue;
        unpriced |= bound == 0;
        gapPercent = std::max(gapPercent, gapTo(bound, shape.batch));
        if (unpriced)
          return tables.setCancellation(options.cancellation);
      }
  tables.setCancellation(options.cancellation);
}

Plan Search::toPlan(const Incumbent &incumbent) const {
  const Shape &shape = incumbent.shape;
  Plan plan;
  plan.toolVersion = options.toolVersion;
  plan.space = space.name;
  plan.training = options.training;
  plan.objective = options.objective;
  plan.batch = shape.batch;
  plan.microBatches = shape.microBatches;
  plan.schedule = shape.schedule;
  plan.pipelineDegree = shape.degree();
  int64_t layer = 0;
  const std::vector<int64_t> &partition = incumbent.solved.partition;
  for (size_t s = 0; s < partition.size(); ++s) {
    PlanStage stage;
    stage.devices = shape.layout->devices[s];
    stage.firstLayer = layer;
    stage.layerCount = partition[s];
    plan.stages.push_back(stage);
    for (int64_t i = 0; i < partition[s]; ++i, ++layer)
      plan.layers.push_back(
          {model.layerName(layer), static_cast<int64_t>(s),
           shape.layout->set->strategies[incumbent.solved.strategies[layer]]});
  }
  return plan;
}

std::optional<int64_t> Search::leastExcess(int64_t batch) {
  std::optional<int64_t> least;
  for (const Shape &shape : shapesOf(batch))
    if (std::unique_ptr<Candidate> candidate = leanCandidateOf(shape)) {
      int64_t excess = leastNeed(candidate->problem()).excess;
      least = least ? std::min(*least, excess) : excess;
    }
  return least;
}

Infeasible Search::explain(int64_t batch) {
  Infeasible infeasible;
  std::optional<MemoryNeed> need;
  std::vector<int64_t> devices; ///< of the stage in need
  std::string name;
  // Memory must be priced to say what is missing; once time is up, of one
  // shape.
  tables.setCancellation(nullptr);
  for (const Shape &shape : shapesOf(batch)) {
    if (need && late())
      break;
    std::unique_ptr<Candidate> candidate = leanCandidateOf(shape);
    if (!candidate)
      continue;
    MemoryNeed own = candidate->memoryNeed(model);
    if (need && own.excess() >= need->excess())
      continue;
    need = own;
    name = shape.str();
    devices = shape.layout->devices[own.stage];
  }
  if (!need) {
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
  infeasible.reason =
      "no plan of space '" + space.name + "' fits: with the least memory (" +
      name + ") stage " + std::to_string(need->stage) + " needs " +
      bytesText(need->needed) + ", available are " + bytesText(need->available);
  infeasible.stage = need->stage;
  infeasible.neededBytes = need->needed;
  infeasible.availableBytes = need->available;
  infeasible.ledger = need->ledger;
  infeasible.fittingMemory = cluster.memoryFor(devices, need->needed);
  infeasible.relaxations.push_back("raise the memory of each device to " +
                                   bytesText(infeasible.fittingMemory));
  if (!options.relaxations || late())
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
    return excess && *excess <= 0 && !late();
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
  if (options.strategy || options.pipelineDegree ||
      !options.partition.empty()) {
    PlannerOptions changed = options;
    changed.strategy.reset();
    changed.pipelineDegree.reset();
    changed.partition.clear();
    if (helps(changed, batch))
      infeasible.relaxations.push_back(
          "leave strategy, pipeline degree and partition to the search");
  }
  if (space.name != "bmw") {
    PlannerOptions changed = options;
    changed.space = "bmw";
    if (helps(changed, batch))
      infeasible.relaxations.push_back("use space 'bmw'");
  }
  return infeasible;
}

/// Whether some plan of these batches fits.
bool Search::fits(ArrayRef<int64_t> batches) {
  for (int64_t batch : batches)
    for (const Shape &shape : shapesOf(batch)) {
      if (freeBoundOf(shape) >= kNoBound ||
          (shape.degree() > 1 && sharedBoundOf(shape) >= kNoBound))
        continue;
      if (std::unique_ptr<Candidate> candidate = leanCandidateOf(shape))
        if (leastNeed(candidate->problem()).excess <= 0)
          return true;
    }
  return false;
}

/// A partition far from the best one can be harder to solve than the whole
/// search was: what it loses is not worth more than a fraction of a second.
constexpr uint64_t kHeuristicSteps = 4'000'000;

/// What Algorithm 2 makes of the shape that the exact search chose, as far as
/// it gets.
std::optional<Picoseconds> Search::compareHeuristic() {
  if (space.partition != PartitionMode::Free || best->shape.degree() == 1)
    return std::nullopt;
  std::unique_ptr<Candidate> candidate = candidateOf(best->shape);
  if (!candidate)
    return std::nullopt;
  BiObjectiveResult found =
      biObjective(candidate->problem(), options.cancellation,
                  gapPercent > 0 ? 0 : best->solved.cost, kHeuristicSteps);
  if (found.stopped)
    log("the bi-objective heuristic is stopped after " + Twine(found.visited) +
        " partitions");
  if (!found.best) {
    if (!found.stopped)
      log("the bi-objective heuristic finds no plan that fits");
    return std::nullopt;
  }
  log("the bi-objective heuristic takes " + milliseconds(found.best->cost) +
      " after " + Twine(found.visited) + " partitions");
  // Only where the exact search was stopped early.
  if (found.best->cost < best->solved.cost) {
    best->solved = candidate->toSolved(*found.best);
    finder = Finder::Heuristic;
  }
  return found.best->cost;
}

/// Evaluates a plan that was found. Errors: two independent sums of it differ.
Expected<PlannerResult> Search::price(const Incumbent &found) {
  Expected<PlannerResult> priced =
      evaluate(model, cluster, toPlan(found), options.memory);
  if (!priced)
    return priced;
  if (!priced->feasible() ||
      priced->formulaMs != toMilliseconds(found.solved.cost))
    return makeError(
        "internal error: the search and the evaluation disagree on " +
        found.shape.str() + ": " + milliseconds(found.solved.cost) + " and " +
        (priced->feasible() ? std::to_string(priced->formulaMs) + " ms"
                            : priced->infeasible().reason));
  return priced;
}

/// How much slower by the formula a plan may be and still be simulated: 1F1B
/// takes 0.82 to 1.00 of it (docs/simulator.md, "Bounds").
constexpr int64_t kRivalPercent = 110;
/// So many plans are simulated besides the best one.
constexpr size_t kMostRivals = 2;
/// Steps of the search for one rival: some hundredths of a second.
constexpr uint64_t kRivalSteps = 100'000;

/// The formula and the simulator may disagree on which of two plans is faster,
/// most of all on pipelines of other degrees: the best plan of some of them.
void Search::addAlternatives() {
  auto within = [&](Picoseconds cost, int64_t batch) {
    return static_cast<__int128>(cost) * 100 * best->shape.batch <=
           static_cast<__int128>(best->solved.cost) * kRivalPercent * batch;
  };
  erase_if(alternatives, [&](const Incumbent &other) {
    return !within(other.solved.cost, other.shape.batch);
  });
  // The latest are the fastest; one of each degree.
  std::vector<Incumbent> rivals;
  std::set<int64_t> degrees = {best->shape.degree()};
  for (Incumbent &other : llvm::reverse(alternatives))
    if (degrees.insert(other.shape.degree()).second)
      rivals.push_back(std::move(other));
  std::vector<std::pair<Picoseconds, Shape>> shapes;
  if (rivals.size() < kMostRivals && !late())
    for (const Shape &shape : shapesOf(best->shape.batch))
      if (Picoseconds bound = freeBoundOf(shape);
          !degrees.count(shape.degree()) && within(bound, shape.batch))
        shapes.push_back({bound, shape});
  llvm::sort(shapes, [](const auto &a, const auto &b) {
    return std::tuple(a.first, a.second.degree(), a.second.microBatches) <
           std::tuple(b.first, b.second.degree(), b.second.microBatches);
  });
  for (const auto &[bound, shape] : shapes) {
    if (rivals.size() >= kMostRivals || late())
      break;
    // The first of each degree that memory leaves as fast.
    if (degrees.count(shape.degree()) ||
        (shape.degree() > 1 && !within(sharedBoundOf(shape), shape.batch)))
      continue;
    degrees.insert(shape.degree());
    std::unique_ptr<Candidate> candidate = candidateOf(shape);
    if (!candidate)
      continue;
    PipelineSearch search(candidate->problem());
    search.setCancellation(options.cancellation);
    search.setMostSteps(kRivalSteps);
    auto most = static_cast<Picoseconds>(
        static_cast<__int128>(best->solved.cost) * kRivalPercent / 100);
    if (std::optional<PipelineSolution> found = search.solve(most))
      rivals.push_back({shape, candidate->toSolved(*found)});
    steps += search.statistics().steps;
  }
  if (rivals.size() > kMostRivals)
    rivals.resize(kMostRivals);
  alternatives = std::move(rivals);
}

Expected<PlannerResult> Search::run() {
  std::optional<int64_t> firstTried;
  int64_t misfits = 0;
  std::vector<std::vector<int64_t>> groups = batchGroups();
  size_t searched = 0;
  bool cutShort = false;
  for (const std::vector<int64_t> &group : groups) {
    ++searched;
    mostSteps = options.mostSteps == 0
                    ? kNoStepLimit
                    : steps + std::min(options.mostSteps, kNoStepLimit - steps);
    std::optional<Incumbent> before = best;
    if (searchBatches(group) && !firstTried)
      firstTried = *llvm::find_if(
          group, [&](int64_t batch) { return !shapesOf(batch).empty(); });
    if (late()) {
      cutShort = true;
      break;
    }
    if (options.microBatchRule == MicroBatchRule::Paper && !options.batch) {
      // Algorithm 1: until nothing fits. A batch with awkward divisors may not
      // fit although larger ones do.
      bool better = best && best->shape.batch == group.back();
      misfits = better || shapesOf(group.back()).empty() || fits(group)
                    ? 0
                    : misfits + 1;
      if (misfits < kPaperSweepPatience)
        continue;
      log("batch " + Twine(group.back()) +
          ": the sweep ends, nothing fits any more");
      break;
    }
    // The sweep ends when doubling the batch gained less than half a percent.
    if (before &&
        !fasterPerSample(static_cast<__int128>(best->solved.cost) * 201,
                         best->shape.batch,
                         static_cast<__int128>(before->solved.cost) * 200,
                         before->shape.batch)) {
      log("batch " + Twine(group.back()) +
          ": the sweep ends, doubling the batch gained less than 0.5%");
      // It might have gained more.
      cutShort = givenUp;
      break;
    }
  }
  if (!best) {
    int64_t batch =
        firstTried.value_or(options.batch.value_or(options.batchStep));
    Infeasible infeasible = explain(batch);
    if (options.relaxations && infeasible.neededBytes > 0 && !late())
      relaxInput(model, cluster, options, batch, infeasible);
    log(infeasible.reason);
    return PlannerResult{
        std::move(infeasible), std::move(decisions), {}, steps};
  }
  if (cutShort)
    proveRest(ArrayRef(groups).drop_front(searched));
  for (const LeftOut &shape : leftOut)
    if (shape.bound <= limitFor(shape.batch))
      gapPercent = std::max(gapPercent, gapTo(shape.bound, shape.batch));
  // Beside a simulated time the formula's time of another plan says nothing.
  bool paper = options.objective == Objective::Paper;
  std::optional<Picoseconds> heuristic;
  if (!late() && (paper || gapPercent > 0))
    heuristic = compareHeuristic();
  if (paper)
    alternatives.clear();
  else
    addAlternatives();
  Expected<PlannerResult> priced = price(*best);
  if (!priced)
    return priced.takeError();
  for (const Incumbent &other : alternatives) {
    // One plan there must be; its rivals are for the time that is left.
    if (late())
      break;
    Expected<double> least = leastExecutedMs(model, cluster, toPlan(other));
    if (!least)
      return least.takeError();
    if (static_cast<double>(other.shape.batch) * 1e3 <=
        *least * priced->plan().samplesPerSecond) {
      log(other.shape.str() + ": executed in at least " +
          Twine(formatv("{0:f3}", *least).str()) + " ms");
      continue;
    }
    Expected<PlannerResult> rival = price(other);
    if (!rival)
      return rival.takeError();
    log(other.shape.str() + ": executed in " +
        Twine(formatv("{0:f3}", rival->plan().iterationMs).str()) + " ms");
    if (rival->plan().samplesPerSecond <= priced->plan().samplesPerSecond)
      continue;
    priced = std::move(rival);
    best = other;
  }
  Plan plan = priced->plan();
  plan.searchMs = elapsedSeconds() * 1e3;
  bool heuristicSpace = space.partition == PartitionMode::BiObjective;
  if (heuristicSpace)
    finder = Finder::Heuristic;
  plan.foundBy = finder == Finder::Exact   ? "exact"
                 : finder == Finder::Quick ? "quick"
                                           : "heuristic";
  // A heuristic proves nothing about the space.
  if (!heuristicSpace && !unpriced)
    plan.provenGapPercent = gapPercent;
  plan.heuristicMs = heuristic && paper ? toMilliseconds(*heuristic) : 0;
  log("chosen: " + best->shape.str() + ", " + milliseconds(best->solved.cost) +
      ", after solving " + Twine(solvedCount) + " problems");
  PlannerResult result{
      std::move(plan), std::move(decisions), {}, steps, priced->formulaMs};
  // Another entry may stand for the same shape with another batch.
  runnersUp.erase({best->shape.degree(), best->shape.microBatches});
  for (const auto &[key, runnerUp] : runnersUp)
    result.runnersUp.push_back(runnerUp);
  llvm::sort(result.runnersUp, [](const RunnerUp &a, const RunnerUp &b) {
    return std::tie(b.samplesPerSecond, a.pipelineDegree, a.microBatches) <
           std::tie(a.samplesPerSecond, b.pipelineDegree, b.microBatches);
  });
  constexpr size_t mostRunnersUp = 16;
  if (result.runnersUp.size() > mostRunnersUp)
    result.runnersUp.resize(mostRunnersUp);
  return result;
}

} // namespace

Expected<PlannerResult> plan(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options) {
  Expected<Space> space = planner::getSpace(options, cluster.deviceCount());
  if (!space)
    return space.takeError();
  if (Error error = planner::checkOptions(model, cluster, options, *space))
    return error;
  return Search(model, cluster, options, std::move(*space)).run();
}

} // namespace galvatron
