//===- MeasureTop.h - The option --measure-top ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `--measure-top=K -o FOLDER/`: the K best plans that differ
// (Planner/Top.h), as files of a folder. galvatron-plan writes plan-1.json,
// plan-2.json, ..., fastest first as predicted; galvatron-compile their
// programs beside them, for `galvatron-run --measure FOLDER/`.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_MEASURETOP_H
#define GALVATRON_PIPELINES_MEASURETOP_H

#include "galvatron/Pipelines/ToolOptions.h"

namespace galvatron {

class MeasureTop {
public:
  explicit MeasureTop(Tool &tool);

  bool wanted() const { return count.getNumOccurrences() != 0; }
  /// Checks the number and makes the folder, which must have a name.
  llvm::Error prepare(llvm::StringRef folder);
  /// Finds the plans, `best` among them.
  llvm::Error find(LayerModel &model, const Cluster &cluster,
                   const PlannerOptions &options, const PlannerResult &best);
  llvm::ArrayRef<PlannerResult> plans() const { return found; }
  /// "FOLDER/plan-N" and the suffix, N counting from 1.
  std::string path(size_t index, llvm::StringRef suffix) const;
  /// The plans' JSONs, and lines that say what they are. Files of the same
  /// names that an earlier call left are removed from the folder: a measurement
  /// is of plans of one call.
  llvm::Error addTo(PlanAnswers &answers) const;

private:
  llvm::cl::opt<int64_t> count;
  std::string folder;
  std::vector<PlannerResult> found;
};

} // namespace galvatron

#endif // GALVATRON_PIPELINES_MEASURETOP_H
