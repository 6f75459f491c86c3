//===- unigram.cpp - The likeliest tokens ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every token has a logarithm of its probability; the tokens of a word are
// those of the largest sum (Viterbi over the bytes of the word). Kudo 2018.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "text/model.h"
#include "text/unicode.h"

#include <algorithm>

namespace grt::text {
namespace {

/// A trie over bytes, its nodes' children in one hash table.
class Trie {
public:
  void add(std::string_view token, uint32_t id) {
    uint32_t node = 0;
    for (char c : token) {
      auto [it, isNew] =
          children.try_emplace(keyOf(node, c), uint32_t(ids.size()));
      if (isNew)
        ids.push_back(-1);
      node = it->second;
    }
    ids[node] = id;
  }
  /// Calls `found(bytes, id)` for every token that `text` begins with, shortest
  /// first.
  template <typename Found>
  void prefixes(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      auto child = children.find(keyOf(node, text[at]));
      if (child == children.end())
        return;
      node = child->second;
      if (ids[node] >= 0)
        found(at + 1, uint32_t(ids[node]));
    }
  }

private:
  static uint64_t keyOf(uint32_t node, char c) {
    return uint64_t(node) << 8 | static_cast<unsigned char>(c);
  }
  std::unordered_map<uint64_t, uint32_t> children;
  std::vector<int64_t> ids = {-1}; ///< by node; -1: no token
};

Vocabulary vocabularyOf(const UnigramOptions &options) {
  Vocabulary result;
  for (const auto &[token, score] : options.tokens)
    result.add(token, uint32_t(result.size()));
  return result;
}

class Unigram : public Model {
public:
  explicit Unigram(UnigramOptions given)
      : Model(vocabularyOf(given)), unknown(given.unknown),
        byteIds(byteTokens(given.byteFallback)) {
    if (tokens.size() != given.tokens.size())
      invalid("model.vocab: expected every token once");
    double least = 0;
    for (const auto &[token, score] : given.tokens) {
      if (!token.empty())
        trie.add(token, uint32_t(scores.size()));
      least = scores.empty() ? score : std::min(least, score);
      scores.push_back(score);
    }
    // An unknown character is worse than every token (SentencePiece's penalty).
    constexpr double unknownPenalty = 10;
    unknownScore = least - unknownPenalty;
    if (unknown && *unknown >= scores.size())
      invalid("model.unk_id: expected less than " + str(scores.size()) +
              ", found " + str(*unknown));
  }

  void encode(std::string_view word, std::vector<uint32_t> &ids,
              Scratch &scratch) const override {
    if (const std::vector<uint32_t> *known = scratch.find(word)) {
      ids.insert(ids.end(), known->begin(), known->end());
      return;
    }
    search(word, scratch);
    size_t first = ids.size();
    addPath(word, ids, scratch);
    scratch.remember(word, ids.data() + first, ids.size() - first);
  }

private:
  void search(std::string_view word, Scratch &scratch) const {
    std::vector<Scratch::Node> &nodes = scratch.nodes;
    nodes.assign(word.size() + 1, {});
    for (size_t at = 0; at < word.size();) {
      double before = nodes[at].score;
      size_t bytes = codePointBytes(word[at]);
      bool hasSingle = false;
      auto offer = [&](size_t length, uint32_t id, double score) {
        Scratch::Node &node = nodes[at + length];
        if (node.begin < 0 || score > node.score)
          node = {score, int64_t(at), id};
      };
      trie.prefixes(word.substr(at), [&](size_t length, uint32_t id) {
        offer(length, id, scores[id] + before);
        hasSingle |= length == bytes;
      });
      if (!hasSingle) {
        if (!unknown)
          invalid("'" + std::string(word.substr(at, bytes)) +
                  "' is in no token, and the tokenizer has none for what is "
                  "unknown");
        offer(bytes, *unknown, unknownScore + before);
      }
      at += bytes;
    }
  }

  /// Appends the tokens of the best path; unknown neighbours are one.
  void addPath(std::string_view word, std::vector<uint32_t> &ids,
               Scratch &scratch) const {
    size_t first = ids.size();
    size_t end = word.size();
    while (end > 0) {
      const std::vector<Scratch::Node> &nodes = scratch.nodes;
      auto begin = size_t(nodes[end].begin);
      if (unknown && nodes[end].id == *unknown)
        while (begin > 0 && nodes[begin].id == *unknown)
          begin = size_t(nodes[begin].begin);
      std::string_view part = word.substr(begin, end - begin);
      if (std::optional<uint32_t> id = tokens.find(part))
        ids.push_back(*id);
      else if (!byteIds.empty())
        for (size_t i = part.size(); i > 0; --i)
          ids.push_back(byteIds[uint8_t(part[i - 1])]);
      else
        ids.push_back(*unknown);
      end = begin;
    }
    std::reverse(ids.begin() + long(first), ids.end());
  }

  Trie trie;
  std::vector<double> scores;
  std::optional<uint32_t> unknown;
  std::vector<uint32_t> byteIds;
  double unknownScore = 0;
};

} // namespace

std::unique_ptr<Model> makeUnigram(UnigramOptions options) {
  return std::make_unique<Unigram>(std::move(options));
}

} // namespace grt::text
