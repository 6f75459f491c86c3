//===- LayerPacking.cpp - Layers into packs that fit ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/LayerPacking.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

using namespace llvm;

namespace galvatron {

namespace {

constexpr std::pair<PackingMethod, StringRef> methodNames[] = {
    {PackingMethod::BalancedTime, "balanced-time"},
    {PackingMethod::BalancedMemory, "balanced-memory"},
    {PackingMethod::GreedyForward, "greedy"},
    {PackingMethod::GreedyBackward, "greedy-reverse"},
    {PackingMethod::SingleLayers, "single-layers"},
    {PackingMethod::Reuse, "reuse"}};

/// Cuts where the running sum of `measure` first reaches k/count of the total,
/// for k from 1: that layer starts the next pack. Nothing if a pack is empty.
std::optional<LayerPacks> cutEvenly(ArrayRef<int64_t> sums, int64_t count) {
  LayerPacks packs = {0};
  auto total = static_cast<__int128>(sums.back());
  size_t layer = 0;
  for (int64_t k = 1; k < count; ++k) {
    while (static_cast<__int128>(sums[layer]) * count < total * k)
      ++layer;
    if (static_cast<int64_t>(layer) <= packs.back())
      return std::nullopt;
    packs.push_back(static_cast<int64_t>(layer));
  }
  return packs;
}

/// The fewest packs of about equal measure that fit, from the number that the
/// sum of memory needs at least.
std::optional<LayerPacks> packEvenly(const PackingProblem &problem,
                                     ArrayRef<int64_t> measure) {
  std::vector<int64_t> sums(measure.size());
  std::partial_sum(measure.begin(), measure.end(), sums.begin());
  auto layers = static_cast<int64_t>(problem.layers());
  int64_t memory =
      std::accumulate(problem.memory.begin(), problem.memory.end(), int64_t(0));
  int64_t least = memory / problem.capacity + (memory % problem.capacity > 0);
  for (int64_t count = std::max<int64_t>(least, 1); count <= layers; ++count) {
    std::optional<LayerPacks> packs = cutEvenly(sums, count);
    if (!packs)
      continue;
    bool fits = true;
    for (size_t p = 0; p < packs->size() && fits; ++p)
      fits = problem.packMemory((*packs)[p], p + 1 < packs->size()
                                                 ? (*packs)[p + 1]
                                                 : layers) <= problem.capacity;
    if (fits)
      return packs;
  }
  return std::nullopt;
}

/// Adds layers to a pack until it would reach the capacity.
std::optional<LayerPacks> packForward(const PackingProblem &problem) {
  LayerPacks packs;
  int64_t sum = 0;
  for (size_t l = 0; l < problem.layers(); ++l) {
    sum += problem.memory[l];
    if (!packs.empty() && sum < problem.capacity)
      continue;
    packs.push_back(static_cast<int64_t>(l));
    sum = problem.memory[l] + problem.input[l];
    if (sum >= problem.capacity)
      return std::nullopt;
  }
  return packs;
}

/// Packs from the last layer on; the rest is in the first pack.
std::optional<LayerPacks> packBackward(const PackingProblem &problem) {
  LayerPacks packs;
  int64_t sum = 0;
  for (size_t l = problem.layers(); l-- > 0;) {
    sum += problem.memory[l];
    if (l + 1 < problem.layers() && sum + problem.input[l] < problem.capacity)
      continue;
    if (l + 1 < problem.layers())
      packs.push_back(static_cast<int64_t>(l) + 1);
    sum = problem.memory[l];
    if (sum + problem.input[l] >= problem.capacity)
      return std::nullopt;
  }
  packs.push_back(0);
  std::reverse(packs.begin(), packs.end());
  return packs;
}

std::optional<LayerPacks> packSingly(const PackingProblem &problem) {
  LayerPacks packs;
  for (int64_t l = 0; l < static_cast<int64_t>(problem.layers()); ++l) {
    if (problem.packMemory(l, l + 1) > problem.capacity)
      return std::nullopt;
    packs.push_back(l);
  }
  return packs;
}

} // namespace

int64_t PackingProblem::packMemory(int64_t begin, int64_t end) const {
  return std::accumulate(memory.begin() + begin, memory.begin() + end,
                         input[begin]);
}

StringRef packingName(PackingMethod method) {
  for (const auto &[value, name] : methodNames)
    if (value == method)
      return name;
  llvm_unreachable("all methods have names");
}

std::optional<PackingMethod> parsePacking(StringRef name) {
  for (const auto &[value, text] : methodNames)
    if (text == name)
      return value;
  return std::nullopt;
}

std::vector<std::string> packingNames() {
  std::vector<std::string> names;
  for (const auto &entry : methodNames)
    names.push_back(entry.second.str());
  return names;
}

std::optional<LayerPacks> packLayers(const PackingProblem &problem,
                                     PackingMethod method) {
  switch (method) {
  case PackingMethod::BalancedTime:
    return packEvenly(problem, problem.time);
  case PackingMethod::BalancedMemory:
    return packEvenly(problem, problem.memory);
  case PackingMethod::GreedyForward:
    return packForward(problem);
  case PackingMethod::GreedyBackward:
    return packBackward(problem);
  case PackingMethod::SingleLayers:
    return packSingly(problem);
  case PackingMethod::Reuse:
    break;
  }
  llvm_unreachable("packs to reuse come from outside");
}

bool packsFitBelow(const PackingProblem &problem, ArrayRef<int64_t> packs) {
  for (size_t p = 0; p < packs.size(); ++p) {
    int64_t end = p + 1 < packs.size() ? packs[p + 1]
                                       : static_cast<int64_t>(problem.layers());
    if (problem.packMemory(packs[p], end) >= problem.capacity)
      return false;
  }
  return true;
}

} // namespace galvatron
