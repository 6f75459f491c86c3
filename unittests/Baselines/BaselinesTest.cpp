//===- BaselinesTest.cpp - Plans of published planners --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Schedule/Schedule.h"

#include "../RandomInstances.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace galvatron;

namespace {

constexpr int64_t kMebibyte = 1 << 20;

ProfileLayer measuredLayer(std::string name, int64_t count, double ms,
                           int64_t weights, int64_t kept) {
  ProfileLayer layer;
  layer.name = std::move(name);
  layer.count = count;
  layer.measured = true;
  layer.forward = BatchTimes({{1, ms}, {4, 3 * ms}});
  layer.backward = BatchTimes({{1, 2 * ms}, {4, 6 * ms}});
  layer.parameterBytes = weights;
  layer.boundaryBytes = 2 * kMebibyte;
  layer.intermediateBytes = kept;
  return layer;
}

std::unique_ptr<ProfileLayerModel> model(std::vector<ProfileLayer> layers) {
  return llvm::cantFail(
      ProfileLayerModel::get("layers", "f32", std::move(layers)));
}

std::unique_ptr<ProfileLayerModel> fiveLayers() {
  return model({measuredLayer("embed", 1, 1, 90 * kMebibyte, 4 * kMebibyte),
                measuredLayer("block", 3, 5, 60 * kMebibyte, 250 * kMebibyte),
                measuredLayer("head", 1, 3, 90 * kMebibyte, 30 * kMebibyte)});
}

Plan shaped(LayerModel &model, int64_t devices, int64_t batch, int64_t m,
            bool recompute, llvm::ArrayRef<int64_t> partition) {
  Plan plan;
  auto depth = static_cast<int64_t>(partition.size());
  llvm::SmallVector<Level, 1> levels;
  if (devices > depth)
    levels.push_back({Paradigm::DP, devices / depth});
  Strategy strategy = llvm::cantFail(Strategy::get(levels, recompute));
  plan.batch = batch;
  plan.microBatches = m;
  plan.pipelineDegree = depth;
  auto groups = stageDevices(devices, depth);
  int64_t next = 0;
  for (int64_t s = 0; s < depth; ++s) {
    PlanStage stage;
    stage.devices = groups[s];
    stage.firstLayer = next;
    stage.layerCount = partition[s];
    plan.stages.push_back(stage);
    for (int64_t i = 0; i < partition[s]; ++i, ++next)
      plan.layers.push_back({model.layerName(next), s, strategy});
  }
  return plan;
}

/// Samples per second of the best plan of the space by trying everything and
/// pricing it with evaluate(); 0 if nothing fits.
double bestByEnumeration(LayerModel &model, const Cluster &cluster,
                         int64_t batch, int64_t memory) {
  int64_t devices = cluster.deviceCount();
  auto layers = static_cast<int64_t>(model.layerCount());
  double best = 0;
  for (int64_t depth = 1; depth <= std::min(devices, layers); ++depth) {
    if (devices % depth)
      continue;
    for (int64_t m = depth; m <= batch; ++m) {
      if (batch % m || batch / m % (devices / depth))
        continue;
      for (uint64_t cuts = 0; cuts < uint64_t(1) << (layers - 1); ++cuts) {
        std::vector<int64_t> partition = {1};
        for (int64_t l = 1; l < layers; ++l)
          if (cuts >> (l - 1) & 1)
            partition.push_back(1);
          else
            ++partition.back();
        if (static_cast<int64_t>(partition.size()) != depth)
          continue;
        for (bool recompute : {false, true}) {
          PlannerResult priced = llvm::cantFail(evaluate(
              model, cluster,
              shaped(model, devices, batch, m, recompute, partition), memory));
          if (!priced.feasible())
            continue;
          double slowest = 0;
          bool fits = true;
          for (const PlanStage &stage : priced.plan().stages) {
            fits &= stage.peakBytes + stage.ledger.parameters <=
                    stage.availableBytes;
            slowest = std::max(
                slowest, double(m - 1) * stage.timeNosyncMs + stage.timeMs +
                             stage.optimizerMs * (1 - 1.0 / double(depth)));
          }
          if (fits)
            best = std::max(best, 1000 * double(batch) / slowest);
        }
      }
    }
  }
  return best;
}

PlannerOptions asked(std::string space, int64_t batch) {
  PlannerOptions options;
  options.toolVersion = "1.2.3";
  options.space = std::move(space);
  options.batch = batch;
  return options;
}

TEST(TwoBufferPlan, isTheBestOfAllStagesAndSizes) {
  Cluster cluster = llvm::cantFail(Cluster::load("4xrtx-titan"));
  auto layers = fiveLayers();
  int feasible = 0, recomputed = 0, infeasible = 0;
  for (int64_t batch : {4, 8, 12})
    for (int64_t memory : {1700 * kMebibyte, 2200 * kMebibyte, 2400 * kMebibyte,
                           2600 * kMebibyte, 2900 * kMebibyte, 3400 * kMebibyte,
                           9000 * kMebibyte}) {
      PlannerOptions options = asked("2bw", batch);
      options.memory = memory;
      BaselineReport answer =
          llvm::cantFail(reportBaseline(*layers, cluster, options, {}, true));
      double best = bestByEnumeration(*layers, cluster, batch, memory);
      ASSERT_EQ(!answer.infeasible, best > 0) << batch << " " << memory;
      if (answer.infeasible) {
        ++infeasible;
        EXPECT_GT(answer.infeasible->neededBytes,
                  answer.infeasible->availableBytes);
        continue;
      }
      ++feasible;
      recomputed += *answer.json.getBoolean("recompute");
      EXPECT_NEAR(*answer.json.getNumber("samples-per-second"), best,
                  1e-6 * best);
      EXPECT_EQ(*answer.json.getString("schedule"), "2bw");
      EXPECT_EQ(*answer.json.getString("tool-version"), "1.2.3");
      EXPECT_EQ(*answer.json.getInteger("weight-versions"), 2);
      // In the steady state the slowest stage never waits.
      EXPECT_NEAR(*answer.json.getNumber("simulated-iteration-ms"),
                  *answer.json.getNumber("iteration-ms"),
                  0.001 * *answer.json.getNumber("iteration-ms"));
    }
  EXPECT_GT(feasible, 8);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(recomputed, 0);
}

TEST(HarmonyPlan, trainsWhatNoOtherSpaceCan) {
  // Weights, gradients and Adam's state of the model are 16 bytes a parameter:
  // 5.6 GiB, which four devices of 0.9 GiB do not have.
  Cluster cluster = llvm::cantFail(Cluster::load("4xrtx-titan"));
  auto layers =
      model({measuredLayer("embed", 1, 1, 90 * kMebibyte, 4 * kMebibyte),
             measuredLayer("block", 20, 5, 60 * kMebibyte, 60 * kMebibyte),
             measuredLayer("head", 1, 3, 90 * kMebibyte, 30 * kMebibyte)});
  PlannerOptions options = asked("bmw", 16);
  options.memory = 2250 * kMebibyte; // 1.3 GiB of it are reserved
  options.relaxations = false;
  EXPECT_FALSE(llvm::cantFail(plan(*layers, cluster, options)).feasible());
  for (const char *space : {"harmony-pp", "harmony-dp"}) {
    options.space = space;
    BaselineReport answer =
        llvm::cantFail(reportBaseline(*layers, cluster, options, {}, false));
    ASSERT_FALSE(answer.infeasible) << space;
    EXPECT_EQ(*answer.json.getString("schedule"), space);
    EXPECT_EQ(answer.json.getArray("layers")->size(), 22u);
    // The host has all parameters, and twice as many bytes of moments.
    const llvm::json::Object *host = answer.json.getObject("host-ledger");
    EXPECT_EQ(*host->getInteger("parameters"), 1380 * kMebibyte);
    EXPECT_EQ(*host->getInteger("optimizer"), 2 * 1380 * kMebibyte);
    // Packs hold all layers, in order.
    int64_t next = 0;
    for (const llvm::json::Value &stage : *answer.json.getArray("stages")) {
      EXPECT_EQ(*stage.getAsObject()->getInteger("first-layer"), next);
      next += *stage.getAsObject()->getInteger("layer-count");
    }
    EXPECT_EQ(next, 22);
  }
}

/// Of packs in ever more memory: what is proven with some of it holds for all
/// plans that need less, whatever the home of an update.
TEST(Baselines, packsAreBoundedByWhatDevicesComputeAndCopy) {
  for (const char *space : {"harmony-pp", "harmony-dp"})
    for (const char *name : {"2xrtx-titan", "4xrtx-titan", "2xcpu"}) {
      Cluster cluster = llvm::cantFail(Cluster::load(name));
      auto layers =
          model({measuredLayer("embed", 1, 1, 90 * kMebibyte, 4 * kMebibyte),
                 measuredLayer("block", 8, 40, 60 * kMebibyte, 250 * kMebibyte),
                 measuredLayer("head", 1, 30, 90 * kMebibyte, 30 * kMebibyte)});
      double fastest = INFINITY, narrowest = INFINITY;
      for (int64_t memory : {500, 700, 1000, 2000, 8000})
        for (bool justInTime : {false, true}) {
          PlannerOptions options = asked(space, 8);
          options.memory = memory * kMebibyte;
          options.offload = Offload::All;
          options.offload.justInTime = justInTime;
          options.training.clip = !justInTime;
          PlannerResult found =
              llvm::cantFail(planSpace(*layers, cluster, options));
          if (!found.feasible())
            continue;
          ASSERT_TRUE(found.plan().gapPercent) << space << " on " << name;
          double ms = found.plan().iterationMs, gap = *found.plan().gapPercent;
          fastest = std::min(fastest, ms);
          narrowest = std::min(narrowest, gap);
          EXPECT_GE(gap, 0);
          EXPECT_LE(ms / (1 + gap / 100), fastest * (1 + 1e-9))
              << space << " on " << name << " in " << memory;
        }
      // A bound that has lost a term is further away. Pipelines of packs wait
      // for each other, which it does not know.
      bool waits = llvm::StringRef(space) == "harmony-pp";
      EXPECT_LT(narrowest, !waits                       ? 40
                           : cluster.deviceCount() == 4 ? 150
                                                        : 85)
          << space << " on " << name;
    }
}

TEST(Baselines, refusesWhatHasNoMeaning) {
  Cluster cluster = llvm::cantFail(Cluster::load("2x2xrtx-titan"));
  auto layers = fiveLayers();
  auto refusal = [&](PlannerOptions options) {
    auto answer = reportBaseline(*layers, cluster, options, {}, false);
    return answer ? "accepted" : llvm::toString(answer.takeError());
  };
  EXPECT_EQ(refusal(asked("harmony-pp", 4)),
            "space 'harmony-pp': expected a cluster of one node, found 2");
  PlannerOptions options = asked("2bw", 4);
  options.batch.reset();
  EXPECT_EQ(refusal(options),
            "space '2bw': expected --batch, which is not searched");
  options = asked("2bw", 4);
  options.partition = {2, 3};
  EXPECT_EQ(refusal(options),
            "space '2bw': expected no --partition, it is searched");
  EXPECT_EQ(refusal(asked("bmw", 4)),
            "space 'bmw': expected one of the baselines");
  // The ordinary planner, and with it the compiler, refuses them by name.
  auto planned = [&](PlannerOptions options, AmpOptions amp = {}) {
    auto answer = planSpace(*layers, cluster, options, amp);
    return answer ? "planned" : llvm::toString(answer.takeError());
  };
  EXPECT_EQ(planned(asked("2bw", 4)),
            "space '2bw': its plans are not compiled, expected "
            "--schedule=2bw");
  // Every other space is planned where the planner knows it.
  EXPECT_EQ(planned(asked("bmw", 4)), "planned");
  EXPECT_EQ(planned(asked("amp", 4)), "planned");
  EXPECT_EQ(planned(asked("ampp", 4)),
            "unknown space 'ampp', expected one of bmw, base, no-ckpt, bi-obj, "
            "1f1b-mem, 1f1b-time, dp, tp, pp, sdp, 3d, dp+tp, dp+pp, amp, "
            "megatron-heuristic, harmony-pp, harmony-dp; did you mean 'amp'?");
  // What belongs to one space is refused in all others.
  for (const char *space : {"bmw", "megatron-heuristic", "harmony-pp"}) {
    std::string expected = std::string("space '") + space +
                           "': expected neither --placement nor --ring-link, "
                           "which are of space 'amp'";
    EXPECT_EQ(planned(asked(space, 4), {.placement = Placement::Anneal}),
              expected);
    EXPECT_EQ(planned(asked(space, 4), {.ring = RingLink::Lowest}), expected);
  }
  EXPECT_EQ(planned(asked("amp", 4),
                    {.placement = Placement::Anneal, .ring = RingLink::Lowest}),
            "planned");
  options = asked("amp", 4);
  options.offload = Offload::All;
  EXPECT_EQ(planned(options),
            "space 'amp' has all states on the devices, found offload 'all'");
  options = asked("amp", 4);
  options.anyOffload = true;
  EXPECT_EQ(planned(options), "space 'amp' says where states have their home, "
                              "found offload 'any'");
  options = asked("amp", 4);
  options.anySchedule = true;
  EXPECT_EQ(planned(options),
            "space 'amp': expected no --schedule, it is the space's own");
}

} // namespace
