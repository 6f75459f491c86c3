//===- Baselines.cpp - Plans of published planners ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Baselines.h"

#include "galvatron/Baselines/Baselines.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;

int galvatron::printBaseline(const Tool &tool, LayerModel &model,
                             const Cluster &cluster,
                             const PlannerOptions &planner,
                             const AmpOptions &amp, const PlanOptions &options,
                             const SimulateOption &simulate,
                             const Questions &questions) {
  std::string refused = simulate.wantsTrace() ? "a trace" : questions.asked();
  if (!refused.empty())
    return tool.report("space '" + planner.space +
                           "': expected no request for " + refused +
                           (isExecutedSpace(planner.space)
                                ? std::string(" of a layer profile")
                                : ": " + notExecutedSpace(planner.space)),
                       kExitInvalid);
  llvm::Expected<BaselineReport> answer =
      reportBaseline(model, cluster, planner, amp, simulate.wanted());
  if (!answer)
    return tool.report(answer.takeError());
  bool feasible = !answer->infeasible;
  std::string path;
  if (options.json.getNumOccurrences()) {
    // A bare --json means standard output.
    path = options.json.empty() ? "-" : options.json.getValue();
    llvm::json::Value value = feasible
                                  ? llvm::json::Value(std::move(answer->json))
                                  : answer->infeasible->toJson();
    if (llvm::Error error =
            writeOutput(path, llvm::formatv("{0:2}\n", value).str()))
      return tool.report(std::move(error));
  }
  if (!feasible)
    return tool.report(answer->infeasible->str(), kExitFailed);
  (path == "-" ? llvm::errs() : llvm::outs()) << answer->text;
  if (llvm::Error error = flushStandardOutput())
    return tool.report(std::move(error));
  return 0;
}
