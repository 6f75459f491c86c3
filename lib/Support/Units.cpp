//===- Units.cpp - Quantities with units ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstdlib>

using namespace llvm;

namespace galvatron {

Error makeError(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

namespace {

struct Unit {
  StringLiteral name;
  double factor;
};

constexpr Unit byteUnits[] = {{"B", 1},
                              {"kB", 1e3},
                              {"KB", 1e3},
                              {"MB", 1e6},
                              {"GB", 1e9},
                              {"TB", 1e12},
                              {"KiB", 1024.0},
                              {"MiB", 1048576.0},
                              {"GiB", 1073741824.0},
                              {"TiB", 1099511627776.0}};
constexpr Unit bandwidthUnits[] = {
    {"B/s", 1},           {"kB/s", 1e3},          {"MB/s", 1e6},
    {"GB/s", 1e9},        {"TB/s", 1e12},         {"KiB/s", 1024.0},
    {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}};
constexpr Unit timeUnits[] = {
    {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
constexpr Unit flopsUnits[] = {{"FLOPS", 1},
                               {"MFLOPS", 1e6},
                               {"GFLOPS", 1e9},
                               {"TFLOPS", 1e12},
                               {"PFLOPS", 1e15}};

Expected<double> parseQuantity(StringRef text, ArrayRef<Unit> units,
                               StringRef what, StringRef example) {
  StringRef trimmed = text.trim();
  size_t split = trimmed.find_first_not_of("0123456789.");
  // An exponent belongs to the number: "1e9B".
  if (split != StringRef::npos && split > 0 &&
      (trimmed[split] == 'e' || trimmed[split] == 'E')) {
    size_t after = split + 1;
    if (after < trimmed.size() &&
        (trimmed[after] == '+' || trimmed[after] == '-'))
      ++after;
    if (after < trimmed.size() && isDigit(trimmed[after]))
      split = trimmed.find_first_not_of("0123456789", after);
  }
  StringRef digits = trimmed.substr(0, split);
  double value = 0;
  if (digits.empty() || digits.getAsDouble(value) || !std::isfinite(value))
    return makeError("expected " + what + " like '" + example + "', found '" +
                     text + "'");
  StringRef unit =
      split == StringRef::npos ? StringRef() : trimmed.substr(split).ltrim();
  if (unit.empty())
    return makeError("expected " + what + " with a unit, like '" + example +
                     "', found the bare number '" + text + "'");
  for (const Unit &candidate : units)
    if (unit == candidate.name)
      return value * candidate.factor;
  std::string known;
  for (const Unit &candidate : units)
    known += (known.empty() ? "" : ", ") + candidate.name.str();
  return makeError("unknown unit '" + unit + "' in " + what + " '" + text +
                   "', expected one of " + known);
}

/// The shortest decimal that reads back as `value`.
std::string shortest(double value) {
  for (int digits = 1; digits <= 17; ++digits) {
    std::string text;
    raw_string_ostream(text) << format("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value)
      return text;
  }
  return std::to_string(value);
}

std::string printScaled(double value, ArrayRef<Unit> units) {
  const Unit *best = &units.front();
  for (const Unit &unit : units)
    if (value >= unit.factor && unit.factor >= best->factor)
      best = &unit;
  if (value > 0 && value < best->factor)
    for (const Unit &unit : units)
      if (value >= unit.factor || unit.factor < best->factor)
        best = &unit;
  // Scaling must not lose digits: fall back to the base unit if it would.
  std::string text = shortest(value / best->factor);
  if (std::strtod(text.c_str(), nullptr) * best->factor != value) {
    for (const Unit &unit : units)
      if (unit.factor == 1)
        return shortest(value) + unit.name.str();
  }
  return text + best->name.str();
}

} // namespace

Expected<int64_t> parseBytes(StringRef text) {
  Expected<double> value =
      parseQuantity(text, byteUnits, "a number of bytes", "24GiB");
  if (!value)
    return value.takeError();
  if (*value > 9e18)
    return makeError("'" + text + "' is more bytes than can be counted");
  return static_cast<int64_t>(std::llround(*value));
}

Expected<double> parseBandwidth(StringRef text) {
  return parseQuantity(text, bandwidthUnits, "a bandwidth", "12.5GB/s");
}

Expected<double> parseSeconds(StringRef text) {
  return parseQuantity(text, timeUnits, "a time", "10us");
}

Expected<double> parseFlops(StringRef text) {
  return parseQuantity(text, flopsUnits, "a rate of operations", "16.3TFLOPS");
}

std::string printBytes(int64_t bytes) {
  constexpr StringLiteral names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t power = 0;
  while (power < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  return std::to_string(bytes) + names[power].str();
}

std::string printBytesRounded(int64_t bytes) {
  constexpr StringLiteral names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t power = 0;
  while (power < 4 && std::fabs(value) >= 1024) {
    value /= 1024;
    ++power;
  }
  std::string text;
  int digits = power == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  raw_string_ostream(text) << format("%.*f", digits, value) << ' '
                           << names[power];
  return text;
}

std::string printBandwidth(double bytesPerSecond) {
  return printScaled(bytesPerSecond, ArrayRef(bandwidthUnits).take_front(5));
}
std::string printSeconds(double seconds) {
  return printScaled(seconds, timeUnits);
}
std::string printFlops(double flopsPerSecond) {
  return printScaled(flopsPerSecond, flopsUnits);
}

Picoseconds toPicoseconds(double seconds) {
  // About three months: far beyond any step, far below overflow of sums.
  constexpr double limit = 8e6;
  return std::llround(std::min(seconds, limit) * 1e12);
}

} // namespace galvatron
