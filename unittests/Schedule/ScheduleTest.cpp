//===- ScheduleTest.cpp - Task orders -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/TaskProgram.h"
#include "galvatron/Strategy/DecisionTree.h"

#include "gtest/gtest.h"

#include <algorithm>

using namespace galvatron;

namespace {

std::vector<std::string> steadyOf(const TaskProgram &program, size_t role) {
  std::vector<std::string> lines;
  for (const Task &task : program.roles[role].part(SchedulePart::Steady))
    lines.push_back(task.str());
  return lines;
}

TEST(Schedule, one_stage_alternates) {
  EXPECT_EQ(steadyOf(make1F1B(1, 2), 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "backward mb 0 slot 0",
                "forward mb 1 slot 0", "backward mb 1 slot 0"}));
}

TEST(Schedule, two_stages_group_opposite_transfers) {
  TaskProgram program = make1F1B(2, 3);
  EXPECT_EQ(steadyOf(program, 0),
            (std::vector<std::string>{
                "forward mb 0 slot 0", "transfer send-activation mb 0",
                "forward mb 1 slot 1",
                "transfer send-activation mb 1, recv-gradient mb 0",
                "backward mb 0 slot 0", "forward mb 2 slot 0",
                "transfer send-activation mb 2, recv-gradient mb 1",
                "backward mb 1 slot 1", "transfer recv-gradient mb 2",
                "backward mb 2 slot 0"}));
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "backward mb 0 slot 0",
                "transfer send-gradient mb 0, recv-activation mb 1",
                "forward mb 1 slot 0", "backward mb 1 slot 0",
                "transfer send-gradient mb 1, recv-activation mb 2",
                "forward mb 2 slot 0", "backward mb 2 slot 0",
                "transfer send-gradient mb 2"}));
}

TEST(Schedule, gpipe_runs_all_forwards_first) {
  EXPECT_EQ(steadyOf(makeGPipe(2, 2), 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "transfer recv-activation mb 1", "forward mb 1 slot 1",
                "backward mb 0 slot 0", "transfer send-gradient mb 0",
                "backward mb 1 slot 1", "transfer send-gradient mb 1"}));
}

/// Never more micro-batches in flight than there are slots, and that many once.
TEST(Schedule, slots_are_what_is_in_flight) {
  for (int64_t stages = 1; stages <= 8; ++stages)
    for (int64_t microBatches = 1; microBatches <= 16; ++microBatches)
      for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        TaskProgram program = makeSchedule(kind, stages, microBatches);
        for (int64_t s = 0; s < stages; ++s) {
          EXPECT_EQ(program.roles[s].slots,
                    inFlightMicroBatches(kind, s, stages, microBatches));
          int64_t alive = 0, most = 0;
          for (const Task &task : program.roles[s].part(SchedulePart::Steady)) {
            alive += task.kind == TaskKind::Forward;
            alive -= task.kind == TaskKind::Backward;
            most = std::max(most, alive);
          }
          EXPECT_EQ(alive, 0);
          EXPECT_EQ(most, program.roles[s].slots);
        }
      }
}

TEST(Schedule, evaluation_is_forward_only) {
  TaskProgram program = make1F1B(3, 4);
  for (const RoleProgram &role : program.roles)
    for (const Task &task : role.part(SchedulePart::Evaluate)) {
      EXPECT_NE(task.kind, TaskKind::Backward);
      EXPECT_EQ(task.flags & (SendGradient | RecvGradient), 0);
    }
}

TEST(Schedule, step_end_has_ties_where_they_are) {
  TaskProgram program = make1F1B(3, 2, {{0, 2}});
  auto kinds = [&](size_t role) {
    std::vector<TaskKind> list;
    for (const Task &task : program.roles[role].part(SchedulePart::StepEnd))
      list.push_back(task.kind);
    return list;
  };
  EXPECT_EQ(kinds(0),
            (std::vector<TaskKind>{TaskKind::SyncGradients, TaskKind::TieReduce,
                                   TaskKind::Norm, TaskKind::Update,
                                   TaskKind::TieBroadcast}));
  EXPECT_EQ(kinds(1),
            (std::vector<TaskKind>{TaskKind::SyncGradients, TaskKind::Norm,
                                   TaskKind::Update}));
  EXPECT_EQ(kinds(0), kinds(2));
}

TEST(Schedule, gradients_are_reduced_behind_the_last_backward) {
  TaskProgram program = make1F1B(2, 2);
  setSyncBehind(program.roles[1]);
  EXPECT_EQ(steadyOf(program, 1),
            (std::vector<std::string>{
                "transfer recv-activation mb 0", "forward mb 0 slot 0",
                "backward mb 0 slot 0",
                "transfer send-gradient mb 0, recv-activation mb 1",
                "forward mb 1 slot 0", "backward mb 1 slot 0 sync-behind",
                "transfer send-gradient mb 1"}));
  EXPECT_EQ(steadyOf(program, 0), steadyOf(make1F1B(2, 2), 0));
}

std::string syncBehindReason(std::initializer_list<const char *> layers) {
  std::vector<Strategy> strategies;
  for (const char *text : layers)
    strategies.push_back(llvm::cantFail(Strategy::parse(text)));
  return whyNotSyncBehind(strategies);
}

/// Two collectives that share two or more ranks must not run side by side.
TEST(Schedule, gradients_are_reduced_behind_what_shares_one_rank) {
  for (const char *one : {"dp4", "dp2.tp2", "tp2.dp2", "sdp2.dp2", "dp2.sdp2"})
    EXPECT_EQ(syncBehindReason({one, one, one}), "") << one;
  // The layers below run beside the all-reduce, those above are done.
  EXPECT_EQ(syncBehindReason({"sdp4", "dp4"}),
            "the all-reduce of layer 1 (dp4) would run beside sharded "
            "parameters of layer 0 (sdp4)");
  EXPECT_EQ(syncBehindReason({"dp4", "sdp4"}), "");
  // Ranks 0 and 2 in both: dp2.tp2 reduces {0, 2}, tp2.dp2 exchanges {0, 2}.
  // They hold different samples as well.
  EXPECT_EQ(syncBehindReason({"tp2.dp2", "dp2.tp2"}),
            "the all-reduce of layer 1 (dp2.tp2) would run beside the reshard "
            "of layer 0 (tp2.dp2)");
  // The same samples, cut by sharding instead of copying.
  EXPECT_EQ(syncBehindReason({"sdp2.tp2", "dp2.tp2"}),
            "the all-reduce of layer 1 (dp2.tp2) would run beside sharded "
            "parameters of layer 0 (sdp2.tp2)");
  // Nothing is reduced above the reshard.
  EXPECT_EQ(syncBehindReason({"dp4", "tp4"}), "");
  EXPECT_NE(syncBehindReason({"tp4", "dp4", "dp4"}), "");
}

TEST(Schedule, parameters_are_gathered_beside_what_holds_the_same_samples) {
  auto reason = [](const char *beside, const char *layer) {
    return whyNotGatherAhead(llvm::cantFail(Strategy::parse(beside)),
                             llvm::cantFail(Strategy::parse(layer)));
  };
  for (auto [beside, layer] : {std::pair("sdp4", "sdp4"),
                               {"dp4", "sdp4"},
                               {"dp2.tp2", "sdp2.tp2"},
                               {"tp2.sdp2", "tp2.sdp2.ckpt"},
                               {"dp2.sdp2", "sdp2.dp2"}})
    EXPECT_EQ(reason(beside, layer), "") << beside << " " << layer;
  EXPECT_EQ(reason("sdp4", "dp4"), "nothing of it (dp4) is sharded");
  EXPECT_EQ(reason("tp2.sdp2", "sdp4"),
            "the gather of sdp4 would run beside the reshard from tp2.sdp2");

  // No collective of the neighbour on `compute` shares two ranks with it.
  for (const Strategy &beside : enumerateStrategies(8, {}))
    for (const Strategy &layer : enumerateStrategies(8, {})) {
      if (!whyNotGatherAhead(beside, layer).empty())
        continue;
      for (int64_t rank = 0; rank < 8; ++rank) {
        auto gathered = layer.group(rank, Paradigm::SDP);
        auto exchanged = beside.group(rank, Paradigm::TP);
        EXPECT_EQ(llvm::count_if(gathered,
                                 [&](int64_t member) {
                                   return llvm::is_contained(exchanged, member);
                                 }),
                  1)
            << beside.str() << " " << layer.str();
      }
    }

  std::vector<Strategy> layers;
  for (const char *text : {"sdp4", "dp4", "sdp4.ckpt", "tp4"})
    layers.push_back(llvm::cantFail(Strategy::parse(text)));
  std::string ahead;
  for (GatherAhead at : gathersAhead(layers))
    ahead += (at.forward ? "f" : "-") + std::string(at.backward ? "b " : "- ");
  EXPECT_EQ(ahead, "-b -- f- -- ");
}

} // namespace
