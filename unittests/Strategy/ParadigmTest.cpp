//===- ParadigmTest.cpp - Descriptors and their registry ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An executable of its own: what is registered stays in all strategies of the
// process.
//
//===----------------------------------------------------------------------===//

#include "../TestParadigms.h"

#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::string refusal(const ParadigmDescriptor &descriptor) {
  llvm::Expected<Paradigm> added = ParadigmRegistry::add(descriptor);
  return added ? "" : llvm::toString(added.takeError());
}

std::string refusal(llvm::StringRef strategy) {
  llvm::Expected<Strategy> parsed = Strategy::parse(strategy);
  return parsed ? "" : llvm::toString(parsed.takeError());
}

class ParadigmTest : public ::testing::Test {
protected:
  const TestParadigms &added = TestParadigms::get();
};

TEST_F(ParadigmTest, WhatIsDerivedOfThoseThatAreAlwaysThere) {
  struct Row {
    Paradigm paradigm;
    const char *name;
    GradientSum sum;
    bool gathersUpdates, communicates, changesFunction;
  };
  for (const Row &row :
       {Row{Paradigm::DP, "dp", GradientSum::Once, false, false, false},
        Row{Paradigm::SDP, "sdp", GradientSum::EachMicroBatch, false, true,
            true},
        Row{Paradigm::TP, "tp", GradientSum::None, false, true, true},
        Row{Paradigm::ZDP, "zdp", GradientSum::Once, true, false, true}}) {
    SCOPED_TRACE(row.name);
    const ParadigmDescriptor &descriptor = *row.paradigm;
    EXPECT_EQ(descriptor.name, row.name);
    EXPECT_EQ(ParadigmRegistry::find(row.name), row.paradigm);
    EXPECT_EQ(descriptor.executedAs(), row.name);
    EXPECT_EQ(descriptor.sum(), row.sum);
    EXPECT_EQ(descriptor.gathersUpdates(), row.gathersUpdates);
    EXPECT_EQ(descriptor.hasLayerCollectives(), row.communicates);
    EXPECT_EQ(descriptor.changesLocalFunction(), row.changesFunction);
  }
}

TEST_F(ParadigmTest, RefusesWhatBreaksAConstraint) {
  const ParadigmDescriptor good = *added.replicated;
  auto with = [&](llvm::StringLiteral name, auto change) {
    ParadigmDescriptor descriptor = good;
    descriptor.name = name;
    change(descriptor);
    return refusal(descriptor);
  };
  auto nothing = [](ParadigmDescriptor &) {};
  EXPECT_EQ(with("", nothing),
            "paradigm '': expected a name of lower-case letters");
  EXPECT_EQ(with("z2", nothing),
            "paradigm 'z2': expected a name of lower-case letters");
  EXPECT_EQ(with("ckpt", nothing), "paradigm 'ckpt': the notation of "
                                   "strategies has this word already");
  EXPECT_EQ(with("rep", nothing), "paradigm 'rep': there is one of this name");
  EXPECT_EQ(with("zdp", nothing), "paradigm 'zdp': there is one of this name");
  EXPECT_EQ(with("bad",
                 [](ParadigmDescriptor &d) {
                   d.axis = LayerAxis::Tensor;
                   d.splitsBatch = true;
                 }),
            "paradigm 'bad': ranks that work inside the functions work on "
            "the same samples");
  EXPECT_EQ(with("bad",
                 [](ParadigmDescriptor &d) {
                   d.splitsBatch = d.shardsParameters = true;
                 }),
            "paradigm 'bad': whoever has a part of the parameters updates that "
            "part");
  EXPECT_EQ(
      with("bad", [](ParadigmDescriptor &d) { d.shardsOptimizer = true; }),
      "paradigm 'bad': nothing executes parts of parameters or states "
      "without parts of the samples or positions");
  EXPECT_EQ(with("bad",
                 [](ParadigmDescriptor &d) {
                   d.splitsBatch = d.shardsOptimizer = true;
                 }),
            "paradigm 'bad': gradients are summed once a step over one group, "
            "expected no other level beside it that cuts samples");
  EXPECT_EQ(with("bad",
                 [](ParadigmDescriptor &d) {
                   d.axis = LayerAxis::Tensor;
                   d.resting = RestingState::Rows;
                   d.meet = PositionsMeet::ByHeads;
                 }),
            "paradigm 'bad': heads are exchanged for positions that are "
            "divided");
  EXPECT_EQ(with("bad",
                 [](ParadigmDescriptor &d) {
                   d.axis = LayerAxis::Tensor;
                   d.resting = RestingState::Rows;
                   d.meet = PositionsMeet::InRing;
                 }),
            "paradigm 'bad': keys are passed round where positions are "
            "divided");
  EXPECT_FALSE(ParadigmRegistry::find("bad"));
}

TEST_F(ParadigmTest, NotationReadsAndWritesThem) {
  for (const char *text :
       {"rep2", "fsd4.tp2.ckpt", "rep2.dp2", "osd2.rep3", "tp2.osd2"}) {
    llvm::Expected<Strategy> strategy = Strategy::parse(text);
    ASSERT_TRUE(bool(strategy)) << llvm::toString(strategy.takeError());
    EXPECT_EQ(strategy->str(), text);
  }
  EXPECT_EQ(ParadigmRegistry::names(),
            "'dp', 'sdp', 'tp', 'zdp', 'tsp', 'cp', 'scp', 'zcp', 'up', 'sup', "
            "'ring', 'sring', 'rep', 'fsd', 'osd' or 'ctx'");
  EXPECT_EQ(refusal("fsd2.dp2"),
            "invalid strategy 'fsd2.dp2': 'fsd' is fully sharded data "
            "parallelism, expected no 'dp' beside it");
  EXPECT_EQ(refusal("tp2.rep2"),
            "invalid strategy 'tp2.rep2': 'rep' and 'tp' are one kind of group "
            "to the executor, expected one of them");
}

TEST_F(ParadigmTest, StrategiesAskTheDescriptor) {
  Strategy replicated = llvm::cantFail(Strategy::parse("rep2.dp3"));
  EXPECT_EQ(replicated.sampleShards(), 3);
  EXPECT_EQ(replicated.sampleLayout().blocksByRank(),
            (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(replicated.gradientSumLevels() == Paradigm::DP);
  EXPECT_FALSE(replicated.on(LayerAxis::Tensor));
  EXPECT_TRUE(replicated.axes().empty());
  // Two paradigms of one degree on different axes are different partitions.
  Strategy tensor = llvm::cantFail(Strategy::parse("tp4.dp2"));
  Strategy context = llvm::cantFail(Strategy::parse("dp2.ctx4"));
  EXPECT_EQ(tensor.partition(),
            llvm::cantFail(Strategy::parse("dp3.tp4")).partition());
  EXPECT_EQ(context.on(LayerAxis::Context), added.context);
  EXPECT_FALSE(context.on(LayerAxis::Tensor));
  EXPECT_FALSE(tensor.partition() == context.partition());
  EXPECT_TRUE(tensor.partition() < context.partition() ||
              context.partition() < tensor.partition());
  Strategy sharded = llvm::cantFail(Strategy::parse("tp2.fsd4"));
  EXPECT_FALSE(sharded.sumsOnce());
  EXPECT_EQ(sharded.parameterSharding(), added.sharded);
  EXPECT_EQ(sharded.partition().parameterShards, 4);
  EXPECT_EQ(sharded.optimizerShards(), 1);
  Strategy optimizer = llvm::cantFail(Strategy::parse("osd4.tp2"));
  EXPECT_EQ(optimizer.optimizerShards(), 4);
  EXPECT_TRUE(optimizer.gradientSumLevels() == added.optimizer);
  // Behind what was there, by the order of registration.
  EXPECT_LT(llvm::cantFail(Strategy::parse("zdp4")),
            llvm::cantFail(Strategy::parse("rep4")));
  EXPECT_LT(llvm::cantFail(Strategy::parse("rep4")),
            llvm::cantFail(Strategy::parse("fsd4")));
}

/// Levels that cut samples and positions are one group where they hold alike.
TEST_F(ParadigmTest, GradientsAreSummedOverSamplesAndPositions) {
  auto parse = [](const char *text) {
    return llvm::cantFail(Strategy::parse(text));
  };
  const Paradigm cp = *ParadigmRegistry::find("cp"),
                 scp = *ParadigmRegistry::find("scp"),
                 zcp = *ParadigmRegistry::find("zcp");
  Strategy whole = parse("dp2.tp3.cp2");
  EXPECT_TRUE(whole.gradientSumLevels() == ParadigmSet({Paradigm::DP, cp}));
  EXPECT_EQ(whole.degree(whole.gradientSumLevels()), 4);
  EXPECT_EQ(whole.group(1, whole.gradientSumLevels()),
            (llvm::SmallVector<int64_t, 8>{0, 1, 6, 7}));
  // Ranks 0, 1, 6, 7 by their number in the group.
  EXPECT_EQ(whole.coordinate(7, whole.gradientSumLevels()), 3);
  EXPECT_EQ(whole.sampleShards(), 2);
  EXPECT_TRUE(whole.insideFunctions() == ParadigmSet({Paradigm::TP, cp}));
  Strategy sharded = parse("scp4.sdp2");
  EXPECT_EQ(sharded.partition().parameterShards, 8);
  EXPECT_FALSE(sharded.sumsOnce());
  EXPECT_TRUE(sharded.parameterSharding() == ParadigmSet({Paradigm::SDP, scp}));
  Strategy states = parse("zdp2.zcp3");
  EXPECT_EQ(states.optimizerShards(), 6);
  EXPECT_TRUE(states.gradientSumLevels() == ParadigmSet({Paradigm::ZDP, zcp}));
  // Sums in every micro-batch and once a step may be beside each other.
  EXPECT_TRUE(parse("sdp2.cp2").gradientSumLevels() == cp);
  EXPECT_TRUE(parse("dp2.scp2").parameterSharding() == scp);
  for (auto [text, why] :
       {std::pair{"zdp2.cp2",
                  "'zdp' is data parallelism whose optimizer state is sharded, "
                  "expected no 'cp' beside it"},
        {"dp2.zcp2",
         "'zcp' is context parallelism whose optimizer state is sharded, "
         "expected no 'dp' beside it"},
        {"cp2.scp2", "'scp' and 'cp' both divide rows, expected one of them"},
        {"up2.cp2", "'cp' and 'up' both divide rows, expected one of them"},
        {"cp2.ring2",
         "'ring' and 'cp' both divide rows, expected one of them"}})
    EXPECT_EQ(refusal(text),
              "invalid strategy '" + std::string(text) + "': " + why);
}

/// Ulysses holds and sums what context parallelism does, and differs in where
/// positions meet.
TEST_F(ParadigmTest, HeadsAreExchangedByContextParallelism) {
  for (auto [name, like] : {std::pair{"up", "cp"}, {"sup", "scp"}}) {
    ParadigmDescriptor found = **ParadigmRegistry::find(name);
    EXPECT_TRUE(found.exchangesHeads());
    EXPECT_EQ(found.executedAs(), like);
    EXPECT_EQ(found.groupInside(), "cp");
    EXPECT_FALSE((*ParadigmRegistry::find(like))->exchangesHeads());
  }
}

/// So does ring attention.
TEST_F(ParadigmTest, KeysArePassedRoundByContextParallelism) {
  for (auto [name, like] : {std::pair{"ring", "cp"}, {"sring", "scp"}}) {
    ParadigmDescriptor found = **ParadigmRegistry::find(name);
    EXPECT_TRUE(found.passesKeys());
    EXPECT_FALSE(found.exchangesHeads());
    EXPECT_EQ(found.executedAs(), like);
    EXPECT_EQ(found.groupInside(), "cp");
    EXPECT_FALSE((*ParadigmRegistry::find(like))->passesKeys());
  }
}

TEST_F(ParadigmTest, TreesHaveThemWhereTheyAreSearched) {
  // Counts of the paper do not change.
  EXPECT_EQ(listStrategies(8).size(), 44u);
  SpaceOptions executed;
  executed.paradigms = ParadigmSet::searched(/*executed=*/true);
  EXPECT_TRUE(executed.paradigms.contains(Paradigm::ZDP));
  EXPECT_TRUE(executed.paradigms.contains(added.replicated));
  EXPECT_TRUE(executed.paradigms.contains(added.sharded));
  EXPECT_FALSE(executed.paradigms.contains(added.optimizer));
  executed.checkpoint = CheckpointChoice::Never;
  std::vector<std::string> names;
  for (const Strategy &strategy : enumerateStrategies(4, executed))
    names.push_back(strategy.str());
  // One level each; of two levels one for samples (dp, sdp, zdp, fsd) and one
  // of tp and rep, in both orders.
  EXPECT_EQ(names.size(), 6u + 4 * 2 * 2);
  EXPECT_TRUE(llvm::is_contained(names, "fsd2.rep2"));
  EXPECT_TRUE(llvm::is_contained(names, "rep2.zdp2"));
  EXPECT_FALSE(llvm::is_contained(names, "rep2.tp2"));
}

TEST_F(ParadigmTest, ReplicasMeetNobodyInPasses) {
  // Groups of `rep` never communicate, so sums of gradients may run beside a
  // layer of it; beside one of tp whose groups meet theirs they may not.
  auto parse = [](const char *text) {
    return llvm::cantFail(Strategy::parse(text));
  };
  for (const AwaitedSums &sums :
       awaitedSums({parse("rep2.dp2"), parse("rep2.dp2")}))
    EXPECT_FALSE(sums.any());
  EXPECT_EQ(whyNotGatherAhead(parse("fsd4"), parse("fsd4")), "");
  EXPECT_NE(whyNotGatherAhead(parse("osd4"), parse("osd4")), "");
}

} // namespace
