//===- ExchangeName.cpp - Names of exchanges inside layers ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ExchangeName.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

static double secondsOf(const LayerCollective &work,
                        const StrategyLinks &links) {
  const auto calls = static_cast<double>(std::max<int64_t>(work.calls, 1));
  return calls *
         links.of(work.among)
             .seconds(work.kind, static_cast<double>(work.bytes) / calls);
}

std::string exchangeName(const LayerFootprint &footprint,
                         const StrategyLinks &links,
                         ArrayRef<CollectiveTime> times) {
  using Kind = std::pair<CollectiveGroup, Collective>;
  SmallVector<std::pair<Kind, double>, 4> kinds;
  for (const LayerCollective &work : footprint.collectives) {
    if (!isInsideFunctions(work.among) || !is_contained(times, work.when))
      continue;
    const Kind kind = {work.among, work.kind};
    auto *known =
        find_if(kinds, [&](const auto &each) { return each.first == kind; });
    if (known == kinds.end())
      known = &kinds.emplace_back(kind, 0);
    known->second += secondsOf(work, links);
  }
  stable_sort(kinds,
              [](const auto &a, const auto &b) { return a.second > b.second; });
  return join(map_range(kinds,
                        [](const auto &each) {
                          const bool isTensor =
                              each.first.first == CollectiveGroup::Tensor;
                          return (Twine(isTensor ? "tp " : "cp ") +
                                  collectiveName(each.first.second))
                              .str();
                        }),
              " + ");
}

double exchangeSeconds(const LayerFootprint &footprint,
                       const StrategyLinks &links, CollectiveGroup among) {
  double seconds = 0;
  for (const LayerCollective &work : footprint.collectives)
    if (work.among == among && work.when != CollectiveTime::Step &&
        work.when != CollectiveTime::Update)
      seconds += secondsOf(work, links);
  return seconds;
}

} // namespace galvatron
