//===- Questions.cpp - What can be asked about a plan ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Questions.h"

#include "galvatron/Baselines/Baselines.h"

#include "galvatron/Planner/Limits.h"
#include "galvatron/Report/Report.h"
#include "galvatron/Support/Units.h"

using namespace galvatron;
namespace cl = llvm::cl;

Questions::Questions(Tool &tool)
    : wantsExplanation("explain",
                       cl::desc("show runner-up plans, and what more memory, "
                                "bandwidth or batch would change"),
                       cl::cat(tool.category())),
      whyNotText("why-not",
                 cl::desc("say what one strategy on every layer would cost"),
                 cl::value_desc("S[,pp=N]"), cl::cat(tool.category())),
      comparePath("compare",
                  cl::desc("set the plan of a plan JSON beside this one; with "
                           "--for that of a file of galvatron-import --from"),
                  cl::value_desc("FILE"), cl::cat(tool.category())),
      reportPath("report", cl::desc("write a page with pictures of the plan"),
                 cl::value_desc("FILE.html"), cl::cat(tool.category())) {}

std::string Questions::asked() const {
  if (std::string searched = askedOfSearches(); !searched.empty())
    return searched;
  return reportPath.getNumOccurrences() ? "--report" : "";
}

std::string Questions::askedBesideComparison() const {
  const cl::Option *given[] = {&wantsExplanation, &whyNotText, &reportPath};
  for (const cl::Option *option : given)
    if (option->getNumOccurrences())
      return ("--" + option->ArgStr).str();
  return "";
}

std::string Questions::askedOfSearches() const {
  const cl::Option *given[] = {&wantsExplanation, &whyNotText, &comparePath};
  for (const cl::Option *option : given)
    if (option->getNumOccurrences())
      return ("--" + option->ArgStr).str();
  return "";
}

llvm::Error Questions::prepare(ToolFiles &files) {
  if (whyNotText.getNumOccurrences()) {
    llvm::Expected<StrategyQuestion> parsed =
        StrategyQuestion::parse(whyNotText);
    if (!parsed)
      return makeError("option --why-not: " +
                       llvm::toString(parsed.takeError()));
    strategy = *parsed;
  }
  if (comparePath.getNumOccurrences()) {
    if (comparePath.empty())
      return makeError("option --compare: expected a file name");
    llvm::Expected<Plan> plan = readPlanFile(comparePath);
    if (!plan)
      return plan.takeError();
    given = *plan;
    files.reads("--compare", comparePath);
  }
  if (reportPath.getNumOccurrences() && reportPath.empty())
    return makeError("option --report: expected a file name");
  return files.writes("--report", reportPath);
}

llvm::Expected<PlanAnswers> Questions::answer(LayerModel &model,
                                              const Cluster &cluster,
                                              const PlannerOptions &planner,
                                              const Plan &chosen) const {
  PlanAnswers answers;
  llvm::raw_string_ostream text(answers.text);
  std::optional<Explanation> explanation;
  if (wantsExplanation) {
    llvm::Expected<Explanation> found =
        explain(model, cluster, planner, chosen);
    if (!found)
      return found.takeError();
    explanation = std::move(*found);
    explanation->print(text, chosen);
    llvm::Expected<PlanLimits> limits = planLimits(model, cluster, chosen);
    if (!limits)
      return limits.takeError();
    limits->print(text, cluster, chosen);
    llvm::json::Value value = explanation->toJson(chosen);
    (*value.getAsObject())["limits"] = limits->toJson();
    answers.json["explain"] = std::move(value);
  }
  if (strategy) {
    WhyNot found = whyNot(model, cluster, planner, chosen, *strategy);
    found.print(text, chosen);
    answers.json["why-not"] = found.toJson(chosen);
  }
  if (given) {
    llvm::Expected<Comparison> found =
        compare(model, cluster, planner, chosen, *given);
    if (!found)
      return makeError(comparePath + ": " + llvm::toString(found.takeError()));
    found->print(text);
    answers.json["compare"] = found->toJson();
  }
  if (reportPath.getNumOccurrences()) {
    llvm::Expected<SimulationInput> tasks =
        simulationInput(model, cluster, chosen);
    if (!tasks)
      return tasks.takeError();
    llvm::Expected<Simulation> simulation = simulate(*tasks);
    if (!simulation)
      return simulation.takeError();
    ReportInput input{
        chosen,  *tasks, *simulation, {}, explanation ? &*explanation : nullptr,
        &cluster};
    llvm::Expected<std::vector<ParetoPoint>> front =
        paretoFront(cluster, planner, chosen,
                    [&](const Cluster &some, const PlannerOptions &asked) {
                      return planSpace(model, some, asked);
                    });
    if (!front)
      return front.takeError();
    input.front = std::move(*front);
    answers.files.push_back({reportPath, htmlReport(input)});
  }
  return answers;
}
