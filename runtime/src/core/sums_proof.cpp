//===- sums_proof.cpp - The order of sums behind passes -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of gradients that begin behind backward passes run on a stream of their
// own, one behind the other. What is put on another stream afterwards runs
// beside those that the stream does not come behind; where the two share two or
// more ranks, these would take part in them in no one order, and could wait for
// each other for ever.
//
//===----------------------------------------------------------------------===//

#include "core/sums_proof.h"
#include "base/error.h"
#include "core/commands.h"
#include "core/program_text.h"
#include "grt/rank_groups.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace grt {
namespace {

using gvx::CommandKind;
using gvx::When;

class SumsProof {
public:
  SumsProof(const Manifest &manifest, const ProgramFile &program, size_t number)
      : program(program), role(manifest.roles[number]),
        rows(program.ofRole(number)), schedule(program.schedules()[number]) {}

  std::string run() {
    for (const grt_task_list &list : schedule.parts) {
      // At the end of a step everything has been waited for.
      forget();
      for (uint64_t i = 0; i < list.count && wrong.empty(); ++i)
        follow(list.tasks[i]);
    }
    return wrong;
  }

private:
  /// Levels of ranks whose group does a collective.
  using Levels = std::vector<RankLevel>;

  void forget() {
    begun = 0;
    behind.fill(0);
    last.clear();
    followed.clear();
  }

  /// How many sums a stream comes behind; their own comes behind all.
  uint64_t behindOf(uint32_t stream) const {
    return stream == GRT_STREAM_GRADIENT ? begun : behind[stream];
  }

  static bool isPass(uint8_t task) {
    return task == GRT_TASK_FORWARD || task == GRT_TASK_BACKWARD ||
           task == GRT_TASK_BACKWARD_INPUT || task == GRT_TASK_BACKWARD_WEIGHT;
  }

  void follow(const grt_task &task) {
    if (task.kind == GRT_TASK_SYNC_GRADIENTS)
      return forget();
    sumsBehind = task.flags & GRT_SYNC_BEHIND;
    if (!isPass(task.kind) || (begun == 0 && !sumsBehind))
      return;
    for (const gvx::Procedure &row : rows.procedures) {
      if (row.chunk != task.chunk || row.task != task.kind)
        continue;
      if (!sumsBehind && !followed.insert({&row, begun, behind}).second)
        return;
      for (const gvx::Command &command : program.commands(row)) {
        follow(row, command);
        if (!wrong.empty())
          return;
      }
    }
  }

  void follow(const gvx::Procedure &procedure, const gvx::Command &row) {
    // `call` is of the function that the command calls, if it is in one.
    auto check = [&](const Levels &levels, uint64_t awaited,
                     const gvx::Call *call = nullptr) {
      const int beside = sumBeside(levels, awaited);
      if (beside < 0 || !wrong.empty())
        return;
      wrong = procedureName(procedure) + ", command " +
              str(&row - program.commands(procedure).data()) + " (" +
              textOf(row, rows.places) + ")" +
              (call ? ", " + textOf(program, *call) : "") +
              ": expected the sum of gradients of layer '" +
              role.layers[size_t(beside)].name +
              "', which shares ranks with it, to be waited for before it";
    };
    switch (row.kind) {
    case CommandKind::Sum:
      if (row.when != When::SumsBehind || sumsBehind)
        begin(size_t(row.layer));
      return;
    case CommandKind::AwaitSum:
      behind[row.stream] = begun;
      return;
    case CommandKind::Order:
      behind[row.stream] =
          std::max(behind[row.stream], behindOf(uint32_t(row.number)));
      return;
    case CommandKind::Gather: {
      uint64_t &gather = behind[GRT_STREAM_GATHER];
      gather =
          row.number ? begun : std::max(gather, behind[GRT_STREAM_COMPUTE]);
      return check(levelsOf(role.layers[size_t(row.layer)], GRT_AXIS_SDP),
                   gather);
    }
    case CommandKind::Call:
      return checkCollectives(role.layers[size_t(row.layer)], row.phase, check);
    case CommandKind::Reshard:
      return check({{int64_t(role.devices.size()), 1}},
                   behind[GRT_STREAM_COMPUTE]);
    default:
      return;
    }
  }

  /// Of a function, whose events order its streams. What is on the stream of
  /// the sums comes behind these.
  template <typename Check>
  void checkCollectives(const Layer &layer, LayerPhase phase,
                        const Check &check) {
    std::array<uint64_t, GRT_FUNCTION_EVENTS> recorded = {};
    for (const gvx::Call &call :
         program.calls(size_t(functionOf(layer, phase)))) {
      if (call.kind == gvx::CallKind::Order) {
        const grt_event_op &op = program.event(call.index);
        uint64_t &event = recorded[op.event], &stream = behind[op.stream];
        if (op.wait)
          stream = std::max(stream, event);
        else
          event = behindOf(op.stream);
      }
      if (call.kind != gvx::CallKind::Communicate)
        continue;
      const grt_collective_op &op = program.collective(call.index);
      if (op.stream != GRT_STREAM_GRADIENT &&
          !(op.axis == GRT_AXIS_TP && layer.replicated))
        check(levelsOf(layer, grt_axis(op.axis)), behind[op.stream], &call);
    }
  }

  static Levels levelsOf(const Layer &layer, grt_axis axis) {
    Levels levels;
    for (const Level &level : layer.levels)
      if (level.isOn(axis) && level.degree > 1)
        levels.push_back({level.degree, level.stride});
    return levels;
  }

  void begin(size_t number) {
    const Layer &layer = role.layers[number];
    Levels levels =
        levelsOf(layer, layer.cutsStateOnly ? GRT_AXIS_SDP : GRT_AXIS_DP);
    if (levels.empty() || layer.trainedElements() == 0)
      return;
    last[std::move(levels)] = {++begun, number};
  }

  /// The layer of a sum that a collective may run beside, where it comes behind
  /// the first `awaited` sums; -1: there is none.
  int sumBeside(const Levels &levels, uint64_t awaited) {
    for (const auto &[group, sum] : last)
      if (sum.first > awaited && shareRanks(group, levels))
        return int(sum.second);
    return -1;
  }
  bool shareRanks(const Levels &one, const Levels &other) {
    const auto [known, isNew] = shared.try_emplace({one, other});
    if (isNew)
      known->second =
          groupsShareRanks(int64_t(role.devices.size()), one, other);
    return known->second;
  }

  const ProgramFile &program;
  const Role &role;
  const ProgramFile::RoleCommands &rows;
  const grt_schedule &schedule;
  bool sumsBehind = false; ///< of the running task
  /// Sums that were begun, and how many of them each stream comes behind.
  uint64_t begun = 0;
  std::array<uint64_t, GRT_STREAM_COUNT> behind = {};
  /// The last sum over the groups of such levels: its number and layer.
  std::map<Levels, std::pair<uint64_t, size_t>> last;
  std::map<std::pair<Levels, Levels>, bool> shared;
  std::set<std::tuple<const gvx::Procedure *, uint64_t,
                      std::array<uint64_t, GRT_STREAM_COUNT>>>
      followed;
  std::string wrong;
};

} // namespace

std::string wrongSums(const Manifest &manifest, const ProgramFile &program,
                      size_t role) {
  return SumsProof(manifest, program, role).run();
}

} // namespace grt
