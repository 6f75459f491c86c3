//===- SampleLayout.cpp - Which rank has which samples --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/SampleLayout.h"

#include <cassert>

namespace galvatron {

void SampleLayout::split(int64_t degree, int64_t stride) {
  assert(degree > 1 && stride > 0 &&
         (digits.empty() || digits.back().stride % (degree * stride) == 0) &&
         "levels further in stand on nearer ranks");
  if (!digits.empty() && digits.back().stride == degree * stride)
    digits.back() = {digits.back().degree * degree, stride};
  else
    digits.push_back({degree, stride});
}

int64_t SampleLayout::blocks() const {
  int64_t count = 1;
  for (const Digit &digit : digits)
    count *= digit.degree;
  return count;
}

int64_t SampleLayout::block(int64_t rank) const {
  int64_t number = 0;
  for (const Digit &digit : digits)
    number = number * digit.degree + rank / digit.stride % digit.degree;
  return number;
}

int64_t SampleLayout::period() const {
  // The outermost digit of a rank's block counts neighbouring windows only if
  // it is the outermost digit of the rank, too.
  if (digits.empty() ||
      digits.front().degree * digits.front().stride != rankCount)
    return rankCount;
  return digits.front().stride;
}

std::vector<int64_t> SampleLayout::blocksByRank() const {
  std::vector<int64_t> list;
  for (int64_t rank = 0; rank < rankCount; ++rank)
    list.push_back(block(rank));
  return list;
}

bool SampleLayout::operator<(const SampleLayout &other) const {
  if (rankCount != other.rankCount)
    return rankCount < other.rankCount;
  return digits < other.digits;
}

} // namespace galvatron
