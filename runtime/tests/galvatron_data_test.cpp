//===- galvatron_data_test.cpp - Text to shards through the tool ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/shard_index.h"
#include "data_tool.h"
#include "grt/tokenizer.h"

#include <cstring>

using namespace grt;
using namespace grt::test;

namespace {

std::vector<std::string> goldenLines() {
  return Json::parse(readAll(TOKENIZERS "/golden.json"))["lines"];
}

std::vector<uint32_t> encode(const std::string &file, std::string_view text) {
  std::unique_ptr<Tokenizer> tokenizer;
  EXPECT_TRUE(Tokenizer::open(file, tokenizer));
  std::vector<uint32_t> ids;
  EXPECT_TRUE(Encoder(*tokenizer).encode(text, false, ids));
  return ids;
}

/// The tokens of all shards of a folder, and where documents end.
struct Shards {
  explicit Shards(const std::string &path) {
    summary = Json::parse(readAll(path + "/shards.json"));
    for (const Json &shard : summary["shards"]) {
      std::string file = path + "/" + shard["file"].get<std::string>();
      std::string bytes = readAll(file);
      std::vector<uint64_t> shardEnds;
      ShardIndex index = readShardIndex(file + ".index", shardEnds);
      EXPECT_EQ(index.tokens, shard["tokens"].get<uint64_t>());
      EXPECT_EQ(index.tokens * index.width, bytes.size());
      for (uint64_t end : shardEnds)
        ends.push_back(ids.size() + end);
      for (size_t at = 0; at < bytes.size(); at += index.width) {
        uint32_t id = 0;
        std::memcpy(&id, bytes.data() + at, index.width);
        ids.push_back(id);
      }
    }
  }
  Json summary;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> ends;
};

TEST(GalvatronData, LinesAreDocuments) {
  std::string text;
  std::vector<uint32_t> expected;
  std::vector<uint64_t> ends;
  for (const std::string &line : goldenLines()) {
    if (line.empty() || line.find_first_of("\n\r") != std::string::npos)
      continue;
    text += line + "\r\n\n";
    for (uint32_t id : encode(gpt2, line))
      expected.push_back(id);
    expected.push_back(0); // <|endoftext|>
    ends.push_back(expected.size());
  }
  std::string out = newFolder("lines");
  Result result = dataTool("tokenize " + writeText("lines.txt", text) +
                           " --tokenizer=" + gpt2 + " -o " + out +
                           " --documents=line --end-token='<|endoftext|>' "
                           "--shard-tokens=500 --threads=3");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  Shards shards(out);
  EXPECT_EQ(shards.ids, expected);
  EXPECT_EQ(shards.ends, ends);
  EXPECT_GT(shards.summary["shards"].size(), 3u);
  EXPECT_EQ(result.output,
            out + ": " + std::to_string(expected.size()) + " tokens of " +
                std::to_string(ends.size()) + " documents in " +
                std::to_string(shards.summary["shards"].size()) + " shards\n");
  EXPECT_EQ(shards.summary["format"], "u16");
  EXPECT_EQ(dataTool("check " + out + "/*.u16").exitCode, 0);
  Result printed =
      dataTool("print " + out + "/00000.u16 --document=1 --tokenizer=" + gpt2);
  EXPECT_EQ(printed.exitCode, 0);
  EXPECT_EQ(printed.output, goldenLines()[1] + "<|endoftext|>");
}

TEST(GalvatronData, OneDocumentIsCutForThreadsAndIsTheSame) {
  std::string text;
  std::vector<std::string> lines = goldenLines();
  for (size_t i = 0; text.size() < (2u << 20); ++i)
    text += lines[i * 7 % lines.size()] + (i % 9 ? "\n" : "<|endoftext|>");
  // More than a unit without a place to cut at.
  text += std::string(3 << 19, 'x') + "\nend";
  std::string file = writeText("document.txt", text);
  std::vector<uint32_t> expected = encode(gpt2, text);
  for (const char *threads : {"1", "3"}) {
    std::string out = newFolder(std::string("document") + threads);
    Result result =
        dataTool("tokenize " + file + " --tokenizer=" + gpt2 +
                 " --format=u32 -o " + out + " --threads=" + threads);
    ASSERT_EQ(result.exitCode, 0) << result.output;
    Shards shards(out);
    EXPECT_TRUE(shards.ids == expected);
    EXPECT_EQ(shards.ends, std::vector<uint64_t>{expected.size()});
  }
}

TEST(GalvatronData, APartThatEndsInAWordIsEncodedWithTheNext) {
  // Three units, and a word that reaches over the end of the first.
  const std::string word(255, 'a'), line = word + "\n";
  std::string text;
  std::vector<uint32_t> expected = {0};
  auto lines = [&](size_t bytes) {
    for (; text.size() + line.size() < bytes;
         expected.insert(expected.end(), {2, 3}))
      text += line;
  };
  constexpr size_t unit = 1 << 20;
  lines(unit);
  // The first place behind the unit that could be its end.
  text += word + "-\n-";
  expected.insert(expected.end(), {2, 4});
  EXPECT_EQ(text.rfind('\n'), unit);
  lines(3 * unit);
  expected.insert(expected.end(), {1, 1});
  Json json = Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true},
                     {"id": 1, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                      "pattern": {"Regex": "-\\n-|a+|\\n"}},
    "post_processor": {"type": "BertProcessing", "cls": ["<s>", 0],
                       "sep": ["</s>", 1]},
    "model": {"type": "WordLevel", "vocab": {"\n": 3, "-\n-": 4}}})");
  json["model"]["vocab"][word] = 2;
  std::string tokenizer = writeText("words.json", json.dump());
  std::string out = newFolder("over");
  Result result = dataTool("tokenize " + writeText("over.txt", text) +
                           " --tokenizer=" + tokenizer + " -o " + out +
                           " --special --end-token='</s>' --threads=2");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  Shards shards(out);
  EXPECT_TRUE(shards.ids == expected);
  EXPECT_EQ(shards.ends, std::vector<uint64_t>{expected.size()});
}

TEST(GalvatronData, TokensHaveTheBytesThatTheVocabularyNeeds) {
  Json json = Json::parse(readAll(gpt2));
  std::string text = writeText("width.txt", "two or four bytes");
  auto tokenize = [&](uint32_t largest, const char *more) {
    json["added_tokens"].push_back({{"id", largest}, {"content", "<last>"}});
    return dataTool("tokenize " + text + more +
                    " --tokenizer=" + writeText("large.json", json.dump()) +
                    " -o " + newFolder("width"));
  };
  for (auto [largest, format] : {std::pair{65535, "u16"}, {65536, "u32"}}) {
    Result result = tokenize(uint32_t(largest), "");
    ASSERT_EQ(result.exitCode, 0) << result.output;
    Shards shards(folder() + "/width");
    EXPECT_EQ(shards.summary["format"], format);
    EXPECT_EQ(shards.ids, encode(gpt2, "two or four bytes"));
  }
  Result narrow = tokenize(65536, " --format=u16");
  EXPECT_EQ(narrow.exitCode, 2);
  EXPECT_TRUE(has(narrow, "--format=u16: expected a vocabulary of at most "
                          "65536 tokens, found 65537"))
      << narrow.output;
}

TEST(GalvatronData, AMarkOfTheByteOrderIsNoText) {
  std::string file = writeText("mark.txt", "\xef\xbb\xbfThe end");
  for (const char *documents : {"file", "line"}) {
    std::string out = newFolder(std::string("mark-") + documents);
    Result result = dataTool("tokenize " + file + " --tokenizer=" + gpt2 +
                             " -o " + out + " --documents=" + documents);
    ASSERT_EQ(result.exitCode, 0) << result.output;
    EXPECT_EQ(Shards(out).ids, encode(gpt2, "The end"));
  }
}

TEST(GalvatronData, JsonLinesHaveTheirTextUnderAKey) {
  std::string out = newFolder("json");
  std::string file =
      writeText("documents.jsonl", "{\"body\": \"first\\nline\"}\n"
                                   "{\"other\": 1, \"body\": \"\"}\n");
  Result result =
      dataTool("tokenize " + file + " --text-key=body --special -o " + out +
               " --tokenizer=" TOKENIZERS "/llama3.json");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  Shards shards(out);
  std::vector<uint32_t> expected = {0};
  for (uint32_t id : encode(TOKENIZERS "/llama3.json", "first\nline"))
    expected.push_back(id);
  expected.push_back(0);
  EXPECT_EQ(shards.ids, expected);
  EXPECT_EQ(shards.ends,
            (std::vector<uint64_t>{expected.size() - 1, expected.size()}));
}

TEST(GalvatronData, WrongInputIsToldWithFileAndPosition) {
  std::string bad = writeText("bad.txt", "good\nbad \xff\n");
  std::string json =
      writeText("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  std::string broken = writeText("broken.jsonl", "{\"text\": \"a\"}\n{\"te\n");
  std::string empty = writeText("empty.txt", "");
  std::string talks = writeText("talks.jsonl", "{\"messages\": []}\n");
  std::string blank = writeText("blank.txt", "\n\n");
  std::string full = folder();
  std::string good = writeText("good.txt", "some text");
  const std::pair<std::string, std::string> cases[] = {
      {bad, "bad.txt', byte 9: expected UTF-8, found 0xff"},
      {json, "bad.jsonl', byte 14: expected an object with a text under the "
             "key 'text'"},
      {broken, "broken.jsonl', byte 14: expected a JSON object a line"},
      {talks, "found 'messages': python3 -m galvatron.chat makes shards of"},
      {empty, "empty.txt' is empty"},
      {blank + " --documents=line", "the text has no tokens"},
      {folder(), "is not a regular file"},
      {folder() + "/none.txt", "cannot open text file"},
      {good + " --end-token='<none>'",
       "--end-token: expected a token of the tokenizer"},
      {good + " --documents=word", "expected file, line or jsonl"},
      {good + " --format=u8", "expected u16 or u32"},
      {good + " --shard-tokens=0", "expected a whole number from 1"},
      {good + " --threads=x", "expected a whole number from 1 to 1024"},
      {good + " --nonsense", "unknown option '--nonsense'; see --help"},
      {good + " --tokeniser=x",
       "unknown option '--tokeniser'; did you mean '--tokenizer'?"},
      {good + " -o " + full, "expected a new folder or an empty one"},
      {good + " -o /dev/null/out", "-o='/dev/null/out': cannot make directory"},
      {good + " --tokenizer=" + good, "byte 0: expected JSON"},
  };
  for (const auto &[arguments, expected] : cases) {
    Result result = dataTool("tokenize --tokenizer=" + gpt2 + " -o " +
                             newFolder("wrong") + "/shards/ " + arguments);
    EXPECT_EQ(result.exitCode, 2) << arguments << "\n" << result.output;
    EXPECT_TRUE(has(result, expected)) << result.output;
    // Nothing stays of folders that were made for shards.
    EXPECT_FALSE(std::filesystem::exists(folder() + "/wrong")) << arguments;
  }
  // A folder that was there does.
  std::string kept = newFolder("kept");
  std::filesystem::create_directory(kept);
  dataTool("tokenize --tokenizer=" + gpt2 + " -o " + kept + " " + bad);
  EXPECT_TRUE(std::filesystem::is_empty(kept));
  const std::pair<std::string, std::string> commands[] = {
      {"", "expected a command: tokenize, pack, check or print"},
      {"eat x",
       "expected a command, tokenize, pack, check or print, found 'eat'"},
      {"tokenize", "tokenize: expected at least one file"},
      {"tokenize " + good, "tokenize: expected --tokenizer=tokenizer.json"},
      {"tokenize --tokenizer=" + gpt2 + " " + good,
       "tokenize: expected a folder for the shards, -o DIR"},
      {"print " + good, "print: expected --tokenizer=tokenizer.json"},
      {"pack " + good, "pack: expected the tokens of a sample, --seq-len=N"},
      {"pack --seq-len=4 " + good,
       "pack: expected a folder for the shards, -o DIR"},
      {"pack --seq-len=1 " + good, "expected a whole number from 2"},
      {"pack --long-documents=no " + good, "expected refuse, drop or cut"},
      {"pack --documents-per-sample=0 " + good,
       "expected fit, or a whole number from 1, found '0'"},
      {"print --tokenizer=" + gpt2 + " " + good + " " + bad,
       "print: expected one shard, found 2"},
  };
  for (const auto &[arguments, expected] : commands) {
    Result result = dataTool(arguments);
    EXPECT_EQ(result.exitCode, 2) << arguments << "\n" << result.output;
    EXPECT_TRUE(has(result, expected)) << result.output;
  }
}

TEST(GalvatronData, DamagedShardsAreFound) {
  std::string out = newFolder("damaged");
  std::string source = writeText("source.txt", "one\ntwo\nthree\n");
  ASSERT_EQ(dataTool("tokenize " + source +
                     " --documents=line --tokenizer=" + gpt2 + " -o " + out)
                .exitCode,
            0);
  std::string shard = out + "/00000.u16", index = shard + ".index";
  std::string tokens = readAll(shard), facts = readAll(index);
  auto with = [&](const std::string &path, const std::string &bytes,
                  const std::string &expected) {
    std::string before = readAll(path);
    std::ofstream(path, std::ios::binary) << bytes;
    Result result = dataTool("check " + shard);
    EXPECT_EQ(result.exitCode, 2) << expected;
    EXPECT_TRUE(has(result, expected)) << result.output;
    std::ofstream(path, std::ios::binary) << before;
  };
  auto changed = [](std::string bytes, size_t at, char to) {
    bytes[at] = to;
    return bytes;
  };
  with(shard, tokens + "xx", "tokens of 2 bytes, found");
  with(shard, tokens + "x", "tokens of 2 bytes, found");
  with(shard, changed(tokens, 1, '\x7f'), "as the largest token, found");
  with(shard, tokens.substr(2) + tokens.substr(0, 2), "its hash is not");
  with(index, "", "expected at least 136 bytes, found 0");
  with(index, facts.substr(0, 200 - 40), "do not fit an index of");
  with(index, changed(facts, 0, 'X'), "which begins with GRTSHARD");
  with(index, changed(facts, 8, 9), "byte 8: expected version 1 or 2, found 9");
  with(index, changed(facts, 12, 3), "expected tokens of 2 or 4 bytes");
  with(index, changed(facts, 24, 9), "byte 24: 9 documents do not fit");
  with(index, changed(facts, 136, 7), "the hash of the index is not");
  Result other =
      dataTool("print " + shard + " --tokenizer=" TOKENIZERS "/llama3.json");
  EXPECT_EQ(other.exitCode, 2);
  EXPECT_TRUE(has(other, "was made by another tokenizer")) << other.output;
  EXPECT_TRUE(
      has(dataTool("print " + shard + " --document=3 --tokenizer=" + gpt2),
          "--document: expected less than 3, found 3"));
  EXPECT_EQ(dataTool("check " + shard).exitCode, 0);
}

} // namespace
