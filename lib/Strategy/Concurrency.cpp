//===- Concurrency.cpp - Collectives side by side -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Concurrency.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer) {
  if (!layer.parameterSharding())
    return "nothing of it (" + layer.str() + ") is sharded";
  // With equal layouts nothing else can clash: ranks of one TP group hold the
  // same samples, those of one SDP group different ones.
  if (beside.sampleLayout() != layer.sampleLayout())
    return "the gather of " + layer.str() +
           " would run beside the reshard from " + beside.str();
  return "";
}

std::vector<GatherAhead> gathersAhead(ArrayRef<Strategy> layers) {
  std::vector<GatherAhead> ahead(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    ahead[l].forward =
        l > 0 && whyNotGatherAhead(layers[l - 1], layers[l]).empty();
    ahead[l].backward = l + 1 < layers.size() &&
                        whyNotGatherAhead(layers[l + 1], layers[l]).empty();
  }
  return ahead;
}

/// Whether some group of one level has two ranks in common with some group of
/// the other. A level's groups are ranks of equal distance, so of two in common
/// the nearest are a common multiple of both distances apart.
static bool shareRanks(const Strategy &one, Paradigm ofOne,
                       const Strategy &other, Paradigm ofOther) {
  int64_t apart = std::lcm(one.stride(ofOne), other.stride(ofOther));
  // Whether the rank that is so much further is in the group of `rank`.
  auto reaches = [&](int64_t rank, const Strategy &strategy, Paradigm of) {
    return strategy.coordinate(rank, of) + apart / strategy.stride(of) <
           strategy.degree(of);
  };
  for (int64_t rank = 0; rank + apart < one.devices(); ++rank)
    if (reaches(rank, one, ofOne) && reaches(rank, other, ofOther))
      return true;
  return false;
}

std::vector<AwaitedSums> awaitedSums(ArrayRef<Strategy> layers) {
  std::vector<AwaitedSums> awaited(layers.size());
  // Layers whose sums may not have ended.
  SmallVector<size_t> begun;
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
        if (shareRanks(layers[sum], layers[sum].gradientAllReduceLevel(),
                       layers[l], paradigm))
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
    if (layers[l].gradientAllReduceLevel())
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
  return any_of(layers, [](const Strategy &strategy) {
    return strategy.degree(strategy.gradientAllReduceLevel()) > 1;
  });
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
