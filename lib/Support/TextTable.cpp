//===- TextTable.cpp - Columns of text ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/TextTable.h"

#include "llvm/Support/Format.h"

#include <algorithm>
#include <cassert>
#include <cmath>

using namespace llvm;

namespace galvatron {

void TextTable::row(std::vector<std::string> cells) {
  assert(cells.size() <= alignment.size() && "more cells than columns");
  rows.push_back({std::move(cells), /*isNote=*/false});
}

void TextTable::note(std::string text) {
  rows.push_back({{std::move(text)}, /*isNote=*/true});
}

void TextTable::print(raw_ostream &os, unsigned indent) const {
  std::vector<size_t> widths(alignment.size(), 0);
  for (const Row &row : rows)
    for (size_t c = 0; !row.isNote && c < row.cells.size(); ++c)
      widths[c] = std::max(widths[c], row.cells[c].size());
  for (const Row &row : rows) {
    std::string line(indent, ' ');
    if (row.isNote)
      line += row.cells[0];
    for (size_t c = 0; !row.isNote && c < row.cells.size(); ++c) {
      std::string padding(widths[c] - row.cells[c].size(), ' ');
      line += c > 0 ? "  " : "";
      line +=
          alignment[c] == 'r' ? padding + row.cells[c] : row.cells[c] + padding;
    }
    os << StringRef(line).rtrim(' ') << "\n";
  }
}

std::string printMilliseconds(double ms) {
  std::string text;
  raw_string_ostream(text) << format(ms < 1e5 ? "%.3f ms" : "%.0f ms", ms);
  return text;
}

std::string printPercent(double fraction, int decimals) {
  std::string text;
  // No "-0.0%".
  double percent = 100 * fraction;
  if (std::abs(percent) < 0.5 * std::pow(10.0, -decimals))
    percent = 0;
  raw_string_ostream(text) << format("%.*f%%", decimals, percent);
  return text;
}

std::string printChange(double fraction) {
  std::string text = printPercent(fraction);
  return text[0] == '-' ? text : "+" + text;
}

std::string printBar(double fraction, int width) {
  int full =
      static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  return std::string(full, '#') + std::string(width - full, '.');
}

} // namespace galvatron
