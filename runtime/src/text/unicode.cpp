//===- unicode.cpp - Code points, categories, normal forms ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/unicode.h"
#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <utf8proc.h>

namespace grt::text {

static const utf8proc_uint8_t *bytesOf(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t *>(text.data());
}

size_t firstInvalidByte(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight bytes of ASCII at once.
    uint64_t eight;
    if (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if (!(eight & 0x8080808080808080ull)) {
        at += sizeof(eight);
        continue;
      }
    }
    utf8proc_int32_t c;
    auto rest = utf8proc_ssize_t(text.size() - at);
    utf8proc_ssize_t bytes = utf8proc_iterate(bytesOf(text) + at, rest, &c);
    if (bytes <= 0)
      return at;
    at += size_t(bytes);
  }
  return at;
}

char32_t takeCodePoint(std::string_view text, size_t &at) {
  auto byte = [&](size_t i) {
    return char32_t(static_cast<unsigned char>(text[at + i]));
  };
  char32_t lead = byte(0);
  size_t bytes = codePointBytes(text[at]);
  char32_t c = lead;
  if (bytes == 2)
    c = (lead & 0x1f) << 6 | (byte(1) & 0x3f);
  else if (bytes == 3)
    c = (lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  else if (bytes == 4)
    c = (lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
        (byte(3) & 0x3f);
  at += bytes;
  return c;
}

void append(std::string &text, char32_t codePoint) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t count =
      utf8proc_encode_char(utf8proc_int32_t(codePoint), bytes);
  text.append(reinterpret_cast<const char *>(bytes), size_t(count));
}

bool isWhitespace(char32_t c) {
  if (c < 0x80)
    return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

static utf8proc_category_t categoryOf(char32_t c) {
  return utf8proc_category(utf8proc_int32_t(c));
}

bool isPunctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  utf8proc_category_t category = categoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool isOther(char32_t c) {
  utf8proc_category_t category = categoryOf(c);
  return category == UTF8PROC_CATEGORY_CN ||
         (category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO);
}

bool isNonspacingMark(char32_t c) {
  return categoryOf(c) == UTF8PROC_CATEGORY_MN;
}

bool isMark(char32_t c) {
  utf8proc_category_t category = categoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool isNumber(char32_t c) {
  utf8proc_category_t category = categoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool isWord(char32_t c) {
  utf8proc_category_t category = categoryOf(c);
  return (category >= UTF8PROC_CATEGORY_LU &&
          category <= UTF8PROC_CATEGORY_LO) ||
         isMark(c) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC ||
         // Join_Control, and what is Other_Alphabetic and no mark.
         c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}

void appendLowercase(std::string &text, char32_t c) {
  // The one code point whose lower case is two: I with a dot above.
  if (c == 0x130) {
    text += "i\xcc\x87";
    return;
  }
  append(text, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
}

std::string normalize(std::string_view text, NormalForm form) {
  // ASCII is normal in all forms.
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return static_cast<signed char>(c) >= 0; }))
    return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::C || form == NormalForm::KC
                 ? UTF8PROC_COMPOSE
                 : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::KC || form == NormalForm::KD)
    options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t *result = nullptr;
  utf8proc_ssize_t bytes =
      utf8proc_map(bytesOf(text), utf8proc_ssize_t(text.size()), &result,
                   utf8proc_option_t(options));
  if (bytes < 0)
    invalid(std::string("cannot normalize text: ") + utf8proc_errmsg(bytes));
  std::string normal(reinterpret_cast<const char *>(result), size_t(bytes));
  std::free(result);
  return normal;
}

size_t graphemeEnd(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  char32_t before = takeCodePoint(text, at);
  while (at < text.size()) {
    size_t next = at;
    char32_t c = takeCodePoint(text, next);
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(before),
                                         utf8proc_int32_t(c), &state))
      break;
    before = c;
    at = next;
  }
  return at;
}

} // namespace grt::text
