//===- AmpSearchTest.cpp - AMP's plans against all plans ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/AmpSearch.h"
#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Planner/Limits.h"
#include "galvatron/Support/Units.h"

#include "../RandomInstances.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <gtest/gtest.h>

using namespace galvatron;

namespace {

constexpr int64_t kMiB = 1 << 20;

/// Nodes of two devices, "f" fast and "s" slow, in the given order. Nothing is
/// gained by overlapping and updates take no time, so that evaluate() tells
/// sums of gradients apart.
Cluster mixed(llvm::StringRef order, llvm::StringRef behind = "") {
  std::string text = R"(
name: mixed
device-types:
  - {name: fast, backend: cuda, memory: 450MiB, flops: {f32: 10TFLOPS},
     memory-bandwidth: 500GB/s, overlap-slowdown: 2, optimizer-bandwidth: 0B/s}
  - {name: slow, backend: cuda, memory: 320MiB, flops: {f32: 5TFLOPS},
     memory-bandwidth: 250GB/s, overlap-slowdown: 2, optimizer-bandwidth: 0B/s}
network: {bandwidth: 2GB/s, latency: 10us}
nodes:
)";
  for (char kind : order)
    text += std::string("  - {count: 1, device-type: ") +
            (kind == 'f' ? "fast" : "slow") +
            ", devices: 2, link: {bandwidth: " +
            (kind == 'f' ? "20GB/s" : "10GB/s") + ", latency: 5us}}\n";
  return llvm::cantFail(Cluster::parse(text + behind.str(), "mixed.yaml"));
}

/// Layers of uneven cost, measured on both types and for two tensor ranks.
std::unique_ptr<ProfileLayerModel> uneven(std::mt19937_64 &random,
                                          int64_t count) {
  std::vector<ProfileLayer> layers;
  for (int64_t l = 0; l < count; ++l) {
    ProfileLayer layer;
    layer.name = "layer" + std::to_string(l);
    layer.measured = true;
    double ms = 0.1 * static_cast<double>(pick(random, 1, 40));
    for (auto [type, factor] : {std::pair("fast", 1.0), std::pair("slow", 1.9)})
      for (int64_t tp : {1, 2}) {
        double own = ms * factor / (tp == 1 ? 1 : 1.6);
        layer.times.push_back({type, tp, BatchTimes({{1, own}, {4, 3 * own}}),
                               BatchTimes({{1, 2 * own}, {4, 6 * own}})});
      }
    layer.parameterBytes = pick(random, 1, 20) * kMiB;
    layer.boundaryBytes = pick(random, 1, 4) * kMiB;
    layer.intermediateBytes = pick(random, 5, 40) * kMiB;
    layers.push_back(std::move(layer));
  }
  return llvm::cantFail(
      ProfileLayerModel::get("uneven", "f32", std::move(layers)));
}

Plan shaped(LayerModel &model, const AmpShape &shape, int64_t batch,
            const std::vector<std::vector<int64_t>> &devices,
            llvm::ArrayRef<int64_t> partition) {
  Plan plan;
  plan.batch = batch;
  plan.microBatches = shape.microBatches;
  plan.pipelineDegree = shape.pipelineDegree;
  int64_t next = 0;
  for (size_t s = 0; s < partition.size(); ++s) {
    PlanStage stage;
    stage.devices = devices[s];
    stage.firstLayer = next;
    stage.layerCount = partition[s];
    plan.stages.push_back(stage);
    for (int64_t i = 0; i < partition[s]; ++i, ++next)
      plan.layers.push_back(
          {model.layerName(next), static_cast<int64_t>(s), shape.strategy()});
  }
  return plan;
}

/// Eq. 5 and the slowest sum of gradients, from what evaluate() says of layers
/// and stages; 0 if the plan does not fit.
double priceMs(LayerModel &model, const Cluster &cluster, const Plan &given) {
  PlannerResult priced = llvm::cantFail(evaluate(model, cluster, given));
  if (!priced.feasible())
    return 0;
  const Plan &plan = priced.plan();
  double sum = 0, largest = 0, end = 0;
  for (const PlanStage &stage : plan.stages) {
    double time = 0, once = 0;
    for (int64_t i = 0; i < stage.layerCount; ++i) {
      const PlanLayer &layer = plan.layers[stage.firstLayer + i];
      time += layer.timeNosyncMs;
      once += layer.timeMs - layer.timeNosyncMs;
    }
    sum += stage.timeNosyncMs; // with the transfers
    largest = std::max(largest, time);
    end = std::max(end, once);
  }
  return static_cast<double>(plan.microBatches - 1) * largest + sum + end;
}

/// Calls `visit` with every contiguous partition.
template <typename Visit>
void forEachPartition(int64_t layers, int64_t stages, Visit visit) {
  for (uint64_t cuts = 0; cuts < uint64_t(1) << (layers - 1); ++cuts) {
    std::vector<int64_t> partition = {1};
    for (int64_t l = 1; l < layers; ++l)
      if (cuts >> (l - 1) & 1)
        partition.push_back(1);
      else
        ++partition.back();
    if (static_cast<int64_t>(partition.size()) == stages)
      visit(partition);
  }
}

/// The best assignment of a shape on devices by trying all; 0 if none fits.
double bestMs(LayerModel &model, const Cluster &cluster, const AmpShape &shape,
              int64_t batch, const std::vector<std::vector<int64_t>> &devices) {
  double best = 0;
  forEachPartition(static_cast<int64_t>(model.layerCount()),
                   shape.pipelineDegree, [&](const auto &partition) {
                     double ms = priceMs(
                         model, cluster,
                         shaped(model, shape, batch, devices, partition));
                     if (ms > 0 && (best == 0 || ms < best))
                       best = ms;
                   });
  return best;
}

TEST(AmpSearch, has_the_candidates_of_the_paper) {
  Cluster cluster = llvm::cantFail(Cluster::load("4x4xt4"));
  std::mt19937_64 random(1);
  auto model = uneven(random, 30);
  for (auto [batch, expected] : {std::pair(32, 53), std::pair(64, 65)}) {
    AmpProblem problem;
    problem.batch = batch;
    EXPECT_EQ(
        llvm::count_if(ampShapes(*model, cluster, problem),
                       [](const AmpShape &shape) { return !shape.recompute; }),
        expected);
  }
}

TEST(AmpSearch, is_the_best_of_all_assignments_of_every_shape) {
  std::mt19937_64 random(5);
  int plans = 0, unfit = 0;
  // Links of each pair of devices, by one bandwidth for each way, or measured.
  constexpr const char *kMatrix = R"(
bandwidth-matrix: [[0B/s, 9GB/s, 2GB/s, 1GB/s], [8GB/s, 0B/s, 3GB/s, 2GB/s],
                   [4GB/s, 5GB/s, 0B/s, 7GB/s], [6GB/s, 1GB/s, 9GB/s, 0B/s]]
)";
  constexpr const char *kMeasured = R"(
collectives:
  - {kind: all-reduce, ranks: 2, stride: 2, span: network,
     times: [[1MiB, 3ms], [3MiB, 9ms]]}
  - {kind: send, ranks: 2, span: network, stride: 1,
     times: [[1MiB, 5ms], [3MiB, 20ms]]}
)";
  for (auto [order, behind] : {std::pair("fs", ""),
                               {"sf", ""},
                               {"ff", ""},
                               {"fs", kMatrix},
                               {"ff", kMeasured}})
    for (int64_t batch : {4, 8}) {
      Cluster cluster = mixed(order, behind);
      auto model = uneven(random, 6);
      AmpProblem problem;
      problem.batch = batch;
      AmpResult result = llvm::cantFail(searchAmp(*model, cluster, problem));
      EXPECT_TRUE(
          llvm::is_sorted(result.plans, [](const AmpPlan &a, const AmpPlan &b) {
            return a.total() < b.total();
          }));
      std::vector<AmpShape> shapes = ampShapes(*model, cluster, problem);
      EXPECT_EQ(result.shapes, static_cast<int64_t>(shapes.size()));
      for (const AmpShape &shape : shapes) {
        auto devices = stageDevices(4, shape.pipelineDegree);
        double expected = bestMs(*model, cluster, shape, batch, devices);
        auto found = llvm::find_if(result.plans, [&](const AmpPlan &plan) {
          return plan.shape == shape;
        });
        ASSERT_EQ(found != result.plans.end(), expected > 0) << shape.str();
        if (expected == 0) {
          ++unfit;
          continue;
        }
        ++plans;
        EXPECT_NEAR(toMilliseconds(found->total()), expected, 1e-6)
            << shape.str();
        // What is claimed of the assignment is so.
        EXPECT_NEAR(priceMs(*model, cluster,
                            shaped(*model, shape, batch, found->devices,
                                   found->layersPerStage)),
                    expected, 1e-6);
      }
    }
  EXPECT_GT(plans, 50);
  EXPECT_GT(unfit, 10);
}

TEST(AmpSearch, annealing_mends_a_bad_order_of_nodes) {
  std::mt19937_64 random(9);
  auto model = uneven(random, 8);
  Cluster cluster = mixed("fsfs");
  AmpProblem problem;
  problem.batch = 8;
  AmpResult given = llvm::cantFail(searchAmp(*model, cluster, problem));
  problem.placement = Placement::Anneal;
  std::vector<PlannerProgress> told;
  problem.progress = [&](const PlannerProgress &now) { told.push_back(now); };
  AmpResult annealed = llvm::cantFail(searchAmp(*model, cluster, problem));
  // One plan behind the other, each better than what it began with or as it.
  ASSERT_FALSE(told.empty());
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].batch, 8);
    EXPECT_EQ(told[i].solved + told[i].open, told[0].solved + told[0].open);
    if (i > 0 && told[i].solved == told[i - 1].solved)
      EXPECT_GE(told[i].samplesPerSecond, told[i - 1].samplesPerSecond);
    if (i > 0)
      EXPECT_GE(told[i].solved, told[i - 1].solved);
  }
  problem.progress = nullptr;
  AmpResult again = llvm::cantFail(searchAmp(*model, cluster, problem));
  ASSERT_EQ(annealed.plans.size(), given.plans.size());
  EXPECT_LT(annealed.plans[0].total(), given.plans[0].total());
  EXPECT_EQ(annealed.plans[0].devices, again.plans[0].devices);
  for (size_t i = 0; i < given.plans.size(); ++i)
    EXPECT_LE(annealed.plans[i].total(), given.plans[i].total());
  // The plans cost what they say on the devices they name.
  for (const AmpPlan &plan : llvm::ArrayRef(annealed.plans).take_front(5))
    EXPECT_NEAR(priceMs(*model, cluster,
                        shaped(*model, plan.shape, 8, plan.devices,
                               plan.layersPerStage)),
                toMilliseconds(plan.total()), 1e-6);
}

TEST(PlanLimits, name_the_slowest_device_and_the_busiest_link) {
  Cluster cluster = mixed("fs");
  std::vector<ProfileLayer> layers(2);
  for (auto [l, layer] : llvm::enumerate(layers)) {
    layer.name = "layer" + std::to_string(l);
    layer.measured = true;
    layer.forward = BatchTimes({{1, 1}});
    layer.backward = BatchTimes({{1, 2}});
    layer.parameterBytes = kMiB;
    layer.boundaryBytes = 20 * kMiB;
  }
  auto model = llvm::cantFail(ProfileLayerModel::get(
      "limits", "f32", std::move(layers), {}, /*measuredFlops=*/10e12));
  auto limitsOf = [&](const AmpShape &shape,
                      std::vector<std::vector<int64_t>> devices,
                      std::vector<int64_t> partition) {
    PlannerResult priced = llvm::cantFail(
        evaluate(*model, cluster, shaped(*model, shape, 4, devices, partition),
                 int64_t(1) << 34));
    return llvm::cantFail(planLimits(*model, cluster, priced.plan()));
  };
  // Two stages of two: the second one computes on slow devices, and 20 MiB a
  // sample cross the network twice.
  PlanLimits cut = limitsOf({2, 2, 1, 1, 2, false}, {{0, 1}, {2, 3}}, {1, 1});
  EXPECT_EQ(cut.deviceType, "slow");
  EXPECT_EQ(cut.stage, 1);
  ASSERT_TRUE(cut.link);
  EXPECT_EQ(cut.link->what, "transfers between stages 0 and 1");
  EXPECT_EQ(cut.link->link.bandwidth, 2e9);
  EXPECT_LT(cut.link->from, 2);
  EXPECT_GE(cut.link->to, 2);
  // Both replicas' transfers leave by one uplink: 2 micro-batches of 2 samples,
  // both ways.
  EXPECT_NEAR(cut.link->stepMs, 2 * 2 * (2 * 20 * kMiB / 2e9 * 1e3 + 0.01),
              0.1);
  // One stage whose tensor ranks share a node, and replicas that do not.
  PlanLimits tensor = limitsOf({1, 2, 2, 2, 1, false}, {{0, 1, 2, 3}}, {2});
  ASSERT_TRUE(tensor.link);
  EXPECT_EQ(tensor.link->what, "tensor parallelism of stage 0");
  EXPECT_EQ(tensor.link->link.bandwidth, 10e9);
  EXPECT_EQ(tensor.deviceType, "slow");
  std::string text;
  llvm::raw_string_ostream os(text);
  cut.print(
      os, cluster,
      shaped(*model, {2, 2, 1, 1, 2, false}, 4, {{0, 1}, {2, 3}}, {1, 1}));
  EXPECT_NE(text.find("of node 1 (slow)"), std::string::npos) << text;
  EXPECT_NE(text.find("2.00 GB/s: transfers between stages 0 and 1"),
            std::string::npos)
      << text;
}

TEST(AmpSearch, the_baseline_shares_a_model_among_as_few_ranks_as_fit) {
  std::mt19937_64 random(11);
  auto model = uneven(random, 6);
  Cluster cluster = mixed("ff");
  AmpProblem problem;
  problem.batch = 8;
  AmpResult all = llvm::cantFail(searchAmp(*model, cluster, problem));
  AmpResult baseline =
      llvm::cantFail(megatronHeuristic(*model, cluster, problem));
  ASSERT_FALSE(baseline.plans.empty());
  EXPECT_LE(all.plans[0].total(), baseline.plans[0].total());
  for (const AmpPlan &plan : baseline.plans) {
    int64_t shared = plan.shape.pipelineDegree * plan.shape.tensorDegree;
    EXPECT_LE(plan.shape.tensorDegree, 2);
    EXPECT_GT(priceMs(*model, cluster,
                      shaped(*model, plan.shape, 8, plan.devices,
                             plan.layersPerStage)),
              0);
    // With fewer ranks neither even split of this size fits.
    for (const AmpShape &shape : ampShapes(*model, cluster, problem))
      if (shape.microBatchSize == plan.shape.microBatchSize &&
          shape.recompute == plan.shape.recompute &&
          shape.pipelineDegree * shape.tensorDegree < shared)
        EXPECT_EQ(priceMs(*model, cluster,
                          shaped(*model, shape, 8,
                                 stageDevices(4, shape.pipelineDegree),
                                 evenPartition(6, shape.pipelineDegree))),
                  0)
            << shape.str();
  }
}

TEST(AmpSearch, the_simulator_decides_among_the_first) {
  std::mt19937_64 random(3);
  auto model = uneven(random, 6);
  Cluster cluster = mixed("fs");
  PlannerOptions options;
  options.space = "amp";
  options.batch = 8;
  BaselineReport executed =
      llvm::cantFail(reportBaseline(*model, cluster, options, {}, false));
  double least = 0;
  const llvm::json::Array &candidates = *executed.json.getArray("candidates");
  for (const llvm::json::Value &value : candidates)
    if (auto ms = value.getAsObject()->getNumber("simulated-ms"))
      least = least == 0 ? *ms : std::min(least, *ms);
  EXPECT_EQ(*executed.json.getNumber("iteration-ms"), least);
  EXPECT_EQ(*executed.json.getString("placement"), "heuristic");
  options.objective = Objective::Paper;
  BaselineReport paper =
      llvm::cantFail(reportBaseline(*model, cluster, options, {}, false));
  EXPECT_EQ(*paper.json.getNumber("iteration-ms"),
            *candidates.front().getAsObject()->getNumber("estimate-ms"));
  for (const BaselineReport *answer : {&executed, &paper})
    EXPECT_NEAR(*answer->json.getNumber("samples-per-second") *
                    *answer->json.getNumber("iteration-ms"),
                8e3, 1e-6);
}

TEST(AmpSearch, what_does_not_fit_or_divide_is_said) {
  std::mt19937_64 random(3);
  auto model = uneven(random, 6);
  Cluster cluster = mixed("fs");
  PlannerOptions options;
  options.space = "amp";
  options.batch = 8;
  options.memory = 40 * kMiB;
  BaselineReport none =
      llvm::cantFail(reportBaseline(*model, cluster, options, {}, false));
  ASSERT_TRUE(none.infeasible);
  EXPECT_GT(none.infeasible->neededBytes, none.infeasible->availableBytes);
  EXPECT_EQ(none.infeasible->reason,
            "no plan of space 'amp' fits: a device needs about " +
                printBytesRounded(none.infeasible->neededBytes));
  options.memory.reset();
  options.microBatches = 3;
  none = llvm::cantFail(reportBaseline(*model, cluster, options, {}, false));
  ASSERT_TRUE(none.infeasible);
  EXPECT_NE(none.infeasible->reason.find("evenly"), std::string::npos);
  auto unknown = llvm::cantFail(Cluster::load("4xt4"));
  options.microBatches.reset();
  EXPECT_EQ(
      llvm::toString(
          reportBaseline(*model, unknown, options, {}, false).takeError()),
      "model 'uneven' has no times for device type 't4', only for fast, slow");
}

} // namespace
