//===- unicode.h - Code points, categories, normal forms --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What tokenizers ask of Unicode, answered by utf8proc. Text is UTF-8 and was
// checked (firstInvalidByte) before it comes here.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_UNICODE_H
#define GRT_TEXT_UNICODE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace grt::text {

/// Position of the first byte that is no UTF-8; the text's size if there is
/// none.
size_t firstInvalidByte(std::string_view text);

/// Bytes of the code point that begins with `lead`.
inline size_t codePointBytes(char lead) {
  auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
/// The code point at `at`, which moves behind it.
char32_t takeCodePoint(std::string_view text, size_t &at);
/// Position of the code point before `at`.
inline size_t codePointBefore(std::string_view text, size_t at) {
  do
    --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}
void append(std::string &text, char32_t codePoint);

/// Unicode's property White_Space.
bool isWhitespace(char32_t c);
/// Punctuation (P*), and the symbols among ASCII's.
bool isPunctuation(char32_t c);
/// Controls, formats, private and unassigned code points (C*).
bool isOther(char32_t c);
/// Marks (M*); of those the ones that take no room of their own (Mn).
bool isMark(char32_t c);
bool isNonspacingMark(char32_t c);
/// Numbers (N*).
bool isNumber(char32_t c);
/// True for a regular expression's \w: letters, marks, digits, connectors.
bool isWord(char32_t c);

/// Appends the lower case of a code point, which may be several.
void appendLowercase(std::string &text, char32_t c);

enum class NormalForm { C, D, KC, KD };
std::string normalize(std::string_view text, NormalForm form);

/// The end of the grapheme cluster that begins at `at`.
size_t graphemeEnd(std::string_view text, size_t at);

} // namespace grt::text

#endif // GRT_TEXT_UNICODE_H
