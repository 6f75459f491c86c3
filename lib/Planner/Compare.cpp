//===- Compare.cpp - Two plans side by side -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Rate.h"
#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace galvatron {

Expected<Comparison> compare(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options, const Plan &chosen,
                             const Plan &other) {
  // A plan written by hand may say nothing of where it comes from; evaluate()
  // then still compares layers and devices.
  auto check = [](const char *what, const std::string &name,
                  const std::string &hash, const std::string &otherName,
                  const std::string &otherHash) -> Error {
    if (otherHash.empty() || hash == otherHash)
      return Error::success();
    return makeError(Twine("expected a plan for ") + what + " '" + name +
                     "' (hash " + hash + "), found one for '" + otherName +
                     "' (hash " + otherHash + ")");
  };
  if (Error error = check("model", chosen.model, chosen.modelHash, other.model,
                          other.modelHash))
    return error;
  if (Error error = check("cluster", chosen.cluster, chosen.clusterHash,
                          other.cluster, other.clusterHash))
    return error;
  if (!(chosen.training == other.training)) {
    auto text = [](const Plan &plan) {
      return formatv("{0}", plan.training.toJson()).str();
    };
    return makeError("expected a plan with training options " + text(chosen) +
                     ", found " + text(other));
  }

  // Priced without a limit, so that a plan that does not fit is shown, too, and
  // by the objective of the plan beside it.
  Plan alike = other;
  alike.objective = chosen.objective;
  Expected<PlannerResult> priced =
      evaluate(model, cluster, alike, int64_t(1) << 50);
  if (!priced)
    return priced.takeError();
  Comparison comparison{chosen, priced->plan(), {}};
  for (PlanStage &stage : comparison.other.stages)
    stage.availableBytes = cluster.budgetOf(stage.devices, options.memory);

  auto same = [](const PlanLayer &a, const PlanLayer &b) {
    return a.stage == b.stage && a.strategy == b.strategy;
  };
  for (size_t l = 0; l < chosen.layers.size(); ++l) {
    if (l > 0 && same(chosen.layers[l], chosen.layers[l - 1]) &&
        same(comparison.other.layers[l], comparison.other.layers[l - 1]))
      ++comparison.runs.back().end;
    else
      comparison.runs.push_back({l, l + 1});
  }
  return comparison;
}

namespace {

struct RunFigures {
  double timeMs = 0;
  int64_t memoryBytes = 0;
  const PlanLayer *first = nullptr;

  RunFigures(const Plan &plan, LayerRun run) : first(&plan.layers[run.begin]) {
    // Micro-batches differ in size: compare whole steps.
    auto others = static_cast<double>(plan.microBatches - 1);
    for (size_t l = run.begin; l < run.end; ++l) {
      const PlanLayer &layer = plan.layers[l];
      timeMs += others * layer.timeNosyncMs + layer.timeMs;
      memoryBytes += layer.memoryBytes;
    }
  }
};

std::string fitText(const Plan &plan) {
  const PlanStage &stage = plan.stages[plan.fullestStage()];
  return stage.peakBytes <= stage.availableBytes
             ? "yes"
             : "no, " +
                   printBytesRounded(stage.peakBytes - stage.availableBytes) +
                   " too much";
}

std::string changeText(double from, double to) {
  return from > 0 ? printChange(to / from - 1) : "";
}

} // namespace

void Comparison::print(raw_ostream &os) const {
  os << "\nbeside the given plan (space " << other.space << ")\n";
  TextTable table("lrrr");
  table.row({"", "this plan", "given", "change"});
  auto integer = [&](const char *name, int64_t mine, int64_t its) {
    table.row({name, std::to_string(mine), std::to_string(its), ""});
  };
  auto time = [&](const char *name, double mine, double its) {
    table.row({name, printMilliseconds(mine), printMilliseconds(its),
               changeText(mine, its)});
  };
  table.row({"samples/s", rateText(chosen.samplesPerSecond),
             rateText(other.samplesPerSecond),
             changeText(chosen.samplesPerSecond, other.samplesPerSecond)});
  integer("batch", chosen.batch, other.batch);
  integer("micro-batches", chosen.microBatches, other.microBatches);
  integer("pipeline degree", chosen.pipelineDegree, other.pipelineDegree);
  table.row({"schedule", chosen.schedule->name().str(),
             other.schedule->name().str(), ""});
  time("iteration", chosen.iterationMs, other.iterationMs);
  TimeSplit mine = chosen.timeSplit(), its = other.timeSplit();
  time("computation", mine.computeMs, its.computeMs);
  time("exposed communication", mine.communicationMs, its.communicationMs);
  time("optimizer", mine.optimizerMs, its.optimizerMs);
  time("bubble", mine.bubbleMs, its.bubbleMs);
  table.row({"fits", fitText(chosen), fitText(other), ""});
  table.print(os);

  os << "\n";
  TextTable stages("llrrlrr");
  stages.row({"stage", "layers", "no-sync", "peak", "given layers", "no-sync",
              "peak"});
  auto stageCells = [](const Plan &plan, size_t s,
                       std::vector<std::string> &cells) {
    if (s >= plan.stages.size()) {
      cells.insert(cells.end(), {"-", "", ""});
      return;
    }
    const PlanStage &stage = plan.stages[s];
    cells.push_back(stage.layerText());
    cells.push_back(printMilliseconds(stage.timeNosyncMs));
    cells.push_back(printBytesRounded(stage.peakBytes));
  };
  for (size_t s = 0; s < std::max(chosen.stages.size(), other.stages.size());
       ++s) {
    std::vector<std::string> cells{std::to_string(s)};
    stageCells(chosen, s, cells);
    stageCells(other, s, cells);
    stages.row(cells);
  }
  stages.print(os);

  os << "\n";
  TextTable layers("llrrlrr");
  layers.row({"layers", "strategy", "time", "memory", "given strategy", "time",
              "memory"});
  for (LayerRun run : runs) {
    RunFigures a(chosen, run), b(other, run);
    auto where = [&](const RunFigures &figures, const Plan &plan) {
      return figures.first->strategy.str() +
             (plan.stages.size() > 1
                  ? " @" + std::to_string(figures.first->stage)
                  : "");
    };
    layers.row({chosen.runName(run), where(a, chosen),
                printMilliseconds(a.timeMs), printBytesRounded(a.memoryBytes),
                where(b, other), printMilliseconds(b.timeMs),
                printBytesRounded(b.memoryBytes)});
  }
  layers.print(os);
  std::vector<std::string> differences = planDifferences(chosen, other);
  os << "  "
     << (differences.empty() ? std::string("the plans are the same")
                             : "differences: " + join(differences, ", "))
     << "\n";
}

json::Value Comparison::toJson() const {
  auto stagesOf = [](const Plan &plan) {
    json::Array list;
    for (const PlanStage &stage : plan.stages)
      list.push_back(json::Object{{"first-layer", stage.firstLayer},
                                  {"layer-count", stage.layerCount},
                                  {"time-ms", stage.timeMs},
                                  {"time-nosync-ms", stage.timeNosyncMs},
                                  {"peak-bytes", stage.peakBytes},
                                  {"available-bytes", stage.availableBytes}});
    return list;
  };
  auto side = [&](const Plan &plan) {
    json::Object object = planFigures(plan);
    const PlanStage &full = plan.stages[plan.fullestStage()];
    object["fits"] = full.peakBytes <= full.availableBytes;
    object["stages"] = stagesOf(plan);
    return object;
  };
  auto runOf = [](const Plan &plan, LayerRun run) {
    RunFigures figures(plan, run);
    return json::Object{{"stage", figures.first->stage},
                        {"strategy", figures.first->strategy.str()},
                        {"step-time-ms", figures.timeMs},
                        {"memory-bytes", figures.memoryBytes}};
  };
  json::Array list;
  for (LayerRun run : runs)
    list.push_back(
        json::Object{{"layers", chosen.runName(run)},
                     {"first-layer", static_cast<int64_t>(run.begin)},
                     {"layer-count", static_cast<int64_t>(run.size())},
                     {"this", runOf(chosen, run)},
                     {"given", runOf(other, run)}});
  return json::Object{
      {"throughput-change-percent", 100 * throughputChange(chosen, other)},
      {"differences", json::Array(planDifferences(chosen, other))},
      {"this", side(chosen)},
      {"given", side(other)},
      {"runs", std::move(list)}};
}

} // namespace galvatron
