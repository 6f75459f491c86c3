//===- PlanFrontier.cpp - Shapes by their bounds, the best first ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BiObjective.h"
#include "Executed.h"
#include "PlanSearch.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Search/QuickPipeline.h"

#include <cmath>

using namespace llvm;

namespace galvatron::planner {

static double samplesPerSecond(const Shape &shape, Picoseconds time) {
  return static_cast<double>(shape.batch) * 1e12 /
         static_cast<double>(std::max<Picoseconds>(time, 1));
}

/// The most that a plan of this batch may cost to be better than the best.
Picoseconds PlanSearch::limitFor(int64_t batch) const {
  if (!best)
    return kNoBound;
  __int128 product = static_cast<__int128>(best->solved.cost) * batch;
  return static_cast<Picoseconds>((product - 1) / best->shape.batch);
}

void PlanSearch::note(const Shape &shape, Picoseconds time) {
  RunnerUp fresh{shape.degree(), shape.microBatches, toMilliseconds(time),
                 samplesPerSecond(shape, time)};
  auto [it, isNew] =
      runnersUp.try_emplace({fresh.pipelineDegree, fresh.microBatches}, fresh);
  if (!isNew && fresh.samplesPerSecond > it->second.samplesPerSecond)
    it->second = fresh;
}

void PlanSearch::accept(const Shape &shape, Solved solved, Finder by) {
  note(shape, solved.cost);
  finder = by;
  log(shape.str() + ": " + milliseconds(solved.cost) + ", the best so far");
  best = Incumbent{shape, std::move(solved)};
}

/// The percent by which a plan of that cost would be faster than the best.
double PlanSearch::gapTo(Picoseconds bound, int64_t batch) const {
  double other = static_cast<double>(std::max<Picoseconds>(bound, 1)) /
                 static_cast<double>(batch);
  double own = static_cast<double>(best->solved.cost) /
               static_cast<double>(best->shape.batch);
  return std::max(0.0, (own / other - 1) * 100);
}

/// Takes over a family's solution. One that does not fit where it has to leaves
/// its shape to be solved on its own, and the rest of the family.
bool PlanSearch::finish(Entry &entry, const PipelineSolution &found,
                        Queue &queue) {
  const Shape shape = entry.shape;
  if (entry.fewer.empty()) {
    accept(shape, entry.candidate->toSolved(found));
    return true;
  }
  // A layer may have other options with other micro-batches.
  Solved solved = entry.candidate->toSolved(found);
  std::unique_ptr<Candidate> own =
      candidateOf(shape, /*fewest=*/0, Moves::All, entry.points);
  if (own && own->fits(solved)) {
    accept(shape, std::move(solved));
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
void PlanSearch::pushRest(const Entry &entry, Picoseconds bound, Queue &queue) {
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

/// Leaves out a shape whose bytes, or whose times under every strategy of a
/// layer, are too large to be summed. It may be the best one, so that its bound
/// counts in what is proven; the others of its family may be summed. False, and
/// nothing is left out, if pricing was to end.
bool PlanSearch::giveUp(const Entry &entry, Queue &queue) {
  if (tables.incomplete())
    return false;
  leftOut.push_back({entry.bound, entry.shape.batch});
  if (!entry.fewer.empty())
    pushRest(entry, entry.bound, queue);
  return true;
}

/// Bounds the cost of the entry's shape without points and without memory.
void PlanSearch::boundWithoutMemory(Entry &entry, Picoseconds most) {
  if (!hasPoints(entry.shape) || space.partition != PartitionMode::Free ||
      !Candidate::pointsTakeNoLess(entry.shape.form(options.objective)))
    return;
  std::string reason;
  // The moves between layers of large stages are dear to price.
  entry.candidate =
      Candidate::makeUnbound(tables, entry.shape, reason,
                             isLarge(entry.shape) ? Moves::None : Moves::All);
  if (!entry.candidate)
    return;
  raiseWithoutMemory(entry);
  if (entry.bound > limitFor(entry.shape.batch)) {
    entry.candidate.reset();
    return;
  }
  entry.search = std::make_shared<PipelineSearch>(entry.candidate->problem(),
                                                  stageClasses, entry.bound);
  inSearchOf(entry, [&](PipelineSearch &search) {
    return search.solve(most).has_value();
  });
  entry.bound = std::max(entry.bound, entry.search->lowerBound());
}

/// Raises the entry's bound to what its problem takes if memory is endless, but
/// to no more than just above the limit: options that cost more may be left out
/// of the problem.
void PlanSearch::raiseWithoutMemory(Entry &entry) {
  const Picoseconds most = limitFor(entry.shape.batch);
  // Without a limit there are many labels.
  if (most >= kNoBound)
    return;
  const Picoseconds least =
      leastWithoutMemory(entry.candidate->problem(), most);
  entry.bound = std::max(entry.bound, std::min(least, most + 1));
}

/// Makes the entry's problem; false if it cannot be posed.
bool PlanSearch::openProblem(Entry &entry, Moves moves) {
  int64_t fewest = entry.fewer.empty() ? 0 : entry.fewer.back();
  entry.search.reset();
  entry.points = pointsWithin(limitFor(entry.shape.batch));
  if (entry.exact)
    entry.points.bytes = PointBytes::Exact;
  entry.candidate = candidateOf(entry.shape, fewest, moves, entry.points);
  if (!entry.candidate)
    return false;
  if (Picoseconds above = entry.candidate->leftOutAbove(); above < kNoBound)
    leftOut.push_back({above, entry.shape.batch});
  entry.search = std::make_shared<PipelineSearch>(entry.candidate->problem(),
                                                  stageClasses);
  return true;
}

/// Makes the entry's problem again, since a solution does not fit with what its
/// points take; all that was proven stays. Once more with the bytes of these,
/// and then with those of all. False as above.
bool PlanSearch::reopen(Entry &entry) {
  entry.exact |= entry.misfits++ > 0;
  Picoseconds proven = std::max(entry.bound, entry.search->lowerBound());
  if (!openProblem(entry, Moves::All))
    return false;
  entry.search->raise(proven);
  entry.level = Entry::Tightened;
  return true;
}

/// Makes the entry's problem with the least that its cuts may take; false if
/// that is of no use, or if the shape takes too long with endless memory. Where
/// there are many sequences of groups most shapes are too slow even so, and
/// what moves take by classes is dear to search.
bool PlanSearch::openLight(Entry &entry) {
  // Many shapes of a sweep share the bound that is made next.
  if (!space.anyGroups || !options.batch || !cutsAreCheap(entry.shape) ||
      space.partition != PartitionMode::Free ||
      entry.shape.form(options.objective) != StepForm::Drain)
    return false;
  int64_t fewest = entry.fewer.empty() ? 0 : entry.fewer.back();
  std::string reason;
  entry.candidate =
      Candidate::make(tables, entry.shape, reason, fewest, Moves::LeastCuts,
                      Points::leastWithin(limitFor(entry.shape.batch)));
  if (!entry.candidate)
    return false;
  raiseWithoutMemory(entry);
  if (entry.bound > limitFor(entry.shape.batch)) {
    entry.candidate.reset();
    return false;
  }
  entry.search = std::make_shared<PipelineSearch>(entry.candidate->problem(),
                                                  stageClasses, entry.bound);
  return true;
}

bool PlanSearch::improve(Entry &entry, Picoseconds enough, Queue &queue) {
  const Shape &shape = entry.shape;
  Picoseconds limit = limitFor(shape.batch);
  if (entry.level == Entry::Free) {
    entry.level = Entry::Cuts;
    Picoseconds before = entry.bound;
    if (cutsAreCheap(shape))
      entry.bound = std::max(entry.bound, freeBoundOf(shape, /*cuts=*/true));
    if (entry.bound > before)
      return entry.bound >= kNoBound;
  }
  Picoseconds most = std::min(limit, enough);
  if (entry.level == Entry::Cuts) {
    entry.level = Entry::Unbound;
    Picoseconds before = entry.bound;
    boundWithoutMemory(entry, most);
    if (entry.bound > before)
      return entry.bound >= kNoBound;
  }
  if (entry.level == Entry::Unbound) {
    entry.level = openLight(entry) ? Entry::Light : Entry::Shared;
    if (entry.bound > limit)
      return entry.bound >= kNoBound;
    // Bounds shared by several shapes have all points, which are dear to price.
    bool shares = !hasPoints(shape) || !best;
    if (entry.level == Entry::Shared && shares) {
      entry.bound =
          std::max(entry.bound, sharedBoundOf(shape, cutsAreCheap(shape)));
      return entry.bound >= kNoBound;
    }
  }
  if (entry.level == Entry::Light) {
    entry.bound =
        std::max(entry.bound, inSearchOf(entry, [&](PipelineSearch &search) {
                   return search.tighten(most);
                 }));
    if (entry.bound > most)
      return entry.bound >= kNoBound;
    entry.level = Entry::Shared;
  }
  if (entry.level == Entry::Shared) {
    bool relaxed = isLarge(shape) && space.partition == PartitionMode::Free;
    entry.level = relaxed ? Entry::Relaxed : Entry::Tightened;
    if (!openProblem(entry, relaxed ? Moves::None : Moves::All))
      return giveUp(entry, queue);
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
    if (!openProblem(entry, Moves::All))
      return giveUp(entry, queue);
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
        note(shape, solved.cost);
    }
    return true;
  }
  // Guess that the optimum is close to the bound; a failed guess is a bound.
  // Behind a search without points the limit is near: a failed guess at it is
  // the end of the shape.
  constexpr Picoseconds near = 2; // times the slack
  Picoseconds guess = std::min(limit, entry.bound + entry.slack);
  if (hasPoints(shape) && limit - entry.bound <= near * entry.slack)
    guess = limit;
  entry.slack *= 2;
  std::optional<PipelineSolution> found = inSearchOf(
      entry, [&](PipelineSearch &search) { return search.attempt(guess); });
  bool stopped = entry.search->stopped();
  if (found && !fitsExactly(*entry.candidate, *found, entry.points,
                            entry.fewer.empty() ? 0 : entry.fewer.back())) {
    if (stopped || reopen(entry))
      return false;
    return giveUp(entry, queue);
  }
  if (found && !stopped)
    return finish(entry, *found, queue);
  if (found && entry.fewer.empty())
    accept(shape, entry.candidate->toSolved(*found));
  entry.bound = std::max(entry.bound, entry.search->lowerBound());
  return entry.bound >= kNoBound;
}

/// The cost of a pipeline that was chosen as if moves between layers were free.
/// Nothing if it does not fit or cannot be summed.
std::optional<Picoseconds> PlanSearch::costWithMoves(const Incumbent &found) {
  Pricing pricing;
  pricing.formulaOnly = true;
  Expected<PlannerResult> priced =
      evaluateAmong(model, cluster, toPlan(found), options.memory, pricing);
  if (!priced) {
    consumeError(priced.takeError());
    return std::nullopt;
  }
  if (!priced->feasible())
    return std::nullopt;
  return static_cast<Picoseconds>(std::llround(priced->formulaMs * 1e9));
}

/// Time is up and there is no plan: the best of a few quick ones for the shapes
/// with the least bounds, or the leanest one of the first shape that has one.
bool PlanSearch::primalHeuristic(const Queue &queue) {
  // Times needed for one plan are priced whatever the time; others only if they
  // take no longer than this.
  Cancellation grace;
  grace.setSeconds(kGraceSeconds);
  tables.setCancellation(nullptr);
  bool timedOut = late();
  Queue sorted = queue;
  llvm::sort(sorted,
             [](const Entry &a, const Entry &b) { return Later()(b, a); });
  auto offer = [&](const Shape &shape, Solved solved) {
    if (!best || fasterPerSample(solved.cost, shape.batch, best->solved.cost,
                                 best->shape.batch))
      accept(shape, std::move(solved), Finder::Quick);
  };
  // All moves between layers of large stages are dear to price: there a plan is
  // chosen without them, and its own are priced.
  auto offerWithMoves = [&](const Shape &shape, Solved solved) {
    Incumbent found{shape, std::move(solved)};
    if (std::optional<Picoseconds> cost = costWithMoves(found)) {
      found.solved.cost = *cost;
      offer(shape, std::move(found.solved));
    }
  };
  for (bool large : {false, true}) {
    constexpr size_t most = 12;
    size_t tried = 0;
    for (const Entry &entry : sorted) {
      if (large != isLarge(entry.shape))
        continue;
      std::unique_ptr<Candidate> candidate =
          large ? leanCandidateOf(entry.shape) : candidateOf(entry.shape);
      if (!candidate)
        continue;
      const PipelineProblem &problem = candidate->problem();
      std::vector<std::vector<int64_t>> partitions = {problem.partition};
      if (problem.partition.empty())
        partitions = {timeBalanced(problem), memoryBalanced(problem),
                      evenPartition(static_cast<int64_t>(problem.layerCount()),
                                    entry.shape.degree())};
      for (const std::vector<int64_t> &partition : partitions)
        if (std::optional<PipelineSolution> found =
                quickPipeline(problem, partition)) {
          if (large)
            offerWithMoves(entry.shape, candidate->toSolved(*found));
          else
            offer(entry.shape, candidate->toSolved(*found));
        }
      if (++tried == most || (best && timedOut && grace.requested()))
        break;
    }
    if (best)
      break;
  }
  for (const Entry &entry : sorted) {
    if (best)
      break;
    std::unique_ptr<Candidate> candidate = leanCandidateOf(entry.shape);
    if (!candidate)
      continue;
    PipelineNeed need = leastNeed(candidate->problem());
    if (need.excess <= 0)
      offerWithMoves(entry.shape, candidate->toSolved(need.solution));
  }
  tables.setCancellation(options.cancellation);
  return best.has_value();
}

/// Rejects what is left in the queue once no shape of it can be better.
void PlanSearch::reject(const Queue &rest) {
  Queue sorted = rest;
  llvm::sort(sorted,
             [](const Entry &a, const Entry &b) { return Later()(b, a); });
  // A sweep leaves thousands; the nearest ones tell the story.
  constexpr size_t most = 40;
  for (size_t i = 0; i < sorted.size(); ++i) {
    note(sorted[i].shape, sorted[i].bound);
    if (i < most)
      log(sorted[i].shape.str() + ": rejected, at least " +
          milliseconds(sorted[i].bound) + " whatever its strategies");
  }
  if (sorted.size() > most)
    log("and " + Twine(sorted.size() - most) +
        " more: rejected, slower per sample than these");
}

void PlanSearch::report(ArrayRef<int64_t> batches, const Queue &queue) const {
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
bool PlanSearch::searchBatches(ArrayRef<int64_t> batches) {
  Queue queue;
  bool any = false;
  // Heuristics promise nothing for other shapes than their own. And where cores
  // are shared more micro-batches make each of them slower.
  bool families =
      space.partition != PartitionMode::BiObjective && !tables.sharesCores();
  std::map<std::pair<size_t, int64_t>, size_t> familyOf;
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
      std::optional<int64_t> bound =
          shape.schedule->slotsBoundedIn({shape.degree()});
      if (families && bound && shape.microBatches >= *bound) {
        auto [it, fresh] = familyOf.try_emplace(
            {shape.layout->number, shape.samples()}, queue.size());
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
    if (!best && spent() && !primalHeuristic(queue)) {
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

} // namespace galvatron::planner
