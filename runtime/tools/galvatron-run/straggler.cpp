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
/// A clock below the others' by this costs more than noise.
constexpr double muchSlower = 0.85;

double median(std::vector<double> values) {
  auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace

std::string StragglerWatch::look(const std::vector<RankWork> &work,
                                 double seconds, uint64_t steps, WhyOf whyOf) {
  int worst = -1;
  uint64_t slowdowns = 0;
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
      slowdowns = rank.clock.slowdowns;
      own = mine;
      usual = theirs;
    }
  }
  if (!isNews(worst))
    return "";
  char text[160];
  double each = 1e3 / double(std::max<uint64_t>(steps, 1));
  std::snprintf(text, sizeof(text),
                "straggler: rank %d works %.3g ms a step, the others of its "
                "stage %.3g ms (median); they wait for it",
                worst, own * each, usual * each);
  const std::string why = whyOf ? whyOf(slowdowns) : "";
  return text + (why.empty() ? "" : ": " + why);
}

bool StragglerWatch::isNews(int worst) {
  const bool again = worst >= 0 && worst == suspect;
  suspect = worst;
  if (worst < 0)
    named = -1;
  if (!again || worst == named)
    return false;
  named = worst;
  return true;
}

std::string StragglerWatch::lookAtClocks(const std::vector<RankWork> &work,
                                         WhyOf whyOf) {
  std::vector<double> clocks;
  for (const RankWork &rank : work)
    if (rank.clock.megahertz > 0)
      clocks.push_back(rank.clock.megahertz);
  if (clocks.size() < 2)
    return "";
  const double usual = median(std::move(clocks));
  const RankWork *worst = nullptr;
  for (const RankWork &rank : work)
    if (rank.clock.megahertz > 0 && rank.clock.megahertz < muchSlower * usual &&
        (!worst || rank.clock.megahertz < worst->clock.megahertz))
      worst = &rank;
  if (!isNews(worst ? worst->rank : -1))
    return "";
  char text[160];
  std::snprintf(text, sizeof(text),
                "straggler: the GPU of rank %d runs at %.0f MHz, the others' "
                "at %.0f MHz (median); they wait for it",
                worst->rank, worst->clock.megahertz, usual);
  const std::string why = whyOf(worst->clock.slowdowns);
  return text + (why.empty() ? "" : ": " + why);
}
