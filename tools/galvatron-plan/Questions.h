//===- Questions.h - What can be asked about a plan -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRONPLAN_QUESTIONS_H
#define GALVATRON_TOOLS_GALVATRONPLAN_QUESTIONS_H

#include "galvatron/Pipelines/ToolOptions.h"
#include "galvatron/Planner/Explain.h"

namespace galvatron {

/// The options --explain, --why-not, --compare and --report.
class Questions {
public:
  explicit Questions(Tool &tool);

  /// Reads what the options name, and tries whether the report can be written,
  /// before any search begins.
  llvm::Error prepare(ToolFiles &files);
  /// The first option that asks something, "" if none was given.
  std::string asked() const;
  /// The first such option but --report, which can be had of any plan.
  std::string askedOfSearches() const;
  /// The first such option but --compare, which other software's plans have,
  /// too; --report counts.
  std::string askedBesideComparison() const;
  /// The file of --compare; "": none was given.
  const std::string &compared() const { return comparePath; }
  /// Answers all of them; the report is one of the answer's files.
  llvm::Expected<PlanAnswers> answer(LayerModel &model, const Cluster &cluster,
                                     const PlannerOptions &planner,
                                     const Plan &chosen) const;

private:
  llvm::cl::opt<bool> wantsExplanation;
  llvm::cl::opt<std::string> whyNotText, comparePath, reportPath;
  std::optional<StrategyQuestion> strategy;
  std::optional<Plan> given;
};

} // namespace galvatron

#endif // GALVATRON_TOOLS_GALVATRONPLAN_QUESTIONS_H
