//===- Concurrency.cpp - Collectives side by side -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Concurrency.h"
#include "grt/rank_groups.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <map>
#include <optional>
#include <tuple>

using namespace llvm;

namespace galvatron {

std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer) {
  ParadigmSet sharding = layer.parameterSharding();
  if (sharding.empty())
    return "nothing of it (" + layer.str() + ") is sharded";
  // The gather clashes, with equal layouts, with no collective inside the other
  // layer where its group has ranks of different samples, since the ranks of an
  // axis have the same samples (ParadigmDescriptor, C2), so that two groups
  // share one rank at most.
  if (any_of(layer.levels(),
             [&](const Level &level) {
               return sharding.contains(level.paradigm) &&
                      !level.paradigm->splitsBatch;
             }) &&
      groupsShareRanks(layer, sharding, beside, beside.insideFunctions()))
    return "the gather of " + layer.str() +
           " would run beside collectives inside " + beside.str();
  if (beside.sampleLayout() != layer.sampleLayout())
    return "the gather of " + layer.str() +
           " would run beside the reshard from " + beside.str();
  return "";
}

std::vector<GatherAhead> gathersAhead(ArrayRef<Strategy> layers) {
  std::vector<GatherAhead> ahead(layers.size());
  // Neighbours are often alike.
  std::optional<bool> besideItself;
  auto mayGather = [&](const Strategy &beside, const Strategy &layer) {
    if (!(beside == layer)) {
      besideItself.reset();
      return whyNotGatherAhead(beside, layer).empty();
    }
    if (!besideItself)
      besideItself = whyNotGatherAhead(beside, layer).empty();
    return *besideItself;
  };
  for (size_t l = 0; l < layers.size(); ++l) {
    ahead[l].forward = l > 0 && mayGather(layers[l - 1], layers[l]);
    ahead[l].backward =
        l + 1 < layers.size() && mayGather(layers[l + 1], layers[l]);
  }
  return ahead;
}

/// The levels of a strategy that a set names.
static SmallVector<grt::RankLevel> levelsAmong(const Strategy &strategy,
                                               ParadigmSet among) {
  SmallVector<grt::RankLevel> levels;
  for (const Level &level : strategy.levels())
    if (among.contains(level.paradigm))
      levels.push_back(
          {strategy.degree(level.paradigm), strategy.stride(level.paradigm)});
  return levels;
}

bool groupsShareRanks(const Strategy &one, ParadigmSet ofOne,
                      const Strategy &other, ParadigmSet ofOther) {
  assert(one.devices() == other.devices() && "both are of one stage");
  return grt::groupsShareRanks(one.devices(), levelsAmong(one, ofOne),
                               levelsAmong(other, ofOther));
}

std::vector<AwaitedSums> awaitedSums(ArrayRef<Strategy> layers) {
  std::vector<AwaitedSums> awaited(layers.size());
  // Layers whose sums may not have ended.
  SmallVector<size_t> begun;
  // The answers by strategies and level, as most layers are alike: true if sums
  // of the one and the level of the other share ranks.
  std::map<std::tuple<Strategy, Strategy, Paradigm>, bool> known;
  auto shareRanks = [&](const Strategy &summed, const Strategy &other,
                        Paradigm level) {
    auto [entry, isNew] = known.try_emplace({summed, other, level}, false);
    if (isNew)
      entry->second =
          groupsShareRanks(summed, summed.gradientSumLevels(), other, level);
    return entry->second;
  };
  for (size_t l = layers.size(); l-- > 0;) {
    auto reason = [&](size_t sum, StringRef what) {
      return ("the sum of gradients of layer " + Twine(sum) + " (" +
              layers[sum].str() + ") would run beside " + what + " of layer " +
              Twine(l) + " (" + layers[l].str() + ")")
          .str();
    };
    for (Paradigm paradigm : ParadigmRegistry::all()) {
      if (!paradigm->hasLayerCollectives() || layers[l].degree(paradigm) == 1)
        continue;
      std::string &waits =
          paradigm->shardsParameters ? awaited[l].gather : awaited[l].pass;
      // Many neighbours are alike.
      size_t last = layers.size();
      for (size_t sum : begun) {
        if (!waits.empty())
          break;
        if (last < layers.size() && layers[sum] == layers[last])
          continue;
        last = sum;
        if (shareRanks(layers[sum], layers[l], paradigm))
          waits = reason(sum, paradigm->purpose);
      }
    }
    if (!awaited[l].pass.empty())
      begun.clear();
    if (l > 0 && layers[l - 1].sampleLayout() != layers[l].sampleLayout() &&
        !begun.empty()) {
      awaited[l].reshard = reason(begun.front(), "the reshard");
      begun.clear();
    }
    if (layers[l].sumsOnce())
      begun.push_back(l);
  }
  return awaited;
}

/// The first reason why something waits for sums; empty if nothing does.
static std::string whyAwaited(ArrayRef<Strategy> layers) {
  for (const AwaitedSums &sums : awaitedSums(layers))
    for (const std::string *reason : {&sums.gather, &sums.pass, &sums.reshard})
      if (!reason->empty())
        return *reason;
  return "";
}

bool sumsGradients(ArrayRef<Strategy> layers) {
  return any_of(layers,
                [](const Strategy &strategy) { return strategy.sumsOnce(); });
}

std::string whyNotOverlapSums(ArrayRef<Strategy> layers, SumsPlace place) {
  std::string reason = place.hasSeveralChunks ? whyAwaited(layers) : "";
  return reason.empty() ? reason : "its chunks take turns, and " + reason;
}

bool overlapsSums(ArrayRef<Strategy> layers, SumTiming chosen,
                  SumsPlace place) {
  if (chosen == SumTiming::AtEnd || !sumsGradients(layers) ||
      !whyNotOverlapSums(layers, place).empty())
    return false;
  return chosen == SumTiming::Overlap || place.isFirst ||
         whyAwaited(layers).empty();
}

} // namespace galvatron
