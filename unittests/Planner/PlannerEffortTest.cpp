//===- PlannerEffortTest.cpp - How much a plan takes to find --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bound that is weaker than it was, or a heuristic that looks at less, is
// still sound: only more is searched, less is proven, or a plan is a little
// slower. So here are the numbers of fixed questions, of every schedule and way
// to ask. Whoever changes how plans are searched sees what became more or less,
// and writes the new numbers.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "ExecutedModels.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include "gtest/gtest.h"

#include <array>
#include <functional>
#include <string>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// A question about random layers on nodes of equal devices, or of two types.
struct Question {
  const char *name;
  int64_t layers, nodes, devices; ///< devices of a node
  double network;                 ///< bytes per second between nodes
  int64_t batch, memory;          ///< batch 0: a sweep; memory in MiB
  const char *schedule;           ///< "any": all of them
  enum : uint8_t {
    Plain,
    Gathered,  ///< shards are gathered by the stage
    TwoTypes,  ///< nodes of two types
    Offloaded, ///< any home of states
    Layers,    ///< homes by layer
    Paper,     ///< Eq. 9
    Rule,      ///< and the paper's rule of micro-batches
    Pinned,    ///< the first layer has a strategy
    Idle       ///< devices may stay idle
  } kind;
};

constexpr Question kQuestions[] = {
    {"1f1b", 8, 2, 4, 1e9, 16, 16384, "1f1b", Question::Plain},
    {"little memory", 8, 2, 4, 1e9, 16, 300, "1f1b", Question::Plain},
    {"slow network", 10, 4, 2, 2e8, 32, 420, "1f1b", Question::Plain},
    {"gathers", 8, 4, 2, 1e9, 16, 350, "1f1b", Question::Gathered},
    {"gathers, many", 16, 2, 8, 3e9, 64, 400, "1f1b", Question::Gathered},
    {"gpipe", 8, 2, 4, 1e9, 16, 500, "gpipe", Question::Plain},
    {"zb-h1", 8, 4, 1, 1e9, 16, 2000, "zb-h1", Question::Plain},
    {"zb-h2", 9, 4, 2, 5e8, 24, 3000, "zb-h2", Question::Plain},
    {"interleaved", 12, 4, 1, 1e9, 16, 2000, "interleaved", Question::Plain},
    {"interleaved, full", 12, 2, 2, 1e9, 24, 500, "interleaved",
     Question::Plain},
    {"zb-v", 10, 4, 1, 1e9, 16, 900, "zb-v", Question::Plain},
    {"any schedule", 8, 4, 1, 5e8, 12, 2000, "any", Question::Plain},
    {"2bw", 8, 4, 1, 1e9, 16, 2000, "2bw", Question::Plain},
    {"2bw, full", 8, 2, 4, 5e8, 24, 500, "2bw", Question::Plain},
    {"zb-h1, full", 10, 4, 2, 1e9, 32, 600, "zb-h1", Question::Plain},
    {"zb-v, full", 12, 2, 2, 1e9, 24, 700, "zb-v", Question::Plain},
    {"gathers of chunks", 12, 4, 2, 1e9, 32, 500, "interleaved",
     Question::Gathered},
    {"any schedule, full", 8, 4, 1, 1e9, 24, 500, "any", Question::Plain},
    {"two types", 8, 2, 2, 1e9, 16, 2048, "1f1b", Question::TwoTypes},
    {"two types, full", 8, 4, 1, 5e8, 12, 420, "1f1b", Question::TwoTypes},
    {"any home", 8, 2, 2, 1e9, 8, 220, "1f1b", Question::Offloaded},
    {"homes by layer", 8, 2, 2, 1e9, 8, 260, "1f1b", Question::Layers},
    {"sweep", 8, 2, 2, 1e9, 0, 2048, "1f1b", Question::Plain},
    {"sweep, Eq. 9", 8, 2, 2, 1e9, 0, 1024, "1f1b", Question::Paper},
    {"paper's rule", 8, 2, 2, 1e9, 0, 1024, "1f1b", Question::Rule},
    {"Eq. 9", 12, 2, 4, 1e9, 48, 300, "1f1b", Question::Paper},
    {"a pin", 8, 2, 4, 1e9, 16, 280, "1f1b", Question::Pinned},
    {"idle devices", 6, 1, 5, 1e9, 8, 4096, "1f1b", Question::Idle},
    {"many devices", 24, 16, 8, 5e9, 256, 2048, "1f1b", Question::Plain},
};

/// Of every question: milliseconds; percent by which a plan may be faster, and
/// by the formula (-1: nothing is proven); steps; decisions; runners-up.
constexpr std::array<double, 6> kExpected[] = {
    {260.555, 0.2977, 0, 829, 23, 16},     // 1f1b
    {262.0241, 0.5788, 0, 1010, 22, 16},   // little memory
    {898.7079, 0.1083, 0, 3049, 26, 16},   // slow network
    {369.6078, 1.119, 0, 563, 22, 16},     // gathers
    {1247.2851, 0.0196, 0, 3243, 38, 16},  // gathers, many
    {290.5749, 17.1127, 0, 1371, 23, 16},  // gpipe
    {484.5157, 7.5952, 0, 6615, 17, 14},   // zb-h1
    {493.2802, 13.5872, 0, 2751, 34, 16},  // zb-h2
    {856.5077, 17.1718, -1, 0, 5, 0},      // interleaved
    {1337.6299, 22.0436, -1, 0, 10, 0},    // interleaved, full
    {694.3422, 18.0956, -1, 0, 10, 0},     // zb-v
    {375.7523, 11.2109, 0, 2474, 88, 16},  // any schedule
    {460.7702, 0.0043, 0, 3554, 18, 14},   // 2bw
    {345.6601, 0, 0, 1801, 34, 16},        // 2bw, full
    {666.5056, 6.1438, -1, 19436, 28, 16}, // zb-h1, full
    {1119.6448, 5.4793, -1, 0, 9, 0},      // zb-v, full
    {1218.3888, 29.6847, -1, 0, 8, 0},     // gathers of chunks
    {802.0785, 3.1139, 0, 18594, 113, 16}, // any schedule, full
    {580.2464, 0.0347, 0, 155, 46, 16},    // two types
    {613.8502, 0.0287, 0, 527, 46, 16},    // two types, full
    {299.5258, 45.617, -1, 297, 42, 11},   // any home
    {280.9109, 3.9063, 0, 427, 14, 11},    // homes by layer
    {891.6686, 0.0896, 0, 443, 104, 16},   // sweep
    {1731.8285, -1, 0, 337, 102, 16},      // sweep, Eq. 9
    {2411.2915, -1, 0, 1245, 268, 16},     // paper's rule
    {1242.2754, -1, 0, 3879, 42, 16},      // Eq. 9
    {264.6299, 0.391, 0, 1557, 7, 4},      // a pin
    {130.898, 0, 0, 12, 10, 7},            // idle devices
    {757.8534, 3.7452, 0, 924, 44, 16},    // many devices
};

Cluster clusterOf(const Question &question) {
  if (question.kind != Question::TwoTypes)
    return executedCluster(question.nodes, question.devices, question.network);
  DeviceType fast =
      executedCluster(1, 1, question.network).deviceTypes().front();
  DeviceType slow = fast;
  slow.name = "slow";
  slow.flops = {{"f32", 6e12}};
  int64_t half = question.nodes / 2;
  return llvm::cantFail(
      Cluster::get("two types", {fast, slow},
                   {{half, fast.name, question.devices, {2e10, 5e-6}},
                    {half, slow.name, question.devices, {1e10, 5e-6}}},
                   Link{question.network, 1e-5}));
}

PlannerOptions optionsOf(const Question &question) {
  PlannerOptions options;
  options.memory = question.memory << 20;
  if (question.batch)
    options.batch = question.batch;
  else
    options.maxBatch = 64;
  if (llvm::StringRef(question.schedule) == "2bw")
    options.training.clip = false;
  options.anySchedule = llvm::StringRef(question.schedule) == "any";
  if (!options.anySchedule)
    options.schedule = &scheduleNamed(question.schedule);
  switch (question.kind) {
  case Question::Offloaded:
    options.anyOffload = true;
    break;
  case Question::Layers:
    options.offload = llvm::cantFail(parseOffload("layers"));
    break;
  case Question::Rule:
    options.microBatchRule = MicroBatchRule::Paper;
    [[fallthrough]];
  case Question::Paper:
    options.objective = Objective::Paper;
    break;
  case Question::Pinned:
    options.pins = {{"l0", llvm::cantFail(Strategy::parse("tp4"))}};
    break;
  case Question::Idle:
    options.mayIdle = true;
    break;
  default:
    break;
  }
  return options;
}

TEST(Planner, does_as_much_as_it_did) {
  for (auto [question, numbers] : llvm::zip_equal(kQuestions, kExpected)) {
    std::mt19937_64 random(91);
    auto profile = randomProfile(random, question.layers);
    GatheredModel gathered(*profile);
    LayerModel &model = question.kind == Question::Gathered
                            ? static_cast<LayerModel &>(gathered)
                            : *profile;
    PlannerResult found =
        llvm::cantFail(plan(model, clusterOf(question), optionsOf(question)));
    ASSERT_TRUE(found.feasible()) << question.name;
    const Plan &plan = found.plan();
    const double now[] = {plan.iterationMs,
                          plan.gapPercent.value_or(-1),
                          plan.provenGapPercent.value_or(-1),
                          static_cast<double>(found.steps),
                          static_cast<double>(found.decisions.size()),
                          static_cast<double>(found.runnersUp.size())};
    std::string row;
    for (double number : now)
      row += llvm::formatv("{0:f4}, ", number).str();
    for (auto [expected, number] : llvm::zip_equal(numbers, now))
      EXPECT_NEAR(number, expected, 1e-4 + 1e-6 * expected)
          << question.name << ": now {" << row << "}";
  }
}

} // namespace
