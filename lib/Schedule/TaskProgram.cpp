//===- TaskProgram.cpp - Task programs as the compiler makes them ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/TaskProgram.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

using namespace llvm;

namespace galvatron {

void setSyncBehind(RoleProgram &role) {
  for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain}) {
    std::vector<Task> &tasks = role.part(part);
    std::set<uint16_t> done;
    for (auto task = tasks.rbegin(); task != tasks.rend(); ++task)
      if (task->endsGradients() && done.insert(task->chunk).second)
        task->flags |= SyncBehind;
  }
}

bool syncsBehind(const RoleProgram &role) {
  return any_of(role.part(SchedulePart::Steady), [](const Task &task) {
    return task.endsGradients() && (task.flags & SyncBehind);
  });
}

} // namespace galvatron
