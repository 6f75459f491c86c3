//===- text.h - Quantities in messages ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TEXT_H
#define GRT_CORE_TEXT_H

#include <cstdint>
#include <cstdio>
#include <string>

namespace grt {

/// "14.4 GiB", "300 KiB", "17 bytes".
inline std::string bytesText(uint64_t bytes) {
  const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof(text), unit && value < 999 ? "%.3g %s" : "%.0f %s",
                value, units[unit]);
  return text;
}

} // namespace grt

#endif // GRT_CORE_TEXT_H
