//===- pieces.h - Normalizers, pre-tokenizers, decoders ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of a tokenizer before its model: normalizers rewrite a text,
// pre-tokenizers cut it into words. Each is one small object; a tokenizer has
// lists of them.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_PIECES_H
#define GRT_TEXT_PIECES_H

#include "text/regex.h"
#include "text/unicode.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt::text {

/// Rewrites a text.
using Normalizer = std::function<std::string(std::string_view text)>;

Normalizer makeNormalForm(NormalForm form);
Normalizer makeLowercase();
Normalizer makeStrip(bool left, bool right);
Normalizer makeStripAccents();
Normalizer makePrepend(std::string prefix);
Normalizer makeReplace(std::string literal, std::string content);
Normalizer makeRegexReplace(std::string pattern, std::string content);
/// SentencePiece's cleaning of controls and odd spaces for translation.
Normalizer makeNmt();
/// Bytes as the characters of a byte-level vocabulary.
Normalizer makeByteCharacters();
struct BertNormalizerOptions {
  bool cleanText = true, spaceIdeographs = true, stripAccents = true,
       lowercase = true;
};
Normalizer makeBertNormalizer(BertNormalizerOptions options);
/// SentencePiece's table of replacements, as it stands in its models. Throws
/// if it is none.
Normalizer makePrecompiled(std::string table);

/// A part of a text that no step has divided further so far.
struct Piece {
  std::string_view text;
  /// True if it is at the beginning of the whole text.
  bool isFirst = false;
};

/// Pieces; the texts of those that are no part of the whole text are owned by a
/// list that several may share.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> *texts = nullptr;

  std::string_view own(std::string text) {
    return texts->emplace_back(std::move(text));
  }
};

/// Treatment of the text that separates pieces.
enum class Separator {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous
};
/// The separator of this name in tokenizer.json.
std::optional<Separator> separatorOf(std::string_view name);

/// Cuts pieces into smaller ones.
class PreTokenizer {
public:
  virtual ~PreTokenizer();
  /// Appends the parts of a piece to `pieces`.
  virtual void split(Piece piece, Pieces &pieces) const = 0;
  /// The pattern whose matches, and what is between them, are the pieces; null
  /// if they are others.
  virtual const Regex *pattern() const { return nullptr; }
};

std::unique_ptr<PreTokenizer> makeRegexSplit(const std::string &pattern,
                                             Separator separator, bool invert);
std::unique_ptr<PreTokenizer>
makeLiteralSplit(std::string literal, Separator separator, bool invert);
std::unique_ptr<PreTokenizer>
makeCharacterSplit(std::function<bool(char32_t)> separates,
                   Separator separator);
/// Words of letters and words of other symbols (type Whitespace).
std::unique_ptr<PreTokenizer> makeWords();
/// Spaces as a visible character, of which one may be put in front.
enum class Prepend { Always, First, Never };
std::unique_ptr<PreTokenizer> makeMetaspace(std::string replacement,
                                            Prepend prepend, bool split);
/// GPT-2's words; bytes as characters if `toCharacters`.
std::unique_ptr<PreTokenizer> makeByteLevel(bool addSpace, bool useRegex,
                                            bool toCharacters);

} // namespace grt::text

#endif // GRT_TEXT_PIECES_H
