//===- TaskProgram.cpp - Task orders of pipeline schedules ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/TaskProgram.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

StringRef schedulePartName(SchedulePart part) {
  switch (part) {
  case SchedulePart::Prologue:
    return "prologue";
  case SchedulePart::Steady:
    return "steady";
  case SchedulePart::StepEnd:
    return "step-end";
  case SchedulePart::Drain:
    return "drain";
  case SchedulePart::Evaluate:
    return "evaluate";
  }
  llvm_unreachable("all parts are handled");
}

std::string Task::str() const {
  auto onSlot = [&](StringRef name) {
    return (name + " mb " + Twine(microBatch) + " slot " + Twine(slot)).str();
  };
  switch (kind) {
  case TaskKind::Forward:
    return onSlot("forward");
  case TaskKind::Backward:
    return onSlot("backward") + (flags & SyncBehind ? " sync-behind" : "");
  case TaskKind::Transfer: {
    std::string text;
    auto part = [&](TransferFlag flag, StringRef name, uint32_t mb) {
      if (!(flags & flag))
        return;
      text += (text.empty() ? "" : ", ");
      text += (name + " mb " + Twine(mb)).str();
    };
    part(SendActivation, "send-activation", sendMicroBatch);
    part(SendGradient, "send-gradient", sendMicroBatch);
    part(RecvActivation, "recv-activation", recvMicroBatch);
    part(RecvGradient, "recv-gradient", recvMicroBatch);
    return "transfer " + text;
  }
  case TaskKind::SyncGradients:
    return "sync-gradients";
  case TaskKind::TieReduce:
    return "tie-reduce";
  case TaskKind::Norm:
    return "norm";
  case TaskKind::Update:
    return "update";
  case TaskKind::TieBroadcast:
    return "tie-broadcast";
  }
  llvm_unreachable("all task kinds are handled");
}

size_t TaskProgram::taskCount() const {
  size_t count = 0;
  for (const RoleProgram &role : roles)
    for (const std::vector<Task> &part : role.parts)
      count += part.size();
  return count;
}

void setSyncBehind(RoleProgram &role) {
  std::vector<Task> &steady = role.part(SchedulePart::Steady);
  auto last =
      std::find_if(steady.rbegin(), steady.rend(), [](const Task &task) {
        return task.kind == TaskKind::Backward;
      });
  if (last != steady.rend())
    last->flags |= SyncBehind;
}

} // namespace galvatron
