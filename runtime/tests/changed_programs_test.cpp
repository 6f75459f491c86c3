//===- changed_programs_test.cpp - What is proven is what devices need ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row of a program is changed: an event, an offset, an integer, a life.
// Either no session is made of it, or the model of a device, which looks at
// every operation of a step (--check-streams), finds nothing either.
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "recording.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

using namespace grt;
using namespace grt::test;

namespace {

/// Parameters and optimizer states are sharded, and a stage has another one
/// behind it: all streams are used.
ModelPlan plan() {
  ModelPlan plan;
  plan.streams = true;
  plan.tied = true;
  plan.layers[0].levels = plan.layers[1].levels = {{"sdp", 2}};
  plan.layers[2].levels = {{"tp", 2}};
  plan.layers[2].ckpt = true;
  plan.stages = {{{0, 1}, {0, 1}}, {{2}, {2, 3}}};
  return plan;
}

struct Verdict {
  std::string refusal; ///< of a program that is loaded; "": it is not refused
  std::string found;   ///< of the model, in a step
};

Verdict judgeOf(const ModelPlan &changed) {
  const TestProgram code(changed);
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "p", program);
  std::unique_ptr<Session> session;
  SessionOptions options;
  options.backend = recording::backendAround(referenceBackend());
  if (status)
    status = Session::create(program, options, session);
  if (!status)
    return {status.message(), ""};
  std::vector<int32_t> values(size_t(changed.batch * changed.seqLen), 1);
  EXPECT_TRUE(session->setBatch(values, values));
  StepResult result;
  status = session->step(result);
  if (status)
    status = session->finish();
  return {"", status.message()};
}

Verdict judge(const std::function<void(gvx::Tables &)> &change) {
  ModelPlan changed = plan();
  changed.changeTables = change;
  return judgeOf(changed);
}

/// A change of commands, when tasks have theirs.
Verdict judgeCommands(const std::function<void(gvx::Tables &)> &change) {
  ModelPlan changed = plan();
  changed.changeCommands = change;
  return judgeOf(changed);
}

/// The number of refused changes of a kind, and of all of it. None of the
/// others may be one that the model finds.
struct Count {
  int refused = 0, all = 0;

  void add(const Verdict &verdict, const std::string &change) {
    ++all;
    refused += !verdict.refusal.empty();
    EXPECT_EQ(verdict.found, "") << change;
  }
};

gvx::Tables unchanged() { return TestProgram(plan()).tables(); }

TEST(ChangedPrograms, NothingIsFoundInWhatIsNotChanged) {
  const Verdict verdict = judge(nullptr);
  EXPECT_EQ(verdict.refusal, "");
  EXPECT_EQ(verdict.found, "");
}

/// Events that are recorded, or waited for, on a stream where that says
/// nothing.
TEST(ChangedPrograms, EventsThatOrderNothing) {
  Count count;
  for (size_t i = 0; i < unchanged().events.size(); ++i)
    count.add(judge([&](gvx::Tables &tables) {
                tables.events[i].stream = GRT_STREAM_TRANSFER;
              }),
              "event row " + std::to_string(i));
  // Some waits stand beside others that say the same.
  EXPECT_GE(count.refused, count.all * 3 / 4) << count.all;
}

TEST(ChangedPrograms, OffsetsOfBuffers) {
  Count count;
  for (size_t i = 0; i < unchanged().buffers.size(); ++i)
    count.add(judge([&](gvx::Tables &tables) {
                tables.buffers[i].offset += GRT_ALIGNMENT;
              }),
              "buffer row " + std::to_string(i));
  // A change in the middle of a region that others fill stays unnoticed.
  EXPECT_GE(count.refused, count.all / 2) << count.all;
}

TEST(ChangedPrograms, LivesThatDoNotBeginOrEnd) {
  Count count;
  const gvx::Tables before = unchanged();
  for (size_t i = 0; i < before.calls.size(); ++i) {
    const gvx::CallKind kind = before.calls[i].kind;
    if (kind != gvx::CallKind::BeginLife && kind != gvx::CallKind::EndLife)
      continue;
    count.add(judge([&](gvx::Tables &tables) {
                tables.calls[i].kind = kind == gvx::CallKind::BeginLife
                                           ? gvx::CallKind::EndLife
                                           : gvx::CallKind::BeginLife;
              }),
              "call row " + std::to_string(i));
  }
  EXPECT_GE(count.refused, count.all * 3 / 4) << count.all;
}

TEST(ChangedPrograms, TasksInAnotherOrder) {
  Count count;
  const gvx::Tables before = unchanged();
  for (const gvx::Role &role : before.roles)
    for (const gvx::Range &part : role.parts)
      for (uint32_t i = 0; i + 1 < part.count; ++i)
        count.add(judge([&](gvx::Tables &tables) {
                    std::swap(tables.tasks[part.first + i],
                              tables.tasks[part.first + i + 1]);
                  }),
                  "task rows from " + std::to_string(part.first + i));
  EXPECT_GE(count.refused, count.all / 2) << count.all;
}

/// A command that is left out, in the row of one that does nothing here.
TEST(ChangedPrograms, CommandsThatAreLeftOut) {
  Count count;
  const gvx::Tables before = unchanged();
  for (size_t i = 0; i < before.commands.size(); ++i) {
    const gvx::CommandKind kind = before.commands[i].kind;
    // Places are named in their order: what names none takes its row.
    if (before.commands[i].to || before.commands[i].from)
      continue;
    count.add(judgeCommands([&](gvx::Tables &tables) {
                tables.commands[i].kind = gvx::CommandKind::Mark;
              }),
              "command row " + std::to_string(i) + " of kind " +
                  std::to_string(int(kind)));
  }
  EXPECT_GE(count.refused, count.all * 3 / 4) << count.all;
}

/// A place that is larger reaches into what lies behind it.
TEST(ChangedPrograms, PlacesOfOtherSizes) {
  Count count;
  const gvx::Tables before = unchanged();
  for (const gvx::Role &role : before.roles)
    for (uint32_t p = 0; p < role.procedures.count; ++p) {
      const gvx::Range range =
          before.procedures[role.procedures.first + p].commands;
      for (uint32_t i = range.first; i < range.first + range.count; ++i) {
        if (before.commands[i].kind != gvx::CommandKind::Begin)
          continue;
        const uint32_t place = role.places.first + before.commands[i].to - 1;
        count.add(judgeCommands([&](gvx::Tables &tables) {
                    tables.places[place].bytes += GRT_ALIGNMENT;
                  }),
                  "place row " + std::to_string(place));
        count.add(judgeCommands([&](gvx::Tables &tables) {
                    tables.commands[i].when = gvx::When::First;
                  }),
                  "command row " + std::to_string(i));
      }
    }
  EXPECT_GT(count.all, 0);
  for (const gvx::Role &role : before.roles)
    for (uint32_t m = 0; m < role.messages.count; ++m) {
      const gvx::Message &message = before.messages[role.messages.first + m];
      const uint32_t place = role.places.first + message.place - 1;
      for (int change : {-GRT_ALIGNMENT, GRT_ALIGNMENT})
        count.add(judgeCommands([&](gvx::Tables &tables) {
                    tables.places[place].bytes += uint64_t(change);
                  }),
                  "place row " + std::to_string(place));
    }
  EXPECT_GT(count.all, 0);
  EXPECT_EQ(count.refused, count.all);
}

TEST(ChangedPrograms, CommandsInAnotherOrder) {
  Count count;
  const gvx::Tables before = unchanged();
  for (const gvx::Procedure &procedure : before.procedures)
    for (uint32_t i = 0; i + 1 < procedure.commands.count; ++i) {
      const uint32_t row = procedure.commands.first + i;
      count.add(judgeCommands([&](gvx::Tables &tables) {
                  std::swap(tables.commands[row], tables.commands[row + 1]);
                }),
                "command rows from " + std::to_string(row));
    }
  EXPECT_GE(count.refused, count.all / 3) << count.all;
}

TEST(ChangedPrograms, CommandsOfAnotherLayerOrPhase) {
  Count count;
  const gvx::Tables before = unchanged();
  for (size_t i = 0; i < before.commands.size(); ++i) {
    if (before.commands[i].layer < 0)
      continue;
    for (int change : {-1, 1})
      count.add(judgeCommands([&](gvx::Tables &tables) {
                  tables.commands[i].layer += change;
                }),
                "layer of command row " + std::to_string(i));
    if (before.commands[i].kind == gvx::CommandKind::Call)
      count.add(judgeCommands([&](gvx::Tables &tables) {
                  gvx::Command &row = tables.commands[i];
                  row.phase = LayerPhase((int(row.phase) + 1) % 6);
                }),
                "phase of command row " + std::to_string(i));
  }
  // Layers that are alike may change places where their order says nothing.
  EXPECT_GE(count.refused, count.all * 9 / 10) << count.all;
}

TEST(ChangedPrograms, PlacesOfCommands) {
  Count count;
  const gvx::Tables before = unchanged();
  for (size_t i = 0; i < before.places.size(); ++i) {
    const std::string row = "place row " + std::to_string(i);
    count.add(judgeCommands([&](gvx::Tables &tables) {
                tables.places[i].offset += GRT_ALIGNMENT;
              }),
              row + ", offset");
    count.add(judgeCommands([&](gvx::Tables &tables) {
                tables.places[i].bytes -= sizeof(double);
              }),
              row + ", bytes");
    count.add(judgeCommands([&](gvx::Tables &tables) {
                tables.places[i].perSlot += GRT_ALIGNMENT;
              }),
              row + ", step");
  }
  EXPECT_GE(count.refused, count.all * 9 / 10) << count.all;
}

/// The head reads the input of the layer in front of it, which lives as well
/// and is as large as its output.
TEST(ChangedPrograms, AnInputThatIsAnotherTensor) {
  auto judgeInput = [](size_t holder) {
    ModelPlan changed;
    changed.changeTables = [&](gvx::Tables &tables) {
      Json m = Json::parse(tables.manifest);
      Json &layers = m["roles"][0]["layers"], &head = layers[2];
      const Json bytes = head["input-bytes"];
      head["front-bytes"] = bytes;
      head["behind-bytes"] = 0;
      head["inputs"] = {{layers[holder]["stash"], 0, bytes}};
      tables.manifest = m.dump();
    };
    return judgeOf(changed);
  };
  EXPECT_EQ(judgeInput(2).refusal, "");
  const std::string refusal = judgeInput(1).refusal;
  EXPECT_NE(refusal.find("layer 'layer2': input 0: expected a tensor that "
                         "lives in front of the layer, "),
            std::string::npos)
      << refusal;
}

//===----------------------------------------------------------------------===//
// Sums of gradients behind passes
//===----------------------------------------------------------------------===//

/// The sums of the head share ranks with the exchange of gradients in front of
/// the layer before it, or with the gather of that layer's parameters. (The
/// embedding's backward function needs no parameters.)
ModelPlan unlikePlan(bool reshardWaits) {
  ModelPlan plan;
  plan.streams = plan.alwaysSumsBehind = true;
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  plan.layers[2].levels = {{"dp", 4}};
  if (reshardWaits) {
    plan.layers[1].levels = {{"dp", 4}};
    plan.layers[1].order.reshardAwaitsSums = true;
    plan.layers[0].levels = {{"tp", 2}, {"dp", 2}};
  } else {
    plan.layers[1].levels = {{"sdp", 2}, {"dp", 2}};
    plan.layers[1].order.backwardAwaitsSums = true;
    plan.layers[0].levels = {{"sdp", 4}};
  }
  return plan;
}

const char *waitedFor = "to be waited for before it";

TEST(ChangedPrograms, NothingIsFoundWhereAllThatMustAwaitsSums) {
  for (bool reshardWaits : {false, true}) {
    const Verdict verdict = judgeOf(unlikePlan(reshardWaits));
    EXPECT_EQ(verdict.refusal, "");
    EXPECT_EQ(verdict.found, "");
  }
}

/// The proof goes by the levels of layers, not by what the compiler was told.
TEST(ChangedPrograms, NothingAwaitsSums) {
  for (bool reshardWaits : {false, true}) {
    ModelPlan changed = unlikePlan(reshardWaits);
    changed.layers[1].order = {};
    const Verdict verdict = judgeOf(changed);
    EXPECT_NE(verdict.refusal.find(waitedFor), std::string::npos)
        << verdict.refusal << reshardWaits;
  }
}

/// Rows of commands of a kind.
std::vector<size_t> rowsOf(const gvx::Tables &tables, gvx::CommandKind kind) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < tables.commands.size(); ++i)
    if (tables.commands[i].kind == kind)
      rows.push_back(i);
  return rows;
}

TEST(ChangedPrograms, WaitsForSumsThatAreLeftOutMovedOrOnAnotherStream) {
  for (bool reshardWaits : {false, true}) {
    const ModelPlan plan = unlikePlan(reshardWaits);
    const gvx::Tables before = TestProgram(plan).tables();
    const std::vector<size_t> rows = rowsOf(before, gvx::CommandKind::AwaitSum);
    ASSERT_EQ(rows.size(), 1u);
    for (size_t row : rows) {
      auto expectRefused = [&](const std::function<void(gvx::Tables &)> &change,
                               const std::string &what) {
        ModelPlan changed = plan;
        changed.changeCommands = change;
        const Verdict verdict = judgeOf(changed);
        EXPECT_NE(verdict.refusal.find(waitedFor), std::string::npos)
            << what << " of row " << row << ": " << verdict.refusal;
      };
      expectRefused(
          [&](gvx::Tables &tables) {
            tables.commands[row].kind = gvx::CommandKind::Mark;
          },
          "a mark instead");
      expectRefused(
          [&](gvx::Tables &tables) {
            tables.commands[row].stream = GRT_STREAM_TRANSFER;
          },
          "another stream");
      // The command moves behind the call or the exchange that it stands
      // before.
      size_t user = row;
      while (before.commands[user].kind != gvx::CommandKind::Call &&
             before.commands[user].kind != gvx::CommandKind::Reshard)
        ++user;
      expectRefused(
          [&](gvx::Tables &tables) {
            std::rotate(tables.commands.begin() + ptrdiff_t(row),
                        tables.commands.begin() + ptrdiff_t(row) + 1,
                        tables.commands.begin() + ptrdiff_t(user) + 1);
          },
          "behind its user");
    }
  }
}

/// A sum that begins earlier than its layer's exchange would run beside it.
TEST(ChangedPrograms, SumsThatBeginBeforeTheExchangeOfTheirLayer) {
  const ModelPlan plan = unlikePlan(/*reshardWaits=*/true);
  const gvx::Tables before = TestProgram(plan).tables();
  const std::vector<size_t> exchanges =
      rowsOf(before, gvx::CommandKind::Reshard);
  ASSERT_EQ(exchanges.size(), 2u) << "one forward and one backward";
  const size_t reshard = exchanges.back();
  size_t sum = reshard;
  while (before.commands[sum].kind != gvx::CommandKind::Sum)
    ++sum;
  ASSERT_EQ(before.commands[sum].layer, 1);
  ModelPlan changed = plan;
  changed.changeCommands = [&](gvx::Tables &tables) {
    auto at = tables.commands.begin();
    std::rotate(at + ptrdiff_t(reshard), at + ptrdiff_t(sum),
                at + ptrdiff_t(sum) + 1);
  };
  const Verdict verdict = judgeOf(changed);
  EXPECT_NE(verdict.refusal.find(waitedFor), std::string::npos)
      << verdict.refusal;
}

/// Waiting twice is no fault.
TEST(ChangedPrograms, WaitsForSumsTwice) {
  const ModelPlan plan = unlikePlan(/*reshardWaits=*/true);
  const gvx::Tables before = TestProgram(plan).tables();
  for (size_t row : rowsOf(before, gvx::CommandKind::AwaitSum)) {
    ModelPlan changed = plan;
    changed.changeCommands = [&](gvx::Tables &tables) {
      tables.commands.insert(tables.commands.begin() + ptrdiff_t(row),
                             tables.commands[row]);
      for (gvx::Procedure &procedure : tables.procedures) {
        gvx::Range &commands = procedure.commands;
        if (commands.first > row)
          ++commands.first;
        else if (row < commands.first + commands.count)
          ++commands.count;
      }
    };
    const Verdict verdict = judgeOf(changed);
    EXPECT_EQ(verdict.refusal, "");
    EXPECT_EQ(verdict.found, "");
  }
}

} // namespace
