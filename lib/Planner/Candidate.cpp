//===- Candidate.cpp - One pipeline shape, solved exactly -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidate.h"

#include "galvatron/Search/StageChain.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

using namespace llvm;

namespace galvatron::planner {

std::string Shape::str() const {
  return "pp" + std::to_string(pipelineDegree) + " m" +
         std::to_string(microBatches) + " batch " + std::to_string(batch) +
         (pipelineDegree > 1 ? " " + partitionName : "");
}

std::optional<Candidate> Candidate::make(LayerModel &model, CostTables &tables,
                                         const Shape &shape,
                                         std::string &refusal) {
  Candidate candidate(model, tables, shape);
  if (!candidate.build(refusal))
    return std::nullopt;
  return candidate;
}

size_t Candidate::stageOf(size_t layer) const {
  return std::upper_bound(firstLayer.begin(), firstLayer.end(), layer) -
         firstLayer.begin() - 1;
}

bool Candidate::build(std::string &refusal) {
  const StrategySet &set = *theShape.set;
  size_t stages = theShape.partition.size();
  size_t next = 0;
  for (int64_t length : theShape.partition) {
    firstLayer.push_back(next);
    next += length;
  }
  ties = model.ties();
  std::set<size_t> tied;
  for (const Tie &tie : ties) {
    tied.insert(tie.ownerLayer);
    tied.insert(tie.borrowerLayer);
  }

  options.resize(next);
  setOf.resize(next);
  caps.resize(stages);
  for (size_t s = 0; s < stages; ++s) {
    StageShape stageShape;
    stageShape.inFlight = inFlightMicroBatches(
        theShape.schedule, static_cast<int64_t>(s),
        static_cast<int64_t>(stages), theShape.microBatches);
    stageShape.microBatches = theShape.microBatches;
    stageShape.lastStage = s + 1 == stages;
    constantBytes.push_back(stageConstantBytes(stageShape));
    std::set<int64_t> boundaries;
    // Equal layers of a stage share an option set. First and last layers may be
    // charged for transfers, tied ones for their ties: they stand alone.
    std::vector<std::pair<size_t, size_t>> shared;
    size_t end = firstLayer[s] + theShape.partition[s], sets = 0;
    for (size_t l = firstLayer[s]; l < end; ++l) {
      size_t kind = model.kindOf(l);
      const KindOptions &kindOptions = tables.kindOptions(
          kind, set, theShape.devices[s], theShape.samples());
      if (kindOptions.options.empty()) {
        refusal = "layer '" + model.layerName(l) + "' has no strategy on " +
                  std::to_string(theShape.devices[s].size()) +
                  " devices: " + kindOptions.refusal;
        return false;
      }
      for (const KindOption &from : kindOptions.options) {
        LayerMemory memory =
            layerMemory(from.footprint, from.samples, theShape.microBatches);
        Option option;
        option.strategy = from.strategy;
        option.boundary = memory.boundary;
        option.footprint = from.footprint;
        option.samples = from.samples;
        option.cost.layoutClass = set.classOf[from.strategy];
        option.cost.time = from.time;
        option.cost.timeNosync = from.timeNosync;
        option.cost.transient = memory.transient;
        option.cost.kept = memory.kept;
        // The slots of the other micro-batches in flight count like state.
        option.cost.state =
            memory.state + (stageShape.inFlight - 1) * memory.kept;
        options[l].push_back(option);
        boundaries.insert(memory.boundary);
      }
      bool alone = l == firstLayer[s] || l + 1 == end || tied.count(l);
      auto known = llvm::find_if(
          shared, [&](const auto &entry) { return entry.first == kind; });
      if (!alone && known != shared.end()) {
        setOf[l] = known->second;
      } else {
        setOf[l] = sets++;
        if (!alone)
          shared.push_back({kind, setOf[l]});
      }
    }
    // A cap below some layer's least boundary leaves that layer no option.
    int64_t least = 0;
    for (size_t l = firstLayer[s]; l < end; ++l) {
      int64_t smallest = options[l].front().boundary;
      for (const Option &option : options[l])
        smallest = std::min(smallest, option.boundary);
      least = std::max(least, smallest);
    }
    for (int64_t boundary : boundaries)
      if (boundary >= least)
        caps[s].push_back(boundary);
  }
  buildTransforms();
  buildCuts();
  enumerateTies();
  return true;
}

void Candidate::buildTransforms() {
  // One matrix per stage and size of boundary.
  transformAfter.assign(options.size(), 0);
  std::map<std::pair<size_t, int64_t>, size_t> known;
  for (size_t l = 0; l + 1 < options.size(); ++l) {
    size_t s = stageOf(l);
    if (stageOf(l + 1) != s)
      continue;
    int64_t bytes = model.boundaryBytesPerSample(l);
    auto [it, fresh] = known.try_emplace({s, bytes}, transforms.size());
    transformAfter[l] = it->second;
    if (!fresh)
      continue;
    const auto &rates = tables.boundaryRates(*theShape.set, theShape.devices[s],
                                             theShape.devices[s]);
    std::vector<Picoseconds> matrix;
    for (size_t cell = 0; cell < rates.forward.size(); ++cell)
      matrix.push_back(
          transferPicoseconds(rates.forward[cell], bytes, theShape.samples()) +
          transferPicoseconds(rates.backward[cell], bytes, theShape.samples()));
    transforms.push_back(std::move(matrix));
  }
}

void Candidate::buildCuts() {
  size_t classes = theShape.set->classes.size();
  for (size_t s = 0; s + 1 < firstLayer.size(); ++s) {
    size_t last = firstLayer[s + 1] - 1, first = firstLayer[s + 1];
    int64_t bytes = model.boundaryBytesPerSample(last);
    const auto &rates = tables.boundaryRates(*theShape.set, theShape.devices[s],
                                             theShape.devices[s + 1]);
    std::vector<Picoseconds> forward, backward;
    for (size_t cell = 0; cell < rates.forward.size(); ++cell) {
      forward.push_back(
          transferPicoseconds(rates.forward[cell], bytes, theShape.samples()));
      backward.push_back(
          transferPicoseconds(rates.backward[cell], bytes, theShape.samples()));
    }
    // Charge each sender its cheapest receiver at once: bounds get tighter.
    auto charge = [&](size_t layer, size_t layoutClass, Picoseconds least) {
      for (Option &option : options[layer])
        if (option.cost.layoutClass == layoutClass) {
          option.cost.time += least;
          option.cost.timeNosync += least;
        }
    };
    for (size_t a = 0; a < classes; ++a) {
      Picoseconds least = forward[a * classes];
      for (size_t b = 0; b < classes; ++b)
        least = std::min(least, forward[a * classes + b]);
      for (size_t b = 0; b < classes; ++b)
        forward[a * classes + b] -= least;
      charge(last, a, least);
    }
    for (size_t b = 0; b < classes; ++b) {
      Picoseconds least = backward[b];
      for (size_t a = 0; a < classes; ++a)
        least = std::min(least, backward[a * classes + b]);
      for (size_t a = 0; a < classes; ++a)
        backward[a * classes + b] -= least;
      charge(first, b, least);
    }
    activation.push_back(std::move(forward));
    gradient.push_back(std::move(backward));
  }
}

Picoseconds Candidate::tieTime(size_t tie, size_t owner,
                               size_t borrower) const {
  return (*tieTables[tie])[owner * theShape.set->strategies.size() + borrower];
}

Picoseconds Candidate::cheapestTie(size_t tie, size_t owner) const {
  Picoseconds least = tieTime(tie, owner, 0);
  for (size_t b = 1; b < theShape.set->strategies.size(); ++b)
    least = std::min(least, tieTime(tie, owner, b));
  return least;
}

void Candidate::enumerateTies() {
  size_t count = theShape.set->strategies.size();
  tieChoices = {TieChoice()};
  for (size_t t = 0; t < ties.size(); ++t) {
    tieTables.push_back(&tables.tieTimes(
        *theShape.set, theShape.devices[stageOf(ties[t].ownerLayer)],
        theShape.devices[stageOf(ties[t].borrowerLayer)], ties[t].bytes));
    // Borrower strategies that cost every owner the same are one choice.
    std::vector<std::pair<std::vector<Picoseconds>, std::vector<bool>>> groups;
    for (size_t b = 0; b < count; ++b) {
      std::vector<Picoseconds> column;
      for (size_t o = 0; o < count; ++o)
        column.push_back(tieTime(t, o, b));
      auto it = llvm::find_if(
          groups, [&](const auto &group) { return group.first == column; });
      if (it == groups.end()) {
        groups.push_back({column, std::vector<bool>(count, false)});
        it = std::prev(groups.end());
      }
      it->second[b] = true;
    }
    std::vector<TieChoice> grown;
    for (const TieChoice &choice : tieChoices)
      for (const auto &group : groups) {
        // A choice that leaves the borrower no option is none.
        if (none_of(options[ties[t].borrowerLayer], [&](const Option &option) {
              return group.second[option.strategy];
            }))
          continue;
        grown.push_back(choice);
        grown.back().push_back(group.second);
      }
    tieChoices = std::move(grown);
  }
}

/// Index of the first strategy that a tie choice allows.
static size_t representative(const std::vector<bool> &allowed) {
  return llvm::find(allowed, true) - allowed.begin();
}

std::vector<Candidate::Problem>
Candidate::stageProblems(size_t stage, const TieChoice *choice,
                         const std::vector<int64_t> *onlyCap) const {
  size_t begin = firstLayer[stage];
  size_t count = theShape.partition[stage];
  bool syncMatters = theShape.microBatches > 1;
  std::vector<Problem> problems;
  for (int64_t cap : onlyCap ? *onlyCap : caps[stage]) {
    Problem entry;
    LayerStrategiesProblem &problem = entry.problem;
    problem.memory = theShape.memory[stage] - constantBytes[stage] - 2 * cap;
    if (problem.memory < 0)
      continue;
    problem.classes = theShape.set->classes.size();
    bool possible = true;
    for (size_t l = begin; l < begin + count; ++l) {
      problem.layers.push_back(setOf[l]);
      if (l + 1 < begin + count)
        problem.transformAfter.push_back(transformAfter[l]);
      if (setOf[l] < problem.optionSets.size())
        continue;
      problem.optionSets.emplace_back();
      entry.strategyOf.emplace_back();
      for (const Option &option : options[l]) {
        if (option.boundary > cap)
          continue;
        LayerOption cost = option.cost;
        bool allowed = true;
        for (size_t t = 0; t < ties.size(); ++t) {
          if (ties[t].borrowerLayer == l && choice)
            allowed &= (*choice)[t][option.strategy];
          if (ties[t].ownerLayer == l)
            cost.time += choice ? tieTime(t, option.strategy,
                                          representative((*choice)[t]))
                                : cheapestTie(t, option.strategy);
        }
        if (!allowed)
          continue;
        if (!syncMatters)
          cost.timeNosync = 0;
        problem.optionSets.back().push_back(cost);
        entry.strategyOf.back().push_back(option.strategy);
      }
      possible &= !problem.optionSets.back().empty();
    }
    if (!possible)
      continue;
    problem.transforms = transforms;
    if (problem.transforms.empty())
      problem.transforms.push_back(
          std::vector<Picoseconds>(problem.classes * problem.classes, 0));
    problems.push_back(std::move(entry));
  }
  return problems;
}

Picoseconds Candidate::boundOf(const std::vector<StageBound> &stages) const {
  Picoseconds sum = 0, largest = 0;
  for (const StageBound &stage : stages) {
    if (stage.time >= kNoBound || stage.nosync >= kNoBound)
      return kNoBound;
    sum += stage.time;
    largest = std::max(largest, stage.nosync);
  }
  return sum + (theShape.microBatches - 1) * largest;
}

FreeBound Candidate::freeBound() {
  // No cap, no memory, and every owner pays its cheapest tie.
  FreeBound bound;
  for (size_t s = 0; s < firstLayer.size(); ++s) {
    std::vector<int64_t> largest = {caps[s].back()};
    // Memory is left out here, so the budget must not drop the problem.
    int64_t budget = std::numeric_limits<int64_t>::max() / 4;
    std::swap(theShape.memory[s], budget);
    std::vector<Problem> problems = stageProblems(s, nullptr, &largest);
    std::swap(theShape.memory[s], budget);
    const LayerStrategiesProblem &problem = problems.front().problem;
    bound.time += unconstrainedMinimum(problem, {1, 0});
    bound.nosync =
        std::max(bound.nosync, unconstrainedMinimum(problem, {0, 1}));
  }
  return bound;
}

std::vector<Candidate::StageBound> Candidate::stageBounds(
    const std::vector<std::vector<Problem>> &problems) const {
  std::vector<StageBound> stages;
  for (const std::vector<Problem> &stage : problems) {
    StageBound bound{kNoBound, kNoBound};
    for (const Problem &entry : stage) {
      bound.time = std::min(bound.time, lowerBound(entry.problem, {1, 0}));
      bound.nosync =
          theShape.microBatches == 1
              ? 0
              : std::min(bound.nosync, lowerBound(entry.problem, {0, 1}));
    }
    stages.push_back(bound);
  }
  return stages;
}

Picoseconds Candidate::bound() {
  Picoseconds best = kNoBound;
  for (const TieChoice &choice : tieChoices) {
    if (firstLayer.size() == 1) {
      for (const Problem &entry : stageProblems(0, &choice, nullptr))
        best = std::min(best, lowerBound(entry.problem, scalarWeights()));
      continue;
    }
    std::vector<std::vector<Problem>> problems;
    for (size_t s = 0; s < firstLayer.size(); ++s)
      problems.push_back(stageProblems(s, &choice, nullptr));
    best = std::min(best, boundOf(stageBounds(problems)));
  }
  return best;
}

std::optional<Solved> Candidate::solve(Picoseconds atMost) {
  std::optional<Solved> best;
  for (const TieChoice &choice : tieChoices) {
    std::optional<Solved> found = firstLayer.size() == 1
                                      ? solveSingle(choice, atMost)
                                      : solvePipeline(choice, atMost);
    if (!found)
      continue;
    best = std::move(found);
    atMost = best->cost - 1;
  }
  return best;
}

std::optional<Solved> Candidate::solveSingle(const TieChoice &choice,
                                             Picoseconds atMost) {
  std::optional<Solved> best;
  CostWeights weights = scalarWeights();
  for (const Problem &entry : stageProblems(0, &choice, nullptr)) {
    auto found = solveLayerStrategies(entry.problem, weights, atMost);
    if (!found)
      continue;
    best = Solved();
    best->cost =
        weights.time * found->time + weights.nosync * found->timeNosync;
    for (size_t l = 0; l < found->choice.size(); ++l)
      best->strategies.push_back(
          entry.strategyOf[entry.problem.layers[l]][found->choice[l]]);
    atMost = best->cost - 1;
  }
  return best;
}

std::optional<Solved> Candidate::solvePipeline(const TieChoice &choice,
                                               Picoseconds atMost) {
  size_t stages = firstLayer.size();
  int64_t weight = theShape.microBatches - 1;
  std::vector<std::vector<Problem>> problems;
  for (size_t s = 0; s < stages; ++s) {
    problems.push_back(stageProblems(s, &choice, nullptr));
    erase_if(problems.back(), [](const Problem &entry) {
      return minimumPeak(entry.problem).peak > entry.problem.memory;
    });
    if (problems.back().empty())
      return std::nullopt;
  }
  std::vector<StageBound> bounds = stageBounds(problems);
  Picoseconds bound = boundOf(bounds);
  Picoseconds slack = std::max<Picoseconds>(16, bound / 1000);
  bool exactBounds = false;
  // As in the layer problem: guess an optimum close to the bound, keep only
  // what can be part of it, and widen the guess if nothing is found.
  while (bound <= atMost) {
    bool final = bound >= atMost - slack;
    Picoseconds guess = final ? atMost : bound + slack;
    Picoseconds timeSum = 0, largestNosync = 0;
    for (const StageBound &stage : bounds) {
      timeSum += stage.time;
      largestNosync = std::max(largestNosync, stage.nosync);
    }
    StageChainProblem chain;
    chain.microBatches = theShape.microBatches;
    chain.classes = theShape.set->classes.size();
    chain.activation = activation;
    chain.gradient = gradient;
    std::vector<std::vector<std::pair<size_t, LayerStrategiesSolution>>> found(
        stages);
    bool open = true;
    for (size_t s = 0; s < stages && open; ++s) {
      FrontWindow window;
      Picoseconds others = timeSum - bounds[s].time;
      window.maxTime = guess - others - weight * largestNosync;
      if (weight > 0) {
        window.maxNosync = (guess - timeSum) / weight;
        window.mixWeight = weight;
        window.maxMix = guess - others;
      }
      chain.stages.emplace_back();
      for (size_t p = 0; p < problems[s].size(); ++p)
        for (LayerStrategiesSolution &solution : solveFront(
                 problems[s][p].problem, window, s > 0, s + 1 < stages)) {
          chain.stages.back().push_back({solution.firstClass,
                                         solution.lastClass, solution.time,
                                         solution.timeNosync});
          found[s].push_back({p, std::move(solution)});
        }
      open = !chain.stages.back().empty();
    }
    if (open)
      if (auto joined = solveStageChain(chain, guess)) {
        Solved solved;
        solved.cost = joined->cost;
        for (size_t s = 0; s < stages; ++s) {
          const auto &[p, solution] = found[s][joined->entry[s]];
          const Problem &entry = problems[s][p];
          for (size_t l = 0; l < solution.choice.size(); ++l)
            solved.strategies.push_back(
                entry.strategyOf[entry.problem.layers[l]][solution.choice[l]]);
        }
        return solved;
      }
    if (final)
      return std::nullopt;
    if (!exactBounds) {
      // Exact least times of each stage are cheap next to wide fronts.
      exactBounds = true;
      for (size_t s = 0; s < stages; ++s) {
        std::optional<Picoseconds> time, nosync;
        for (const Problem &entry : problems[s]) {
          if (auto least = solveLayerStrategies(entry.problem, {1, 0},
                                                time ? *time - 1 : kNoBound))
            time = least->time;
          if (weight > 0)
            if (auto least = solveLayerStrategies(
                    entry.problem, {0, 1}, nosync ? *nosync - 1 : kNoBound))
              nosync = least->timeNosync;
        }
        bounds[s].time = *time;
        bounds[s].nosync = nosync.value_or(0);
      }
      // What failed so far stays proven: the next guess is above this one.
      bound = std::max(guess, boundOf(bounds));
      continue;
    }
    bound = guess;
    slack *= 3;
  }
  return std::nullopt;
}

MemoryNeed Candidate::memoryNeed() {
  MemoryNeed worst;
  for (size_t s = 0; s < firstLayer.size(); ++s) {
    MemoryNeed least;
    size_t begin = firstLayer[s], count = theShape.partition[s];
    for (int64_t cap : caps[s]) {
      LayerStrategiesProblem problem;
      problem.memory = std::numeric_limits<int64_t>::max() / 4;
      problem.transforms = {{0}};
      problem.transformAfter.assign(count - 1, 0);
      std::vector<std::vector<const Option *>> allowed;
      for (size_t l = begin; l < begin + count; ++l) {
        problem.layers.push_back(setOf[l]);
        if (setOf[l] < problem.optionSets.size())
          continue;
        problem.optionSets.emplace_back();
        allowed.emplace_back();
        for (const Option &option : options[l])
          if (option.boundary <= cap) {
            problem.optionSets.back().push_back(option.cost);
            problem.optionSets.back().back().layoutClass = 0;
            allowed.back().push_back(&option);
          }
      }
      LayerStrategiesSolution solution = minimumPeak(problem);
      std::vector<StageLayer> layers;
      for (size_t i = 0; i < count; ++i) {
        const Option &option = *allowed[problem.layers[i]][solution.choice[i]];
        layers.push_back({option.footprint, option.samples});
      }
      StageShape stageShape;
      stageShape.inFlight = inFlightMicroBatches(
          theShape.schedule, static_cast<int64_t>(s),
          static_cast<int64_t>(firstLayer.size()), theShape.microBatches);
      stageShape.microBatches = theShape.microBatches;
      stageShape.lastStage = s + 1 == firstLayer.size();
      StageLedger ledger = stageLedger(layers, stageShape);
      if (least.stage < 0 || ledger.total() < least.needed)
        least = {static_cast<int64_t>(s), ledger.total(), theShape.memory[s],
                 ledger};
    }
    if (worst.stage < 0 || least.excess() > worst.excess())
      worst = least;
  }
  return worst;
}

} // namespace galvatron::planner
