//===- corpora_test.cpp - Shards, mixtures, documents, Megatron-LM's ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/shard_index.h"
#include "grt/data.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <unistd.h>

using namespace grt;

namespace {

/// A folder of this test, empty.
class Corpora : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "corpora-" + std::to_string(getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
    return folder + "/" + name;
  }
  std::string folder;
};

std::string littleEndian(uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i)
    bytes += char(value >> (8 * i) & 0xff);
  return bytes;
}

std::string tokensOf(const std::vector<uint32_t> &tokens, int width) {
  std::string bytes;
  for (uint32_t token : tokens)
    bytes += littleEndian(token, width);
  return bytes;
}

std::vector<uint32_t> row(uint32_t first, size_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Datum tokenDatum(const std::string &kind, int64_t below, int64_t length) {
  Datum datum;
  datum.name = datum.kind = kind;
  datum.shape = {length};
  datum.bytesPerSample = uint64_t(length) * 4;
  datum.below = below;
  datum.counted = kind == "labels";
  return datum;
}

DataOptions of(std::vector<std::string> paths) {
  DataOptions options;
  options.files = {{"", std::move(paths)}};
  return options;
}

Status openTokens(const DataOptions &options, std::unique_ptr<Dataset> &result,
                  int64_t length = 4, int64_t below = 50000) {
  return Dataset::open(options,
                       {tokenDatum("tokens", below, length),
                        tokenDatum("labels", below, length)},
                       result);
}

std::vector<int32_t> int32sOf(const std::vector<char> &bytes) {
  std::vector<int32_t> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The first token of training samples [first, first + count).
std::vector<int32_t> firstTokens(const Dataset &data, uint64_t first,
                                 int64_t count, int64_t length = 4) {
  DataBatch batch;
  Status status = data.trainingBatch(first, count, batch);
  EXPECT_TRUE(status) << status.message();
  std::vector<int32_t> tokens = int32sOf(batch[0]), result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(tokens[size_t(i * length)]);
  return result;
}

/// A shard of 16 bit tokens and its index.
struct Shard {
  std::string tokens, index;
};
Shard shardOf(const std::vector<uint32_t> &tokens,
              const std::vector<uint64_t> &ends, const std::string &folder,
              const std::string &labels = "", uint64_t sampleTokens = 0) {
  ShardIndex facts;
  if (!labels.empty())
    facts.labels = {uint64_t(std::count(labels.begin(), labels.end(), 1)),
                    edgeHashOf(labels),
                    {}};
  facts.sampleTokens = sampleTokens;
  facts.tokens = tokens.size();
  facts.documents = ends.size();
  facts.largest = *std::max_element(tokens.begin(), tokens.end());
  Shard shard;
  shard.tokens = tokensOf(tokens, 2);
  facts.edgeHash = edgeHashOf(shard.tokens);
  std::string path = folder + "/made.index";
  writeShardIndex(path, facts, ends);
  std::ifstream file(path, std::ios::binary);
  shard.index.assign(std::istreambuf_iterator<char>(file), {});
  return shard;
}

/// Megatron-LM's index of documents, each of one sequence.
std::string megatronIndex(int code, int width,
                          const std::vector<uint32_t> &lengths) {
  std::string index("MMIDIDX\0\0", 9);
  index += littleEndian(1, 8) + littleEndian(uint64_t(code), 1) +
           littleEndian(lengths.size(), 8) +
           littleEndian(lengths.size() + 1, 8);
  for (uint32_t length : lengths)
    index += littleEndian(length, 4);
  uint64_t begin = 0;
  for (uint32_t length : lengths) {
    index += littleEndian(begin, 8);
    begin += length * uint64_t(width);
  }
  for (size_t i = 0; i <= lengths.size(); ++i)
    index += littleEndian(i, 8);
  return index;
}

TEST_F(Corpora, DocumentsAreMaskedWhereTheNextOneBegins) {
  // Documents of 3, 0, 5 and 12 tokens.
  Shard shard = shardOf(row(100, 20), {3, 3, 8, 20}, folder);
  DataOptions options = of({write("a.u16", shard.tokens)});
  options.maskDocuments = true;
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_NE(status.message().find("has no index that says where its documents"),
            std::string::npos);
  write("a.u16.index", shard.index);
  write("b.bin", tokensOf(row(100, 20), 4));
  write("b.idx", megatronIndex(4, 4, {3, 5, 12}));
  options.validationFraction = 1;
  for (const char *name : {"/a.u16", "/b.bin"}) {
    options.files[0].paths = {folder + name};
    ASSERT_TRUE(status = openTokens(options, data)) << status.message();
    ASSERT_EQ(data->validationSamples(), 4u);
    DataBatch batch;
    uint64_t counted = 0;
    ASSERT_TRUE(data->validationBatch(0, 4, batch, nullptr, &counted));
    EXPECT_EQ(int32sOf(batch[0])[4], 104);
    // Tokens 3 and 8 begin documents.
    EXPECT_EQ(int32sOf(batch[1]),
              (std::vector<int32_t>{101, 102, -1, 104, 105, 106, 107, -1, 109,
                                    110, 111, 112, 113, 114, 115, 116}));
    EXPECT_EQ(counted, 14u);
    // A process that reads nothing of the batch counts the same.
    SamplesRead none(2);
    ASSERT_TRUE(data->validationBatch(0, 4, batch, &none, &counted));
    EXPECT_EQ(counted, 14u);
  }
}

TEST_F(Corpora, DocumentsAreKeptApartByWhereTheyBegin) {
  // Documents of 3, 0, 5 and 12 tokens; samples of 4 cut the last two.
  Shard shard = shardOf(row(100, 20), {3, 3, 8, 20}, folder);
  DataOptions options = of({write("a.u16", shard.tokens)});
  options.validationFraction = 1;
  auto datum = [](const char *kind, int64_t below) {
    return Datum{
        kind, kind, GRT_I32, {4}, 16, below, std::string(kind) == "labels"};
  };
  std::vector<Datum> all = {datum("tokens", 1000), datum("labels", 1000),
                            datum("document_starts", 4)};
  std::unique_ptr<Dataset> data;
  auto refused = [&](const std::string &expected) {
    Status status = Dataset::open(options, all, data);
    EXPECT_EQ(status.exitCode(), ExitInvalid);
    EXPECT_NE(status.message().find(expected), std::string::npos)
        << status.message();
  };
  refused("has no index that says where its documents end, which the program "
          "keeps apart");
  write("a.u16.index", shard.index);
  Status status = Dataset::open(options, all, data);
  ASSERT_TRUE(status) << status.message();
  ASSERT_EQ(data->validationSamples(), 4u);
  DataBatch batch;
  uint64_t counted = 0;
  ASSERT_TRUE(data->validationBatch(0, 4, batch, nullptr, &counted));
  EXPECT_EQ(int32sOf(batch[2]), (std::vector<int32_t>{0, 0, 0, 3, 0, 0, 0, 0, 0,
                                                      0, 0, 0, 0, 0, 0, 0}));
  // Its first token is no label of the document before.
  EXPECT_EQ(int32sOf(batch[1]),
            (std::vector<int32_t>{101, 102, -1, 104, 105, 106, 107, -1, 109,
                                  110, 111, 112, 113, 114, 115, 116}));
  EXPECT_EQ(counted, 14u);
  EXPECT_FALSE(data->usable().areMixed);

  options.files.push_back({"document_starts", {folder + "/a.u16"}});
  refused("it is made from the documents of 'tokens', expected no file for it");
  options.files.pop_back();
  options.corruption.kind = Corruption::Kind::Tokens;
  options.corruption.mask = 3;
  options.corruption.words = 900;
  refused("expected a program compiled without --documents");
}

TEST_F(Corpora, LabelsThatDoNotCount) {
  // Labels count where the file says so, whatever the sample.
  const std::string labels({0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1});
  Shard shard = shardOf(row(100, 17), {8, 17}, folder, labels);
  write("a.u16", shard.tokens);
  write("a.u16.index", shard.index);
  std::string beside = write("a.u16.labels", labels);
  DataOptions options = of({folder + "/a.u16"});
  options.validationFraction = 1;
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data);
  ASSERT_TRUE(status) << status.message();
  ASSERT_EQ(data->validationSamples(), 4u);
  EXPECT_EQ(data->usable().labels, 4u);
  const std::vector<int32_t> expected = {101, 102, -1, -1, -1, -1, -1, -1,
                                         109, -1,  -1, -1, -1, -1, -1, 116};
  DataBatch batch;
  SamplesRead none(2);
  uint64_t counted = 0;
  ASSERT_TRUE(data->validationBatch(0, 4, batch, nullptr, &counted));
  EXPECT_EQ(int32sOf(batch[1]), expected);
  EXPECT_EQ(counted, 4u);
  ASSERT_TRUE(data->validationBatch(0, 4, batch, &none, &counted));
  EXPECT_EQ(counted, 4u);
  // A label that two rules leave out is left out once.
  options.maskDocuments = true;
  ASSERT_TRUE(openTokens(options, data));
  ASSERT_TRUE(data->validationBatch(0, 4, batch, &none, &counted));
  EXPECT_EQ(counted, 4u);
  ASSERT_TRUE(data->validationBatch(0, 4, batch, nullptr, &counted));
  EXPECT_EQ(int32sOf(batch[1]), expected);

  // Other labels are other data.
  std::vector<DataIdentity> before = data->identity();
  std::string others = labels;
  std::swap(others[1], others[3]);
  write("a.u16.index", shardOf(row(100, 17), {8, 17}, folder, others).index);
  write("a.u16.labels", others);
  ASSERT_TRUE(openTokens(options, data));
  EXPECT_NE(data->identity(), before);

  auto refused = [&](const std::string &expected) {
    status = openTokens(options, data);
    EXPECT_EQ(status.exitCode(), ExitInvalid);
    EXPECT_NE(status.message().find(expected), std::string::npos)
        << status.message();
  };
  write("a.u16.labels", labels);
  refused("its beginning or end changed since");
  write("a.u16.labels", others + "x");
  refused("expected a byte for each of 17 tokens, found 18 bytes");
  std::filesystem::remove(beside);
  refused("its index says which tokens are labels, expected them in");
  std::string nothing(17, '\0');
  write("a.u16.labels", nothing);
  write("a.u16.index", shardOf(row(100, 17), {8, 17}, folder, nothing).index);
  refused("no token of it counts as a label");
  write("a.u16.labels", labels);
  write("a.u16.index", shardOf(row(100, 17), {8, 17}, folder, labels, 8).index);
  refused("packed for samples of 8 tokens, expected the 4 of the program");
  std::filesystem::remove(folder + "/a.u16.index");
  refused("which tokens are labels lies in '" + beside +
          "', expected the index '" + folder + "/a.u16.index' beside it");
}

TEST_F(Corpora, ALabelIsZeroOrOne) {
  // The change is in the middle, which the hash of the ends does not see.
  std::string labels(200000, '\1');
  std::vector<uint32_t> tokens(200000, 7);
  Shard shard = shardOf(tokens, {200000}, folder, labels);
  labels[100000] = 2;
  write("a.u16", shard.tokens);
  write("a.u16.index", shard.index);
  write("a.u16.labels", labels);
  DataOptions options = of({folder + "/a.u16"});
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data);
  ASSERT_TRUE(status) << status.message();
  DataBatch batch;
  for (uint64_t i = 0; status && i < data->trainingSamples(); ++i)
    status = data->trainingBatch(i, 1, batch);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_NE(status.message().find("a.u16.labels': expected 0 or 1 at position "
                                  "100000, found 2"),
            std::string::npos)
      << status.message();
}

TEST_F(Corpora, AnIndexSparesTheScanAndNothingElse) {
  std::vector<uint32_t> tokens = row(0, 40);
  Shard shard = shardOf(tokens, {40}, folder);
  // A token that the index does not know is in the middle, which the hash of
  // the ends does not see.
  std::vector<uint32_t> longer(100000, 7);
  Shard first = shardOf(longer, {100000}, folder);
  longer[50000] = 60000;
  write("a.u16", tokensOf(longer, 2));
  write("a.u16.index", first.index);
  std::unique_ptr<Dataset> data;
  Status status = openTokens(of({folder + "/a.u16"}), data);
  ASSERT_TRUE(status) << status.message();
  DataBatch batch;
  for (uint64_t i = 0; status && i < data->trainingSamples(); ++i)
    status = data->trainingBatch(i, 1, batch);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_NE(status.message().find("token 60000 at position 50000"),
            std::string::npos)
      << status.message();
}

TEST_F(Corpora, MegatronsTokensAreRead) {
  const std::map<int, int> widths = {{1, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
  for (const auto &[code, width] : widths) {
    write("m.bin", tokensOf(row(1, 41), width));
    write("m.idx", megatronIndex(code, width, {41}));
    std::unique_ptr<Dataset> data;
    Status status = openTokens(of({folder + "/m.bin"}), data);
    ASSERT_TRUE(status) << status.message();
    std::vector<int32_t> firsts = firstTokens(*data, 0, 10);
    std::multiset<int32_t> sorted(firsts.begin(), firsts.end());
    EXPECT_EQ(sorted,
              (std::multiset<int32_t>{1, 5, 9, 13, 17, 21, 25, 29, 33, 37}));
  }
}

TEST_F(Corpora, MixturesHaveTheirPartsInEveryBlock) {
  // Sources of 3000, 100 and 900 samples, told apart by their tokens.
  const std::vector<size_t> samples = {3000, 100, 900};
  const std::vector<double> weights = {0.7, 0.05, 0.25};
  DataOptions options;
  for (size_t i = 0; i < 3; ++i) {
    std::string name = "source" + std::to_string(i) + ".u16";
    std::string path =
        write(name, tokensOf(row(uint32_t(i) * 16000, samples[i] * 4 + 1), 2));
    options.files.push_back({"", {path}, weights[i]});
  }
  options.seed = 3;
  options.validationFraction = 0.1;
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data->trainingSamples(), 2700u + 90 + 810);
  EXPECT_EQ(data->validationSamples(), 300u + 10 + 90);
  constexpr int64_t block = 1 << 16;
  for (uint64_t first : {uint64_t(0), 5 * uint64_t(block)}) {
    std::vector<int32_t> tokens = firstTokens(*data, first, block);
    std::vector<std::map<int32_t, int64_t>> seen(3);
    for (int32_t token : tokens)
      ++seen[size_t(token / 16000)][token % 16000];
    for (size_t i = 0; i < 3; ++i) {
      int64_t all = 0, least = block, most = 0;
      for (const auto &[token, count] : seen[i]) {
        all += count;
        least = std::min(least, count);
        most = std::max(most, count);
        // Samples set aside for validation are never drawn.
        EXPECT_LT(token / 4, int64_t(samples[i]) / 10 * 9);
      }
      EXPECT_NEAR(double(all), weights[i] * double(block), 1);
      // Each source is gone through epoch by epoch.
      EXPECT_EQ(seen[i].size(), samples[i] / 10 * 9);
      EXPECT_LE(most - least, 2);
    }
    // Nor do sources come in rows: the parts of a short piece are near theirs.
    int64_t early = std::count_if(tokens.begin(), tokens.begin() + 1000,
                                  [](int32_t token) { return token < 16000; });
    EXPECT_NEAR(double(early), 700, 60);
  }
  // Validation is every source's end, in their order.
  DataBatch batch;
  ASSERT_TRUE(data->validationBatch(0, 400, batch));
  std::vector<int32_t> validation = int32sOf(batch[0]);
  EXPECT_EQ(validation[0], 2700 * 4);
  EXPECT_EQ(validation[300 * 4], 16000 + 90 * 4);
  EXPECT_EQ(validation[310 * 4], 32000 + 810 * 4);
  // A checkpoint notices other weights.
  std::vector<DataIdentity> before = data->identity();
  std::swap(options.files[0].weight, options.files[2].weight);
  ASSERT_TRUE(openTokens(options, data));
  EXPECT_NE(data->identity(), before);
  EXPECT_EQ(data->identity().size(), data->fileNames().size());
}

/// Sources are read in whole passes, whatever their sizes and weights, across
/// the ends of blocks too, and `draws` counts what is read.
TEST_F(Corpora, SourcesOfAMixtureAreReadInWholePasses) {
  std::mt19937_64 random(11);
  auto upTo = [&](uint64_t most) { return 1 + random() % most; };
  std::vector<std::string> paths;
  std::vector<size_t> sizes = {1, 2, 7, 30, 200, 5000};
  for (size_t i = 0; i < sizes.size(); ++i)
    paths.push_back(write("s" + std::to_string(i) + ".u16",
                          tokensOf(row(0, sizes[i] * 4 + 1), 2)));
  constexpr uint64_t block = 1 << 16;
  for (int round = 0; round < 200; ++round) {
    DataOptions options;
    options.seed = random();
    size_t count = 2 + random() % 3;
    std::vector<double> parts;
    for (size_t i = 0; i < count; ++i)
      parts.push_back(double(upTo(round % 2 ? 10 : 1000)));
    double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
    std::vector<size_t> sources;
    for (size_t i = 0; i < count; ++i) {
      sources.push_back(random() % sizes.size());
      options.files.push_back({"", {paths[sources.back()]}, parts[i] / sum});
    }
    std::unique_ptr<Dataset> data;
    Status status = openTokens(options, data);
    ASSERT_TRUE(status) << status.message();
    // Rows are looked at in two places: the beginning, and the end of a block.
    for (uint64_t first : {uint64_t(0), upTo(9) * block - 150}) {
      std::vector<uint64_t> drawn;
      std::vector<std::set<int32_t>> seen(count);
      for (const Dataset::Draws &source : data->draws(first))
        drawn.push_back(source.drawn);
      std::vector<uint64_t> begun = drawn;
      for (uint64_t number = first; number < first + 300; ++number) {
        std::vector<Dataset::Draws> next = data->draws(number + 1);
        size_t which = 0;
        while (which < count && next[which].drawn == drawn[which])
          ++which;
        ASSERT_LT(which, count);
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(next[i].drawn, drawn[i] + (i == which));
        uint64_t size = sizes[sources[which]];
        ASSERT_EQ(next[which].training, size);
        ASSERT_EQ(next[which].name, paths[sources[which]]);
        if (drawn[which] % size == 0)
          seen[which].clear();
        int32_t sample = firstTokens(*data, number, 1)[0];
        ASSERT_LT(sample / 4, int32_t(size));
        ASSERT_TRUE(seen[which].insert(sample).second)
            << "sample " << sample / 4 << " of " << size << " twice in a pass";
        ++drawn[which];
      }
      // Any stretch has nearly its part of every source.
      for (size_t i = 0; i < count; ++i)
        EXPECT_NEAR(double(drawn[i] - begun[i]), 300 * parts[i] / sum, 6);
    }
    // A block has exactly its part.
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(double(data->draws(3 * block)[i].drawn),
                  3 * parts[i] / sum * double(block), 3);
  }
}

TEST_F(Corpora, EndsOfFilesFillNoSamples) {
  DataOptions options;
  for (int i = 0; i < 3; ++i)
    options.files.push_back(
        {"",
         {write("e" + std::to_string(i) + ".u16", tokensOf(row(0, 7), 2))}});
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(openTokens(options, data));
  EXPECT_EQ(data->trainingSamples(), 3u);
  EXPECT_EQ(data->usable().all, 21u);
  EXPECT_EQ(data->usable().used, 15u); // four tokens and a label of each
}

TEST_F(Corpora, SamplesAreTheSameForAnyNumberOfProcesses) {
  DataOptions options;
  for (uint32_t i = 0; i < 2; ++i)
    options.files.push_back(
        {"",
         {write("p" + std::to_string(i) + ".u16",
                tokensOf(row(i * 16000, 40 * (3 + i) + 1), 2))},
         i ? 0.75 : 0.25});
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(openTokens(options, data));
  constexpr int64_t batch = 40;
  for (uint64_t first : {uint64_t(0), uint64_t(40), uint64_t(1) << 33}) {
    DataBatch whole;
    uint64_t counted = 0;
    ASSERT_TRUE(data->trainingBatch(first, batch, whole, nullptr, &counted));
    for (int64_t processes : {1, 2, 5, 8}) {
      DataBatch together(2);
      for (int64_t process = 0; process < processes; ++process) {
        SampleRange own{process * batch / processes, batch / processes};
        SamplesRead wanted(2, {own});
        DataBatch part;
        uint64_t partCounted = 0;
        // Another run, which begins in the middle.
        std::unique_ptr<Dataset> again;
        ASSERT_TRUE(openTokens(options, again));
        ASSERT_TRUE(
            again->trainingBatch(first, batch, part, &wanted, &partCounted));
        EXPECT_EQ(partCounted, counted);
        for (size_t i = 0; i < 2; ++i)
          together[i].insert(together[i].end(),
                             part[i].begin() + own.first * 16,
                             part[i].begin() + (own.first + own.count) * 16);
      }
      EXPECT_EQ(together, whole) << processes;
    }
  }
}

TEST_F(Corpora, TextGoesThroughWhatItIsGiven) {
  std::string text = write("a.jsonl", "ignored");
  DataOptions options = of({text});
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data);
  EXPECT_NE(status.message().find("expected a tokenizer for its text"),
            std::string::npos);
  options.encodeText = [](const std::string &path, EncodedText &result) {
    EXPECT_TRUE(path.ends_with("a.jsonl"));
    result = {4, tokensOf(row(10, 9), 4), {4, 9}};
    return Status();
  };
  options.maskDocuments = true;
  options.validationFraction = 1;
  ASSERT_TRUE(status = openTokens(options, data)) << status.message();
  DataBatch batch;
  ASSERT_TRUE(data->validationBatch(0, 2, batch));
  EXPECT_EQ(int32sOf(batch[1]),
            (std::vector<int32_t>{11, 12, 13, -1, 15, 16, 17, 18}));
  EXPECT_EQ(data->identity()[0].format, "u32");
  options.encodeText = [](const std::string &, EncodedText &) {
    return Status(ExitInvalid, "no such words");
  };
  EXPECT_EQ(openTokens(options, data).message(), "no such words");
}

/// 10^12 tokens in files without blocks on the disk.
TEST_F(Corpora, ManyTokensTakeNoMemory) {
  constexpr uint64_t files = 16, tokens = 62500000000ull;
  DataOptions options = of({});
  for (uint64_t i = 0; i < files; ++i) {
    std::string path = write("s" + std::to_string(i) + ".u16", "");
    if (truncate(path.c_str(), off_t(tokens * 2)) != 0)
      GTEST_SKIP() << "files of 125 GB are not possible in " << folder;
    options.files[0].paths.push_back(path);
  }
  std::unique_ptr<Dataset> data;
  Status status = openTokens(options, data, 2048);
  if (!status && status.exitCode() == ExitMemory)
    GTEST_SKIP() << status.message();
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data->trainingSamples(), files * ((tokens - 1) / 2048));
  DataBatch batch;
  for (uint64_t first : {uint64_t(0), uint64_t(1) << 40})
    EXPECT_TRUE(data->trainingBatch(first, 8, batch));
}

TEST_F(Corpora, WrongInputIsToldWithItsFile) {
  std::vector<uint32_t> tokens = row(100, 41);
  Shard shard = shardOf(tokens, {20, 41}, folder);
  std::string bin = tokensOf(tokens, 4), idx = megatronIndex(4, 4, {20, 21});
  std::unique_ptr<Dataset> data;
  auto expect = [&](const DataOptions &options, const std::string &what,
                    int64_t below = 50000) {
    Status status = openTokens(options, data, 4, below);
    EXPECT_EQ(status.exitCode(), ExitInvalid) << what;
    EXPECT_NE(status.message().find(what), std::string::npos)
        << status.message();
  };
  auto changed = [](std::string bytes, size_t at, int to) {
    bytes[at] = char(to);
    return bytes;
  };
  auto withIndex = [&](const std::string &index, const std::string &what,
                       int64_t below = 50000) {
    write("a.u16", shard.tokens);
    write("a.u16.index", index);
    expect(of({folder + "/a.u16"}), what, below);
  };
  withIndex("", "a.u16.index' is empty");
  withIndex("GRT", "expected at least 136 bytes, found 3");
  withIndex(changed(shard.index, 3, 'X'), "which begins with GRTSHARD");
  withIndex(changed(shard.index, 8, 3),
            "byte 8: expected version 1 or 2, found 3");
  withIndex(changed(shard.index, 12, 8), "byte 12: expected tokens of 2 or 4");
  withIndex(changed(shard.index, 12, 4), "expected tokens of 4 bytes, found 2");
  withIndex(changed(shard.index, 16, 40), "expected 40 tokens, found 41");
  withIndex(changed(shard.index, 24, 9), "byte 24: 9 documents do not fit");
  withIndex(changed(shard.index, 31, 0x7f), "documents do not fit");
  withIndex(changed(shard.index, 40, shard.index[40] ^ 1),
            "a.u16' is not what its index says: its beginning or end changed");
  withIndex(shard.index.substr(0, 150), "do not fit an index of 150 bytes");
  withIndex(shard.index, "its index says that token 140 is in it", 140);

  auto megatron = [&](const std::string &tokenBytes, const std::string &index,
                      const std::string &what, int64_t below = 50000) {
    write("m.bin", tokenBytes);
    write("m.idx", index);
    expect(of({folder + "/m.bin"}), what, below);
  };
  megatron(bin, "MMIDIDX", "which begins with MMIDIDX");
  megatron(bin, idx.substr(0, 20), "expected at least 34 bytes, found 20");
  megatron(bin, changed(idx, 0, 'X'), "which begins with MMIDIDX");
  megatron(bin, changed(idx, 9, 2), "byte 9: expected version 1, found 2");
  megatron(bin, changed(idx, 17, 6), "byte 17: expected a type of integers");
  megatron(bin, changed(idx, 17, 99), "(1 to 5, or 8), found 99");
  megatron(bin, changed(idx, 18, 3), "byte 18: 3 sequences and 3 bounds");
  megatron(bin, changed(idx, 25, 0x7f), "do not fit an index of");
  megatron(bin, idx + "x", "do not fit an index of");
  // These indices have no sequences, or no documents, and the length that they
  // say.
  const std::string start("MMIDIDX\0\0", 9),
      few = "byte 18: expected at least ";
  for (auto [sequences, documents] : {std::pair(0, 1), {1, 0}})
    megatron(bin,
             start + littleEndian(1, 8) + "\4" + littleEndian(sequences, 8) +
                 littleEndian(documents, 8) +
                 std::string(size_t(12 * sequences + 8 * documents), 0),
             few + "one sequence and document");
  megatron(bin, changed(idx, 34 + 4, 22), "expected sequences from byte 0 to");
  megatron(bin + "1234", idx, "m.bin' is not what its index says");
  megatron(bin, changed(idx, 34 + 8, 4), "the first sequence at byte 4");
  // The file ends between two tokens, at the end that its index says.
  megatron(bin + "x", changed(idx, 34 + 8 + 8, 81),
           "m.bin': 165 bytes are not a whole number of tokens of 4");
  megatron(bin, idx, "token 140 at position 40, expected less than", 140);
  write("alone.bin", bin);
  expect(of({folder + "/alone.bin"}), "expected Megatron-LM's index beside it");
  DataOptions named = of({write("tokens.data", bin)});
  named.format = "bin";
  expect(named, "expected a name that ends in .bin");

  auto mixture = [&](std::vector<std::optional<double>> weights,
                     const std::string &what) {
    DataOptions options;
    for (size_t i = 0; i < weights.size(); ++i)
      options.files.push_back(
          {"",
           {write("w" + std::to_string(i) + ".u16", tokensOf(tokens, 2))},
           weights[i]});
    expect(options, what);
  };
  mixture({0.5, 0.4}, "weights of data: expected a sum of 1, found 0.9");
  mixture({0.5, 0.6}, "expected a sum of 1, found 1.1");
  mixture({1.5, -0.5}, "expected at least 1/65536");
  mixture({1.0, 0.0}, "weight 0.000000 of data 1: expected at least 1/65536");
  mixture({0.5, std::nullopt}, "expected a weight for all files of a mixture");
  DataOptions options = of({write("w.u16", tokensOf(tokens, 2))});
  options.files[0].weight = 1;
  options.validationFraction = 1;
  expect(options, "the validation fraction leaves no training samples");
  options.validationFraction = 0;
  options.files.push_back({"labels", {folder + "/w.u16"}, 0.0});
  expect(options, "files of a mixture are those of 'tokens' alone");

  expect(of({write("a.doc", "x")}), "expected a suffix .txt, .jsonl, .u16");
  expect(of({write("odd.u32", "12345")}), "5 bytes are not a whole number");
  expect(of({write("short.u16", "12")}), "is too short: expected at least 5");
  options = of({write("c.u16", tokensOf(tokens, 2))});
  options.format = "u64";
  expect(options, "expected text, jsonl, u16, u32, bin or npy, found 'u64'");
  // An index that is wrong inside does no harm, and is told by whoever looks.
  options = of({folder + "/d.bin"});
  write("d.bin", bin);
  write("d.idx", changed(idx, idx.size() - 16, 99));
  options.maskDocuments = true;
  ASSERT_TRUE(openTokens(options, data));
  DataBatch batch;
  Status status = data->trainingBatch(0, 10, batch);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_NE(status.message().find("document 0 ends before sequence 99 of 2"),
            std::string::npos)
      << status.message();
}

} // namespace
