//===- PlanJsonTest.cpp - Every value of a plan's JSON --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What holds of all of them, whichever they are: a value of another kind is
// refused by its name, and a number that is changed is read as it stands.
//
//===----------------------------------------------------------------------===//

#include "SmallPlan.h"

#include "gtest/gtest.h"

#include <functional>
#include <set>

using namespace galvatron;
namespace json = llvm::json;

namespace {

/// With everything that a plan may say.
Plan fullPlan() {
  Plan plan = smallPlan();
  plan.modelHash = "1a";
  plan.clusterHash = "2b";
  plan.profileHash = "3c";
  plan.space = "bmw";
  plan.seqLen = 16;
  plan.boundMs = 11.5;
  plan.gapPercent = 8;
  plan.simulatedIterationMs = 12.75;
  plan.heuristicMs = 14;
  plan.samplesPerSecond = 640;
  plan.parameters = 1000;
  plan.flopsPerSample = 1e6;
  plan.peakFlops = 1e12;
  plan.nominal = true;
  plan.searchMs = 3.5;
  plan.foundBy = "search";
  plan.provenGapPercent = 2.5;
  plan.provenAmong = "groups";
  plan.provenSchedule = "1f1b";
  plan.provenGiven = "the given strategy";
  plan.exactPeak = true;
  plan.offload = Offload::Optimizer;
  plan.training.dropout = true;
  for (PlanStage &stage : plan.stages) {
    stage.timeNosyncMs = 2.5;
    stage.forwardMs = 1.5;
    stage.computeMs = 1.25;
    stage.optimizerMs = 0.5;
    stage.availableBytes = 5000;
    stage.reservedBytes = 70;
    stage.gathersAhead = true;
    stage.hostLedger.optimizer = 1280;
  }
  for (PlanLayer &layer : plan.layers) {
    layer.timeMs = 1.5;
    layer.timeNosyncMs = 1.25;
    layer.memoryBytes = 100;
  }
  return plan;
}

/// What follows from the rest, and is written for readers alone.
bool isDerived(const std::string &path) {
  static const std::set<std::string> derived = {"tokens-per-second",
                                                "device-flops-per-second",
                                                "mfu", "alpha-t", "alpha-m"};
  return derived.count(path);
}

/// Calls `visit` for every value inside, with its path as messages write it.
void forEachValue(
    json::Value &value, const std::string &path,
    const std::function<void(json::Value &, const std::string &)> &visit) {
  if (!path.empty() && !isDerived(path))
    visit(value, path);
  if (json::Object *object = value.getAsObject())
    for (auto &[key, inner] : *object)
      forEachValue(inner, (path.empty() ? "" : path + ".") + key.str(), visit);
  if (json::Array *array = value.getAsArray())
    for (size_t i = 0; i < array->size(); ++i)
      forEachValue((*array)[i], path + "[" + std::to_string(i) + "]", visit);
}

TEST(PlanJson, has_no_value_that_may_be_of_another_kind) {
  json::Value whole = fullPlan().toJson();
  ASSERT_EQ(llvm::toString(Plan::fromJson(whole).takeError()), "");
  int64_t seen = 0;
  forEachValue(whole, "", [&](json::Value &value, const std::string &path) {
    json::Value kept = value;
    // No value of a plan is null, a list of lists, or a truth for a number.
    for (const json::Value &other :
         {json::Value(nullptr), json::Value(json::Array{json::Array{}}),
          kept.getAsBoolean() ? json::Value(1) : json::Value(true)}) {
      value = other;
      llvm::Expected<Plan> plan = Plan::fromJson(whole);
      std::string message =
          plan ? "no error" : llvm::toString(plan.takeError());
      // Of what a list holds the list is named.
      std::string name =
          path.substr(0, path.find_last_not_of("0123456789[]") + 1);
      EXPECT_NE(message.find(name), std::string::npos)
          << path << " as " << llvm::formatv("{0}", other).str() << ": "
          << message;
    }
    value = kept;
    ++seen;
  });
  EXPECT_GT(seen, 100);
}

TEST(PlanJson, every_number_is_read_as_it_stands) {
  json::Value whole = fullPlan().toJson();
  std::set<std::string> refused;
  forEachValue(whole, "", [&](json::Value &value, const std::string &path) {
    std::optional<double> number = value.getAsNumber();
    if (!number)
      return;
    json::Value kept = value;
    value = *number + 1;
    llvm::Expected<Plan> plan = Plan::fromJson(whole);
    if (!plan) {
      EXPECT_NE(llvm::toString(plan.takeError()), "");
      refused.insert(path);
    } else {
      json::Value again = plan->toJson();
      bool found = false;
      forEachValue(again, "", [&](json::Value &read, const std::string &at) {
        if (at != path)
          return;
        found = true;
        EXPECT_EQ(read.getAsNumber(), *number + 1) << path;
      });
      EXPECT_TRUE(found) << path;
    }
    value = kept;
  });
  // What cannot be another number while all else stays.
  EXPECT_EQ(refused,
            (std::set<std::string>{
                "batch", "layers[0].stage", "layers[1].stage",
                "layers[2].stage", "micro-batches", "pipeline-degree",
                "stages[0].devices[0]", "stages[0].devices[1]",
                "stages[0].first-layer", "stages[0].layer-count",
                "stages[1].devices[0]", "stages[1].devices[1]",
                "stages[1].first-layer", "stages[1].layer-count", "version"}));
}

} // namespace
