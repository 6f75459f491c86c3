//===- TextTable.cpp - Columns of text ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/TextTable.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>

using namespace llvm;

namespace galvatron {

void TextTable::row(std::vector<std::string> cells) {
  assert(cells.size() <= alignment.size() && "more cells than columns");
  rows.push_back({std::move(cells), /*isNote=*/false});
}

void TextTable::note(std::string text) {
  rows.push_back({{std::move(text)}, /*isNote=*/true});
}

/// Letters that are seen of a cell: escape sequences take no place.
static size_t lettersOf(StringRef text) {
  size_t letters = 0;
  for (size_t at = 0; at < text.size(); ++at)
    if (text[at] == '\x1b')
      at = text.find('m', at);
    else
      ++letters;
  return letters;
}

std::vector<std::string> foldText(StringRef text, size_t columns) {
  if (!columns || text.size() <= columns)
    return {text.str()};
  size_t front = text.size() - text.ltrim(' ').size();
  std::string line(front, ' ');
  std::vector<std::string> lines;
  bool isEmpty = true;
  for (StringRef rest = text.ltrim(' '), word; !rest.empty();) {
    std::tie(word, rest) = rest.split(' ');
    if (!isEmpty && lettersOf(line) + 1 + lettersOf(word) > columns) {
      lines.push_back(std::move(line));
      line.clear();
      isEmpty = true;
    }
    line += (isEmpty ? "" : " ") + word.str();
    isEmpty = false;
  }
  lines.push_back(std::move(line));
  return lines;
}

std::string foldedText(StringRef text, size_t columns, size_t indent) {
  size_t front = text.size() - text.ltrim(' ').size() + indent;
  // Room for at least a few words, however narrow the terminal is.
  constexpr size_t leastWidth = 20;
  std::string all;
  size_t width = columns;
  for (StringRef rest = text; !rest.empty();) {
    std::string line = foldText(rest, width).front();
    rest = rest.drop_front(line.size()).ltrim(' ');
    all += (all.empty() ? "" : "\n" + std::string(front, ' ')) + line;
    width = columns ? std::max(columns, front + leastWidth) - front : 0;
  }
  return all;
}

std::string emphasised(StringRef text, Emphasis how, TableStyle style) {
  if (!style.colour)
    return text.str();
  const char *codes[] = {"1", "32", "33", "31"};
  return (Twine("\x1b[") + codes[static_cast<size_t>(how)] + "m" + text +
          "\x1b[0m")
      .str();
}

std::vector<size_t> TextTable::widths() const {
  std::vector<size_t> widths(alignment.size(), 0);
  for (const Row &row : rows)
    for (size_t c = 0; !row.isNote && c < row.cells.size(); ++c)
      widths[c] = std::max(widths[c], lettersOf(row.cells[c]));
  return widths;
}

size_t TextTable::width() const {
  size_t width = 0;
  for (size_t column : widths())
    width += (width ? 2 : 0) + column;
  return width;
}

void TextTable::print(raw_ostream &os, unsigned indent, size_t columns) const {
  std::vector<size_t> widths = this->widths();
  for (const Row &row : rows) {
    std::string line(indent, ' ');
    if (row.isNote)
      line = foldedText(line + row.cells[0], columns, /*indent=*/0);
    for (size_t c = 0; !row.isNote && c < row.cells.size(); ++c) {
      std::string padding(widths[c] - lettersOf(row.cells[c]), ' ');
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
