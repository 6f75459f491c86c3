//===- LongSamples.cpp - Strategies that cut positions --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LongSamples.h"

#include "Spaces.h"
#include "galvatron/Support/Units.h"

#include <map>
#include <numeric>

using namespace llvm;

namespace galvatron::planner {

/// Bytes that the layers keep of one sample on one device, with all inputs;
/// layers that no single device can have count nothing.
static int64_t keptOfOneSample(LayerModel &model) {
  std::vector<std::optional<int64_t>> byKind;
  int64_t bytes = 0;
  for (size_t layer = 0; layer < model.layerCount(); ++layer) {
    const size_t kind = model.kindOf(layer);
    if (kind >= byKind.size())
      byKind.resize(kind + 1);
    if (!byKind[kind]) {
      Expected<LayerFootprint> one =
          model.footprint(kind, Strategy(), /*samples=*/1);
      byKind[kind] = one ? one->inputBytes + one->stashBytes : 0;
      if (!one)
        consumeError(one.takeError());
    }
    bytes += *byKind[kind];
  }
  return bytes;
}

/// Why samples are cut into blocks of positions; empty if they are not.
static std::string whyCut(LayerModel &model, const Cluster &cluster,
                          const PlannerOptions &options) {
  const int64_t positions = model.sequenceLength();
  if (positions < kLeastPositions)
    return "";
  const int64_t devices = cluster.deviceCount();
  if (options.batch && *options.batch < devices)
    return std::to_string(devices) + " devices have " +
           std::to_string(*options.batch) +
           (*options.batch == 1 ? " sample" : " samples") + " of " +
           std::to_string(positions) + " positions";
  std::vector<int64_t> all(devices);
  std::iota(all.begin(), all.end(), 0);
  const int64_t kept = keptOfOneSample(model);
  const int64_t memory = cluster.budgetOf(all, options.memory);
  if (kept <= memory)
    return "";
  return "the layers keep " + printBytesRounded(kept) + " of a sample of " +
         std::to_string(positions) + " positions, a device has " +
         printBytesRounded(memory);
}

LongSamples findLongSamples(LayerModel &model, const Cluster &cluster,
                            const PlannerOptions &options) {
  LongSamples found;
  const bool isExecuted = options.objective == Objective::Executed;
  const ParadigmSet narrow = ParadigmSet::searched(isExecuted);
  for (Paradigm paradigm : ParadigmRegistry::all())
    if (narrow.contains(paradigm))
      found.narrow.push_back(paradigm);
  found.wide = found.narrow;
  const bool isOpen = options.paradigms.empty() && !options.strategy &&
                      isExecuted && hasAllParadigms(options.space);
  if (!isOpen)
    return found;
  found.reason = whyCut(model, cluster, options);
  if (found.reason.empty())
    return found;
  std::map<std::pair<LayerAxis, PositionsMeet>, std::vector<Paradigm>> ways;
  for (Paradigm paradigm : ParadigmRegistry::all()) {
    if (paradigm->searched != SearchedIn::Long)
      continue;
    found.wide.push_back(paradigm);
    auto [way, isNew] =
        ways.try_emplace({paradigm->axis, paradigm->meet}, found.narrow);
    way->second.push_back(paradigm);
  }
  for (auto &[key, way] : ways)
    found.ways.push_back(std::move(way));
  return found;
}

} // namespace galvatron::planner
