//===- StageContentsTest.cpp - What a plan makes of a stage ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Strategy/Plan.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// A stage of layers that gather so many bytes, under the strategies given.
StageContents marked(const std::vector<std::pair<const char *, int64_t>> &of) {
  Plan plan;
  plan.stages.push_back({});
  plan.stages[0].layerCount = static_cast<int64_t>(of.size());
  StageContents contents;
  for (const auto &[strategy, gathered] : of) {
    PlanLayer layer;
    layer.strategy = llvm::cantFail(Strategy::parse(strategy));
    plan.layers.push_back(layer);
    StageLayer own;
    own.footprint.forwardGathered = own.footprint.backwardGathered = gathered;
    // What was there before does not count.
    own.forwardAhead = own.backwardAhead = true;
    contents.layers.push_back(own);
  }
  markGathersAhead(contents, plan, 0);
  return contents;
}

TEST(StageContents, what_is_gathered_outside_functions_is_gathered_ahead) {
  StageContents found =
      marked({{"sdp4", 64}, {"sdp4", 64}, {"sdp4", 0}, {"sdp4", 64}});
  const bool forward[] = {false, true, false, true};
  const bool backward[] = {true, true, false, false};
  for (size_t l = 0; l < found.layers.size(); ++l) {
    EXPECT_EQ(found.layers[l].forwardAhead, forward[l]) << l;
    EXPECT_EQ(found.layers[l].backwardAhead, backward[l]) << l;
  }
}

TEST(StageContents, nothing_is_gathered_beside_a_reshard) {
  StageContents found =
      marked({{"sdp4", 64}, {"sdp2.tp2", 64}, {"sdp2.tp2", 64}, {"dp4", 64}});
  const bool forward[] = {false, false, true, false};
  const bool backward[] = {false, true, false, false};
  for (size_t l = 0; l < found.layers.size(); ++l) {
    EXPECT_EQ(found.layers[l].forwardAhead, forward[l]) << l;
    EXPECT_EQ(found.layers[l].backwardAhead, backward[l]) << l;
  }
}

} // namespace
