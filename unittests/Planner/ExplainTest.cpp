//===- ExplainTest.cpp - Why this plan, and why not another ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Explain.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Pins.h"
#include "galvatron/Support/Json.h"

#include "../PaperOptions.h"
#include "llvm/ADT/StringExtras.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

constexpr int64_t MiB = int64_t(1) << 20;

/// An uneven model, small enough for dozens of searches.
std::unique_ptr<ProfileLayerModel> smallModel() {
  const char *text = R"({"version": 1, "dtype": "f32", "layers": [
    {"name": "embed", "forward-ms": 0.5, "backward-ms": 1,
     "parameter-bytes": 40000000, "boundary-bytes": 1000000,
     "intermediate-bytes": 2000000},
    {"name": "block", "count": 6, "forward-ms": 4, "backward-ms": 8,
     "parameter-bytes": 60000000, "boundary-bytes": 4000000,
     "intermediate-bytes": 60000000, "tp-replicated-bytes": 9000000},
    {"name": "head", "forward-ms": 2, "backward-ms": 4,
     "parameter-bytes": 40000000, "boundary-bytes": 4000000,
     "intermediate-bytes": 9000000}]})";
  return llvm::cantFail(ProfileLayerModel::fromJson(
      llvm::cantFail(parseJson(text, "profile")), "small"));
}

Cluster cluster() { return llvm::cantFail(Cluster::builtin("8xrtx-titan")); }

/// The memory of a device of which plans may use `bytes`.
int64_t memoryFor(int64_t bytes) { return cluster().memoryFor({0}, bytes); }

PlannerOptions tight() {
  PlannerOptions options = paperOptions();
  options.batch = 32;
  options.memory = memoryFor(900 * MiB);
  return options;
}

Plan planOf(LayerModel &model, const Cluster &on, const PlannerOptions &by) {
  PlannerResult result = llvm::cantFail(plan(model, on, by));
  EXPECT_TRUE(result.feasible());
  return result.plan();
}

std::string textOf(llvm::function_ref<void(llvm::raw_ostream &)> print) {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(os);
  return text;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(Explain, time_split_adds_up_to_the_iteration) {
  auto model = smallModel();
  for (int64_t degree : {1, 2, 4}) {
    PlannerOptions options = tight();
    options.pipelineDegree = degree;
    options.memory = memoryFor(4096 * MiB);
    Plan found = planOf(*model, cluster(), options);
    for (size_t s = 0; s < found.stages.size(); ++s) {
      const PlanStage &stage = found.stages[s];
      TimeSplit split = found.timeSplit(s);
      EXPECT_NEAR(split.computeMs + split.communicationMs + split.optimizerMs +
                      split.bubbleMs,
                  found.iterationMs, 1e-9 * found.iterationMs);
      EXPECT_GT(split.computeMs, 0);
      EXPECT_GT(split.optimizerMs, 0);
      EXPECT_GE(split.communicationMs, 0);
      EXPECT_GE(split.bubbleMs, 0);
      EXPECT_LE(stage.computeMs, stage.timeNosyncMs);
      EXPECT_LT(stage.forwardMs, stage.timeNosyncMs);
      EXPECT_EQ(stage.availableBytes, 4096 * MiB);
      // What layers add to the peak is all but the shared buffers.
      int64_t own = 0;
      for (int64_t l = 0; l < stage.layerCount; ++l)
        own += found.layers[stage.firstLayer + l].memoryBytes;
      const StageLedger &ledger = stage.ledger;
      EXPECT_EQ(own, ledger.parameters + ledger.gradients + ledger.optimizer +
                         ledger.activations);
    }
  }
  // One device moves nothing and waits for nobody.
  Cluster one = llvm::cantFail(Cluster::builtin("1xh100"));
  PlannerOptions options = tight();
  options.memory.reset();
  Plan alone = planOf(*model, one, options);
  EXPECT_NEAR(alone.timeSplit().computeMs + alone.timeSplit().optimizerMs,
              alone.iterationMs, 1e-9);
}

TEST(Explain, no_part_is_below_zero_where_one_stage_has_most_states) {
  const char *text = R"({"version": 1, "dtype": "f32", "layers": [
    {"name": "table", "forward-ms": 0.01, "backward-ms": 0.02,
     "parameter-bytes": 900000000, "boundary-bytes": 1000,
     "intermediate-bytes": 2000},
    {"name": "block", "count": 3, "forward-ms": 0.2, "backward-ms": 0.4,
     "parameter-bytes": 64000, "boundary-bytes": 1000,
     "intermediate-bytes": 6000}]})";
  auto model = llvm::cantFail(ProfileLayerModel::fromJson(
      llvm::cantFail(parseJson(text, "profile")), "uneven"));
  for (int64_t degree : {1, 2, 4})
    for (int64_t microBatches : {1, 4}) {
      PlannerOptions options = paperOptions();
      options.batch = 8;
      options.pipelineDegree = degree;
      options.microBatches = microBatches;
      Plan found = planOf(*model, cluster(), options);
      for (size_t s = 0; s < found.stages.size(); ++s) {
        TimeSplit split = found.timeSplit(s);
        for (double part : {split.computeMs, split.communicationMs,
                            split.optimizerMs, split.bubbleMs})
          EXPECT_GE(part, 0) << degree << " stages, stage " << s;
        EXPECT_NEAR(split.computeMs + split.communicationMs +
                        split.optimizerMs + split.bubbleMs,
                    found.iterationMs, 1e-9 * found.iterationMs);
      }
    }
}

TEST(Explain, runners_up_are_optima_of_what_they_say) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  Explanation found =
      llvm::cantFail(explain(*model, cluster(), options, chosen));
  ASSERT_FALSE(found.runnersUp.empty());
  // Degrees, numbers of micro-batches and spaces are all gone through; what
  // gives the same plan is told with it.
  std::string all = llvm::join(found.samePlan, ", ");
  for (const Alternative &alternative : found.runnersUp)
    all += ", " + alternative.what;
  for (const char *what : {"pipeline degree 2", "micro-batches", "space 'base'",
                           "space 'dp'", "space 'tp'", "space 'no-ckpt'"})
    EXPECT_TRUE(contains(all, what)) << what << ": " << all;
  bool degreeSeen = false;
  double last = chosen.samplesPerSecond;
  for (const Alternative &alternative : found.runnersUp) {
    if (!alternative.plan) {
      EXPECT_FALSE(alternative.reason.empty());
      last = 0; // none with a plan may follow
      continue;
    }
    EXPECT_LE(alternative.plan->samplesPerSecond, last) << alternative.what;
    last = alternative.plan->samplesPerSecond;
    EXPECT_FALSE(planDifferences(chosen, *alternative.plan).empty());
    EXPECT_EQ(alternative.plan->batch, chosen.batch);
    for (int64_t degree : {1, 2, 4, 8}) {
      std::string name = "pipeline degree " + std::to_string(degree);
      if (!contains(alternative.what, name))
        continue;
      degreeSeen = true;
      PlannerOptions forced = options;
      forced.pipelineDegree = degree;
      EXPECT_EQ(alternative.plan->iterationMs,
                planOf(*model, cluster(), forced).iterationMs);
    }
  }
  EXPECT_TRUE(degreeSeen);
}

/// Whoever has no time left gets no table of what was never looked at.
TEST(Explain, nothing_is_planned_again_once_time_is_up) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  volatile std::sig_atomic_t interrupted = 1;
  Cancellation cancellation;
  cancellation.setFlag(&interrupted);
  options.cancellation = &cancellation;
  Explanation found =
      llvm::cantFail(explain(*model, cluster(), options, chosen));
  EXPECT_FALSE(found.changes.empty());
  for (const auto *list : {&found.runnersUp, &found.changes})
    for (const Alternative &alternative : *list) {
      EXPECT_FALSE(alternative.plan) << alternative.what;
      EXPECT_EQ(alternative.reason, kTimeWasUp) << alternative.what;
    }
}

TEST(Explain, changes_are_planned_again) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  Explanation found =
      llvm::cantFail(explain(*model, cluster(), options, chosen));
  ASSERT_EQ(found.changes.size(), 4u);
  PlannerOptions more = options;
  more.memory = *options.memory * 6 / 5;
  EXPECT_EQ(found.changes[0].plan->iterationMs,
            planOf(*model, cluster(), more).iterationMs);
  more.memory = 1 << 20;
  *more.memory <<= 20;
  Plan free = planOf(*model, cluster(), more);
  EXPECT_EQ(found.changes[1].plan->iterationMs, free.iterationMs);
  EXPECT_EQ(found.memoryBinds, free.iterationMs < chosen.iterationMs);
  EXPECT_TRUE(found.memoryBinds);
  EXPECT_EQ(found.changes[2].plan->iterationMs,
            planOf(*model, cluster().scaled(1, 2), options).iterationMs);
  EXPECT_EQ(found.changes[3].plan->batch, 64);

  // With room to spare nothing but time is left to bind.
  options.memory = int64_t(1) << 40;
  chosen = planOf(*model, cluster(), options);
  found = llvm::cantFail(explain(*model, cluster(), options, chosen));
  EXPECT_FALSE(found.memoryBinds);
  EXPECT_FALSE(chosen.memoryBinds());
  std::string text = textOf([&](auto &os) { found.print(os, chosen); });
  EXPECT_TRUE(contains(text, "memory does not bind"));

  // Every change has its row, with the reason where it has no plan.
  found.changes[2].plan.reset();
  found.changes[2].reason = "no time was left for it";
  text = textOf([&](auto &os) { found.print(os, chosen); });
  for (const Alternative &change : found.changes)
    EXPECT_TRUE(contains(text, "\n  " + change.what)) << change.what;
  EXPECT_TRUE(contains(text, found.changes[2].reason));
}

TEST(Explain, a_plan_made_by_hand_is_compared_with_the_search) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan searched = planOf(*model, cluster(), options);
  PlannerOptions forced = options;
  forced.strategy = llvm::cantFail(Strategy::parse("tp8.ckpt"));
  Plan given = planOf(*model, cluster(), forced);
  given.space = "given";
  Explanation found =
      llvm::cantFail(explain(*model, cluster(), options, given));
  EXPECT_EQ(found.base.iterationMs, searched.iterationMs);
  ASSERT_TRUE(found.runnersUp.front().plan);
  EXPECT_TRUE(contains(found.runnersUp.front().what, "the search"));
  EXPECT_GT(throughputChange(given, *found.runnersUp.front().plan), 0);
}

TEST(Explain, what_was_forced_is_given_back_to_the_search) {
  auto model = smallModel();
  PlannerOptions options = tight();
  options.pipelineDegree = 8;
  options.microBatches = 32;
  Plan chosen = planOf(*model, cluster(), options);
  Explanation found =
      llvm::cantFail(explain(*model, cluster(), options, chosen));
  std::string text = textOf([&](auto &os) { found.print(os, chosen); });
  EXPECT_TRUE(contains(text, "without --pipeline-degree")) << text;
  for (const Alternative &alternative : found.runnersUp)
    if (contains(alternative.what, "without --pipeline-degree")) {
      ASSERT_TRUE(alternative.plan);
      EXPECT_GE(throughputChange(chosen, *alternative.plan), 0);
    }
}

StrategyQuestion ask(const char *text) {
  return llvm::cantFail(StrategyQuestion::parse(text));
}

/// The table's line on what binds is a guess by how full memory is; where the
/// proof says otherwise, it does not leave the two side by side.
TEST(Explain, the_proof_speaks_to_the_guess) {
  auto model = smallModel();
  Plan found = planOf(*model, cluster(), tight());
  Explanation explanation;
  explanation.base = found;
  auto verdict = [&](bool proven, bool full) {
    explanation.memoryBinds = proven;
    for (PlanStage &stage : found.stages)
      stage.peakBytes = full ? stage.availableBytes : stage.availableBytes / 2;
    return textOf([&](llvm::raw_ostream &os) { explanation.print(os, found); });
  };
  EXPECT_TRUE(contains(verdict(true, true), "  memory binds: with more"));
  EXPECT_TRUE(contains(verdict(true, false),
                       "  memory binds, though it is not full: with more"));
  EXPECT_TRUE(contains(verdict(false, true),
                       "  memory does not bind, full as it is: no amount"));
  EXPECT_TRUE(contains(verdict(false, false), "  memory does not bind: no"));
}

TEST(WhyNot, questions_are_read) {
  EXPECT_EQ(ask("sdp4.tp2.ckpt").strategy.str(), "sdp4.tp2.ckpt");
  EXPECT_FALSE(ask("tp4").pipelineDegree);
  EXPECT_EQ(*ask("tp4,pp=2").pipelineDegree, 2);
  for (const char *wrong : {"tp4,", "tp4,2", "tp4,pp=", "tp4,pp=0", "tp4,pp=x",
                            "tp4,pp=2x", ",pp=2", "xp4"}) {
    llvm::Expected<StrategyQuestion> question = StrategyQuestion::parse(wrong);
    EXPECT_FALSE(static_cast<bool>(question)) << wrong;
    llvm::consumeError(question.takeError());
  }
}

TEST(WhyNot, answers) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  auto answer = [&](const char *text) {
    return whyNot(*model, cluster(), options, chosen, ask(text));
  };
  // It fits, and costs something.
  WhyNot tp = answer("tp8.ckpt");
  ASSERT_TRUE(tp.plan);
  EXPECT_TRUE(tp.outsideSpace.empty());
  EXPECT_EQ(tp.pipelineDegree, 1);
  EXPECT_LT(throughputChange(chosen, *tp.plan), 0);
  for (const PlanLayer &layer : tp.plan->layers)
    EXPECT_EQ(layer.strategy.str(), "tp8.ckpt");
  // It does not fit: the numbers are those of the forced plan.
  WhyNot dp = answer("dp8");
  ASSERT_TRUE(dp.infeasible);
  EXPECT_GT(dp.infeasible->neededBytes, dp.infeasible->availableBytes);
  EXPECT_EQ(dp.infeasible->availableBytes, 900 * MiB);
  EXPECT_EQ(dp.infeasible->ledger.total(), dp.infeasible->neededBytes);
  EXPECT_FALSE(dp.infeasible->relaxations.empty());
  options.memory = dp.infeasible->fittingMemory;
  EXPECT_TRUE(answer("dp8").plan);
  options = tight();
  // It is not searched, and priced nevertheless.
  WhyNot both = answer("dp2.sdp4.ckpt");
  ASSERT_EQ(both.outsideSpace.size(), 1u);
  EXPECT_TRUE(contains(both.outsideSpace[0], "--keep-dp-sdp"));
  EXPECT_TRUE(both.plan || both.infeasible);
  options.keepDpSdp = true;
  EXPECT_TRUE(answer("dp2.sdp4.ckpt").outsideSpace.empty());
  options = tight();
  options.space = "no-ckpt";
  EXPECT_EQ(answer("tp8.ckpt").outsideSpace.front(),
            "space 'no-ckpt' does not have strategy 'tp8.ckpt'");
  options = tight();
  options.strategy = ask("sdp8").strategy;
  options.pins.push_back({"head", ask("sdp8").strategy});
  options.pipelineDegree = 2;
  EXPECT_EQ(answer("tp8.ckpt").outsideSpace,
            (std::vector<std::string>{
                "--strategy=sdp8 rules out every other strategy",
                "--layers gives some layers their strategies",
                "--pipeline-degree=2 rules out every other degree"}));
  options = tight();
  // It cannot be.
  EXPECT_EQ(answer("tp3").refusal,
            "1 stage of 3 devices takes 3, but cluster '8xrtx-titan' has 8, "
            "which is no multiple of it");
  EXPECT_EQ(answer("tp4,pp=4").refusal,
            "4 stages of 4 devices take 16, but cluster '8xrtx-titan' has 8");
  EXPECT_EQ(answer("tp4").pipelineDegree, 2);
  // It is the chosen plan itself.
  options.strategy = ask("sdp8.ckpt").strategy;
  options.pipelineDegree = 1;
  Plan uniform = planOf(*model, cluster(), options);
  WhyNot same =
      whyNot(*model, cluster(), options, uniform, ask("sdp8.ckpt,pp=1"));
  EXPECT_TRUE(contains(textOf([&](auto &os) { same.print(os, uniform); }),
                       "that is the chosen plan"));
}

TEST(Pins, a_star_is_for_layers_that_have_no_other) {
  auto model = smallModel();
  auto resolved = [&](const std::string &text) {
    return resolvePins(*model, llvm::cantFail(parsePins(text)));
  };
  auto pins = llvm::cantFail(resolved("*:dp8;head:tp8;*:dp8"));
  ASSERT_EQ(pins.size(), 8u);
  for (size_t layer = 0; layer < pins.size(); ++layer)
    EXPECT_EQ(pins[layer]->str(), layer == 7 ? "tp8" : "dp8") << layer;
  EXPECT_EQ(llvm::cantFail(resolved("head:tp8"))[0], std::nullopt);
  for (auto [text, message] :
       {std::pair("*:dp8;*:tp8",
                  "layer '*' is given strategy 'dp8' and strategy 'tp8'"),
        std::pair("head:sdp8;head:tp8",
                  "layer 'head' is given strategy 'sdp8' and strategy "
                  "'tp8'")}) {
    auto refused = resolved(text);
    ASSERT_FALSE(bool(refused)) << text;
    EXPECT_EQ(llvm::toString(refused.takeError()), message);
  }
}

TEST(Compare, a_plan_beside_itself_differs_in_nothing) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  Plan read = llvm::cantFail(Plan::fromJson(chosen.toJson()));
  Comparison same =
      llvm::cantFail(compare(*model, cluster(), options, chosen, read));
  EXPECT_EQ(throughputChange(same.chosen, same.other), 0);
  EXPECT_TRUE(planDifferences(same.chosen, same.other).empty());
  EXPECT_EQ(same.runs.size(), chosen.runs().size());
  EXPECT_TRUE(contains(textOf([&](auto &os) { same.print(os); }),
                       "the plans are the same"));
}

TEST(Compare, runs_break_where_either_plan_changes) {
  auto model = smallModel();
  PlannerOptions options = tight();
  options.memory = memoryFor(2048 * MiB);
  options.pipelineDegree = 2;
  Plan chosen = planOf(*model, cluster(), options);
  options.pipelineDegree = 4;
  Plan other = planOf(*model, cluster(), options);
  Comparison found =
      llvm::cantFail(compare(*model, cluster(), options, chosen, other));
  size_t next = 0;
  for (LayerRun run : found.runs) {
    EXPECT_EQ(run.begin, next);
    next = run.end;
    for (const Plan *plan : {&found.chosen, &found.other})
      for (size_t l = run.begin + 1; l < run.end; ++l) {
        EXPECT_EQ(plan->layers[l].stage, plan->layers[l - 1].stage);
        EXPECT_TRUE(plan->layers[l].strategy == plan->layers[l - 1].strategy);
      }
  }
  EXPECT_EQ(next, model->layerCount());
  // A stage of its own begins in at least four places.
  EXPECT_GE(found.runs.size(), 4u);
  EXPECT_EQ(found.other.iterationMs, other.iterationMs);
}

TEST(Compare, prices_again_and_shows_what_does_not_fit) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  PlannerOptions large = options;
  large.memory = int64_t(1) << 40;
  Plan other = planOf(*model, cluster(), large);
  double truth = other.iterationMs;
  other.iterationMs = 1; // numbers in the file count for nothing
  Comparison found =
      llvm::cantFail(compare(*model, cluster(), options, chosen, other));
  EXPECT_EQ(found.other.iterationMs, truth);
  std::string text = textOf([&](auto &os) { found.print(os); });
  EXPECT_TRUE(contains(text, "too much")) << text;
}

TEST(Compare, plans_of_something_else_are_refused) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  auto errorOf = [&](auto change) {
    Plan other = chosen;
    change(other);
    auto result = compare(*model, cluster(), options, chosen, other);
    return result ? std::string("no error")
                  : llvm::toString(result.takeError());
  };
  EXPECT_EQ(errorOf([](Plan &other) {
              other.model = "large";
              other.modelHash = "abc";
            }),
            "expected a plan for model 'small' (hash " + chosen.modelHash +
                "), found one for 'large' (hash abc)");
  EXPECT_TRUE(contains(errorOf([](Plan &o) { o.clusterHash = "abc"; }),
                       "expected a plan for cluster '8xrtx-titan' (hash "));
  EXPECT_TRUE(contains(errorOf([](Plan &o) { o.training.optimizer = "sgd"; }),
                       "expected a plan with training options {"));
}

/// JSON has the figures of the plan that it is about.
TEST(Explain, json_says_what_the_plan_takes) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  llvm::json::Value value =
      llvm::cantFail(explain(*model, cluster(), options, chosen))
          .toJson(chosen);
  size_t plans = 0;
  for (const llvm::json::Value &each :
       *value.getAsObject()->getArray("runners-up")) {
    const llvm::json::Object *plan = each.getAsObject()->getObject("plan");
    if (!plan)
      continue;
    ++plans;
    double ms = *plan->getNumber("iteration-ms");
    EXPECT_NEAR(*plan->getNumber("samples-per-second") * ms,
                1e3 * double(*plan->getInteger("batch")), 1e-6);
    EXPECT_NEAR(
        *plan->getNumber("compute-ms") + *plan->getNumber("communication-ms") +
            *plan->getNumber("optimizer-ms") + *plan->getNumber("bubble-ms"),
        ms, 1e-6 * ms);
  }
  EXPECT_GT(plans, 2u);
}

TEST(Pareto, front_has_no_dominated_point_and_begins_at_the_least_memory) {
  auto model = smallModel();
  PlannerOptions options = tight();
  Plan chosen = planOf(*model, cluster(), options);
  std::vector<ParetoPoint> front = llvm::cantFail(paretoFront(
      cluster(), options, chosen,
      [&](const Cluster &some, const PlannerOptions &asked) {
        return plan(*model, some, asked);
      },
      6));
  ASSERT_GE(front.size(), 3u);
  bool atLeastAsGood = false;
  for (size_t i = 0; i < front.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(front[i].peakBytes, front[i - 1].peakBytes);
      EXPECT_GT(front[i].plan.samplesPerSecond,
                front[i - 1].plan.samplesPerSecond);
    }
    // The front is no worse than the plan it is drawn for.
    atLeastAsGood |= front[i].peakBytes <= 900 * MiB &&
                     front[i].plan.samplesPerSecond >= chosen.samplesPerSecond;
  }
  EXPECT_TRUE(atLeastAsGood);
  options.memory = memoryFor(front[0].peakBytes);
  EXPECT_TRUE(llvm::cantFail(plan(*model, cluster(), options)).feasible());
  options.memory = memoryFor(front[0].peakBytes) - 1;
  EXPECT_FALSE(llvm::cantFail(plan(*model, cluster(), options)).feasible());
}

TEST(Relax, offered_inputs_fit) {
  auto model = smallModel();
  PlannerOptions options = tight();
  options.batch = 64;
  options.space = "no-ckpt";
  options.memory = 1;
  PlannerResult result = llvm::cantFail(plan(*model, cluster(), options));
  ASSERT_FALSE(result.feasible());
  EXPECT_EQ(result.infeasible().fittingDevices, 0);
  options.memory = result.infeasible().fittingMemory - 1;
  result = llvm::cantFail(plan(*model, cluster(), options));
  ASSERT_FALSE(result.feasible());
  const Infeasible &reasons = result.infeasible();
  auto fits = [&](const Cluster &on, int64_t batch, int64_t memory) {
    PlannerOptions changed = options;
    changed.batch = batch;
    changed.memory = memory;
    return llvm::cantFail(plan(*model, on, changed)).feasible();
  };
  EXPECT_EQ(reasons.fittingMemory, memoryFor(reasons.neededBytes));
  EXPECT_TRUE(fits(cluster(), 64, reasons.fittingMemory));
  EXPECT_FALSE(fits(cluster(), 64, reasons.fittingMemory - 1));
  ASSERT_GT(reasons.fittingDevices, 8);
  EXPECT_TRUE(
      fits(*cluster().resized(reasons.fittingDevices), 64, *options.memory));
  for (int64_t fewer = 9; fewer < reasons.fittingDevices; ++fewer)
    EXPECT_FALSE(fits(*cluster().resized(fewer), 64, *options.memory));
  if (reasons.fittingBatch > 0) {
    EXPECT_TRUE(fits(cluster(), reasons.fittingBatch, *options.memory));
  }

  // A batch too large for one micro-batch, and a smaller one that is not.
  options = tight();
  options.pipelineDegree = 1;
  options.microBatches = 1;
  options.batch = 256;
  options.space = "no-ckpt";
  options.memory = memoryFor(1400 * MiB);
  result = llvm::cantFail(plan(*model, cluster(), options));
  ASSERT_FALSE(result.feasible());
  int64_t batch = result.infeasible().fittingBatch;
  ASSERT_GT(batch, 0);
  EXPECT_TRUE(fits(cluster(), batch, *options.memory));
  EXPECT_FALSE(fits(cluster(), batch + 8, *options.memory));
}

TEST(Decisions, verdicts_that_differ_in_numbers_are_folded) {
  std::vector<std::string> log = {
      "pp1 m1 batch 8: 3.5 ms, the best so far",
      "pp2 m1 batch 8 even: rejected, at least 4.25 ms whatever",
      "pp2 m2 batch 8 time-balanced: rejected, at least 4.5 ms whatever",
      "pp4 m1 batch 8 even: rejected, at least 5 ms whatever",
      "pp4 m2 batch 8 even: rejected, does not fit",
      "pp8 m2 batch 8 even: rejected, does not fit",
      "chosen: pp1 m1 batch 8"};
  EXPECT_EQ(foldDecisions(log),
            (std::vector<std::string>{log[0], log[1],
                                      "  and 2 more, the last: " + log[3],
                                      log[4], log[5], log[6]}));
  EXPECT_TRUE(foldDecisions({}).empty());
}

} // namespace
