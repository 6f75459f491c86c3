//===- capture.cpp - What of a program a graph of a device can have -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/capture.h"
#include "core/commands.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <span>

namespace grt {
namespace {

using gvx::CommandKind;

bool readsCounts(const ProgramFile &program, int function) {
  return function >= 0 &&
         std::ranges::any_of(
             program.calls(size_t(function)), [&](const gvx::Call &call) {
               return call.kind == gvx::CallKind::Communicate &&
                      program.collective(call.index).collective ==
                          GRT_ALL_TO_ALL_COUNTS;
             });
}

/// Returns why a role's step is not captured; null if it is.
const char *hostPartOf(const grt_schedule &schedule, const Role &role,
                       const ProgramFile::RoleCommands &rows,
                       const ProgramFile &program) {
  auto runs = [&](const gvx::Procedure &row, grt_part part) {
    const grt_task_list &list = schedule.parts[part];
    return std::ranges::any_of(
        std::span(list.tasks, list.count), [&](const grt_task &task) {
          return row.isOf(task) ||
                 (row.task == GRT_TASK_NORM && task.kind == GRT_TASK_NORM);
        });
  };
  for (const gvx::Procedure &row : rows.procedures)
    if (row.needsHost &&
        (row.task == gvx::ofStepEnd || runs(row, GRT_PART_STEADY) ||
         runs(row, GRT_PART_STEP_END)))
      return hostPartOf(row, role, program);
  return nullptr;
}

/// Returns whether updates stand behind the decision of all ranks.
bool decidesUpdate(const ProgramFile &program) {
  for (const gvx::Procedure &row : program.ofRole(0).procedures)
    for (const gvx::Command &command : program.commands(row))
      if (command.kind == CommandKind::Decide)
        return command.number;
  return false;
}

} // namespace

const char *hostPartOf(const gvx::Command &command, const Role &role,
                       bool readsCounts) {
  const char *const atHome = "states have their home on the host";
  switch (command.kind) {
  case CommandKind::AwaitHome:
    // Of a role whose states are on the device nothing is on its way.
    return role.homeBytes ? atHome : nullptr;
  case CommandKind::SwapIn:
  case CommandKind::SwapOut:
    return atHome;
  case CommandKind::SwapSlot:
    return "activations have their home on the host";
  case CommandKind::Call: {
    const Layer &layer = role.layers[size_t(command.layer)];
    const bool onceAStep = command.phase == LayerPhase::Norm ||
                           command.phase == LayerPhase::Update;
    if (onceAStep && layer.isAway && !layer.updatesOnDevice)
      return atHome;
    return readsCounts ? "the host reads counts of its all-to-alls" : nullptr;
  }
  case CommandKind::DecideLate:
  case CommandKind::TellAll:
    // Where the run may choose, it does not over devices.
    return command.when == gvx::When::GoesAhead ? nullptr
                                                : "gradients are late";
  case CommandKind::Meet:
    return "ranks tell each other losses";
  default:
    return nullptr;
  }
}

const char *hostPartOf(const gvx::Procedure &procedure, const Role &role,
                       const ProgramFile &program) {
  for (const gvx::Command &row : program.commands(procedure)) {
    const bool reads =
        row.kind == CommandKind::Call &&
        readsCounts(program,
                    functionOf(role.layers[size_t(row.layer)], row.phase));
    if (const char *part = hostPartOf(row, role, reads))
      return part;
  }
  return nullptr;
}

StepCapture captureOf(const Manifest &manifest, const ProgramFile &program) {
  for (size_t r = 0; r < manifest.roles.size(); ++r)
    if (const char *why = hostPartOf(program.schedules()[r], manifest.roles[r],
                                     program.ofRole(r), program))
      return {0, why};
  for (const grt_schedule &schedule : program.schedules()) {
    // Two graphs meet at the one norm, where the host decides.
    const grt_task_list &end = schedule.parts[GRT_PART_STEP_END];
    if (std::ranges::count(std::span(end.tasks, end.count), GRT_TASK_NORM,
                           &grt_task::kind) != 1)
      return {0, "its updates do not stand behind one norm"};
  }
  if (!decidesUpdate(program))
    return {2, "updates are done before the norm"};
  if (!canGatherResults(manifest, uint64_t(manifest.world)))
    return {2, "there is no workspace to gather results in"};
  return {};
}

bool canGatherResults(const Manifest &manifest, uint64_t ranks) {
  return ranks == 1 ||
         std::ranges::all_of(manifest.roles, [&](const Role &role) {
           return role.workspace.bytes >= ranks * sizeof(RankResults);
         });
}

} // namespace grt
