//===- commands_test.cpp - The commands of tasks --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "core/capture.h"
#include "core/commands.h"
#include "core/layout.h"
#include "core/places.h"
#include "core/program_check.h"
#include "program/reader.h"
#include "program_tables.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

using namespace grt;
using namespace grt::test;

namespace {

/// A program with the procedures of each of its roles.
struct Lowered {
  explicit Lowered(const std::string &bytes)
      : file(bytes), program(file, "p"),
        manifest(checkedManifest(program, "p")) {
    for (size_t r = 0; r < manifest.roles.size(); ++r)
      roles.emplace_back(program, r, manifest.roles[r]);
  }

  const std::string file;
  const ProgramFile program;
  const Manifest manifest;
  std::vector<Procedures> roles;
};

std::string compiledProgram(const char *name) {
  std::ifstream file(std::string(PROGRAMS) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<gvx::CommandKind> kindsOf(Procedure procedure) {
  std::vector<gvx::CommandKind> kinds;
  for (const gvx::Command &command : procedure)
    kinds.push_back(command.kind);
  return kinds;
}

TEST(Commands, AreTheStepsOfAPass) {
  const Lowered toy{TestProgram(ModelPlan()).file()};
  using enum gvx::CommandKind;
  // Three layers in a slot: each writes the next one's input.
  EXPECT_EQ(kindsOf(toy.roles[0].of(0, GRT_TASK_FORWARD)),
            (std::vector<gvx::CommandKind>{UseSlot, Begin, Call, Begin, Call,
                                           Call, Used}));
  EXPECT_EQ(kindsOf(toy.roles[0].of(0, GRT_TASK_SYNC_GRADIENTS)),
            (std::vector<gvx::CommandKind>{AwaitHome, Sum, Sum, Sum}));
  EXPECT_EQ(
      kindsOf(toy.roles[0].of(0, GRT_TASK_UPDATE)),
      (std::vector<gvx::CommandKind>{Return, AwaitHome, Call, Call, Call}));
  EXPECT_EQ(kindsOf(toy.roles[0].norm()),
            (std::vector<gvx::CommandKind>{AwaitHome, Call, Call, Call}));
}

/// A plan under which no update depends on all ranks.
ModelPlan planWithoutClip() {
  ModelPlan plan;
  plan.clip = false;
  return plan;
}

/// The program says how a step ends: which ranks meet, and what they decide.
TEST(Commands, EndSteps) {
  using enum gvx::CommandKind;
  using Kinds = std::vector<gvx::CommandKind>;
  const Lowered toy{TestProgram(planWithoutClip()).file()};
  ASSERT_EQ(kindsOf(toy.roles[0].decision()), Kinds{Decide});
  EXPECT_EQ(toy.roles[0].decision().front().number, 1);
  // The run may choose to go ahead.
  EXPECT_EQ(kindsOf(toy.roles[0].norm()),
            (Kinds{AwaitHome, Return, Call, Call, Call}));
  EXPECT_EQ(toy.roles[0].of(0, GRT_TASK_FORWARD).back().kind, TellLoss);
  ASSERT_EQ(kindsOf(toy.roles[0].stepEnd()), Kinds{TellAll});
  EXPECT_EQ(toy.roles[0].stepEnd().front().when, gvx::When::GoesAhead);
  EXPECT_EQ(kindsOf(toy.roles[0].evaluationEnd()), Kinds{Meet});

  Manifest manifest = toy.manifest;
  auto of = [&](uint8_t task, bool hasLoss = false) {
    const EndCommands ends = endCommands(manifest, task, hasLoss);
    Kinds kinds = kindsOf(ends.before);
    for (const gvx::Command &row : ends.behind)
      kinds.push_back(row.kind);
    return kinds;
  };
  manifest.clip = true;
  EXPECT_EQ(of(GRT_TASK_NORM), (Kinds{AwaitHome, Decide}));
  EXPECT_EQ(of(GRT_TASK_UPDATE), Kinds{Return});
  EXPECT_EQ(of(GRT_TASK_FORWARD, true), Kinds());
  EXPECT_EQ(of(gvx::ofStepEnd), Kinds());
  manifest.delay = 1;
  EXPECT_EQ(of(GRT_TASK_NORM), (Kinds{AwaitHome, DecideLate}));
  EXPECT_EQ(of(GRT_TASK_UPDATE), Kinds());
  EXPECT_EQ(of(GRT_TASK_FORWARD, true), Kinds{TellLoss});
  EXPECT_EQ(of(GRT_TASK_FORWARD, false), Kinds());
  EXPECT_EQ(of(gvx::ofStepEnd), Kinds{TellAll});
  manifest.clip = false;
  EXPECT_EQ(of(GRT_TASK_NORM), Kinds{AwaitHome});
  EXPECT_FALSE(needsNorm(manifest));
  manifest.delay = 0;
  manifest.updatesJustInTime = true;
  EXPECT_EQ(endCommands(manifest, GRT_TASK_NORM, false).behind.front().number,
            0);
  EXPECT_EQ(of(GRT_TASK_UPDATE), Kinds());
}

/// Gradients that are late need the parameters from before the update.
TEST(Commands, LateUpdatesKeepParameters) {
  const Lowered late{compiledProgram("late")};
  const Role &role = late.manifest.roles[0];
  const Procedure update = late.roles[0].of(0, GRT_TASK_UPDATE);
  size_t copies = 0;
  for (const gvx::Command &command : update)
    if (command.kind == gvx::CommandKind::Copy) {
      ++copies;
      EXPECT_EQ(late.roles[0].extent(command.to, {}).offset -
                    late.roles[0].extent(command.from, {}).offset,
                late.manifest.versionStride(role));
    }
  EXPECT_EQ(copies, role.chunks[0].layerCount);
}

/// A batch of more micro-batches has more tasks, and the same commands.
TEST(Commands, DoNotGrowWithTheBatch) {
  ModelPlan few, many;
  many.microBatches = 8;
  const Lowered a{TestProgram(few).file()}, b{TestProgram(many).file()};
  for (uint8_t kind : {GRT_TASK_FORWARD, GRT_TASK_BACKWARD})
    EXPECT_EQ(kindsOf(a.roles[0].of(0, kind)), kindsOf(b.roles[0].of(0, kind)));
}

/// A function that runs backward has temporaries where the next layer's input
/// lies: one that writes an output there is refused.
TEST(Commands, OutputsAreOfForwardFunctions) {
  const Lowered toy{TestProgram(ModelPlan()).file()};
  alignas(64) char arena[1];
  Side side;
  side.base = arena;
  Group *const alone[3] = {};
  const LayerBindings rows(
      toy.manifest, toy.manifest.roles[0], 0, 0,
      stepPlaces(toy.manifest, toy.manifest.roles[0], 0, 0, side, side, alone),
      arena);
  EXPECT_GT(rows[LayerPhase::Forward][GRT_REGION_OUTPUT].bytes, 0u);
  for (LayerPhase phase : {LayerPhase::Recompute, LayerPhase::Backward,
                           LayerPhase::Weight, LayerPhase::Update})
    EXPECT_EQ(rows[phase][GRT_REGION_OUTPUT].bytes, 0u);
}

gvx::Tables tablesOf(const ModelPlan &plan) {
  return TestProgram(plan).tables();
}

/// The message with which a program with changed commands is refused.
std::string refusalOf(const std::function<void(gvx::Tables &)> &change) {
  ModelPlan plan;
  plan.changeCommands = change;
  return gvx::loadRefusal(TestProgram(plan).file(), "p");
}

/// Row of the first command of a kind.
size_t firstOf(const gvx::Tables &tables, gvx::CommandKind kind) {
  return size_t(std::ranges::find(tables.commands, kind, &gvx::Command::kind) -
                tables.commands.begin());
}

/// A step that ended otherwise would update what was to be left out, or wait
/// for ranks that do not come.
TEST(Commands, OfEndsAreHeldAgainstTheManifest) {
  using enum gvx::CommandKind;
  const std::string role = "program 'p': commands of role 0, ";
  auto changed = [](gvx::CommandKind kind, auto change) {
    ModelPlan plan = planWithoutClip();
    plan.changeCommands = [&](gvx::Tables &tables) {
      change(tables.commands[firstOf(tables, kind)]);
    };
    return gvx::loadRefusal(TestProgram(plan).file(), "p");
  };
  EXPECT_EQ(changed(Decide, [](auto &row) { row.number = 0; }),
            role + "norm: expected 'decide of the update' as command 5, found "
                   "'decide how to clip'");
  EXPECT_EQ(changed(Decide, [](auto &row) { row.kind = Mark; }),
            role + "norm: expected 'decide of the update' as command 5, found "
                   "'mark'");
  EXPECT_EQ(changed(Meet, [](auto &row) { row.kind = Decide; }),
            role + "end of an evaluation: expected 'meet' as command 0, found "
                   "'decide how to clip'");
  EXPECT_EQ(changed(TellAll, [](auto &row) { row.when = gvx::When::Always; }),
            role + "end of a step: expected 'if ranks go ahead, tell all' as "
                   "command 0, found 'tell all'");
  EXPECT_EQ(changed(Return, [](auto &row) { row.when = gvx::When::Always; }),
            role + "update of chunk 0: expected 'if the update is left out, "
                   "return' as command 0, found 'return'");
  EXPECT_EQ(changed(TellLoss, [](auto &row) { row.when = gvx::When::Always; }),
            role + "forward of chunk 0: expected 'behind the last loss if "
                   "ranks go ahead, tell the loss' as command 7, found 'tell "
                   "the loss'");
  EXPECT_EQ(changed(TellLoss, [](auto &row) { row.kind = Meet; }),
            role + "forward of chunk 0: expected 'behind the last loss if "
                   "ranks go ahead, tell the loss' as command 7, found 'behind "
                   "the last loss if ranks go ahead, meet'");
  auto appended = [](gvx::CommandKind kind, gvx::CommandKind other) {
    ModelPlan plan = planWithoutClip();
    plan.changeCommands = [&](gvx::Tables &tables) {
      const size_t at = firstOf(tables, kind);
      gvx::Command row = tables.commands[at];
      row.kind = other;
      row.when = gvx::When::Always;
      tables.commands.insert(tables.commands.begin() + ptrdiff_t(at) + 1, row);
      for (gvx::Procedure &procedure : tables.procedures) {
        gvx::Range &range = procedure.commands;
        range.count += range.first <= at && at < range.first + range.count;
        range.first += range.first > at;
      }
    };
    return gvx::loadRefusal(TestProgram(plan).file(), "p");
  };
  EXPECT_EQ(appended(Meet, Used),
            role + "end of an evaluation: expected the end as command 1, found "
                   "'used'");
  EXPECT_EQ(appended(TellAll, TellAll),
            role + "end of a step: expected nothing of the end of a step as "
                   "command 1, found 'tell all'");
  // The norm's own.
  EXPECT_EQ(appended(Decide, Return),
            role + "norm: expected nothing of the end of a step as command 5, "
                   "found 'decide of the update'");
  EXPECT_EQ(changed(UseSlot, [](auto &row) { row.kind = Return; }),
            role + "forward of chunk 0: expected nothing of the end of a step "
                   "as command 0, found 'return'");
}

/// All ranks tell their squares in programs whose gradients are late, or none.
TEST(Commands, OfLateEndsAreHeldAgainstTheManifest) {
  using enum gvx::CommandKind;
  auto refusal = [](const char *name, auto change) {
    gvx::Tables tables = grt::test::tablesOf(compiledProgram(name));
    change(tables);
    return gvx::loadRefusal(tables.file(), "p");
  };
  EXPECT_EQ(refusal("late-clip", [](gvx::Tables &) {}), "");
  const std::string role = "program 'p': commands of role 0, ";
  auto kindOf = [&](const char *name, gvx::CommandKind from,
                    gvx::CommandKind to) {
    return refusal(name, [&](gvx::Tables &tables) {
      tables.commands[firstOf(tables, from)].kind = to;
    });
  };
  const std::string decided = kindOf("late-clip", DecideLate, Decide);
  EXPECT_NE(decided.find("norm: expected 'decide how to clip by the batch "
                         "before' as command "),
            std::string::npos)
      << decided;
  EXPECT_EQ(kindOf("late", TellAll, Meet),
            role + "end of a step: expected 'tell all' as command 0, found "
                   "'meet'");
  // Tasks of the norm: one where something clips, else none.
  auto norms = [](int more) {
    return [more](gvx::Tables &tables) {
      const auto norm =
          std::ranges::find(tables.tasks, GRT_TASK_NORM, &grt_task::kind);
      const auto at = uint32_t(norm - tables.tasks.begin());
      if (more > 0)
        tables.tasks.insert(norm, *norm);
      else
        tables.tasks.erase(norm);
      for (gvx::Role &each : tables.roles)
        for (gvx::Range &part : each.parts)
          if (part.first > at)
            part.first += uint32_t(more);
          else if (at < part.first + part.count)
            part.count += uint32_t(more);
    };
  };
  const std::string place = "program 'p': schedule of stage 0, step end: ";
  EXPECT_EQ(refusal("late-clip", norms(-1)),
            place + "expected one norm, found 0");
  EXPECT_EQ(refusal("late-clip", norms(1)),
            "program 'p': its schedule cannot run: role 0 step-end task 3 "
            "'norm': the task was already run");
}

TEST(Commands, NameWhatTheRoleHas) {
  EXPECT_EQ(refusalOf([](gvx::Tables &) {}), "");
  const std::string first = "program 'p': commands of role 0, forward of chunk "
                            "0, command ";
  EXPECT_EQ(refusalOf([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, gvx::CommandKind::Call)].layer =
                  3;
            }),
            first + "2: expected a layer from 0 to 2, found 3");
  EXPECT_EQ(refusalOf([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, gvx::CommandKind::Call)].phase =
                  LayerPhase::Backward;
            }),
            first + "2: expected a function of the layer for this phase, which "
                    "the task has, found phase 2");
  const std::string outside = refusalOf(
      [](gvx::Tables &tables) { tables.places[0].offset = uint64_t(1) << 40; });
  EXPECT_NE(outside.find("1: expected a place that lives in bytes 0 to "),
            std::string::npos)
      << outside;
  // Far away by its step: no sum of them overflows.
  EXPECT_NE(refusalOf([](gvx::Tables &tables) {
              tables.places[0].perSlot = INT64_MIN;
            }),
            "");
}

TEST(Commands, EveryKindOfTaskHasItsProcedure) {
  EXPECT_EQ(
      refusalOf([](gvx::Tables &tables) { tables.procedures[0].chunk = 7; }),
      "program 'p': commands of role 0: a procedure of chunk 7, task 0, "
      "which the role does not have");
  EXPECT_EQ(refusalOf([](gvx::Tables &tables) {
              tables.procedures[0].task = GRT_TASK_BACKWARD_WEIGHT;
            }),
            "program 'p': commands of role 0, backward-weight of chunk 0, "
            "command 2: expected a function of the layer for this phase, which "
            "the task has, found phase 0");
  const std::string empty = refusalOf([](gvx::Tables &tables) {
    tables.commands.clear();
    tables.places.clear();
    tables.procedures.clear();
    tables.roles[0].procedures = tables.roles[0].places = {};
  });
  EXPECT_EQ(empty, "program 'p': commands of role 0: expected a procedure of "
                   "'norm', found 0");
}

/// The embedding's forward function has counts that the host reads.
ModelPlan planWithCounts() {
  ModelPlan plan;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"tp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  plan.movesBlocks = true;
  return plan;
}

TEST(Commands, AreMarkedWhereTheHostHasAPart) {
  const gvx::Tables toy = tablesOf(ModelPlan());
  for (const gvx::Procedure &row : toy.procedures)
    EXPECT_EQ(row.needsHost, row.task == gvx::ofEvaluation) << int(row.task);
  const gvx::Tables counts = tablesOf(planWithCounts());
  for (const gvx::Procedure &row : counts.procedures)
    EXPECT_EQ(row.needsHost,
              row.task == GRT_TASK_FORWARD || row.task == gvx::ofEvaluation)
        << int(row.task);
  EXPECT_EQ(refusalOf([](gvx::Tables &tables) {
              tables.procedures[0].needsHost = 1;
            }),
            "program 'p': commands of role 0, forward of chunk 0: expected no "
            "mark that it needs the host");
  ModelPlan plan = planWithCounts();
  plan.changeCommands = [](gvx::Tables &tables) {
    tables.procedures[0].needsHost = 0;
  };
  EXPECT_EQ(gvx::loadRefusal(TestProgram(plan).file(), "p"),
            "program 'p': commands of role 0, forward of chunk 0: expected the "
            "mark that it needs the host, as the host reads counts of its "
            "all-to-alls");
}

TEST(Commands, SayHowManyGraphsAStepIs) {
  auto captured = [](const Lowered &program) {
    const StepCapture step = captureOf(program.manifest, program.program);
    return std::to_string(step.graphs) + " " + step.why;
  };
  ModelPlan plan;
  EXPECT_EQ(captured(Lowered{TestProgram(plan).file()}), "1 ");
  plan.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  EXPECT_EQ(captured(Lowered{TestProgram(plan).file()}),
            "2 there is no workspace to gather results in");
  plan.workspace = 64;
  EXPECT_EQ(captured(Lowered{TestProgram(plan).file()}), "1 ");
  EXPECT_EQ(captured(Lowered{TestProgram(planWithCounts()).file()}),
            "0 the host reads counts of its all-to-alls");
  for (const char *late : {"late", "late-clip"})
    EXPECT_EQ(captured(Lowered{compiledProgram(late)}), "0 gradients are late");
}

/// A head that borrows the embedding's table, in a stage of its own.
ModelPlan planWithTie() {
  ModelPlan plan;
  plan.tied = true;
  plan.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  return plan;
}

TEST(Commands, SumAndGiveTies) {
  const Lowered tied{TestProgram(planWithTie()).file()};
  using enum gvx::CommandKind;
  for (const Procedures &role : tied.roles) {
    EXPECT_EQ(kindsOf(role.ofTies(GRT_TASK_TIE_REDUCE)),
              (std::vector<gvx::CommandKind>{AwaitHome, SumTied, Used}));
    EXPECT_EQ(kindsOf(role.ofTies(GRT_TASK_TIE_BROADCAST)),
              (std::vector<gvx::CommandKind>{AwaitHome, GiveTied, Used}));
    EXPECT_TRUE(role.ofTies(gvx::ofTaken).empty());
  }
  const Lowered toy{TestProgram(ModelPlan()).file()};
  EXPECT_TRUE(toy.roles[0].ofTies(GRT_TASK_TIE_REDUCE).empty());
}

/// Under a schedule that goes on ends of ties leave messages on the host; on
/// devices they meet.
TEST(Commands, LeaveTiesWhereBatchesGoOn) {
  const Lowered tied{TestProgram(planWithTie()).file()};
  Manifest late = tied.manifest;
  late.delay = 1;
  using enum gvx::CommandKind;
  auto kinds = [&](size_t role, uint8_t task, gvx::When without) {
    std::vector<gvx::CommandKind> kinds;
    for (const gvx::Command &row : tieCommands(late, role, task))
      if (row.when != without)
        kinds.push_back(row.kind);
    return kinds;
  };
  using Kinds = std::vector<gvx::CommandKind>;
  for (size_t role : {0, 1}) {
    const bool owns = role == 0;
    auto onHost = [&](uint8_t task) {
      return kinds(role, task, gvx::When::OnDevice);
    };
    EXPECT_EQ(onHost(GRT_TASK_TIE_REDUCE),
              owns ? (Kinds{AwaitHome, TakeTied, Used})
                   : (Kinds{AwaitHome, AwaitTied, KeepTied, LeaveTied, Used}));
    EXPECT_EQ(onHost(GRT_TASK_TIE_BROADCAST),
              (Kinds{AwaitHome, owns ? LeaveTied : ExpectTied, Used}));
    EXPECT_EQ(onHost(GRT_TASK_UPDATE), owns ? Kinds{AwaitTied} : Kinds());
    EXPECT_EQ(onHost(gvx::ofTaken), owns ? Kinds() : Kinds{TakeTied});
    EXPECT_EQ(kinds(role, GRT_TASK_TIE_REDUCE, gvx::When::OnHost),
              (Kinds{AwaitHome, SumTied, Used}));
    EXPECT_EQ(kinds(role, GRT_TASK_UPDATE, gvx::When::OnHost), Kinds());
  }
}

/// Each role does with its ties what is expected of it, or is refused.
TEST(Commands, OfTiesAreHeldAgainstTheManifest) {
  auto refusal = [](const std::function<void(gvx::Tables &)> &change) {
    ModelPlan plan = planWithTie();
    plan.changeCommands = change;
    return gvx::loadRefusal(TestProgram(plan).file(), "p");
  };
  EXPECT_EQ(refusal([](gvx::Tables &) {}), "");
  using enum gvx::CommandKind;
  EXPECT_EQ(refusal([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, SumTied)].kind = GiveTied;
            }),
            "program 'p': commands of role 0, tie-reduce: expected 'sum tie 0' "
            "as command 1, found 'give tie 0'");
  EXPECT_EQ(refusal([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, GiveTied)].number = 1;
            }),
            "program 'p': commands of role 0, tie-broadcast: expected 'give "
            "tie 0' as command 1, found 'give tie 1'");
  EXPECT_EQ(refusal([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, GiveTied)].when =
                  gvx::When::OnDevice;
            }),
            "program 'p': commands of role 0, tie-broadcast: expected 'give "
            "tie 0' as command 1, found 'on a device, give tie 0'");
  // Outside of what is of ties.
  EXPECT_EQ(refusal([](gvx::Tables &tables) {
              tables.commands[firstOf(tables, UseSlot)].kind = TakeTied;
            }),
            "program 'p': commands of role 0, forward of chunk 0: expected "
            "nothing of ties as command 0, found 'take tie 0'");
  // A task of another kind takes the procedure's place.
  EXPECT_EQ(refusal([](gvx::Tables &tables) {
              std::ranges::find(tables.procedures, GRT_TASK_TIE_REDUCE,
                                &gvx::Procedure::task)
                  ->task = gvx::ofTaken;
            }),
            "program 'p': commands of role 0, values of ties: expected the end "
            "as command 0, found 'await home'");
}

/// What is made of equal tasks is equal, and has no rows that nobody names.
TEST(Commands, AreMadeOnce) {
  gvx::Tables tables = tablesOf(ModelPlan());
  const std::string before = tables.file();
  EXPECT_TRUE(gvx::lowerTasks(tables));
  EXPECT_EQ(tables.file(), before);
  tables.manifest = "{}";
  EXPECT_FALSE(gvx::lowerTasks(tables));
  EXPECT_TRUE(tables.commands.empty() && tables.places.empty());
  EXPECT_EQ(tables.read, nullptr);
}

/// The compiler says what waits for sums of gradients, and it is a command in
/// front of the layer's functions.
TEST(Commands, WaitForSumsWhereTheCompilerSays) {
  gvx::Tables tables = tablesOf(ModelPlan());
  const size_t none = tables.commands.size();
  EXPECT_EQ(firstOf(tables, gvx::CommandKind::AwaitSum), none);
  gvx::LayerOrder waits;
  waits.backwardAwaitsSums = true;
  tables.orders = {{{}, waits}};
  ASSERT_TRUE(gvx::lowerTasks(tables));
  ASSERT_EQ(tables.commands.size(), none + 1);
  const size_t at = firstOf(tables, gvx::CommandKind::AwaitSum);
  const auto next = std::ranges::find(
      tables.commands.begin() + ptrdiff_t(at), tables.commands.end(),
      gvx::CommandKind::Call, &gvx::Command::kind);
  ASSERT_NE(next, tables.commands.end());
  EXPECT_EQ(next->layer, 1);
  EXPECT_NE(next->phase, LayerPhase::Forward);
}

/// A manifest that was read for the commands is read again where the file has
/// other text, and everything else of the file is checked either way.
TEST(Commands, LendTheirManifestToTheSameTextOnly) {
  gvx::Tables made = tablesOf(ModelPlan());
  ASSERT_TRUE(gvx::lowerTasks(made));
  auto refusalOf = [&](const gvx::Tables &tables) {
    return gvx::loadRefusal(tables.file(), "p", gvx::Digest::Compared, &made);
  };
  EXPECT_EQ(refusalOf(made), "");
  const auto expectEqual = [&](const gvx::Tables &tables) {
    const std::string refusal = gvx::loadRefusal(tables.file(), "p");
    EXPECT_NE(refusal, "");
    EXPECT_EQ(refusalOf(tables), refusal);
  };
  gvx::Tables other = made;
  other.manifest = "{}";
  expectEqual(other);
  other = made;
  other.tasks[0].chunk = 7;
  expectEqual(other);
  other = made;
  other.commands[firstOf(other, gvx::CommandKind::Call)].layer = 3;
  expectEqual(other);
}

} // namespace
