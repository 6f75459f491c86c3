//===- HarmonySearchTest.cpp - Packs and micro-batch sizes ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/HarmonySearch.h"

#include "../HarmonyInstances.h"
#include "galvatron/Support/Json.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

using namespace galvatron;

namespace {

//===----------------------------------------------------------------------===//
// Tables 1 and 6 of the paper, from its authors' profiles
//===----------------------------------------------------------------------===//

std::optional<HarmonyProfile> measured(const std::string &model) {
  const char *folder = std::getenv("GALVATRON_ORACLES");
  if (!folder)
    return std::nullopt;
  std::string path = std::string(folder) + "/harmony/" + model + ".json";
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return std::nullopt;
  return llvm::cantFail(HarmonyProfile::fromJson(
      llvm::cantFail(parseJson((*buffer)->getBuffer(), path)), path));
}

/// Four devices, 64 samples, 9e9 bytes: how the transformers of Table 1 were
/// planned.
HarmonyProblem tableOne() {
  HarmonyProblem problem;
  problem.minibatch = 64;
  problem.machine.devices = 4;
  problem.machine.capacity = 9'000'000'000;
  return problem;
}

/// Seconds as the paper prints them.
std::string printed(Picoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", toMilliseconds(time) / 1000);
  return text;
}

TEST(HarmonyTables, bert96) {
  std::optional<HarmonyProfile> profile = measured("bert_96");
  if (!profile)
    GTEST_SKIP() << "GALVATRON_ORACLES is not set";
  HarmonyResult result = llvm::cantFail(searchHarmony(*profile, tableOne()));
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->config.forwardSize, 16);
  EXPECT_EQ(result.plan->config.forwardPacks.size(), 24u);
  EXPECT_EQ(result.plan->config.backwardSize, 16);
  EXPECT_EQ(result.plan->config.backwardPacks.size(), 25u);
  EXPECT_EQ(result.plan->forwardPacking, "reuse");
  EXPECT_EQ(printed(result.plan->timeline.end), "19.06");

  HarmonyProblem balanced = tableOne();
  balanced.forwardPackings = {PackingMethod::BalancedTime};
  HarmonyResult alone = llvm::cantFail(searchHarmony(*profile, balanced));
  ASSERT_TRUE(alone.plan);
  EXPECT_EQ(alone.plan->config.forwardPacks.size(), 9u);
  EXPECT_EQ(printed(alone.plan->timeline.end), "19.16");
}

TEST(HarmonyTables, gpt2) {
  std::optional<HarmonyProfile> profile = measured("gpt2_xl");
  if (!profile)
    GTEST_SKIP() << "GALVATRON_ORACLES is not set";
  HarmonyResult result = llvm::cantFail(searchHarmony(*profile, tableOne()));
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->config.forwardSize, 4);
  EXPECT_EQ(result.plan->config.forwardPacks.size(), 10u);
  EXPECT_EQ(result.plan->config.backwardSize, 4);
  EXPECT_EQ(result.plan->config.backwardPacks.size(), 17u);
  EXPECT_EQ(result.plan->forwardPacking, "balanced-time");
  EXPECT_EQ(printed(result.plan->timeline.end), "45.28");
}

/// What one of the paper's means is worth, the others being there.
TEST(HarmonyTables, ablations) {
  std::optional<HarmonyProfile> bert = measured("bert_96"),
                                gpt2 = measured("gpt2_xl");
  if (!bert || !gpt2)
    GTEST_SKIP() << "GALVATRON_ORACLES is not set";
  auto without = [&](const HarmonyProfile &profile, HarmonyMode mode,
                     bool HarmonyRules::*means, bool onDevice = false) {
    HarmonyProblem problem = tableOne();
    problem.rules.mode = mode;
    problem.rules.*means = false;
    problem.rules.updateOnDevice = onDevice;
    return printed(
        llvm::cantFail(searchHarmony(profile, problem)).plan->timeline.end);
  };
  constexpr HarmonyMode pp = HarmonyMode::Pipeline,
                        dp = HarmonyMode::DataParallel;
  EXPECT_EQ(without(*bert, pp, &HarmonyRules::grouping), "25.53");
  EXPECT_EQ(without(*gpt2, pp, &HarmonyRules::grouping), "83.93");
  EXPECT_EQ(without(*gpt2, dp, &HarmonyRules::grouping), "79.66");
  EXPECT_EQ(without(*bert, pp, &HarmonyRules::justInTime), "19.61");
  EXPECT_EQ(without(*bert, pp, &HarmonyRules::justInTime, true), "22.45");
  EXPECT_EQ(without(*bert, pp, &HarmonyRules::peerToPeer), "19.77");
  EXPECT_EQ(without(*gpt2, pp, &HarmonyRules::peerToPeer), "46.76");
  EXPECT_EQ(without(*gpt2, dp, &HarmonyRules::peerToPeer), "48.51");
}

//===----------------------------------------------------------------------===//
// Against all configurations
//===----------------------------------------------------------------------===//

HarmonyProblem randomProblem(std::mt19937_64 &random) {
  HarmonyProblem problem;
  problem.machine.devices = pick(random, 1, 3);
  problem.minibatch = problem.machine.devices * pick(random, 1, 6);
  problem.machine.capacity = pick(random, 250, 700) * 1'000'000;
  problem.rules.mode =
      pick(random, 0, 1) ? HarmonyMode::Pipeline : HarmonyMode::DataParallel;
  problem.rules.prefetch = pick(random, 0, 1);
  problem.fallback = false;
  return problem;
}

/// The shortest step of the published search, without its bounds and caches:
/// every configuration is simulated, and those with the lesser time kept.
std::optional<Picoseconds> enumerate(const HarmonyProfile &profile,
                                     const HarmonyProblem &problem) {
  HarmonySimulator simulator(profile, problem.machine, problem.minibatch,
                             problem.rules);
  int64_t share = problem.rules.mode == HarmonyMode::Pipeline
                      ? problem.minibatch
                      : problem.minibatch / problem.machine.devices;
  auto packing = [&](Direction direction, int64_t size, int64_t layers) {
    HarmonyCosts costs = profile.costs(direction, size);
    std::vector<int64_t> input = profile.inputBytes(size);
    PackingProblem result;
    result.capacity = problem.machine.capacity;
    for (int64_t l = 0; l < layers; ++l) {
      result.time.push_back(costs.time[l]);
      result.memory.push_back(costs.memory[l] - input[l]);
      result.input.push_back(input[l]);
    }
    return result;
  };
  auto mayDiffer = [&](int64_t uf, int64_t ub) {
    switch (problem.sizes) {
    case HarmonyProblem::Sizes::Any:
      return problem.rules.grouping || uf == ub;
    case HarmonyProblem::Sizes::Multiples:
      return uf == ub || (problem.rules.grouping && uf % ub == 0);
    case HarmonyProblem::Sizes::Equal:
      return uf == ub;
    }
    return false;
  };
  std::optional<Picoseconds> best;
  auto simulate = [&](const HarmonyConfig &config) {
    Picoseconds end = simulator.run(config)->end;
    best = std::min(best.value_or(end), end);
  };
  for (int64_t ub = 1; ub <= share; ++ub) {
    if (share % ub)
      continue;
    auto backward =
        packLayers(packing(Direction::Backward, ub, profile.layerCount()),
                   PackingMethod::BalancedTime);
    if (!backward)
      continue;
    if (backward->size() == 1) {
      simulate({ub, ub, {}, *backward});
      continue;
    }
    LayerPacks reuse(backward->begin(), backward->end() - 1);
    for (int64_t uf = ub; uf <= share; ++uf) {
      if (share % uf || !mayDiffer(uf, ub))
        continue;
      PackingProblem forward =
          packing(Direction::Forward, uf, backward->back());
      if (auto packs = packLayers(forward, PackingMethod::BalancedTime))
        simulate({uf, ub, *packs, *backward});
      if (packsFitBelow(forward, reuse))
        simulate({uf, ub, reuse, *backward});
    }
  }
  return best;
}

TEST(HarmonySearch, findsWhatEnumerationFinds) {
  using Sizes = HarmonyProblem::Sizes;
  std::mt19937_64 random(7);
  int feasible = 0, excluded = 0, unlike = 0;
  for (int i = 0; i < instances(200); ++i) {
    HarmonyProfile profile =
        LinearProfile::random(random, static_cast<size_t>(pick(random, 1, 12)))
            .get();
    HarmonyProblem problem = randomProblem(random);
    // Every model with all ways in which the sizes may differ.
    for (Sizes sizes : {Sizes::Any, Sizes::Multiples, Sizes::Equal})
      for (bool grouping : {true, false}) {
        if (!grouping && problem.rules.prefetch)
          continue;
        problem.sizes = sizes;
        problem.rules.grouping = grouping;
        HarmonyResult result = llvm::cantFail(searchHarmony(profile, problem));
        std::optional<Picoseconds> best = enumerate(profile, problem);
        ASSERT_EQ(result.plan.has_value(), best.has_value());
        if (!best) {
          EXPECT_FALSE(result.reason.empty());
          continue;
        }
        ++feasible;
        excluded += result.simulated < result.considered;
        EXPECT_EQ(result.plan->timeline.end, *best);
        const HarmonyConfig &config = result.plan->config;
        bool alike = config.forwardSize == config.backwardSize;
        EXPECT_TRUE(alike || (sizes != Sizes::Equal && grouping));
        unlike += !alike;
      }
    problem.rules.grouping = true;
  }
  EXPECT_GT(feasible, 100);
  EXPECT_GT(unlike, 0);
  EXPECT_GT(excluded, 0); // by their computation alone
}

/// Steps that are longer than the optimum, and by how much.
struct Gaps {
  int models = 0, optimal = 0;
  double sum = 0, worst = 0;

  void add(const HarmonyResult &found, const HarmonyResult &best) {
    ASSERT_TRUE(best.plan);
    double gap = static_cast<double>(found.plan->timeline.end) /
                     static_cast<double>(best.plan->timeline.end) -
                 1;
    EXPECT_GE(gap, 0);
    ++models;
    optimal += gap == 0;
    sum += gap;
    worst = std::max(worst, gap);
  }
  void print(const char *against) const {
    std::printf("published search against all %s: %d models, %d optimal, mean "
                "gap %.1f%%, largest %.1f%%\n",
                against, models, optimal, 100 * sum / models, 100 * worst);
  }
};

TEST(HarmonySearch, isNeverBetterThanTheOptimum) {
  // How far from it is printed, for docs/harmony.md.
  std::mt19937_64 random(3);
  Gaps packs, sizes;
  int infeasible = 0;
  for (int i = 0; i < instances(100, 3); ++i) {
    HarmonyProfile profile =
        LinearProfile::random(random, static_cast<size_t>(pick(random, 4, 7)))
            .get();
    HarmonyProblem problem = randomProblem(random);
    problem.rules.prefetch = false;
    problem.fallback = true;
    HarmonyResult found = llvm::cantFail(searchHarmony(profile, problem));
    problem.exhaustive = true;
    HarmonyResult best = llvm::cantFail(searchHarmony(profile, problem));
    ASSERT_EQ(found.plan.has_value(), best.plan.has_value());
    if (!best.plan) {
      ++infeasible;
      continue;
    }
    packs.add(found, best);
    problem.allSizes = true;
    sizes.add(found, llvm::cantFail(searchHarmony(profile, problem)));
  }
  EXPECT_GT(packs.models, 50);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(packs.optimal, 0);
  EXPECT_GT(packs.worst, 0);
  packs.print("packs");
  sizes.print("packs and sizes");
}

TEST(HarmonySearch, theUpdateGoesWhereItIsFaster) {
  LinearProfile alike = LinearProfile::alike(6);
  HarmonyProblem problem;
  problem.minibatch = 4;
  problem.machine.devices = 2;
  problem.machine.capacity = 8'000'000;
  problem.chooseUpdate = true;
  HarmonyResult host = llvm::cantFail(searchHarmony(alike.get(), problem));
  ASSERT_TRUE(host.plan);
  EXPECT_FALSE(host.plan->rules.updateOnDevice);
  // A host that takes 1 ns a byte is slow once there are many of them.
  for (int64_t &bytes : alike.weightBytes)
    bytes = 1'000'000'000;
  problem.machine.capacity = 8'000'000'000;
  problem.machine.swapRate = 1e12;
  HarmonyResult device = llvm::cantFail(searchHarmony(alike.get(), problem));
  ASSERT_TRUE(device.plan);
  EXPECT_TRUE(device.plan->rules.updateOnDevice);
  // Weights, gradients and state of one layer together: 4e9 bytes.
  problem.machine.capacity = 3'900'000'000;
  HarmonyResult small = llvm::cantFail(searchHarmony(alike.get(), problem));
  ASSERT_TRUE(small.plan);
  EXPECT_FALSE(small.plan->rules.updateOnDevice);
}

TEST(HarmonySearch, saysWhyNothingFits) {
  HarmonyProfile profile = LinearProfile::alike(5).get();
  HarmonyProblem problem;
  problem.minibatch = 6;
  problem.machine.devices = 2;
  // Two million bytes of weights and gradients and one input of a thousand.
  problem.machine.capacity = 2'000'999;
  HarmonyResult result = llvm::cantFail(searchHarmony(profile, problem));
  EXPECT_FALSE(result.plan);
  EXPECT_EQ(result.neededBytes, 2'001'000);
  EXPECT_EQ(result.reason, "a layer alone needs more than a device has");
  problem.machine.capacity = 2'001'000;
  EXPECT_TRUE(llvm::cantFail(searchHarmony(profile, problem)).plan);

  // Where devices share a pipeline one sample is enough for all of them.
  problem.minibatch = 1;
  EXPECT_TRUE(bool(searchHarmony(profile, problem)));
  problem.rules.mode = HarmonyMode::DataParallel;
  EXPECT_EQ(llvm::toString(searchHarmony(profile, problem).takeError()),
            "expected at least one sample for each of the 2 devices, found 1");
  problem.minibatch = 0;
  EXPECT_EQ(llvm::toString(searchHarmony(profile, problem).takeError()),
            "expected a minibatch of at least 1 sample, found 0");
  problem.minibatch = 2;
  problem.machine.capacity = 0;
  EXPECT_EQ(llvm::toString(searchHarmony(profile, problem).takeError()),
            "expected a capacity of at least 1 byte, found 0");
  problem.machine.capacity = 2'001'000;
  problem.forwardPackings.clear();
  EXPECT_EQ(llvm::toString(searchHarmony(profile, problem).takeError()),
            "expected at least one packing method, found none");
  problem.forwardPackings = {PackingMethod::SingleLayers};
  // A sample for each device is enough.
  EXPECT_TRUE(bool(searchHarmony(profile, problem)));
  problem.backwardPackings = {PackingMethod::Reuse};
  EXPECT_EQ(llvm::toString(searchHarmony(profile, problem).takeError()),
            "packing 'reuse': expected for forward only, which can take the "
            "packs of backward");
  problem.exhaustive = true;
  HarmonyProfile deep = LinearProfile::alike(13).get();
  EXPECT_EQ(llvm::toString(searchHarmony(deep, problem).takeError()),
            "expected at most 12 layers to try all packs, found 13");
}

} // namespace
