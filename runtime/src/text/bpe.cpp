//===- bpe.cpp - Byte pair encoding ---------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Neighbours are merged by a heap of candidates, as in the package
// `tokenizers`: a candidate that is out of date counts if what now stands in
// its place becomes the same token. Vocabularies of several merges to one token
// (LLaMA 2's) depend on that.
//
// A word may be a whole text (SentencePiece's models have no pre-tokenizer).
// No token reaches over two neighbours that no token of the vocabulary has
// side by side, so that long words fall into short parts there, and parts
// come again.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "text/model.h"
#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace grt::text {
namespace {

/// Pairs of 32-bit numbers to two others. Open addressing: it is asked for
/// every pair of every word.
class PairTable {
public:
  struct Value {
    uint32_t rank = 0, id = 0;
  };

  explicit PairTable(size_t pairs) {
    size_t size = 16;
    while (size < 2 * pairs)
      size *= 2;
    keys.assign(size, none);
    values.resize(size);
  }
  void set(uint32_t left, uint32_t right, Value value) {
    size_t slot = slotOf(left, right);
    keys[slot] = keyOf(left, right);
    values[slot] = value;
  }
  const Value *find(uint32_t left, uint32_t right) const {
    size_t slot = slotOf(left, right);
    return keys[slot] == none ? nullptr : &values[slot];
  }

private:
  static constexpr uint64_t none = ~uint64_t(0);
  static uint64_t keyOf(uint32_t left, uint32_t right) {
    return uint64_t(left) << 32 | right;
  }
  size_t slotOf(uint32_t left, uint32_t right) const {
    uint64_t key = keyOf(left, right);
    // Fibonacci hashing.
    size_t slot = size_t((key * 0x9e3779b97f4a7c15ull) >> 32);
    for (;; ++slot) {
      slot &= keys.size() - 1;
      if (keys[slot] == key || keys[slot] == none)
        return slot;
    }
  }

  std::vector<uint64_t> keys;
  std::vector<Value> values;
};

class Bpe : public Model {
public:
  Bpe(Vocabulary vocabulary, BpeOptions given)
      : Model(std::move(vocabulary)), options(std::move(given)),
        merges(options.merges.size()),
        byteIds(byteTokens(options.byteFallback)) {
    readMerges();
    if (!options.unknown.empty()) {
      unknown = tokens.find(options.unknown);
      if (!unknown)
        invalid("model.unk_token: expected a token of the vocabulary, found '" +
                options.unknown + "'");
    }
    if (options.bytes)
      useBytes();
    if (options.prefix.empty() && options.suffix.empty())
      findNeighbours();
  }

  void encode(std::string_view word, std::vector<uint32_t> &ids,
              Scratch &scratch) const override {
    if (options.ignoreMerges)
      if (std::optional<uint32_t> id = find(word)) {
        ids.push_back(*id);
        return;
      }
    // A word that is short enough to be looked up is not cut.
    constexpr size_t shortWord = 24;
    if (!hasNeighbours || word.size() <= shortWord)
      return encodePart(word, ids, scratch);
    size_t begin = 0;
    for (size_t at = 0; at < word.size();) {
      char32_t left = take(word, at);
      size_t next = at;
      if (at < word.size() && isNeighbour(left, take(word, next)))
        continue;
      encodePart(word.substr(begin, at - begin), ids, scratch);
      begin = at;
    }
  }

private:
  void readMerges() {
    uint32_t rank = 0;
    for (const auto &[left, right] : options.merges) {
      auto expect = [&](const std::string &token) {
        std::optional<uint32_t> id = tokens.find(token);
        if (!id)
          invalid("model.merges[" + str(rank) +
                  "]: expected tokens of the vocabulary, found '" + token +
                  "'");
        return *id;
      };
      if (right.size() < options.prefix.size())
        invalid("model.merges[" + str(rank) + "]: expected '" + right +
                "' to begin with the prefix '" + options.prefix + "'");
      uint32_t leftId = expect(left), rightId = expect(right);
      merges.set(leftId, rightId,
                 {rank, expect(left + right.substr(options.prefix.size()))});
      ++rank;
    }
    options.merges.clear();
    options.merges.shrink_to_fit();
  }

  /// Tokens by the bytes that they stand for.
  void useBytes() {
    firstIds.fill(-1);
    for (const auto &[token, id] : tokens)
      if (std::optional<std::string> bytes = bytesOfCharacters(token)) {
        if (bytes->size() == 1)
          firstIds[uint8_t((*bytes)[0])] = id;
        byBytes.add(std::move(*bytes), id);
      }
  }

  void findNeighbours() {
    hasNeighbours = true;
    if (options.bytes)
      byteNeighbours.resize(size_t(1) << 16);
    for (const auto &[token, id] : options.bytes ? byBytes : tokens)
      for (size_t at = 0; at < token.size();) {
        char32_t left = take(token, at);
        size_t next = at;
        if (at == token.size())
          break;
        char32_t right = take(token, next);
        if (options.bytes)
          byteNeighbours[left << 8 | right] = true;
        else
          neighbours.insert(uint64_t(left) << 32 | right);
      }
  }

  /// True if two neighbours of a word may go into one token.
  bool isNeighbour(char32_t left, char32_t right) const {
    if (options.bytes ? bool(byteNeighbours[left << 8 | right])
                      : neighbours.count(uint64_t(left) << 32 | right) > 0)
      return true;
    if (!byteIds.empty())
      return false;
    // Unknown ones may become one, or vanish from between known ones.
    if (!unknown)
      return !isKnown(left) || !isKnown(right);
    return options.fuseUnknown && !isKnown(left) && !isKnown(right);
  }
  bool isKnown(char32_t c) const {
    if (options.bytes)
      return firstIds[c] >= 0;
    std::string text;
    append(text, c);
    return bool(tokens.find(text));
  }

  char32_t take(std::string_view text, size_t &at) const {
    if (options.bytes)
      return char32_t(static_cast<unsigned char>(text[at++]));
    return takeCodePoint(text, at);
  }

  std::optional<uint32_t> find(std::string_view word) const {
    return (options.bytes ? byBytes : tokens).find(word);
  }

  void encodePart(std::string_view word, std::vector<uint32_t> &ids,
                  Scratch &scratch) const {
    if (const std::vector<uint32_t> *known = scratch.find(word)) {
      ids.insert(ids.end(), known->begin(), known->end());
      return;
    }
    begin(word, scratch);
    merge(scratch);
    size_t first = ids.size();
    for (const Scratch::Symbol &symbol : scratch.symbols)
      if (!symbol.merged)
        ids.push_back(symbol.id);
    scratch.remember(word, ids.data() + first, ids.size() - first);
  }

  /// The symbols of single characters.
  void begin(std::string_view word, Scratch &scratch) const {
    scratch.symbols.clear();
    auto add = [&](uint32_t id) {
      auto at = int32_t(scratch.symbols.size());
      scratch.symbols.push_back({id, at - 1, at + 1, false});
    };
    bool isUnknown = false;
    for (size_t at = 0; at < word.size();) {
      size_t first = at;
      char32_t c = take(word, at);
      std::optional<uint32_t> id;
      if (options.bytes) {
        if (firstIds[c] >= 0)
          id = uint32_t(firstIds[c]);
      } else {
        std::string &text = scratch.text;
        text.assign(first ? options.prefix : "");
        text += word.substr(first, at - first);
        if (at == word.size())
          text += options.suffix;
        id = tokens.find(text);
        if (!id && !byteIds.empty()) {
          for (char byte : text)
            add(byteIds[uint8_t(byte)]);
          isUnknown = false;
          continue;
        }
      }
      if (id)
        add(*id);
      else if (unknown && !(isUnknown && options.fuseUnknown))
        add(*unknown);
      isUnknown = !id;
    }
    if (!scratch.symbols.empty())
      scratch.symbols.back().next = -1;
  }

  void merge(Scratch &scratch) const {
    std::vector<Scratch::Symbol> &symbols = scratch.symbols;
    std::vector<Scratch::Candidate> &heap = scratch.heap;
    heap.clear();
    auto offer = [&](int32_t left, int32_t right) {
      if (const PairTable::Value *value = merges.find(
              symbols[size_t(left)].id, symbols[size_t(right)].id)) {
        heap.push_back({value->rank, uint32_t(left), value->id});
        return true;
      }
      return false;
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      offer(int32_t(i), int32_t(i + 1));
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      Scratch::Candidate best = heap.back();
      heap.pop_back();
      Scratch::Symbol &left = symbols[best.position];
      if (left.merged || left.next < 0)
        continue;
      Scratch::Symbol &right = symbols[size_t(left.next)];
      const PairTable::Value *value = merges.find(left.id, right.id);
      if (!value || value->id != best.id)
        continue;
      left.id = best.id;
      right.merged = true;
      left.next = right.next;
      auto position = int32_t(best.position);
      if (left.next >= 0) {
        symbols[size_t(left.next)].previous = position;
        if (offer(position, left.next))
          std::push_heap(heap.begin(), heap.end());
      }
      if (left.previous >= 0 && offer(left.previous, position))
        std::push_heap(heap.begin(), heap.end());
    }
  }

  BpeOptions options;
  PairTable merges;
  std::vector<uint32_t> byteIds;
  std::optional<uint32_t> unknown;
  Vocabulary byBytes;
  std::array<int64_t, 256> firstIds{}; ///< of single bytes; -1: none
  bool hasNeighbours = false;
  /// Pairs of characters that stand side by side in some token.
  std::unordered_set<uint64_t> neighbours;
  std::vector<bool> byteNeighbours;
};

} // namespace

std::unique_ptr<Model> makeBpe(Vocabulary vocabulary, BpeOptions options) {
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(options));
}

} // namespace grt::text
