//===- HetuGalvatronTest.cpp - Its formulas, the search, its files --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HetuGalvatron.h"

#include "galvatron/Support/Json.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include "gtest/gtest.h"

#include <cmath>
#include <ctime>
#include <random>

using namespace galvatron;

namespace {

/// Four devices with made-up profiles, drawn if there is a generator.
HetuProblem drawn(std::mt19937 *random) {
  auto about = [&](double value) {
    return random ? value * (0.5 + double((*random)() % 1000) / 1000) : value;
  };
  HetuProblem problem;
  problem.model = "drawn";
  problem.perNode = 4;
  problem.defaultDp = random && (*random)() % 2 ? "ddp" : "zero2";
  problem.schedule = random && (*random)() % 2 ? "gpipe" : "pipedream_flush";
  problem.asyncReduce = !random || (*random)() % 2;
  problem.sequenceParallel = problem.globalBuffer = true;
  problem.batches = {8};
  problem.overlap = 1.2;
  problem.other = {about(3), about(2)};
  for (int64_t degree = 1; degree <= 4; degree *= 2) {
    for (bool consecutive : {false, true})
      problem.allReduce[{degree, consecutive}] = degree == 1 ? 0 : about(0.02);
    double part = 1 / double(degree);
    problem.whole.states[degree] = about(2000) * part;
    problem.first.states[degree] = about(1000) * part;
    problem.last.states[degree] = about(1000) * part;
    problem.whole.activations[degree] = about(800) * part;
    problem.first.activations[degree] = about(100) * part;
    problem.last.activations[degree] = about(700) * part;
    if (degree == 1)
      continue;
    problem.p2p[degree] = about(0.02);
    problem.allGather[degree].fitted = {about(0.01), about(0.05)};
    problem.allToAll[degree].fitted = {about(0.006), about(0.05)};
  }
  for (int type = 0; type < (random && (*random)() % 2 ? 2 : 1); ++type) {
    HetuLayers layers;
    layers.hidden = layers.tokens = 2048;
    layers.count = !random ? 3 : type == 0 ? 1 + int64_t((*random)() % 2) : 1;
    layers.parameterMb = about(300);
    layers.checkpointMb = about(8);
    for (int64_t degree = 1; degree <= 4; degree *= 2)
      layers.activationMb[degree] = about(300) / double(degree);
    layers.forward = {about(2), about(1)};
    problem.types.push_back(layers);
  }
  problem.memoryGb = random ? 3 + int64_t((*random)() % 6) : 8;
  return problem;
}

/// All strategies of four devices in `pipeline` stages.
std::vector<HetuStrategy> strategiesOf(int64_t ranks) {
  std::vector<HetuStrategy> all;
  for (int64_t shared = 1; shared <= ranks; shared *= 2)
    for (bool ulysses : {false, true})
      for (bool zero3 : {false, true})
        for (bool checkpoint : {false, true}) {
          if ((ulysses && shared == 1) || (zero3 && ranks == shared))
            continue;
          HetuStrategy strategy;
          (ulysses ? strategy.ulysses : strategy.tensor) = shared;
          strategy.data = ranks / shared;
          strategy.zero3 = zero3;
          strategy.checkpoint = checkpoint;
          all.push_back(strategy);
        }
  return all;
}

/// The fastest of all plans, one after the other; 0: none fits.
double fastestOfAll(const HetuProblem &problem) {
  double best = 0;
  const size_t layers = size_t(problem.layerCount());
  for (int64_t chunks = 1; chunks <= 8; chunks *= 2)
    for (int64_t pipeline = 1;
         pipeline <= std::min<int64_t>({4, chunks, int64_t(layers)});
         pipeline *= 2) {
      std::vector<HetuStrategy> all = strategiesOf(4 / pipeline);
      HetuPlan plan;
      plan.batch = 8;
      plan.chunks = chunks;
      plan.pipeline = pipeline;
      plan.division.assign(size_t(pipeline), int64_t(layers) / pipeline);
      plan.division.back() =
          int64_t(layers) - int64_t(layers) / pipeline * (pipeline - 1);
      size_t count = size_t(std::pow(double(all.size()), double(layers)));
      for (const HetuStrategy &ends : all)
        for (size_t number = 0; number < count; ++number) {
          plan.ends = ends;
          plan.layers.clear();
          bool legal = !ends.checkpoint && hetuHas(problem, ends, 8, chunks);
          for (size_t rest = number; plan.layers.size() < layers;
               rest /= all.size()) {
            plan.layers.push_back(all[rest % all.size()]);
            legal &= hetuHas(problem, plan.layers.back(), 8, chunks);
          }
          if (!legal)
            continue;
          priceHetuPlan(problem, plan);
          if (plan.fits && (best == 0 || plan.seconds < best))
            best = plan.seconds;
        }
    }
  return best;
}

TEST(HetuSearch, IsTheFastestOfAll) {
  std::mt19937 random(5);
  int found = 0, proven = 0;
  for (int i = 0; i < 30; ++i) {
    HetuProblem problem = drawn(&random);
    double best = fastestOfAll(problem);
    llvm::Expected<HetuPlan> plan = searchHetuPlan(problem);
    if (best == 0) {
      EXPECT_FALSE(bool(plan));
      llvm::consumeError(plan.takeError());
      continue;
    }
    ASSERT_TRUE(bool(plan)) << llvm::toString(plan.takeError());
    ++found;
    // Picoseconds are rounded.
    EXPECT_LE(plan->leastSeconds, best * (1 + 1e-9)) << i;
    EXPECT_GE(plan->seconds, best * (1 - 1e-12)) << i;
    // What is not the fastest is no further from it than the bound says.
    if (plan->seconds - plan->leastSeconds < 1e-9 * best) {
      ++proven;
      EXPECT_NEAR(plan->seconds, best, 1e-9 * best) << i;
    }
    EXPECT_LE(plan->seconds, best * 1.01) << i;
  }
  EXPECT_GE(found, 20);
  EXPECT_GE(proven, found * 3 / 4) << found;
}

/// Two stages of 1.5 and 2 seconds without sums, 1.8 and 2.5 with, 4
/// micro-batches: 3.5 + 3 * 2, and the last stage's sums are not done when all
/// have computed: 2.5 - 3.5 < 0; the first one's are 0.3 late.
TEST(HetuCosts, AStepByHand) {
  EXPECT_DOUBLE_EQ(hetuStepSeconds({1.8, 2.5}, {1.5, 2.0}, 4), 9.5 + 0.3);
  // The first stage is the slow one: 3 in the fill, 3 * (4 + 1 - 2).
  EXPECT_DOUBLE_EQ(hetuStepSeconds({3, 1}, {3, 1}, 4), 3 + 9);
  EXPECT_DOUBLE_EQ(hetuStepSeconds({5}, {4}, 3), 12 + 1);
}

/// A layer on two ranks: forward 2 * 2 + 1 = 5 ms of two samples, backward 10;
/// 300 MB of f32 parameters are 2 * 300 / 2 = 300 of messages, half in 16 bits,
/// at 0.02 ms; both take 1.2 times as long together.
TEST(HetuCosts, ALayerByHand) {
  HetuProblem problem = drawn(nullptr);
  HetuStrategy two;
  two.data = 2;
  HetuLayerSeconds seconds =
      hetuLayerSeconds(problem, problem.types[0], two, 8, 2, 2);
  // 8 samples in 2 micro-batches on 2 replicas; between stages 2 * 2 * 16 MB
  // at 0.02 ms, over the layers.
  double message = 2 * 2 * (2 * 2048.0 * 2048 * 2 / 1024 / 1024) * 0.02 / 3;
  EXPECT_NEAR(seconds.nosync, (5 + 10 + message) * 1e-3, 1e-12);
  double sums = 150 * 0.02 * 1.2;
  EXPECT_NEAR(seconds.sync, (5 + sums + (10 - sums / 1.2) + message) * 1e-3,
              1e-12);
  // States: 4 * 300 of which ZeRO-2 shards 3 of 4 bytes; two micro-batches of
  // two samples are kept on the first stage.
  EXPECT_EQ(hetuLayerMb(problem, problem.types[0], two, 8, 2, 2, 0),
            int64_t(std::ceil(1200 * (0.75 * 0.503 + 0.25) + 4 * 300)));
}

/// The assertions of core/runtime/hybrid_parallel_config.py, restated.
bool runtimeTakes(const llvm::json::Object &config, int64_t world,
                  int64_t layers) {
  auto list = [&](llvm::StringRef key) {
    std::vector<int64_t> numbers;
    llvm::SmallVector<llvm::StringRef, 64> parts;
    config.getString(key).value_or("").split(parts, ',');
    for (llvm::StringRef part : parts) {
      int64_t number = -1;
      part.getAsInteger(10, number);
      numbers.push_back(number);
    }
    return numbers;
  };
  const int64_t stages = *config.getInteger("pp_deg");
  std::vector<int64_t> tp = list("tp_sizes_enc"), ranks = list("pp_division");
  if (world % stages || int64_t(ranks.size()) != stages)
    return false;
  for (llvm::StringRef key : {"tp_sizes_enc", "tp_consecutive_flags",
                              "dp_types_enc", "use_sp", "checkpoint"})
    if (int64_t(list(key).size()) != layers)
      return false;
  int64_t sum = 0, least = *config.getInteger("vtp");
  for (int64_t count : ranks)
    sum += count;
  for (int64_t degree : tp) {
    if (degree < 1 || (world / stages) % degree)
      return false;
    least = std::min(least, degree);
  }
  for (llvm::StringRef key : {"dp_types_enc", "checkpoint", "use_sp"})
    for (int64_t flag : list(key))
      if (flag != 0 && flag != 1)
        return false;
  for (int64_t flag : list("tp_consecutive_flags"))
    if (flag != 1)
      return false;
  return sum == layers &&
         *config.getInteger("global_bsz") % (world / stages / least) == 0 &&
         config.getInteger("embed_sdp") == config.getInteger("vocab_sdp");
}

/// Every plan is written as its runtime takes it, and read back as the same.
TEST(HetuConfiguration, WhatIsWrittenIsReadBack) {
  std::mt19937 random(9);
  int written = 0;
  for (int i = 0; i < 20; ++i) {
    HetuProblem problem = drawn(&random);
    llvm::Expected<HetuPlan> plan = searchHetuPlan(problem);
    if (!plan) {
      llvm::consumeError(plan.takeError());
      continue;
    }
    llvm::json::Object config = hetuConfiguration(problem, *plan);
    EXPECT_TRUE(runtimeTakes(config, 4, problem.layerCount()));
    llvm::Expected<HetuPlan> again =
        readHetuConfiguration(problem, std::move(config), "plan");
    ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
    again->leastSeconds = plan->leastSeconds;
    EXPECT_EQ(*again, *plan);
    ++written;
  }
  EXPECT_GE(written, 15);
}

TEST(HetuConfiguration, RefusesWhatItsRuntimeDoesNotTake) {
  HetuProblem problem = drawn(nullptr);
  HetuPlan plan = llvm::cantFail(searchHetuPlan(problem));
  for (auto [key, value, message] :
       std::vector<std::tuple<std::string, llvm::json::Value, std::string>>{
           {"tp_sizes_enc", "1,1",
            "run: 'tp_sizes_enc': expected 3 numbers, found 2"},
           {"tp_sizes_enc", "3,1,1",
            "run: 'tp_sizes_enc': expected a divisor of a stage's 4 devices, "
            "found 3"},
           {"tp_consecutive_flags", "1,0,1",
            "run: 'tp_consecutive_flags': expected 1, as the engine writes "
            "them"},
           {"dp_types_enc", "2,0,0",
            "run: 'dp_types_enc': expected 0 or 1, found 2"},
           {"pp_division", "2,1",
            "run: 'pp_division': expected 1 numbers, "
            "found 2"},
           {"pp_division", "2", "run: 'pp_division': expected 3 layers in all"},
           {"chunks", 3,
            "run: 'chunks': expected a divisor of the batch, at least pp_deg, "
            "found 3"},
           {"vocab_sdp", 1,
            "run: 'vocab_sdp': expected it to equal 'embed_sdp', which "
            "runtimes of 2.x read instead"},
           {"cp_sizes_enc", "2,1,1",
            "run: 'cp_sizes_enc': expected 1: its formulas have no context "
            "parallelism"},
           {"ep_sizes_enc", "1,1,1",
            "run: 'ep_sizes_enc': experts are not priced"},
           {"pipeline_type", "gpipe",
            "run: 'pipeline_type': expected the profiles' 'pipedream_flush', "
            "found 'gpipe'"},
           {"world_size", 8,
            "run: 'world_size': expected the profiles' 4 devices, which pp_deg "
            "divides"}}) {
    plan.pipeline = 1;
    plan.division = {3};
    plan.ends = HetuStrategy();
    plan.ends.data = 4;
    plan.layers.assign(3, plan.ends);
    plan.chunks = 2;
    llvm::json::Object config = hetuConfiguration(problem, plan);
    config[key] = value;
    llvm::Expected<HetuPlan> none =
        readHetuConfiguration(problem, std::move(config), "run");
    ASSERT_FALSE(bool(none)) << key;
    EXPECT_EQ(llvm::toString(none.takeError()), message);
  }
}

//===----------------------------------------------------------------------===//
// The engine's own cases, where they are there
//===----------------------------------------------------------------------===//

std::vector<std::string> cases() {
  std::vector<std::string> files;
  const char *folder = std::getenv("GALVATRON_ORACLES");
  std::error_code error;
  if (folder)
    for (llvm::sys::fs::directory_iterator
             entry(std::string(folder) + "/galvatron", error),
         end;
         entry != end && !error; entry.increment(error))
      if (llvm::StringRef(entry->path()).ends_with(".input.json"))
        files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

llvm::json::Value jsonOf(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return llvm::cantFail(parseJson((*buffer)->getBuffer(), path));
}

TEST(HetuOracles, PlansAreAtLeastAsFastAsTheEngines) {
  if (cases().empty())
    GTEST_SKIP() << "GALVATRON_ORACLES is not set";
  int compared = 0;
  for (const std::string &path : cases()) {
    HetuProblem problem =
        llvm::cantFail(HetuProblem::fromJson(jsonOf(path), path));
    std::string name = llvm::sys::path::filename(path).str();
    double least = 1e9;
    std::string text;
    double seconds = 0;
    for (int turn = 0; turn < 3; ++turn) {
      std::clock_t begin = std::clock();
      llvm::Expected<HetuPlan> plan = searchHetuPlan(problem);
      least =
          std::min(least, double(std::clock() - begin) * 1e3 / CLOCKS_PER_SEC);
      text = plan ? "" : llvm::toString(plan.takeError());
      seconds = plan ? plan->seconds : 0;
      if (plan)
        EXPECT_TRUE(runtimeTakes(hetuConfiguration(problem, *plan),
                                 problem.devices(), problem.layerCount()));
    }
    std::printf("%-50.50s %9.3f ms a step %6.1f ms of search %s\n",
                name.c_str(), seconds * 1e3, least, text.c_str());
    EXPECT_LT(least, 50) << name;
    std::string answer =
        llvm::StringRef(path).drop_back(strlen(".input.json")).str() +
        ".output.json";
    if (!llvm::sys::fs::exists(answer))
      continue;
    llvm::json::Value output = jsonOf(answer);
    const llvm::json::Object &best = *output.getAsObject()->getObject("best");
    // Its own plan costs by these formulas what it says.
    HetuPlan engine = llvm::cantFail(readHetuConfiguration(
        problem, *output.getAsObject()->get("galvatron_config"), answer));
    EXPECT_NEAR(engine.seconds, *best.getNumber("time_s"),
                1e-7 * engine.seconds);
    EXPECT_TRUE(engine.fits);
    EXPECT_EQ(llvm::json::Value(llvm::json::Array(engine.memoryMb)),
              *best.get("memory_cost_MB"));
    EXPECT_LE(seconds, engine.seconds * (1 + 1e-9)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

} // namespace
