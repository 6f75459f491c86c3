//===- commands.cpp - What a rank does for a task -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/commands.h"
#include "base/error.h"

#include <algorithm>

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

Procedures::Procedures(const ProgramFile &program, size_t number,
                       const Role &role)
    : chunks(role.chunks.size()) {
  const ProgramFile::RoleCommands &rows = program.ofRole(number);
  places = rows.places;
  for (const gvx::Procedure &row : rows.procedures) {
    const Procedure list = program.commands(row);
    if (row.task == GRT_TASK_NORM)
      squares = list;
    else if (row.task == gvx::ofVersions)
      copies = list;
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
