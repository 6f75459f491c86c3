//===- Explain.cpp - Runner-up plans and changed conditions ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"

#include "Spaces.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Rate.h"
#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace llvm;

namespace galvatron {

//===----------------------------------------------------------------------===//
// Words and figures
//===----------------------------------------------------------------------===//

double throughputChange(const Plan &from, const Plan &to) {
  return from.samplesPerSecond > 0
             ? to.samplesPerSecond / from.samplesPerSecond - 1
             : 0;
}

std::vector<std::string> planDifferences(const Plan &from, const Plan &to) {
  std::vector<std::string> list;
  auto number = [&](const char *name, int64_t a, int64_t b) {
    if (a != b)
      list.push_back((Twine(name) + " " + Twine(a) + " -> " + Twine(b)).str());
  };
  number("batch", from.batch, to.batch);
  number("pipeline degree", from.pipelineDegree, to.pipelineDegree);
  number("micro-batches", from.microBatches, to.microBatches);
  if (from.schedule != to.schedule)
    list.push_back(
        ("schedule " + from.schedule->name() + " -> " + to.schedule->name())
            .str());
  number("chunks a stage", from.chunksPerStage(), to.chunksPerStage());
  if (from.offload != to.offload)
    list.push_back("offload " + offloadName(from.offload) + " -> " +
                   offloadName(to.offload));
  size_t moved = 0, changed = 0, checkpointed = 0, kept = 0;
  int64_t more = 0;
  size_t count = std::min(from.layers.size(), to.layers.size());
  for (size_t l = 0; l < count; ++l) {
    const Strategy &a = from.layers[l].strategy, &b = to.layers[l].strategy;
    moved += from.layers[l].stage != to.layers[l].stage;
    changed += a.withCheckpoint(false) != b.withCheckpoint(false);
    checkpointed += a.checkpoint() != b.checkpoint();
    more += b.checkpoint() - a.checkpoint();
    // Points of layers under other strategies say nothing of each other.
    kept += a.withCheckpoint(false) == b.withCheckpoint(false) &&
            a.checkpoint() == b.checkpoint() && a.point() != b.point();
  }
  auto layers = [&](size_t some, const char *text) {
    if (some)
      list.push_back(std::to_string(some) + " of " + std::to_string(count) +
                     " layers " + text);
  };
  if (from.pipelineDegree == to.pipelineDegree)
    layers(moved, "on another stage");
  layers(changed, "with another strategy");
  if (checkpointed && std::abs(more) == static_cast<int64_t>(checkpointed))
    list.push_back(std::to_string(checkpointed) +
                   (more > 0 ? " more" : " fewer") +
                   (checkpointed == 1 ? " layer" : " layers") + " recomputed");
  else
    layers(checkpointed, "recomputed in one plan only");
  layers(kept, "that keep other values");
  return list;
}

static int64_t peakOf(const Plan &plan) {
  int64_t peak = 0;
  for (const PlanStage &stage : plan.stages)
    peak = std::max(peak, stage.peakBytes);
  return peak;
}

json::Object planFigures(const Plan &plan) {
  json::Array strategies;
  for (LayerRun run : plan.runs()) {
    const PlanLayer &first = plan.layers[run.begin];
    strategies.push_back(
        json::Object{{"first-layer", static_cast<int64_t>(run.begin)},
                     {"layer-count", static_cast<int64_t>(run.size())},
                     {"stage", first.stage},
                     {"strategy", first.strategy.str()}});
  }
  TimeSplit split = plan.timeSplit();
  return json::Object{{"summary", plan.summary()},
                      {"batch", plan.batch},
                      {"micro-batches", plan.microBatches},
                      {"schedule", plan.schedule->name()},
                      {"pipeline-degree", plan.pipelineDegree},
                      {"iteration-ms", plan.iterationMs},
                      {"samples-per-second", plan.samplesPerSecond},
                      {"peak-bytes", peakOf(plan)},
                      {"compute-ms", split.computeMs},
                      {"communication-ms", split.communicationMs},
                      {"optimizer-ms", split.optimizerMs},
                      {"bubble-ms", split.bubbleMs},
                      {"runs", std::move(strategies)}};
}

std::string shortReason(const Infeasible &infeasible) {
  if (infeasible.stage < 0 || infeasible.neededBytes == 0)
    return infeasible.reason;
  return "stage " + std::to_string(infeasible.stage) + " needs " +
         printBytesRounded(infeasible.neededBytes) + " of " +
         printBytesRounded(infeasible.availableBytes);
}

//===----------------------------------------------------------------------===//
// explain
//===----------------------------------------------------------------------===//

namespace {

class Explainer {
public:
  Explainer(LayerModel &model, const Cluster &cluster, PlannerOptions options,
            const Plan &chosen)
      : model(model), cluster(cluster), options(std::move(options)),
        chosen(chosen) {
    this->options.relaxations = false;
  }

  Expected<Explanation> run();

private:
  Alternative replan(std::string what, const PlannerOptions &changed,
                     const Cluster &on, bool *refused = nullptr) {
    Alternative alternative{std::move(what), std::nullopt, ""};
    if (options.isLate()) {
      alternative.reason = kTimeWasUp;
      return alternative;
    }
    Expected<PlannerResult> result = plan(model, on, changed);
    // A search that was stopped says nothing of the best plan.
    if (result && options.isLate()) {
      alternative.reason = kTimeWasUp;
      return alternative;
    }
    if (refused)
      *refused = !result;
    if (!result)
      alternative.reason = toString(result.takeError());
    else if (!result->feasible())
      alternative.reason = shortReason(result->infeasible());
    else
      alternative.plan = result->plan();
    return alternative;
  }
  Alternative replan(std::string what, const PlannerOptions &changed) {
    return replan(std::move(what), changed, cluster);
  }

  void addRunnerUp(Alternative alternative);
  void addDegrees();
  void addMicroBatches();
  void addOffloads();
  void addSpaces();
  void addForced();
  void addChanges();

  LayerModel &model;
  const Cluster &cluster;
  PlannerOptions options;
  const Plan &chosen;
  Explanation result;
};

/// An entry of its own, or one more name for a plan, or a reason why there is
/// none, that is there already.
void Explainer::addRunnerUp(Alternative alternative) {
  const std::optional<Plan> &plan = alternative.plan;
  if (plan && planDifferences(chosen, *plan).empty()) {
    result.samePlan.push_back(alternative.what);
    return;
  }
  auto known = find_if(result.runnersUp, [&](const Alternative &other) {
    if (plan && other.plan)
      return planDifferences(*other.plan, *plan).empty();
    return !plan && !other.plan && other.reason == alternative.reason;
  });
  if (known != result.runnersUp.end())
    known->what += ", " + alternative.what;
  else
    result.runnersUp.push_back(std::move(alternative));
}

void Explainer::addDegrees() {
  if (options.pipelineDegree || options.strategy || !options.pins.empty())
    return;
  for (int64_t degree : divisors(cluster.deviceCount())) {
    if (degree == chosen.pipelineDegree ||
        degree > static_cast<int64_t>(model.layerCount()))
      continue;
    PlannerOptions changed = options;
    changed.pipelineDegree = degree;
    bool refused = false;
    Alternative found = replan("pipeline degree " + std::to_string(degree),
                               changed, cluster, &refused);
    // A degree that the space does not have is nothing to tell.
    if (!refused)
      addRunnerUp(std::move(found));
  }
}

/// The best plan with another number of micro-batches on as many stages.
void Explainer::addMicroBatches() {
  if (options.microBatches || options.microBatchRule == MicroBatchRule::Paper)
    return;
  std::vector<int64_t> counts = divisors(chosen.batch);
  erase(counts, chosen.microBatches);
  // A batch may have hundreds of divisors; the next best is a near one.
  auto distance = [&](int64_t count) {
    return std::abs(std::log(static_cast<double>(count) /
                             static_cast<double>(chosen.microBatches)));
  };
  stable_sort(counts,
              [&](int64_t a, int64_t b) { return distance(a) < distance(b); });
  constexpr size_t most = 4;
  counts.resize(std::min(counts.size(), most));
  std::optional<Alternative> best;
  for (int64_t count : counts) {
    PlannerOptions changed = options;
    changed.microBatches = count;
    if (!options.strategy && options.pins.empty())
      changed.pipelineDegree = chosen.pipelineDegree;
    Alternative found =
        replan(std::to_string(count) + " micro-batch" + (count > 1 ? "es" : ""),
               changed);
    if (found.plan &&
        (!best || found.plan->samplesPerSecond > best->plan->samplesPerSecond))
      best = std::move(found);
  }
  if (best)
    addRunnerUp(std::move(*best));
}

void Explainer::addOffloads() {
  if (!options.anyOffload)
    return;
  for (Offload offload : comparedOffloads()) {
    PlannerOptions changed = options;
    changed.anyOffload = false;
    changed.offload = offload;
    if (offload != chosen.offload)
      addRunnerUp(replan("offload " + offloadName(offload), changed));
  }
}

void Explainer::addSpaces() {
  if (options.strategy)
    return;
  for (const std::string &space : plannerSpaces()) {
    if (space == chosen.space)
      continue;
    PlannerOptions changed = options;
    changed.space = space;
    changed.groups.reset();
    if (planner::fixesParadigms(space))
      changed.paradigms.clear();
    addRunnerUp(replan("space '" + space + "'", changed));
  }
}

/// Adds plans in which something asked for by hand is left to the search.
void Explainer::addForced() {
  auto without = [&](const char *name, auto change) {
    PlannerOptions changed = options;
    change(changed);
    addRunnerUp(replan(std::string("without --") + name, changed));
  };
  if (options.strategy)
    without("strategy", [](PlannerOptions &o) { o.strategy.reset(); });
  if (!options.pins.empty())
    without("layers", [](PlannerOptions &o) { o.pins.clear(); });
  if (options.pipelineDegree)
    without("pipeline-degree",
            [](PlannerOptions &o) { o.pipelineDegree.reset(); });
  if (options.groups != Groups::Equal && !chosen.hasConsecutiveDevices()) {
    PlannerOptions changed = options;
    changed.groups = Groups::Equal;
    addRunnerUp(replan("equal groups of devices", changed));
  }
  if (options.microBatches)
    without("micro-batches", [](PlannerOptions &o) { o.microBatches.reset(); });
}

void Explainer::addChanges() {
  constexpr int64_t endless = int64_t(1) << 50;
  auto withMemory = [&](std::string what, double factor) {
    if (options.memory) {
      PlannerOptions changed = options;
      changed.memory = static_cast<int64_t>(
          std::floor(static_cast<double>(*options.memory) * factor));
      return replan(std::move(what), changed);
    }
    return replan(std::move(what), options, cluster.scaled(factor, 1));
  };
  result.changes.push_back(withMemory("20% more memory", 1.2));
  PlannerOptions unlimited = options;
  unlimited.memory = endless;
  Alternative free = replan("memory without end", unlimited);
  result.memoryBinds =
      free.plan && free.plan->samplesPerSecond > result.base.samplesPerSecond;
  result.changes.push_back(std::move(free));
  result.changes.push_back(
      replan("twice the bandwidth", options, cluster.scaled(1, 2)));
  // Slow devices may cost more than they bring.
  for (const DeviceType &type : cluster.deviceTypes())
    if (std::optional<Cluster> without = cluster.without(type.name))
      result.changes.push_back(
          replan("no devices '" + type.name + "'", options, *without));
  PlannerOptions doubled = options;
  doubled.batch = 2 * result.base.batch;
  result.changes.push_back(replan("twice the batch", doubled));
}

Expected<Explanation> Explainer::run() {
  result.base = chosen;
  if (chosen.space == "given") {
    Alternative found = replan("the search", options);
    if (found.plan)
      result.base = *found.plan;
    addRunnerUp(std::move(found));
  }
  // A sweep answers for changes; runners-up are about this batch.
  PlannerOptions asked = options;
  options.batch = chosen.batch;
  addDegrees();
  addMicroBatches();
  addOffloads();
  addSpaces();
  addForced();
  stable_sort(result.runnersUp, [](const Alternative &a, const Alternative &b) {
    if (a.plan.has_value() != b.plan.has_value())
      return a.plan.has_value();
    return a.plan && a.plan->samplesPerSecond > b.plan->samplesPerSecond;
  });
  options = asked;
  addChanges();
  return std::move(result);
}

json::Value alternativeJson(const char *key, const Alternative &alternative,
                            const Plan &reference) {
  json::Object object{{key, alternative.what}};
  if (!alternative.plan) {
    object["reason"] = alternative.reason;
    return object;
  }
  object["throughput-change-percent"] =
      100 * throughputChange(reference, *alternative.plan);
  object["differences"] =
      json::Array(planDifferences(reference, *alternative.plan));
  object["plan"] = planFigures(*alternative.plan);
  return object;
}

std::string throughput(const Plan &plan) {
  return rateText(plan.samplesPerSecond);
}

} // namespace

Expected<Explanation> explain(LayerModel &model, const Cluster &cluster,
                              const PlannerOptions &options,
                              const Plan &chosen) {
  return Explainer(model, cluster, options, chosen).run();
}

json::Value Explanation::toJson(const Plan &chosen) const {
  json::Array runners, changed;
  for (const Alternative &alternative : runnersUp)
    runners.push_back(alternativeJson("condition", alternative, chosen));
  for (const Alternative &alternative : changes)
    changed.push_back(alternativeJson("change", alternative, base));
  return json::Object{{"binding", chosen.binding()},
                      {"memory-binds", memoryBinds},
                      {"same-plan", json::Array(samePlan)},
                      {"runners-up", std::move(runners)},
                      {"changes", std::move(changed)}};
}

void Explanation::print(raw_ostream &os, const Plan &chosen) const {
  // Names of many conditions with one plan would push the columns apart.
  auto labelOf = [](const Alternative &alternative) {
    constexpr size_t columns = 40;
    std::vector<std::string> lines = {""};
    SmallVector<StringRef> names;
    StringRef(alternative.what).split(names, ", ");
    for (size_t i = 0; i < names.size(); ++i) {
      std::string name = names[i].str() + (i + 1 < names.size() ? "," : "");
      if (!lines.back().empty() &&
          lines.back().size() + 1 + name.size() > columns)
        lines.push_back(" ");
      lines.back() += (lines.back().empty() ? "" : " ") + name;
    }
    return lines;
  };
  os << "\nrunners-up at batch " << chosen.batch << "\n";
  TextTable runners("lrrl");
  runners.row({"best with", "samples/s", "change", "plan"});
  runners.row({"(this plan)", throughput(chosen), "", chosen.summary()});
  for (const Alternative &alternative : runnersUp) {
    std::vector<std::string> label = labelOf(alternative);
    if (alternative.plan)
      runners.row({label[0], throughput(*alternative.plan),
                   printChange(throughputChange(chosen, *alternative.plan)),
                   alternative.plan->summary()});
    else
      runners.row({label[0], "-", "-",
                   StringRef(alternative.reason).split('\n').first.str()});
    for (size_t i = 1; i < label.size(); ++i)
      runners.row({label[i]});
  }
  runners.print(os);
  if (!samePlan.empty())
    os << "  the same plan: " << join(samePlan, ", ") << "\n";

  os << "\nwhat would change it\n";
  TextTable table("lrrl");
  table.row({"with", "samples/s", "change", "plan"});
  for (const Alternative &alternative : changes) {
    if (!alternative.plan) {
      table.row({alternative.what, "-", "-", alternative.reason});
      continue;
    }
    std::vector<std::string> differences =
        planDifferences(base, *alternative.plan);
    table.row(
        {alternative.what, throughput(*alternative.plan),
         printChange(throughputChange(base, *alternative.plan)),
         differences.empty() ? "the same plan" : join(differences, ", ")});
  }
  table.print(os);
  // The plan's own line judges by how full memory is; this is the proof.
  bool full = chosen.memoryBinds();
  if (memoryBinds)
    os << "  memory binds" << (full ? "" : ", though it is not full")
       << ": with more of it there is a faster plan\n";
  else
    os << "  memory does not bind" << (full ? ", full as it is" : "")
       << ": no amount of it gives a faster plan\n";
}

} // namespace galvatron
