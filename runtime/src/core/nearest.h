//===- nearest.h - The option that was probably meant -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_NEAREST_H
#define GRT_CORE_NEAREST_H

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace grt {

/// Edits (insert, remove, replace a letter) from one text to the other.
inline size_t editDistance(const std::string &from, const std::string &to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min(
          {above + 1, row[j - 1] + 1, diagonal + (from[i - 1] != to[j - 1])});
      diagonal = above;
    }
  }
  return row[to.size()];
}

/// The name that is nearest, if at most a third of its letters is wrong; else
/// empty.
inline std::string nearestName(const std::string &name,
                               const std::vector<std::string> &known) {
  std::string nearest;
  size_t least = name.size() / 3 + 1;
  for (const std::string &option : known)
    if (size_t distance = editDistance(name, option); distance < least) {
      least = distance;
      nearest = option;
    }
  return nearest;
}

/// The message about an option that is not known; `nearest` may be empty.
inline std::string unknownOption(const std::string &name,
                                 const std::string &nearest) {
  return "unknown option '" + name + "'" +
         (nearest.empty() ? "; see --help"
                          : "; did you mean '" + nearest + "'?");
}

} // namespace grt

#endif // GRT_CORE_NEAREST_H
