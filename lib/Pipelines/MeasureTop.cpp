//===- MeasureTop.cpp - The option --measure-top --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/MeasureTop.h"

#include "galvatron/Planner/Top.h"
#include "galvatron/Support/Units.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace galvatron {

/// More are not measured in a coffee break.
static constexpr int64_t kMostPlans = 64;

MeasureTop::MeasureTop(Tool &tool)
    : count("measure-top",
            cl::desc("write the K fastest plans that differ into the folder of "
                     "-o, to be measured by galvatron-run --measure"),
            cl::value_desc("K"), cl::cat(tool.category())) {}

Error MeasureTop::prepare(StringRef path) {
  if (!wanted())
    return Error::success();
  if (count < 1 || count > kMostPlans)
    return makeError("option --measure-top: expected 1 to " +
                     Twine(kMostPlans) + " plans, found " + Twine(count));
  if (path.empty() || path == "-")
    return makeError("option --measure-top: expected -o with a folder");
  folder = path.str();
  if (std::error_code code = sys::fs::create_directories(folder))
    return makeError("cannot make folder '" + folder + "': " + code.message());
  return Error::success();
}

Error MeasureTop::find(LayerModel &model, const Cluster &cluster,
                       const PlannerOptions &options,
                       const PlannerResult &best) {
  if (!wanted())
    return Error::success();
  Expected<std::vector<PlannerResult>> plans =
      planTop(model, cluster, options, best, static_cast<size_t>(count));
  if (!plans)
    return plans.takeError();
  found = std::move(*plans);
  return Error::success();
}

std::string MeasureTop::path(size_t index, StringRef suffix) const {
  SmallString<128> path(folder);
  sys::path::append(path, "plan-" + Twine(index + 1) + suffix);
  return path.str().str();
}

/// The strategies of a plan's layers, equal neighbours once.
static std::string strategiesOf(const Plan &plan) {
  std::string text;
  std::string last;
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    std::string strategy = plan.layers[l].strategy.str();
    bool begins = plan.beginsChunk(l);
    if (!begins && strategy == last)
      continue;
    if (!last.empty())
      text += begins ? " | " : ", ";
    text += strategy;
    last = std::move(strategy);
  }
  return text;
}

Error MeasureTop::addTo(PlanAnswers &answers) const {
  if (!wanted() || found.empty())
    return Error::success();
  for (size_t i = 0; i < static_cast<size_t>(kMostPlans); ++i)
    for (const char *suffix : {".json", ".gvx"})
      if (std::error_code code = sys::fs::remove(path(i, suffix)))
        return makeError("cannot remove '" + path(i, suffix) +
                         "': " + code.message());
  raw_string_ostream os(answers.text);
  os << formatv("  {0} of {1} plans to measure, in '{2}':\n", found.size(),
                count.getValue(), folder);
  for (auto [i, result] : enumerate(found)) {
    const Plan &plan = result.plan();
    os << formatv("    plan-{0}: predicted {1:f2} ms, {2} {3}, {4} "
                  "micro-batch{7} ({5}): {6}\n",
                  i + 1, plan.iterationMs, plan.pipelineDegree,
                  plan.pipelineDegree == 1 ? "stage" : "stages",
                  plan.microBatches, plan.schedule->name(), strategiesOf(plan),
                  plan.microBatches == 1 ? "" : "es");
    answers.files.push_back(
        {path(i, ".json"), formatv("{0:2}\n", plan.toJson()).str()});
  }
  return Error::success();
}

} // namespace galvatron
