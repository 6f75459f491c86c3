//===- Svg.h - Inline pictures ----------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shapes of an SVG picture inside a page. Colours are classes of the page's
// style sheet, so that they follow light and dark.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_REPORT_SVG_H
#define GALVATRON_LIB_REPORT_SVG_H

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace galvatron::report {

/// Text as it may stand in HTML and in attributes.
std::string escape(llvm::StringRef text);
/// Writes a number with at most two decimals, without trailing zeros.
std::string number(double value);
/// "12.3 ms", "4.56 s", "87 us".
std::string timeText(double ms);
/// About `count` round values from 0 to `end`, at least two.
std::vector<double> niceTicks(double end, int count);

class Svg {
public:
  Svg(double width, double height, llvm::StringRef description);

  /// `tip` is shown when the pointer rests on the shape.
  void rect(double x, double y, double width, double height,
            llvm::StringRef style, llvm::StringRef tip = "");
  void line(double x1, double y1, double x2, double y2, llvm::StringRef style);
  void circle(double x, double y, double radius, llvm::StringRef style,
              llvm::StringRef tip = "");
  /// `anchor`: start, middle or end.
  void text(double x, double y, llvm::StringRef content,
            llvm::StringRef style = "", llvm::StringRef anchor = "start");
  void path(llvm::StringRef data, llvm::StringRef style);

  std::string str() const;

private:
  std::string head, body;
};

/// Width in pixels of a text of the pictures' font, on the safe side.
inline double textWidth(llvm::StringRef text) {
  return 6.6 * static_cast<double>(text.size());
}

} // namespace galvatron::report

#endif // GALVATRON_LIB_REPORT_SVG_H
