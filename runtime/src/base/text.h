//===- text.h - Quantities in messages ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_TEXT_H
#define GRT_BASE_TEXT_H

#include <algorithm>
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

/// "12 s", "3m 05s", "2h 10m", "4d 3h".
inline std::string durationText(double seconds) {
  auto whole = uint64_t(std::max(0.0, seconds) + 0.5);
  char text[48];
  if (whole < 60)
    std::snprintf(text, sizeof(text), "%llu s", (unsigned long long)whole);
  else if (whole < 3600)
    std::snprintf(text, sizeof(text), "%llum %02llus",
                  (unsigned long long)(whole / 60),
                  (unsigned long long)(whole % 60));
  else if (whole < 86400)
    std::snprintf(text, sizeof(text), "%lluh %02llum",
                  (unsigned long long)(whole / 3600),
                  (unsigned long long)(whole % 3600 / 60));
  else
    std::snprintf(text, sizeof(text), "%llud %lluh",
                  (unsigned long long)(whole / 86400),
                  (unsigned long long)(whole % 86400 / 3600));
  return text;
}

} // namespace grt

#endif // GRT_BASE_TEXT_H
