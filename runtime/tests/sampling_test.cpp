//===- sampling_test.cpp - Tokens are drawn as their logits say -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

/// Counts how often each of some logits is drawn of so many.
std::vector<int> draws(const std::vector<double> &logits, Sampling sampling,
                       int count) {
  std::vector<int> result(logits.size());
  for (int place = 0; place < count; ++place)
    ++result[size_t(sampleToken(logits, sampling, uint64_t(place)))];
  return result;
}

const std::vector<double> logits = {1.0, 3.0, -1e30, 2.0, 3.0};

TEST(Sampling, TheLikeliestIsTheFirstOfEqualOnes) {
  Sampling greedy;
  EXPECT_TRUE(greedy.isGreedy());
  EXPECT_EQ(sampleToken(logits, greedy, 5), 1);
  Sampling one;
  one.temperature = 2;
  one.topK = 1;
  EXPECT_TRUE(one.isGreedy());
  EXPECT_EQ(sampleToken(logits, one, 5), 1);
}

TEST(Sampling, FrequenciesAreProbabilities) {
  constexpr int count = 40000;
  for (double temperature : {0.5, 1.0, 3.0}) {
    Sampling sampling;
    sampling.temperature = temperature;
    sampling.seed = 7;
    double sum = 0;
    for (double logit : logits)
      sum += std::exp(logit / temperature);
    std::vector<int> seen = draws(logits, sampling, count);
    for (size_t i = 0; i < logits.size(); ++i) {
      double expected = std::exp(logits[i] / temperature) / sum;
      // Five standard deviations.
      double bound = 5 * std::sqrt(expected * (1 - expected) * count);
      EXPECT_NEAR(seen[i], expected * count, bound) << temperature;
    }
    EXPECT_EQ(seen[2], 0);
  }
}

TEST(Sampling, OnlyTheLikeliestAreDrawn) {
  Sampling sampling;
  sampling.temperature = 1;
  sampling.topK = 3;
  std::vector<int> seen = draws(logits, sampling, 4000);
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[3], 300);
  // The two largest have 0.80 of the probability together, one has 0.40.
  sampling.topK = 0;
  sampling.topP = 0.79;
  seen = draws(logits, sampling, 4000);
  EXPECT_EQ(seen[0] + seen[3], 0);
  EXPECT_NEAR(seen[1], 2000, 200);
  EXPECT_NEAR(seen[4], 2000, 200);
  sampling.topP = 0.1;
  seen = draws(logits, sampling, 100);
  EXPECT_EQ(seen[1], 100);
  // The share is of those that top-k leaves: of 1.0 of what the three have.
  sampling.topK = 3;
  sampling.topP = 0.999;
  EXPECT_GT(draws(logits, sampling, 4000)[3], 300);
}

TEST(Sampling, SeedAndPlaceSayWhichOne) {
  Sampling one, other;
  one.temperature = other.temperature = 1;
  other.seed = 1;
  int equal = 0, same = 0;
  for (uint64_t place = 0; place < 1000; ++place) {
    int32_t token = sampleToken(logits, one, place);
    EXPECT_EQ(token, sampleToken(logits, one, place));
    equal += token == sampleToken(logits, other, place);
    same += token == sampleToken(logits, one, place + 1);
  }
  EXPECT_LT(equal, 600);
  EXPECT_LT(same, 600);
}

} // namespace
