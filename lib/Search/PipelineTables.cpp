//===- PipelineTables.cpp - What the bounds of stages are read from -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineTables.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
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
  for (auto *table :
       {&rowLeast, &columnLeast, &spreads, &rowResiduals, &columnResiduals})
    table->resize(problem.matrices.size());
  leastOfRows.assign(problem.matrices.size(), kNoBound);
  leastOfColumns = leastOfRows;
  isTied.assign(layers, false);
  for (const PipelineTie &tie : problem.ties)
    isTied[tie.owner] = isTied[tie.borrower] = true;
  enumerateTies();
  for (const PipelineStage &stage : problem.stages) {
    auto it = llvm::find_if(stageClasses, [&](const StageClass &stageClass) {
      return stageClass.place == stage.place &&
             stageClass.inFlight == stage.inFlight &&
             stageClass.memory == stage.memory &&
             stageClass.hostMemory == stage.hostMemory &&
             stageClass.sendsFromTransient == stage.sendsFromTransient;
    });
    stageClassOf.push_back(it - stageClasses.begin());
    if (it != stageClasses.end())
      continue;
    stageClasses.emplace_back();
    stageClasses.back().place = stage.place;
    stageClasses.back().inFlight = stage.inFlight;
    stageClasses.back().memory = stage.memory;
    stageClasses.back().hostMemory = stage.hostMemory;
    stageClasses.back().sendsFromTransient = stage.sendsFromTransient;
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

const std::vector<Picoseconds> &PipelineTables::leastTies(size_t tieIndex,
                                                          size_t place) {
  auto [it, fresh] = tieLeast.try_emplace({tieIndex, place});
  if (!fresh)
    return it->second;
  const PipelineTie &tie = problem.ties[tieIndex];
  std::set<size_t> tables;
  for (size_t o = 0; o < stages; ++o)
    if (problem.stages[o].place == place)
      for (size_t b = o; b < stages; ++b)
        tables.insert(tie.table[o * stages + b]);
  size_t keys = problem.tieKeys;
  it->second.assign(keys, kNoBound);
  for (size_t table : tables)
    for (size_t owner = 0; owner < keys; ++owner)
      for (size_t key = 0; key < keys; ++key)
        it->second[owner] = std::min(
            it->second[owner], problem.tieTables[table][owner * keys + key]);
  return it->second;
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
    if (none_of(problem.ties,
                [&](const PipelineTie &tie) { return tie.owner == l; })) {
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
    for (size_t t = 0; t < problem.ties.size(); ++t)
      if (problem.ties[t].owner == l)
        for (PipelineOption &option : options)
          option.time += leastTies(t, place)[option.tieKey];
    numberOf.push_back(static_cast<uint32_t>(sets.size()));
    setIndices.push_back(~size_t(0));
    sets.push_back(problem.slowestAlone ? &alone(options) : &options);
  }
  places[place] = cache.placeOf(sets, numberOf);
  return *places[place];
}

bool PipelineTables::isInOrder(const TieChoice &choice, const PipelineTie &tie,
                               size_t owner, size_t borrower) const {
  auto fits = [](size_t layer, size_t stage, size_t other, size_t of) {
    return layer == other  ? stage == of
           : layer < other ? stage <= of
                           : stage >= of;
  };
  for (auto [before, settled] : llvm::zip(problem.ties, choice.ties))
    for (auto [layer, stage] : {std::pair(before.owner, settled.ownerStage),
                                {before.borrower, settled.borrowerStage}})
      if (!fits(tie.owner, owner, layer, stage) ||
          !fits(tie.borrower, borrower, layer, stage))
        return false;
  return true;
}

void PipelineTables::enumerateTies() {
  tieChoices = {TieChoice()};
  auto stagesOf = [&](size_t layer) {
    std::vector<size_t> possible;
    if (!problem.partition.empty()) {
      size_t stage = 0, end = problem.partition[0];
      while (layer >= end)
        end += problem.partition[++stage];
      return std::vector<size_t>{stage};
    }
    for (size_t s = 0; s < stages; ++s)
      if (s <= layer && stages - 1 - s <= layers - 1 - layer &&
          (layer > 0 || s == 0) && (layer + 1 < layers || s + 1 == stages))
        possible.push_back(s);
    return possible;
  };
  size_t keys = problem.tieKeys;
  for (const PipelineTie &tie : problem.ties) {
    std::vector<TieChoice> grown;
    for (size_t owner : stagesOf(tie.owner))
      for (size_t borrower : stagesOf(tie.borrower)) {
        if (borrower < owner)
          continue;
        const std::vector<Picoseconds> &table =
            problem.tieTables[tie.table[owner * stages + borrower]];
        // Borrowers' keys that cost every owner the same are one choice.
        size_t place = problem.stages[borrower].place;
        std::vector<bool> present(keys, false);
        for (const PipelineOption &option :
             problem.optionSets[problem.layers[place][tie.borrower]])
          present[option.tieKey] = true;
        std::vector<TieChoice::Settled> groups;
        for (size_t key = 0; key < keys; ++key) {
          if (!present[key])
            continue;
          auto it = llvm::find_if(groups, [&](const auto &group) {
            for (size_t o = 0; o < keys; ++o)
              if (table[o * keys + key] != table[o * keys + group.key])
                return false;
            return true;
          });
          if (it == groups.end()) {
            groups.push_back(
                {owner, borrower, std::vector<bool>(keys, false), key});
            it = std::prev(groups.end());
          }
          it->allowed[key] = true;
        }
        for (const TieChoice &choice : tieChoices)
          for (const TieChoice::Settled &group : groups) {
            if (!isInOrder(choice, tie, owner, borrower))
              continue;
            grown.push_back(choice);
            grown.back().ties.push_back(group);
          }
      }
    tieChoices = std::move(grown);
  }
}

bool PipelineTables::tied(size_t begin, size_t end) const {
  return any_of(problem.ties, [&](const PipelineTie &tie) {
    return (tie.owner >= begin && tie.owner < end) ||
           (tie.borrower >= begin && tie.borrower < end);
  });
}

bool PipelineTables::agrees(size_t tieChoice, size_t stage, size_t begin,
                            size_t end) const {
  for (size_t t = 0; t < problem.ties.size(); ++t) {
    const PipelineTie &tie = problem.ties[t];
    const TieChoice::Settled &choice = tieChoices[tieChoice].ties[t];
    auto inside = [&](size_t layer) { return layer >= begin && layer < end; };
    if (inside(tie.owner) != (stage == choice.ownerStage) ||
        inside(tie.borrower) != (stage == choice.borrowerStage))
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
    return it->second;
  const PipelineStage &at = problem.stages[stage];
  const std::vector<PipelineOption> &set =
      problem.optionSets[problem.layers[at.place][layer]];
  Choices choices = toChoices(set, at.inFlight);
  if (problem.slowestAlone)
    for (Choice &own : choices)
      own.nosync = std::exchange(own.time, 0);
  for (size_t t = 0; t < problem.ties.size(); ++t) {
    const PipelineTie &tie = problem.ties[t];
    const TieChoice::Settled &choice = tieChoices[tieChoice].ties[t];
    if (tie.borrower == layer)
      erase_if(choices, [&](const Choice &own) {
        return !choice.allowed[set[own.index].tieKey];
      });
    if (tie.owner == layer) {
      const std::vector<Picoseconds> &table =
          problem.tieTables[tie.table[choice.ownerStage * stages +
                                      choice.borrowerStage]];
      for (Choice &own : choices)
        tiedTime(own) +=
            table[set[own.index].tieKey * problem.tieKeys + choice.key];
    }
  }
  it->second = withoutDominated(choices, /*timesMatter=*/true);
  return it->second;
}

const std::vector<Picoseconds> *PipelineTables::endCharge(size_t stage,
                                                          size_t end) {
  if (stage + 1 == stages)
    return nullptr;
  size_t index = cut(stage, end).activation, classes = problem.classes;
  std::vector<Picoseconds> &least = rowLeast[index];
  if (least.empty()) {
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    for (size_t a = 0; a < classes; ++a)
      least.push_back(*std::min_element(matrix.begin() + a * classes,
                                        matrix.begin() + (a + 1) * classes));
  }
  return &least;
}

const std::vector<Picoseconds> *PipelineTables::startCharge(size_t stage,
                                                            size_t begin) {
  if (stage == 0)
    return nullptr;
  size_t index = cut(stage - 1, begin).gradient, classes = problem.classes;
  std::vector<Picoseconds> &least = columnLeast[index];
  if (least.empty()) {
    least.assign(classes, kNoBound);
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    for (size_t cell = 0; cell < classes * classes; ++cell)
      least[cell % classes] = std::min(least[cell % classes], matrix[cell]);
  }
  return &least;
}

Picoseconds PipelineTables::leastEndCharge(size_t stage, size_t end) {
  if (stage + 1 == stages)
    return 0;
  Picoseconds &least = leastOfRows[cut(stage, end).activation];
  if (least >= kNoBound)
    least = *llvm::min_element(*endCharge(stage, end));
  return least;
}

Picoseconds PipelineTables::leastStartCharge(size_t stage, size_t begin) {
  if (stage == 0)
    return 0;
  Picoseconds &least = leastOfColumns[cut(stage - 1, begin).gradient];
  if (least >= kNoBound)
    least = *llvm::min_element(*startCharge(stage, begin));
  return least;
}

const std::vector<Picoseconds> &
PipelineTables::activationResiduals(size_t stage, size_t end) {
  size_t index = cut(stage, end).activation, classes = problem.classes;
  std::vector<Picoseconds> &residuals = rowResiduals[index];
  if (residuals.empty()) {
    const std::vector<Picoseconds> &charge = *endCharge(stage, end);
    for (size_t cell = 0; cell < classes * classes; ++cell)
      residuals.push_back(problem.matrices[index][cell] -
                          charge[cell / classes]);
    residuals.push_back(*llvm::max_element(residuals));
  }
  return residuals;
}

const std::vector<Picoseconds> &
PipelineTables::gradientResiduals(size_t stage, size_t begin) {
  size_t index = cut(stage - 1, begin).gradient, classes = problem.classes;
  std::vector<Picoseconds> &residuals = columnResiduals[index];
  if (residuals.empty()) {
    const std::vector<Picoseconds> &charge = *startCharge(stage, begin);
    for (size_t cell = 0; cell < classes * classes; ++cell)
      residuals.push_back(problem.matrices[index][cell] -
                          charge[cell % classes]);
    residuals.push_back(*llvm::max_element(residuals));
  }
  return residuals;
}

Picoseconds PipelineTables::endResidual(size_t stage, size_t end) {
  return stage + 1 == stages ? 0 : activationResiduals(stage, end).back();
}

Picoseconds PipelineTables::startResidual(size_t stage, size_t begin) {
  return stage == 0 ? 0 : gradientResiduals(stage, begin).back();
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
