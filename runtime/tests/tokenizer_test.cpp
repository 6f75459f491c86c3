//===- tokenizer_test.cpp - Tokens are those of the package `tokenizers` --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// tokenizers/generate.py wrote the tokenizers and what the package makes of
// some lines; tokenizers/compare.py compares many more where the package is.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "grt/tokenizer.h"
#include "text/model.h"
#include "text/pieces.h"
#include "text/pipeline.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

using namespace grt;

namespace {

const char *const kinds[] = {"gpt2",   "llama3", "qwen",
                             "llama2", "bert",   "unigram"};

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

nlohmann::json jsonOf(const std::string &name) {
  return nlohmann::json::parse(readFile(TOKENIZERS "/" + name + ".json"));
}

std::unique_ptr<Tokenizer> tokenizerOf(const nlohmann::json &json) {
  std::unique_ptr<Tokenizer> tokenizer;
  Status status = Tokenizer::parse(json.dump(), "test", tokenizer);
  EXPECT_TRUE(status) << status.message();
  return tokenizer;
}

std::vector<uint32_t> encode(const Tokenizer &tokenizer, std::string_view text,
                             bool special = false) {
  std::vector<uint32_t> ids;
  Status status = Encoder(tokenizer).encode(text, special, ids);
  EXPECT_TRUE(status) << status.message();
  return ids;
}

TEST(Tokenizer, TokensAndTextsAreThoseOfThePackage) {
  nlohmann::json golden = jsonOf("golden");
  std::vector<std::string> lines = golden["lines"];
  for (const char *kind : kinds) {
    SCOPED_TRACE(kind);
    std::unique_ptr<Tokenizer> tokenizer;
    Status status = Tokenizer::open(
        TOKENIZERS "/" + std::string(kind) + ".json", tokenizer);
    ASSERT_TRUE(status) << status.message();
    const nlohmann::json &expected = golden["tokenizers"][kind];
    // One encoder serves all, as its memory of words must not matter.
    Encoder encoder(*tokenizer);
    for (size_t i = 0; i < lines.size(); ++i) {
      std::vector<uint32_t> ids;
      ASSERT_TRUE(encoder.encode(lines[i], false, ids));
      EXPECT_EQ(ids, expected["ids"][i].get<std::vector<uint32_t>>())
          << lines[i];
      EXPECT_EQ(tokenizer->decode(ids, true),
                expected["texts"][i].get<std::string>());
    }
    EXPECT_EQ(encode(*tokenizer, lines[0], true),
              expected["special-ids"].get<std::vector<uint32_t>>());
  }
}

TEST(Tokenizer, PartsAreThoseOfTheWhole) {
  std::vector<std::string> lines = jsonOf("golden")["lines"];
  std::string text;
  for (int i = 0; i < 4; ++i)
    for (const std::string &line : lines)
      text += line + (line.size() % 3 ? "\n" : "<|endoftext|>\n");
  int noParts = 0;
  for (const char *kind : {"gpt2", "llama3"}) {
    SCOPED_TRACE(kind);
    std::unique_ptr<Tokenizer> tokenizer = tokenizerOf(jsonOf(kind));
    ASSERT_TRUE(tokenizer->hasParts());
    Encoder encoder(*tokenizer);
    std::vector<uint32_t> ids;
    int parts = 0;
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      bool ends = false;
      do {
        end = nextCut(text, end + 100);
        Status status = encoder.encodePart(text, begin, end, ids, ends);
        ASSERT_TRUE(status) << status.message();
        noParts += !ends;
      } while (!ends && end < text.size());
      ASSERT_TRUE(ends);
      begin = end;
      ++parts;
    }
    EXPECT_EQ(ids, encode(*tokenizer, text));
    EXPECT_GT(parts, 100);
  }
  EXPECT_GT(noParts, 0);
  // No word ends between two letters, nor inside an added token.
  std::unique_ptr<Tokenizer> tokenizer = tokenizerOf(jsonOf("gpt2"));
  for (std::string_view whole : {"letters", "a <|endoftext|>"}) {
    std::vector<uint32_t> ids;
    bool ends = true;
    ASSERT_TRUE(Encoder(*tokenizer).encodePart(whole, 0, 4, ids, ends));
    EXPECT_FALSE(ends);
    EXPECT_TRUE(ids.empty());
  }
  // A pattern that matches a part of the text only: what is between matches is
  // a word, which ends where one begins.
  nlohmann::json gaps = jsonOf("llama3");
  gaps["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "\\s"}};
  tokenizer = tokenizerOf(gaps);
  ASSERT_TRUE(tokenizer->hasParts());
  for (auto [end, expected] :
       {std::pair{1, false}, {2, true}, {3, true}, {4, false}}) {
    std::vector<uint32_t> ids;
    bool ends = !expected;
    ASSERT_TRUE(
        Encoder(*tokenizer).encodePart("is in", 0, size_t(end), ids, ends));
    EXPECT_EQ(ends, expected) << end;
    EXPECT_EQ(ids, expected
                       ? encode(*tokenizer, std::string("is in", size_t(end)))
                       : std::vector<uint32_t>());
  }
  EXPECT_FALSE(tokenizerOf(jsonOf("bert"))->hasParts());
  EXPECT_FALSE(tokenizerOf(jsonOf("qwen"))->hasParts());
}

TEST(Tokenizer, PreTokenizersMakeTheWordsThatTheyPromise) {
  // A text has the tokens of its words, one behind the other. A character of
  // every category of numbers and of every kind of white space.
  const std::string numbers[] = {"1", "\u0663", "\u2167", "\u00bd", "\u00b2"};
  struct {
    const char *json;
    std::string text;
    std::vector<std::string> words;
  } cases[] = {
      {R"({"type": "WhitespaceSplit"})",
       " ab,\tba\u00a0ab\u3000ba\nab ",
       {"ab,", "ba", "ab", "ba", "ab"}},
      {R"({"type": "Whitespace"})",
       " ab,,ba\u3000ab_1 ",
       {"ab", ",,", "ba", "ab_1"}},
      {R"({"type": "BertPreTokenizer"})", "ab,;ba", {"ab", ",", ";", "ba"}},
      {R"({"type": "Punctuation", "behavior": "Contiguous"})",
       "ab,;ba",
       {"ab", ",;", "ba"}},
      {R"({"type": "CharDelimiterSplit", "delimiter": "+"})",
       "ab+ba,++ab",
       {"ab", "ba,", "ab"}},
      // An empty match where the last one ends is none.
      {R"({"type": "Split", "pattern": {"Regex": "b*"},
           "behavior": "MergedWithNext"})",
       "abbaba",
       {"a", "bba", "ba"}},
  };
  nlohmann::json json = jsonOf("bert");
  json["normalizer"] = nullptr;
  auto expectWords = [&](const std::string &pre, const std::string &text,
                         const std::vector<std::string> &words) {
    SCOPED_TRACE(pre + " of '" + text + "'");
    json["pre_tokenizer"] = nullptr;
    std::unique_ptr<Tokenizer> whole = tokenizerOf(json);
    std::vector<uint32_t> expected;
    for (const std::string &word : words)
      for (uint32_t id : encode(*whole, word))
        expected.push_back(id);
    json["pre_tokenizer"] = nlohmann::json::parse(pre);
    EXPECT_EQ(encode(*tokenizerOf(json), text), expected);
    EXPECT_NE(encode(*whole, text), expected);
  };
  for (const auto &each : cases)
    expectWords(each.json, each.text, each.words);
  for (const std::string &number : numbers) {
    expectWords(R"({"type": "Digits", "individual_digits": true})",
                "ab1" + number + "ba", {"ab", "1", number, "ba"});
    expectWords(R"({"type": "Digits", "individual_digits": false})",
                "ab1" + number + "ba", {"ab", "1" + number, "ba"});
  }
}

TEST(Tokenizer, LongWordsAreCutWhereNoTokenReachesOver) {
  // The same tokens with marks at word ends, which forbid the cut.
  nlohmann::json json = jsonOf("llama2");
  std::unique_ptr<Tokenizer> cut = tokenizerOf(json);
  json["model"]["end_of_word_suffix"] = "</never>";
  std::unique_ptr<Tokenizer> whole = tokenizerOf(json);
  std::vector<std::string> lines = jsonOf("golden")["lines"];
  // An added token would end a word in the middle.
  std::string text;
  for (const std::string &line : lines)
    if (line.find('<') == std::string::npos)
      text += line + "\n";
  std::vector<uint32_t> expected = encode(*whole, text + "\n"),
                        found = encode(*cut, text + "\n");
  // The last character is unknown with its mark.
  ASSERT_GT(found.size(), 1000u);
  found.resize(found.size() - 1);
  expected.resize(found.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], expected[i]) << i << " of " << found.size();
}

/// The smallest table of pairs has 16 places, and one that is free ends the
/// search for a pair that is not there.
TEST(Tokenizer, PairsThatAreNotMergedAreFoundMissing) {
  nlohmann::json json = jsonOf("gpt2");
  nlohmann::json &merges = json["model"]["merges"];
  merges.erase(merges.begin() + 16, merges.end());
  std::unique_ptr<Tokenizer> tokenizer = tokenizerOf(json);
  std::string text = "Quick foxes jump over 13 lazy dogs.";
  std::vector<uint32_t> ids = encode(*tokenizer, text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_GT(ids.size(), text.size() / 2);
}

TEST(Tokenizer, WrongTextIsToldWithItsPosition) {
  std::unique_ptr<Tokenizer> tokenizer = tokenizerOf(jsonOf("gpt2"));
  std::vector<uint32_t> ids;
  Status status = Encoder(*tokenizer).encode("plain \xc3\xa9 \xff", false, ids);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_EQ(status.message(), "byte 9: expected UTF-8, found 0xff");
  // Surrogates and what is longer than it need be.
  for (const char *text :
       {"\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80", "\xe2\x82"})
    EXPECT_FALSE(Encoder(*tokenizer).encode(text, false, ids));
}

TEST(Tokenizer, WrongFilesAreRefusedByName) {
  struct Case {
    const char *kind, *pointer;
    nlohmann::json value;
    const char *expected;
  };
  using json = nlohmann::json;
  const Case cases[] = {
      {"gpt2", "/model/type", "Magic", "model.type: the model 'Magic' is not"},
      {"gpt2", "/model/dropout", 0.1, "model.dropout: merges left out"},
      {"gpt2", "/model/merges/3", "onetoken", "model.merges[3]: expected two"},
      {"gpt2", "/model/merges/3", json::array({"\u0120", "zzzz"}),
       "model.merges[3]: expected tokens of the vocabulary, found 'zzzz'"},
      {"gpt2", "/model/unk_token", "<none>", "expected a token of the vocab"},
      {"gpt2", "/model/byte_fallback", true, "a token for every byte"},
      {"gpt2", "/model/vocab", json::array(), "expected an object, found []"},
      {"gpt2", "/model/vocab/a", -1, "model.vocab['a']: expected a whole"},
      {"gpt2", "/model/vocab/a", 1e9, "expected a whole number of at most"},
      {"gpt2", "/model/other", 1, "model: the key 'other' is not known"},
      {"gpt2", "/pre_tokenizer/type", "UnicodeScripts",
       "pre-tokenizer 'UnicodeScripts' is not implemented"},
      {"gpt2", "/pre_tokenizer/use_regex", 1,
       "expected true or false, found 1"},
      {"gpt2", "/decoder/type", "CTC", "the decoder 'CTC' is not"},
      {"gpt2", "/post_processor/type", "Other", "post-processor 'Other'"},
      {"gpt2", "/normalizer", {{"type", "Odd"}}, "normalizer 'Odd'"},
      {"gpt2",
       "/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}},
       "letter 0: expected base64"},
      {"gpt2",
       "/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
       "expected the length of a double array, the array and texts, found 3 "
       "bytes"},
      {"gpt2",
       "/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "BAAAAAAAAAA="}},
       "normalizer.precompiled_charsmap: expected texts behind the double"},
      {"gpt2", "/pre_tokenizer/use_regex",
       "a text longer than the forty characters that are shown",
       "found \"a text longer than the forty characters.."},
      {"gpt2",
       "/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}},
       "normalizer.pattern: '(', byte 1"},
      {"gpt2", "/added_tokens/0/id", "x", "added_tokens[0].id: expected"},
      {"llama3",
       "/pre_tokenizer/pretokenizers/0/pattern",
       {{"Regex", "[a[b]]"}},
       "a class inside a class is not implemented"},
      {"llama3",
       "/pre_tokenizer/pretokenizers/0/pattern",
       {{"Regex", "[a-z&&[b]]"}},
       "byte 4: an intersection of classes is not implemented"},
      {"llama3", "/pre_tokenizer/pretokenizers/0/behavior", "Gone",
       "expected Removed, Isolated,"},
      {"llama3", "/post_processor/processors/1/single",
       json::array({{{"SpecialToken", {{"id", "<|begin_of_text|>"}}}}}),
       "expected the text A once"},
      {"llama3",
       "/post_processor/processors/1/special_tokens/<|begin_of_text|>",
       {{"ids", json::array({100000})}},
       "token 100000 does not exist"},
      {"bert", "/model/unk_token", "?none?", "expected a token of the vocab"},
      {"unigram", "/model/vocab/5", json::array({"a"}), "found 1 elements"},
      {"unigram", "/model/vocab/5", json::array({"a", "b"}), "a number"},
      {"unigram", "/pre_tokenizer/replacement", "",
       "pre_tokenizer.replacement: expected one character, found \"\""},
      {"unigram", "/pre_tokenizer/replacement", "ab",
       "expected one character, found \"ab\""},
      {"unigram", "/pre_tokenizer/prepend_scheme", "last",
       "expected always, first or never"},
      {"gpt2", "/model/merges/3", json::array({"a", "b", "c"}),
       "model.merges[3]: expected two tokens, found 3"},
      {"gpt2", "/model/merges/3", "a b c",
       "expected two tokens and a space between them, found 'a b c'"},
      {"unigram", "/model/vocab/5", json::array({"a", 1, 2}),
       "model.vocab[5]: expected a token and its score, found 3 elements"},
      {"llama3",
       "/pre_tokenizer/pretokenizers/0/pattern",
       {{"Regex", "ab[\\W]"}},
       "byte 3: \\W inside a class is not implemented"},
      {"bert",
       "/post_processor",
       {{"type", "BertProcessing"},
        {"cls", {"[CLS]", 2}},
        {"sep", json::array({"[SEP]"})}},
       "post_processor.sep: expected a token and its number"},
      {"llama3",
       "/pre_tokenizer/pretokenizers/0/pattern",
       {{"Regex", "[\\h]"}},
       "byte 1: \\h, which means hexadecimal digits, is not implemented"},
  };
  for (const Case &each : cases) {
    nlohmann::json json = jsonOf(each.kind);
    json[nlohmann::json::json_pointer(each.pointer)] = each.value;
    std::unique_ptr<Tokenizer> tokenizer;
    Status status = Tokenizer::parse(json.dump(), "given", tokenizer);
    EXPECT_EQ(status.exitCode(), ExitInvalid) << each.pointer;
    EXPECT_EQ(status.message().find("tokenizer 'given'"), 0u)
        << status.message();
    EXPECT_NE(status.message().find(each.expected), std::string::npos)
        << status.message();
  }
  std::unique_ptr<Tokenizer> tokenizer;
  Status status = Tokenizer::parse("{\"model\": ", "cut", tokenizer);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_EQ(status.message().find("tokenizer 'cut', byte 10: expected JSON"),
            0u)
      << status.message();
  const std::string empty = testing::TempDir() + "empty-tokenizer.json";
  std::ofstream{empty};
  const std::pair<std::string, std::string> paths[] = {
      {"/does/not/exist.json", "cannot read tokenizer '/does/not/exist.json': "
                               "No such file or directory"},
      {"/", "cannot read tokenizer '/': Is a directory"},
      {empty, "tokenizer '" + empty + "', byte 0: expected JSON"}};
  for (const auto &[path, message] : paths) {
    status = Tokenizer::open(path, tokenizer);
    EXPECT_EQ(status.exitCode(), ExitInvalid);
    EXPECT_EQ(status.message().find(message), 0u) << status.message();
  }
}

/// A vocabulary with scores is checked, and a text for which it has no token.
TEST(Tokenizer, UnigramsWithoutUnknownTokens) {
  nlohmann::json json = jsonOf("unigram");
  json["model"]["byte_fallback"] = false;
  std::unique_ptr<Tokenizer> tokenizer;
  auto parsed = [&] {
    return Tokenizer::parse(json.dump(), "given", tokenizer).message();
  };
  const size_t count = json["model"]["vocab"].size();
  json["model"]["unk_id"] = count - 1;
  EXPECT_EQ(parsed(), "");
  json["model"]["unk_id"] = count;
  EXPECT_EQ(parsed(),
            "tokenizer 'given', model: model.unk_id: expected less than " +
                std::to_string(count) + ", found " + std::to_string(count));
  json["model"]["unk_id"] = nullptr;
  EXPECT_EQ(parsed(), "");
  std::vector<uint32_t> ids;
  Status status = Encoder(*tokenizer).encode("a\u4e16", false, ids);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_NE(status.message().find("'\u4e16' is in no token, and the tokenizer "
                                  "has none for what is unknown"),
            std::string::npos)
      << status.message();
  json["model"]["vocab"][5] = json["model"]["vocab"][4];
  EXPECT_EQ(parsed(),
            "tokenizer 'given', model: model.vocab: expected every token once");
}

/// A key that is not known may change what a part does.
TEST(Tokenizer, EveryPartRefusesKeysThatItDoesNotKnow) {
  const std::pair<const char *, const char *> parts[] = {
      {"normalizer", R"({"type": "Sequence", "normalizers": []})"},
      {"normalizer", R"({"type": "NFC"})"},
      {"normalizer", R"({"type": "Lowercase"})"},
      {"normalizer", R"({"type": "StripAccents"})"},
      {"normalizer",
       R"({"type": "Strip", "strip_left": true, "strip_right": true})"},
      {"normalizer", R"({"type": "Prepend", "prepend": "x"})"},
      {"normalizer",
       R"({"type": "Replace", "pattern": {"String": "a"}, "content": "b"})"},
      {"normalizer", R"({"type": "Nmt"})"},
      {"normalizer", R"({"type": "ByteLevel"})"},
      {"normalizer", R"({"type": "BertNormalizer"})"},
      {"pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})"},
      {"pre_tokenizer", R"({"type": "ByteLevel"})"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"},
                            "behavior": "Isolated"})"},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "_"})"},
      {"pre_tokenizer", R"({"type": "Whitespace"})"},
      {"pre_tokenizer", R"({"type": "WhitespaceSplit"})"},
      {"pre_tokenizer", R"({"type": "BertPreTokenizer"})"},
      {"pre_tokenizer", R"({"type": "Punctuation"})"},
      {"pre_tokenizer", R"({"type": "Digits"})"},
      {"pre_tokenizer", R"({"type": "CharDelimiterSplit", "delimiter": "+"})"},
      {"model", R"({"type": "WordLevel", "vocab": {"a": 0}})"},
      {"model", R"({"type": "WordPiece", "vocab": {"[UNK]": 0}})"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": []})"},
      {"model", R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 0})"},
  };
  for (const auto &[where, part] : parts) {
    nlohmann::json json = {
        {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}}}};
    json[where] = nlohmann::json::parse(part);
    std::unique_ptr<Tokenizer> tokenizer;
    Status status = Tokenizer::parse(json.dump(), "given", tokenizer);
    EXPECT_TRUE(status) << part << ": " << status.message();
    json[where]["other"] = true;
    status = Tokenizer::parse(json.dump(), "given", tokenizer);
    EXPECT_EQ(status.exitCode(), ExitInvalid) << part;
    EXPECT_NE(status.message().find(std::string(where) +
                                    ": the key 'other' is not known"),
              std::string::npos)
        << part << ": " << status.message();
  }
}

/// A tokenizer whose vocabulary is `tokens`, which are whole words.
std::unique_ptr<Tokenizer> wordLevel(const std::vector<std::string> &tokens,
                                     const nlohmann::json &more = {}) {
  nlohmann::json json = {
      {"model", {{"type", "WordLevel"}, {"vocab", nlohmann::json::object()}}}};
  for (size_t i = 0; i < tokens.size(); ++i)
    json["model"]["vocab"][tokens[i]] = i;
  json.update(more, true);
  return tokenizerOf(json);
}

TEST(Tokenizer, WordsThatAreNotKnownAreTheUnknownToken) {
  const nlohmann::json cut = {{"pre_tokenizer", {{"type", "Whitespace"}}}};
  std::unique_ptr<Tokenizer> tokenizer = wordLevel({"a", "<unk>", "b"}, cut);
  EXPECT_EQ(encode(*tokenizer, "b ab a"), (std::vector<uint32_t>{2, 1, 0}));
  std::vector<uint32_t> ids;
  Status status =
      Encoder(*wordLevel({"a", "b"}, cut)).encode("b ab", false, ids);
  EXPECT_EQ(status.exitCode(), ExitInvalid);
  EXPECT_EQ(status.message(), "'ab' is not in the vocabulary, nor is the token "
                              "'<unk>' for what is not");
}

/// A character that no token has is the unknown token, one for a run of them if
/// they are fused; where there is no such token it vanishes.
TEST(Tokenizer, CharactersThatMergesDoNotKnowAreTheUnknownToken) {
  nlohmann::json json = {
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}}},
        {"merges", {"a b"}}}}};
  using Ids = std::vector<uint32_t>;
  // A word that is long is cut where no token reaches over.
  const std::string shortWord = "axxb", longWord = "a" + std::string(30, 'x');
  EXPECT_EQ(encode(*tokenizerOf(json), shortWord + "ab"), (Ids{2, 2}));
  EXPECT_EQ(encode(*tokenizerOf(json), longWord + "b"), Ids{2});
  json["model"]["unk_token"] = "<unk>";
  Ids each = {0};
  each.insert(each.end(), 30, 3);
  EXPECT_EQ(encode(*tokenizerOf(json), shortWord + "ab"), (Ids{0, 3, 3, 1, 2}));
  EXPECT_EQ(encode(*tokenizerOf(json), longWord), each);
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(encode(*tokenizerOf(json), shortWord + "xab"),
            (Ids{0, 3, 1, 3, 2}));
  EXPECT_EQ(encode(*tokenizerOf(json), longWord + "b"), (Ids{0, 3, 1}));
}

/// Inside a word the tokens have a mark in front, at its end one behind.
TEST(Tokenizer, MergesKnowTheMarksInsideWordsAndAtTheirEnds) {
  nlohmann::json json = {
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"##b", 1}, {"##c", 2}, {"ab", 3}, {"b", 4}}},
        {"merges", {"a ##b"}},
        {"continuing_subword_prefix", "##"}}}};
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(encode(*tokenizerOf(json), "abcb b"), (Ids{3, 2, 1, 4}));
  json["model"] = {{"type", "BPE"},
                   {"vocab", {{"a", 0}, {"b", 1}, {"b</w>", 2}, {"ab</w>", 3}}},
                   {"merges", {"a b</w>"}},
                   {"end_of_word_suffix", "</w>"}};
  EXPECT_EQ(encode(*tokenizerOf(json), "ab bab b"), (Ids{3, 1, 3, 2}));
}

TEST(Tokenizer, TextsOfBertAndRobertaHaveTheirEnds) {
  nlohmann::json json = jsonOf("bert");
  for (const char *type : {"BertProcessing", "RobertaProcessing"}) {
    json["post_processor"] = {
        {"type", type}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]", 3}}};
    std::vector<uint32_t> ids = encode(*tokenizerOf(json), "ab", true);
    ASSERT_GT(ids.size(), 2u);
    EXPECT_EQ(ids.front(), 2u);
    EXPECT_EQ(ids.back(), 3u);
  }
}

TEST(Tokenizer, DecodersMakeTheTextsOfThePackage) {
  struct {
    const char *decoder;
    std::vector<std::string> tokens;
    const char *expected;
  } cases[] = {
      {R"({"type": "BPEDecoder"})",
       {"he", "llo</w>", "wor</w>ld", "!</w>"},
       "hello wor ld!"},
      {R"({"type": "BPEDecoder", "suffix": "@"})", {"a@", "b@"}, "a b"},
      {R"({"type": "WordPiece"})",
       {"do", "not", "##e", "n't", "##", ",", "'", "s"},
       "do noten't, ' s"},
      {R"({"type": "WordPiece", "prefix": "@@", "cleanup": false})",
       {"a", "@@b", "c", "."},
       "ab c ."},
      {R"({"type": "Strip", "content": "x", "start": 1, "stop": 2})",
       {"xxaxxx", "bcd", "xxyy", "ayx"},
       "xaxbcdxyyay"},
      {R"({"type": "Replace", "pattern": {"Regex": "b*"}, "content": "-"})",
       {"abc", "c\u00e9"},
       "-a-c--c-\u00e9-"},
      {R"({"type": "Replace", "pattern": {"String": "b"}, "content": "-"})",
       {"abcb"},
       "a-c-"},
      {R"({"type": "Replace", "pattern": {"String": ""}, "content": "-"})",
       {"ab", "\u00e9"},
       "-a-b--\u00e9-"},
      {R"({"type": "Metaspace", "replacement": "\u2581"})",
       {"\u2581a\u2581b", "\u2581c"},
       "ab c"},
      {R"({"type": "Metaspace", "replacement": "\u2581",
           "prepend_scheme": "never"})",
       {"\u2581a\u2581b", "\u2581c"},
       " a b c"},
      {R"({"type": "ByteFallback"})",
       {"<0xE2>", "<0x82>", "<0xaC>", "a", "<0xFF>", "<0x41>", "<0x4>"},
       "\u20aca\ufffd\ufffd<0x4>"},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.decoder);
    std::unique_ptr<Tokenizer> tokenizer = wordLevel(
        each.tokens, {{"decoder", nlohmann::json::parse(each.decoder)}});
    std::vector<uint32_t> ids(each.tokens.size());
    std::iota(ids.begin(), ids.end(), 0);
    EXPECT_EQ(tokenizer->decode(ids, false), each.expected);
  }
}

/// Unicode's practice: what begins a sequence and breaks off is replaced as a
/// whole, every other byte by itself.
TEST(Text, WrongBytesAreReplacedAsUnicodeRecommends) {
  const std::pair<const char *, size_t> cases[] = {{"\xf4\x8f\xbf", 1},
                                                   {"\xf4\x90\xbf\xbf", 4},
                                                   {"\xf0\x90\x8d", 1},
                                                   {"\xf0\x8f\xbf", 3},
                                                   {"\xe0\xa0", 1},
                                                   {"\xe0\x9f\x80", 3},
                                                   {"\xed\x9f", 1},
                                                   {"\xed\xa0\x80", 3},
                                                   {"\xf5\x80\x80\x80", 4},
                                                   {"\xe2\x82", 1},
                                                   {"\xf0\x9f\x98", 1},
                                                   {"\xc3", 1},
                                                   {"\xff", 1},
                                                   {"\xf4", 1},
                                                   {"\xf3\xbf\xbf", 1},
                                                   {"\xef\xbf", 1},
                                                   {"\xc1\x80", 2},
                                                   {"\xc2\xc2\xdf", 3},
                                                   {"\xe1\x80\xe1\xbf", 2}};
  text::Decoder decode = text::makeByteLevelDecoder();
  for (const auto &[bytes, count] : cases) {
    std::vector<std::string> tokens = {
        text::makeByteCharacters()(std::string(bytes) + "!")};
    decode(tokens);
    std::string expected;
    for (size_t i = 0; i < count; ++i)
      expected += "\ufffd";
    EXPECT_EQ(tokens, std::vector<std::string>{expected + "!"});
  }
}

TEST(Text, PatternsAreReplacedOncePerPlace) {
  text::Normalizer replace = text::makeRegexReplace("x*", "-");
  EXPECT_EQ(replace("a\u00e9xb"), "-a-\u00e9-b-");
  EXPECT_EQ(replace("x"), "-");
  EXPECT_EQ(replace(""), "");
}

/// The empty text stands before every character and at the end, as in the
/// package `tokenizers`.
TEST(Text, AnEmptyPatternIsFoundBeforeEveryCharacter) {
  text::Normalizer replace = text::makeReplace("", "-");
  EXPECT_EQ(replace("a b\u00e9"), "-a- -b-\u00e9-");
  EXPECT_EQ(replace(""), "");
  // The test draws 200 texts.
  std::mt19937 random(5);
  for (int draw = 0; draw < 200; ++draw) {
    const char *characters[] = {"a", " ", "\u00e9", "\u4e16", "\U0001f600"};
    std::string text, expected = "-";
    for (size_t i = 0, count = 1 + random() % 9; i < count; ++i) {
      const char *character = characters[random() % 5];
      text += character;
      expected += character + std::string("-");
    }
    EXPECT_EQ(replace(text), expected);
  }
  for (text::Separator separator :
       {text::Separator::Removed, text::Separator::Isolated,
        text::Separator::MergedWithPrevious, text::Separator::MergedWithNext,
        text::Separator::Contiguous})
    for (bool invert : {false, true}) {
      text::Pieces pieces;
      text::makeLiteralSplit("", separator, invert)
          ->split({"a b\u00e9"}, pieces);
      std::vector<std::string> found;
      for (const text::Piece &piece : pieces.list)
        found.emplace_back(piece.text);
      std::vector<std::string> expected{"a", " ", "b", "\u00e9"};
      if (separator == text::Separator::Removed && invert)
        expected.clear();
      EXPECT_EQ(found, expected) << int(separator) << invert;
    }
}

TEST(Text, StripTakesWhiteSpaceFromTheEndsThatItIsTold) {
  const std::string text = " \u3000\ta \u00a0b\n\u2003";
  const std::string left = "a \u00a0b\n\u2003", right = " \u3000\ta \u00a0b";
  EXPECT_EQ(text::makeStrip(false, false)(text), text);
  EXPECT_EQ(text::makeStrip(true, false)(text), left);
  EXPECT_EQ(text::makeStrip(false, true)(text), right);
  EXPECT_EQ(text::makeStrip(true, true)(text), "a \u00a0b");
  EXPECT_EQ(text::makeStrip(true, false)("\u3000 "), "");
  EXPECT_EQ(text::makeStrip(false, true)("\u3000 "), "");
}

/// The characters that the package drops and those that it makes spaces.
TEST(Text, NmtDropsControlsAndMakesSpaces) {
  using Ranges = std::vector<std::pair<char32_t, char32_t>>;
  const Ranges dropped = {{0x1, 0x8},   {0xb, 0xb},   {0xe, 0x1f},
                          {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}};
  const Ranges spaces = {{0x9, 0xa},       {0xc, 0xd},       {0x1680, 0x1680},
                         {0x200b, 0x200f}, {0x2028, 0x2029}, {0x2581, 0x2581},
                         {0xfeff, 0xfeff}, {0xfffd, 0xfffd}};
  auto isIn = [](const Ranges &ranges, char32_t c) {
    return std::any_of(ranges.begin(), ranges.end(), [c](const auto &range) {
      return c >= range.first && c <= range.second;
    });
  };
  text::Normalizer nmt = text::makeNmt();
  for (char32_t c = 0; c <= 0x10000; ++c) {
    if (c == 0xd800)
      c = 0xe000; // surrogates are no characters
    std::string given = "x", expected = "x";
    text::append(given, c);
    if (!isIn(dropped, c))
      text::append(expected, isIn(spaces, c) ? U' ' : c);
    ASSERT_EQ(nmt(given), expected) << std::hex << uint32_t(c);
  }
}

TEST(Text, PatternsAreThoseOfOniguruma) {
  using text::Regex;
  EXPECT_EQ(Regex::translated("a[^]x]\\S"),
            "a[^]x]" + Regex::translated("[^\\s]"));
  // U+180E is white space to PCRE2, and was to Unicode before version 6.3.
  Regex space("\\s+");
  Regex::Search search(space, "a\u180eb\u3000c");
  Regex::Match match;
  ASSERT_TRUE(search.next(0, match));
  EXPECT_EQ(match.begin, 5u);
  EXPECT_EQ(match.end, 8u);
  EXPECT_FALSE(search.next(match.end, match));
  // A mark and a number of letters are parts of words, a number above a line is
  // none to Unicode and is one to Oniguruma; a fraction of Tamil's is none.
  for (const char *pattern : {"\\w+", "[\\w]+"}) {
    std::vector<std::string> words;
    std::string text = "a\u0301b\u2167 -_9\u00b2+\u0bf0";
    Regex(pattern).forEachMatch(text, [&](Regex::Match match) {
      words.push_back(text.substr(match.begin, match.end - match.begin));
    });
    EXPECT_EQ(words, (std::vector<std::string>{"a\u0301b\u2167", "_9\u00b2"}))
        << pattern;
  }
  EXPECT_EQ(Regex::translated("\\W"),
            "[^" + Regex::translated("\\w").substr(1));
  // A script is that of the character itself: the comma U+3001 is of none,
  // though Han text has it. Other properties keep their names.
  Regex han("\\p{Han}+");
  ASSERT_TRUE(Regex::Search(han, "\u3001\u4e00\u3001").next(0, match));
  EXPECT_EQ(match.begin, 3u);
  EXPECT_EQ(match.end, 6u);
  for (auto [pattern, expected] :
       {std::pair{"\\p{Han}", "\\p{sc:Han}"},
        {"\\P{Greek}", "\\P{sc:Greek}"},
        {"[\\p{^Han}]", "[\\p{^sc:Han}]"},
        {"\\p{Lu}", "\\p{Lu}"},
        {"\\p{Alphabetic}", "\\p{Alphabetic}"},
        // A class of POSIX's inside a class is itself.
        {"x[^[:alpha:]y[:^digit:]]z[[:", "x[^[:alpha:]y[:^digit:]]z[[:"},
        {"[x[:alpha:]\\d]", "[x[:alpha:]\\d]"}})
    EXPECT_EQ(Regex::translated(pattern), expected);
  // A pattern that calls itself without an end cannot be matched.
  try {
    Regex::Search(Regex("(?R)"), "ab").next(1, match);
    FAIL() << "it was matched";
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), ExitInvalid);
    EXPECT_EQ(std::string(error.what())
                  .find("byte 1: the tokenizer's pattern cannot be matched: "),
              0u)
        << error.what();
  }
  // More than the stack of machine code holds is left to the interpreter.
  std::string deep(100000, 'a');
  Regex nested("(?:a|(b)|(?:c|d))*");
  ASSERT_TRUE(Regex::Search(nested, deep).next(0, match));
  EXPECT_EQ(match.end, deep.size());
  // Classes that PCRE2 cannot express as Oniguruma means them are refused.
  for (const char *pattern : {"[a\\S]", "[\\W]", "\\h", "[\\H]"})
    EXPECT_THROW(Regex::translated(pattern), Error) << pattern;
  EXPECT_TRUE(Regex("(?<=a)b").looksBehind());
  EXPECT_FALSE(Regex("\\s+(?!\\S)").looksBehind());
}

TEST(Text, EveryByteHasItsCharacter) {
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(text::byteOfCharacter(text::characterOfByte(uint8_t(byte))),
              byte);
  EXPECT_EQ(text::characterOfByte(' '), 0x120u);
  EXPECT_EQ(text::bytesOfCharacters("\u0120a"), " a");
  EXPECT_EQ(text::bytesOfCharacters("\u2581"), std::nullopt);
}

/// A double array that replaces `key` alone, by "bc".
std::string precompiledTable(const std::string &key) {
  // The root's offset leads to the unit of the first byte, that one's to the
  // next, and the last one's to the value. Every node has 256 units.
  std::vector<uint32_t> units(256 * (key.size() + 2));
  size_t at = 0;
  units[0] = 256u << 10;
  for (size_t i = 0; i <= key.size(); ++i) {
    at ^= units[at] >> 10;
    if (i == key.size())
      break;
    auto byte = static_cast<unsigned char>(key[i]);
    at ^= byte;
    size_t next = 256 * (i + 2);
    units[at] = uint32_t(at ^ next) << 10 | byte;
    if (i + 1 == key.size())
      units[at] |= 1u << 8; // a leaf
  }
  units[at] = 1u << 31 | 1; // text 1
  std::string bytes;
  auto add = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i)
      bytes += char(value >> (8 * i) & 0xff);
  };
  add(uint32_t(units.size() * 4));
  for (uint32_t unit : units)
    add(unit);
  return bytes + std::string("\0bc\0", 4);
}

TEST(Text, PrecompiledTablesReplaceWhatTheyHave) {
  text::Normalizer normalizer = text::makePrecompiled(precompiledTable("a"));
  EXPECT_EQ(normalizer("xay\u00e9"), "xbcy\u00e9");
  // A short cluster is replaced as a whole, as SentencePiece does it.
  EXPECT_EQ(normalizer("a\u0301"), "bc");
  // A cluster is short below six bytes; of a longer one every code point is
  // replaced for itself.
  for (std::string cluster : {"a\u0301", "\u1eb9\u0301"}) {
    EXPECT_LT(cluster.size(), 6u);
    EXPECT_EQ(text::makePrecompiled(precompiledTable(cluster))(cluster), "bc");
  }
  for (std::string cluster : {"\uff76\uff9e", "a\u0301\u0301\u0301"}) {
    EXPECT_GE(cluster.size(), 6u);
    EXPECT_EQ(text::makePrecompiled(precompiledTable(cluster))(cluster),
              cluster);
  }
  // Entries that lead out of the table, or to no text, replace nothing.
  const size_t unitOfA = 256 ^ 'a', value = 512;
  for (auto [unit, wrong] : {std::pair{size_t(0), 5000u << 10},
                             {unitOfA, 5000u << 10 | 1u << 8 | 'a'},
                             {value, 1u << 31 | 4},
                             {value, 0u}}) {
    std::string table = precompiledTable("a");
    std::memcpy(table.data() + 4 * (unit + 1), &wrong, sizeof(wrong));
    EXPECT_EQ(text::makePrecompiled(table)("xay"), "xay") << unit;
  }
  // The texts behind the array, of which the last one ends.
  auto refusal = [](const std::string &table) -> std::string {
    try {
      text::makePrecompiled(table);
      return "";
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), ExitInvalid);
      return error.what();
    }
  };
  const std::string found = "expected the length of a "
                            "double array, the array and texts, found ";
  EXPECT_EQ(refusal(std::string("\4\0\0\0\0\0\0\0", 8)),
            "expected texts behind the double array");
  EXPECT_EQ(refusal(std::string("\4\0\0\0\0\0\0\0\0", 9)), "");
  EXPECT_EQ(refusal(std::string("\4\0\0\0\0\0\0", 7)), found + "7 bytes");
  EXPECT_EQ(refusal(std::string("\3\0\0\0\0\0\0\0", 8)), found + "8 bytes");
  EXPECT_EQ(refusal(std::string(8, '\0')), found + "8 bytes");
  EXPECT_EQ(refusal(std::string("\4\0\0\0\0\0\0\0x", 9)), found + "9 bytes");
  EXPECT_EQ(refusal(""), found + "0 bytes");
  normalizer = text::makePrecompiled(precompiledTable("\uff76"));
  EXPECT_EQ(normalizer("\uff76\uff9e"), "bc\uff9e");
}

} // namespace
