//===- DecisionTree.cpp - The strategies of a device group ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron {

Expected<std::vector<Paradigm>> parseParadigms(StringRef list) {
  SmallVector<StringRef, 4> names;
  list.split(names, ',');
  std::vector<Paradigm> paradigms;
  for (StringRef name : names) {
    std::optional<Paradigm> paradigm = ParadigmRegistry::find(name.trim());
    if (!paradigm)
      return makeError("expected " + ParadigmRegistry::names() +
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
  if (remaining == 1) {
    out.push_back(cantFail(Strategy::get(levels, /*checkpoint=*/false)));
    return;
  }
  auto dropped = [&](Paradigm paradigm) {
    return any_of(levels, [&](const Level &level) {
      return level.paradigm == paradigm ||
             !whyNotBeside(paradigm, level.paradigm).empty() ||
             (!options.blocksOfBlocks &&
              cutsBlocks(paradigm, level.paradigm)) ||
             (paradigm->splitsBatch && level.paradigm->splitsBatch &&
              !options.keepDpSdp);
    });
  };
  for (Paradigm paradigm : ParadigmRegistry::all()) {
    if (!options.paradigms.contains(paradigm) || dropped(paradigm))
      continue;
    for (int64_t degree : divisors(remaining)) {
      if (degree == 1)
        continue;
      if (options.factorInnermostOnly && paradigm->hasAxis() &&
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
