//===- TextTable.h - Columns of text ----------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tables for a terminal: columns as wide as their widest cell, two spaces
// between them, no spaces at the end of a line.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_TEXTTABLE_H
#define GALVATRON_SUPPORT_TEXTTABLE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace galvatron {

/// The layout of text for a person.
struct TableStyle {
  /// Letters of a line that text is folded to; 0: lines are as long as they
  /// come, as scripts want them.
  size_t columns = 0;
  /// Escape sequences of terminals for what counts.
  bool colour = false;
};

/// The words of `text` in lines of at most `columns` letters, or one word; 0:
/// one line. Spaces in front stay.
std::vector<std::string> foldText(llvm::StringRef text, size_t columns);
/// The folded text as one string: lines behind the first are indented by
/// `indent` more than it.
std::string foldedText(llvm::StringRef text, size_t columns, size_t indent);

/// The emphasis that `TableStyle::colour` shows in colour.
enum class Emphasis : uint8_t { Bold, Good, Tight, Bad };
std::string emphasised(llvm::StringRef text, Emphasis how, TableStyle style);

class TextTable {
public:
  /// Makes a table with one letter a column: 'l' sets it flush left, 'r' flush
  /// right.
  explicit TextTable(llvm::StringRef alignment) : alignment(alignment.str()) {}

  /// Missing cells at the end of a row are empty.
  void row(std::vector<std::string> cells);
  /// A line between rows that takes no part in the columns.
  void note(std::string text);
  /// Every line begins with `indent` spaces; notes are folded to `columns`.
  void print(llvm::raw_ostream &os, unsigned indent = 2,
             size_t columns = 0) const;
  /// Letters of the longest row, without notes and indentation.
  size_t width() const;

private:
  struct Row {
    std::vector<std::string> cells;
    bool isNote;
  };

  /// The width of every column.
  std::vector<size_t> widths() const;

  std::string alignment;
  std::vector<Row> rows;
};

/// "12.345 ms", with three decimals up to 100 seconds and fewer above.
std::string printMilliseconds(double ms);
/// "+4.3%", "-0.1%"; 0.05 is 5%.
std::string printChange(double fraction);
/// "4.3%"; 0.05 is 5%.
std::string printPercent(double fraction, int decimals = 1);
/// "#######...", `width` characters; more than full is full.
std::string printBar(double fraction, int width = 10);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_TEXTTABLE_H
