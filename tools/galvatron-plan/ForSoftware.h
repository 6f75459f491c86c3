//===- ForSoftware.h - Plans for other training software --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRONPLAN_FORSOFTWARE_H
#define GALVATRON_TOOLS_GALVATRONPLAN_FORSOFTWARE_H

#include "galvatron/Pipelines/ToolOptions.h"
#include "galvatron/Software/Target.h"

namespace galvatron {

/// `--for=` and `--launch=`.
class ForSoftware {
public:
  explicit ForSoftware(Tool &tool);

  bool wanted() const { return request.getNumOccurrences() > 0; }
  bool listed() const { return list; }
  /// Names the option that `--launch` or `--template` needs beside it; empty:
  /// none.
  std::string missing() const;
  /// Prints the executions and targets that there are.
  int printList(const Tool &tool) const;
  /// Plans for the software, or prices the one plan of an execution;
  /// `keepPlan`: the one that the model's file has. `compared`: a file whose
  /// plan is priced beside that; "": none. Returns the exit code.
  int run(const Tool &tool, const ModelOptions &model,
          const PlanOptions &options, bool keepPlan,
          llvm::StringRef compared) const;

private:
  /// Prices the plan of a file beside an answer, and adds what is told of it.
  /// Errors: no plan of the same model and batch.
  llvm::Error addComparison(llvm::StringRef file, const Target &target,
                            const Cluster &cluster, const ModelShape &shape,
                            const TargetAnswer &answer,
                            PlanAnswers &answers) const;
  /// Puts the present file of `--template`, filled, in place of the first; what
  /// is told of it.
  llvm::Expected<std::string> fillPresent(Target &target,
                                          std::vector<LaunchFile> &files,
                                          PricedPlan priced) const;
  /// Writes files into the folder of `--launch`; what is told of them.
  llvm::Expected<std::string> writeFiles(std::vector<LaunchFile> files) const;
  /// Plans from the software's own profiles, by its own formulas.
  int runProfiled(const Tool &tool, const Target &target,
                  const ModelOptions &model, const PlanOptions &options,
                  bool keepPlan) const;

  llvm::cl::opt<std::string> request, launch, present;
  llvm::cl::opt<bool> list;
};

} // namespace galvatron

#endif // GALVATRON_TOOLS_GALVATRONPLAN_FORSOFTWARE_H
