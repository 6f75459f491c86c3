//===- Measured.cpp - Measured curves of devices and links ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Measured.h"
#include "galvatron/Support/Units.h"

#include <algorithm>
#include <cmath>

using namespace llvm;

namespace galvatron {

double productSize(double flops, double elements) {
  return elements > 0 ? 1.5 * flops / elements : 0;
}

EfficiencyCurve EfficiencyCurve::hyperbola(double half) {
  std::vector<Point> points;
  for (double size = 16; size <= 16384; size *= 2)
    points.push_back({size, size / (size + half)});
  return EfficiencyCurve(std::move(points));
}

double EfficiencyCurve::at(double size) const {
  if (curve.empty() || size <= 0)
    return 1;
  if (size <= curve.front().first)
    return curve.front().second * size / curve.front().first;
  auto above =
      std::find_if(curve.begin(), curve.end(),
                   [&](const Point &point) { return point.first >= size; });
  if (above == curve.end())
    return curve.back().second;
  const auto &[x0, y0] = *std::prev(above);
  const auto &[x1, y1] = *above;
  return y0 + (y1 - y0) * std::log(size / x0) / std::log(x1 / x0);
}

Error EfficiencyCurve::check(const Twine &where) const {
  double last = 0;
  for (const auto &[size, fraction] : curve) {
    if (!(size > last))
      return makeError(where + ": expected sizes above 0 in ascending order");
    if (!(fraction > 0 && fraction <= 1))
      return makeError(where + ": expected fractions above 0 and up to 1");
    last = size;
  }
  return Error::success();
}

StringRef collectiveName(Collective kind) {
  switch (kind) {
  case Collective::AllReduce:
    return "all-reduce";
  case Collective::AllGather:
    return "all-gather";
  case Collective::ReduceScatter:
    return "reduce-scatter";
  case Collective::Send:
    return "send";
  case Collective::AllToAll:
    return "all-to-all";
  case Collective::Shift:
    return "shift";
  }
  return "";
}

std::string collectiveNames() {
  std::string names;
  for (int kind = 0; kind < kCollectiveCount; ++kind) {
    if (kind > 0)
      names += kind + 1 < kCollectiveCount ? ", " : " or ";
    names += ("'" + collectiveName(static_cast<Collective>(kind)) + "'").str();
  }
  return names;
}

std::optional<Collective> parseCollective(StringRef name) {
  for (int kind = 0; kind < kCollectiveCount; ++kind)
    if (name == collectiveName(static_cast<Collective>(kind)))
      return static_cast<Collective>(kind);
  return std::nullopt;
}

double CollectiveTable::seconds(double bytes) const {
  auto x = [&](size_t i) { return static_cast<double>(times[i].first); };
  if (times.size() == 1)
    return times[0].second * bytes / x(0);
  // The piece that `bytes` lies in, or the nearest one.
  size_t i = 1;
  while (i + 1 < times.size() && bytes > x(i))
    ++i;
  double slope = (times[i].second - times[i - 1].second) / (x(i) - x(i - 1));
  return std::max(0.0, times[i - 1].second + slope * (bytes - x(i - 1)));
}

Error CollectiveTable::check(const Twine &where) const {
  if (ranks < 2 || (kind == Collective::Send && ranks != 2))
    return makeError(
        where + ": expected " +
        (kind == Collective::Send ? "2 ranks" : "at least 2 ranks") +
        ", found " + Twine(ranks));
  if (stride < 0 || concurrent < 1)
    return makeError(where + ": expected a stride of at least 1 and at least 1 "
                             "concurrent group");
  if (times.empty())
    return makeError(where + ": expected times [[bytes, seconds], ..]");
  CollectiveTable::Point last = {0, 0};
  for (const Point &point : times) {
    if (point.first <= last.first || point.second < last.second ||
        !(point.second > 0))
      return makeError(where + ": expected sizes in ascending order, and times "
                               "above 0 that do not fall");
    last = point;
  }
  return Error::success();
}

} // namespace galvatron
