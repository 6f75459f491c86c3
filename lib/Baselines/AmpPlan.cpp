//===- AmpPlan.cpp - AMP on a model's layers ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// AMP measures the first few plans of its estimate and returns the fastest. So
// does this, with the simulator in place of a run, unless the paper's objective
// is asked for.
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"

#include "galvatron/Baselines/AmpSearch.h"
#include "galvatron/Planner/Limits.h"
#include "galvatron/Support/TextTable.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <chrono>

using namespace llvm;

namespace galvatron::baselines {

namespace {

/// How many of the estimate's first plans are simulated: as many as the paper
/// measures. Its best ones stood third, second and first.
constexpr size_t kSimulated = 10;

Plan toPlan(LayerModel &model, const PlannerOptions &options,
            const AmpPlan &found) {
  Plan plan;
  plan.space = options.space;
  plan.training = options.training;
  plan.toolVersion = options.toolVersion;
  plan.objective = options.objective;
  plan.batch = *options.batch;
  plan.microBatches = found.shape.microBatches;
  plan.pipelineDegree = found.shape.pipelineDegree;
  Strategy strategy = found.shape.strategy();
  int64_t layer = 0;
  for (size_t s = 0; s < found.devices.size(); ++s) {
    PlanStage stage;
    stage.devices = found.devices[s];
    stage.firstLayer = layer;
    stage.layerCount = found.layersPerStage[s];
    for (int64_t i = 0; i < stage.layerCount; ++i, ++layer)
      plan.layers.push_back(
          {model.layerName(layer), static_cast<int64_t>(s), strategy});
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

/// A plan of the search, and what the simulator says of it, if it was asked.
struct Ranked {
  AmpPlan found;
  std::optional<Plan> priced;
  double formulaMs = 0; ///< of the priced plan
};

json::Object candidateJson(const Ranked &ranked) {
  const AmpShape &shape = ranked.found.shape;
  json::Object candidate{
      {"pipeline-degree", shape.pipelineDegree},
      {"data-degree", shape.dataDegree},
      {"tensor-degree", shape.tensorDegree},
      {"micro-batch-size", shape.microBatchSize},
      {"micro-batches", shape.microBatches},
      {"recompute", shape.recompute},
      {"estimate-ms", toMilliseconds(ranked.found.total())},
      {"layers-per-stage", json::Array(ranked.found.layersPerStage)}};
  if (ranked.priced)
    candidate["simulated-ms"] = ranked.priced->iterationMs;
  return candidate;
}

std::string layersText(const AmpPlan &plan) {
  std::string text;
  for (int64_t layers : plan.layersPerStage)
    text += (text.empty() ? "" : " ") + std::to_string(layers);
  return text;
}

std::string table(const Plan &plan, const Ranked &chosen,
                  ArrayRef<Ranked> ranking, const AmpResult &result,
                  const Cluster &cluster, const PlanLimits &limits) {
  std::string text;
  raw_string_ostream os(text);
  os << "plan for '" << plan.model << "' on '" << plan.cluster << "', space "
     << plan.space << "\n"
     << "  " << chosen.found.shape.str() << ", " << plan.microBatches
     << (plan.microBatches == 1 ? " micro-batch" : " micro-batches")
     << ", schedule 1f1b\n"
     << format("  a batch of %lld in %.3f ms%s, %.2f samples/s; the estimate "
               "is %.3f ms, of which %.3f ms at the end\n",
               static_cast<long long>(plan.batch), plan.iterationMs,
               chosen.priced ? " by the simulator" : "", plan.samplesPerSecond,
               toMilliseconds(chosen.found.total()),
               toMilliseconds(chosen.found.end));
  os << "  " << result.plans.size() << " of " << result.shapes
     << " candidates fit; the first of them by the estimate:\n";
  if (result.refused)
    os << "  " << result.refused
       << " candidates are left out: " << result.refusal << "\n";
  TextTable first("rlrrl");
  first.row({"", "candidate", "estimate", "simulated", "layers"});
  for (size_t i = 0; i < std::min(ranking.size(), kSimulated); ++i)
    first.row({std::to_string(i + 1), ranking[i].found.shape.str(),
               printMilliseconds(toMilliseconds(ranking[i].found.total())),
               ranking[i].priced
                   ? printMilliseconds(ranking[i].priced->iterationMs)
                   : "-",
               layersText(ranking[i].found)});
  first.print(os);
  limits.print(os, cluster, plan);
  TextTable rows("llrrl");
  rows.row(
      {"stage", "devices", "layers", "ms a micro-batch", "memory, estimated"});
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage &stage = plan.stages[s];
    rows.row({std::to_string(s), deviceRange(stage.devices),
              std::to_string(stage.layerCount),
              formatv("{0:f3}", stage.timeNosyncMs).str(),
              printBytesRounded(stage.peakBytes) + " of " +
                  printBytesRounded(stage.availableBytes)});
  }
  rows.print(os);
  return text;
}

Infeasible whyNothing(const PlannerOptions &options, const Cluster &cluster,
                      const AmpResult &result) {
  Infeasible infeasible;
  if (result.shapes == 0 && result.refused)
    infeasible.reason = result.refusal;
  else if (result.shapes == 0)
    infeasible.reason =
        "no number of stages, replicas and tensor ranks cuts the batch of " +
        std::to_string(*options.batch) + " and the " +
        std::to_string(cluster.deviceCount()) + " devices evenly";
  else
    infeasible.reason = "no plan of space '" + options.space +
                        "' fits: a device needs about " +
                        printBytesRounded(result.neededBytes);
  infeasible.neededBytes = result.neededBytes;
  infeasible.availableBytes = result.availableBytes;
  return infeasible;
}

/// The plans of a search, and the fastest of those that were simulated.
struct AmpChoice {
  AmpResult result;
  std::vector<Ranked> ranking;
  size_t chosen = 0;
};

Expected<AmpChoice> choose(LayerModel &model, const Cluster &cluster,
                           const PlannerOptions &options,
                           const AmpOptions &amp) {
  AmpProblem problem;
  problem.batch = *options.batch;
  problem.memory = options.memory;
  problem.ring = amp.ring.value_or(RingLink::Neighbours);
  problem.placement = amp.placement.value_or(Placement::Heuristic);
  problem.seed = amp.seed;
  problem.pipelineDegree = options.pipelineDegree;
  problem.microBatches = options.microBatches;
  problem.cancellation = options.cancellation;
  problem.progress = options.progress;
  Expected<AmpResult> result = options.space == "amp"
                                   ? searchAmp(model, cluster, problem)
                                   : megatronHeuristic(model, cluster, problem);
  if (!result)
    return result.takeError();
  AmpChoice choice;
  choice.result = std::move(*result);
  bool executed = options.objective == Objective::Executed;
  for (const AmpPlan &found : choice.result.plans) {
    choice.ranking.push_back({found, std::nullopt, 0});
    size_t last = choice.ranking.size() - 1;
    if (last >= (executed ? kSimulated : 1))
      continue;
    Expected<PlannerResult> priced =
        evaluate(model, cluster, toPlan(model, options, found), options.memory);
    if (!priced)
      return priced.takeError();
    if (!priced->feasible())
      return makeError("space '" + options.space +
                       "': a plan does not fit as it was found: " +
                       priced->infeasible().reason);
    choice.ranking[last].priced = priced->plan();
    choice.ranking[last].formulaMs = priced->formulaMs;
    if (choice.ranking[last].priced->iterationMs <
        choice.ranking[choice.chosen].priced->iterationMs)
      choice.chosen = last;
  }
  return choice;
}

} // namespace

Expected<PlannerResult> planAmp(LayerModel &model, const Cluster &cluster,
                                const PlannerOptions &options,
                                const AmpOptions &amp) {
  auto begin = std::chrono::steady_clock::now();
  Expected<AmpChoice> choice = choose(model, cluster, options, amp);
  if (!choice)
    return choice.takeError();
  if (choice->result.plans.empty())
    return PlannerResult{
        whyNothing(options, cluster, choice->result), {}, {}, 0};
  const Ranked &chosen = choice->ranking[choice->chosen];
  Plan plan = *chosen.priced;
  plan.searchMs = std::chrono::duration<double, std::milli>(
                      std::chrono::steady_clock::now() - begin)
                      .count();
  std::vector<std::string> decisions = {
      std::to_string(choice->result.plans.size()) + " of " +
          std::to_string(choice->result.shapes) + " candidates fit",
      "chosen: " + chosen.found.shape.str()};
  if (choice->result.refused)
    decisions.push_back(std::to_string(choice->result.refused) +
                        " candidates are left out: " + choice->result.refusal);
  return PlannerResult{
      std::move(plan), std::move(decisions), {}, 0, chosen.formulaMs};
}

Expected<BaselineReport> reportAmp(LayerModel &model, const Cluster &cluster,
                                   const PlannerOptions &options,
                                   const AmpOptions &amp) {
  auto begin = std::chrono::steady_clock::now();
  Expected<AmpChoice> choice = choose(model, cluster, options, amp);
  if (!choice)
    return choice.takeError();
  const AmpResult *result = &choice->result;
  std::vector<Ranked> &ranking = choice->ranking;
  size_t chosen = choice->chosen;
  BaselineReport answer;
  if (result->plans.empty()) {
    answer.infeasible = whyNothing(options, cluster, *result);
    return answer;
  }
  Plan plan = *ranking[chosen].priced;
  if (options.objective != Objective::Executed) {
    plan.iterationMs = toMilliseconds(ranking[chosen].found.total());
    plan.samplesPerSecond =
        1000 * static_cast<double>(plan.batch) / plan.iterationMs;
    ranking[chosen].priced.reset();
  }
  plan.searchMs = std::chrono::duration<double, std::milli>(
                      std::chrono::steady_clock::now() - begin)
                      .count();
  Expected<PlanLimits> limits = planLimits(model, cluster, plan);
  if (!limits)
    return limits.takeError();
  answer.text =
      table(plan, ranking[chosen], ranking, *result, cluster, *limits);
  json::Value value = plan.toJson();
  answer.json = std::move(*value.getAsObject());
  answer.json["placement"] =
      placementName(amp.placement.value_or(Placement::Heuristic));
  answer.json["estimate-ms"] = toMilliseconds(ranking[chosen].found.total());
  answer.json["limits"] = limits->toJson();
  json::Array candidates;
  for (const Ranked &ranked : ranking)
    candidates.push_back(candidateJson(ranked));
  answer.json["candidates"] = std::move(candidates);
  return answer;
}

} // namespace galvatron::baselines
