//===- DecisionTree.cpp - The strategies of a device group ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

using namespace llvm;

namespace galvatron {

bool SpaceOptions::allows(Paradigm paradigm) const {
  switch (paradigm) {
  case Paradigm::DP:
    return dp;
  case Paradigm::SDP:
    return sdp;
  case Paradigm::TP:
    return tp;
  case Paradigm::ZDP:
    return zdp;
  }
  llvm_unreachable("all paradigms are handled");
}

void SpaceOptions::allowOnly(ArrayRef<Paradigm> paradigms) {
  dp = is_contained(paradigms, Paradigm::DP);
  sdp = is_contained(paradigms, Paradigm::SDP);
  tp = is_contained(paradigms, Paradigm::TP);
  zdp = is_contained(paradigms, Paradigm::ZDP);
}

Expected<std::vector<Paradigm>> parseParadigms(StringRef list) {
  SmallVector<StringRef, 4> names;
  list.split(names, ',');
  std::vector<Paradigm> paradigms;
  for (StringRef name : names) {
    std::optional<Paradigm> paradigm = paradigmNamed(name.trim());
    if (!paradigm)
      return makeError("expected " + paradigmNames() +
                       ", separated by commas, found '" + name.trim() + "'");
    if (is_contained(paradigms, *paradigm))
      return makeError("'" + name.trim() + "' stands twice");
    paradigms.push_back(*paradigm);
  }
  return paradigms;
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0)
      continue;
    low.push_back(i);
    if (i != number / i)
      high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// Appends every way to fill `remaining` devices below the levels so far.
static void grow(int64_t remaining, const SpaceOptions &options,
                 SmallVectorImpl<Level> &levels, std::vector<Strategy> &out) {
  auto has = [&](Paradigm paradigm) {
    return any_of(levels,
                  [&](const Level &l) { return l.paradigm == paradigm; });
  };
  if (remaining == 1) {
    out.push_back(cantFail(Strategy::get(levels, /*checkpoint=*/false)));
    return;
  }
  for (Paradigm paradigm : allParadigms()) {
    if (!options.allows(paradigm) || has(paradigm))
      continue;
    // Two levels that cut the samples: none with ZDP, DP and SDP if asked for.
    bool second =
        traitsOf(paradigm).samples && any_of(levels, [](const Level &level) {
          return traitsOf(level.paradigm).samples;
        });
    if (second &&
        (!options.keepDpSdp || paradigm == Paradigm::ZDP || has(Paradigm::ZDP)))
      continue;
    for (int64_t degree : divisors(remaining)) {
      if (degree == 1)
        continue;
      if (options.tpInnermostOnly && paradigm == Paradigm::TP &&
          degree != remaining)
        continue;
      levels.push_back({paradigm, degree});
      grow(remaining / degree, options, levels, out);
      levels.pop_back();
    }
  }
}

std::vector<Strategy> enumerateStrategies(int64_t devices,
                                          const SpaceOptions &options) {
  std::vector<Strategy> plain;
  SmallVector<Level, 3> levels;
  grow(devices, options, levels, plain);
  std::vector<Strategy> all;
  if (options.checkpoint != CheckpointChoice::Always)
    all = plain;
  if (options.checkpoint != CheckpointChoice::Never)
    for (const Strategy &strategy : plain)
      all.push_back(strategy.withCheckpoint(true));
  llvm::sort(all);
  return all;
}

std::string PipelineStrategy::str() const {
  return "pp" + std::to_string(pipelineDegree) + " " + strategy.str();
}

std::vector<PipelineStrategy> listStrategies(int64_t devices,
                                             const SpaceOptions &options) {
  std::vector<PipelineStrategy> all;
  std::vector<int64_t> degrees = divisors(devices);
  for (int64_t degree : reverse(degrees))
    for (const Strategy &strategy :
         enumerateStrategies(devices / degree, options))
      all.push_back({degree, strategy});
  return all;
}

} // namespace galvatron
