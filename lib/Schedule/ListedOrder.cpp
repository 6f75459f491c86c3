//===- ListedOrder.cpp - Tasks of steps that are listed -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ListedOrder.h"
#include "Synchronous.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <cassert>

using namespace llvm;

namespace galvatron {

ListedOrder::ListedOrder(ListedSteps all, const ListedShape &theShape)
    : shape(theShape), steps(std::move(all)), ofRole(shape.roles) {
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const ListedStep &step = steps[i];
    int64_t role = shape.home(step.chunk);
    ofRole[role].push_back(i);
    if (step.kind != TaskKind::Transfer)
      continue;
    bool isGradient = step.value == TransferValue::Gradient;
    int64_t other = shape.home(isGradient ? step.chunk - 1 : step.chunk + 1);
    if (other != role)
      ofRole[other].push_back(i);
  }
}

void ListedOrder::build(TaskProgram &program, int64_t role,
                        SchedulePart part) const {
  std::vector<Task> &tasks = program.roles[role].part(part);
  // Messages between two passes are one grouped operation, as far as one may
  // have them: one of each direction and value, and those that go from one role
  // to another in their order. That is to meet others no later, and in the same
  // order. In a line, where roles have a neighbour on either side, all that a
  // role sends is in its order, and all that it receives: it may go one by one.
  // Where places between layers are one region, no gradient comes before the
  // one that leaves has gone.
  std::vector<TransferPart> parts;
  auto peerRole = [&](const TransferPart &end) {
    return program.chunks[end.peerChunk].role;
  };
  auto flush = [&] {
    if (parts.empty())
      return;
    tasks.push_back(transferOf(std::move(parts)));
    parts.clear();
  };
  for (uint32_t number : ofRole[role]) {
    const ListedStep &step = steps[number];
    if (step.kind != TaskKind::Transfer) {
      flush();
      tasks.push_back(
          computeTask(program, step.kind, step.chunk, step.microBatch));
      continue;
    }
    bool isGradient = step.value == TransferValue::Gradient;
    int64_t to = isGradient ? step.chunk - 1 : step.chunk + 1;
    std::vector<TransferPart> ends;
    for (auto [direction, chunk] :
         {std::pair(TransferDirection::Send, step.chunk),
          std::pair(TransferDirection::Receive, to)})
      if (program.chunks[chunk].role == role)
        ends.push_back(transferPart(program, direction, step.value, chunk,
                                    step.microBatch));
    auto cannotJoin = [&](const TransferPart &end) {
      return llvm::any_of(parts, [&](const TransferPart &other) {
        if (other.direction != end.direction)
          return shape.sharesBoundary && other.isGradient() && end.isGradient();
        bool inOrder = shape.perRole == 1 || peerRole(other) == peerRole(end);
        return other.value == end.value ||
               (inOrder && standsBefore(end, other));
      });
    };
    if (llvm::any_of(ends, cannotJoin))
      flush();
    llvm::append_range(parts, ends);
  }
  flush();
}

TimeForm ListedOrder::upper() const {
  // Passes come in levels: one behind all that it waits for. A chain of waits
  // has at most one pass of every level, and so many messages.
  struct Reached {
    size_t level = 0;
    int64_t messages[2] = {0, 0}; ///< by value
  };
  std::vector<Reached> reached(shape.roles);
  std::vector<TimeMaximum> levels;
  for (const ListedStep &step : steps) {
    Reached &role = reached[shape.home(step.chunk)];
    if (step.kind == TaskKind::Transfer) {
      bool isGradient = step.value == TransferValue::Gradient;
      Reached &other =
          reached[shape.home(isGradient ? step.chunk - 1 : step.chunk + 1)];
      role.level = std::max(role.level, other.level);
      for (size_t value : {0, 1})
        role.messages[value] =
            std::max(role.messages[value], other.messages[value]);
      ++role.messages[isGradient];
      other = role;
      continue;
    }
    if (role.level == levels.size())
      levels.emplace_back().at.resize(shape.roles);
    levels[role.level++].at[shape.home(step.chunk)].add(
        step.kind == TaskKind::Forward         ? RoleTime::LongestForward
        : step.kind == TaskKind::BackwardInput ? RoleTime::LongestInputPart
                                               : RoleTime::LongestWeightPart,
        1);
  }
  TimeBound bound;
  bound.sum = {{RoleTime::Behind, 1}};
  for (TimeMaximum &level : levels)
    bound.maxima.push_back({1, std::move(level)});
  for (size_t value : {0, 1}) {
    int64_t most = 0;
    for (const Reached &role : reached)
      most = std::max(most, role.messages[value]);
    bound.maxima.push_back({static_cast<double>(most),
                            largestOf({{value ? RoleTime::LongestGradientIn
                                              : RoleTime::LongestActivationOut,
                                        1}})});
  }
  for (RoleTime time : {RoleTime::Tail, RoleTime::Norm, RoleTime::Update})
    bound.maxima.push_back({1, largestOf({{time, 1}})});
  return {bound};
}

//===----------------------------------------------------------------------===//
// Clock
//===----------------------------------------------------------------------===//

namespace {

/// Runs the passes and messages of a program's roles as far as they get.
class StepClock {
public:
  StepClock(const TaskProgram &program, ArrayRef<PassTimes> times)
      : program(program), times(times), roles(program.roles.size()),
        messages(2 * program.chunks.size() *
                 static_cast<size_t>(program.microBatches)) {}

  int64_t run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t role = 0; role < roles.size(); ++role)
        moved |= advance(role);
    }
    int64_t longest = 0;
    for (size_t role = 0; role < roles.size(); ++role) {
      assert(roles[role].next == tasksOf(role).size() && "a role is stuck");
      longest = std::max(longest, roles[role].now);
    }
    return longest;
  }

private:
  /// Time at which the first of its ends was there, and at which it has gone.
  struct Message {
    int64_t ready = -1, end = -1;
  };
  struct Role {
    size_t next = 0;
    int64_t now = 0;
    /// Index of the task's message that the role is at, by direction.
    std::array<size_t, 2> at{};
    std::array<bool, 2> isThere{};
    std::array<int64_t, 2> ends{};
  };

  ArrayRef<Task> tasksOf(size_t role) const {
    return program.roles[role].part(SchedulePart::Steady);
  }
  Message &messageOf(const TransferPart &part) {
    size_t chunk = part.sends() ? part.chunk : part.peerChunk;
    size_t number = 2 * chunk + (part.isGradient() ? 1 : 0);
    return messages[number * program.microBatches + part.microBatch];
  }

  bool advance(size_t number) {
    Role &role = roles[number];
    bool moved = false;
    for (; role.next < tasksOf(number).size(); ++role.next) {
      const Task &task = tasksOf(number)[role.next];
      if (task.computes()) {
        const PassTimes &time = times[task.chunk];
        role.now += task.kind == TaskKind::Forward         ? time.forward
                    : task.kind == TaskKind::BackwardInput ? time.input
                                                           : time.weight;
      } else if (!exchange(role, task, moved)) {
        return moved;
      }
      moved = true;
    }
    return moved;
  }

  /// False: one of its messages has not gone.
  bool exchange(Role &role, const Task &task, bool &moved) {
    bool isDone = true;
    for (size_t direction : {0, 1}) {
      int64_t &end = role.ends[direction];
      size_t &at = role.at[direction];
      for (; at < task.parts.size(); ++at) {
        const TransferPart &part = task.parts[at];
        if (part.sends() != (direction == 0))
          continue;
        Message &message = messageOf(part);
        if (!role.isThere[direction]) {
          int64_t ready = std::max(role.now, end);
          if (message.ready >= 0)
            message.end = std::max(message.ready, ready) +
                          times[std::min(part.chunk, part.peerChunk)].message;
          message.ready = ready;
          role.isThere[direction] = moved = true;
        }
        if (message.end < 0) {
          isDone = false;
          break;
        }
        end = message.end;
        role.isThere[direction] = false;
      }
    }
    if (!isDone)
      return false;
    role.now = std::max({role.now, role.ends[0], role.ends[1]});
    role.at = {};
    role.ends = {};
    return true;
  }

  const TaskProgram &program;
  ArrayRef<PassTimes> times;
  std::vector<Role> roles;
  std::vector<Message> messages;
};

} // namespace

int64_t steadyLength(const TaskProgram &program, ArrayRef<PassTimes> times) {
  return StepClock(program, times).run();
}

} // namespace galvatron
