//===- PlannerLimitsTest.cpp - Searches cut short, sums too large ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Limits of time and steps, and of the numbers that times are summed in: what
// is found in spite of them, and what is then claimed as proven.
//
//===----------------------------------------------------------------------===//

#include "../PaperOptions.h"
#include "../TestSchedule.h"
#include "RandomModel.h"
#include "galvatron/Planner/Planner.h"

#include "gtest/gtest.h"

#include <chrono>
#include <functional>

using namespace galvatron;
using galvatron::test::PlainModel;
using galvatron::test::RandomModel;
using galvatron::test::smallCluster;

namespace {

/// The limit holds inside the search of one shape too, and a plan is found even
/// so.
TEST(Planner, the_time_limit_stops_a_long_search) {
  std::vector<size_t> kinds(256, 1);
  for (size_t l = 0; l < kinds.size(); ++l)
    kinds[l] = l % 5;
  RandomModel model(37, kinds, true);
  Cluster cluster = smallCluster(8, 8, 1.3);
  PlannerOptions options = paperOptions();
  options.batch = 256;
  options.memory = 30000000;
  Cancellation::Clock::time_point time;
  uint64_t looks = 0;
  Cancellation counted([&] {
    ++looks;
    return time += std::chrono::seconds(1);
  });
  constexpr int limit = 20000;
  counted.setSeconds(limit);
  options.cancellation = &counted;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  ASSERT_TRUE(result.plan().provenGapPercent.has_value());
  EXPECT_GT(*result.plan().provenGapPercent, 0);
  // Each level of the search looks once more on its way out.
  EXPECT_GE(looks, uint64_t(limit));
  EXPECT_LT(looks, uint64_t(limit) + 1000);
}

/// Where time is up at once, a plan over large stages is chosen as if moves
/// between layers were free; it is told with them, and nothing is proven of it.
TEST(Planner, a_stopped_search_over_large_stages_has_a_plan) {
  RandomModel model(41, {0, 1, 1, 2}, true);
  Cluster cluster = smallCluster(32, 8, 1.3);
  PlannerOptions options = paperOptions();
  options.batch = 512;
  options.pipelineDegree = 1;
  Cancellation stopped;
  stopped.setSeconds(0);
  options.cancellation = &stopped;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  EXPECT_EQ(result.plan().foundBy, "quick");
  PlannerResult again =
      llvm::cantFail(evaluate(model, cluster, result.plan(), std::nullopt));
  EXPECT_EQ(again.plan().iterationMs, result.plan().iterationMs);
  options.cancellation = nullptr;
  PlannerResult best = llvm::cantFail(plan(model, cluster, options));
  EXPECT_EQ(best.plan().foundBy, "exact");
  EXPECT_LE(best.plan().iterationMs, result.plan().iterationMs);
  options.cancellation = &stopped;
  options.memory = 1;
  result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_FALSE(result.feasible());
  EXPECT_NE(result.infeasible().reason.find("was found in time"),
            std::string::npos);
  // The leanest plan of a shape is found where it alone fits.
  options.microBatches = 2;
  result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_FALSE(result.feasible());
  options.memory = result.infeasible().neededBytes;
  result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  EXPECT_EQ(result.plan().stages[0].peakBytes, *options.memory);
}

/// A limit of counted steps is no less honest, and gives the same plan whatever
/// the machine's speed.
TEST(Planner, the_step_limit_proves_its_gap_and_never_varies) {
  std::vector<size_t> kinds(24, 1);
  for (size_t l = 0; l < kinds.size(); ++l)
    kinds[l] = l % 4;
  RandomModel model(43, kinds, true);
  Cluster cluster = smallCluster(2, 4, 1.3);
  PlannerOptions options = paperOptions();
  options.memory = 20000000;
  options.maxBatch = 64;
  PlannerResult unlimited = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(unlimited.feasible());
  const Plan &best = unlimited.plan();
  EXPECT_EQ(best.provenGapPercent, 0);
  EXPECT_GT(unlimited.steps, 1000u);
  bool partial = false;
  for (uint64_t steps : {uint64_t(1), uint64_t(1000), unlimited.steps / 16}) {
    options.mostSteps = steps;
    PlannerResult result = llvm::cantFail(plan(model, cluster, options));
    ASSERT_TRUE(result.feasible()) << steps;
    EXPECT_LT(result.steps, unlimited.steps);
    Plan found = result.plan();
    ASSERT_TRUE(found.provenGapPercent.has_value());
    partial |= *found.provenGapPercent > 0;
    EXPECT_LE(best.samplesPerSecond,
              found.samplesPerSecond *
                  (1 + *found.provenGapPercent / 100 + 1e-9))
        << steps;
    PlannerResult again = llvm::cantFail(plan(model, cluster, options));
    EXPECT_EQ(again.steps, result.steps);
    Plan other = again.plan();
    found.searchMs = other.searchMs = 0;
    EXPECT_EQ(found.toJson(), other.toJson());
  }
  EXPECT_TRUE(partial);
}

TEST(Planner, sums_of_samples_do_not_overflow) {
  PlainModel model(8);
  Cluster cluster = smallCluster(1, 4, 1.3);
  auto refusal = [&](const PlannerOptions &options) {
    llvm::Expected<PlannerResult> result = plan(model, cluster, options);
    return result ? std::string() : llvm::toString(result.takeError());
  };
  PlannerOptions options = paperOptions();
  options.batch = kMostBatch + 1;
  EXPECT_EQ(refusal(options),
            "expected a batch of at most 2^30, found 1073741825");
  options.batch.reset();
  options.maxBatch = int64_t(1) << 62;
  EXPECT_EQ(refusal(options),
            "expected a largest batch of at most 2^30, found " +
                std::to_string(options.maxBatch));
  options.maxBatch = kMostBatch;
  EXPECT_EQ(refusal(options), "the sweep has 134217728 batches, expected at "
                              "most 2^20: use a larger step");
}

/// Layers that take `seconds` a sample, whatever the strategy.
class SlowModel : public PlainModel {
public:
  SlowModel(size_t layers, double seconds)
      : PlainModel(layers), seconds(seconds) {}
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    auto out = PlainModel::footprint(kind, strategy, samples);
    // Three times that in both directions, on 10 GFLOP/s.
    out->forwardFlops = static_cast<double>(samples) * seconds * 10e9 / 3;
    out->backwardFlops = 2 * out->forwardFlops;
    return out;
  }

private:
  double seconds;
};

/// 96 micro-batches of these layers cannot be summed, 72 can: they are found
/// although the two are looked at together, and nothing is claimed of the 96.
TEST(Planner, what_cannot_be_summed_is_left_out_and_not_proven) {
  SlowModel model(4, 900);
  Cluster cluster = smallCluster(1, 2, 1.3);
  PlannerOptions options = paperOptions();
  options.pipelineDegree = 2;
  options.batchStep = 24;
  options.maxBatch = 96;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  const Plan &found = result.plan();
  EXPECT_EQ(found.batch, 72);
  EXPECT_EQ(found.microBatches, 72);
  // (96 + 1) / 96 of the work of a sample against (72 + 1) / 72.
  ASSERT_TRUE(found.provenGapPercent.has_value());
  EXPECT_GT(*found.provenGapPercent, 0.3);
  EXPECT_TRUE(llvm::any_of(result.decisions, [](const std::string &text) {
    return text == "pp2 m96 batch 96: rejected, layer 'l0' takes too long "
                   "under every strategy for a step to be summed";
  }));
}

/// Days for a micro-batch under tensor parallelism.
class SlowShards : public PlainModel {
public:
  using PlainModel::PlainModel;
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    auto out = PlainModel::footprint(kind, strategy, samples);
    if (strategy.degree(Paradigm::TP) > 1)
      out->forwardFlops = 1e15;
    return out;
  }
};

/// The other strategies are searched and proven as if it were not there.
TEST(Planner, one_strategy_that_cannot_be_summed_leaves_the_proof_whole) {
  PlainModel plain(8);
  SlowShards model(8);
  Cluster cluster = smallCluster(1, 2, 1.3);
  PlannerOptions options = paperOptions();
  options.batch = 64;
  options.strategy = *Strategy::parse("dp2");
  options.pipelineDegree = 1;
  double expected =
      llvm::cantFail(plan(plain, cluster, options)).plan().iterationMs;
  options.strategy.reset();
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible());
  EXPECT_LE(result.plan().iterationMs, expected);
  EXPECT_EQ(result.plan().provenGapPercent, 0);
}

/// Three hours and more a step: 201 times as many picoseconds are no 64-bit
/// number.
TEST(Planner, a_sweep_of_long_iterations_ends) {
  SlowModel model(8, 3750);
  Cluster cluster = smallCluster(1, 1, 1.3);
  PlannerOptions options = paperOptions();
  options.memory = 1 << 20;
  options.batchStep = 1;
  options.maxBatch = 64;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  ASSERT_TRUE(result.feasible()) << result.infeasible().str();
  EXPECT_EQ(result.plan().provenGapPercent, 0);
  EXPECT_TRUE(llvm::is_contained(
      result.decisions, "batch 2: the sweep ends, doubling the batch gained "
                        "less than 0.5%"));
}

/// Each with the last value that is allowed beside the first that is not.
TEST(Planner, options_out_of_range_are_refused) {
  PlainModel model(4);
  Cluster cluster = smallCluster(1, 2, 1.3);
  auto answer = [&](const std::function<void(PlannerOptions &)> &change,
                    LayerModel *other = nullptr) {
    PlannerOptions options;
    options.batch = 8;
    change(options);
    auto result = plan(other ? *other : model, cluster, options);
    return result ? std::string("planned") : llvm::toString(result.takeError());
  };
  Cancellation past;
  past.setSeconds(0);
  auto sweep = [&](PlannerOptions &o, int64_t step, int64_t largest) {
    o.batch.reset();
    o.batchStep = step;
    o.maxBatch = largest;
    o.cancellation = &past;
  };
  PlainModel none(0);
  EXPECT_EQ(answer([](auto &) {}, &none), "model 'random' has no layers");
  EXPECT_EQ(answer([](auto &o) { o.batch = 0; }),
            "expected a batch of at least 1, found 0");
  EXPECT_EQ(answer([](auto &o) { o.batch = 1; }), "planned");
  EXPECT_EQ(answer([](auto &o) { o.batch = (1 << 30) + 1; }),
            "expected a batch of at most 2^30, found 1073741825");
  for (auto [step, largest] : {std::pair(0, 8), {8, 0}, {-1, 8}})
    EXPECT_EQ(answer([&](auto &o) { sweep(o, step, largest); }),
              "expected a batch step and a largest batch of at least 1");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 1, 1); }), "planned");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 9, 8); }),
            "the largest batch 8 is below the batch step 9");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 8, 8); }), "planned");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 8, (1 << 30) + 1); }),
            "expected a largest batch of at most 2^30, found 1073741825");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 1023, 1 << 30); }),
            "the sweep has 1049601 batches, expected at most 2^20: use a "
            "larger step");
  EXPECT_EQ(answer([&](auto &o) { sweep(o, 1024, 1 << 30); }), "planned");
  EXPECT_EQ(answer([](auto &o) { o.microBatches = 0; }),
            "0 micro-batches do not divide the batch of 8");
  EXPECT_EQ(answer([](auto &o) {
              o.batch.reset();
              o.microBatches = 0;
            }),
            "0 micro-batches do not divide the batch");
  EXPECT_EQ(answer([](auto &o) {
              o.microBatches = 1;
              o.microBatchRule = MicroBatchRule::Paper;
            }),
            "expected either a number of micro-batches or a rule for it, found "
            "both");
  EXPECT_EQ(answer([](auto &o) { o.memory = 0; }), "expected a memory above 0");
  EXPECT_EQ(answer([](auto &o) { o.memory = 1; }), "planned");
  EXPECT_EQ(answer([](auto &o) { o.partition = {4, 0}; }),
            "the partition has a stage of 0 layers");
  EXPECT_EQ(answer([](auto &o) { o.partition = {3, 1}; }), "planned");
  EXPECT_EQ(answer([](auto &o) { o.chunks = -1; }),
            "expected at least one chunk a stage, found -1");
  EXPECT_EQ(answer([](auto &o) { o.gapPercent = -0.5; }),
            "expected a gap of at least 0 percent");

  // Objectives and homes.
  Strategy home = llvm::cantFail(Strategy::parse("dp2.opt-host"));
  constexpr const char *kHome =
      "strategy 'dp2.opt-host' has its home on the host: expected offload "
      "'layers' or 'layers,activations', found 'off'";
  EXPECT_EQ(answer([&](auto &o) { o.strategy = home; }), kHome);
  EXPECT_EQ(answer([&](auto &o) { o.pins = {{"l1", home}}; }), kHome);
  EXPECT_EQ(answer([&](auto &o) {
              o.strategy = home;
              o.offload = Offload::Layers;
            }),
            "planned");
  EXPECT_EQ(answer([](auto &o) {
              o.objective = Objective::Paper;
              o.offload = Offload::Layers;
            }),
            "objective 'paper' has all states on the devices: expected "
            "objective 'executed' for offload 'layers'");
  EXPECT_EQ(answer([](auto &o) {
              o.objective = Objective::Paper;
              o.schedule = &scheduleNamed("interleaved");
            }),
            "objective 'paper' is of whole stages: expected objective "
            "'executed' for schedule 'interleaved'");
  EXPECT_EQ(answer([](auto &o) { o.schedule = &scheduleNamed("zb-h1"); }),
            "schedule 'zb-h1' splits backward passes, and model 'random' does "
            "not say what their parts take: expected a model with bodies, or "
            "'weight-ms' in its profile");
}

} // namespace
