//===- HarmonySearch.cpp - Packs and micro-batch sizes --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/HarmonySearch.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

namespace {

struct NamedPacks {
  LayerPacks packs;
  std::string method;
};

class HarmonySearch {
public:
  HarmonySearch(const HarmonyProfile &profile, const HarmonyProblem &problem,
                const HarmonyRules &rules, HarmonyResult &result)
      : profile(profile), problem(problem), rules(rules), result(result),
        simulator(profile, problem.machine, problem.minibatch, rules) {}

  void run() {
    std::vector<int64_t> forward = sizes(Direction::Forward);
    for (int64_t backwardSize : sizes(Direction::Backward))
      for (const NamedPacks &backward :
           packings(Direction::Backward, backwardSize, profile.layerCount(),
                    nullptr)) {
        int64_t forwardEnd =
            rules.joinLastPack ? backward.packs.back() : profile.layerCount();
        if (forwardEnd == 0) {
          consider({backwardSize, backwardSize, {}, backward.packs}, "",
                   backward.method);
          continue;
        }
        LayerPacks reuse = backward.packs;
        if (rules.joinLastPack)
          reuse.pop_back();
        for (int64_t forwardSize : forward) {
          if ((forwardSize < backwardSize && !problem.allSizes) ||
              (forwardSize != backwardSize &&
               (problem.sizes == HarmonyProblem::Sizes::Equal ||
                !rules.grouping)) ||
              (problem.sizes == HarmonyProblem::Sizes::Multiples &&
               forwardSize % backwardSize != 0))
            continue;
          for (const NamedPacks &packs :
               packings(Direction::Forward, forwardSize, forwardEnd, &reuse))
            consider({forwardSize, backwardSize, packs.packs, backward.packs},
                     packs.method, backward.method);
        }
      }
  }

  /// The bytes that the largest layer needs at the smallest size, either
  /// direction.
  int64_t leastNeed() {
    int64_t need = 0;
    for (Direction direction : {Direction::Forward, Direction::Backward}) {
      std::vector<int64_t> candidates = sizes(direction);
      if (candidates.empty())
        continue;
      PackingProblem packing =
          packingProblem(direction, candidates.front(), profile.layerCount());
      for (int64_t l = 0; l < profile.layerCount(); ++l)
        need = std::max(need, packing.packMemory(l, l + 1));
    }
    return need;
  }

  bool hasSizes() {
    return !sizes(Direction::Forward).empty() &&
           !sizes(Direction::Backward).empty();
  }

private:
  /// Sizes between the smallest and the largest measured one that leave every
  /// device whole micro-batches.
  std::vector<int64_t> sizes(Direction direction) const {
    ArrayRef<int64_t> measured = profile.sizes(direction);
    int64_t devices =
        rules.mode == HarmonyMode::Pipeline ? 1 : problem.machine.devices;
    int64_t least = problem.minibatch / devices;
    int64_t most = simulator.samples();
    std::vector<int64_t> result;
    for (int64_t size = measured.front();
         size <= std::min(measured.back(), least); ++size) {
      bool divides = least % size == 0 && most % size == 0;
      bool restMeasured =
          (least % size == 0 || least % size >= measured.front()) &&
          (most % size == 0 || most % size >= measured.front());
      if (divides || (problem.allSizes && restMeasured))
        result.push_back(size);
    }
    return result;
  }

  PackingProblem packingProblem(Direction direction, int64_t size,
                                int64_t layers) {
    const HarmonyCosts &costs = simulator.costs(direction, size);
    const std::vector<int64_t> &input = simulator.inputBytes(size);
    PackingProblem packing;
    packing.capacity = problem.machine.capacity;
    packing.time.assign(costs.time.begin(), costs.time.begin() + layers);
    packing.input.assign(input.begin(), input.begin() + layers);
    // An update on the device holds weights, gradients and the optimizer's
    // state of a pack at once; activations are gone by then. The larger need of
    // every layer is enough for both.
    ArrayRef<int64_t> weights = profile.weightSums(),
                      state = profile.optimizerSums();
    bool updates = rules.updateOnDevice && direction == Direction::Backward;
    for (int64_t l = 0; l < layers; ++l)
      packing.memory.push_back(std::max(
          {costs.memory[l] - input[l], int64_t(0),
           updates ? 2 * (weights[l + 1] - weights[l]) + state[l + 1] - state[l]
                   : 0}));
    return packing;
  }

  std::vector<NamedPacks> packings(Direction direction, int64_t size,
                                   int64_t layers, const LayerPacks *reuse) {
    PackingProblem packing = packingProblem(direction, size, layers);
    if (problem.exhaustive)
      return allPackings(packing);
    std::vector<NamedPacks> result;
    for (PackingMethod method : direction == Direction::Forward
                                    ? problem.forwardPackings
                                    : problem.backwardPackings) {
      std::optional<LayerPacks> packs;
      if (method != PackingMethod::Reuse)
        packs = packLayers(packing, method);
      else if (reuse && packsFitBelow(packing, *reuse))
        packs = *reuse;
      if (packs)
        result.push_back({std::move(*packs), packingName(method).str()});
    }
    return result;
  }

  /// Every way to cut the layers into packs that fit.
  static std::vector<NamedPacks> allPackings(const PackingProblem &packing) {
    std::vector<NamedPacks> result;
    auto layers = static_cast<int64_t>(packing.layers());
    for (uint64_t cuts = 0; cuts < uint64_t(1) << (layers - 1); ++cuts) {
      LayerPacks packs = {0};
      for (int64_t l = 1; l < layers; ++l)
        if (cuts >> (l - 1) & 1)
          packs.push_back(l);
      bool fits = true;
      for (size_t p = 0; p < packs.size() && fits; ++p)
        fits = packing.packMemory(packs[p], p + 1 < packs.size()
                                                ? packs[p + 1]
                                                : layers) <= packing.capacity;
      if (fits)
        result.push_back({std::move(packs), "exhaustive"});
    }
    return result;
  }

  /// Simulates unless the computation of one device alone takes as long as the
  /// best step so far: only a shorter one replaces it, so nothing is lost.
  void consider(HarmonyConfig config, StringRef forward, StringRef backward) {
    if (config.backwardPacks.size() < static_cast<size_t>(problem.leastPacks))
      return;
    ++result.considered;
    if (result.plan &&
        simulator.lowerBound(config) >= result.plan->timeline.end)
      return;
    ++result.simulated;
    std::optional<HarmonyTimeline> timeline = simulator.run(config);
    if (!timeline ||
        (result.plan && timeline->end >= result.plan->timeline.end))
      return;
    result.plan = HarmonyPlan{std::move(config), rules, *timeline,
                              forward.str(), backward.str()};
  }

  const HarmonyProfile &profile;
  const HarmonyProblem &problem;
  HarmonyRules rules;
  HarmonyResult &result;
  HarmonySimulator simulator;
};

/// The best plan under `rules`.
HarmonyResult searchWith(const HarmonyProfile &profile,
                         const HarmonyProblem &problem,
                         const HarmonyRules &rules) {
  HarmonyResult result;
  HarmonySearch search(profile, problem, rules, result);
  search.run();
  if (result.plan)
    return result;
  if (problem.fallback && !problem.exhaustive) {
    HarmonyProblem widened = problem;
    widened.fallback = false;
    widened.backwardPackings = {
        PackingMethod::BalancedTime, PackingMethod::BalancedMemory,
        PackingMethod::GreedyForward, PackingMethod::GreedyBackward,
        PackingMethod::SingleLayers};
    widened.forwardPackings = widened.backwardPackings;
    widened.forwardPackings.push_back(PackingMethod::Reuse);
    return searchWith(profile, widened, rules);
  }
  result.neededBytes = search.leastNeed();
  result.reason =
      !search.hasSizes()
          ? "no measured micro-batch size divides the samples of a device"
      : result.neededBytes > problem.machine.capacity
          ? "a layer alone needs more than a device has"
          : "no packing that was tried fits";
  return result;
}

} // namespace

Expected<HarmonyResult> searchHarmony(const HarmonyProfile &profile,
                                      const HarmonyProblem &problem) {
  const HarmonyMachine &machine = problem.machine;
  if (!problem.rules.grouping && problem.rules.prefetch)
    return makeError("copies run ahead along the micro-batches of a pack, "
                     "which are one without grouping: expected no prefetch");
  if (machine.devices < 1)
    return makeError("expected at least 1 device, found " +
                     Twine(machine.devices));
  if (problem.minibatch < 1)
    return makeError("expected a minibatch of at least 1 sample, found " +
                     Twine(problem.minibatch));
  if (problem.rules.mode == HarmonyMode::DataParallel &&
      problem.minibatch < machine.devices)
    return makeError("expected at least one sample for each of the " +
                     Twine(machine.devices) + " devices, found " +
                     Twine(problem.minibatch));
  if (machine.capacity < 1)
    return makeError("expected a capacity of at least 1 byte, found " +
                     Twine(machine.capacity));
  if (!problem.exhaustive) {
    if (problem.forwardPackings.empty() || problem.backwardPackings.empty())
      return makeError("expected at least one packing method, found none");
    if (is_contained(problem.backwardPackings, PackingMethod::Reuse))
      return makeError("packing 'reuse': expected for forward only, which can "
                       "take the packs of backward");
  } else if (profile.layerCount() > kMostExhaustiveLayers) {
    return makeError("expected at most " + Twine(kMostExhaustiveLayers) +
                     " layers to try all packs, found " +
                     Twine(profile.layerCount()));
  }
  if (!problem.chooseUpdate)
    return searchWith(profile, problem, problem.rules);
  HarmonyRules host = problem.rules, device = problem.rules;
  host.updateOnDevice = false;
  device.updateOnDevice = true;
  HarmonyResult best = searchWith(profile, problem, host);
  HarmonyResult other = searchWith(profile, problem, device);
  int64_t considered = best.considered + other.considered;
  int64_t simulated = best.simulated + other.simulated;
  // The host's needs are the lesser ones, so they say why nothing fits.
  if (other.plan &&
      (!best.plan || other.plan->timeline.end < best.plan->timeline.end))
    best = std::move(other);
  best.considered = considered;
  best.simulated = simulated;
  return best;
}

} // namespace galvatron
