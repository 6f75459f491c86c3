//===- data_test.cpp - Token files, samples, learning rates ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/data.h"
#include "grt/learning_rate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

using namespace grt;

namespace {

std::string write(const std::string &name, const std::string &bytes) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Permutation, IsABijection) {
  for (uint64_t size : {1, 2, 3, 4, 5, 16, 17, 64, 65, 1000, 4096})
    for (uint64_t epoch : {0, 1}) {
      Permutation order(size, 7, epoch);
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        EXPECT_LT(order(i), size);
        seen.insert(order(i));
      }
      EXPECT_EQ(seen.size(), size);
    }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  Permutation a(1000, 1, 0), b(1000, 2, 0), c(1000, 1, 1);
  int equalSeeds = 0, equalEpochs = 0, fixedPoints = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equalSeeds += a(i) == b(i);
    equalEpochs += a(i) == c(i);
    fixedPoints += a(i) == i;
  }
  EXPECT_LT(equalSeeds, 10);
  EXPECT_LT(equalEpochs, 10);
  EXPECT_LT(fixedPoints, 10);
}

TEST(TokenFile, SamplesAndLabels) {
  std::string text;
  for (int i = 0; i < 43; ++i) // ten samples of four, two tokens dropped
    text.push_back(char(i));
  std::unique_ptr<TokenFile> file;
  DataOptions options;
  options.path = write("samples.txt", text);
  options.validationFraction = 0.25;
  Status status = TokenFile::open(options, 64, 4, file);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(file->tokenCount(), 43u);
  EXPECT_EQ(file->trainingSamples(), 8u);
  EXPECT_EQ(file->validationSamples(), 2u);

  // One epoch sees every training sample once, whatever the batch.
  for (int64_t batch : {1, 2, 4, 8}) {
    std::multiset<int32_t> firsts;
    std::vector<int32_t> inputs, labels;
    for (uint64_t step = 1; step <= uint64_t(8 / batch); ++step) {
      ASSERT_TRUE(file->trainingBatch(step, batch, inputs, labels));
      for (int64_t s = 0; s < batch; ++s) {
        firsts.insert(inputs[s * 4]);
        EXPECT_EQ(inputs[s * 4] % 4, 0);
        for (int t = 0; t < 4; ++t)
          EXPECT_EQ(labels[s * 4 + t], inputs[s * 4 + t] + 1);
      }
    }
    EXPECT_EQ(firsts, (std::multiset<int32_t>{0, 4, 8, 12, 16, 20, 24, 28}));
  }

  std::vector<int32_t> inputs, labels;
  EXPECT_EQ(file->validationBatches(3), 1u);
  ASSERT_TRUE(file->validationBatch(0, 3, inputs, labels));
  EXPECT_EQ(inputs[0], 32);
  EXPECT_EQ(inputs[4], 36);
  EXPECT_EQ(labels[7], 40);
  EXPECT_EQ(labels[8], -1);
}

TEST(TokenFile, WideTokens) {
  std::string narrow, wide;
  for (int i = 0; i < 9; ++i) {
    int token = 1000 * i;
    narrow += {char(token), char(token >> 8)};
    wide += {char(token), char(token >> 8), 0, 0};
  }
  for (bool isWide : {false, true}) {
    std::unique_ptr<TokenFile> file;
    DataOptions options;
    options.path = write(isWide ? "t.u32" : "t.u16", isWide ? wide : narrow);
    ASSERT_TRUE(TokenFile::open(options, 8001, 8, file));
    std::vector<int32_t> inputs, labels;
    ASSERT_TRUE(file->trainingBatch(3, 1, inputs, labels));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(inputs[i], 1000 * i);
      EXPECT_EQ(labels[i], 1000 * (i + 1));
    }
    Status status = TokenFile::open(options, 7000, 8, file);
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find("token 7000 at position 7, expected less "
                                    "than the vocabulary of 7000"),
              std::string::npos);
  }
}

TEST(LearningRate, WarmsUpAndFalls) {
  LearningRateSchedule schedule{1.0, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_NEAR(schedule.at(60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.1);
  EXPECT_DOUBLE_EQ((LearningRateSchedule{1.0, 1.0, 0, 1}).at(1), 1.0);
  for (uint64_t step = 11; step < 110; ++step)
    EXPECT_GT(schedule.at(step), schedule.at(step + 1));
}

} // namespace
