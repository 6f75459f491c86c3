//===- commands.cpp - What a rank does for a task -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/commands.h"
#include "base/error.h"

#include <algorithm>
#include <utility>

namespace grt {

int functionOf(const Layer &layer, LayerPhase phase) {
  switch (phase) {
  case LayerPhase::Forward:
    return layer.forward;
  case LayerPhase::Recompute:
    return layer.recompute;
  case LayerPhase::Backward:
    return layer.backward;
  case LayerPhase::Weight:
    return layer.weight;
  case LayerPhase::Update:
    return layer.update;
  case LayerPhase::Norm:
    return layer.norm;
  }
  return -1;
}

bool hasGradients(const Manifest &manifest, const Tie &tie) {
  const TieEnd &borrower = tie.borrower;
  return !manifest.roles[size_t(borrower.role)]
              .layers[size_t(borrower.layer)]
              .forwardOnly;
}

namespace {

gvx::Command commandOf(gvx::CommandKind kind, gvx::When when, int32_t layer,
                       int32_t number) {
  gvx::Command row{};
  row.kind = kind;
  row.when = when;
  row.layer = layer;
  row.number = number;
  return row;
}

} // namespace

std::vector<gvx::Command> tieCommands(const Manifest &manifest, size_t role,
                                      uint8_t task) {
  using enum gvx::CommandKind;
  using gvx::When;
  const bool sums = task == GRT_TASK_TIE_REDUCE;
  const bool gives = task == GRT_TASK_TIE_BROADCAST;
  std::vector<gvx::Command> list, copies, moves;
  int copied = -1; // layer, of which all that is borrowed is copied at once
  for (size_t i = 0; i < manifest.ties.size(); ++i) {
    const Tie &tie = manifest.ties[i];
    const bool owns = tie.owner.role == int(role);
    if ((!owns && tie.borrower.role != int(role)) ||
        (sums && !hasGradients(manifest, tie)))
      continue;
    const bool isApart = manifest.delay && tie.owner.role != tie.borrower.role;
    auto ofTie = [&](gvx::CommandKind kind, When when) {
      return commandOf(kind, when, -1, int32_t(i));
    };
    if (sums || gives)
      moves.push_back(ofTie(sums ? SumTied : GiveTied,
                            isApart ? When::OnDevice : When::Always));
    if (!isApart)
      continue;
    if (sums && !owns) {
      list.push_back(ofTie(AwaitTied, When::OnHost));
      if (std::exchange(copied, tie.borrower.layer) != tie.borrower.layer)
        copies.push_back(commandOf(KeepTied, When::OnHost, copied, 0));
    }
    if (sums)
      moves.push_back(ofTie(owns ? TakeTied : LeaveTied, When::OnHost));
    else if (gives)
      moves.push_back(ofTie(owns ? LeaveTied : ExpectTied, When::OnHost));
    else if (owns == (task == GRT_TASK_UPDATE))
      moves.push_back(ofTie(owns ? AwaitTied : TakeTied, When::OnHost));
  }
  if (!moves.empty() && (sums || gives)) {
    list.insert(list.begin(), commandOf(AwaitHome, When::Always, -1, 0));
    moves.push_back(commandOf(Used, When::Always, -1, 0));
  }
  list.insert(list.end(), copies.begin(), copies.end());
  list.insert(list.end(), moves.begin(), moves.end());
  return list;
}

bool needsNorm(const Manifest &manifest) {
  return !manifest.delay || manifest.clip;
}

bool mayGoAhead(const Manifest &manifest) {
  return !manifest.delay && !manifest.clip && !manifest.updatesJustInTime;
}

bool hasLoss(const Role &role, const Chunk &chunk) {
  return role.layers[chunk.endLayer() - 1].output == OutputKind::Loss;
}

EndCommands endCommands(const Manifest &manifest, uint8_t task, bool hasLoss) {
  using enum gvx::CommandKind;
  using gvx::When;
  const bool isLate = manifest.delay > 0, chooses = mayGoAhead(manifest);
  const bool waits = !isLate && !manifest.updatesJustInTime;
  auto only = [](gvx::CommandKind kind, When when = When::Always,
                 int32_t number = 0) {
    return std::vector{commandOf(kind, when, -1, number)};
  };
  EndCommands list;
  switch (task) {
  case GRT_TASK_FORWARD:
    if (hasLoss && (isLate || chooses))
      list.behind = only(TellLoss, When::LastLoss);
    break;
  case GRT_TASK_NORM:
    list.before = only(AwaitHome);
    if (chooses)
      list.before.push_back(commandOf(Return, When::GoesAhead, -1, 0));
    if (!isLate)
      list.behind = only(Decide, When::Always, waits);
    else if (manifest.clip)
      list.behind = only(DecideLate);
    break;
  case GRT_TASK_UPDATE:
    if (waits)
      list.before = only(Return, When::LeftOut);
    break;
  case gvx::ofStepEnd:
    if (isLate || chooses)
      list.behind = only(TellAll, isLate ? When::Always : When::GoesAhead);
    break;
  case gvx::ofEvaluation:
    list.behind = only(Meet);
    break;
  default:
    break;
  }
  return list;
}

Procedures::Procedures(const ProgramFile &program, size_t number,
                       const Role &role)
    : chunks(role.chunks.size()) {
  const ProgramFile::RoleCommands &rows = program.ofRole(number);
  places = rows.places;
  for (const gvx::Procedure &row : rows.procedures) {
    const Procedure list = program.commands(row);
    if (row.task == GRT_TASK_NORM) {
      const auto last = std::ranges::find_if(list, [](const auto &command) {
        return command.kind == gvx::CommandKind::Decide ||
               command.kind == gvx::CommandKind::DecideLate;
      });
      squares = {list.begin(), last};
      decided = {last, list.end()};
    } else if (row.task == gvx::ofVersions)
      copies = list;
    else if (row.task == GRT_TASK_TIE_REDUCE)
      summed = list;
    else if (row.task == GRT_TASK_TIE_BROADCAST)
      given = list;
    else if (row.task == gvx::ofTaken)
      taken = list;
    else if (row.task == gvx::ofStepEnd)
      ended = list;
    else if (row.task == gvx::ofEvaluation)
      evaluated = list;
    if (!gvx::isProcedure(row.task))
      continue;
    OfChunk &of = chunks[size_t(role.chunk(row.chunk) - role.chunks.data())];
    if (row.task == GRT_TASK_SWAP)
      of.swaps.push_back({&row, list});
    else
      of.passes[row.task] = list;
  }
  const grt_schedule &schedule = program.schedules()[number];
  messages.reserve(schedule.transfer_count);
  for (const grt_transfer_part &part :
       std::span(schedule.transfers, schedule.transfer_count))
    messages.push_back(
        &*std::ranges::find_if(rows.messages, [&](const gvx::Message &row) {
          return row.isOf(part);
        }));
}

Procedure Procedures::swap(size_t chunk, const grt_task &task) const {
  for (const Swap &each : chunks[chunk].swaps)
    if (each.row->isOf(task))
      return each.commands;
  return {};
}

} // namespace grt
