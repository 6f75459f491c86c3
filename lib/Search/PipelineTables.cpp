//===- PipelineTables.cpp - What the bounds of stages are read from -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineTables.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

using namespace llvm;

namespace galvatron::search {

PipelineTables::PipelineTables(const PipelineProblem &problem,
                               StageClassCache &cache, bool boundsOnly)
    : problem(problem), stages(problem.stages.size()),
      layers(problem.layerCount()),
      bottleneck(stages == 1            ? 0
                 : problem.slowestAlone ? 1
                                        : problem.microBatches - 1),
      summed(problem.slowestAlone ? 0 : 1) {
  int64_t single = problem.slowestAlone ? 1 : problem.microBatches - 1;
  weights[kTime] = {summed, stages > 1 ? 0 : single};
  weights[kNosync] = {0, 1};
  weights[kMix] = {summed, bottleneck};
  weights[kBalance] = {
      summed, std::max<int64_t>(1, bottleneck / static_cast<int64_t>(stages))};
  spreads.resize(problem.matrices.size());
  charges.resize(2 * problem.matrices.size());
  isTied.assign(layers, false);
  for (const PipelineTie &tie : problem.ties)
    isTied[tie.owner] = isTied[tie.borrower] = true;
  tieChoices = settleTies(problem, ~size_t(0));
  for (const PipelineStage &stage : problem.stages) {
    auto it = llvm::find_if(stageClasses, [&](const PipelineStage &other) {
      return other == stage;
    });
    stageClassOf.push_back(it - stageClasses.begin());
    if (it == stageClasses.end())
      stageClasses.push_back({stage});
  }
  static_assert(kTime == 0 && kNosync == 1, "the bounds need these two");
  size_t built =
      boundsOnly ? std::min<size_t>(functionals(), 2) : functionals();
  for (StageClass &stageClass : stageClasses) {
    StageClassPlace &place = placeOf(stageClass.place, cache);
    stageClass.layers = &place.layers(stageClass.inFlight);
    for (size_t f = 0; f < built; ++f)
      stageClass.curves[f] =
          &place.curve(stageClass.inFlight, stageClass.memory, weights[f]);
  }
  for (size_t s = 0; s < stages; ++s) {
    auto cutsOf = [&](size_t stage) {
      return std::make_tuple(stageClassOf[stage], stage > 0,
                             stage > 0 ? problem.cutPlace[stage - 1] : 0,
                             stage + 1 < stages,
                             stage + 1 < stages ? problem.cutPlace[stage] : 0);
    };
    size_t representative = 0;
    while (cutsOf(representative) != cutsOf(s))
      ++representative;
    representatives.push_back(representative);
  }
  equalUntil.resize(stages);
}

size_t PipelineTables::shiftDistance(size_t stage, size_t begin, size_t end) {
  std::vector<size_t> &until = equalUntil[representatives[stage]];
  if (until.empty()) {
    until.assign(layers, layers - 1);
    const StageClass &at = stageClass(stage);
    const std::vector<size_t> &transforms =
        problem.transforms[problem.stages[stage].place];
    auto boundary = [&](size_t l) {
      return problem.boundaryBehind.empty() ? 0 : problem.boundaryBehind[l];
    };
    auto alike = [&](size_t l) {
      if (isTied[l] || isTied[l + 1] || &at.options(l) != &at.options(l + 1))
        return false;
      if (l + 2 < layers && transforms[l] != transforms[l + 1])
        return false;
      if (stage > 0 && l > 0 &&
          (cut(stage - 1, l).gradient != cut(stage - 1, l + 1).gradient ||
           boundary(l - 1) != boundary(l)))
        return false;
      if (l + 2 < layers && boundary(l) != boundary(l + 1))
        return false;
      // Only the last stage ends at the last layer.
      return stage + 1 == stages ||
             (l + 2 < layers &&
              cut(stage, l + 1).activation == cut(stage, l + 2).activation);
    };
    for (size_t l = layers - 1; l-- > 0;)
      until[l] = alike(l) ? until[l + 1] : l;
  }
  return until[begin] >= end ? until[begin] + 1 - end : 0;
}

std::vector<Picoseconds> PipelineTables::leastTies(const PipelineTie &tie,
                                                   size_t place) const {
  std::set<size_t> tables;
  for (size_t o = 0; o < stages; ++o)
    if (problem.stages[o].place == place)
      for (size_t b = o; b < stages; ++b)
        tables.insert(tie.table[o * stages + b]);
  size_t keys = problem.tieKeys;
  std::vector<Picoseconds> least(keys, kNoBound);
  for (size_t table : tables)
    for (size_t owner = 0; owner < keys; ++owner)
      for (size_t key = 0; key < keys; ++key)
        least[owner] = std::min(least[owner],
                                problem.tieTables[table][owner * keys + key]);
  return least;
}

/// The layers of a place of the problem. An owner of ties is a layer of its
/// own, with the ties at their cheapest.
StageClassPlace &PipelineTables::placeOf(size_t place, StageClassCache &cache) {
  if (places.size() <= place)
    places.resize(place + 1);
  if (places[place])
    return *places[place];
  SmallVector<const std::vector<PipelineOption> *, 16> sets;
  std::deque<std::vector<PipelineOption>> owners;
  SmallVector<uint32_t, 128> numberOf;
  SmallVector<size_t, 16> setIndices; // of `sets`
  // The time of the slowest stage stands for C_nosync if it alone counts.
  std::deque<std::vector<PipelineOption>> slowest;
  auto alone = [&](const std::vector<PipelineOption> &options)
      -> const std::vector<PipelineOption> & {
    std::vector<PipelineOption> &copy = slowest.emplace_back(options);
    for (PipelineOption &option : copy)
      option.nosync = std::exchange(option.time, 0);
    return copy;
  };
  for (size_t l = 0; l < layers; ++l) {
    size_t set = problem.layers[place][l];
    if (none_of(problem.ties, [&](const PipelineTie &tie) {
          return tie.owner == l && !tie.alike;
        })) {
      auto *it = llvm::find(setIndices, set);
      numberOf.push_back(static_cast<uint32_t>(it - setIndices.begin()));
      if (it != setIndices.end())
        continue;
      setIndices.push_back(set);
      sets.push_back(problem.slowestAlone ? &alone(problem.optionSets[set])
                                          : &problem.optionSets[set]);
      continue;
    }
    std::vector<PipelineOption> &options =
        owners.emplace_back(problem.optionSets[set]);
    // Layers that are held alike on one stage are paid for by the borrower.
    for (const PipelineTie &tie : problem.ties) {
      if (tie.owner != l || tie.alike)
        continue;
      std::vector<Picoseconds> least = leastTies(tie, place);
      for (PipelineOption &option : options)
        option.time += least[option.tieKey];
    }
    numberOf.push_back(static_cast<uint32_t>(sets.size()));
    setIndices.push_back(~size_t(0));
    sets.push_back(problem.slowestAlone ? &alone(options) : &options);
  }
  places[place] = cache.placeOf(sets, numberOf);
  return *places[place];
}

//===----------------------------------------------------------------------===//
// Ties
//===----------------------------------------------------------------------===//

/// The first and the last stage that a layer can be on.
static std::pair<size_t, size_t> stagesOf(const PipelineProblem &problem,
                                          size_t layer) {
  if (!problem.partition.empty()) {
    size_t stage = 0, end = problem.partition[0];
    while (layer >= end)
      end += problem.partition[++stage];
    return {stage, stage};
  }
  // Every stage has a layer; the first layer is on the first, the last on the
  // last.
  size_t stages = problem.stages.size();
  size_t behind = problem.layerCount() - 1 - layer;
  size_t first = stages > behind + 1 ? stages - 1 - behind : 0;
  if (behind == 0)
    first = stages - 1;
  return {first, layer == 0 ? 0 : std::min(layer, stages - 1)};
}

/// The keys of a layer's options on a stage.
static std::vector<bool> keysOn(const PipelineProblem &problem, size_t layer,
                                size_t stage) {
  std::vector<bool> present(problem.tieKeys, false);
  size_t place = problem.stages[stage].place;
  for (const PipelineOption &option :
       problem.optionSets[problem.layers[place][layer]])
    present[option.tieKey] = true;
  return present;
}

/// The ways to settle a tie whose owner is on one stage and whose borrower is
/// on one of [first, last], which no cost can tell apart.
static void addGroups(const PipelineProblem &problem, const PipelineTie &tie,
                      size_t owner, size_t first, size_t last,
                      std::vector<TieChoice::Settled> &groups) {
  size_t keys = problem.tieKeys;
  const std::vector<Picoseconds> &table =
      problem.tieTables[tie.table[owner * problem.stages.size() + first]];
  std::vector<bool> present = keysOn(problem, tie.borrower, first);
  if (!tie.alike) {
    // Borrowers' keys that cost every owner the same are one choice.
    size_t before = groups.size();
    for (size_t key = 0; key < keys; ++key) {
      if (!present[key])
        continue;
      auto it = std::find_if(
          groups.begin() + before, groups.end(), [&](const auto &group) {
            for (size_t o = 0; o < keys; ++o)
              if (table[o * keys + key] != table[o * keys + group.key])
                return false;
            return true;
          });
      if (it == groups.end()) {
        groups.push_back({owner, first, last, std::vector<bool>(keys, false),
                          key, std::nullopt});
        it = std::prev(groups.end());
      }
      it->allowed[key] = true;
    }
    return;
  }
  std::vector<bool> owned = keysOn(problem, tie.owner, owner);
  for (size_t own = 0; own < keys; ++own) {
    if (!owned[own])
      continue;
    TieChoice::Settled group{owner, first, last, present, own, own};
    if (!group.paidByBorrower()) {
      const Picoseconds *costs = &table[own * keys];
      Picoseconds least = kNoBound, cost = costs[own];
      bool isThere = false;
      for (size_t key = 0; key < keys; ++key)
        if (present[key]) {
          least = std::min(least, costs[key]);
          isThere |= costs[key] == cost;
        }
      if (!isThere)
        cost = least;
      for (size_t key = 0; key < keys; ++key) {
        group.allowed[key] = present[key] && costs[key] == cost;
        if (group.allowed[key])
          group.key = key;
      }
    }
    groups.push_back(std::move(group));
  }
}

/// Returns true if a way to settle a tie is no contradiction to a choice for
/// those before: a layer is on one stage and has one key, and stages are in
/// order.
static bool agrees(const PipelineProblem &problem, const TieChoice &choice,
                   const PipelineTie &tie, const TieChoice::Settled &settled) {
  struct Placed {
    size_t layer, first, last;
  };
  auto placesOf = [](const PipelineTie &of, const TieChoice::Settled &as) {
    return std::array<Placed, 2>{
        Placed{of.owner, as.ownerStage, as.ownerStage},
        Placed{of.borrower, as.firstStage, as.lastStage}};
  };
  for (auto [before, other] : llvm::zip(problem.ties, choice.ties)) {
    if ((before.owner == tie.owner || problem.ownersAlike) && other.ownerKey &&
        settled.ownerKey && other.ownerKey != settled.ownerKey)
      return false;
    for (const Placed &one : placesOf(before, other))
      for (const Placed &two : placesOf(tie, settled))
        if (one.layer <= two.layer ? one.first > two.last
                                   : two.first > one.last)
          return false;
        else if (one.layer == two.layer && two.first > one.last)
          return false;
  }
  return true;
}

/// Multiplies the ways to settle the ties before by the ways to settle the next
/// one.
std::vector<TieChoice> settleTies(const PipelineProblem &problem, size_t most) {
  size_t stages = problem.stages.size();
  std::vector<TieChoice> choices = {TieChoice()};
  for (const PipelineTie &tie : problem.ties) {
    std::vector<TieChoice::Settled> groups;
    auto [firstOwner, lastOwner] = stagesOf(problem, tie.owner);
    auto [from, to] = stagesOf(problem, tie.borrower);
    for (size_t owner = firstOwner; owner <= lastOwner; ++owner)
      for (size_t first = std::max(owner, from), last = first; first <= to;
           first = ++last) {
        auto isLikeFirst = [&](size_t stage) {
          return tie.table[owner * stages + stage] ==
                     tie.table[owner * stages + first] &&
                 problem.stages[stage].place == problem.stages[first].place;
        };
        while (first > owner && last < to && isLikeFirst(last + 1))
          ++last;
        addGroups(problem, tie, owner, first, last, groups);
      }
    std::vector<TieChoice> grown;
    for (const TieChoice &choice : choices)
      for (const TieChoice::Settled &group : groups)
        if (agrees(problem, choice, tie, group)) {
          if (grown.size() == most)
            return {};
          grown.push_back(choice);
          grown.back().ties.push_back(group);
        }
    choices = std::move(grown);
  }
  return choices;
}

bool PipelineTables::tied(size_t begin, size_t end) const {
  return any_of(problem.ties, [&](const PipelineTie &tie) {
    return (tie.owner >= begin && tie.owner < end) ||
           (tie.borrower >= begin && tie.borrower < end);
  });
}

bool PipelineTables::agrees(size_t tieChoice, size_t stage, size_t begin,
                            size_t end) const {
  for (auto [tie, settled] :
       llvm::zip(problem.ties, tieChoices[tieChoice].ties)) {
    auto inside = [&](size_t layer) { return layer >= begin && layer < end; };
    if (inside(tie.owner) != (stage == settled.ownerStage))
      return false;
    bool isOpen = stage >= settled.firstStage && stage <= settled.lastStage;
    bool isOnly = isOpen && settled.firstStage == settled.lastStage;
    if (inside(tie.borrower) ? !isOpen : isOnly)
      return false;
  }
  return true;
}

const Choices &PipelineTables::options(size_t stage, size_t layer,
                                       size_t tieChoice) {
  if (!isTied[layer])
    return stageClass(stage).options(layer);
  auto [it, fresh] =
      settled.try_emplace({stageClassOf[stage], layer, tieChoice});
  if (!fresh)
    return *it->second;
  const PipelineStage &at = problem.stages[stage];
  const std::vector<PipelineOption> &set =
      problem.optionSets[problem.layers[at.place][layer]];
  Choices choices = toChoices(set, at.inFlight);
  if (problem.slowestAlone)
    for (Choice &own : choices)
      own.nosync = std::exchange(own.time, 0);
  for (auto [tie, choice] :
       llvm::zip(problem.ties, tieChoices[tieChoice].ties)) {
    const std::vector<Picoseconds> &table =
        problem.tieTables[tie.table[choice.ownerStage * stages +
                                    choice.firstStage]];
    auto keyOf = [&set](const Choice &own) { return set[own.index].tieKey; };
    if (tie.borrower == layer) {
      erase_if(choices,
               [&](const Choice &own) { return !choice.allowed[keyOf(own)]; });
      if (choice.paidByBorrower())
        for (Choice &own : choices)
          tiedTime(own) +=
              table[*choice.ownerKey * problem.tieKeys + keyOf(own)];
    }
    if (tie.owner == layer) {
      if (choice.ownerKey)
        erase_if(choices, [&](const Choice &own) {
          return keyOf(own) != *choice.ownerKey;
        });
      if (!choice.paidByBorrower())
        for (Choice &own : choices)
          tiedTime(own) += table[keyOf(own) * problem.tieKeys + choice.key];
    }
  }
  choices = withoutDominated(choices);
  auto equal = llvm::find(settledSets, choices);
  it->second =
      equal != settledSets.end() ? &*equal : &settledSets.emplace_back(choices);
  return *it->second;
}

Charges::Charges(const std::vector<Picoseconds> &matrix, size_t classes,
                 bool byRow)
    : byClass(classes, kNoBound), matrix(matrix), byRow(byRow) {
  for (size_t cell = 0; cell < matrix.size(); ++cell) {
    Picoseconds &own = byClass[byRow ? cell / classes : cell % classes];
    own = std::min(own, matrix[cell]);
    least = std::min(least, own);
  }
}

const std::vector<Picoseconds> &Charges::above() {
  if (rest.empty()) {
    size_t classes = byClass.size();
    for (size_t cell = 0; cell < matrix.size(); ++cell)
      rest.push_back(matrix[cell] -
                     byClass[byRow ? cell / classes : cell % classes]);
    rest.push_back(*llvm::max_element(rest));
  }
  return rest;
}

Charges &PipelineTables::chargesOf(size_t matrix, bool byRow) {
  std::optional<Charges> &own = charges[2 * matrix + (byRow ? 1 : 0)];
  if (!own)
    own.emplace(problem.matrices[matrix], problem.classes, byRow);
  return *own;
}

const std::vector<Picoseconds> &PipelineTables::transform(size_t stage,
                                                          size_t layer) const {
  return problem
      .matrices[problem.transforms[problem.stages[stage].place][layer]];
}

const std::vector<Picoseconds> &PipelineTables::spread(size_t stage,
                                                       size_t layer) {
  size_t index = problem.transforms[problem.stages[stage].place][layer];
  size_t classes = problem.classes;
  std::vector<Picoseconds> &most = spreads[index];
  if (most.empty()) {
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    most.assign(classes * classes, -kNoBound);
    for (size_t a = 0; a < classes; ++a)
      for (size_t b = 0; b < classes; ++b)
        for (size_t x = 0; x < classes; ++x)
          most[a * classes + b] =
              std::max(most[a * classes + b],
                       matrix[x * classes + a] - matrix[x * classes + b]);
  }
  return most;
}

} // namespace galvatron::search

size_t galvatron::countTieChoices(const PipelineProblem &problem, size_t most) {
  if (problem.ties.empty())
    return 1;
  size_t count = search::settleTies(problem, most).size();
  return count == 0 ? most + 1 : count;
}
