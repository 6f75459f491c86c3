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
#include <optional>

using namespace llvm;

namespace galvatron {

Error makeError(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

namespace {

/// A power of ten times a power of two: decimal prefixes are applied to the
/// digits, so that "15us" is the double nearest to 15e-6.
struct Unit {
  StringLiteral name;
  int decimal;
  int binary = 0;

  double factor() const { return std::pow(10.0, decimal) * std::exp2(binary); }
};

constexpr Unit byteUnits[] = {
    {"B", 0},   {"kB", 3},      {"KB", 3},      {"MB", 6},      {"GB", 9},
    {"TB", 12}, {"KiB", 0, 10}, {"MiB", 0, 20}, {"GiB", 0, 30}, {"TiB", 0, 40}};
constexpr Unit bandwidthUnits[] = {
    {"B/s", 0},   {"kB/s", 3},      {"MB/s", 6},      {"GB/s", 9},
    {"TB/s", 12}, {"KiB/s", 0, 10}, {"MiB/s", 0, 20}, {"GiB/s", 0, 30}};
constexpr Unit timeUnits[] = {{"s", 0}, {"ms", -3}, {"us", -6}, {"ns", -9}};
constexpr Unit flopsUnits[] = {
    {"FLOPS", 0}, {"MFLOPS", 6}, {"GFLOPS", 9}, {"TFLOPS", 12}, {"PFLOPS", 15}};

/// `digits` is a decimal number, perhaps with an exponent.
std::optional<double> scale(StringRef digits, const Unit &unit) {
  size_t split = digits.find_first_of("eE");
  int exponent = 0;
  if (split != StringRef::npos) {
    StringRef text = digits.substr(split + 1);
    text.consume_front("+");
    if (text.getAsInteger(10, exponent) || std::abs(exponent) > 1000)
      return std::nullopt;
  }
  std::string shifted = digits.substr(0, split).str() + "e" +
                        std::to_string(exponent + unit.decimal);
  double value = 0;
  if (StringRef(shifted).getAsDouble(value))
    return std::nullopt;
  value *= std::exp2(unit.binary);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

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
  auto malformed = [&] {
    return makeError("expected " + what + " like '" + example + "', found '" +
                     text + "'");
  };
  if (digits.empty() || !scale(digits, {"", 0}))
    return malformed();
  StringRef unit =
      split == StringRef::npos ? StringRef() : trimmed.substr(split).ltrim();
  if (unit.empty())
    return makeError("expected " + what + " with a unit, like '" + example +
                     "', found the bare number '" + text + "'");
  for (const Unit &candidate : units)
    if (unit == candidate.name) {
      std::optional<double> value = scale(digits, candidate);
      if (!value)
        return malformed();
      return *value;
    }
  std::string known;
  for (const Unit &candidate : units)
    known += (known.empty() ? "" : ", ") + candidate.name.str();
  return makeError("unknown unit '" + unit + "' in " + what + " '" + text +
                   "', expected one of " + known);
}

/// The shortest plain decimal that reads back as `value` in `unit`; empty if
/// there is none.
std::string shortest(double value, const Unit &unit) {
  for (int digits = 1; digits <= 17; ++digits) {
    std::string text;
    raw_string_ostream(text) << format("%.*g", digits, value / unit.factor());
    if (text.find('e') == std::string::npos && scale(text, unit) == value)
      return text;
  }
  return "";
}

/// The unit is the largest one that is not above the value, or else one that
/// loses no digits.
std::string printScaled(double value, ArrayRef<Unit> units) {
  SmallVector<Unit, 8> order(units.begin(), units.end());
  llvm::sort(order, [&](const Unit &a, const Unit &b) {
    bool fitsA = a.factor() <= value, fitsB = b.factor() <= value;
    if (fitsA != fitsB)
      return fitsA;
    return fitsA ? a.decimal > b.decimal : a.decimal < b.decimal;
  });
  if (value != 0)
    for (const Unit &unit : order)
      if (std::string text = shortest(value, unit); !text.empty())
        return text + unit.name.str();
  // Zero, or far outside all units.
  std::string text;
  raw_string_ostream(text) << format("%.17g", value);
  return text + find_if(units, [](const Unit &unit) {
                  return unit.decimal == 0 && unit.binary == 0;
                })->name.str();
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

/// Divides by `base` until the value is below it or names run out, and prints
/// three significant digits with the name; whole numbers without a prefix.
static std::string printRounded(double value, double base,
                                ArrayRef<StringLiteral> names) {
  size_t power = 0;
  while (power + 1 < names.size() && std::fabs(value) >= base) {
    value /= base;
    ++power;
  }
  std::string text;
  int digits = power == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  raw_string_ostream(text) << format("%.*f", digits, value) << names[power];
  return text;
}

std::string printBytesRounded(int64_t bytes) {
  return printRounded(static_cast<double>(bytes), 1024,
                      {" B", " KiB", " MiB", " GiB", " TiB"});
}
std::string printCountRounded(double count) {
  return printRounded(count, 1000, {"", "k", "M", "B", "T"});
}
std::string printFlopsRounded(double flopsPerSecond) {
  return printRounded(
      flopsPerSecond, 1000,
      {" FLOP/s", " kFLOP/s", " MFLOP/s", " GFLOP/s", " TFLOP/s", " PFLOP/s"});
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
  double picoseconds = seconds * 1e12;
  // The double is exact, and NaN is not below it.
  return picoseconds < static_cast<double>(kMostTime)
             ? std::llround(picoseconds)
             : kMostTime;
}

} // namespace galvatron
