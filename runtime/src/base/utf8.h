//===- utf8.h - Characters of UTF-8 -----------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_UTF8_H
#define GRT_BASE_UTF8_H

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace grt {

/// Bytes of the character of UTF-8 that a text, which is not empty, begins
/// with; 0 if it begins with none.
inline size_t utf8Bytes(std::string_view text) {
  const uint8_t first = uint8_t(text[0]);
  if (first < 0x80)
    return 1;
  const size_t bytes = first < 0xc2   ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
  if (bytes == 0 || text.size() < bytes)
    return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((uint8_t(text[i]) & 0xc0) != 0x80)
      return 0;
  // Forms that are longer than they need be, surrogates, and what is too large.
  const uint8_t second = uint8_t(text[1]);
  const bool isOther =
      (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return isOther ? 0 : bytes;
}

} // namespace grt

#endif // GRT_BASE_UTF8_H
