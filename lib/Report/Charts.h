//===- Charts.h - The pictures of the report --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each function gives a figure's inner HTML: the picture and its legend. Sizes
// follow the plan, so that 64 stages, 128 layers or 2,000 micro-batches stay
// readable and small.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_REPORT_CHARTS_H
#define GALVATRON_LIB_REPORT_CHARTS_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Planner/Explain.h"
#include "galvatron/Simulate/Simulate.h"

#include <string>
#include <vector>

namespace galvatron::report {

/// A colour for every strategy of a plan, whether it recomputes or not.
class StrategyColours {
public:
  explicit StrategyColours(const Plan &plan);

  size_t size() const { return strategies.size(); }
  const Strategy &strategy(size_t colour) const { return strategies[colour]; }
  size_t colourOf(const Strategy &strategy) const;

private:
  std::vector<Strategy> strategies; ///< without recomputation
};

/// Colours of the page, by number; more than the first ones are made up.
std::string colourOf(size_t number);

std::string layerChart(const Plan &plan, const StrategyColours &colours);
std::string scheduleChart(const Plan &plan, const SimulationInput &tasks,
                          const Simulation &simulation);
std::string memoryChart(const Plan &plan);
std::string timeChart(const Plan &plan);
/// The stage of every device, node by node; of large clusters the first nodes.
std::string nodeChart(const Plan &plan, const Cluster &cluster);
std::string paretoChart(const Plan &plan, llvm::ArrayRef<ParetoPoint> front);

} // namespace galvatron::report

#endif // GALVATRON_LIB_REPORT_CHARTS_H
