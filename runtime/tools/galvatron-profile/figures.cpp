//===- figures.cpp - What hosts reach, and their types --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "measure.h"

#include <algorithm>
#include <cmath>

namespace grt::profile {
namespace {

/// The figures of one after the other; `each` visits every one.
template <typename Figures, typename Visit>
void visitFigures(Figures &m, Visit each) {
  for (auto *curve : {&m.products, &m.attention})
    for (auto &point : *curve)
      each(point.second);
  for (auto *value :
       {&m.f32Flops, &m.f64Flops, &m.bf16Flops, &m.memoryBandwidth,
        &m.copyBandwidth, &m.kernelOverhead, &m.optimizerBandwidth})
    each(*value);
  for (auto &kernel : m.kernels)
    each(kernel.seconds);
}

} // namespace

std::vector<double> figuresOf(const Measurement &measurement) {
  std::vector<double> figures;
  visitFigures(measurement, [&](double value) { figures.push_back(value); });
  return figures;
}

void setFigures(Measurement &measurement, const std::vector<double> &figures) {
  size_t next = 0;
  visitFigures(measurement, [&](double &value) { value = figures[next++]; });
}

std::vector<int> ranksOf(const std::vector<int> &hosts, int host) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    if (hosts[rank] == host)
      ranks.push_back(int(rank));
  return ranks;
}

void shareFigures(Communicator &communicator, int hosts, Measurement &result) {
  std::vector<double> own = figuresOf(result);
  own.push_back(result.cores);
  own.push_back(result.threadsPerRank);
  const std::vector<double> all = gatherOfRanks<double>(
      communicator, MessageKind::Times, std::span<const double>(own));
  auto figures = [&](int rank) {
    auto begin = all.begin() + ptrdiff_t(size_t(rank) * own.size());
    return std::vector<double>(begin, begin + ptrdiff_t(own.size()));
  };
  std::vector<double> sum(own.size() - 2);
  for (int rank = 0; rank < communicator.size(); ++rank)
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += figures(rank)[i] / double(communicator.size());
  for (int host = 0; host < hosts; ++host) {
    std::vector<double> its = figures(ranksOf(result.hosts, host).front());
    Measurement of = result;
    of.ofHosts.clear();
    of.threadsPerRank = int(its.back());
    its.pop_back();
    of.cores = int(its.back());
    its.pop_back();
    setFigures(of, its);
    result.ofHosts.push_back(std::move(of));
  }
  setFigures(result, sum);
}

std::vector<int> typesOfHosts(const Measurement &measurement) {
  constexpr double different = 1.25;
  // Over all sizes: a single one may have met something else.
  auto speed = [](const Measurement &host) {
    double logarithms = 0;
    for (auto [size, flops] : host.products)
      logarithms += std::log(flops);
    return std::exp(logarithms /
                    double(std::max<size_t>(host.products.size(), 1)));
  };
  std::vector<int> types;
  std::vector<double> first; ///< speed of each type's first host
  for (const Measurement &host : measurement.ofHosts) {
    double own = speed(host);
    size_t type = 0;
    while (type < first.size() &&
           std::max(own, first[type]) > different * std::min(own, first[type]))
      ++type;
    if (type == first.size())
      first.push_back(own);
    types.push_back(int(type));
  }
  return types;
}

} // namespace grt::profile
