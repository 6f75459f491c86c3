//===- Decisions.cpp - A decision log that can be read --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

/// The verdict, which stands behind the candidate's name, with every number
/// replaced by one sign.
static std::string shapeOf(StringRef text) {
  if (size_t colon = text.find(": "); colon != StringRef::npos)
    text = text.substr(colon);
  std::string shape;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!isDigit(text[i])) {
      shape += text[i];
      continue;
    }
    shape += '#';
    while (i + 1 < text.size() && (isDigit(text[i + 1]) || text[i + 1] == '.'))
      ++i;
  }
  return shape;
}

std::vector<std::string> foldDecisions(ArrayRef<std::string> decisions) {
  std::vector<std::string> folded;
  for (size_t begin = 0; begin < decisions.size();) {
    std::string shape = shapeOf(decisions[begin]);
    size_t end = begin + 1;
    while (end < decisions.size() && shapeOf(decisions[end]) == shape)
      ++end;
    // Two of a kind read better as they are.
    if (end - begin <= 2) {
      folded.insert(folded.end(), decisions.begin() + begin,
                    decisions.begin() + end);
    } else {
      folded.push_back(decisions[begin]);
      folded.push_back("  and " + std::to_string(end - begin - 1) +
                       " more, the last: " + decisions[end - 1]);
    }
    begin = end;
  }
  return folded;
}

} // namespace galvatron
