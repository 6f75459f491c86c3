//===- Baselines.cpp - Planners of other publications ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Offloads.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

static constexpr std::pair<Placement, StringLiteral> placements[] = {
    {Placement::Heuristic, "heuristic"}, {Placement::Anneal, "anneal"}};

StringRef placementName(Placement placement) {
  for (const auto &[kind, name] : placements)
    if (kind == placement)
      return name;
  llvm_unreachable("every placement has a name");
}

Expected<Placement> parsePlacement(StringRef text) {
  std::string known;
  for (const auto &[kind, name] : placements) {
    if (text == name)
      return kind;
    known += (known.empty() ? "'" : ", '") + name.str() + "'";
  }
  return makeError("unknown placement '" + text + "', expected one of " +
                   known);
}

std::vector<std::string> baselineSpaces() {
  return {"amp", "megatron-heuristic", "2bw", "harmony-pp", "harmony-dp"};
}

bool isBaseline(StringRef space) {
  return is_contained(baselineSpaces(), space);
}

bool isExecutedSpace(StringRef space) {
  return isBaseline(space) && space != "2bw";
}

std::string notExecutedSpace(StringRef space) {
  // The schedule is, as other spaces plan it.
  return ("its plans are not compiled, expected --schedule=" + space).str();
}

Error baselines::refuse(const PlannerOptions &options, const Twine &what) {
  return makeError("space '" + options.space + "': " + what);
}

bool baselines::isHarmonySpace(StringRef space) {
  return space == "harmony-pp" || space == "harmony-dp";
}

/// Whether options have a meaning in a baseline.
static Error checkBaseline(LayerModel &model, const Cluster &cluster,
                           const PlannerOptions &options) {
  auto refuse = [&](const Twine &what) {
    return baselines::refuse(options, what);
  };
  if (!options.batch)
    return refuse("expected --batch, which is not searched");
  if (options.strategy)
    return refuse("expected no --strategy, its stages have one of their own");
  if (!options.pins.empty())
    return refuse("expected no --layers, its stages have one strategy");
  if (!options.partition.empty())
    return refuse("expected no --partition, it is searched");
  if (options.schedule || options.anySchedule)
    return refuse("expected no --schedule, it is the space's own");
  if (options.microBatchRule != MicroBatchRule::Search)
    return refuse("expected no --micro-batch-rule, all numbers are tried");
  std::vector<int64_t> all(cluster.deviceCount());
  std::iota(all.begin(), all.end(), 0);
  return checkDevices(model, cluster, all);
}

static Error checkAmpOptions(const PlannerOptions &options,
                             const AmpOptions &amp) {
  if (options.space == "amp" || (!amp.placement && !amp.ring))
    return Error::success();
  return baselines::refuse(options, "expected neither --placement nor "
                                    "--ring-link, which are of space 'amp'");
}

static Expected<PlannerResult> planBaseline(LayerModel &model,
                                            const Cluster &cluster,
                                            const PlannerOptions &options,
                                            const AmpOptions &amp) {
  bool isHarmony = baselines::isHarmonySpace(options.space);
  if (!isHarmony && options.offload != Offload::Off)
    return makeError("space '" + options.space +
                     "' has all states on the devices, found offload '" +
                     offloadName(options.offload) + "'");
  if (Error error = checkBaseline(model, cluster, options))
    return std::move(error);
  return isHarmony ? baselines::planHarmony(model, cluster, options)
                   : baselines::planAmp(model, cluster, options, amp);
}

/// Packs have all states at home; where nothing looks at all gradients they may
/// be updated just in time, there or on the devices.
static std::vector<Offload> homesOfPacks(const PlannerOptions &options) {
  std::vector<Offload> list{Offload::All};
  if (options.training.clip)
    return list;
  for (bool onDevice : {false, true}) {
    list.push_back(Offload::All);
    list.back().justInTime = true;
    list.back().updateOnDevice = onDevice;
  }
  return list;
}

Expected<PlannerResult> planSpace(LayerModel &model, const Cluster &cluster,
                                  const PlannerOptions &options,
                                  const AmpOptions &amp) {
  if (!isBaseline(options.space)) {
    std::vector<std::string> known = plannerSpaces();
    bool isKnown = is_contained(known, options.space);
    copy_if(baselineSpaces(), std::back_inserter(known), isExecutedSpace);
    if (!isKnown)
      return makeError("unknown space '" + options.space +
                       "', expected one of " + join(known, ", ") +
                       didYouMean(options.space, known));
    if (Error error = checkAmpOptions(options, amp))
      return std::move(error);
    return plan(model, cluster, options);
  }
  if (!isExecutedSpace(options.space))
    return baselines::refuse(options, notExecutedSpace(options.space));
  if (Error error = checkAmpOptions(options, amp))
    return std::move(error);
  bool isHarmony = baselines::isHarmonySpace(options.space);
  if (options.anyOffload && !isHarmony)
    return makeError("space '" + options.space +
                     "' says where states have their home, found offload "
                     "'any'");
  auto planOn = [&](const Cluster &some, const PlannerOptions &asked) {
    return planBaseline(model, some, asked, amp);
  };
  auto planHomes = [&](const Cluster &some, const PlannerOptions &asked) {
    return asked.anyOffload ? planner::planEachOffload(
                                  some, asked, homesOfPacks(asked), planOn)
                            : planOn(some, asked);
  };
  return options.mayIdle ? planner::planIdle(model, cluster, options, planHomes)
                         : planHomes(cluster, options);
}

Expected<BaselineReport> reportBaseline(LayerModel &model,
                                        const Cluster &cluster,
                                        const PlannerOptions &options,
                                        const AmpOptions &amp, bool simulate) {
  auto refuse = [&](const Twine &what) {
    return baselines::refuse(options, what);
  };
  if (!isBaseline(options.space))
    return refuse("expected one of the baselines");
  if (Error error = checkBaseline(model, cluster, options))
    return std::move(error);
  if (Error error = checkAmpOptions(options, amp))
    return std::move(error);
  if (isExecutedSpace(options.space) &&
      !baselines::isHarmonySpace(options.space))
    return baselines::reportAmp(model, cluster, options, amp);
  if (!cluster.isUniform())
    return refuse("expected devices of one type");
  if (options.space == "2bw")
    return baselines::reportTwoBuffers(model, cluster, options, simulate);
  if (options.pipelineDegree || options.microBatches)
    return refuse("expected neither --pipeline-degree nor --micro-batches, "
                  "packs and sizes are searched");
  if (cluster.nodeCount() > 1)
    return refuse("expected a cluster of one node, found " +
                  Twine(cluster.nodeCount()));
  return baselines::reportHarmony(model, cluster, options);
}

} // namespace galvatron
