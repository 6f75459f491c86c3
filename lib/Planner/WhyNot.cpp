//===- WhyNot.cpp - One strategy forced on every layer --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LongSamples.h"
#include "Spaces.h"

#include "galvatron/Planner/Explain.h"
#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

using namespace llvm;

namespace galvatron {

Expected<StrategyQuestion> StrategyQuestion::parse(StringRef text) {
  StrategyQuestion question;
  auto [strategy, rest] = text.split(',');
  Expected<Strategy> parsed = Strategy::parse(strategy);
  if (!parsed)
    return parsed.takeError();
  question.strategy = *parsed;
  if (rest.empty() && !text.contains(','))
    return question;
  int64_t degree = 0;
  if (!rest.consume_front("pp=") || rest.getAsInteger(10, degree) || degree < 1)
    return makeError("expected a strategy and, after a comma, 'pp=N', found '" +
                     text + "'");
  question.pipelineDegree = degree;
  return question;
}

/// Why the search does not look at the strategy on `degree` stages.
static std::vector<std::string> outside(const Cluster &cluster,
                                        const PlannerOptions &options,
                                        const Strategy &strategy,
                                        int64_t degree) {
  std::vector<std::string> reasons;
  PlannerOptions free = options;
  free.strategy.reset();
  free.pipelineDegree.reset();
  Expected<planner::Space> space =
      planner::getSpace(free, cluster.deviceCount());
  if (!space) {
    reasons.push_back(toString(space.takeError()));
    return reasons;
  }
  if (options.strategy && *options.strategy != strategy)
    reasons.push_back("--strategy=" + options.strategy->str() +
                      " rules out every other strategy");
  if (!options.pins.empty())
    reasons.push_back("--layers gives some layers their strategies");
  if (options.pipelineDegree && *options.pipelineDegree != degree)
    reasons.push_back(
        "--pipeline-degree=" + std::to_string(*options.pipelineDegree) +
        " rules out every other degree");
  if (!is_contained(space->pipelineDegrees, degree))
    reasons.push_back("space '" + space->name +
                      "' does not have pipeline degree " +
                      std::to_string(degree));
  if (is_contained(space->strategies(strategy.devices()), strategy))
    return reasons;
  planner::Space ofBlocks = *space;
  ofBlocks.trees.blocksOfBlocks = true;
  SmallVector<Paradigm, 2> cutSamples;
  for (const Level &level : strategy.levels())
    if (level.paradigm->splitsBatch)
      cutSamples.push_back(level.paradigm);
  llvm::sort(cutSamples);
  if (cutSamples.size() > 1 && !options.keepDpSdp)
    reasons.push_back(
        ("Takeaway 3 of arXiv 2307.02031 drops strategies with both " +
         cutSamples[0].name() + " and " + cutSamples[1].name() +
         " (--keep-dp-sdp keeps them)")
            .str());
  else if (is_contained(ofBlocks.strategies(strategy.devices()), strategy))
    reasons.push_back("'" + strategy.str() +
                      "' has two levels that cut rows (--blocks-of-blocks "
                      "searches such)");
  else
    reasons.push_back("space '" + space->name + "' does not have strategy '" +
                      strategy.str() + "'");
  return reasons;
}

WhyNot whyNot(LayerModel &model, const Cluster &cluster,
              const PlannerOptions &options, const Plan &chosen,
              const StrategyQuestion &question) {
  WhyNot answer;
  answer.strategy = question.strategy;
  int64_t devices = cluster.deviceCount();
  int64_t each = question.strategy.devices();
  if (devices % each != 0 ||
      (question.pipelineDegree && *question.pipelineDegree * each != devices)) {
    int64_t stages = question.pipelineDegree.value_or(1);
    answer.pipelineDegree = question.pipelineDegree.value_or(0);
    answer.refusal = std::to_string(stages) + " stage" +
                     (stages > 1 ? "s" : "") + " of " + std::to_string(each) +
                     " device" + (each > 1 ? "s" : "") +
                     (stages > 1 ? " take " : " takes ") +
                     std::to_string(stages * each) + ", but cluster '" +
                     cluster.name().str() + "' has " + std::to_string(devices);
    if (!question.pipelineDegree)
      answer.refusal += ", which is no multiple of it";
    return answer;
  }
  answer.pipelineDegree = devices / each;
  PlannerOptions searched = options;
  planner::LongSamples samples =
      planner::findLongSamples(model, cluster, options);
  if (samples.matter())
    searched.paradigms = std::move(samples.wide);
  answer.outsideSpace =
      outside(cluster, searched, question.strategy, answer.pipelineDegree);

  // The strategy replaces those of the space; 'bmw' has every degree.
  PlannerOptions forced = options;
  forced.space = "bmw";
  forced.strategy = question.strategy;
  forced.pins.clear();
  forced.pipelineDegree = answer.pipelineDegree;
  forced.batch = chosen.batch;
  Expected<PlannerResult> result = plan(model, cluster, forced);
  if (!result) {
    answer.refusal = toString(result.takeError());
  } else if (options.isLate()) {
    answer.refusal = kTimeWasUp;
  } else if (result->feasible()) {
    answer.plan = result->plan();
  } else if (result->infeasible().neededBytes == 0) {
    answer.refusal = result->infeasible().reason;
  } else {
    answer.infeasible = result->infeasible();
    // The question sets this relaxation aside.
    erase_if(answer.infeasible->relaxations, [](const std::string &text) {
      return StringRef(text).ends_with("to the search");
    });
  }
  return answer;
}

json::Value WhyNot::toJson(const Plan &chosen) const {
  json::Object object{{"strategy", strategy.str()},
                      {"pipeline-degree", pipelineDegree},
                      {"in-space", outsideSpace.empty() && refusal.empty()},
                      {"outside-space", json::Array(outsideSpace)}};
  if (plan) {
    object["throughput-change-percent"] = 100 * throughputChange(chosen, *plan);
    object["plan"] = planFigures(*plan);
  }
  if (infeasible)
    object["infeasible"] = json::Object(
        *infeasible->toJson().getAsObject()->getObject("infeasible"));
  if (!refusal.empty())
    object["refusal"] = refusal;
  return object;
}

void WhyNot::print(raw_ostream &os, const Plan &chosen) const {
  os << "\nwhy not ";
  if (pipelineDegree > 0)
    os << "pp" << pipelineDegree << " ";
  os << strategy.str() << " on every layer?\n";
  for (const std::string &reason : outsideSpace)
    os << "  not searched: " << reason << "\n";
  if (!refusal.empty()) {
    os << "  it cannot be done: " << refusal << "\n";
    return;
  }
  if (infeasible) {
    os << "  it does not fit: " << shortReason(*infeasible) << "\n"
       << "    " << infeasible->ledger.str() << "\n";
    for (const std::string &relaxation : infeasible->relaxations)
      os << "  it would help to " << relaxation << "\n";
    return;
  }
  double change = throughputChange(chosen, *plan);
  if (planDifferences(chosen, *plan).empty()) {
    os << "  that is the chosen plan\n";
    return;
  }
  os << "  it fits and "
     << (change > 0   ? "is " + printPercent(change) + " faster"
         : change < 0 ? "costs " + printPercent(-change) + " of the throughput"
                      : std::string("is as fast"))
     << "\n";

  TextTable table("lrrr");
  table.row({"", "this plan", strategy.str(), "difference"});
  auto row = [&](const char *name, double mine, double its) {
    std::string difference;
    raw_string_ostream(difference) << format("%+.3f ms", its - mine);
    table.row(
        {name, printMilliseconds(mine), printMilliseconds(its), difference});
  };
  TimeSplit mine = chosen.timeSplit(), its = plan->timeSplit();
  row("computation", mine.computeMs, its.computeMs);
  row("exposed communication", mine.communicationMs, its.communicationMs);
  row("optimizer", mine.optimizerMs, its.optimizerMs);
  row("bubble", mine.bubbleMs, its.bubbleMs);
  row("iteration", chosen.iterationMs, plan->iterationMs);
  auto text = [](const Plan &of) {
    const PlanStage &stage = of.stages[of.fullestStage()];
    return printBytesRounded(stage.peakBytes);
  };
  table.row({"largest peak", text(chosen), text(*plan), ""});
  table.row({"micro-batches", std::to_string(chosen.microBatches),
             std::to_string(plan->microBatches), ""});
  table.print(os);
}

} // namespace galvatron
