//===- byte_set.h - Sets of bytes -------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_BYTE_SET_H
#define GRT_CORE_BYTE_SET_H

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace grt {

/// A set of bytes.
class ByteSet {
public:
  void add(uint64_t begin, uint64_t end) {
    if (begin >= end)
      return;
    auto at = pieces.upper_bound(begin);
    if (at != pieces.begin() && std::prev(at)->second >= begin)
      begin = (--at)->first;
    while (at != pieces.end() && at->first <= end) {
      end = std::max(end, at->second);
      at = pieces.erase(at);
    }
    pieces[begin] = end;
  }
  void remove(uint64_t begin, uint64_t end) {
    if (begin >= end)
      return;
    auto at = pieces.upper_bound(begin);
    if (at != pieces.begin() && std::prev(at)->second > begin)
      --at;
    while (at != pieces.end() && at->first < end) {
      const auto [first, last] = *at;
      at = pieces.erase(at);
      if (first < begin)
        pieces[first] = begin;
      if (last > end)
        pieces[end] = last;
    }
  }
  /// Whether all of them are in the set.
  bool has(uint64_t begin, uint64_t end) const {
    if (begin >= end)
      return true;
    auto at = pieces.upper_bound(begin);
    return at != pieces.begin() && std::prev(at)->second >= end;
  }
  /// Whether any of them is.
  bool meets(uint64_t begin, uint64_t end) const {
    auto at = pieces.lower_bound(end);
    return begin < end && at != pieces.begin() && std::prev(at)->second > begin;
  }
  bool isEmpty() const { return pieces.empty(); }
  /// The first one, if there is one.
  uint64_t first() const { return pieces.begin()->first; }

private:
  std::map<uint64_t, uint64_t> pieces; ///< ends by begins, apart
};

} // namespace grt

#endif // GRT_CORE_BYTE_SET_H
