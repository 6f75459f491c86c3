//===- PaperOptions.h - Plans by Eq. 9 --------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_PAPEROPTIONS_H
#define GALVATRON_UNITTESTS_PAPEROPTIONS_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

/// For tests that compare sums: Eq. 9 is exact integers, and its optimum is
/// proven.
inline PlannerOptions paperOptions() {
  PlannerOptions options;
  options.objective = Objective::Paper;
  return options;
}

} // namespace galvatron

#endif // GALVATRON_UNITTESTS_PAPEROPTIONS_H
