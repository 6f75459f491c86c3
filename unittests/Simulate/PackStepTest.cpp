//===- PackStepTest.cpp - Steps of packs, operation by operation ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"

#include "gtest/gtest.h"

#include <algorithm>

using namespace galvatron;

namespace {

constexpr int64_t kMebibyte = int64_t(1) << 20;

ProfileLayer measured(const char *name, int64_t count, double forwardMs,
                      int64_t parameters) {
  ProfileLayer layer;
  layer.name = name;
  layer.count = count;
  layer.measured = true;
  layer.forward = BatchTimes({{1, forwardMs}});
  layer.backward = BatchTimes({{1, 2 * forwardMs}});
  layer.parameterBytes = parameters;
  layer.boundaryBytes = 2 * kMebibyte;
  layer.intermediateBytes = 8 * kMebibyte;
  return layer;
}

std::unique_ptr<ProfileLayerModel> sixLayers() {
  return llvm::cantFail(
      ProfileLayerModel::get("m", "f32",
                             {measured("embed", 1, 0.5, 30 * kMebibyte),
                              measured("block", 4, 3, 20 * kMebibyte),
                              measured("head", 1, 2, 30 * kMebibyte)}));
}

/// As the planner finds it, but for the packs.
Plan planOf(LayerModel &model, const Cluster &cluster, const char *space,
            int64_t batch, std::optional<int64_t> memory = std::nullopt,
            const char *offload = "off") {
  PlannerOptions options;
  options.offload = llvm::cantFail(parseOffload(offload));
  options.training.clip = !options.offload.justInTime;
  options.space = space;
  options.batch = batch;
  options.memory = memory;
  auto found = planSpace(model, cluster, options);
  EXPECT_TRUE(bool(found)) << llvm::toString(found.takeError());
  EXPECT_TRUE(found->feasible());
  return found->plan();
}

size_t countOf(const SimulatedActor &actor, Activity activity) {
  return llvm::count_if(actor.spans, [&](const SimulatedSpan &span) {
    return span.activity == activity;
  });
}

/// What one device does in a step, in any order.
double sumOfTasks(const SimulationInput &input) {
  const TaskProgram &program = input.program;
  double sum = 0;
  auto chunks = chunkLayers(input);
  for (auto [index, chunk] : llvm::enumerate(program.chunks)) {
    auto number = int64_t(index);
    auto all = double(program.microBatchesOf(number));
    for (size_t l = chunks[number].begin; l < chunks[number].end; ++l) {
      const LayerTimeParts &time = input.roles[0].layers[l].time;
      sum += time.swapParameters + all * time.forward;
      if (!chunk.forwardOnly)
        sum += all * time.backward + time.norm + time.update +
               (program.updatesOnDevice(number)
                    ? time.swapParameters + 2 * time.swapOptimizer
                    : time.swapGradients);
      if (chunk.stashFrom >= 0)
        sum += all * time.swapKept;
    }
    // Micro-batches of who sends it.
    if (chunk.stashFrom >= 0)
      sum += double(program.microBatchesOf(chunk.stashFrom)) *
             input.stashes[number].activation.seconds;
    if (chunk.forwardOnly && !program.sendsHome(number))
      sum += all * input.cuts[number].activation.seconds;
    if (!chunk.forwardOnly && !program.isLastChunk(number))
      sum += all * input.cuts[number].gradient.seconds;
  }
  return sum;
}

/// One device does one thing after the other, so a step is the sum of all that
/// it does: every pack comes once, runs all micro-batches, and goes.
TEST(PackStep, of_one_device_is_the_sum_of_its_tasks) {
  Cluster cluster = llvm::cantFail(Cluster::load("1xcpu"));
  auto model = sixLayers();
  for (int64_t batch : {1, 3, 8})
    for (int64_t memory : {150, 200, 260}) {
      Plan plan =
          planOf(*model, cluster, "harmony-pp", batch, memory * kMebibyte);
      SimulationInput input =
          llvm::cantFail(simulationInput(*model, cluster, plan));
      Simulation simulation = llvm::cantFail(simulate(input));
      double expected = sumOfTasks(input);
      EXPECT_GE(chunkLayers(input).size(), 3u);
      EXPECT_NEAR(simulation.seconds, expected, 1e-9 * expected);
      EXPECT_NEAR(plan.iterationMs, 1e3 * simulation.seconds,
                  1e-9 * plan.iterationMs);
      // Of bytes: copies read and write.
      double rate = cluster.deviceType(0).memoryBandwidth / 2;
      EXPECT_DOUBLE_EQ(input.roles[0].layers.back().time.swapParameters,
                       double(30 * kMebibyte) / rate);
    }
}

/// With the update on the device optimizer state comes and goes, and parameters
/// leave, for gradients that stay.
TEST(PackStep, of_updates_on_the_device_has_what_they_move) {
  Cluster cluster = llvm::cantFail(Cluster::load("1xcpu"));
  auto model = sixLayers();
  Plan plan = planOf(*model, cluster, "harmony-pp", 8, 260 * kMebibyte,
                     "all,just-in-time,update-on-device");
  EXPECT_EQ(offloadName(plan.offload), "all,just-in-time,update-on-device");
  SimulationInput input =
      llvm::cantFail(simulationInput(*model, cluster, plan));
  Simulation simulation = llvm::cantFail(simulate(input));
  double expected = sumOfTasks(input);
  EXPECT_NEAR(simulation.seconds, expected, 1e-9 * expected);
  EXPECT_NEAR(plan.iterationMs, 1e3 * simulation.seconds,
              1e-9 * plan.iterationMs);
  // The same packs with the update on the host.
  plan.offload.updateOnDevice = false;
  SimulationInput host = llvm::cantFail(simulationInput(*model, cluster, plan));
  // Of bytes: 140 MiB of parameters out for 140 of gradients, and 280 of Adam's
  // moments in and out.
  double rate = cluster.deviceType(0).memoryBandwidth / 2;
  EXPECT_NEAR(simulation.seconds - llvm::cantFail(simulate(host)).seconds,
              double(2 * 280 * kMebibyte) / rate, 1e-9 * expected);
  for (const StageLedger &ledger :
       {input.roles[0].ledger, host.roles[0].ledger})
    EXPECT_LE(ledger.total(), 260 * kMebibyte);
}

/// A link to the host that is slower than its memory has all copies.
TEST(PackStep, over_a_slow_link_copies_take_longer) {
  auto model = sixLayers();
  auto on = [](double link) {
    DeviceType type;
    type.name = "core";
    type.backend = "cpu";
    type.memory = int64_t(1) << 30;
    type.flops = {{"f32", 4e10}};
    type.memoryBandwidth = 8e9;
    type.hostBandwidth = link;
    return llvm::cantFail(
        Cluster::get("test", {type}, {{1, "core", 1, {}}}, Link{1e9, 1e-6}));
  };
  Cluster fast = on(0), slow = on(1e9), faster = on(5e9);
  Plan plan = planOf(*model, fast, "harmony-pp", 4, 200 * kMebibyte);
  auto secondsOn = [&](const Cluster &cluster) {
    SimulationInput input =
        llvm::cantFail(simulationInput(*model, cluster, plan));
    Simulation simulation = llvm::cantFail(simulate(input));
    EXPECT_NEAR(simulation.seconds, sumOfTasks(input),
                1e-9 * simulation.seconds);
    return simulation.seconds;
  };
  // Copies take a byte in 1 ns instead of 1/4: of parameters in twice, but for
  // the last pack's, of gradients out, and of stashes in; stashes go out over
  // the link, and then to where their home is.
  ScheduleShape shape = plan.shape();
  int64_t stashes =
      4 * 2 * int64_t(kMebibyte) * (std::ssize(shape.backwardPacks) - 2);
  int64_t parameters = 140, last = 0;
  const int64_t each[] = {30, 20, 20, 20, 20, 30};
  for (int64_t l = shape.backwardPacks.back(); l < 6; ++l)
    last += each[l];
  double slower =
      double((3 * parameters - last) * kMebibyte + stashes) * 0.75e-9 +
      double(stashes) * 1e-9;
  double before = secondsOn(fast);
  EXPECT_FALSE(shape.regroups());
  EXPECT_NEAR(secondsOn(slow) - before, slower, 1e-9 * before);
  EXPECT_NEAR(secondsOn(faster) - before, double(stashes) * 0.2e-9,
              1e-9 * before);
}

/// The same of two sizes, whose forward passes and stashes are as large as
/// their own, and whose bytes are as many.
TEST(PackStep, of_two_sizes_is_the_sum_of_its_tasks) {
  Cluster cluster = llvm::cantFail(Cluster::load("1xcpu"));
  auto model = sixLayers();
  Plan plan = planOf(*model, cluster, "harmony-pp", 8, 200 * kMebibyte);
  double rate = cluster.deviceType(0).memoryBandwidth / 2;
  for (auto [forward, backward] : {std::pair(2, 8), {1, 4}, {8, 2}}) {
    plan.forwardMicroBatches = forward;
    plan.microBatches = backward;
    ASSERT_FALSE(plan.forwardPacks.empty());
    SimulationInput input =
        llvm::cantFail(simulationInput(*model, cluster, plan));
    EXPECT_TRUE(input.program.regroups());
    Simulation simulation = llvm::cantFail(simulate(input));
    double expected = sumOfTasks(input);
    EXPECT_NEAR(simulation.seconds, expected, 1e-9 * expected);
    for (auto [number, chunk] : llvm::enumerate(input.program.chunks)) {
      if (chunk.stashFrom < 0)
        continue;
      double all = 8.0 * double(2 * kMebibyte) / rate;
      const SimulatedLayer &first =
          input.roles[0].layers[chunkLayers(input)[number].begin];
      EXPECT_NEAR(forward * input.stashes[number].activation.seconds, all,
                  1e-9 * all);
      EXPECT_NEAR(backward * first.time.swapKept, all, 1e-9 * all);
    }
  }
}

/// Every rank of a group does the same; its sums are beside nothing.
TEST(PackStep, one_rank_stands_for_all_that_run_all_packs) {
  Cluster cluster = llvm::cantFail(Cluster::load("4xcpu"));
  auto model = sixLayers();
  Plan plan = planOf(*model, cluster, "harmony-dp", 8, 200 * kMebibyte);
  EXPECT_EQ(plan.pipelineDegree, 1);
  EXPECT_EQ(plan.layers.front().strategy.str(), "zdp4");
  SimulationInput input =
      llvm::cantFail(simulationInput(*model, cluster, plan));
  Simulation simulation = llvm::cantFail(simulate(input));
  SimulationOptions options;
  options.expandRanks = true;
  Simulation expanded = llvm::cantFail(simulate(input, options));
  EXPECT_EQ(expanded.actors.size(), 4u);
  EXPECT_NEAR(expanded.seconds, simulation.seconds, 1e-9 * simulation.seconds);
  EXPECT_NEAR(plan.iterationMs, 1e3 * simulation.seconds,
              1e-9 * plan.iterationMs);
  EXPECT_GT(countOf(simulation.actors.front(), Activity::GradientSync), 0u);
}

/// What packs of several devices do, and how long that is at least and at most.
TEST(PackStep, of_several_devices_overlaps) {
  auto model = sixLayers();
  size_t allCopies = 0;
  for (int64_t devices : {2, 3}) {
    Cluster cluster =
        llvm::cantFail(Cluster::load(std::to_string(devices) + "xcpu"));
    Plan plan = planOf(*model, cluster, "harmony-pp", 8, 160 * kMebibyte);
    SimulationInput input =
        llvm::cantFail(simulationInput(*model, cluster, plan));
    Simulation simulation = llvm::cantFail(simulate(input));
    EXPECT_NEAR(plan.iterationMs, 1e3 * simulation.seconds,
                1e-9 * plan.iterationMs);
    double most = 0, sum = 0;
    for (const SimulatedActor &actor : simulation.actors) {
      most = std::max(most, actor.compute + actor.exposed);
      sum += actor.compute + actor.exposed;
    }
    EXPECT_LE(most, simulation.seconds * (1 + 1e-9));
    EXPECT_LT(simulation.seconds, sum);
    // Every layer but those of the last pack runs forward twice, once of them
    // to recompute; what goes into packs that do so goes home and comes back.
    size_t forward = 0, recompute = 0, backward = 0, sent = 0, received = 0;
    for (const SimulatedActor &actor : simulation.actors) {
      forward += countOf(actor, Activity::Forward);
      recompute += countOf(actor, Activity::Recompute);
      backward += countOf(actor, Activity::Backward);
      sent += countOf(actor, Activity::SendStash);
      received += countOf(actor, Activity::ReceiveStash);
    }
    auto all = size_t(plan.microBatches);
    auto last = size_t(6 - plan.shape().backwardPacks.back());
    bool regroups = plan.shape().regroups();
    auto ofForward = regroups ? size_t(plan.forwardMicroBatches) : all;
    EXPECT_EQ(forward, last * all + (6 - last) * ofForward);
    EXPECT_EQ(backward, 6 * all);
    EXPECT_EQ(recompute, (6 - last) * all);
    EXPECT_EQ(sent, (plan.shape().backwardPacks.size() - (regroups ? 1 : 2)) *
                        ofForward);
    EXPECT_EQ(received, sent);
    // Layers that a device runs forward for another take its values.
    size_t copies = 0;
    for (const TieRoles &tie : input.program.ties)
      copies += tie.forwardOnly;
    EXPECT_EQ(copies, input.ties.size());
    allCopies += copies;
  }
  EXPECT_GT(allCopies, 0u);
}

} // namespace
