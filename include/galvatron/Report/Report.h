//===- Report.h - A plan as one page of HTML --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One page with everything in it: styles and pictures are inline, nothing is
// loaded from anywhere, no script runs. It follows the reader's choice of a
// light or a dark screen.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_REPORT_REPORT_H
#define GALVATRON_REPORT_REPORT_H

#include "galvatron/Planner/Explain.h"
#include "galvatron/Simulate/Simulate.h"

namespace galvatron {

struct ReportInput {
  const Plan &plan;
  /// The plan's step, layer by layer, of simulationInput() and simulate().
  const SimulationInput &tasks;
  const Simulation &simulation;
  /// The points of paretoFront(); the picture is left out if it is empty.
  std::vector<ParetoPoint> front;
  const Explanation *explanation = nullptr; ///< if it was asked for
  /// The picture of the nodes is left out if there is none.
  const Cluster *cluster = nullptr;
};

/// The page. The same input gives the same bytes.
std::string htmlReport(const ReportInput &input);

} // namespace galvatron

#endif // GALVATRON_REPORT_REPORT_H
