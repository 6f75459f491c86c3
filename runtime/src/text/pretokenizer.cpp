//===- pretokenizer.cpp - Cutting text into words -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/model.h"
#include "text/pieces.h"

#include <algorithm>

namespace grt::text {

PreTokenizer::~PreTokenizer() = default;

std::optional<Separator> separatorOf(std::string_view name) {
  static constexpr std::pair<std::string_view, Separator> names[] = {
      {"Removed", Separator::Removed},
      {"Isolated", Separator::Isolated},
      {"MergedWithPrevious", Separator::MergedWithPrevious},
      {"MergedWithNext", Separator::MergedWithNext},
      {"Contiguous", Separator::Contiguous}};
  for (const auto &[known, separator] : names)
    if (known == name)
      return separator;
  return std::nullopt;
}

namespace {

/// Parts of a piece as they are found: separators, and what is between them.
/// Puts them together as the separator wants and appends them.
class Assembly {
public:
  Assembly(Piece piece, Separator separator, bool invert, Pieces &pieces)
      : piece(piece), separator(separator), invert(invert), pieces(pieces) {}

  /// A separator at [begin, end); what is between it and the last is a part.
  void match(size_t begin, size_t end) {
    if (begin > done)
      add(done, begin, false);
    add(begin, end, true);
    done = end;
  }
  void finish() {
    if (done < piece.text.size())
      add(done, piece.text.size(), false);
    if (pending)
      emit(pendingBegin, pendingEnd);
  }

private:
  void add(size_t begin, size_t end, bool isSeparator) {
    isSeparator ^= invert;
    switch (separator) {
    case Separator::Removed:
      if (!isSeparator)
        emit(begin, end);
      return;
    case Separator::Isolated:
      return emit(begin, end);
    case Separator::MergedWithPrevious:
      // The first of several in a row goes to what is before it.
      return hold(begin, end, isSeparator && !before && pending, isSeparator);
    case Separator::MergedWithNext:
      // The last of several in a row goes to what is behind it.
      return hold(begin, end, !isSeparator && before && pending, isSeparator);
    case Separator::Contiguous:
      return hold(begin, end, isSeparator == before && pending, isSeparator);
    }
  }
  /// Keeps a part back, joined to the one before if `join`.
  void hold(size_t begin, size_t end, bool join, bool isSeparator) {
    if (pending && !join)
      emit(pendingBegin, pendingEnd);
    if (!join)
      pendingBegin = begin;
    pendingEnd = end;
    pending = true;
    before = isSeparator;
  }
  void emit(size_t begin, size_t end) {
    if (begin < end)
      pieces.list.push_back(
          {piece.text.substr(begin, end - begin), piece.isFirst && begin == 0});
  }

  Piece piece;
  Separator separator;
  bool invert;
  Pieces &pieces;
  size_t done = 0;
  size_t pendingBegin = 0, pendingEnd = 0;
  bool pending = false, before = false;
};

class RegexSplit : public PreTokenizer {
public:
  RegexSplit(const std::string &pattern, Separator separator, bool invert)
      : regex(pattern), separator(separator), invert(invert) {}

  void split(Piece piece, Pieces &pieces) const override {
    Assembly assembly(piece, separator, invert, pieces);
    regex.forEachMatch(piece.text, [&](Regex::Match match) {
      assembly.match(match.begin, match.end);
    });
    assembly.finish();
  }
  const Regex *pattern() const override {
    return separator == Separator::Isolated ? &regex : nullptr;
  }

private:
  Regex regex;
  Separator separator;
  bool invert;
};

class LiteralSplit : public PreTokenizer {
public:
  LiteralSplit(std::string literal, Separator separator, bool invert)
      : literal(std::move(literal)), separator(separator), invert(invert) {}

  void split(Piece piece, Pieces &pieces) const override {
    Assembly assembly(piece, separator, invert, pieces);
    size_t at = 0;
    while ((at = piece.text.find(literal, at)) != std::string_view::npos) {
      assembly.match(at, at + literal.size());
      at += literal.size();
    }
    assembly.finish();
  }

private:
  std::string literal;
  Separator separator;
  bool invert;
};

class CharacterSplit : public PreTokenizer {
public:
  CharacterSplit(std::function<bool(char32_t)> separates, Separator separator)
      : separates(std::move(separates)), separator(separator) {}

  void split(Piece piece, Pieces &pieces) const override {
    Assembly assembly(piece, separator, false, pieces);
    for (size_t at = 0; at < piece.text.size();) {
      size_t begin = at;
      if (separates(takeCodePoint(piece.text, at)))
        assembly.match(begin, at);
    }
    assembly.finish();
  }

private:
  std::function<bool(char32_t)> separates;
  Separator separator;
};

/// Runs of word characters, and runs of what is neither those nor white space.
class Words : public PreTokenizer {
public:
  void split(Piece piece, Pieces &pieces) const override {
    auto classOf = [](char32_t c) {
      return isWord(c) ? 2 : isWhitespace(c) ? 0 : 1;
    };
    size_t begin = 0;
    int current = 0;
    auto emit = [&](size_t end) {
      if (current && begin < end)
        pieces.list.push_back({piece.text.substr(begin, end - begin),
                               piece.isFirst && begin == 0});
      begin = end;
    };
    for (size_t at = 0; at < piece.text.size();) {
      size_t here = at;
      int next = classOf(takeCodePoint(piece.text, at));
      if (next != current)
        emit(here);
      current = next;
    }
    emit(piece.text.size());
  }
};

class Metaspace : public PreTokenizer {
public:
  Metaspace(std::string given, Prepend prepend, bool split)
      : replacement(std::move(given)), prepend(prepend), splits(split),
        replace(makeReplace(" ", replacement)),
        parts(replacement, Separator::MergedWithNext, false) {}

  void split(Piece piece, Pieces &pieces) const override {
    std::string text = replace(piece.text);
    if ((prepend == Prepend::Always ||
         (prepend == Prepend::First && piece.isFirst)) &&
        !text.starts_with(replacement))
      text.insert(0, replacement);
    piece.text = pieces.own(std::move(text));
    if (splits)
      parts.split(piece, pieces);
    else
      pieces.list.push_back(piece);
  }

private:
  std::string replacement;
  Prepend prepend;
  bool splits;
  Normalizer replace;
  LiteralSplit parts;
};

/// GPT-2's words: contractions, letters, digits and others with the space
/// before them, and white space.
constexpr const char *bytePattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+";

class ByteLevel : public PreTokenizer {
public:
  ByteLevel(bool addSpace, bool useRegex, bool toCharacters)
      : addSpace(addSpace), toCharacters(toCharacters) {
    if (useRegex)
      words.emplace(bytePattern, Separator::Isolated, false);
  }

  void split(Piece piece, Pieces &pieces) const override {
    if (addSpace && !piece.text.starts_with(' '))
      piece.text = pieces.own(" " + std::string(piece.text));
    size_t first = pieces.list.size();
    if (words)
      words->split(piece, pieces);
    else
      pieces.list.push_back(piece);
    for (size_t i = first; toCharacters && i < pieces.list.size(); ++i)
      pieces.list[i].text = pieces.own(characters(pieces.list[i].text));
  }
  const Regex *pattern() const override {
    return words && !addSpace && !toCharacters ? words->pattern() : nullptr;
  }

private:
  bool addSpace, toCharacters;
  std::optional<RegexSplit> words;
  Normalizer characters = makeByteCharacters();
};

} // namespace

std::unique_ptr<PreTokenizer> makeRegexSplit(const std::string &pattern,
                                             Separator separator, bool invert) {
  return std::make_unique<RegexSplit>(pattern, separator, invert);
}
std::unique_ptr<PreTokenizer>
makeLiteralSplit(std::string literal, Separator separator, bool invert) {
  // The empty text stands before every character and at the end.
  if (literal.empty())
    return makeRegexSplit("", separator, invert);
  return std::make_unique<LiteralSplit>(std::move(literal), separator, invert);
}
std::unique_ptr<PreTokenizer>
makeCharacterSplit(std::function<bool(char32_t)> separates,
                   Separator separator) {
  return std::make_unique<CharacterSplit>(std::move(separates), separator);
}
std::unique_ptr<PreTokenizer> makeWords() { return std::make_unique<Words>(); }
std::unique_ptr<PreTokenizer> makeMetaspace(std::string replacement,
                                            Prepend prepend, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}
std::unique_ptr<PreTokenizer> makeByteLevel(bool addSpace, bool useRegex,
                                            bool toCharacters) {
  return std::make_unique<ByteLevel>(addSpace, useRegex, toCharacters);
}

} // namespace grt::text
