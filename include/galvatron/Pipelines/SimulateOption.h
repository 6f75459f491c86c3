//===- SimulateOption.h - The option --simulate -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `--simulate[=trace.json]`: runs the plan through the simulator, adds its time
// to the plan, and keeps a table for after the plan's own.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_SIMULATEOPTION_H
#define GALVATRON_PIPELINES_SIMULATEOPTION_H

#include "galvatron/Pipelines/ToolOptions.h"

namespace galvatron {

class SimulateOption {
public:
  explicit SimulateOption(Tool &tool);

  /// Tries whether the trace can be written.
  llvm::Error prepare(ToolFiles &files) const {
    return files.writes("--simulate", trace);
  }
  bool wanted() const { return trace.getNumOccurrences() != 0; }
  bool wantsTrace() const { return !trace.empty(); }
  /// Does nothing if the option was not given or there is no plan.
  llvm::Error run(LayerModel &model, const Cluster &cluster,
                  PlannerResult &result);
  /// Puts the table before the answers' text, and the trace to their files.
  void addTo(PlanAnswers &answers) const;

private:
  llvm::cl::opt<std::string> trace;
  std::string text, events;
};

} // namespace galvatron

#endif // GALVATRON_PIPELINES_SIMULATEOPTION_H
