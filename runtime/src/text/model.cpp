//===- model.cpp - From words to tokens: what models share ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/model.h"
#include "base/error.h"
#include "text/unicode.h"

#include <array>
#include <cstdio>

namespace grt::text {

/// Words that are kept, a power of two: a text's frequent ones, in 8 MiB.
static constexpr size_t cachedWords = size_t(1) << 16;
/// Longer words do not come again.
static constexpr size_t longestCached = 64;

Scratch::Scratch() : entries(cachedWords) {}

size_t Scratch::slotOf(std::string_view word) const {
  return StringHash()(word) & (cachedWords - 1);
}

const std::vector<uint32_t> *Scratch::find(std::string_view word) const {
  const Entry &entry = entries[slotOf(word)];
  return entry.word == word ? &entry.ids : nullptr;
}

void Scratch::remember(std::string_view word, const uint32_t *ids,
                       size_t count) {
  if (word.size() > longestCached)
    return;
  Entry &entry = entries[slotOf(word)];
  entry.word = word;
  entry.ids.assign(ids, ids + count);
}

Model::~Model() = default;

std::vector<uint32_t> Model::byteTokens(bool wanted) const {
  std::vector<uint32_t> result;
  for (int byte = 0; wanted && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", unsigned(byte));
    std::optional<uint32_t> id = tokens.find(name);
    if (!id)
      invalid(std::string("model.byte_fallback: expected a token for every ") +
              "byte, found none of '" + name + "'");
    result.push_back(*id);
  }
  return result;
}

namespace {

/// GPT-2's table: what prints stands for itself, the other bytes for the
/// characters from 256 on.
struct ByteTable {
  ByteTable() {
    byteOf.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      bool prints = (byte >= '!' && byte <= '~') ||
                    (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      characterOf[byte] = prints ? char32_t(byte) : next++;
      byteOf[characterOf[byte]] = int(byte);
    }
  }
  std::array<char32_t, 256> characterOf{};
  std::array<int, 512> byteOf{};
};
const ByteTable byteTable;

class WordLevel : public Model {
public:
  WordLevel(Vocabulary vocabulary, std::string unknown)
      : Model(std::move(vocabulary)), unknownText(std::move(unknown)),
        unknown(tokens.find(unknownText)) {}

  void encode(std::string_view word, std::vector<uint32_t> &ids,
              Scratch &) const override {
    std::optional<uint32_t> id = tokens.find(word);
    if (!id)
      id = unknown;
    if (!id)
      invalid("'" + std::string(word) + "' is not in the vocabulary, nor is " +
              "the token '" + unknownText + "' for what is not");
    ids.push_back(*id);
  }

private:
  std::string unknownText;
  std::optional<uint32_t> unknown;
};

class WordPiece : public Model {
public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions given)
      : Model(std::move(vocabulary)), options(std::move(given)) {
    std::optional<uint32_t> id = tokens.find(options.unknown);
    if (!id)
      invalid("model.unk_token: expected a token of the vocabulary, found '" +
              options.unknown + "'");
    unknown = *id;
    for (const auto &[token, id] : tokens)
      longest = std::max(longest, token.size());
  }

  void encode(std::string_view word, std::vector<uint32_t> &ids,
              Scratch &scratch) const override {
    if (const std::vector<uint32_t> *known = scratch.find(word)) {
      ids.insert(ids.end(), known->begin(), known->end());
      return;
    }
    size_t first = ids.size();
    if (!cut(word, ids, scratch)) {
      ids.resize(first);
      ids.push_back(unknown);
    }
    scratch.remember(word, &ids[first], ids.size() - first);
  }

private:
  /// False if some part of the word is in no token.
  bool cut(std::string_view word, std::vector<uint32_t> &ids,
           Scratch &scratch) const {
    uint64_t characters = 0;
    for (char c : word)
      characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    if (characters > options.mostCharacters)
      return false;
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.size();
      std::optional<uint32_t> id;
      // A text that is longer than every token is none.
      size_t prefix = begin ? options.prefix.size() : 0;
      for (; end > begin; end = codePointBefore(word, end)) {
        if (end - begin + prefix > longest)
          continue;
        scratch.text.assign(begin ? options.prefix : "");
        scratch.text += word.substr(begin, end - begin);
        if ((id = tokens.find(scratch.text)))
          break;
      }
      if (!id)
        return false;
      ids.push_back(*id);
      begin = end;
    }
    return true;
  }

  WordPieceOptions options;
  uint32_t unknown = 0;
  size_t longest = 0; ///< bytes of a token
};

} // namespace

std::unique_ptr<Model> makeWordPiece(Vocabulary vocabulary,
                                     WordPieceOptions options) {
  return std::make_unique<WordPiece>(std::move(vocabulary), std::move(options));
}

std::unique_ptr<Model> makeWordLevel(Vocabulary vocabulary,
                                     std::string unknown) {
  return std::make_unique<WordLevel>(std::move(vocabulary), std::move(unknown));
}

char32_t characterOfByte(uint8_t byte) { return byteTable.characterOf[byte]; }

int byteOfCharacter(char32_t character) {
  return character < byteTable.byteOf.size() ? byteTable.byteOf[character] : -1;
}

std::optional<std::string> bytesOfCharacters(std::string_view token) {
  std::string result;
  for (size_t at = 0; at < token.size();) {
    int byte = byteOfCharacter(takeCodePoint(token, at));
    if (byte < 0)
      return std::nullopt;
    result += char(byte);
  }
  return result;
}

} // namespace grt::text
