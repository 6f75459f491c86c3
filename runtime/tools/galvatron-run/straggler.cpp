//===- straggler.cpp - The rank that the others wait for ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "straggler.h"

#include <algorithm>
#include <cstdio>

using namespace grt;

namespace {

/// Longer work than the others' by this is more than noise.
constexpr double muchLonger = 1.25;

double median(std::vector<double> values) {
  auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace

std::string StragglerWatch::look(const std::vector<RankWork> &work,
                                 double seconds, uint64_t steps) {
  int worst = -1;
  double most = muchLonger, own = 0, usual = 0;
  for (const RankWork &rank : work) {
    std::vector<double> others;
    for (const RankWork &other : work)
      if (other.stage == rank.stage && other.rank != rank.rank)
        others.push_back(std::max(0.0, seconds - other.waitedSeconds));
    double mine = std::max(0.0, seconds - rank.waitedSeconds);
    double theirs = others.empty() ? 0 : median(std::move(others));
    if (theirs > 0 && mine > most * theirs) {
      most = mine / theirs;
      worst = rank.rank;
      own = mine;
      usual = theirs;
    }
  }
  bool again = worst >= 0 && worst == suspect;
  suspect = worst;
  if (worst < 0)
    named = -1;
  if (!again || worst == named)
    return "";
  named = worst;
  char text[160];
  double each = 1e3 / double(std::max<uint64_t>(steps, 1));
  std::snprintf(text, sizeof(text),
                "straggler: rank %d works %.3g ms a step, the others of its "
                "stage %.3g ms (median); they wait for it",
                worst, own * each, usual * each);
  return text;
}
