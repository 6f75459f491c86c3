//===- PricingTest.cpp - Prices, bounds and the fastest of a space --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Units.h"

#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace galvatron;

namespace {

ModelShape smallShape() {
  ModelShape shape;
  shape.name = "small";
  shape.layers = 12;
  shape.hidden = 1024;
  shape.heads = shape.keyHeads = 16;
  shape.headWidth = 64;
  shape.inner = 4096;
  shape.vocabulary = 32000;
  shape.tokens = 1024;
  return shape;
}

Configuration plain(int64_t batch, int64_t microBatch, int64_t tensor,
                    int64_t pipeline, int64_t data, int64_t layers) {
  Configuration configuration;
  configuration.batch = batch;
  configuration.microBatch = microBatch;
  configuration.tensor = tensor;
  configuration.pipeline = pipeline;
  configuration.data = data;
  configuration.blocks = Configuration::evenBlocks(layers, pipeline);
  return configuration;
}

SoftwarePrice priceOf(const ModelShape &shape,
                      const Configuration &configuration,
                      const std::string &execution, llvm::StringRef cluster) {
  return llvm::cantFail(price(shape, configuration,
                              llvm::cantFail(Execution::named(execution)),
                              llvm::cantFail(Cluster::builtin(cluster))));
}

TEST(Configuration, ComesFromDegreesAndGoesBack) {
  for (llvm::StringRef text :
       {"single", "dp4", "zdp8", "sdp2", "tp4", "dp2.tp4", "zdp4.tp2.ckpt",
        "dp2.sdp4.tp2", "sdp4.ckpt"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    Configuration configuration =
        llvm::cantFail(Configuration::fromStrategy(strategy));
    EXPECT_EQ(configuration.strategyOfBlocks().str(), text.str());
    EXPECT_EQ(configuration.strategyOfEnds().checkpoint(), false);
  }
  Configuration rows = llvm::cantFail(Configuration::fromStrategy(
      llvm::cantFail(Strategy::parse("sdp2.tsp4"))));
  EXPECT_TRUE(rows.sequenceParallel);
  EXPECT_EQ(rows.strategyOfBlocks().str(), "sdp2.tp4");
  for (llvm::StringRef text :
       {"tp2.dp4", "sdp2.dp2", "tp2.sdp2", "tsp2.sdp2"}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    llvm::Expected<Configuration> none = Configuration::fromStrategy(strategy);
    ASSERT_FALSE(bool(none)) << text.str();
    EXPECT_NE(
        llvm::toString(none.takeError()).find("as software takes degrees"),
        std::string::npos);
  }
  llvm::Expected<Configuration> part =
      Configuration::fromStrategy(llvm::cantFail(Strategy::parse("tp4.ckpt2")));
  ASSERT_FALSE(bool(part));
  EXPECT_EQ(llvm::toString(part.takeError()),
            "strategy 'tp4.ckpt2': expected a layer that keeps all of its "
            "values or none");
}

TEST(Configuration, BlocksByWorkCoverAllLayers) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    ModelShape shape = smallShape();
    shape.layers = 1 + int64_t(random() % 60);
    shape.vocabulary = 1000 << random() % 10;
    int64_t stages = 1 + int64_t(random() % shape.layers);
    std::vector<int64_t> blocks = Configuration::blocksByWork(shape, stages);
    ASSERT_EQ(int64_t(blocks.size()), stages);
    int64_t sum = 0;
    for (int64_t count : blocks)
      sum += count;
    EXPECT_EQ(sum, shape.layers);
  }
}

TEST(Pricing, FactsChangeWhatTheyAreOf) {
  const ModelShape shape = smallShape();
  Configuration configuration = plain(32, 2, 2, 2, 2, shape.layers);
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xa100-80gb"));
  Execution usual = llvm::cantFail(Execution::named("megatron-2020"));
  auto with = [&](const std::string &fact, const std::string &value) {
    Execution execution = usual;
    llvm::cantFail(execution.set({{fact, value}}));
    return llvm::cantFail(price(shape, configuration, execution, cluster));
  };
  SoftwarePrice base =
      llvm::cantFail(price(shape, configuration, usual, cluster));
  EXPECT_GT(with("waits", "on").stepMs, base.stepMs);
  EXPECT_LT(with("launch-us", "0").stepMs, base.stepMs);
  EXPECT_LT(with("overlaps", "on").stepMs, base.stepMs);
  EXPECT_LT(with("keeps-scores", "off").allocated, base.allocated);
  EXPECT_GT(with("half-gradients", "off").allocated, base.allocated);
  EXPECT_GT(with("keeps-outputs", "on").allocated, base.allocated);
  EXPECT_GT(with("gradient-copies", "stay").allocated, base.allocated - 1);
  EXPECT_EQ(with("figure", "card").allocated, base.allocated);
  EXPECT_GT(with("figure", "card").shown, base.shown);
  EXPECT_GT(with("fuses-norms", "off").stepMs, base.stepMs);
}

TEST(Pricing, CutRowsSaveMemoryAndRecomputationCostsTime) {
  // Large enough that launches are not waited for.
  ModelShape shape = smallShape();
  shape.hidden = shape.inner = 4096;
  shape.headWidth = 256;
  shape.tokens = 4096;
  Configuration whole = plain(32, 4, 4, 1, 2, shape.layers), cut = whole;
  cut.sequenceParallel = true;
  SoftwarePrice one = priceOf(shape, whole, "megatron-2022", "8xa100-80gb");
  SoftwarePrice other = priceOf(shape, cut, "megatron-2022", "8xa100-80gb");
  EXPECT_LT(other.allocated, one.allocated);
  EXPECT_LT(other.stepMs, one.stepMs);
  // Korthikanti et al., Table 2: scores alone, then everything.
  Configuration scores = cut, full = cut;
  scores.recompute = Recompute::Attention;
  full.recompute = Recompute::Full;
  SoftwarePrice few = priceOf(shape, scores, "megatron-2022", "8xa100-80gb");
  SoftwarePrice all = priceOf(shape, full, "megatron-2022", "8xa100-80gb");
  EXPECT_LT(few.allocated, other.allocated);
  EXPECT_LT(all.allocated, few.allocated);
  EXPECT_GT(few.stepMs, other.stepMs);
  EXPECT_GT(all.stepMs, few.stepMs);
}

/// Optimizer states that groups of replicas have: of more groups a rank has
/// more of them, by as many bytes as they say, and the updated parameters come
/// from the ranks of a group alone.
TEST(Pricing, GroupsOfOptimizerStates) {
  ModelShape shape = smallShape();
  shape.hidden = 4096;
  shape.headWidth = 256;
  shape.inner = 16384;
  Configuration all = plain(64, 1, 1, 1, 16, shape.layers);
  all.sharding = Sharding::Optimizer;
  EXPECT_EQ(all.str(), "pp1 m4 zdp16, 1 a micro-batch");
  Configuration groups = all, ones = all, none = all;
  groups.shardGroup = 8;
  ones.shardGroup = 1;
  none.sharding = Sharding::None;
  EXPECT_EQ(groups.str(),
            "pp1 m4 zdp16, 1 a micro-batch, optimizer states cut in 8");
  EXPECT_EQ(groups.strategyOfEnds().str(), "dp2.sdp8");
  EXPECT_EQ(groups.shards(), 1);
  auto on = [&](const Configuration &configuration) {
    return priceOf(shape, configuration, "megatron-core", "2x8xh100");
  };
  auto onSlow = [&](const Configuration &configuration) {
    Cluster fast = llvm::cantFail(Cluster::builtin("2x8xh100"));
    ClusterDescription slow{"slow",
                            fast.deviceTypes().vec(),
                            fast.nodeGroups().vec(),
                            fast.networkLink(),
                            fast.matrix(),
                            fast.collectives().vec()};
    slow.network->bandwidth = 1e10;
    return llvm::cantFail(price(
        shape, configuration, llvm::cantFail(Execution::named("megatron-core")),
        llvm::cantFail(Cluster::get(std::move(slow)))));
  };
  const SoftwarePrice whole = on(all), half = on(groups);
  EXPECT_EQ(half.plan.layers.front().strategy.str(), "zdp16");
  const StageLedger &of = whole.plan.stages.front().ledger,
                    &inGroups = half.plan.stages.front().ledger;
  EXPECT_EQ(inGroups.parameters, of.parameters);
  EXPECT_EQ(inGroups.gradients, of.gradients);
  EXPECT_NEAR(double(inGroups.optimizer), 2 * double(of.optimizer), 1e5);
  EXPECT_NEAR(double(half.allocated - whole.allocated), double(of.optimizer),
              1e5);
  // A second sum takes time, and behind the update parameters come from the
  // node: that counts where its network is slow. Two bytes of a parameter then
  // stay in the node, where the first sum and this gather take a part of it.
  EXPECT_GT(half.stepMs, whole.stepMs);
  const double gathered =
      1e3 * double(of.parameters) / 1e10 * 15 / 16; // ms over the network
  const double saved = onSlow(all).stepMs - onSlow(groups).stepMs;
  EXPECT_GT(saved, 0.7 * gathered);
  EXPECT_LT(saved, gathered);
  // Groups of one rank each are replicas.
  EXPECT_NEAR(on(ones).stepMs, on(none).stepMs, 1e-9);
  EXPECT_EQ(on(ones).plan.stages.front().ledger.optimizer,
            on(none).plan.stages.front().ledger.optimizer);
  groups.shardGroup = 5;
  llvm::Expected<SoftwarePrice> uneven =
      price(shape, groups, llvm::cantFail(Execution::named("megatron-core")),
            llvm::cantFail(Cluster::builtin("2x8xh100")));
  ASSERT_FALSE(bool(uneven));
  EXPECT_EQ(llvm::toString(uneven.takeError()),
            "expected the replicas, 16, to divide by the shard group, found 5");
}

TEST(Pricing, RefusesWhatDoesNotDivide) {
  const ModelShape shape = smallShape();
  Execution fused = llvm::cantFail(Execution::named("fused"));
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xh100"));
  auto refusal = [&](Configuration configuration) {
    llvm::Expected<SoftwarePrice> none =
        price(shape, configuration, fused, cluster);
    return none ? "" : llvm::toString(none.takeError());
  };
  EXPECT_EQ(refusal(plain(30, 4, 1, 1, 8, shape.layers)),
            "expected the batch, 30, to divide by replicas times samples of a "
            "micro-batch, found 32");
  EXPECT_EQ(refusal(plain(32, 4, 1, 1, 4, shape.layers)),
            "expected degrees whose product is the cluster's 8 devices, found "
            "4");
  Configuration uneven = plain(32, 4, 1, 1, 8, shape.layers);
  uneven.blocks = {11};
  EXPECT_EQ(refusal(uneven), "expected 1 counts of blocks, 12 in all, found 1 "
                             "counts and 11 blocks");
  ModelShape odd = shape;
  odd.heads = odd.keyHeads = 12;
  llvm::Expected<SoftwarePrice> none =
      price(odd, plain(32, 4, 8, 1, 1, 12), fused, cluster);
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(llvm::toString(none.takeError()),
            "expected the heads, 12, to divide by tensor parallelism, found 8");
}

/// Random sizes, degrees, schedules and executions.
struct Drawn {
  ModelShape shape;
  Configuration configuration;
  Execution execution;
  std::string cluster;
};

Drawn draw(std::mt19937 &random) {
  auto among = [&](auto list) {
    return *(list.begin() + random() % list.size());
  };
  Drawn drawn;
  ModelShape &shape = drawn.shape;
  shape = smallShape();
  shape.layers = among(std::initializer_list<int64_t>{4, 8, 12, 24});
  shape.hidden = 64 * among(std::initializer_list<int64_t>{8, 16, 40});
  shape.headWidth = shape.hidden / 8;
  shape.heads = shape.keyHeads = 8;
  shape.inner = shape.hidden * among(std::initializer_list<int64_t>{2, 4});
  shape.gated = random() % 2;
  shape.vocabulary = 128 * int64_t(1 + random() % 400);
  shape.tokens =
      among(std::initializer_list<int64_t>{32, 128, 512, 2048, 8192});
  Configuration &plan = drawn.configuration;
  plan.tensor = int64_t(1) << random() % 3;
  plan.pipeline = int64_t(1) << random() % 3;
  plan.data = 16 / plan.tensor / plan.pipeline;
  plan.microBatch = int64_t(1) << random() % 3;
  plan.batch =
      plan.data * plan.microBatch * plan.pipeline * int64_t(1 + random() % 3);
  plan.sharding = plan.data > 1 ? Sharding(random() % 4) : Sharding::None;
  if (plan.sharding == Sharding::Optimizer && plan.data > 2 && random() % 2)
    plan.shardGroup = 2;
  plan.recompute = Recompute(random() % 4);
  plan.recomputedEvery = random() % 4 == 0 ? 2 : 0;
  plan.sequenceParallel = plan.tensor > 1 && random() % 2;
  if (plan.pipeline > 1 && random() % 2) {
    llvm::StringRef names[] = {"interleaved", "zb-h1", "zb-h2", "zb-v",
                               "gpipe"};
    plan.schedule = llvm::cantFail(parseSchedule(names[random() % 5]));
    if (plan.schedule->name() == "interleaved" ||
        plan.schedule->name() == "zb-v")
      plan.chunks = 2;
  }
  if (shape.layers % (plan.pipeline * plan.chunks)) {
    plan.chunks = 1;
    plan.schedule = &defaultSchedule();
  }
  plan.blocks =
      Configuration::evenBlocks(shape.layers, plan.pipeline * plan.chunks);
  std::vector<std::string> names = Execution::names();
  drawn.execution =
      llvm::cantFail(Execution::named(names[random() % names.size()]));
  drawn.execution.sumsEveryPass = random() % 2;
  drawn.execution.gathersEveryPass = random() % 2;
  const char *clusters[] = {"16xa100-80gb", "2x8xh100", "4x4xv100-32gb",
                            "8x2xh200", "16x1xa100-40gb"};
  drawn.cluster = clusters[random() % 5];
  return drawn;
}

/// Bounds are below prices, or the search that stops by them is wrong.
TEST(Bounds, AreBelowPrices) {
  std::mt19937 random(11);
  int priced = 0;
  double tightest = 0;
  for (int i = 0; i < 600; ++i) {
    Drawn drawn = draw(random);
    SCOPED_TRACE(drawn.configuration.str() + " " + drawn.execution.name + " " +
                 drawn.cluster + " " +
                 std::string(drawn.configuration.schedule->name()));
    Cluster cluster = llvm::cantFail(Cluster::builtin(drawn.cluster));
    llvm::Expected<SoftwarePrice> found =
        price(drawn.shape, drawn.configuration, drawn.execution, cluster);
    if (!found) {
      llvm::consumeError(found.takeError());
      continue;
    }
    ++priced;
    double least = LeastSteps(drawn.execution, cluster)
                       .leastMs(drawn.shape, drawn.configuration);
    EXPECT_LE(least, found->stepMs * (1 + 1e-9));
    EXPECT_GT(least, 0);
    EXPECT_LE(leastAllocated(drawn.shape, drawn.configuration, drawn.execution),
              found->allocated);
    tightest = std::max(tightest, least / found->stepMs);
  }
  EXPECT_GT(priced, 400);
  // A bound that lost a term would be far from all prices.
  EXPECT_GT(tightest, 0.9);
}

/// One micro-batch has the pipeline to itself, so its way there and back is the
/// step, whatever the schedule: a stage alone is a part of it.
TEST(Bounds, FollowTheFirstMicroBatch) {
  ModelShape shape = smallShape();
  shape.layers = 16;
  shape.tokens = 8192;
  Execution execution = llvm::cantFail(Execution::named("torchtitan"));
  Cluster cluster = llvm::cantFail(Cluster::builtin("4xh100"));
  for (auto [schedule, chunks, part] : {std::tuple("1f1b", 1, 0.95),
                                        {"interleaved", 2, 0.95},
                                        {"zb-h1", 1, 0.9},
                                        {"zb-v", 2, 0.8}}) {
    Configuration plan = plain(1, 1, 1, 4, 1, shape.layers);
    plan.schedule = llvm::cantFail(parseSchedule(schedule));
    plan.chunks = chunks;
    plan.blocks = Configuration::evenBlocks(shape.layers, 4 * chunks);
    SoftwarePrice found =
        llvm::cantFail(price(shape, plan, execution, cluster));
    double least = LeastSteps(execution, cluster).leastMs(shape, plan);
    EXPECT_LE(least, found.stepMs * (1 + 1e-9)) << schedule;
    EXPECT_GT(least, part * found.stepMs) << schedule;
  }
}

/// A block that is recomputed has a whole backward pass, and puts off none of
/// its gradients; its neighbour in the chunk does.
TEST(Bounds, KnowWhichBlocksPutOffGradients) {
  // Blocks are nearly all of the step, so that the bound is near the price.
  ModelShape shape = smallShape();
  shape.layers = 24;
  shape.hidden = 2560;
  shape.headWidth = shape.hidden / shape.heads;
  shape.inner = 4 * shape.hidden;
  shape.tokens = 2048;
  shape.vocabulary = 128;
  Execution execution = llvm::cantFail(Execution::named("fused"));
  Cluster cluster = llvm::cantFail(Cluster::builtin("16xa100-80gb"));
  for (const char *schedule : {"zb-h1", "zb-h2"})
    for (int64_t batches : {1, 2, 4}) {
      Configuration plan = plain(16 * batches, 4, 1, 4, 4, shape.layers);
      plan.schedule = llvm::cantFail(parseSchedule(schedule));
      plan.recompute = Recompute::Full;
      plan.recomputedEvery = 2;
      SoftwarePrice found =
          llvm::cantFail(price(shape, plan, execution, cluster));
      double least = LeastSteps(execution, cluster).leastMs(shape, plan);
      EXPECT_LE(least, found.stepMs * (1 + 1e-9)) << schedule << batches;
      EXPECT_GT(least, 0.7 * found.stepMs) << schedule << batches;
    }
}

/// A step of one stage waits for the sums of replicas beside its last pass.
TEST(Bounds, KnowSumsBesideTheLastPass) {
  ModelShape shape = smallShape();
  shape.tokens = 512;
  Execution execution = llvm::cantFail(Execution::named("torchtitan"));
  ASSERT_TRUE(execution.overlaps);
  Cluster cluster = llvm::cantFail(Cluster::builtin("8x1xv100-16gb"));
  Configuration plan = plain(8, 1, 1, 1, 8, shape.layers);
  SoftwarePrice found = llvm::cantFail(price(shape, plan, execution, cluster));
  double least = LeastSteps(execution, cluster).leastMs(shape, plan);
  EXPECT_LE(least, found.stepMs * (1 + 1e-9));
  EXPECT_GT(least, 0.5 * found.stepMs);
}

/// Passes whose weights' gradients are put off are in the bound of memory.
TEST(Bounds, KnowWhatAVKeeps) {
  ModelShape shape = smallShape();
  shape.layers = 16;
  shape.tokens = 8192;
  Configuration plan = plain(16, 1, 1, 4, 1, shape.layers);
  plan.schedule = llvm::cantFail(parseSchedule("zb-v"));
  plan.chunks = 2;
  plan.blocks = Configuration::evenBlocks(shape.layers, 8);
  // Logits, of which the bound knows nothing, are small.
  Execution execution = llvm::cantFail(Execution::named("torchtitan"));
  execution.logitBytes = 2;
  SoftwarePrice found = llvm::cantFail(price(
      shape, plan, execution, llvm::cantFail(Cluster::builtin("4xh100"))));
  const int64_t least = leastAllocated(shape, plan, execution);
  EXPECT_LE(least, found.allocated);
  EXPECT_GT(double(least), 0.75 * double(found.allocated));
}

/// Where the head's backward pass needs more than a block's, the price takes
/// off what a block gathers beyond a matrix all the same.
TEST(Bounds, KnowWhatAHeadGathers) {
  ModelShape shape = smallShape();
  shape.layers = 4;
  shape.hidden = 2560;
  shape.headWidth = 320;
  shape.heads = shape.keyHeads = 8;
  shape.inner = 4 * shape.hidden;
  shape.tokens = 32;
  shape.vocabulary = 51200;
  Configuration plan = plain(64, 4, 1, 1, 16, shape.layers);
  plan.sharding = Sharding::Parameters;
  Execution execution = llvm::cantFail(Execution::named("megatron-sc21"));
  execution.gathersMatrices = true;
  SoftwarePrice found =
      llvm::cantFail(price(shape, plan, execution,
                           llvm::cantFail(Cluster::builtin("16xa100-80gb"))));
  const int64_t least = leastAllocated(shape, plan, execution);
  EXPECT_LE(least, found.allocated);
  EXPECT_GT(double(least), 0.9 * double(found.allocated));
}

/// Every division of the blocks is visited once.
TEST(Configuration, DivisionsDiffer) {
  ModelShape shape = smallShape();
  for (int64_t layers : {16, 30, 32, 80})
    for (int64_t stages : {1, 2, 4, 8}) {
      shape.layers = layers;
      Configuration plan = plain(16, 1, 1, stages, 1, layers);
      std::set<std::vector<int64_t>> seen;
      plan.visitDivisions(shape, [&](const Configuration &divided) {
        EXPECT_TRUE(seen.insert(divided.blocks).second) << layers << stages;
      });
    }
}

/// What a software can express is said in one place: a made-up one touches no
/// other. It has no tensor parallelism, two micro-batch sizes and one schedule.
class MadeUp final : public Target {
public:
  llvm::StringRef name() const override { return "made-up"; }
  std::string description() const override { return "a software of tests"; }
  llvm::Error setOption(llvm::StringRef, llvm::StringRef) override {
    return makeError("made-up has no options");
  }
  Execution execution() const override {
    return llvm::cantFail(Execution::named("torchtitan"));
  }
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &) const override {
    return shape;
  }
  llvm::Error
  visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
        llvm::function_ref<void(const Configuration &)> visit) const override {
    for (int64_t pipeline : divisors(cluster.deviceCount())) {
      int64_t data = cluster.deviceCount() / pipeline;
      for (int64_t microBatch : {1, 2}) {
        if (batch % (data * microBatch) || shape.layers % pipeline)
          continue;
        for (Sharding sharding : {Sharding::None, Sharding::Parameters}) {
          Configuration configuration =
              plain(batch, microBatch, 1, pipeline, data, shape.layers);
          configuration.sharding = data > 1 ? sharding : Sharding::None;
          visit(configuration);
        }
      }
    }
    return llvm::Error::success();
  }
  std::vector<LaunchFile> write(const ModelShape &,
                                const Configuration &configuration,
                                const Cluster &) const override {
    return {{"plan.txt", configuration.str(), false}};
  }
  llvm::Expected<SoftwareReading>
  read(llvm::StringRef, llvm::StringRef fileName) const override {
    return makeError(fileName + ": made-up reads nothing");
  }
};

/// The fastest of a space by pricing everything; `least`: bytes of what needs
/// least.
double bruteForce(const Target &target, const ModelShape &shape,
                  const Cluster &cluster, int64_t batch, int64_t &least) {
  double best = 0;
  least = INT64_MAX;
  llvm::cantFail(target.visit(
      shape, cluster, batch, [&](const Configuration &configuration) {
        llvm::Expected<SoftwarePrice> found =
            price(target.asTrained(shape, configuration), configuration,
                  target.executionOn(cluster), cluster);
        ASSERT_TRUE(bool(found)) << llvm::toString(found.takeError());
        least = std::min(least, found->allocated);
        if (found->fits && (best == 0 || found->stepMs < best))
          best = found->stepMs;
      }));
  return best;
}

TEST(FindFastest, IsTheFastestOfAll) {
  TargetRegistry::add("made-up", [] {
    return std::unique_ptr<Target>(std::make_unique<MadeUp>());
  });
  std::mt19937 random(3);
  for (const char *software :
       {"made-up", "megatron", "fsdp", "deepspeed", "nanotron"}) {
    SoftwareRequest request{false, software, {}};
    std::unique_ptr<Target> target =
        llvm::cantFail(TargetRegistry::make(request));
    for (llvm::StringRef name : {"4xa100-40gb", "8xv100-16gb", "2x4xh100"}) {
      if (std::string(software) == "nanotron" && name == "8xv100-16gb")
        continue; // it sums in f32 beside bf16 alone
      ModelShape shape = smallShape();
      shape.layers = 8 + 4 * int64_t(random() % 3);
      shape.hidden = 1024 * int64_t(1 + random() % 4);
      shape.headWidth = shape.hidden / shape.heads;
      shape.inner = 4 * shape.hidden;
      shape.gated = std::string(software) == "nanotron";
      int64_t batch = 8 * int64_t(1 + random() % 3);
      SCOPED_TRACE(std::string(software) + " on " + name.str());
      Cluster cluster = llvm::cantFail(Cluster::builtin(name));
      TargetAnswer answer =
          llvm::cantFail(findFastest(*target, shape, cluster, batch));
      EXPECT_GE(answer.space, answer.priced);
      int64_t least = 0;
      double best = bruteForce(*target, shape, cluster, batch, least);
      EXPECT_EQ(answer.feasible, best > 0);
      if (best == 0)
        EXPECT_EQ(answer.price.allocated, least);
      else
        EXPECT_EQ(answer.price.stepMs, best);
    }
    // On cards of 2 GB nothing of it fits.
    ModelShape large = smallShape();
    large.layers = 16;
    large.hidden = 2048;
    large.headWidth = large.hidden / large.heads;
    large.inner = 4 * large.hidden;
    large.gated = std::string(software) == "nanotron";
    Cluster cluster = llvm::cantFail(Cluster::builtin("4xa100-40gb"));
    ClusterDescription small{"small",
                             cluster.deviceTypes().vec(),
                             cluster.nodeGroups().vec(),
                             cluster.networkLink(),
                             cluster.matrix(),
                             cluster.collectives().vec()};
    small.deviceTypes.front().memory = int64_t(1) << 31;
    cluster = llvm::cantFail(Cluster::get(std::move(small)));
    TargetAnswer none = llvm::cantFail(findFastest(*target, large, cluster, 8));
    int64_t least = 0;
    EXPECT_EQ(bruteForce(*target, large, cluster, 8, least), 0);
    EXPECT_FALSE(none.feasible);
    EXPECT_EQ(none.price.allocated, least) << software;
  }
}

} // namespace
