//===- labels_test.cpp - Labels, packing, runs with both ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "best_fit.h"
#include "data/shard_index.h"
#include "data_tool.h"
#include "text/label_spans.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace grt;
using namespace grt::test;

namespace {

std::unique_ptr<Tokenizer> open(const std::string &file) {
  std::unique_ptr<Tokenizer> tokenizer;
  EXPECT_TRUE(Tokenizer::open(file, tokenizer));
  return tokenizer;
}

/// Tokens, documents' ends and labels of a shard.
struct Shard {
  explicit Shard(const std::string &path) {
    index = readShardIndex(path + ".index", ends);
    std::string bytes = readAll(path);
    for (size_t at = 0; at < bytes.size(); at += 2)
      ids.push_back(uint32_t(uint8_t(bytes[at])) |
                    uint32_t(uint8_t(bytes[at + 1])) << 8);
    std::string file = readAll(path + ".labels");
    labels.assign(file.begin(), file.end());
  }
  ShardIndex index;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> ends;
  std::vector<uint8_t> labels;
};

TEST(LabelSpans, EveryTokenThatASpanTouchesCounts) {
  // Words of three bytes: a boundary is where one ends.
  auto tokenizer = open(writeText("threes.json", R"({
    "added_tokens": [],
    "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                      "pattern": {"Regex": "[a-z]{3}"}},
    "model": {"type": "WordLevel", "unk_token": "?",
              "vocab": {"?": 0, "abc": 1, "def": 2, "ghi": 3, "jkl": 4}}})"));
  Encoder encoder(*tokenizer);
  const std::string text = "abcdefghijkl";
  std::vector<uint32_t> ids;
  ASSERT_TRUE(encoder.encode(text, false, ids));
  ASSERT_EQ(ids, (std::vector<uint32_t>{1, 2, 3, 4}));
  for (uint64_t begin = 0; begin <= text.size(); ++begin)
    for (uint64_t end = begin; end <= text.size(); ++end) {
      std::vector<uint8_t> expected(4);
      // Token i is bytes [3 i, 3 i + 3); the first is no label.
      for (uint64_t i = 1; i < 4 && begin < end; ++i)
        expected[i] = 3 * i < end && begin < 3 * i + 3;
      EXPECT_EQ(text::labelsOf(encoder, text, ids, {{begin, end}}, false),
                expected)
          << begin << " " << end;
      bool isBound = begin == end || (begin % 3 == 0 && end % 3 == 0);
      Status status = guarded([&] {
        (void)text::labelsOf(encoder, text, ids, {{begin, end}}, true);
      });
      EXPECT_EQ(bool(status), isBound) << status.message();
    }
}

TEST(LabelSpans, SpecialTokensBoundWordsOfEveryKindOfTokenizer) {
  for (const char *name : {"gpt2", "llama2", "llama3", "qwen", "unigram"}) {
    auto tokenizer = open(TOKENIZERS "/" + std::string(name) + ".json");
    Encoder encoder(*tokenizer);
    // A special token of each stands between the turns.
    uint32_t special = 0;
    while (!tokenizer->isSpecial(special))
      ++special;
    std::string mark = tokenizer->decode(std::vector{special}, false);
    const std::string turns[] = {mark + "say \u00e9t\u00e9",
                                 mark + "summer" + mark, "next",
                                 mark + "sun" + mark};
    std::string text;
    std::vector<text::LabelSpan> spans;
    for (size_t i = 0; i < 4; ++i) {
      uint64_t begin = text.size();
      text += turns[i];
      if (i % 2)
        spans.push_back({begin, text.size()});
    }
    std::vector<uint32_t> ids;
    ASSERT_TRUE(encoder.encode(text, false, ids));
    std::vector<uint8_t> labels =
        text::labelsOf(encoder, text, ids, spans, true);
    // The parts that count, and the others, decode to the turns.
    std::string parts[2];
    for (size_t i = 0; i < ids.size();) {
      size_t end = i;
      while (end < ids.size() && labels[end] == labels[i])
        ++end;
      parts[labels[i]] += tokenizer->decode(std::span(ids).subspan(i, end - i),
                                            /*skipSpecial=*/false);
      i = end;
    }
    // Decoders of some put a space before a word.
    std::erase(parts[1], ' ');
    EXPECT_EQ(parts[1], turns[1] + turns[3]) << name;
  }
}

TEST(BestFit, PiecesStandInSamplesOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    uint64_t length = 1 + random() % 40, most = random() % 4;
    std::vector<uint64_t> lengths(random() % 60);
    for (uint64_t &each : lengths)
      each = 1 + random() % length;
    std::vector<data::PackedSample> samples =
        data::packByBestFit(lengths, length, most);
    std::vector<int> seen(lengths.size());
    for (const data::PackedSample &sample : samples) {
      uint64_t sum = 0;
      for (uint64_t piece : sample) {
        sum += lengths[piece];
        ++seen[piece];
      }
      EXPECT_LE(sum, length);
      EXPECT_GE(sample.size(), 1u);
      EXPECT_TRUE(!most || sample.size() <= most);
      EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    // One sample at most is half full: a piece of it would have gone to
    // another.
    if (most == 0)
      EXPECT_LE(std::count_if(samples.begin(), samples.end(),
                              [&](const data::PackedSample &sample) {
                                uint64_t sum = 0;
                                for (uint64_t piece : sample)
                                  sum += lengths[piece];
                                return 2 * sum <= length;
                              }),
                1);
    if (most == 1)
      for (size_t i = 0; i < samples.size(); ++i)
        EXPECT_EQ(samples[i], data::PackedSample{i});
  }
  // Best fit takes the room that is least.
  EXPECT_EQ(data::packByBestFit({6, 3, 8, 2}, 10, 0),
            (std::vector<data::PackedSample>{{2, 3}, {0, 1}}));
}

TEST(GalvatronData, SpansOfALineAreLabels) {
  // "one two three": " two" counts, and of the second document all from "b" on.
  std::string file = writeText(
      "spans.jsonl",
      R"({"text": "one two three", "labels": [[3, 7]], "exact": true})"
      "\n"
      R"({"text": "no label", "labels": []})"
      "\n"
      R"({"text": "a b", "labels": [[1, 3]]})"
      "\n");
  std::string out = newFolder("spans");
  Result result =
      dataTool("tokenize " + file + " --labels-key=labels -o " + out +
               " --tokenizer=" + gpt2 + " --end-token='<|endoftext|>'");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "1 document without a label dropped"))
      << result.output;
  Shard shard(out + "/00000.u16");
  ASSERT_EQ(shard.ends.size(), 2u);
  auto tokenizer = open(gpt2);
  auto counted = [&](uint64_t begin, uint64_t end) {
    std::vector<uint32_t> ids;
    for (uint64_t i = begin; i < end; ++i)
      if (shard.labels[i])
        ids.push_back(shard.ids[i]);
    return tokenizer->decode(ids, false);
  };
  EXPECT_EQ(counted(0, shard.ends[0]), " two");
  // An answer that goes to the end of the text is learned with its end.
  EXPECT_EQ(counted(shard.ends[0], shard.ends[1]), " b<|endoftext|>");
  EXPECT_EQ(shard.index.labels->counted,
            uint64_t(std::count(shard.labels.begin(), shard.labels.end(), 1)));
  Result shown =
      dataTool("print " + out + "/00000.u16 --show-labels --tokenizer=" + gpt2);
  EXPECT_EQ(shown.output, "one[[ two]] three<|endoftext|>");
  EXPECT_EQ(dataTool("check " + out + "/00000.u16").exitCode, 0);

  const std::pair<std::string, std::string> wrong[] = {
      {R"({"text": "a b", "labels": []})",
       "expected a document with a token that counts as a label, found none "
       "among 1; a conversation without an answer has none"},
      {R"({"text": "a b"})", "expected a list of [begin, end] under the key "
                             "'labels'"},
      {R"({"text": "a b", "labels": [[0, 9]]})", "in the text's 3 bytes"},
      {R"({"text": "a b", "labels": [[2, 3], [0, 1]]})", "spans in order"},
      {R"({"text": "a b", "labels": [[0, -1]]})", "found [0,-1]"},
      {R"({"text": "a b", "labels": [[0, 1]], "exact": 1})",
       "'exact': expected true or false, found 1"},
      {R"({"text": "a b", "labels": [[0, 2]], "exact": true,)"
       R"( "source": "'talks', line 3"})",
       "'talks', line 3: expected a token to end at byte 2 of the text, where "
       "a labelled span ends"},
  };
  for (const auto &[line, expected] : wrong) {
    result = dataTool("tokenize " + writeText("wrong.jsonl", line) +
                      " --labels-key=labels -o " + newFolder("wrong-spans") +
                      " --tokenizer=" + gpt2);
    EXPECT_EQ(result.exitCode, 2) << result.output;
    EXPECT_TRUE(has(result, expected)) << result.output;
  }
  // Damaged labels are found.
  std::string labels = readAll(out + "/00000.u16.labels");
  std::swap(labels[0], labels[1]);
  writeText("spans/00000.u16.labels", labels);
  EXPECT_TRUE(has(dataTool("check " + out + "/00000.u16"),
                  "the hash of its labels is not that of its index"));
  labels.pop_back();
  writeText("spans/00000.u16.labels", labels);
  EXPECT_TRUE(has(dataTool("check " + out + "/00000.u16"),
                  "expected a byte for each of"));
}

TEST(GalvatronData, PacksDocumentsIntoSamples) {
  std::string lines;
  std::vector<size_t> lengths = {3, 9, 1, 5, 8, 20};
  for (size_t length : lengths) {
    for (size_t i = 0; i < length; ++i)
      lines += " a";
    lines += "\n";
  }
  std::string plain = newFolder("plain");
  Result result =
      dataTool("tokenize " + writeText("lines.txt", lines) +
               " --documents=line -o " + plain + " --tokenizer=" + gpt2);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  auto pack = [&](const std::string &more) {
    std::string out = newFolder("packed");
    result =
        dataTool("pack " + plain + "/00000.u16 --seq-len=9 --pad-token=2 -o " +
                 out + " " + more);
    return out + "/00000.u16";
  };
  pack("");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result, "found 1 of 6, the longest of 20")) << result.output;

  // Each sample has one document; a document of one token has no label.
  Shard one(pack("--long-documents=drop"));
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "4 samples of 9 tokens, 69.4% full"))
      << result.output;
  EXPECT_EQ(one.ids.size(), 4 * 9 + 1u);
  EXPECT_EQ(one.index.sampleTokens, 9u);
  size_t at = 0;
  for (size_t length : {3, 9, 5, 8})
    for (size_t i = 0; i < 9; ++i, ++at) {
      EXPECT_EQ(one.ids[at] == 2, i >= length) << at;
      EXPECT_EQ(one.labels[at], i > 0 && i < length) << at;
    }
  EXPECT_EQ(one.labels.back(), 0);

  // A long one in pieces, each a document of its own.
  Shard cut(pack("--long-documents=cut"));
  EXPECT_EQ(cut.ids.size(), 7 * 9 + 1u);
  // Two that fit go to one sample: 9 | 9 | 9 | 8 | 5 + 3 | 2.
  Shard fit(pack("--long-documents=cut --documents-per-sample=fit"));
  EXPECT_TRUE(has(result, "--documents=attention --document-length=8"))
      << result.output;
  EXPECT_EQ(fit.ids.size(), 6 * 9 + 1u);
  auto counted = [](const Shard &shard) {
    return std::count(shard.labels.begin(), shard.labels.end(), 1);
  };
  EXPECT_EQ(counted(fit), counted(cut));
  EXPECT_EQ(counted(cut), 2 + 8 + 4 + 7 + 8 + 8 + 1);
  Result again =
      dataTool("pack " + folder() + "/packed/00000.u16 --seq-len=9 -o " +
               newFolder("twice"));
  EXPECT_TRUE(has(again, "is packed already, for samples of 9 tokens"))
      << again.output;
}

/// Bytes with labels, as a shard of samples of 8 tokens for the bigram program.
std::string labelledShard(const std::string &name,
                          const std::vector<bool> &samples) {
  std::string lines;
  for (size_t i = 0; i < samples.size(); ++i)
    lines += R"({"text": "a a a a a a a a", "labels": )" +
             std::string(samples[i] ? "[[1, 15]]" : "[]") + "}\n";
  // A row without labels is made by hand: the tool drops such a document.
  std::string out = newFolder(name);
  std::filesystem::create_directories(out);
  std::string tokens, labels;
  for (bool counts : samples)
    for (int i = 0; i < 8; ++i) {
      tokens += {char('a' + i), '\0'};
      labels += char(counts && i > 0);
    }
  tokens += {'a', '\0'};
  labels += '\0';
  ShardIndex index;
  index.tokens = labels.size();
  index.documents = 1;
  index.largest = 'h';
  index.edgeHash = edgeHashOf(tokens);
  index.labels = {uint64_t(std::count(labels.begin(), labels.end(), 1)),
                  edgeHashOf(labels),
                  {}};
  index.sampleTokens = 8;
  std::string path = out + "/00000.u16";
  writeShardIndex(path + ".index", index, {index.tokens});
  writeText(name + "/00000.u16", tokens);
  writeText(name + "/00000.u16.labels", labels);
  return path;
}

/// The lines of a log of steps.
std::vector<Json> stepsOf(const std::string &log) {
  std::vector<Json> steps;
  std::istringstream lines(readAll(log));
  for (std::string line; std::getline(lines, line);)
    steps.push_back(Json::parse(line));
  return steps;
}

TEST(Labels, ABatchWithoutOneIsPassedOver) {
  // 16 batches of 4 an epoch; one sample in eight has labels, so that many
  // batches have none.
  std::vector<bool> samples(64);
  for (size_t i = 0; i < samples.size(); i += 8)
    samples[i] = true;
  std::string shard = labelledShard("sparse", samples);
  auto run = [&](int ranks, const std::string &more, const std::string &log) {
    return runTool(program(ranks) + " --data=" + shard +
                   " --seed=3 --log=" + folder() + "/" + log + " " + more);
  };
  Result whole = run(1, "--steps=9", "whole.log");
  ASSERT_EQ(whole.exitCode, 0) << whole.output;
  EXPECT_TRUE(has(whole, "of the tokens count as labels")) << whole.output;
  EXPECT_TRUE(has(whole, "no label that counts: passed over")) << whole.output;
  std::vector<Json> steps = stepsOf(folder() + "/whole.log");
  ASSERT_EQ(steps.size(), 9u);
  for (const Json &step : steps) {
    EXPECT_TRUE(step["loss"].is_number());
    EXPECT_GT(step["loss"].get<double>(), 1.0);
    EXPECT_FALSE(step.contains("skipped"));
  }
  // A run that goes on, under another plan, sees the same batches.
  std::string kept = checkpoints("labels");
  Result begun = run(1, "--steps=4 --checkpoint=" + kept, "begun.log");
  ASSERT_EQ(begun.exitCode, 0) << begun.output;
  Result rest = run(2, "--steps=9 --resume --checkpoint=" + kept, "rest.log");
  ASSERT_EQ(rest.exitCode, 0) << rest.output;
  std::vector<Json> others = stepsOf(folder() + "/rest.log");
  ASSERT_EQ(others.size(), 5u);
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_NEAR(others[i]["loss"].get<double>(),
                steps[i + 4]["loss"].get<double>(), 1e-5);
  }
}

TEST(Labels, ValidationCountsThoseThatCount) {
  std::vector<bool> samples(32, true);
  std::fill(samples.begin() + 20, samples.end(), false);
  std::string shard = labelledShard("validated", samples);
  Result result = runTool(program(1) + " --data=" + shard +
                          " --steps=2 --validation-fraction=0.375"
                          " --validate-every=1 --log=" +
                          folder() + "/validated.log");
  // The last 12 samples have no label: their loss is none, and no NaN.
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_FALSE(has(result, "nan")) << result.output;
  // A NaN would be null.
  for (const Json &step : stepsOf(folder() + "/validated.log"))
    EXPECT_TRUE(step["validation-loss"].is_number()) << step;
}

} // namespace
