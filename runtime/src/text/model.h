//===- model.h - From words to tokens ---------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of a tokenizer that knows the vocabulary: byte pair encoding,
// WordPiece, Unigram, whole words. It gets what normalizers and pre-tokenizers
// leave of a text, a word at a time.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_MODEL_H
#define GRT_TEXT_MODEL_H

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace grt::text {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

/// Tokens by their text.
class Vocabulary {
public:
  void add(std::string token, uint32_t id) {
    ids.emplace(std::move(token), id);
  }
  std::optional<uint32_t> find(std::string_view token) const {
    auto found = ids.find(token);
    if (found == ids.end())
      return std::nullopt;
    return found->second;
  }
  size_t size() const { return ids.size(); }
  auto begin() const { return ids.begin(); }
  auto end() const { return ids.end(); }

private:
  std::unordered_map<std::string, uint32_t, StringHash, std::equal_to<>> ids;
};

/// Memory for encoding one word after another, of one thread: buffers, and the
/// tokens of words that were seen before.
class Scratch {
public:
  Scratch();
  /// The tokens of a word seen before, or null.
  const std::vector<uint32_t> *find(std::string_view word) const;
  void remember(std::string_view word, const uint32_t *ids, size_t count);

  /// A part of a word that became a token.
  struct Symbol {
    uint32_t id;
    int32_t previous, next; ///< -1: none
    bool merged;            ///< gone into the one before
  };
  /// Two symbols that may become one.
  struct Candidate {
    uint32_t rank, position, id;
    bool operator<(const Candidate &other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  /// The best way to a byte of a word.
  struct Node {
    double score = 0;
    int64_t begin = -1; ///< of the last token; -1: not reached
    uint32_t id = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Node> nodes;
  std::string text;

private:
  struct Entry {
    std::string word;
    std::vector<uint32_t> ids;
  };
  size_t slotOf(std::string_view word) const;
  std::vector<Entry> entries;
};

class Model {
public:
  virtual ~Model();
  /// Appends the tokens of a word.
  virtual void encode(std::string_view word, std::vector<uint32_t> &ids,
                      Scratch &scratch) const = 0;
  const Vocabulary &vocabulary() const { return tokens; }

protected:
  explicit Model(Vocabulary vocabulary) : tokens(std::move(vocabulary)) {}
  /// The token `<0x0A>` of every byte; empty unless all are there and wanted.
  std::vector<uint32_t> byteTokens(bool wanted) const;

  Vocabulary tokens;
};

/// Byte pair encoding: neighbours become one token, in the order of the merges.
struct BpeOptions {
  std::string unknown, prefix, suffix;
  bool fuseUnknown = false, byteFallback = false, ignoreMerges = false;
  /// Words are bytes.
  bool bytes = false;
  /// Pairs of tokens, the first one first.
  std::vector<std::pair<std::string, std::string>> merges;
};
std::unique_ptr<Model> makeBpe(Vocabulary vocabulary, BpeOptions options);

/// The longest tokens from the left, as BERT has them.
struct WordPieceOptions {
  std::string unknown, prefix;
  uint64_t mostCharacters = 100;
};
std::unique_ptr<Model> makeWordPiece(Vocabulary vocabulary,
                                     WordPieceOptions options);

/// The likeliest tokens, as SentencePiece's Unigram has them.
struct UnigramOptions {
  std::vector<std::pair<std::string, double>> tokens;
  std::optional<uint32_t> unknown;
  bool byteFallback = false;
};
std::unique_ptr<Model> makeUnigram(UnigramOptions options);

/// Whole words.
std::unique_ptr<Model> makeWordLevel(Vocabulary vocabulary,
                                     std::string unknown);

/// The character that stands for a byte where a vocabulary of bytes is written
/// as text (GPT-2's), and back: -1 for others.
char32_t characterOfByte(uint8_t byte);
int byteOfCharacter(char32_t character);
/// The bytes of a token of such a vocabulary; nothing if it has others.
std::optional<std::string> bytesOfCharacters(std::string_view token);

} // namespace grt::text

#endif // GRT_TEXT_MODEL_H
