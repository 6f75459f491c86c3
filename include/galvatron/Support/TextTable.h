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

class TextTable {
public:
  /// One letter a column: 'l' sets it flush left, 'r' flush right.
  explicit TextTable(llvm::StringRef alignment) : alignment(alignment.str()) {}

  /// Missing cells at the end of a row are empty.
  void row(std::vector<std::string> cells);
  /// A line between rows that takes no part in the columns.
  void note(std::string text);
  /// Every line begins with `indent` spaces.
  void print(llvm::raw_ostream &os, unsigned indent = 2) const;

private:
  struct Row {
    std::vector<std::string> cells;
    bool isNote;
  };

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
