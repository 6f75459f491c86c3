//===- Spaces.cpp - The named variants of the search space ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"
#include "Groups.h"

#include "galvatron/Planner/Planner.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Suggest.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

std::vector<std::string> plannerSpaces() {
  return {"bmw", "base", "no-ckpt", "bi-obj", "1f1b-mem", "1f1b-time", "dp",
          "tp",  "pp",   "sdp",     "3d",     "dp+tp",    "dp+pp"};
}

Expected<Groups> parseGroups(StringRef text) {
  if (text == "equal")
    return Groups::Equal;
  if (text == "any")
    return Groups::Any;
  return makeError("expected 'equal' or 'any', found '" + text + "'");
}

namespace planner {

/// The number of points is that chosen for a layer
/// (Footprint/IRLayerModel.cpp).
static constexpr int64_t kSearchedPoints = 4;

/// ": expected 1, 2 or 4", the sizes that stages of equal groups may have.
static std::string stageSizes(int64_t devices) {
  const std::vector<int64_t> sizes = divisors(devices);
  std::string text = ": expected ";
  for (auto [index, size] : enumerate(sizes)) {
    if (index > 0)
      text += index + 1 < sizes.size() ? ", " : " or ";
    text += std::to_string(size);
  }
  return text;
}

int64_t chunksOf(const PlannerOptions &options) {
  if (!options.schedule)
    return 1;
  // Stages are whole if the schedule can have them.
  Error refused = options.schedule->check({2, 1, 1});
  if (!refused)
    return 1;
  consumeError(std::move(refused));
  return options.chunks ? options.chunks : kDefaultChunks;
}

bool hasAllParadigms(StringRef space) {
  return is_contained({"bmw", "base"}, space);
}

bool fixesParadigms(StringRef space) {
  return is_contained({"dp", "sdp", "tp", "pp", "dp+tp", "dp+pp", "3d"}, space);
}

std::vector<StringRef> containedSpaces(StringRef space, bool ownPartitions) {
  std::vector<StringRef> names;
  if (space == "bmw" || space == "base")
    names.push_back("no-ckpt");
  if (space == "bmw" && ownPartitions)
    llvm::append_range(names, std::initializer_list<StringRef>{
                                  "base", "bi-obj", "1f1b-mem", "1f1b-time"});
  if (space == "bmw" || space == "base" || space == "no-ckpt")
    llvm::append_range(
        names, std::initializer_list<StringRef>{"dp+pp", "3d", "dp+tp", "pp",
                                                "dp", "tp", "sdp"});
  else if (space == "dp+pp")
    names = {"dp", "pp"};
  else if (space == "dp+tp")
    names = {"dp", "tp"};
  return names;
}

Expected<Space> getSpace(const PlannerOptions &options, int64_t devices) {
  Space space;
  space.name = options.space;
  space.trees.keepDpSdp = options.keepDpSdp;
  space.trees.blocksOfBlocks = options.blocksOfBlocks;
  auto only = [&](ArrayRef<Paradigm> paradigms) {
    space.trees.paradigms = paradigms;
    space.trees.checkpoint = CheckpointChoice::Never;
  };
  if (!options.paradigms.empty())
    space.trees.paradigms = ParadigmSet(options.paradigms);
  else
    space.trees.paradigms =
        ParadigmSet::searched(hasAllParadigms(options.space) &&
                              options.objective == Objective::Executed);
  if (options.offload.byLayer())
    for (bool activations : {false, true})
      for (bool states : {false, true})
        if ((activations || states) &&
            (!activations || options.offload.activations) &&
            (!states || options.offloadStates))
          space.homes.push_back({states, activations});
  space.pipelineDegrees = divisors(devices);
  StringRef name = options.space;
  if (name == "bmw") {
    space.partition = PartitionMode::Free;
  } else if (name == "base") {
    // The whole tree, even partitions: the defaults.
  } else if (name == "no-ckpt") {
    space.trees.checkpoint = CheckpointChoice::Never;
  } else if (name == "bi-obj" || name == "1f1b-mem" || name == "1f1b-time") {
    space.trees.checkpoint = CheckpointChoice::Never;
    space.partition = name == "bi-obj"     ? PartitionMode::BiObjective
                      : name == "1f1b-mem" ? PartitionMode::MemoryBalanced
                                           : PartitionMode::TimeBalanced;
  } else if (fixesParadigms(name) && !options.paradigms.empty()) {
    return makeError("space '" + name +
                     "' fixes the paradigms, expected one "
                     "of the spaces bmw, base, no-ckpt, bi-obj, 1f1b-mem and "
                     "1f1b-time with a list of them");
  } else if (name == "dp" || name == "sdp" || name == "tp") {
    only(*ParadigmRegistry::find(name));
    space.pipelineDegrees = {1};
  } else if (name == "pp") {
    only({});
    space.pipelineDegrees = {devices};
  } else if (name == "dp+tp") {
    only({Paradigm::DP, Paradigm::TP});
    space.trees.factorInnermostOnly = true;
    space.pipelineDegrees = {1};
  } else if (name == "dp+pp") {
    only(Paradigm::DP);
  } else if (name == "3d") {
    // Two-way pipelines and tensor parallelism, data parallel for the rest.
    if (devices % 4 != 0)
      return makeError("space '3d' needs a multiple of 4 devices, found " +
                       Twine(devices));
    only({Paradigm::DP, Paradigm::TP});
    space.pipelineDegrees = {2};
    SmallVector<Level, 2> levels;
    if (devices > 4)
      levels.push_back({Paradigm::DP, devices / 4});
    levels.push_back({Paradigm::TP, 2});
    space.fixed = cantFail(Strategy::get(levels, /*checkpoint=*/false));
  } else {
    std::vector<std::string> known = plannerSpaces();
    return makeError("unknown space '" + name + "', expected one of " +
                     join(known, ", ") + didYouMean(name, known));
  }

  // The paper's spaces keep all or nothing.
  if (options.selective && options.objective == Objective::Executed &&
      space.trees.checkpoint == CheckpointChoice::Both)
    space.points = kSearchedPoints;

  if (options.strategy) {
    const Strategy &strategy = *options.strategy;
    if (devices % strategy.devices() != 0)
      return makeError("strategy '" + strategy.str() + "' is for " +
                       Twine(strategy.devices()) +
                       " devices, which does not divide " + Twine(devices) +
                       stageSizes(devices));
    space.fixed = strategy;
    space.pipelineDegrees = {devices / strategy.devices()};
  }
  std::optional<int64_t> forcedDegree = options.pipelineDegree;
  if (!options.partition.empty()) {
    auto stages = static_cast<int64_t>(options.partition.size());
    int64_t chunks = chunksOf(options);
    if (stages % chunks)
      return makeError("the partition has " + Twine(stages) +
                       " numbers, expected a multiple of the " + Twine(chunks) +
                       " chunks of a stage");
    stages /= chunks;
    if (forcedDegree.value_or(stages) != stages)
      return makeError("the partition has " + Twine(stages) +
                       " stages, but the pipeline degree is " +
                       Twine(*forcedDegree));
    forcedDegree = stages;
    space.partition = PartitionMode::Given;
  }
  if (forcedDegree) {
    int64_t degree = *forcedDegree;
    bool unequal = options.groups == Groups::Any && degree <= devices;
    if (degree < 1 || (devices % degree != 0 && !unequal))
      return makeError("pipeline degree " + Twine(degree) +
                       " does not divide the " + Twine(devices) + " devices");
    if (options.strategy && space.pipelineDegrees.front() != degree)
      return makeError("pipeline degree " + Twine(degree) + " leaves " +
                       Twine(devices / degree) +
                       " devices per stage, but "
                       "strategy '" +
                       options.strategy->str() + "' is for " +
                       Twine(options.strategy->devices()));
    if (!is_contained(space.pipelineDegrees, degree) && !unequal)
      return makeError("space '" + name + "' does not have pipeline degree " +
                       Twine(degree) + " on " + Twine(devices) + " devices");
    space.pipelineDegrees = {degree};
  }
  return space;
}

Error applyGroups(const Cluster &cluster, const PlannerOptions &options,
                  Space &space) {
  std::string without;
  if (space.name != "bmw")
    without = "space '" + space.name + "'";
  else if (options.strategy)
    without = "one strategy for all layers";
  else if (!options.pins.empty())
    without = "strategies of layers given";
  else if (space.partition != PartitionMode::Free)
    without = "a partition";
  else if (options.microBatchRule == MicroBatchRule::Paper)
    without = "the paper's micro-batches";
  else if (options.offload != Offload::Off && !options.offload.byLayer())
    without = "offload '" + offloadName(options.offload) + "'";
  else if (chunksOf(options) > 1)
    without = ("schedule '" + options.schedule->name() + "'").str();
  if (options.groups == Groups::Any && !without.empty())
    return makeError("unequal groups of devices are not searched with " +
                     without);
  space.anyGroups =
      without.empty() &&
      (options.groups ? *options.groups == Groups::Any : isMixed(cluster));
  return Error::success();
}

Error applyPins(const LayerModel &model, int64_t devices,
                const PlannerOptions &options, Space &space) {
  if (options.pins.empty())
    return Error::success();
  Expected<std::vector<std::optional<Strategy>>> pins =
      resolvePins(model, options.pins);
  if (!pins)
    return pins.takeError();
  // Stages are of equal size, so that one strategy decides it for all.
  std::optional<Strategy> first;
  std::string firstLayer;
  for (size_t layer = 0; layer < pins->size(); ++layer) {
    const std::optional<Strategy> &pin = (*pins)[layer];
    if (!pin)
      continue;
    if (devices % pin->devices() != 0)
      return makeError("strategy '" + pin->str() + "' of layer '" +
                       model.layerName(layer) + "' is for " +
                       Twine(pin->devices()) +
                       " devices, which does not divide " + Twine(devices) +
                       stageSizes(devices));
    if (first && first->devices() != pin->devices())
      return makeError("strategy '" + first->str() + "' of layer '" +
                       firstLayer + "' is for stages of " +
                       Twine(first->devices()) + " devices, '" + pin->str() +
                       "' of layer '" + model.layerName(layer) +
                       "' for stages of " + Twine(pin->devices()) +
                       ": all stages have equally many");
    if (!first) {
      first = *pin;
      firstLayer = model.layerName(layer);
    }
  }
  if (!first)
    return Error::success();
  if (options.strategy && options.strategy->devices() != first->devices())
    return makeError(
        "strategy '" + options.strategy->str() + "' is for stages of " +
        Twine(options.strategy->devices()) + " devices, '" + first->str() +
        "' of layer '" + firstLayer + "' for stages of " +
        Twine(first->devices()) + ": all stages have equally many");
  int64_t degree = devices / first->devices();
  if (!is_contained(space.pipelineDegrees, degree))
    return makeError("strategy '" + first->str() + "' of layer '" + firstLayer +
                     "' takes pipeline degree " + Twine(degree) + " on " +
                     Twine(devices) + " devices, which " +
                     (options.pipelineDegree || !options.partition.empty()
                          ? "is not the one asked for"
                          : "space '" + space.name + "' does not have"));
  space.pipelineDegrees = {degree};
  space.pins = std::move(*pins);
  return Error::success();
}

std::vector<Strategy> Space::strategies(int64_t groupSize) const {
  std::vector<Strategy> all;
  if (!fixed)
    all = enumerateStrategies(groupSize, trees);
  else if (fixed->devices() == groupSize)
    all = {*fixed};
  for (size_t i = 0, count = fixed ? 0 : all.size(); i < count; ++i)
    for (int64_t point = 1; point <= points && !all[i].checkpoint(); ++point)
      all.push_back(all[i].withPoint(point));
  // Strategies that say it themselves have no other.
  size_t plain = all.size();
  for (LayerHome home : homes)
    for (size_t i = 0; i < plain; ++i)
      if (!all[i].home())
        all.push_back(all[i].withHome(home));
  return all;
}

} // namespace planner
} // namespace galvatron
