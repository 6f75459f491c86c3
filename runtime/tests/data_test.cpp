//===- data_test.cpp - Token files, samples, learning rates ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/data.h"
#include "grt/learning_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Dataset, SamplesAndLabels) {
  std::string text;
  for (int i = 0; i < 43; ++i) // ten samples of four, two tokens dropped
    text.push_back(char(i));
  std::unique_ptr<Dataset> file;
  DataOptions options;
  options.paths = {write("samples.txt", text)};
  options.validationFraction = 0.25;
  Status status = Dataset::open(options, 64, 4, file);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(file->tokenCount(), 43u);
  EXPECT_EQ(file->trainingSamples(), 8u);
  EXPECT_EQ(file->validationSamples(), 2u);

  // One epoch sees every training sample once, whatever the batch.
  for (int64_t batch : {1, 2, 4, 8}) {
    std::multiset<int32_t> firsts;
    std::vector<int32_t> inputs, labels;
    for (uint64_t step = 1; step <= uint64_t(8 / batch); ++step) {
      ASSERT_TRUE(file->trainingBatch((step - 1) * uint64_t(batch), batch,
                                      inputs, labels));
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

TEST(Dataset, WideTokens) {
  std::string narrow, wide;
  for (int i = 0; i < 9; ++i) {
    int token = 1000 * i;
    narrow += {char(token), char(token >> 8)};
    wide += {char(token), char(token >> 8), 0, 0};
  }
  for (bool isWide : {false, true}) {
    std::unique_ptr<Dataset> file;
    DataOptions options;
    options.paths = {write(isWide ? "t.u32" : "t.u16", isWide ? wide : narrow)};
    ASSERT_TRUE(Dataset::open(options, 8001, 8, file));
    std::vector<int32_t> inputs, labels;
    ASSERT_TRUE(file->trainingBatch(2, 1, inputs, labels));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(inputs[i], 1000 * i);
      EXPECT_EQ(labels[i], 1000 * (i + 1));
    }
    Status status = Dataset::open(options, 7000, 8, file);
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find("token 7000 at position 7, expected less "
                                    "than the vocabulary of 7000"),
              std::string::npos);
  }
}

TEST(Dataset, SeveralFiles) {
  // Three samples of four, then two: no sample crosses the border, whatever is
  // left at a file's end is dropped.
  std::string first, second;
  for (int i = 0; i < 15; ++i)
    first.push_back(char(i));
  for (int i = 100; i < 109; ++i)
    second += {char(i), 0};
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.paths = {write("first.txt", first), write("second.u16", second)};
  Status status = Dataset::open(options, 128, 4, data);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data->tokenCount(), 24u);
  EXPECT_EQ(data->trainingSamples(), 5u);
  std::vector<int32_t> inputs, labels;
  ASSERT_TRUE(data->trainingBatch(0, 5, inputs, labels));
  std::set<int32_t> firsts;
  for (int s = 0; s < 5; ++s) {
    firsts.insert(inputs[s * 4]);
    for (int t = 0; t < 4; ++t)
      EXPECT_EQ(labels[s * 4 + t], inputs[s * 4 + t] + 1);
  }
  EXPECT_EQ(firsts, (std::set<int32_t>{0, 4, 8, 100, 104}));

  // The order is the files', and every file is known again.
  std::vector<DataIdentity> identity = data->identity();
  ASSERT_EQ(identity.size(), 2u);
  EXPECT_EQ(identity[1].format, "u16");
  EXPECT_EQ(identity[1].tokens, 9u);
  second[3] ^= 1;
  write("second.u16", second);
  std::unique_ptr<Dataset> other;
  ASSERT_TRUE(Dataset::open(options, 512, 4, other));
  EXPECT_EQ(other->identity()[0], identity[0]);
  EXPECT_NE(other->identity()[1], identity[1]);
}

TEST(Dataset, EveryEpochHasAnOrderOfItsOwn) {
  std::string text;
  for (int i = 0; i <= 100; ++i) // 25 samples of four
    text.push_back(char(i));
  DataOptions options;
  options.paths = {write("epochs.txt", text)};
  options.seed = 9;
  std::unique_ptr<Dataset> data, again;
  ASSERT_TRUE(Dataset::open(options, 128, 4, data));
  ASSERT_TRUE(Dataset::open(options, 128, 4, again));
  std::vector<std::vector<int32_t>> epochs(3);
  std::vector<int32_t> labels, other;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    ASSERT_TRUE(data->trainingBatch(epoch * 25, 25, epochs[epoch], labels));
    ASSERT_TRUE(again->trainingBatch(epoch * 25, 25, other, labels));
    EXPECT_EQ(epochs[epoch], other) << epoch;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
  for (std::vector<int32_t> &epoch : epochs)
    std::sort(epoch.begin(), epoch.end());
  EXPECT_EQ(epochs[0], epochs[1]);
  EXPECT_EQ(epochs[0], epochs[2]);
}

TEST(Dataset, TheLabelAtTheEndOfAFile) {
  // A sample of T tokens needs the one behind it: of a file of exactly N * T
  // tokens the last sample has no last label and is dropped.
  for (int tokens : {8, 9, 12, 13}) {
    std::string text;
    for (int i = 0; i < tokens; ++i)
      text.push_back(char(i));
    DataOptions options;
    options.paths = {write("end.txt", text)};
    std::unique_ptr<Dataset> data;
    ASSERT_TRUE(Dataset::open(options, 128, 4, data));
    uint64_t samples = uint64_t(tokens - 1) / 4;
    EXPECT_EQ(data->trainingSamples(), samples) << tokens;
    std::vector<int32_t> inputs, labels;
    ASSERT_TRUE(data->trainingBatch(0, int64_t(samples), inputs, labels));
    int32_t last = *std::max_element(labels.begin(), labels.end());
    EXPECT_EQ(last, int32_t(samples) * 4) << tokens;
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(labels[i], inputs[i] + 1);
  }
  // T tokens are no sample, T + 1 are one.
  DataOptions options;
  options.paths = {write("end.txt", std::string(4, 'a'))};
  std::unique_ptr<Dataset> data;
  EXPECT_EQ(Dataset::open(options, 128, 4, data).exitCode(), 2);
  options.paths = {write("end.txt", std::string(5, 'a'))};
  EXPECT_TRUE(Dataset::open(options, 128, 4, data));
}

TEST(Dataset, TheTailOfALongFileIsPartOfItsIdentity) {
  std::string text(200000, 'a');
  DataOptions options;
  auto identity = [&] {
    options.paths = {write("tail.txt", text)};
    std::unique_ptr<Dataset> data;
    EXPECT_TRUE(Dataset::open(options, 256, 4, data));
    return data->identity()[0];
  };
  DataIdentity whole = identity();
  text.back() = 'b';
  EXPECT_NE(identity(), whole);
  text.back() = 'a';
  EXPECT_EQ(identity(), whole);
  text[text.size() - 65536] = 'b';
  EXPECT_NE(identity(), whole);
}

TEST(Dataset, AllSamplesMayBeForValidation) {
  DataOptions options;
  options.paths = {write("all.txt", std::string(41, 'a'))};
  options.validationFraction = 1;
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(Dataset::open(options, 128, 4, data));
  EXPECT_EQ(data->trainingSamples(), 0u);
  EXPECT_EQ(data->validationSamples(), 10u);
  std::vector<int32_t> inputs, labels;
  EXPECT_EQ(data->trainingBatch(0, 1, inputs, labels).exitCode(), 2);
}

TEST(Dataset, BatchesDoNotDependOnHowTheyAreCut) {
  std::string text;
  for (int i = 0; i < 101; ++i)
    text.push_back(char(i));
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.paths = {write("cut.txt", text)};
  ASSERT_TRUE(Dataset::open(options, 128, 4, data));
  std::vector<int32_t> whole, part, labels;
  ASSERT_TRUE(data->trainingBatch(0, 60, whole, labels)); // over two epochs
  for (uint64_t first : {0, 7, 20, 24, 25, 49})
    for (int64_t batch : {1, 4, 11}) {
      ASSERT_TRUE(data->trainingBatch(first, batch, part, labels));
      EXPECT_TRUE(std::equal(part.begin(), part.end(),
                             whole.begin() + long(first) * 4));
    }
}

TEST(Dataset, FilesThatChangeAreErrors) {
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.paths = {write("change.txt", std::string(4096, 'a'))};
  ASSERT_TRUE(Dataset::open(options, 256, 8, data));
  std::vector<int32_t> inputs, labels;
  ASSERT_TRUE(data->trainingBatch(0, 2, inputs, labels));
  write("change.txt", "short");
  Status status = data->trainingBatch(2, 2, inputs, labels);
  EXPECT_EQ(status.exitCode(), ExitStorage);
  EXPECT_NE(status.message().find("expected 4096 bytes, found 5"),
            std::string::npos);
  options.paths = {write("empty.txt", "")};
  EXPECT_NE(Dataset::open(options, 256, 8, data).message().find("is empty"),
            std::string::npos);
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
