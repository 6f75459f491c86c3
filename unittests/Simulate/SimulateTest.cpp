//===- SimulateTest.cpp - Simulated plans against formulas ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/Simulate.h"
#include "../TestSchedule.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "../PaperOptions.h"
#include "../RandomProfile.h"

#include "gtest/gtest.h"

#include <cmath>
#include <map>
#include <random>
#include <set>

using namespace galvatron;

namespace {

//===----------------------------------------------------------------------===//
// Stages with times given by hand
//===----------------------------------------------------------------------===//

struct HandStage {
  double forward, backward, sync = 0;
  double weight = 0; ///< of backward, where it is split
};

/// One layer per stage, messages of equal length both ways.
SimulationInput byHand(const char *schedule, int64_t microBatches,
                       std::vector<HandStage> stages, double message = 0) {
  SimulationInput input;
  auto count = static_cast<int64_t>(stages.size());
  input.program = makeSchedule(scheduleNamed(schedule), count, microBatches);
  double sum = 0, largest = 0;
  for (int64_t s = 0; s < count; ++s) {
    SimulatedLayer layer;
    layer.name = "l" + std::to_string(s);
    layer.time.forward = stages[s].forward;
    layer.time.backward = stages[s].backward;
    layer.time.sync = stages[s].sync;
    layer.time.split = stages[s].weight > 0;
    layer.time.weight = stages[s].weight;
    layer.time.slowdown = 1.5;
    layer.stashBytes = 64;
    SimulatedRole role;
    role.devices = {s};
    role.layers = {layer};
    input.roles.push_back(role);
    // Eq. 9: the activation is paid by its sender, the gradient by its own.
    double transfers = (s + 1 < count) * message + (s > 0) * message;
    LayerTime time = layerTime(layer.time);
    sum += time.total() + transfers;
    largest = std::max(largest, time.totalNosync() + transfers);
    if (s + 1 == count)
      continue;
    SimulatedCut cut;
    cut.activation.seconds = cut.gradient.seconds = message;
    cut.senderGroup = cut.receiverGroup = {0};
    input.cuts.push_back(cut);
  }
  input.predictedSeconds =
      static_cast<double>(microBatches - 1) * largest + sum;
  return input;
}

Simulation run(const SimulationInput &input, SimulationOptions options = {}) {
  llvm::Expected<Simulation> simulation = simulate(input, options);
  EXPECT_TRUE(bool(simulation)) << llvm::toString(simulation.takeError());
  return simulation ? *simulation : Simulation();
}

TEST(Simulate, equal_stages_agree_with_equation_9) {
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int64_t stages : {1, 2, 3, 4, 8, 13})
      for (int64_t microBatches : {1, 2, 3, 5, 8, 64}) {
        SimulationInput input = byHand(
            schedule, microBatches, std::vector<HandStage>(stages, {0.7, 1.9}));
        EXPECT_NEAR(run(input).ratio(), 1, 1e-12)
            << stages << " stages, " << microBatches << " micro-batches";
      }
}

TEST(Simulate, all_stages_update_once_all_norms_have_met) {
  // Stage 0 ends its backward last: 1 + 2 forward, 4 + 3 back. Norms of 1 and
  // 5 s from second 7 and 10 on, both are there after 12 s.
  SimulationInput input = byHand("1f1b", 1, {{1, 3}, {2, 4}});
  LayerTimeParts *first = &input.roles[0].layers[0].time;
  LayerTimeParts *second = &input.roles[1].layers[0].time;
  first->norm = 1;
  first->update = 7;
  second->norm = 5;
  second->update = 3;
  Simulation simulation = run(input);
  EXPECT_DOUBLE_EQ(simulation.seconds, 12 + 7);
  for (int role : {0, 1})
    for (const SimulatedSpan &span : simulation.actors[role].spans)
      if (span.activity == Activity::Update) {
        EXPECT_DOUBLE_EQ(span.start, 12);
        EXPECT_DOUBLE_EQ(span.finish, role == 0 ? 19 : 15);
      }
  std::vector<SimulatedTask> tasks =
      simulatedTasks(input, simulation.actors[1], /*withCollectives=*/true);
  ASSERT_EQ(tasks.back().task.kind, TaskKind::Update);
  EXPECT_DOUBLE_EQ(tasks.back().start, 12);
  EXPECT_DOUBLE_EQ(tasks.back().finish, 15);
}

TEST(Simulate, gpipe_with_one_backward_to_forward_ratio_agrees_as_well) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> time(0.1, 2);
  for (int i = 0; i < 50; ++i) {
    std::vector<HandStage> stages;
    for (int64_t s = 0, n = 1 + i % 9; s < n; ++s) {
      double forward = time(random);
      stages.push_back({forward, 2.5 * forward});
    }
    EXPECT_NEAR(run(byHand("gpipe", 1 + i % 7, stages)).ratio(), 1, 1e-12);
  }
}

TEST(Simulate, gpipe_with_unequal_ratios_can_exceed_equation_9) {
  // Forward waits for stage 0 and backward for stage 1: 3 micro-batches take
  // (2 + 1 + 2 * 2) + (3 + 1 + 2 * 3) s, Eq. 9 says 2 * 4 + 3 + 4.
  SimulationInput input = byHand("gpipe", 3, {{2, 1}, {1, 3}});
  Simulation simulation = run(input);
  EXPECT_NEAR(simulation.seconds, 17, 1e-12);
  EXPECT_NEAR(simulation.predictedSeconds, 15, 1e-12);
}

TEST(Simulate, one_micro_batch_goes_there_and_back) {
  // Messages of 0.25 s: 1 + 0.25 + 2 + 4 + 0.25 + 3.
  SimulationInput input = byHand("1f1b", 1, {{1, 3}, {2, 4}}, 0.25);
  Simulation simulation = run(input);
  EXPECT_NEAR(simulation.seconds, 10.5, 1e-12);
  EXPECT_NEAR(simulation.ratio(), 1, 1e-12);
  // Stage 0 waits while the other computes.
  EXPECT_NEAR(simulation.actors[0].compute, 4, 1e-12);
  EXPECT_NEAR(simulation.actors[0].exposed, 0.5, 1e-12);
  EXPECT_NEAR(simulation.actors[0].bubble, 6, 1e-12);
  EXPECT_NEAR(simulation.bubbleShare(input), (6 + 4) / 21.0, 1e-12);
}

TEST(Simulate, gradient_all_reduces_of_stages_run_side_by_side) {
  // Two micro-batches, all-reduces of 4 s. Stage 1's last backward ends at 7 s,
  // stage 0's at 9 s, its all-reduce at 13 s; stage 1's holds nobody up. Eq. 9,
  // which counts both, overlapped with their backwards: 3 + 2 * (1 + 5).
  for (bool behind : {false, true}) {
    SimulationInput input = byHand("1f1b", 2, {{1, 2, 4}, {1, 2, 4}});
    if (behind)
      for (RoleProgram &role : input.program.roles)
        setSyncBehind(role);
    Simulation simulation = run(input);
    EXPECT_NEAR(simulation.predictedSeconds, 15, 1e-12);
    EXPECT_NEAR(simulation.seconds, 13, 1e-12);
  }
}

TEST(Simulate, sums_behind_a_backward_run_beside_the_layers_before) {
  // Two layers with backwards of 2 s and all-reduces of 2 s, slowdown 1.5.
  // Behind: the second layer's, from 4 s on, beside the first layer's backward:
  // both take 3 s, the first layer's ends at 9 s. After: at 6 s and 2 * 2.
  SimulationInput input = byHand("1f1b", 1, {{1, 2, 2}});
  SimulatedLayer copy = input.roles[0].layers[0];
  input.roles[0].layers.push_back(copy);
  EXPECT_NEAR(run(input).seconds, 10, 1e-12);
  setSyncBehind(input.program.roles[0]);
  EXPECT_NEAR(run(input).seconds, 9, 1e-12);
}

TEST(Simulate, a_layer_ahead_gathers_while_the_one_before_computes) {
  // Two layers of one stage, gathers of 1 s, computation of 2 s forward and
  // 3 s backward, no slowdown. In line: 2 * (1 + 2) + 2 * (1 + 3). Ahead: the
  // first gather is exposed, and so is the first of backward.
  SimulationInput input = byHand("1f1b", 1, {{2, 3}});
  SimulatedLayer &layer = input.roles[0].layers[0];
  layer.time.gather = 1;
  layer.time.slowdown = 1;
  SimulatedLayer copy = layer;
  input.roles[0].layers.push_back(copy);
  EXPECT_NEAR(run(input).seconds, 14, 1e-12);
  input.roles[0].layers[1].forwardAhead = true;
  EXPECT_NEAR(run(input).seconds, 13, 1e-12);
  input.roles[0].layers[0].backwardAhead = true;
  EXPECT_NEAR(run(input).seconds, 1 + 4 + 1 + 6, 1e-12);
}

TEST(Simulate, exchanges_and_gathers_share_a_queue) {
  // The second layer's gather, 2 s, beside the first one: 1 s of computation,
  // then an exchange of 2 s. Side by side the exchange ends at 3 s; in one
  // queue 1 s of each is left at 1 s and 1 s of the exchange alone at 3 s: 4 s.
  // The second layer takes 3 s, and its gather in backward 2 s.
  SimulationInput input = byHand("1f1b", 1, {{1, 0}});
  SimulatedLayer &layer = input.roles[0].layers[0];
  layer.time.tpForward = 2;
  layer.time.slowdown = 1;
  SimulatedLayer second = layer;
  second.time.gather = 2;
  second.forwardAhead = true;
  input.roles[0].layers.push_back(second);
  EXPECT_NEAR(run(input).seconds, 8, 1e-12);
  StepBounds before = stepBounds(input);
  input.roles[0].oneQueue = true;
  EXPECT_NEAR(run(input).seconds, 9, 1e-12);
  StepBounds bounds = stepBounds(input);
  EXPECT_LE(bounds.lower, 9);
  EXPECT_GE(bounds.lower, before.lower);
  EXPECT_GE(bounds.upper, 9);

  // A gather of 8 s. The bounds forward are what is longest: the gather beside
  // 2 s of computation and 4 s of exchanges, or, in one queue, behind these.
  input.roles[0].layers[1].time.gather = 8;
  EXPECT_NEAR(run(input).seconds, 13 + 8, 1e-12);
  EXPECT_NEAR(stepBounds(input).lower, 12 + 8, 1e-12);
  input.roles[0].oneQueue = false;
  EXPECT_NEAR(run(input).seconds, 11 + 8, 1e-12);
  EXPECT_NEAR(stepBounds(input).lower, 8 + 8, 1e-12);
}

TEST(Simulate, an_unsound_schedule_is_refused) {
  SimulationInput input = byHand("1f1b", 2, {{1, 2}, {1, 2}});
  input.program.roles[1].part(SchedulePart::Steady).pop_back();
  llvm::Expected<Simulation> simulation = simulate(input);
  ASSERT_FALSE(bool(simulation));
  EXPECT_NE(llvm::toString(simulation.takeError()).find("not sound"),
            std::string::npos);
}

//===----------------------------------------------------------------------===//
// Random plans
//===----------------------------------------------------------------------===//

Cluster clusterOf(int64_t nodes, int64_t devices, double slowdown,
                  double network = 1e10) {
  DeviceType type;
  type.name = "device";
  type.backend = "cuda";
  type.memory = int64_t(1) << 40;
  type.flops = {{"f32", 1e13}};
  type.memoryBandwidth = 1e12;
  type.overlapSlowdown = slowdown;
  NodeGroup group;
  group.count = nodes;
  group.deviceType = "device";
  group.devices = devices;
  group.link = {2e10, 5e-6};
  llvm::Expected<Cluster> cluster =
      Cluster::get("test", {type}, {group}, Link{network, 1e-5});
  EXPECT_TRUE(bool(cluster)) << llvm::toString(cluster.takeError());
  return *cluster;
}

struct RandomPlan {
  std::unique_ptr<ProfileLayerModel> model;
  Plan plan;
};

RandomPlan makeRandomPlan(std::mt19937_64 &random, const Cluster &cluster,
                          const char *schedule) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  RandomPlan made;
  int64_t count = pick(8, 14);
  made.model = test::randomProfile(random, count);

  Plan &plan = made.plan;
  std::vector<int64_t> degrees = divisors(cluster.deviceCount());
  do
    plan.pipelineDegree = degrees[pick(0, degrees.size() - 1)];
  while (plan.pipelineDegree > count);
  plan.schedule = &scheduleNamed(schedule);
  plan.microBatches = pick(1, 12);
  plan.batch = plan.microBatches * cluster.deviceCount() * pick(1, 2);
  std::vector<std::vector<int64_t>> devices =
      stageDevices(cluster.deviceCount(), plan.pipelineDegree);
  // A random partition: one layer each, the rest anywhere.
  std::vector<int64_t> sizes(plan.pipelineDegree, 1);
  for (int64_t l = plan.pipelineDegree; l < count; ++l)
    ++sizes[pick(0, plan.pipelineDegree - 1)];
  SpaceOptions space;
  space.keepDpSdp = true;
  std::vector<Strategy> strategies =
      enumerateStrategies(cluster.deviceCount() / plan.pipelineDegree, space);
  int64_t next = 0;
  for (int64_t s = 0; s < plan.pipelineDegree; ++s) {
    PlanStage stage;
    stage.devices = devices[s];
    stage.firstLayer = next;
    stage.layerCount = sizes[s];
    for (int64_t l = 0; l < sizes[s]; ++l)
      plan.layers.push_back({made.model->layerName(next++), s,
                             strategies[pick(0, strategies.size() - 1)]});
    plan.stages.push_back(stage);
  }
  llvm::Expected<PlannerResult> priced =
      evaluate(*made.model, cluster, plan, int64_t(1) << 50);
  EXPECT_TRUE(bool(priced)) << llvm::toString(priced.takeError());
  if (priced) {
    EXPECT_TRUE(priced->feasible());
    plan = priced->plan();
  }
  return made;
}

/// Every way in turn.
SumTiming timingOf(int number) {
  const SumTiming all[] = {SumTiming::ByRule, SumTiming::Overlap,
                           SumTiming::AtEnd};
  return all[number % 3];
}

SimulationInput inputOf(RandomPlan &random, const Cluster &cluster) {
  llvm::Expected<SimulationInput> input =
      simulationInput(*random.model, cluster, random.plan);
  EXPECT_TRUE(bool(input)) << llvm::toString(input.takeError());
  return input ? *input : SimulationInput();
}

/// What the stage with most to do computes in a step, whatever runs beside it.
double computedSeconds(const SimulationInput &input) {
  double most = 0;
  for (const SimulatedRole &role : input.roles) {
    double once = 0;
    for (const SimulatedLayer &layer : role.layers)
      once += layer.time.forward + layer.time.recompute + layer.time.backward;
    most = std::max(most, once * static_cast<double>(input.microBatches()));
  }
  return most;
}

/// Plans over clusters whose stages share nothing, uplinks, or nodes with
/// others in part; every other one gathers ahead wherever that is sound.
TEST(Simulate, bounds_hold_for_random_plans) {
  std::mt19937_64 random(11);
  const Cluster clusters[] = {clusterOf(1, 8, 1.3), clusterOf(2, 4, 1.7, 1e9),
                              clusterOf(4, 3, 1.1, 3e9),
                              clusterOf(3, 2, 2.0, 5e8)};
  double widest = 1;
  for (int i = 0; i < instances(600, 20); ++i) {
    const Cluster &cluster = clusters[i % std::size(clusters)];
    RandomPlan plan = makeRandomPlan(random, cluster, i % 3 ? "1f1b" : "gpipe");
    for (PlanStage &stage : plan.plan.stages) {
      stage.gathersAhead = i % 2;
      stage.sums = timingOf(i + int(stage.firstLayer));
    }
    SimulationInput input = inputOf(plan, cluster);
    // As the devices' backend has it.
    for (const SimulatedRole &role : input.roles)
      EXPECT_TRUE(role.oneQueue);
    StepBounds bounds = stepBounds(input);
    Simulation simulation = run(input);
    EXPECT_GE(bounds.lower, computedSeconds(input) * (1 - 1e-9))
        << "plan " << i;
    EXPECT_LE(bounds.lower, simulation.seconds * (1 + 1e-9)) << "plan " << i;
    EXPECT_GE(bounds.upper, simulation.seconds * (1 - 1e-9)) << "plan " << i;
    widest = std::max(widest, bounds.upper / bounds.lower);
    SimulationInput outline =
        llvm::cantFail(simulationOutline(*plan.model, cluster, plan.plan));
    EXPECT_EQ(stepBounds(outline).lower, bounds.lower) << "plan " << i;
    EXPECT_EQ(stepBounds(outline).upper, bounds.upper) << "plan " << i;
    EXPECT_EQ(llvm::cantFail(simulatedSeconds(outline)), simulation.seconds)
        << "plan " << i;
    // With gradients summed after the backward passes, as on CPUs.
    for (RoleProgram &role : input.program.roles)
      for (Task &task : role.part(SchedulePart::Steady))
        if (task.kind == TaskKind::Backward)
          task.flags = 0;
    bounds = stepBounds(input);
    simulation = run(input);
    EXPECT_LE(bounds.lower, simulation.seconds * (1 + 1e-9)) << "plan " << i;
    EXPECT_GE(bounds.upper, simulation.seconds * (1 - 1e-9)) << "plan " << i;
  }
  // Bounds that say nothing would hold as well.
  EXPECT_LT(widest, 6);
}

/// Copies have streams of their own in a step that is simulated from its
/// outline, and in one that is simulated in part.
TEST(Simulate, copies_keep_their_streams) {
  std::mt19937_64 random(22);
  Cluster cluster = clusterOf(1, 8, 1.3);
  int beside = 0;
  for (int i = 0; i < 20; ++i) {
    RandomPlan plan = makeRandomPlan(random, cluster, "1f1b");
    plan.plan.offload = Offload::Optimizer;
    if (i % 2) {
      plan.plan.offload = Offload::Layers;
      for (size_t l = 0; l < plan.plan.layers.size(); l += 1 + i % 3) {
        Strategy &strategy = plan.plan.layers[l].strategy;
        strategy = strategy.withHome({/*states=*/true, /*activations=*/false});
      }
    }
    SimulationInput input = inputOf(plan, cluster);
    ASSERT_TRUE(input.program.swapsOnStreams);
    double whole = run(input).seconds;
    EXPECT_EQ(llvm::cantFail(simulatedSeconds(llvm::cantFail(
                  simulationOutline(*plan.model, cluster, plan.plan)))),
              whole)
        << i;
    EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input, 1)), whole, 0.1 * whole)
        << i;
    // On the thread that computes they take longer.
    input.program = input.program.schedule->build(
        ScheduleShape::of(input.program, input.microBatches()),
        input.program.ties);
    beside += run(input).seconds > whole * 1.001;
  }
  EXPECT_GT(beside, 5);
}

/// What is chosen for a role's sums holds in its last batch, too.
TEST(Simulate, sums_overlap_in_all_parts_or_none) {
  std::mt19937_64 random(23);
  Cluster cluster = clusterOf(1, 8, 1.3);
  int parts = 0;
  for (int i = 0; i < 12; ++i) {
    RandomPlan plan = makeRandomPlan(random, cluster, "2bw");
    SimulationInput input = inputOf(plan, cluster);
    for (size_t role = 0; role < input.roles.size(); ++role) {
      if (!input.roles[role].canOverlapSums)
        continue;
      for (bool overlap : {true, false, true}) {
        setSumsOverlap(input, role, overlap);
        RoleProgram &program = input.program.roles[role];
        for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain}) {
          EXPECT_EQ(llvm::any_of(program.part(part),
                                 [](const Task &task) {
                                   return bool(task.flags & SyncBehind);
                                 }),
                    overlap)
              << schedulePartName(part);
          ++parts;
        }
      }
    }
  }
  EXPECT_GT(parts, 12);
}

/// Of batches that go on, a step is what one more takes.
TEST(Simulate, bounds_hold_where_batches_go_on) {
  std::mt19937_64 random(16);
  const Cluster clusters[] = {clusterOf(1, 8, 1.3), clusterOf(2, 4, 1.7, 1e9),
                              clusterOf(4, 3, 1.1, 3e9)};
  double widest = 1;
  for (int i = 0; i < instances(300, 20); ++i) {
    const Cluster &cluster = clusters[i % std::size(clusters)];
    RandomPlan plan = makeRandomPlan(random, cluster, "2bw");
    SimulationInput input = inputOf(plan, cluster);
    for (bool behind : {true, false}) {
      StepBounds bounds = stepBounds(input);
      double seconds = llvm::cantFail(simulatedSeconds(input));
      EXPECT_LE(bounds.lower, seconds * (1 + 1e-9)) << "plan " << i;
      EXPECT_GE(bounds.upper, seconds * (1 - 1e-9)) << "plan " << i;
      // Fewer micro-batches are in lockstep, which the lower bound does not
      // see.
      if (plan.plan.microBatches + 1 >= plan.plan.pipelineDegree)
        widest = std::max(widest, bounds.upper / bounds.lower);
      if (behind)
        EXPECT_EQ(llvm::cantFail(simulatedSeconds(llvm::cantFail(
                      simulationOutline(*plan.model, cluster, plan.plan)))),
                  seconds)
            << "plan " << i;
      for (RoleProgram &role : input.program.roles)
        for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain})
          for (Task &task : role.part(part))
            task.flags = 0;
    }
  }
  EXPECT_LT(widest, 6);
}

/// Equal stages whose messages take no time are never idle from as many
/// micro-batches on as there are stages less one.
TEST(Simulate, batches_that_go_on_leave_no_bubble) {
  for (int64_t stages : {1, 2, 4, 8})
    for (int64_t microBatches : {8, 16}) {
      SimulationInput input = byHand(
          "2bw", microBatches, std::vector<HandStage>(stages, {0.7, 1.9, 0.0}));
      double busy = static_cast<double>(microBatches) * (0.7 + 1.9);
      EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input)), busy, 1e-9);
    }
}

/// Nor do ends of a tie wait for each other, but on devices with streams.
TEST(Simulate, ends_of_a_tie_do_not_wait_where_batches_go_on) {
  for (int64_t stages : {2, 3, 4, 8})
    for (int64_t borrower : {int64_t(1), stages - 1})
      for (int64_t microBatches : {stages, 2 * stages + 1}) {
        SimulationInput input =
            byHand("2bw", microBatches,
                   std::vector<HandStage>(stages, {0.7, 1.9, 0.0}));
        input.program = makeSchedule(scheduleNamed("2bw"), stages, microBatches,
                                     {{0, borrower}});
        input.ties.resize(1);
        double busy = static_cast<double>(microBatches) * (0.7 + 1.9);
        EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input)), busy, 1e-9)
            << stages << " stages, " << microBatches << " micro-batches";
        // What it takes to fetch the gradient, and the value, is paid by who
        // fetches it; neighbours may wait for both.
        input.ties[0].reduce.seconds = 0.25;
        input.ties[0].broadcast.seconds = 0.125;
        double fetching = llvm::cantFail(simulatedSeconds(input));
        EXPECT_GE(fetching, busy + 0.25 - 1e-9);
        EXPECT_LE(fetching, busy + 0.375 + 1e-9);
        StepBounds bounds = stepBounds(input);
        EXPECT_LE(bounds.lower, fetching);
        EXPECT_GE(bounds.upper, fetching);
        input.tiesMeet = true;
        EXPECT_GT(llvm::cantFail(simulatedSeconds(input)),
                  busy + 1.9 * static_cast<double>(borrower) - 1e-9);
      }
}

/// Every other plan has layers that cannot be split.
TEST(Simulate, bounds_hold_where_backward_passes_are_split) {
  std::mt19937_64 random(19);
  const Cluster clusters[] = {clusterOf(1, 8, 1.3), clusterOf(2, 4, 1.7, 1e9),
                              clusterOf(4, 3, 1.1, 3e9),
                              clusterOf(3, 2, 2.0, 5e8)};
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  double widest = 1;
  for (int i = 0; i < instances(600, 30); ++i) {
    const Cluster &cluster = clusters[i % std::size(clusters)];
    RandomPlan plan =
        makeRandomPlan(random, cluster, i % 4 < 2 ? "zb-h1" : "zb-h2");
    for (PlanStage &stage : plan.plan.stages) {
      stage.gathersAhead = i % 3 == 0;
      stage.sums = timingOf(i + int(stage.firstLayer));
    }
    SimulationInput input = inputOf(plan, cluster);
    for (SimulatedRole &role : input.roles)
      for (SimulatedLayer &layer : role.layers) {
        if (i % 2 && pick(0, 2) == 0)
          continue;
        layer.time.split = true;
        layer.time.weight =
            layer.time.backward * static_cast<double>(pick(0, 10)) / 10;
        layer.time.tpWeight =
            layer.time.tpBackward * static_cast<double>(pick(0, 2)) / 10;
      }
    for (bool behind : {true, false}) {
      StepBounds bounds = stepBounds(input);
      Simulation simulation = run(input);
      EXPECT_GE(bounds.lower, computedSeconds(input) * (1 - 1e-9))
          << "plan " << i;
      EXPECT_LE(bounds.lower, simulation.seconds * (1 + 1e-9)) << "plan " << i;
      EXPECT_GE(bounds.upper, simulation.seconds * (1 - 1e-9)) << "plan " << i;
      widest = std::max(widest, bounds.upper / bounds.lower);
      EXPECT_EQ(llvm::cantFail(simulatedSeconds(input)), simulation.seconds);
      for (RoleProgram &role : input.program.roles)
        for (Task &task : role.part(SchedulePart::Steady))
          if (behind)
            task.flags = 0;
    }
  }
  EXPECT_LT(widest, 6);
}

/// Three equal parts: a stage stands still for a third of the time that it does
/// under 1F1B, with the micro-batches in flight of its first stage.
TEST(Simulate, weight_parts_fill_bubbles) {
  for (int64_t stages : {1, 2, 4, 8, 16})
    for (int64_t microBatches : {stages, 2 * stages, 4 * stages}) {
      std::vector<HandStage> whole(stages, {1, 2, 0}),
          split(stages, {1, 2, 0, 1});
      double busy = 3 * static_cast<double>(microBatches);
      auto ends = static_cast<double>(stages - 1);
      EXPECT_DOUBLE_EQ(run(byHand("1f1b", microBatches, whole)).seconds,
                       busy + 3 * ends);
      SimulationInput input = byHand("zb-h1", microBatches, split);
      Simulation simulation = run(input);
      EXPECT_DOUBLE_EQ(simulation.seconds, busy + ends);
      StepBounds bounds = stepBounds(input);
      EXPECT_LE(bounds.lower, simulation.seconds * (1 + 1e-9));
      EXPECT_GE(bounds.upper, simulation.seconds * (1 - 1e-9));
      EXPECT_GE(bounds.lower, 0.8 * simulation.seconds);
      for (const SimulatedActor &actor : simulation.actors)
        EXPECT_EQ(actor.peakActivations, 64 * stages);
    }
}

/// Three equal parts: no stage stands still between its first task and its
/// last, with fewer than twice the micro-batches in flight; and where nothing
/// makes stages meet behind a step none does from step to step either.
TEST(Simulate, twice_as_far_ahead_no_bubble_is_left) {
  for (int64_t stages : {1, 2, 3, 4, 8, 16})
    for (int64_t microBatches : {2 * stages - 1, 2 * stages, 4 * stages + 1}) {
      SimulationInput input = byHand(
          "zb-h2", microBatches, std::vector<HandStage>(stages, {1, 2, 0, 1}));
      Simulation simulation = run(input);
      double busy = 3 * static_cast<double>(microBatches);
      EXPECT_DOUBLE_EQ(simulation.seconds,
                       busy + static_cast<double>(stages - 1));
      StepBounds bounds = stepBounds(input);
      EXPECT_LE(bounds.lower, simulation.seconds * (1 + 1e-9));
      EXPECT_NEAR(bounds.upper, simulation.seconds, 1e-9 * simulation.seconds);
      for (const SimulatedActor &actor : simulation.actors)
        EXPECT_EQ(actor.peakActivations, 64 * (2 * stages - 1));
      EXPECT_NEAR(llvm::cantFail(secondsWithoutNorm(input)), busy, 1e-9);
      // With whole backward passes stages wait in every step.
      SimulationInput whole = byHand("1f1b", microBatches,
                                     std::vector<HandStage>(stages, {1, 2, 0}));
      EXPECT_NEAR(llvm::cantFail(secondsWithoutNorm(whole)),
                  busy + 3 * static_cast<double>(stages - 1), 1e-9);
    }
}

TEST(Simulate, bounds_hold_for_all_small_shapes_twice_as_far_ahead) {
  std::mt19937_64 random(23);
  auto pick = [&](int64_t low, int64_t high) {
    return static_cast<double>(
        std::uniform_int_distribution<int64_t>(low, high)(random));
  };
  double widest = 1;
  for (int64_t stages = 1; stages <= 6; ++stages)
    for (int64_t microBatches = 1; microBatches <= 3 * stages + 2;
         ++microBatches)
      for (int trial = 0; trial < 6; ++trial) {
        std::vector<HandStage> times;
        for (int64_t stage = 0; stage < stages; ++stage) {
          double input = pick(1, 20), weight = pick(0, 20);
          times.push_back({pick(1, 20), input + weight, pick(0, 3), weight});
        }
        SimulationInput input =
            byHand("zb-h2", microBatches, times, pick(0, 3) * pick(0, 3));
        double seconds = run(input).seconds;
        StepBounds bounds = stepBounds(input);
        EXPECT_LE(bounds.lower, seconds * (1 + 1e-9))
            << stages << " stages, " << microBatches << " micro-batches";
        EXPECT_GE(bounds.upper, seconds * (1 - 1e-9))
            << stages << " stages, " << microBatches << " micro-batches";
        widest = std::max(widest, bounds.upper / bounds.lower);
        EXPECT_EQ(llvm::cantFail(simulatedSeconds(input)), seconds);
      }
  EXPECT_LT(widest, 6);
}

/// Listed for what passes take no step is longer than in the order for equal
/// times, and its bounds hold of it.
TEST(Simulate, whole_stages_are_listed_for_their_times) {
  std::mt19937_64 random(31);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (auto [name, gain] : {std::pair("zb-h1", 0.001), {"zb-h2", 0.03}}) {
    double gained = 0, widest = 1;
    int trials = instances(60, 10);
    for (int trial = 0; trial < trials; ++trial) {
      int64_t stages = pick(1, 8), microBatches = pick(1, 3 * stages);
      auto message = trial % 3 * pick(0, 10);
      std::vector<HandStage> hand;
      ScheduleShape shape{stages, microBatches};
      for (int64_t stage = 0; stage < stages; ++stage) {
        int64_t forward = pick(10, 100), input = pick(10, 100),
                weight = pick(1, 100);
        // One long stage.
        if (trial % 2 && stage == trial / 2 % stages)
          forward *= 2, input *= 2, weight *= 2;
        shape.passTimes.push_back({forward, input, weight, message});
        hand.push_back({double(forward), double(input + weight),
                        double(pick(0, 20)), double(weight)});
      }
      SimulationInput input = byHand(name, microBatches, hand, double(message));
      auto setSums = [&](bool sums) {
        for (auto [role, stage] : llvm::zip_equal(input.roles, hand))
          role.layers.front().time.sync = sums ? stage.sync : 0;
      };
      setSums(false);
      double alike = run(input).seconds;
      input.program = input.program.schedule->build(shape);
      double listed = run(input).seconds;
      EXPECT_LE(listed, alike * (1 + 1e-9))
          << name << ", " << stages << " stages, " << microBatches
          << " micro-batches";
      gained += 1 - listed / alike;
      for (bool sums : {false, true}) {
        setSums(sums);
        double seconds = run(input).seconds;
        StepBounds bounds = stepBounds(input);
        EXPECT_LE(bounds.lower, seconds * (1 + 1e-9));
        EXPECT_GE(bounds.upper, seconds * (1 - 1e-9));
        widest = std::max(widest, bounds.upper / bounds.lower);
        EXPECT_EQ(llvm::cantFail(simulatedSeconds(input)), seconds);
      }
    }
    EXPECT_GT(gained / trials, gain) << name;
    EXPECT_LT(widest, 6) << name;
  }
}

/// Stage times and bubbles that the paper prints (arXiv 2401.10241, Tables 5
/// and 6): of 1F1B to a third of a percent of the step. A message occupies both
/// of its ends here, which weight parts could hide.
TEST(Simulate, bubbles_are_near_those_published) {
  struct Published {
    int64_t stages, microBatches;
    double forward, input, weight, message; ///< ms
    double whole, split;                    ///< parts of the step
  };
  for (const Published &row :
       {Published{8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585},
        {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674},
        {8, 32, 29.802, 29.428, 19.53, 0.577, 0.1898, 0.1045},
        {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397},
        {16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576},
        {32, 128, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1106}}) {
    auto bubble = [&](const char *schedule, double message,
                      bool listed = false) {
      double backward = row.input + row.weight;
      std::vector<HandStage> stages(row.stages,
                                    {row.forward, backward, 0, row.weight});
      double busy =
          static_cast<double>(row.microBatches) * (row.forward + backward);
      SimulationInput input =
          byHand(schedule, row.microBatches, stages, message);
      if (listed) {
        auto shape = ScheduleShape::of(input.program, row.microBatches);
        shape.passTimes = passTimes(input);
        input.program = input.program.schedule->build(shape);
      }
      return 1 - busy / llvm::cantFail(simulatedSeconds(input, 1 << 20));
    };
    EXPECT_NEAR(bubble("1f1b", row.message), row.whole, 0.0035);
    EXPECT_LT(bubble("zb-h1", 0), row.split);
    EXPECT_GT(bubble("zb-h1", row.message), row.split);
    EXPECT_LT(bubble("zb-h1", row.message), row.split + 0.026);
    // Times are in hundredths. To list more passes takes longer than a test
    // may.
    if (row.stages * row.microBatches > 1024)
      continue;
    for (const char *schedule : {"zb-h1", "zb-h2"}) {
      double alike = bubble(schedule, row.message);
      double listed = bubble(schedule, row.message, /*listed=*/true);
      EXPECT_LT(listed, alike + 0.001);
      RecordProperty(std::string(schedule) + ", " + std::to_string(row.stages) +
                         " stages, " + std::to_string(row.microBatches) +
                         " micro-batches",
                     std::to_string(100 * alike) + " % -> " +
                         std::to_string(100 * listed) + " %");
    }
  }
}

/// A step too long to be simulated layer by layer.
TEST(Simulate, split_passes_are_extrapolated) {
  SimulationInput input =
      byHand("zb-h1", 64, std::vector<HandStage>(4, {0.7, 1.9, 0.3, 0.8}), 0.1);
  double whole = run(input).seconds;
  EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input, /*mostOperations=*/1)),
              whole, 1e-9 * whole);
}

TEST(Simulate, bounds_meet_where_nothing_is_hidden) {
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int64_t stages : {1, 2, 3, 4, 5, 8})
      for (int64_t microBatches : {1, 2, 3, 4, 7, 8, 31}) {
        SimulationInput input =
            byHand(schedule, microBatches,
                   std::vector<HandStage>(stages, {0.7, 1.9, 0.5}));
        double simulated = run(input).seconds;
        StepBounds bounds = stepBounds(input);
        EXPECT_NEAR(bounds.upper, simulated, 1e-9 * simulated)
            << stages << " stages, " << microBatches << " micro-batches";
        EXPECT_LE(bounds.lower, simulated * (1 + 1e-9));
        EXPECT_GE(bounds.lower, 0.8 * simulated);
      }
}

TEST(Simulate, times_of_an_actor_add_up) {
  std::mt19937_64 random(13);
  Cluster cluster = clusterOf(2, 4, 1.3);
  for (int i = 0; i < 20; ++i) {
    RandomPlan plan = makeRandomPlan(random, cluster, "1f1b");
    SimulationInput input = inputOf(plan, cluster);
    Simulation simulation = run(input);
    for (const SimulatedActor &actor : simulation.actors) {
      EXPECT_NEAR(actor.compute + actor.exposed + actor.bubble,
                  simulation.seconds, 1e-12);
      double work = 0;
      for (const SimulatedLayer &layer : input.roles[actor.role].layers)
        work += layer.time.forward + layer.time.recompute + layer.time.backward;
      work *= static_cast<double>(plan.plan.microBatches);
      // Once a step, beside nothing.
      double updates = 0;
      for (const SimulatedLayer &layer : input.roles[actor.role].layers)
        updates += layer.time.norm + layer.time.update;
      EXPECT_GE(actor.compute, (work + updates) * (1 - 1e-9));
      EXPECT_LE(actor.compute, (1.3 * work + updates) * (1 + 1e-9));
    }
  }
}

TEST(Simulate, peak_memory_is_the_ledgers) {
  std::mt19937_64 random(14);
  Cluster cluster = clusterOf(1, 8, 1.3);
  for (const char *schedule : {"1f1b", "gpipe"})
    for (int i = 0; i < instances(60, 20); ++i) {
      RandomPlan plan = makeRandomPlan(random, cluster, schedule);
      SimulationInput input = inputOf(plan, cluster);
      for (bool behind : {true, false}) {
        if (!behind)
          for (RoleProgram &role : input.program.roles)
            for (Task &task : role.part(SchedulePart::Steady))
              if (task.kind == TaskKind::Backward)
                task.flags = 0;
        for (const SimulatedActor &actor : run(input).actors) {
          const StageLedger &ledger = plan.plan.stages[actor.role].ledger;
          EXPECT_EQ(actor.peakActivations, ledger.activations);
          // Temporaries use what later layers of their micro-batch keep: both
          // peaks are of different moments, the ledger's total is one moment's.
          EXPECT_EQ(actor.peakBytes, ledger.total());
          EXPECT_GE(actor.peakTemporaries, ledger.backward);
          EXPECT_EQ(actor.memory.back().activations, 0);
          EXPECT_EQ(actor.memory.back().temporaries, 0);
        }
      }
    }
}

TEST(Simulate, one_rank_stands_for_all_of_its_role) {
  std::mt19937_64 random(15);
  for (int64_t nodes : {1, 2, 4}) {
    Cluster cluster = clusterOf(nodes, 8 / nodes, 1.3);
    for (int i = 0; i < instances(30, 20); ++i) {
      const char *schedule = i % 2 ? "gpipe" : "1f1b";
      RandomPlan plan = makeRandomPlan(random, cluster, schedule);
      for (PlanStage &stage : plan.plan.stages) {
        stage.gathersAhead = i % 4 < 2;
        stage.sums = timingOf(i + int(stage.firstLayer));
      }
      SimulationInput input = inputOf(plan, cluster);
      SimulationOptions options;
      Simulation roles = run(input, options);
      options.expandRanks = true;
      Simulation ranks = run(input, options);
      ASSERT_EQ(ranks.actors.size(), 8u);
      EXPECT_NEAR(ranks.seconds, roles.seconds, 1e-9 * roles.seconds);
      for (const SimulatedActor &rank : ranks.actors) {
        const SimulatedActor &role = roles.actors[rank.role];
        ASSERT_EQ(rank.spans.size(), role.spans.size());
        for (size_t s = 0; s < rank.spans.size(); ++s) {
          EXPECT_NEAR(rank.spans[s].start, role.spans[s].start,
                      1e-9 * roles.seconds);
          EXPECT_NEAR(rank.spans[s].finish, role.spans[s].finish,
                      1e-9 * roles.seconds);
        }
        EXPECT_EQ(rank.peakBytes, role.peakBytes);
      }
    }
  }
}

TEST(Simulate, stages_that_share_an_uplink_slow_each_other_down) {
  // Four stages of two devices over two nodes, as 0,4 | 1,5 | 2,6 | 3,7: every
  // stage's all-reduces leave both nodes, and do so while other stages still
  // run backward and send theirs.
  Cluster cluster = clusterOf(2, 4, 1.3, 1e8);
  std::mt19937_64 random(16);
  RandomPlan made;
  do
    made = makeRandomPlan(random, cluster, "1f1b");
  while (made.plan.pipelineDegree != 4);
  for (int64_t s = 0; s < 4; ++s)
    made.plan.stages[s].devices = {s, s + 4};
  for (auto [paradigm, uplinks] :
       {std::pair(Paradigm::DP, &SimulatedLayer::dpUplinks),
        std::pair(Paradigm::SDP, &SimulatedLayer::sdpUplinks),
        std::pair(Paradigm::TP, &SimulatedLayer::tpUplinks)}) {
    for (PlanLayer &layer : made.plan.layers)
      layer.strategy = *Strategy::get({{paradigm, 2}}, false);
    llvm::Expected<PlannerResult> priced =
        evaluate(*made.model, cluster, made.plan, int64_t(1) << 50);
    ASSERT_TRUE(bool(priced));
    made.plan = priced->plan();
    SimulationInput input = inputOf(made, cluster);
    EXPECT_EQ(input.roles[0].layers[0].*uplinks,
              (std::vector<int32_t>{0, 1, 2, 3}))
        << paradigm.name().str();
    SimulationOptions options;
    Simulation shared = run(input, options);
    options.shareUplinks = false;
    Simulation alone = run(input, options);
    EXPECT_GT(shared.seconds, 1.01 * alone.seconds) << paradigm.name().str();
  }
}

TEST(Simulate, a_thousand_ranks_are_as_many_operations_as_their_roles) {
  // 16 stages of 64 ranks, 64 micro-batches, 64 layers of one kind.
  ProfileLayer layer;
  layer.name = "h";
  layer.count = 64;
  layer.forwardFlops = 5e10;
  layer.parameterBytes = 1 << 26;
  layer.boundaryBytes = 1 << 20;
  layer.intermediateBytes = 1 << 24;
  layer.tpAllReduceBytes = 1 << 21;
  auto model = ProfileLayerModel::get("deep", "f32", {layer});
  ASSERT_TRUE(bool(model)) << llvm::toString(model.takeError());
  Cluster cluster = clusterOf(128, 8, 1.3);
  PlannerOptions options = paperOptions();
  options.batch = 64 * 64;
  options.pipelineDegree = 16;
  options.microBatches = 64;
  options.strategy = *Strategy::parse("sdp8.tp8");
  llvm::Expected<PlannerResult> result = plan(**model, cluster, options);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  ASSERT_TRUE(result->feasible());
  llvm::Expected<SimulationInput> input =
      simulationInput(**model, cluster, result->plan());
  ASSERT_TRUE(bool(input)) << llvm::toString(input.takeError());
  Simulation simulation = run(*input);
  // Per layer and micro-batch forward, backward, two gathers, a
  // reduce-scatter, TP in both directions; messages of 15 cuts, both ends and
  // directions; squares, norm and update.
  EXPECT_EQ(simulation.operations, 64u * 64 * 7 + 15 * 64 * 4 + 3 * 16);
  EXPECT_LE(simulation.seconds, stepBounds(*input).upper * (1 + 1e-9));
  EXPECT_GE(simulation.seconds, stepBounds(*input).lower * (1 - 1e-9));
  if (instances(1, 20) == 1)
    return;
  SimulationOptions expanded;
  expanded.expandRanks = true;
  Simulation ranks = run(*input, expanded);
  EXPECT_EQ(ranks.operations, 64 * simulation.operations);
  EXPECT_NEAR(ranks.seconds, simulation.seconds, 1e-9 * simulation.seconds);
}

//===----------------------------------------------------------------------===//
// Traces
//===----------------------------------------------------------------------===//

void checkTrace(const SimulationInput &input, const Simulation &simulation,
                size_t mostEvents, size_t processes) {
  std::string text;
  llvm::raw_string_ostream os(text);
  writeTrace(os, input, simulation, mostEvents);
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(os.str());
  ASSERT_TRUE(bool(value)) << llvm::toString(value.takeError());
  const llvm::json::Array *events =
      value->getAsObject()->getArray("traceEvents");
  ASSERT_TRUE(events);
  std::set<int64_t> named;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>>
      rows;
  std::map<int64_t, int64_t> counters;
  for (const llvm::json::Value &item : *events) {
    const llvm::json::Object &event = *item.getAsObject();
    llvm::StringRef phase = *event.getString("ph");
    int64_t process = *event.getInteger("pid");
    if (phase == "M" && *event.getString("name") == "process_name")
      named.insert(process);
    if (phase == "C")
      ++counters[process];
    if (phase != "X")
      continue;
    double start = *event.getNumber("ts"), length = *event.getNumber("dur");
    rows[{process, *event.getInteger("tid")}].push_back(
        {start, start + length});
    EXPECT_LE(start + length, simulation.seconds * 1e6 + 1e-5);
  }
  EXPECT_EQ(named.size(), processes);
  EXPECT_EQ(counters.size(), processes);
  for (auto &[row, slices] : rows) {
    std::sort(slices.begin(), slices.end());
    // Times are printed in millionths of a microsecond.
    for (size_t i = 1; i < slices.size(); ++i)
      EXPECT_LE(slices[i - 1].second, slices[i].first + 2e-6)
          << "process " << row.first << " thread " << row.second;
  }
}

TEST(Trace, every_rank_has_rows_whose_slices_do_not_overlap) {
  std::mt19937_64 random(17);
  Cluster cluster = clusterOf(1, 8, 1.3);
  for (int i = 0; i < 10; ++i) {
    RandomPlan plan = makeRandomPlan(random, cluster, "1f1b");
    SimulationInput input = inputOf(plan, cluster);
    SimulationOptions options;
    Simulation simulation = run(input, options);
    checkTrace(input, simulation, 500000, 8);
    checkTrace(input, simulation, 10,
               static_cast<size_t>(plan.plan.pipelineDegree));
    options.expandRanks = true;
    checkTrace(input, run(input, options), 10, 8);
  }
}

} // namespace
