//===- Cases.h - Models and plans whose IR is changed -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_CASES_H
#define GALVATRON_TEST_MUTATIONS_CASES_H

#include "galvatron/Planner/Planner.h"

#include <string>
#include <vector>

namespace galvatron::test {

/// A small model and the plan that it is compiled for.
struct Case {
  std::string name, config;
  std::string strategy;
  int64_t pipelineDegree = 1, microBatches = 1;
  std::string schedule = "1f1b";
  std::string pins = ""; ///< strategies of some layers, as `h.0:dp4;h.1:tp4`
  int64_t chunks = 0;
  Offload offload = Offload::Off;
  int64_t batch = 8;
  std::string cluster = "4xcpu";
  bool isShort = true; ///< whether a short run has it
};

const std::vector<Case> &allCases();

/// What the planner is asked for.
PlannerOptions plannerOptions(const Case &given);

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_CASES_H
