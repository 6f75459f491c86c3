//===- LayerPackingTest.cpp - Layers into packs that fit ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/LayerPacking.h"

#include "../RandomInstances.h"
#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace galvatron;

namespace {

using Packs = std::optional<LayerPacks>;

PackingProblem problem(std::vector<int64_t> time, std::vector<int64_t> memory,
                       std::vector<int64_t> input, int64_t capacity) {
  return {std::move(time), std::move(memory), std::move(input), capacity};
}

TEST(LayerPacking, theLayerThatReachesATargetBeginsAPack) {
  // Two packs of 8: sums are 3, 8, 12, 16, and the second layer reaches 8.
  EXPECT_EQ(packLayers(problem({3, 5, 4, 4}, {1, 1, 1, 1}, {0, 0, 0, 0}, 3),
                       PackingMethod::BalancedTime),
            Packs(LayerPacks{0, 1}));
  // A third would be reached at 16/3 by the same layer; four packs have the
  // targets 4, 8, 12, of which two are the second layer's.
  EXPECT_EQ(packLayers(problem({3, 5, 4, 4}, {1, 1, 1, 1}, {0, 0, 0, 0}, 2),
                       PackingMethod::BalancedTime),
            Packs(LayerPacks{0, 1, 2}));
  // One byte less: only four packs would fit, and one of them is empty.
  EXPECT_EQ(packLayers(problem({3, 5, 4, 4}, {1, 1, 1, 1}, {0, 0, 0, 0}, 1),
                       PackingMethod::BalancedTime),
            std::nullopt);
}

TEST(LayerPacking, theInputOfTheFirstLayerCounts) {
  // Equal times: two packs are 0 and 1-3, of 30 and its input of 9.
  auto with = [](int64_t capacity) {
    return packLayers(
        problem({1, 1, 1, 1}, {10, 10, 10, 10}, {0, 9, 1, 0}, capacity),
        PackingMethod::BalancedTime);
  };
  EXPECT_EQ(with(40), Packs(LayerPacks{0}));
  EXPECT_EQ(with(39), Packs(LayerPacks{0, 1}));
  EXPECT_EQ(with(38), Packs(LayerPacks{0, 1, 2}));
  EXPECT_EQ(with(18), std::nullopt); // 10 and 9 of the second layer
}

TEST(LayerPacking, greedyFillsFromOneEnd) {
  PackingProblem uneven =
      problem({1, 1, 1, 1, 1}, {4, 4, 4, 1, 6}, {1, 1, 1, 1, 1}, 10);
  EXPECT_EQ(packLayers(uneven, PackingMethod::GreedyForward),
            Packs(LayerPacks{0, 2, 4}));
  EXPECT_EQ(packLayers(uneven, PackingMethod::GreedyBackward),
            Packs(LayerPacks{0, 1, 3}));
  EXPECT_EQ(packLayers(uneven, PackingMethod::BalancedMemory),
            Packs(LayerPacks{0, 1, 3}));
  uneven.capacity = 7; // the last layer and its input reach it
  EXPECT_EQ(packLayers(uneven, PackingMethod::GreedyForward), std::nullopt);
  EXPECT_EQ(packLayers(uneven, PackingMethod::GreedyBackward), std::nullopt);
}

TEST(LayerPacking, reusedPacksMustStayBelowTheCapacity) {
  PackingProblem equal = problem({1, 1, 1}, {5, 5, 5}, {1, 1, 1}, 11);
  EXPECT_FALSE(packsFitBelow(equal, {0, 2})); // 11
  equal.capacity = 12;
  EXPECT_TRUE(packsFitBelow(equal, {0, 2}));
  EXPECT_TRUE(packsFitBelow(equal, {}));
}

TEST(LayerPacking, layersWithoutTimeOrMemoryAreNoObstacle) {
  EXPECT_EQ(packLayers(problem({0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 1),
                       PackingMethod::BalancedTime),
            Packs(LayerPacks{0}));
  EXPECT_EQ(packLayers(problem({0, 0, 7}, {2, 2, 2}, {0, 0, 0}, 4),
                       PackingMethod::BalancedTime),
            Packs(LayerPacks{0, 2}));
}

TEST(LayerPacking, packsFitAndTheFewestAreTaken) {
  std::mt19937_64 random(11);
  int found = 0;
  for (int i = 0; i < instances(2000); ++i) {
    PackingProblem packing;
    auto layers = static_cast<size_t>(pick(random, 1, 12));
    for (size_t l = 0; l < layers; ++l) {
      packing.time.push_back(pick(random, 0, 9));
      packing.memory.push_back(pick(random, 0, 9));
      packing.input.push_back(pick(random, 0, 4));
    }
    packing.capacity = pick(random, 1, 40);
    auto fits = [&](const LayerPacks &packs) {
      for (size_t p = 0; p < packs.size(); ++p)
        if (packing.packMemory(packs[p], p + 1 < packs.size()
                                             ? packs[p + 1]
                                             : int64_t(layers)) >
            packing.capacity)
          return false;
      return true;
    };
    for (PackingMethod method :
         {PackingMethod::BalancedTime, PackingMethod::BalancedMemory,
          PackingMethod::GreedyForward, PackingMethod::GreedyBackward}) {
      Packs packs = packLayers(packing, method);
      if (!packs)
        continue;
      ++found;
      EXPECT_EQ(packs->front(), 0);
      EXPECT_TRUE(llvm::is_sorted(*packs));
      EXPECT_TRUE(fits(*packs));
    }
    // Greedy from the first layer has as few packs as any that stay below.
    if (Packs greedy = packLayers(packing, PackingMethod::GreedyForward);
        greedy && llvm::all_of(packing.input, [](int64_t x) { return x == 0; }))
      for (uint64_t cuts = 0; cuts < uint64_t(1) << (layers - 1); ++cuts) {
        LayerPacks packs = {0};
        for (size_t l = 1; l < layers; ++l)
          if (cuts >> (l - 1) & 1)
            packs.push_back(int64_t(l));
        if (packsFitBelow(packing, packs)) {
          EXPECT_LE(greedy->size(), packs.size());
        }
      }
  }
  EXPECT_GT(found, 1000);
}

} // namespace
