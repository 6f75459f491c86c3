//===- TaskProgram.cpp - Task orders of pipeline schedules ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/TaskProgram.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cassert>

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

namespace {

/// Appends tasks to one part of one role.
class PartWriter {
public:
  PartWriter(std::vector<Task> &tasks, int64_t stage, int64_t stages,
             int64_t slots)
      : tasks(tasks), first(stage == 0), last(stage == stages - 1),
        slots(slots) {}

  void forward(int64_t mb) { run(TaskKind::Forward, mb); }
  void backward(int64_t mb) { run(TaskKind::Backward, mb); }
  void recvActivation(int64_t mb) {
    if (!first)
      transfer(RecvActivation, 0, mb);
  }
  void sendActivation(int64_t mb) {
    if (!last)
      transfer(SendActivation, mb, 0);
  }
  void recvGradient(int64_t mb) {
    if (!last)
      transfer(RecvGradient, 0, mb);
  }
  void sendGradient(int64_t mb) {
    if (!first)
      transfer(SendGradient, mb, 0);
  }
  void sendActivationRecvGradient(int64_t sent, int64_t received) {
    if (!last)
      transfer(SendActivation | RecvGradient, sent, received);
  }
  void sendGradientRecvActivation(int64_t sent, int64_t received) {
    if (!first)
      transfer(SendGradient | RecvActivation, sent, received);
  }

private:
  uint16_t slotOf(int64_t mb) const {
    return static_cast<uint16_t>(mb % slots);
  }
  void run(TaskKind kind, int64_t mb) {
    Task task;
    task.kind = kind;
    task.slot = slotOf(mb);
    task.microBatch = static_cast<uint32_t>(mb);
    tasks.push_back(task);
  }
  void transfer(int flags, int64_t sent, int64_t received) {
    Task task;
    task.kind = TaskKind::Transfer;
    task.flags = static_cast<uint8_t>(flags);
    task.sendMicroBatch = static_cast<uint32_t>(sent);
    task.recvMicroBatch = static_cast<uint32_t>(received);
    if (flags & RecvActivation)
      task.slot = slotOf(received);
    tasks.push_back(task);
  }

  std::vector<Task> &tasks;
  bool first, last;
  int64_t slots;
};

/// Everything besides `steady`, the same for all synchronous schedules.
TaskProgram skeleton(ScheduleKind schedule, int64_t stages,
                     int64_t microBatches, std::vector<TieRoles> ties) {
  assert(stages >= 1 && microBatches >= 1 && "an empty schedule");
  TaskProgram program;
  program.schedule = schedule;
  program.microBatches = microBatches;
  program.ties = std::move(ties);
  program.roles.resize(stages);
  for (int64_t stage = 0; stage < stages; ++stage) {
    RoleProgram &role = program.roles[stage];
    role.slots = inFlightMicroBatches(schedule, stage, stages, microBatches);

    PartWriter evaluate(role.part(SchedulePart::Evaluate), stage, stages,
                        role.slots);
    for (int64_t mb = 0; mb < microBatches; ++mb) {
      evaluate.recvActivation(mb);
      evaluate.forward(mb);
      evaluate.sendActivation(mb);
    }

    bool tied = false;
    for (const TieRoles &tie : program.ties)
      tied |= tie.owner == stage || tie.borrower == stage;
    auto append = [&](TaskKind kind) {
      Task task;
      task.kind = kind;
      role.part(SchedulePart::StepEnd).push_back(task);
    };
    append(TaskKind::SyncGradients);
    if (tied)
      append(TaskKind::TieReduce);
    append(TaskKind::Norm);
    append(TaskKind::Update);
    if (tied)
      append(TaskKind::TieBroadcast);
  }
  return program;
}

} // namespace

TaskProgram makeGPipe(int64_t stages, int64_t microBatches,
                      std::vector<TieRoles> ties) {
  TaskProgram program =
      skeleton(ScheduleKind::GPipe, stages, microBatches, std::move(ties));
  for (int64_t stage = 0; stage < stages; ++stage) {
    RoleProgram &role = program.roles[stage];
    PartWriter steady(role.part(SchedulePart::Steady), stage, stages,
                      role.slots);
    for (int64_t mb = 0; mb < microBatches; ++mb) {
      steady.recvActivation(mb);
      steady.forward(mb);
      steady.sendActivation(mb);
    }
    for (int64_t mb = 0; mb < microBatches; ++mb) {
      steady.recvGradient(mb);
      steady.backward(mb);
      steady.sendGradient(mb);
    }
  }
  return program;
}

TaskProgram make1F1B(int64_t stages, int64_t microBatches,
                     std::vector<TieRoles> ties) {
  TaskProgram program =
      skeleton(ScheduleKind::OneFOneB, stages, microBatches, std::move(ties));
  for (int64_t stage = 0; stage < stages; ++stage) {
    RoleProgram &role = program.roles[stage];
    PartWriter steady(role.part(SchedulePart::Steady), stage, stages,
                      role.slots);
    int64_t warmup = std::min(stages - 1 - stage, microBatches);
    for (int64_t mb = 0; mb < warmup; ++mb) {
      steady.recvActivation(mb);
      steady.forward(mb);
      steady.sendActivation(mb);
    }
    // Steady state: opposite transfers with one neighbour are one grouped
    // operation, or each side would wait for the other's receive.
    if (warmup < microBatches)
      steady.recvActivation(warmup);
    for (int64_t mb = warmup; mb < microBatches; ++mb) {
      int64_t done = mb - warmup;
      steady.forward(mb);
      steady.sendActivationRecvGradient(mb, done);
      steady.backward(done);
      if (mb + 1 < microBatches)
        steady.sendGradientRecvActivation(done, mb + 1);
      else
        steady.sendGradient(done);
    }
    for (int64_t mb = microBatches - warmup; mb < microBatches; ++mb) {
      steady.recvGradient(mb);
      steady.backward(mb);
      steady.sendGradient(mb);
    }
  }
  return program;
}

std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer) {
  if (layer.degree(Paradigm::SDP) == 1)
    return "nothing of it (" + layer.str() + ") is sharded";
  // With equal layouts nothing else can clash: ranks of one TP group hold the
  // same samples, those of one SDP group different ones.
  if (beside.sampleLayout() != layer.sampleLayout())
    return "the gather of " + layer.str() +
           " would run beside the reshard from " + beside.str();
  return "";
}

std::vector<GatherAhead> gathersAhead(ArrayRef<Strategy> layers) {
  std::vector<GatherAhead> ahead(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    ahead[l].forward =
        l > 0 && whyNotGatherAhead(layers[l - 1], layers[l]).empty();
    ahead[l].backward = l + 1 < layers.size() &&
                        whyNotGatherAhead(layers[l + 1], layers[l]).empty();
  }
  return ahead;
}

std::string whyNotSyncBehind(ArrayRef<Strategy> layers) {
  constexpr Paradigm others[] = {Paradigm::SDP, Paradigm::TP};
  for (size_t l = 0; l < layers.size(); ++l) {
    const Strategy &layer = layers[l];
    if (layer.degree(Paradigm::DP) == 1)
      continue;
    // What runs after the layer's backward pass: the layers before it.
    for (size_t j = l; j-- > 0;) {
      auto clash = [&](StringRef what) {
        return ("the all-reduce of layer " + Twine(l) + " (" + layer.str() +
                ") would run beside " + what + " of layer " + Twine(j) + " (" +
                layers[j].str() + ")")
            .str();
      };
      if (layers[j].sampleLayout() != layers[j + 1].sampleLayout())
        return clash("the reshard");
      for (Paradigm paradigm : others)
        for (int64_t rank = 0; rank < layer.devices(); ++rank) {
          auto reduced = layer.group(rank, Paradigm::DP);
          auto beside = layers[j].group(rank, paradigm);
          if (count_if(reduced, [&](int64_t member) {
                return is_contained(beside, member);
              }) > 1)
            return clash(paradigm == Paradigm::TP ? "tensor parallelism"
                                                  : "sharded parameters");
        }
    }
  }
  return "";
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

TaskProgram makeSchedule(ScheduleKind schedule, int64_t stages,
                         int64_t microBatches, std::vector<TieRoles> ties) {
  switch (schedule) {
  case ScheduleKind::GPipe:
    return makeGPipe(stages, microBatches, std::move(ties));
  case ScheduleKind::OneFOneB:
    return make1F1B(stages, microBatches, std::move(ties));
  }
  llvm_unreachable("every schedule has an order of tasks");
}

} // namespace galvatron
