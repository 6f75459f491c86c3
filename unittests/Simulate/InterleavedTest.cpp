//===- InterleavedTest.cpp - Steps of stages with several chunks ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Simulate/Simulate.h"

#include "gtest/gtest.h"

#include <random>

using namespace galvatron;

namespace {

struct HandChunk {
  double forward, backward, sync, activation, gradient;
  double weight = 0; ///< of backward, where it is split
};

/// One layer a chunk.
SimulationInput withChunks(const char *schedule, int64_t roles,
                           int64_t microBatches,
                           const std::vector<HandChunk> &chunks) {
  SimulationInput input;
  auto perRole = static_cast<int64_t>(chunks.size()) / roles;
  input.program = scheduleNamed(schedule).build({roles, microBatches, perRole});
  input.roles.resize(roles);
  for (size_t c = 0; c < chunks.size(); ++c) {
    SimulatedRole &role = input.roles[input.program.chunks[c].role];
    SimulatedLayer layer;
    layer.time.forward = chunks[c].forward;
    layer.time.backward = chunks[c].backward;
    layer.time.weight = chunks[c].weight;
    layer.time.split = chunks[c].weight > 0;
    layer.time.sync = chunks[c].sync;
    layer.time.norm = 0.1;
    layer.time.update = 0.2;
    layer.inputBytes = 64;
    layer.stashBytes = 128;
    role.layers.push_back(layer);
    role.chunkEnds.push_back(role.layers.size());
    if (c + 1 == chunks.size())
      continue;
    SimulatedCut cut;
    cut.activation.seconds = chunks[c].activation;
    cut.gradient.seconds = chunks[c].gradient;
    cut.senderGroup = cut.receiverGroup = {0};
    input.cuts.push_back(cut);
  }
  for (int64_t r = 0; r < roles; ++r)
    input.roles[r].devices = {r};
  return input;
}

SimulationInput interleaved(int64_t roles, int64_t microBatches,
                            const std::vector<HandChunk> &chunks) {
  return withChunks("interleaved", roles, microBatches, chunks);
}

double seconds(const SimulationInput &input) {
  llvm::Expected<Simulation> simulation = simulate(input);
  EXPECT_TRUE(bool(simulation)) << llvm::toString(simulation.takeError());
  return simulation ? simulation->seconds : 0;
}

TEST(Interleaved, bounds_hold_for_all_small_shapes) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> time(0.1, 2);
  for (int64_t roles = 2; roles <= 5; ++roles)
    for (int64_t perRole = 2; perRole <= 4; ++perRole)
      for (int64_t microBatches = 1; microBatches <= 11; ++microBatches)
        for (bool behind : {false, true}) {
          std::vector<HandChunk> chunks(roles * perRole);
          for (HandChunk &chunk : chunks)
            chunk = {time(random), time(random), time(random), time(random) / 4,
                     time(random) / 4};
          SimulationInput input = interleaved(roles, microBatches, chunks);
          if (behind)
            for (RoleProgram &role : input.program.roles)
              setSyncBehind(role);
          double simulated = seconds(input);
          StepBounds bounds = stepBounds(input);
          EXPECT_LE(bounds.lower, simulated * (1 + 1e-9));
          EXPECT_GE(bounds.upper, simulated * (1 - 1e-9))
              << roles << " stages, " << perRole << " chunks, " << microBatches
              << " micro-batches";
        }
}

/// A message holds up both of its roles, in the lower bound too.
TEST(Interleaved, lower_bound_has_messages) {
  const double pass = 3, message = 0.2; // of a chunk, both directions
  for (const char *schedule : {"interleaved", "zb-v"})
    for (int64_t roles : {4, 8})
      for (int64_t microBatches : {roles, 4 * roles}) {
        SimulationInput input =
            withChunks(schedule, roles, microBatches,
                       std::vector<HandChunk>(
                           2 * roles, {1, pass - 1, 0, message, message, 1}));
        auto count = static_cast<double>(microBatches);
        double lower = stepBounds(input).lower;
        // An inner role sends two outputs and two gradients of each.
        EXPECT_GE(lower, 2 * count * pass + 4 * (count - 1) * message);
        EXPECT_LE(lower, seconds(input) * (1 + 1e-9));
      }
}

/// With equal chunks: as long as 1F1B's with a V-th part of its bubble, where
/// the stages divide the micro-batches; never longer than 1F1B's.
TEST(Interleaved, bubble_is_a_part) {
  for (int64_t roles : {2, 3, 4, 5, 6, 7, 8, 16})
    for (int64_t perRole = 2; perRole <= 4; ++perRole)
      for (int64_t microBatches = 1; microBatches <= 4 * roles;
           ++microBatches) {
        if (roles > 8 && microBatches % roles)
          continue;
        const double forward = 0.7, backward = 1.9;
        double parts = static_cast<double>(perRole);
        std::vector<HandChunk> chunks(
            roles * perRole, {forward / parts, backward / parts, 0, 0, 0});
        SimulationInput input = interleaved(roles, microBatches, chunks);
        for (SimulatedRole &role : input.roles)
          for (SimulatedLayer &layer : role.layers)
            layer.time.norm = layer.time.update = 0;
        double simulated = seconds(input);
        auto bubbles = static_cast<double>(roles - 1);
        auto work = static_cast<double>(microBatches);
        EXPECT_LE(simulated, (work + bubbles) * (forward + backward) + 1e-9);
        if (microBatches % roles == 0) {
          EXPECT_NEAR(simulated,
                      (work + bubbles / parts) * (forward + backward), 1e-9);
          EXPECT_NEAR(stepBounds(input).upper, simulated, 1e-9);
        }
      }
}

TEST(Interleaved, peak_memory_is_that_of_all_slots) {
  for (int64_t microBatches : {1, 3, 4, 9, 16}) {
    SimulationInput input = interleaved(
        4, microBatches, std::vector<HandChunk>(12, {1, 2, 0, 0.1, 0.1}));
    llvm::Expected<Simulation> simulation = simulate(input);
    ASSERT_TRUE(bool(simulation));
    for (const SimulatedActor &actor : simulation->actors) {
      int64_t slots = 0;
      for (int64_t chunk : input.program.chunksOf(actor.role))
        slots += input.program.chunks[chunk].slots;
      // Chunks need not be fullest at one time.
      EXPECT_LE(actor.peakActivations, slots * (64 + 128));
      EXPECT_EQ(actor.memory.back().activations, 0);
    }
  }
}

/// A long step is simulated in parts, of whole groups of micro-batches.
TEST(Interleaved, long_steps_are_as_long) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> time(0.5, 1);
  for (int64_t microBatches : {60, 61, 62, 63}) {
    std::vector<HandChunk> chunks(8);
    for (HandChunk &chunk : chunks)
      chunk = {time(random), time(random), 0, 0.05, 0.05};
    SimulationInput input = interleaved(4, microBatches, chunks);
    double simulated = seconds(input);
    llvm::Expected<double> inParts = simulatedSeconds(input, 1);
    ASSERT_TRUE(bool(inParts));
    EXPECT_NEAR(*inParts, simulated, 2e-2 * simulated) << microBatches;
  }
}

/// Of equal chunks exactly, whatever is left over of the groups.
TEST(Interleaved, long_steps_of_equal_chunks_are_exact) {
  for (int64_t roles : {3, 4})
    for (int64_t over = 0; over < roles; ++over) {
      SimulationInput input =
          interleaved(roles, 15 * roles + over,
                      std::vector<HandChunk>(2 * roles, {0.7, 1.9, 0, 0, 0}));
      double simulated = seconds(input);
      llvm::Expected<double> inParts = simulatedSeconds(input, 1);
      ASSERT_TRUE(bool(inParts));
      EXPECT_NEAR(*inParts, simulated, 1e-9 * simulated)
          << roles << " stages, " << over << " left over";
    }
}

//===----------------------------------------------------------------------===//
// Chunks in a V, backward passes in two parts
//===----------------------------------------------------------------------===//

/// Where all passes take one tick no stage stands still between its first and
/// its last, from as many micro-batches on as there are stages.
TEST(ZeroBubbleV, no_bubble_is_left) {
  for (int64_t roles : {2, 3, 4, 8, 16})
    for (int64_t microBatches :
         {roles, roles + 1, 2 * roles - 1, 2 * roles, 4 * roles + 1}) {
      SimulationInput input =
          withChunks("zb-v", roles, microBatches,
                     std::vector<HandChunk>(2 * roles, {1, 2, 0, 0, 0, 1}));
      for (SimulatedRole &role : input.roles)
        for (SimulatedLayer &layer : role.layers)
          layer.time.norm = layer.time.update = 0;
      double busy = 6 * static_cast<double>(microBatches);
      double simulated = seconds(input);
      EXPECT_NEAR(simulated, busy + static_cast<double>(roles - 1), 1e-9);
      StepBounds bounds = stepBounds(input);
      EXPECT_GE(bounds.lower, 0.9 * busy);
      EXPECT_NEAR(bounds.upper, simulated, 1e-9 * simulated);
    }
}

TEST(ZeroBubbleV, bounds_hold_for_all_small_shapes) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> time(0.1, 2);
  for (int64_t roles = 2; roles <= 6; ++roles)
    for (int64_t microBatches = 1; microBatches <= 2 * roles + 3;
         ++microBatches)
      for (bool behind : {false, true}) {
        std::vector<HandChunk> chunks(2 * roles);
        for (HandChunk &chunk : chunks) {
          double weight = time(random);
          chunk = {time(random),     time(random) + weight, time(random),
                   time(random) / 4, time(random) / 4,      weight};
        }
        SimulationInput input = withChunks("zb-v", roles, microBatches, chunks);
        if (behind)
          for (RoleProgram &role : input.program.roles)
            setSyncBehind(role);
        double simulated = seconds(input);
        StepBounds bounds = stepBounds(input);
        EXPECT_LE(bounds.lower, simulated * (1 + 1e-9));
        EXPECT_GE(bounds.upper, simulated * (1 - 1e-9))
            << roles << " stages, " << microBatches << " micro-batches";
        EXPECT_DOUBLE_EQ(llvm::cantFail(simulatedSeconds(input)), simulated);
      }
}

/// Listed for what passes take a step is shorter on the whole than for equal
/// times, and its bounds are those of its own order.
TEST(ZeroBubbleV, lists_for_the_times_of_passes) {
  std::mt19937_64 random(8);
  std::uniform_real_distribution<double> time(0.5, 2);
  double gained = 0;
  for (int trial = 0; trial < 40; ++trial) {
    int64_t roles = 2 + trial % 5, microBatches = roles + trial % 7;
    std::vector<HandChunk> chunks(2 * roles);
    for (HandChunk &chunk : chunks) {
      double weight = time(random) / 2;
      chunk = {time(random), time(random) + weight, 0, 0.02, 0.02, weight};
    }
    // A head as long as several chunks.
    chunks.back().forward *= 3;
    SimulationInput input = withChunks("zb-v", roles, microBatches, chunks);
    double alike = seconds(input);
    ScheduleShape shape = ScheduleShape::of(input.program, microBatches);
    shape.passTimes = passTimes(input);
    EXPECT_EQ(int64_t(shape.passTimes.size()), 2 * roles);
    input.program = input.program.schedule->build(shape);
    double listed = seconds(input);
    // What is listed for looks at messages one by one, and at rounded times.
    EXPECT_LE(listed, alike * 1.05);
    gained += 1 - listed / alike;
    StepBounds bounds = stepBounds(input);
    EXPECT_LE(bounds.lower, listed * (1 + 1e-9));
    EXPECT_GE(bounds.upper, listed * (1 - 1e-9));
    EXPECT_DOUBLE_EQ(llvm::cantFail(simulatedSeconds(input)), listed);
  }
  EXPECT_GT(gained / 40, 0.005);
}

/// Stage times that the paper prints (arXiv 2401.10241, Table 6), in halves: a
/// shorter step than ZB-H1's.
TEST(ZeroBubbleV, published_stage_times) {
  struct Published {
    int64_t stages, microBatches;
    double forward, input, weight; ///< ms
  };
  for (const Published &row : {Published{8, 24, 18.522, 18.086, 9.337},
                               {8, 32, 29.802, 29.428, 19.53},
                               {16, 48, 11.347, 11.248, 8.132},
                               {32, 128, 10.408, 10.204, 7.703}}) {
    auto step = [&](const char *schedule, int64_t perRole) {
      auto parts = static_cast<double>(perRole);
      std::vector<HandChunk> chunks(row.stages * perRole,
                                    {row.forward / parts,
                                     (row.input + row.weight) / parts, 0, 0, 0,
                                     row.weight / parts});
      SimulationInput input =
          withChunks(schedule, row.stages, row.microBatches, chunks);
      for (SimulatedRole &role : input.roles)
        for (SimulatedLayer &layer : role.layers)
          layer.time.norm = layer.time.update = 0;
      ScheduleShape shape = ScheduleShape::of(input.program, row.microBatches);
      if (input.program.schedule->listsByTimes())
        shape.passTimes = passTimes(input);
      input.program = input.program.schedule->build(shape);
      return seconds(input);
    };
    double busy = static_cast<double>(row.microBatches) *
                  (row.forward + row.input + row.weight);
    double split = step("zb-h1", 1), listed = step("zb-v", 2);
    EXPECT_LT(listed, split);
    RecordProperty(std::to_string(row.stages) + " stages, " +
                       std::to_string(row.microBatches) + " micro-batches",
                   std::to_string(100 * (1 - busy / listed)) + " %");
  }
}

/// A long step is simulated in parts.
TEST(ZeroBubbleV, long_steps_are_as_long) {
  for (int64_t microBatches : {60, 61, 63}) {
    SimulationInput input =
        withChunks("zb-v", 4, microBatches,
                   std::vector<HandChunk>(8, {1, 2, 0, 0.05, 0.05, 0.8}));
    double simulated = seconds(input);
    EXPECT_NEAR(llvm::cantFail(simulatedSeconds(input, 100)), simulated,
                0.02 * simulated);
  }
}

/// No more activations than 1F1B's first stage has, and the input of one more.
TEST(ZeroBubbleV, peak_memory_is_that_of_1f1b) {
  for (int64_t roles : {2, 4, 8})
    for (int64_t microBatches : {roles, 2 * roles, 3 * roles + 1}) {
      SimulationInput input =
          withChunks("zb-v", roles, microBatches,
                     std::vector<HandChunk>(2 * roles, {1, 2, 0, 0, 0, 1}));
      llvm::Expected<Simulation> simulation = simulate(input);
      ASSERT_TRUE(bool(simulation));
      for (const SimulatedActor &actor : simulation->actors) {
        EXPECT_LE(actor.peakActivations, 2 * roles * (64 + 128) + 64);
        EXPECT_EQ(actor.memory.back().activations, 0);
      }
    }
}

} // namespace
