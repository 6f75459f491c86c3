//===- Verify.cpp - Proof that a task program cannot deadlock -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The waits of the machine are monotonic: an operation that may end stays free
// to end whatever others do. So one run decides for all runs, and the proof is
// a run over the roles in which every operation is visited once.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <set>

using namespace llvm;

namespace galvatron {
namespace {

/// Where a task stands.
struct TaskRef {
  int64_t role;
  int64_t index;

  bool operator==(const TaskRef &other) const = default;
};

class Verifier {
public:
  Verifier(const TaskProgram &program,
           ArrayRef<std::vector<int64_t>> roleDevices)
      : program(program), roleDevices(roleDevices),
        roleCount(static_cast<int64_t>(program.roles.size())) {}

  std::vector<ScheduleFault> run() {
    checkTraining();
    checkEvaluate();
    checkStepEnd();
    for (size_t i = 0; i < kSchedulePartCount; ++i) {
      part = static_cast<SchedulePart>(i);
      bool matched = matchTransfers();
      matched &= matchCollectives();
      // Waits are only defined between matched operations.
      if (matched)
        findDeadlock();
    }
    return std::move(faults);
  }

private:
  const std::vector<Task> &tasksOf(int64_t role) const {
    return program.roles[role].part(part);
  }

  std::string roleName(int64_t role) const {
    std::string text = "role " + std::to_string(role);
    if (role < static_cast<int64_t>(roleDevices.size())) {
      const std::vector<int64_t> &devices = roleDevices[role];
      text += devices.size() == 1 ? " (rank " : " (ranks ";
      for (size_t i = 0; i < devices.size(); ++i)
        text += (i ? ", " : "") + std::to_string(devices[i]);
      text += ")";
    }
    return text;
  }

  std::string taskName(TaskRef ref) const {
    return roleName(ref.role) + " " + schedulePartName(part).str() + " task " +
           std::to_string(ref.index) + " '" +
           tasksOf(ref.role)[ref.index].str() + "'";
  }

  void report(ScheduleFaultKind kind, TaskRef ref, const Twine &what) {
    std::string message = ref.index >= 0 ? taskName(ref)
                                         : roleName(ref.role) + " " +
                                               schedulePartName(part).str();
    faults.push_back(
        {kind, ref.role, part, ref.index, message + ": " + what.str()});
  }

  //===--- One role on its own --------------------------------------------===//

  struct MicroBatchState {
    bool received = false, forwarded = false, sent = false;
    bool gradientReceived = false, backwarded = false;
  };

  struct RoleState {
    std::vector<int64_t> slotHolder;
    std::vector<MicroBatchState> batches;
    int64_t pendingOutput = -1, pendingGradient = -1, pendingGradientOut = -1;
    int64_t lastBackward = -1;
    bool synchronising = false; ///< gradients are on their way
  };

  /// A task with a micro-batch or a slot that does not exist is skipped after
  /// the report: the state has no place for it.
  bool inRange(TaskRef ref, int64_t mb, int64_t slot, const RoleState &state) {
    if (mb >= program.microBatches) {
      report(ScheduleFaultKind::TaskOrder, ref,
             "micro-batch " + Twine(mb) + " does not exist, there are " +
                 Twine(program.microBatches));
      return false;
    }
    if (slot >= static_cast<int64_t>(state.slotHolder.size())) {
      report(ScheduleFaultKind::SlotConflict, ref,
             "slot " + Twine(slot) + " does not exist, there are " +
                 Twine(state.slotHolder.size()));
      return false;
    }
    return true;
  }

  void order(TaskRef ref, bool condition, const Twine &what) {
    if (!condition)
      report(ScheduleFaultKind::TaskOrder, ref, what);
  }

  void fillSlot(TaskRef ref, RoleState &state, int64_t slot, int64_t mb) {
    if (state.slotHolder[slot] >= 0)
      report(ScheduleFaultKind::SlotConflict, ref,
             "slot " + Twine(slot) + " still holds micro-batch " +
                 Twine(state.slotHolder[slot]));
    state.slotHolder[slot] = mb;
  }

  void step(TaskRef ref, RoleState &state, bool training) {
    const Task &task = tasksOf(ref.role)[ref.index];
    bool first = ref.role == 0, last = ref.role == roleCount - 1;
    switch (task.kind) {
    case TaskKind::Forward: {
      int64_t mb = task.microBatch;
      if (!inRange(ref, mb, task.slot, state))
        return;
      MicroBatchState &batch = state.batches[mb];
      order(ref, !batch.forwarded, "the micro-batch was already run forward");
      if (first)
        fillSlot(ref, state, task.slot, mb);
      else if (!batch.received)
        order(ref, false, "its activation has not been received");
      else if (state.slotHolder[task.slot] != mb)
        report(ScheduleFaultKind::SlotConflict, ref,
               "slot " + Twine(task.slot) + " does not hold its activation");
      order(ref, state.pendingOutput < 0,
            "the output of micro-batch " + Twine(state.pendingOutput) +
                " has not been sent yet");
      batch.forwarded = true;
      if (!last)
        state.pendingOutput = mb;
      if (!training)
        state.slotHolder[task.slot] = -1;
      return;
    }
    case TaskKind::Backward: {
      int64_t mb = task.microBatch;
      if (!inRange(ref, mb, task.slot, state))
        return;
      MicroBatchState &batch = state.batches[mb];
      order(ref, training, "a backward task has no place here");
      order(ref, batch.forwarded, "the micro-batch was not run forward yet");
      order(ref, !batch.backwarded, "the micro-batch was already run backward");
      order(ref, mb > state.lastBackward,
            "gradients are added with micro-batches ascending, but " +
                Twine(state.lastBackward) + " came before");
      if (!last)
        order(ref, state.pendingGradient == mb,
              "its gradient has not been received");
      if (batch.forwarded && state.slotHolder[task.slot] != mb)
        report(ScheduleFaultKind::SlotConflict, ref,
               "slot " + Twine(task.slot) + " does not hold its activations");
      order(ref, state.pendingGradientOut < 0,
            "the gradient of micro-batch " + Twine(state.pendingGradientOut) +
                " has not been sent yet");
      order(ref, !state.synchronising,
            "gradients were already reduced behind a backward task before");
      state.synchronising = task.flags & SyncBehind;
      batch.backwarded = true;
      state.lastBackward = std::max(state.lastBackward, mb);
      state.slotHolder[task.slot] = -1;
      state.pendingGradient = -1;
      if (!first)
        state.pendingGradientOut = mb;
      return;
    }
    case TaskKind::Transfer:
      transferStep(ref, task, state);
      return;
    default:
      order(ref, false, "the task belongs to step-end");
    }
  }

  void transferStep(TaskRef ref, const Task &task, RoleState &state) {
    int64_t sent = task.sendMicroBatch, received = task.recvMicroBatch;
    if (!inRange(ref, sent, 0, state) ||
        !inRange(ref, received, task.slot, state))
      return;
    if (task.flags & SendActivation) {
      order(ref, state.pendingOutput == sent,
            "there is no output of micro-batch " + Twine(sent) + " to send");
      state.pendingOutput = -1;
      state.batches[sent].sent = true;
    }
    if (task.flags & SendGradient) {
      order(ref, state.pendingGradientOut == sent,
            "there is no gradient of micro-batch " + Twine(sent) + " to send");
      state.pendingGradientOut = -1;
    }
    if (task.flags & RecvActivation) {
      order(ref, !state.batches[received].received,
            "the activation was already received");
      fillSlot(ref, state, task.slot, received);
      state.batches[received].received = true;
    }
    if (task.flags & RecvGradient) {
      order(ref, state.pendingGradient < 0,
            "the gradient of micro-batch " + Twine(state.pendingGradient) +
                " has not been used yet");
      state.pendingGradient = received;
      state.batches[received].gradientReceived = true;
    }
  }

  RoleState freshState(int64_t role) const {
    RoleState state;
    state.slotHolder.assign(std::max<int64_t>(program.roles[role].slots, 0),
                            -1);
    state.batches.resize(program.microBatches);
    return state;
  }

  /// Reports micro-batches that a role never runs, and what is left over.
  void finishRole(int64_t role, const RoleState &state, bool training) {
    for (int64_t mb = 0; mb < program.microBatches; ++mb) {
      const MicroBatchState &batch = state.batches[mb];
      if (!batch.forwarded)
        report(ScheduleFaultKind::MissingTask, {role, -1},
               "micro-batch " + Twine(mb) + " is never run forward");
      if (training && !batch.backwarded)
        report(ScheduleFaultKind::MissingTask, {role, -1},
               "micro-batch " + Twine(mb) + " is never run backward");
    }
    if (state.pendingOutput >= 0)
      report(ScheduleFaultKind::MissingTask, {role, -1},
             "the output of micro-batch " + Twine(state.pendingOutput) +
                 " is never sent");
    if (state.pendingGradientOut >= 0)
      report(ScheduleFaultKind::MissingTask, {role, -1},
             "the gradient of micro-batch " + Twine(state.pendingGradientOut) +
                 " is never sent");
  }

  void checkTraining() {
    for (int64_t role = 0; role < roleCount; ++role) {
      RoleState state = freshState(role);
      for (SchedulePart which : {SchedulePart::Prologue, SchedulePart::Steady,
                                 SchedulePart::Drain}) {
        part = which;
        for (size_t i = 0; i < tasksOf(role).size(); ++i)
          step({role, static_cast<int64_t>(i)}, state, /*training=*/true);
      }
      part = SchedulePart::Steady;
      finishRole(role, state, /*training=*/true);
    }
  }

  void checkEvaluate() {
    part = SchedulePart::Evaluate;
    for (int64_t role = 0; role < roleCount; ++role) {
      RoleState state = freshState(role);
      for (size_t i = 0; i < tasksOf(role).size(); ++i)
        step({role, static_cast<int64_t>(i)}, state, /*training=*/false);
      if (!tasksOf(role).empty())
        finishRole(role, state, /*training=*/false);
    }
  }

  bool isTied(int64_t role) const {
    return any_of(program.ties, [&](const TieRoles &tie) {
      return tie.owner == role || tie.borrower == role;
    });
  }

  void checkStepEnd() {
    part = SchedulePart::StepEnd;
    for (int64_t role = 0; role < roleCount; ++role) {
      int64_t previous = -1;
      std::set<TaskKind> seen;
      for (size_t i = 0; i < tasksOf(role).size(); ++i) {
        TaskRef ref{role, static_cast<int64_t>(i)};
        TaskKind kind = tasksOf(role)[i].kind;
        // The enum numbers step-end tasks in the order they must have.
        int64_t rank = static_cast<int64_t>(kind);
        order(ref, kind >= TaskKind::SyncGradients,
              "the task does not belong to step-end");
        order(ref, rank > previous,
              "expected the order sync-gradients, tie-reduce, norm, update, "
              "tie-broadcast");
        previous = std::max(previous, rank);
        seen.insert(kind);
      }
      auto require = [&](TaskKind kind, StringRef name) {
        if (!seen.count(kind))
          report(ScheduleFaultKind::MissingTask, {role, -1},
                 "expected a '" + name + "' task");
      };
      require(TaskKind::SyncGradients, "sync-gradients");
      require(TaskKind::Update, "update");
      if (isTied(role)) {
        require(TaskKind::TieReduce, "tie-reduce");
        require(TaskKind::TieBroadcast, "tie-broadcast");
      }
    }
  }

  //===--- Matching -------------------------------------------------------===//

  struct TransferEnd {
    TaskRef ref;
    int64_t microBatch;
  };

  std::vector<TransferEnd> ends(int64_t role, TransferFlag flag) const {
    std::vector<TransferEnd> result;
    if (role < 0 || role >= roleCount)
      return result;
    const std::vector<Task> &tasks = tasksOf(role);
    bool send = flag == SendActivation || flag == SendGradient;
    for (size_t i = 0; i < tasks.size(); ++i)
      if (tasks[i].kind == TaskKind::Transfer && (tasks[i].flags & flag))
        result.push_back(
            {{role, static_cast<int64_t>(i)},
             send ? tasks[i].sendMicroBatch : tasks[i].recvMicroBatch});
    return result;
  }

  /// Pairs the sends of one channel with its receives, in order.
  bool matchChannel(ArrayRef<TransferEnd> sends, ArrayRef<TransferEnd> recvs,
                    int64_t sender, int64_t receiver, StringRef what) {
    std::map<int64_t, int64_t> balance;
    for (const TransferEnd &end : sends)
      ++balance[end.microBatch];
    for (const TransferEnd &end : recvs)
      --balance[end.microBatch];
    bool good = true;
    auto unmatched = [&](ArrayRef<TransferEnd> list, int64_t sign,
                         StringRef missing, int64_t peer) {
      for (const TransferEnd &end : reverse(list)) {
        int64_t &left = balance[end.microBatch];
        if (left * sign <= 0)
          continue;
        left -= sign;
        good = false;
        report(ScheduleFaultKind::UnmatchedTransfer, end.ref,
               "no " + missing + " of the " + what + " of micro-batch " +
                   Twine(end.microBatch) + " in " +
                   (peer >= 0 && peer < roleCount
                        ? roleName(peer)
                        : std::string("a neighbour, there is none")));
      }
    };
    unmatched(sends, 1, "receive", receiver);
    unmatched(recvs, -1, "send", sender);
    if (!good)
      return false;
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].microBatch != recvs[i].microBatch) {
        report(ScheduleFaultKind::MicroBatchMismatch, sends[i].ref,
               "meets " + taskName(recvs[i].ref) + ": the " + what +
                   " of micro-batch " + Twine(sends[i].microBatch) +
                   " where micro-batch " + Twine(recvs[i].microBatch) +
                   " is expected");
        return false;
      }
      peers[{sends[i].ref.role, sends[i].ref.index}].push_back(recvs[i].ref);
      peers[{recvs[i].ref.role, recvs[i].ref.index}].push_back(sends[i].ref);
    }
    return true;
  }

  bool matchTransfers() {
    peers.clear();
    bool good = true;
    for (int64_t role = -1; role < roleCount; ++role) {
      good &= matchChannel(ends(role, SendActivation),
                           ends(role + 1, RecvActivation), role, role + 1,
                           "activation");
      good &=
          matchChannel(ends(role + 1, SendGradient), ends(role, RecvGradient),
                       role + 1, role, "gradient");
    }
    return good;
  }

  /// A collective over roles; two are equal if they are the same call.
  struct Collective {
    TaskKind kind;
    size_t tie;
    std::set<int64_t> group;

    bool operator==(const Collective &other) const {
      return kind == other.kind && tie == other.tie;
    }
  };

  std::vector<std::pair<Collective, TaskRef>>
  collectivesOf(int64_t role) const {
    std::vector<std::pair<Collective, TaskRef>> list;
    for (size_t i = 0; i < tasksOf(role).size(); ++i) {
      TaskKind kind = tasksOf(role)[i].kind;
      TaskRef ref{role, static_cast<int64_t>(i)};
      if (kind == TaskKind::Norm) {
        std::set<int64_t> all;
        for (int64_t r = 0; r < roleCount; ++r)
          all.insert(r);
        list.push_back({{kind, 0, all}, ref});
      } else if (kind == TaskKind::TieReduce ||
                 kind == TaskKind::TieBroadcast) {
        for (size_t t = 0; t < program.ties.size(); ++t) {
          const TieRoles &tie = program.ties[t];
          if (tie.owner == role || tie.borrower == role)
            list.push_back({{kind, t, {tie.owner, tie.borrower}}, ref});
        }
      }
    }
    return list;
  }

  /// Any two roles must agree on the sequence of collectives they share.
  bool matchCollectives() {
    std::vector<std::vector<std::pair<Collective, TaskRef>>> lists;
    for (int64_t role = 0; role < roleCount; ++role)
      lists.push_back(collectivesOf(role));
    for (int64_t a = 0; a < roleCount; ++a)
      for (int64_t b = a + 1; b < roleCount; ++b) {
        std::vector<std::pair<Collective, TaskRef>> inA, inB;
        copy_if(lists[a], std::back_inserter(inA),
                [&](const auto &c) { return c.first.group.count(b) > 0; });
        copy_if(lists[b], std::back_inserter(inB),
                [&](const auto &c) { return c.first.group.count(a) > 0; });
        size_t shared = std::min(inA.size(), inB.size());
        for (size_t i = 0; i < shared; ++i) {
          if (!(inA[i].first == inB[i].first)) {
            report(ScheduleFaultKind::CollectiveMismatch, inA[i].second,
                   "meets " + taskName(inB[i].second) +
                       ", expected the same collective in the same order");
            return false;
          }
          peers[{a, inA[i].second.index}].push_back(inB[i].second);
          peers[{b, inB[i].second.index}].push_back(inA[i].second);
        }
        if (inA.size() != inB.size()) {
          bool inFirst = inA.size() > inB.size();
          report(ScheduleFaultKind::CollectiveMismatch,
                 (inFirst ? inA : inB)[shared].second,
                 "has no counterpart in " + roleName(inFirst ? b : a));
          return false;
        }
      }
    return true;
  }

  //===--- Waits ----------------------------------------------------------===//

  /// The first peer that `ref` still waits for, given how far each role is.
  const TaskRef *waitsFor(TaskRef ref, ArrayRef<int64_t> reached) const {
    auto it = peers.find({ref.role, ref.index});
    if (it == peers.end())
      return nullptr;
    for (const TaskRef &peer : it->second)
      if (reached[peer.role] < peer.index)
        return &peer;
    return nullptr;
  }

  void findDeadlock() {
    std::vector<int64_t> reached(roleCount, 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (int64_t role = 0; role < roleCount; ++role)
        while (reached[role] < static_cast<int64_t>(tasksOf(role).size()) &&
               !waitsFor({role, reached[role]}, reached)) {
          ++reached[role];
          progress = true;
        }
    }
    int64_t start = -1;
    for (int64_t role = 0; role < roleCount && start < 0; ++role)
      if (reached[role] < static_cast<int64_t>(tasksOf(role).size()))
        start = role;
    if (start < 0)
      return;
    // Follow the waits; the first role met twice closes the cycle.
    std::vector<int64_t> path;
    int64_t role = start;
    while (!is_contained(path, role)) {
      path.push_back(role);
      role = waitsFor({role, reached[role]}, reached)->role;
    }
    path.erase(path.begin(), llvm::find(path, role));
    std::string cycle;
    for (int64_t member : path) {
      TaskRef at{member, reached[member]};
      const TaskRef *peer = waitsFor(at, reached);
      if (member != path.front())
        cycle += ", which waits for ";
      cycle += taskName(*peer) + ", but " + roleName(peer->role) + " is at " +
               taskName({peer->role, reached[peer->role]});
    }
    report(ScheduleFaultKind::Deadlock, {path.front(), reached[path.front()]},
           "deadlock: waits for " + cycle);
  }

  const TaskProgram &program;
  ArrayRef<std::vector<int64_t>> roleDevices;
  int64_t roleCount;
  SchedulePart part = SchedulePart::Steady;
  std::map<std::pair<int64_t, int64_t>, std::vector<TaskRef>> peers;
  std::vector<ScheduleFault> faults;
};

} // namespace

std::vector<ScheduleFault>
verifySchedule(const TaskProgram &program,
               ArrayRef<std::vector<int64_t>> roleDevices) {
  return Verifier(program, roleDevices).run();
}

} // namespace galvatron
