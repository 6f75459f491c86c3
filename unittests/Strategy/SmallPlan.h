//===- SmallPlan.h - A plan of two stages -----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_STRATEGY_SMALLPLAN_H
#define GALVATRON_UNITTESTS_STRATEGY_SMALLPLAN_H

#include "galvatron/Strategy/Plan.h"

namespace galvatron {

/// Three layers on two stages of two devices.
inline Plan smallPlan() {
  Plan plan;
  plan.toolVersion = "0.1.0";
  plan.model = "toy";
  plan.cluster = "4xcpu";
  plan.space = "base";
  plan.batch = 8;
  plan.microBatches = 2;
  plan.pipelineDegree = 2;
  plan.iterationMs = 12.5;
  for (int64_t s = 0; s < 2; ++s) {
    PlanStage stage;
    stage.devices = {2 * s, 2 * s + 1};
    stage.firstLayer = 2 * s;
    stage.layerCount = 2 - s;
    stage.timeMs = 3;
    stage.ledger.parameters = 640;
    stage.ledger.runtime = 256;
    stage.peakBytes = stage.ledger.total();
    plan.stages.push_back(stage);
  }
  for (const char *strategy : {"dp2", "tp2.ckpt", "sdp2"})
    plan.layers.push_back({"l" + std::to_string(plan.layers.size()),
                           plan.layers.size() == 2 ? 1 : 0,
                           llvm::cantFail(Strategy::parse(strategy))});
  return plan;
}

} // namespace galvatron

#endif // GALVATRON_UNITTESTS_STRATEGY_SMALLPLAN_H
