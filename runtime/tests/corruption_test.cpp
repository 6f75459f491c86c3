//===- corruption_test.cpp - Masked tokens and corrupted spans ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

using namespace grt;

namespace {

using Json = nlohmann::json;
using Values = std::vector<int32_t>;

/// A file of this test that goes with it.
class CorruptionTest : public testing::Test {
protected:
  void TearDown() override {
    for (const std::string &path : paths)
      std::filesystem::remove(path);
  }
  /// `count` 16 bit tokens, that at i is `token(i)`.
  template <typename Token>
  std::string write(uint64_t count, const Token &token) {
    std::string bytes;
    for (uint64_t i = 0; i < count; ++i) {
      auto value = uint32_t(token(i));
      bytes += char(value & 0xff);
      bytes += char(value >> 8);
    }
    return writeBytes("tokens.u16", bytes);
  }
  std::string writeBytes(const std::string &name, const std::string &bytes) {
    std::string path = testing::TempDir() + std::to_string(getpid()) + name;
    paths.insert(path);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::set<std::string> paths;
};

Datum rowOf(const std::string &kind, int64_t length, int64_t below,
            const std::string &name = "") {
  Datum datum;
  datum.kind = kind;
  datum.name = name.empty() ? kind : name;
  datum.shape = {length};
  datum.bytesPerSample = uint64_t(length) * 4;
  datum.below = below;
  datum.counted = kind == "labels";
  return datum;
}

std::vector<Datum> bert(int64_t length, int64_t below) {
  return {rowOf("tokens", length, below), rowOf("mask", length, 2),
          rowOf("token_types", length, 2), rowOf("labels", length, below)};
}

std::vector<Datum> t5(int64_t length, int64_t target, int64_t below) {
  return {rowOf("tokens", length, below), rowOf("mask", length, 2),
          rowOf("tokens", target, below, "decoder_tokens"),
          rowOf("labels", target, below)};
}

Corruption maskedTokens(int32_t mask, Values special, int64_t words) {
  Corruption corruption;
  corruption.kind = Corruption::Kind::Tokens;
  corruption.mask = mask;
  corruption.special = std::move(special);
  corruption.words = words;
  return corruption;
}

/// Sentinels 999, 998, ..; 0 fills up, 1 is the end, 2 the decoder's start.
Corruption corruptedSpans() {
  Corruption corruption;
  corruption.kind = Corruption::Kind::Spans;
  for (int32_t i = 0; i < 100; ++i)
    corruption.sentinels.push_back(999 - i);
  corruption.padding = 0;
  corruption.end = 1;
  corruption.start = 2;
  return corruption;
}

DataOptions of(const std::string &path, const Corruption &corruption) {
  DataOptions options;
  options.files = {{"", {path}}};
  options.corruption = corruption;
  return options;
}

/// The values of each datum of some samples.
using Sample = std::vector<Values>;

std::vector<Sample> split(const DataBatch &batch, size_t samples) {
  std::vector<Sample> result(samples);
  for (const std::vector<char> &bytes : batch)
    for (size_t i = 0; i < samples; ++i) {
      Values values(bytes.size() / samples / 4);
      std::memcpy(values.data(), bytes.data() + i * values.size() * 4,
                  values.size() * 4);
      result[i].push_back(values);
    }
  return result;
}

std::vector<Sample> training(const Dataset &data, uint64_t first,
                             int64_t count) {
  DataBatch batch;
  Status status = data.trainingBatch(first, count, batch);
  EXPECT_TRUE(status) << status.message();
  return split(batch, size_t(count));
}

Sample validation(const Dataset &data, uint64_t number) {
  DataBatch batch;
  Status status = data.validationBatch(number, 1, batch);
  EXPECT_TRUE(status) << status.message();
  return split(batch, 1)[0];
}

TEST_F(CorruptionTest, SamplesAreThoseOfAnotherGenerator) {
  std::ifstream file(CORRUPTION "/golden.json");
  size_t samples = 0;
  for (const Json &facts : Json::parse(file)) {
    uint64_t below = facts["below"];
    std::string path = write(
        facts["file"], [&](uint64_t i) { return (i * i * 7 + i * 3) % below; });
    Corruption corruption;
    std::vector<Datum> data;
    // Sentinels are no tokens of the file.
    if (facts["kind"] == "tokens") {
      corruption = maskedTokens(facts["mask"], facts["special"],
                                facts["words"].get<int64_t>());
      corruption.before = facts["before"].get<Values>();
      corruption.behind = facts["behind"].get<Values>();
      data = bert(facts["length"], int64_t(below));
    } else {
      corruption = corruptedSpans();
      corruption.sentinels = facts["sentinels"].get<Values>();
      corruption.padding = facts["padding"];
      corruption.end = facts["end"];
      corruption.start = facts["start"];
      corruption.spanLength = facts["span-length"];
      data = t5(facts["length"], facts["target"], 1000);
    }
    corruption.rate = facts["rate"];
    DataOptions options = of(path, corruption);
    options.seed = facts["seed"];
    options.validationFraction = 0.25;
    std::unique_ptr<Dataset> opened;
    Status status = Dataset::open(options, data, opened);
    ASSERT_TRUE(status) << status.message();
    for (const Json &expected : facts["samples"]) {
      int64_t place = expected["place"];
      Sample found = place < 0 ? validation(*opened, uint64_t(-1 - place))
                               : training(*opened, uint64_t(place), 1).front();
      for (size_t i = 0; i < data.size(); ++i)
        if (expected.contains(data[i].name))
          EXPECT_EQ(found[i], expected[data[i].name].get<Values>())
              << facts["kind"] << " " << place << " " << data[i].name;
      ++samples;
    }
  }
  EXPECT_EQ(samples, 24u);
}

TEST_F(CorruptionTest, MaskedTokensHaveTheirRates) {
  constexpr int32_t length = 128, words = 400, mask = 3;
  // Special are 0 to 9; every eighth token is one of them.
  const Values special = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  constexpr int64_t count = 2000;
  std::string path = write(length * count, [](uint64_t i) {
    return i % 8 ? 10 + i % 97 : i / 8 % 10;
  });
  std::unique_ptr<Dataset> data;
  Status status = Dataset::open(of(path, maskedTokens(mask, special, words)),
                                bert(length, 500), data);
  ASSERT_TRUE(status) << status.message();
  double kept = 0, masks = 0, drawn = 0;
  std::map<int32_t, int> positions, drawnWords;
  for (const Sample &sample : training(*data, 0, count)) {
    const Values &tokens = sample[0], &labels = sample[3];
    // 128 * 0.15 is 19.2.
    EXPECT_EQ(std::count(labels.begin(), labels.end(), -1), length - 19);
    EXPECT_EQ(sample[1], Values(length, 1));
    EXPECT_EQ(sample[2], Values(length, 0));
    for (int32_t i = 0; i < length; ++i) {
      if (labels[size_t(i)] < 0)
        continue;
      EXPECT_GE(labels[size_t(i)], 10);
      int32_t token = tokens[size_t(i)];
      ++positions[i];
      if (token == mask)
        ++masks;
      else if (token == labels[size_t(i)])
        ++kept;
      else
        ++drawn;
      if (token != mask && token != labels[size_t(i)])
        ++drawnWords[token];
    }
  }
  // Six standard deviations of 38000 draws.
  const double all = 19.0 * count;
  EXPECT_NEAR(masks / all, 0.8, 6 * std::sqrt(0.16 / all));
  // The right word is one of the 390 that are drawn.
  EXPECT_NEAR(drawn / all, 0.1 * 389 / 390, 6 * std::sqrt(0.09 / all));
  EXPECT_NEAR(kept / all, 0.1 + 0.1 / 390, 6 * std::sqrt(0.09 / all));
  // Ordinary positions are masked equally often, and no others.
  EXPECT_EQ(positions.size(), 112u);
  for (const auto &[position, times] : positions)
    EXPECT_NEAR(times, all / 112, 6 * std::sqrt(all / 112)) << position;
  // Words are drawn equally often, and none that is special.
  EXPECT_EQ(drawnWords.size(), 390u);
  double squares = 0;
  for (const auto &[word, times] : drawnWords) {
    EXPECT_GE(word, 10);
    EXPECT_LT(word, words);
    squares += (times - drawn / 390) * (times - drawn / 390);
  }
  // Chi squared of 389 degrees of freedom, six standard deviations.
  EXPECT_NEAR(squares / (drawn / 390), 389, 6 * std::sqrt(2 * 389.0));
}

/// Returns the text that encoder and decoder have together, in its order.
Values restored(const Sample &sample, const Corruption &corruption,
                std::vector<size_t> &lengths) {
  std::map<int32_t, Values> spans;
  const Values &labels = sample[3];
  for (size_t i = 0; labels[i] != corruption.end;) {
    Values &span = spans[labels[i++]];
    while (labels[i] < 900 && labels[i] != corruption.end)
      span.push_back(labels[i++]);
    lengths.push_back(span.size());
  }
  Values result;
  int32_t next = 999;
  for (int32_t token : sample[0]) {
    if (token == corruption.end)
      break;
    if (token < 900) {
      result.push_back(token);
      continue;
    }
    EXPECT_EQ(token, next--);
    result.insert(result.end(), spans[token].begin(), spans[token].end());
  }
  return result;
}

TEST_F(CorruptionTest, SpansAreThoseOfT5) {
  // T5 has these lengths: 568 tokens fill 512, and make targets of 114.
  constexpr int64_t row = 568, count = 500;
  std::string path =
      write(row * count, [](uint64_t i) { return 10 + i % 800; });
  const Corruption corruption = corruptedSpans();
  DataOptions options = of(path, corruption);
  options.validationFraction = 0.1;
  std::unique_ptr<Dataset> data;
  Status status = Dataset::open(options, t5(512, 120, 1000), data);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data->trainingSamples() + data->validationSamples(),
            uint64_t(count));
  std::map<size_t, double> lengthsSeen;
  for (const Sample &sample : training(*data, 0, 450)) {
    std::vector<size_t> lengths;
    Values text = restored(sample, corruption, lengths);
    ASSERT_EQ(text.size(), size_t(row));
    for (size_t i = 1; i < text.size(); ++i)
      ASSERT_EQ(text[i], 10 + (text[i - 1] - 9) % 800);
    // 85 tokens in 28 spans; the decoder ends with the 114th.
    EXPECT_EQ(lengths.size(), 28u);
    for (size_t length : lengths)
      ++lengthsSeen[length];
    EXPECT_EQ(sample[3][113], corruption.end);
    EXPECT_EQ(sample[3][114], -1);
    EXPECT_EQ(sample[0][511], corruption.end);
    EXPECT_EQ(sample[1], Values(512, 1));
    EXPECT_EQ(sample[2][0], corruption.start);
    for (size_t i = 1; i < 120; ++i)
      EXPECT_EQ(sample[2][i], i < 114 ? sample[3][i - 1] : corruption.padding);
  }
  // All ways to cut 85 tokens into 28 spans are as likely: one of length 1 is
  // as frequent as a cut behind the first token, 27 of 84.
  const double spans = 450 * 28;
  EXPECT_NEAR(lengthsSeen[1] / spans, 27.0 / 84, 0.025);
  EXPECT_NEAR(lengthsSeen[2] / spans, 57.0 / 84 * 27 / 83, 0.025);
  EXPECT_GT(lengthsSeen.size(), 8u);
  // Processes count the same, whichever samples they read.
  DataBatch batch;
  SamplesRead none(4);
  uint64_t counted = 0;
  ASSERT_TRUE(data->trainingBatch(0, 5, batch, &none, &counted));
  EXPECT_EQ(counted, 5u * 114);
  // The last, short batch has what there is.
  ASSERT_TRUE(data->validationBatch(1, 40, batch, nullptr, &counted));
  EXPECT_EQ(counted, 10u * 114);
}

TEST_F(CorruptionTest, SamplesAreTheSameForAnyNumberOfProcesses) {
  std::string path =
      write(20000, [](uint64_t i) { return i / 40 % 5 ? 10 + i % 90 : i % 3; });
  struct Case {
    Corruption corruption;
    std::vector<Datum> data;
  };
  for (const Case &each :
       {Case{maskedTokens(2, {0, 1, 2}, 100), bert(40, 1000)},
        Case{maskedTokens(2, {}, 100), bert(40, 1000)},
        Case{corruptedSpans(), t5(40, 30, 1000)}}) {
    DataOptions options = of(path, each.corruption);
    options.files.front().weight = 0.75;
    options.files.push_back({"", {path}, 0.25});
    std::unique_ptr<Dataset> data;
    Status status = Dataset::open(options, each.data, data);
    ASSERT_TRUE(status) << status.message();
    constexpr int64_t batch = 20;
    for (uint64_t first : {uint64_t(0), uint64_t(20), uint64_t(1) << 33}) {
      DataBatch whole;
      uint64_t counted = 0;
      ASSERT_TRUE(data->trainingBatch(first, batch, whole, nullptr, &counted));
      EXPECT_GT(counted, 0u);
      for (int64_t processes : {1, 2, 5}) {
        DataBatch together(each.data.size());
        for (int64_t process = 0; process < processes; ++process) {
          SampleRange own{process * batch / processes, batch / processes};
          SamplesRead wanted(each.data.size(), {own});
          // One process reads no labels, one reads nothing else.
          if (process == 1)
            wanted.back().clear();
          if (process == 2)
            std::fill(wanted.begin(), wanted.end() - 1,
                      std::vector<SampleRange>());
          // Another run, which begins here.
          std::unique_ptr<Dataset> again;
          ASSERT_TRUE(Dataset::open(options, each.data, again));
          DataBatch part;
          uint64_t partCounted = 0;
          ASSERT_TRUE(
              again->trainingBatch(first, batch, part, &wanted, &partCounted));
          EXPECT_EQ(partCounted, counted);
          for (size_t i = 0; i < each.data.size(); ++i) {
            auto bytes = int64_t(each.data[i].bytesPerSample);
            const DataBatch &from = wanted[i].empty() ? whole : part;
            together[i].insert(
                together[i].end(), from[i].begin() + own.first * bytes,
                from[i].begin() + (own.first + own.count) * bytes);
          }
        }
        EXPECT_EQ(together, whole) << processes;
      }
    }
  }
}

TEST_F(CorruptionTest, EveryEpochHasOthersAndValidationTheSame) {
  std::string path = write(64 * 4 + 63, [](uint64_t i) { return 10 + i % 90; });
  DataOptions options = of(path, maskedTokens(2, {}, 100));
  std::unique_ptr<Dataset> data, other;
  ASSERT_TRUE(Dataset::open(options, bert(64, 1000), data));
  EXPECT_EQ(data->trainingSamples(), 4u);
  auto labelSets = [](const Dataset &from, uint64_t first) {
    std::set<Values> result;
    for (const Sample &sample : training(from, first, 4))
      result.insert(sample[3]);
    return result;
  };
  std::set<Values> once = labelSets(*data, 0), twice = labelSets(*data, 4);
  EXPECT_EQ(once.size(), 4u);
  for (const Values &labels : twice)
    EXPECT_EQ(once.count(labels), 0u);
  // Sources of a mixture have epochs of their own: 10 of 4 samples each.
  DataOptions mixed = options;
  mixed.files = {{"", {path}, 0.5}, {"", {path}, 0.5}};
  ASSERT_TRUE(Dataset::open(mixed, bert(64, 1000), other));
  std::set<Values> all;
  for (const Sample &sample : training(*other, 0, 80))
    all.insert(sample[3]);
  EXPECT_EQ(all.size(), 80u);
  options.seed = 1;
  ASSERT_TRUE(Dataset::open(options, bert(64, 1000), other));
  EXPECT_NE(labelSets(*other, 0), once);
  options.validationFraction = 1;
  ASSERT_TRUE(Dataset::open(options, bert(64, 1000), data));
  ASSERT_TRUE(Dataset::open(options, bert(64, 1000), other));
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(validation(*data, i), validation(*other, i));
  // The identity that a checkpoint remembers depends on how samples are made.
  std::vector<DataIdentity> before = data->identity();
  options.corruption.rate = 0.2;
  ASSERT_TRUE(Dataset::open(options, bert(64, 1000), other));
  EXPECT_NE(other->identity(), before);
  EXPECT_EQ(before.size(), data->fileNames().size());
}

TEST_F(CorruptionTest, RowsOfSpecialTokensHaveFewerLabels) {
  // One in 20 tokens is a word: samples of 40 have 2, where 6 are wanted.
  std::string path =
      write(400, [](uint64_t i) { return i % 20 ? i % 3 : 10 + i % 90; });
  DataOptions options = of(path, maskedTokens(2, {0, 1, 2}, 100));
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(Dataset::open(options, bert(40, 1000), data));
  DataBatch batch;
  uint64_t counted = 0;
  ASSERT_TRUE(data->trainingBatch(0, 10, batch, nullptr, &counted));
  EXPECT_EQ(counted, 20u);
  for (const Sample &sample : split(batch, 10))
    EXPECT_EQ(std::count(sample[3].begin(), sample[3].end(), -1), 38);
}

TEST_F(CorruptionTest, AMaskOfAFileStays) {
  std::string path = write(8 * 4, [](uint64_t i) { return 10 + i; });
  std::string bytes;
  for (int i = 0; i < 32; ++i)
    bytes += char(i % 8 < 6);
  std::string mask = writeBytes("mask.txt", bytes);
  DataOptions options = of(path, maskedTokens(2, {}, 100));
  options.files.push_back({"mask", {mask}});
  std::unique_ptr<Dataset> data;
  Status status = Dataset::open(options, bert(8, 1000), data);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(training(*data, 0, 1)[0][1], (Values{1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST_F(CorruptionTest, TokensThatAModelSeesAreNoLabels) {
  std::string path = write(8 * 4, [](uint64_t i) { return 10 + i; });
  std::string ones = writeBytes("ones.txt", std::string(32, '\1'));
  DataOptions options = of(path, {});
  options.files.push_back({"mask", {ones}});
  options.files.push_back({"token_types", {ones}});
  auto refused = [&](const std::vector<Datum> &data) {
    std::unique_ptr<Dataset> opened;
    Status status = Dataset::open(options, data, opened);
    EXPECT_EQ(status.exitCode(), ExitInvalid);
    EXPECT_NE(status.message().find(
                  "expected a file, --data=labels=FILE, or --corrupt=tokens or "
                  "spans, which make it from the tokens; a model with a mask, "
                  "or with tokens of a decoder, may see the tokens that "
                  "follow, so that they are no labels"),
              std::string::npos)
        << status.message();
  };
  refused(bert(8, 1000));
  options.files.push_back({"labels", {path}});
  std::unique_ptr<Dataset> opened;
  Status status = Dataset::open(options, bert(8, 1000), opened);
  EXPECT_TRUE(status) << status.message();
  // A decoder that is as long as its encoder predicts other tokens than those
  // that the encoder reads.
  options.files.back().name = "decoder_tokens";
  options.files.erase(options.files.begin() + 2);
  refused(t5(8, 8, 1000));
}

TEST_F(CorruptionTest, WhatCannotBeMadeIsTold) {
  std::string path = write(2000, [](uint64_t i) { return 10 + i % 90; });
  auto expect = [&](const DataOptions &options, const std::vector<Datum> &data,
                    const std::string &what) {
    std::unique_ptr<Dataset> opened;
    Status status = Dataset::open(options, data, opened);
    EXPECT_EQ(status.exitCode(), ExitInvalid) << what;
    EXPECT_NE(status.message().find(what), std::string::npos)
        << status.message();
  };
  const Corruption masked = maskedTokens(2, {0, 1, 2}, 100),
                   spans = corruptedSpans();
  auto with = [](Corruption corruption, auto change) {
    change(corruption);
    return corruption;
  };
  auto tokens = [&](auto change, const std::string &what) {
    expect(of(path, with(masked, change)), bert(40, 100), what);
  };
  using C = Corruption;
  tokens([](C &c) { c.rate = 0; }, "expected a number above 0, at most 0.9");
  tokens([](C &c) { c.rate = 0.95; }, "at most 0.900000, found 0.950000");
  tokens([](C &c) { c.mask = 100; }, "the mask: expected a token below the "
                                     "vocabulary of 100, found 100");
  tokens([](C &c) { c.mask = -1; }, "vocabulary of 100, found -1");
  tokens([](C &c) { c.words = 101; }, "words below 101 are drawn, expected at "
                                      "most the vocabulary of 100");
  tokens([](C &c) { c.special = {100}; },
         "a special one: expected a token below the vocabulary of 100");
  tokens([](C &c) { c.before = {100}; },
         "what is around a sample: expected a token below the vocabulary");
  tokens([](C &c) { c.behind = Values(40, 1); },
         "40 tokens are around a sample, expected less than the 40 of a");
  tokens([](C &c) { c.words = 3; }, "all of 3 tokens are special");
  auto corrupted = [&](auto change, const std::string &what) {
    expect(of(path, with(spans, change)), t5(40, 30, 1000), what);
  };
  corrupted([](C &c) { c.spanLength = 0.5; }, "expected a mean length of at "
                                              "least 1, found 0.5");
  corrupted([](C &c) { c.padding = 1000; }, "the padding: expected a token "
                                            "below the vocabulary of 1000");
  corrupted([](C &c) { c.end = -1; }, "the end: expected a token");
  corrupted([](C &c) { c.start = -1; }, "the start: expected a token");
  corrupted([](C &c) { c.sentinels = {999}; },
            "samples have 2 spans, found 1 tokens that stand for one");
  std::unique_ptr<Dataset> opened;
  Status enough =
      Dataset::open(of(path, with(spans, [](C &c) { c.sentinels.resize(2); })),
                    t5(40, 30, 1000), opened);
  EXPECT_EQ(enough.message(), "");
  corrupted([](C &c) { c.sentinels[1] = 5000; },
            "a sentinel: expected a token");
  corrupted([](C &c) { c.sentinels[1] = 1; },
            "token 1 stands for span 1, and for the end or padding");
  const std::string wanted = "galvatron-compile --decoder-seq-len=";
  corrupted([](C &c) { c.rate = 0.8; }, wanted);
  // The length that is named has room, and one less has none.
  for (double rate : {0.15, 0.3, 0.5, 0.8}) {
    auto opened = [&](int64_t target) {
      std::unique_ptr<Dataset> data;
      return Dataset::open(of(path, with(spans, [&](C &c) { c.rate = rate; })),
                           t5(40, target, 1000), data);
    };
    std::string message = opened(1).message();
    ASSERT_NE(message.find(wanted), std::string::npos) << message;
    int64_t least =
        std::stoll(message.substr(message.find(wanted) + wanted.size()));
    EXPECT_TRUE(opened(least)) << opened(least).message();
    EXPECT_EQ(opened(least - 1).message().find("corrupted spans: of samples"),
              0u)
        << rate;
  }
  expect(of(path, spans), bert(40, 1000),
         "expected a program with tokens of a "
         "decoder, and as many labels");
  expect(of(path, spans), t5(3, 30, 1000), "at least 4 tokens, found 3");
  expect(of(path, masked), t5(40, 30, 1000),
         "as many labels as tokens, 40, "
         "found 30");
  std::vector<Datum> data = t5(40, 30, 1000);
  data[3].below = 900;
  expect(of(path, spans), data, "one vocabulary of encoder and decoder");
  data = t5(40, 30, 1000);
  data[1].shape = {30};
  expect(of(path, spans), data, "expected a mask of 40 values, found 30");
  data = bert(40, 100);
  data[0].kind = "classes";
  expect(of(path, masked), data,
         "expected a program that reads a sequence of "
         "tokens and has labels");
  data = bert(40, 100);
  data.push_back(rowOf("classes", 1, 5));
  expect(of(path, masked), data,
         "data 'classes' of kind 'classes': expected a "
         "file");
  DataOptions options = of(path, masked);
  options.files.push_back({"labels", {path}});
  expect(options, bert(40, 100),
         "data 'labels': masked tokens make it, "
         "expected no file for it");
  options = of(path, masked);
  options.maskDocuments = true;
  expect(options, bert(40, 100), "documents are masked in the next tokens");
  options = of(path, Corruption());
  expect(options, bert(40, 100),
         "expected a file, --data=mask=FILE, or "
         "--corrupt=tokens or spans");
  expect(of(path, masked), bert(4000, 100),
         "is too short: expected at least "
         "4000 tokens, found 2000");
}

} // namespace
