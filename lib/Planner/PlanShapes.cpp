//===- PlanShapes.cpp - The shapes that a search looks at -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"
#include "PlanSearch.h"
#include "galvatron/Planner/Budget.h"
#include "galvatron/Schedule/Schedule.h"

using namespace llvm;

namespace galvatron::planner {

const StrategySet &PlanSearch::setOf(int64_t groupSize) {
  auto [set, isNew] = sets.try_emplace(groupSize);
  if (isNew)
    set->second = StrategySet::make(space.strategies(groupSize), space.pins);
  return set->second;
}

const Layout *PlanSearch::layoutOf(DeviceGroups devices) {
  auto [it, fresh] = layouts.try_emplace(devices);
  if (!fresh)
    return it->second.get();
  it->second = std::make_unique<Layout>();
  Layout &layout = *it->second;
  layout.degree = static_cast<int64_t>(devices.size());
  layout.number = layouts.size() - 1;
  layout.devices = std::move(devices);
  std::vector<int64_t> sizes;
  for (const std::vector<int64_t> &group : layout.devices)
    sizes.push_back(static_cast<int64_t>(group.size()));
  std::vector<int64_t> distinct = sizes;
  llvm::sort(distinct);
  distinct.erase(llvm::unique(distinct), distinct.end());
  std::map<int64_t, StrategySubset> own;
  StrategySubset next;
  std::vector<const StrategySet *> parts;
  for (int64_t size : distinct) {
    const StrategySet &set = setOf(size);
    parts.push_back(&set);
    next.set = &set;
    own[size] = next;
    next.strategy += set.strategies.size();
    next.layoutClass += set.classes.size();
    next.tieKey += set.tieKeys.size();
  }
  layout.set = parts.front();
  if (parts.size() > 1) {
    auto [joined, isNew] = joinedSets.try_emplace(distinct);
    if (isNew)
      joined->second = StrategySet::join(parts);
    layout.set = &joined->second;
  }
  for (size_t s = 0; s < layout.devices.size(); ++s) {
    layout.own.push_back(own[sizes[s]]);
    layout.memory.push_back(
        cluster.budgetOf(layout.devices[s], options.memory));
    layout.hostMemory.push_back(
        hostShare(cluster, layout.devices[s], options.hostMemory));
    layout.backend.push_back(
        backendTraits(cluster.backendOf(layout.devices[s])));
    layout.place.push_back(tables.placeOf(layout.devices[s]));
    layout.movePlace.push_back(tables.movePlaceOf(layout.devices[s]));
    if (s > 0)
      layout.cutPlace.push_back(
          tables.placeOf(layout.devices[s - 1], layout.devices[s]));
  }
  return &layout;
}

const Layout *PlanSearch::equalLayout(int64_t degree) {
  return layoutOf(stageDevices(cluster.deviceCount(), degree));
}

/// Sequences of groups that a search of one batch looks at, at most.
constexpr size_t kMostSequences = 2000;
/// The most sequences of a sweep, which has hundreds of batches.
constexpr size_t kMostOfSweep = 60;

/// Equal groups of consecutive devices and, where the space has them, others.
void PlanSearch::makeLayouts() {
  if (!searched.empty())
    return;
  auto layers = static_cast<int64_t>(model.layerCount());
  int64_t devices = cluster.deviceCount();
  for (int64_t degree : space.pipelineDegrees)
    if (degree <= layers && devices % degree == 0)
      searched.push_back(equalLayout(degree));
  auto haveRule = [&](const std::string &rule) {
    provenAmong += (provenAmong.empty() || rule.empty() ? "" : " and ") + rule;
  };
  haveRule(Candidate::tieRule(
      model, space.anyGroups || any_of(searched, [](const Layout *layout) {
               return layout->degree > 1;
             })));
  if (!space.anyGroups)
    return;
  std::optional<int64_t> degree = options.pipelineDegree;
  GroupSequences others = groupSequences(
      cluster, std::min(layers, degree.value_or(layers)),
      options.batch && !options.fewGroups ? kMostSequences : kMostOfSweep);
  for (DeviceGroups &groups : others.sequences) {
    if (degree && static_cast<int64_t>(groups.size()) != *degree)
      continue;
    size_t known = layouts.size();
    const Layout *layout = layoutOf(std::move(groups));
    // A stage without a strategy is none.
    bool possible = all_of(layout->own, [](const StrategySubset &subset) {
      return !subset.set->strategies.empty();
    });
    if (layouts.size() > known && possible)
      searched.push_back(layout);
  }
  if (others.rule != GroupRule::Any)
    haveRule(groupRuleText(others.rule));
  log(Twine(searched.size()) +
      " sequences of groups of devices: " + groupRuleText(others.rule));
}

static const Schedule &scheduleOf(const PlannerOptions &options) {
  return options.schedule ? *options.schedule : defaultSchedule();
}

/// The paper's number of micro-batches. arXiv 2307.02031 leaves it open (it was
/// tuned by hand); this rule fixes it per batch and pipeline degree so that the
/// paper's tables can be rerun, and its two figures were chosen on Table II,
/// cluster (a). It is 1 without a pipeline. Otherwise it is the divisor m of
/// the batch for which batch / m is a multiple of the stage's devices and that
/// is nearest in ratio to 4 if every micro-batch takes a slot, as under GPipe,
/// or else to 16, as under 1F1B, within a factor of 2; the smaller one of two.
/// Nothing if no divisor will do.
static std::optional<int64_t> paperMicroBatches(int64_t batch,
                                                int64_t pipelineDegree,
                                                int64_t stageDevices,
                                                const Schedule &schedule) {
  if (pipelineDegree == 1)
    return batch % stageDevices == 0 ? std::optional<int64_t>(1) : std::nullopt;
  // Fewer micro-batches where every one takes memory.
  int64_t aim = schedule.slotsBoundedIn({pipelineDegree}) ? 16 : 4;
  std::optional<int64_t> best;
  for (int64_t m : divisors(batch)) {
    if (batch / m % stageDevices != 0 || 2 * m < aim || m > 2 * aim)
      continue;
    // m / aim below 1 against aim / m above: divisors ascend, so m is nearer
    // than the one before if m * best < aim^2.
    if (!best || m * *best < aim * aim)
      best = m;
  }
  return best;
}

std::vector<int64_t> PlanSearch::microBatchesOf(int64_t batch,
                                                int64_t degree) const {
  if (options.microBatches)
    return batch % *options.microBatches == 0
               ? std::vector<int64_t>{*options.microBatches}
               : std::vector<int64_t>();
  if (options.microBatchRule == MicroBatchRule::Search)
    return divisors(batch);
  std::optional<int64_t> fixed = paperMicroBatches(
      batch, degree, cluster.deviceCount() / degree, scheduleOf(options));
  return fixed ? std::vector<int64_t>{*fixed} : std::vector<int64_t>();
}

std::vector<Shape> PlanSearch::shapesOf(int64_t batch) {
  std::vector<Shape> shapes;
  makeLayouts();
  for (const Layout *layout : searched) {
    for (int64_t microBatches : microBatchesOf(batch, layout->degree)) {
      int64_t samples = batch / microBatches;
      // A strategy that does not divide the samples is left out; a number of
      // micro-batches that leaves none is no shape.
      if (any_of(layout->own, [&](const StrategySubset &subset) {
            return none_of(subset.set->strategies, [&](const Strategy &own) {
              return own.divides(samples);
            });
          }))
        continue;
      shapes.push_back({batch, microBatches, &scheduleOf(options), layout});
    }
  }
  return shapes;
}

/// The partition that the space prescribes; empty if it is searched.
std::vector<int64_t>
PlanSearch::partitionOf(const PipelineProblem &problem) const {
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

std::unique_ptr<Candidate> PlanSearch::candidateOf(const Shape &shape,
                                                   int64_t fewest, Moves moves,
                                                   Points points) {
  std::string reason;
  std::unique_ptr<Candidate> candidate =
      Candidate::make(tables, shape, reason, fewest, moves, points);
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

bool PlanSearch::fitsExactly(const Candidate &candidate,
                             const PipelineSolution &solution, Points points,
                             int64_t fewest, int64_t room) {
  const Shape &shape = candidate.shape();
  if (!hasPoints(shape) || !candidate.priceBytes(solution))
    return true;
  std::unique_ptr<Candidate> exact =
      candidateOf(shape, fewest, Moves::All, points);
  if (!exact)
    return false;
  exact->holdBack(room);
  return exact->fits(candidate.toSolved(solution));
}

/// The free bounds of a shape; 0 if pricing was to end. With `cuts` they have
/// the least that these take (search.md, "Order"): sum C has the moves of all
/// cuts, and each stage's N its own, whatever the partition.
FreeBound PlanSearch::boundsOf(const Shape &shape, bool cuts) {
  auto [it, fresh] = freeBounds.try_emplace(
      {shape.layout->number, shape.samples(),
       tables.sharesCores() ? shape.microBatches : 0, cuts});
  if (fresh) {
    it->second = freeBound(tables, shape, cuts);
    if (tables.incomplete()) {
      freeBounds.erase(it);
      return {};
    }
  }
  return it->second;
}

Picoseconds PlanSearch::freeBoundOf(const Shape &shape, bool cuts) {
  StepForm form = shape.form(options.objective);
  // Other formulas count cuts in ways of their own.
  return stepBound(shape, form,
                   boundsOf(shape, cuts && form == StepForm::Drain),
                   model.layerCount());
}

/// A bound that all shapes share whose stages hold the same numbers of
/// micro-batches: made for the fewest, of which data takes least memory. With
/// one stage a single cost decides, which depends on all micro-batches.
Picoseconds PlanSearch::sharedBoundOf(const Shape &shape, bool cuts) {
  int64_t microBatches = shape.microBatches, least = microBatches;
  std::optional<int64_t> bound =
      shape.schedule->slotsBoundedIn({shape.degree()});
  if (bound && shape.degree() > 1 && !tables.sharesCores())
    least = std::min(microBatches, *bound);
  // Other formulas' costs depend on all micro-batches.
  StepForm form = shape.form(options.objective);
  if (form == StepForm::Drain)
    microBatches = least;
  auto [it, fresh] = sharedBounds.try_emplace(
      {shape.layout->number, shape.samples(), microBatches});
  if (fresh) {
    Shape fewest = shape;
    fewest.microBatches = microBatches;
    fewest.batch = microBatches * shape.samples();
    std::string reason;
    std::unique_ptr<Candidate> candidate =
        Candidate::make(tables, fewest, reason, /*fewest=*/least, Moves::None,
                        Points::leastWithin(kNoBound));
    if (!candidate && tables.incomplete()) {
      sharedBounds.erase(it);
      return 0;
    }
    // A problem that cannot be posed says nothing about what fits.
    it->second =
        candidate ? PipelineSearch::bounds(candidate->problem(), stageClasses)
                  : PipelineBounds{};
  }
  PipelineBounds bounds = it->second;
  if (bounds.time >= kNoBound || bounds.nosync >= kNoBound)
    return kNoBound;
  if (cuts && form == StepForm::Drain) {
    // Layers take no less with memory, and cuts no less than without.
    FreeBound with = boundsOf(shape, /*cuts=*/true);
    bounds.time += with.cuts;
    bounds.nosync = std::max(bounds.nosync, with.nosync);
  }
  // Under the other forms one of the two is 0, and what is left counts once.
  int64_t counted = form == StepForm::Drain    ? shape.microBatches
                    : form == StepForm::Filled ? shape.microBatches + 1
                                               : 2;
  return pipelineBound(counted, bounds.time, bounds.nosync);
}

} // namespace galvatron::planner
