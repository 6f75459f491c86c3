//===- ZeroBubbleLong.cpp - Backward passes in two parts, no bubble -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ZB-H2 of "Zero Bubble Pipeline Parallelism" (Qi et al., ICLR 2024). Role s of
// P runs 2 (P - 1 - s) forward passes ahead, twice as many as under 1F1B, and a
// weight part behind the input part that is 2 s micro-batches later. So every
// role holds min(2 P - 1, m) micro-batches, and where the three parts take one
// tick each no role stands still between its first and its last task. A step
// takes 3 m ticks on every role, and role s is s ticks later than the first.
//
// Messages. With passes of one tick it is known when each task runs. The
// gradient of an input leaves when its task has ended. An output leaves when
// the next stage is about to use it, or in front of the next output: earlier it
// would take one slot more. All messages of a role between two ticks are one
// grouped operation, so roles that pass messages on to each other in a row
// never wait in a circle, whatever passes take. A gradient may lie for two
// ticks, while other micro-batches go forward: what is sent and what is
// received have memory of their own.
//
// For times that are not alike passes are listed (ListedStages.h).
//
//===----------------------------------------------------------------------===//

#include "ListedStages.h"

#include <algorithm>
#include <map>

using namespace llvm;

namespace galvatron {
namespace {

/// The tasks of roles, tick by tick, where every task takes one.
class TickTable {
public:
  struct Entry {
    TaskKind kind;
    int64_t microBatch, tick;
  };
  struct Message {
    int64_t sender, receiver;
    TransferValue value;
    int64_t microBatch;
  };

  TickTable(int64_t roles, int64_t microBatches)
      : microBatches(microBatches), entries(roles),
        forwards(roles, std::vector<int64_t>(microBatches, -1)),
        inputs(forwards) {
    for (int64_t role = 0; role < roles; ++role)
      listTasks(role);
    runTasks();
    findMessages();
  }

  ArrayRef<Entry> of(int64_t role) const { return entries[role]; }
  /// Messages by the tick in front of which they are exchanged.
  const std::map<int64_t, std::vector<Message>> &exchanged() const {
    return messages;
  }
  int64_t ticks() const { return ticked; }

private:
  int64_t roles() const { return static_cast<int64_t>(entries.size()); }

  void listTasks(int64_t role) {
    std::vector<Entry> &list = entries[role];
    int64_t ahead = std::min(2 * (roles() - 1 - role), microBatches);
    int64_t behind = 2 * role;
    auto add = [&](TaskKind kind, int64_t mb) {
      if (mb >= 0 && mb < microBatches)
        list.push_back({kind, mb, -1});
    };
    for (int64_t mb = 0; mb < ahead; ++mb)
      add(TaskKind::Forward, mb);
    for (int64_t mb = 0; mb < microBatches; ++mb) {
      add(TaskKind::Forward, mb + ahead);
      add(TaskKind::BackwardInput, mb);
      add(TaskKind::BackwardWeight, mb - behind);
    }
    for (int64_t mb = std::max<int64_t>(microBatches - behind, 0);
         mb < microBatches; ++mb)
      add(TaskKind::BackwardWeight, mb);
  }

  /// True if all that a task needs of other roles is there.
  bool isReady(int64_t role, const Entry &entry, int64_t tick) const {
    auto ended = [&](int64_t began) { return began >= 0 && began < tick; };
    if (entry.kind == TaskKind::Forward)
      return role == 0 || ended(forwards[role - 1][entry.microBatch]);
    if (entry.kind == TaskKind::BackwardInput)
      return role + 1 == roles() || ended(inputs[role + 1][entry.microBatch]);
    return true;
  }

  void runTasks() {
    std::vector<size_t> next(entries.size(), 0);
    size_t left = 0;
    for (const std::vector<Entry> &list : entries)
      left += list.size();
    for (; left > 0; ++ticked)
      for (int64_t role = 0; role < roles(); ++role) {
        if (next[role] == entries[role].size())
          continue;
        Entry &entry = entries[role][next[role]];
        if (!isReady(role, entry, ticked))
          continue;
        entry.tick = ticked;
        if (entry.kind == TaskKind::Forward)
          forwards[role][entry.microBatch] = ticked;
        else if (entry.kind == TaskKind::BackwardInput)
          inputs[role][entry.microBatch] = ticked;
        ++next[role];
        --left;
      }
  }

  void findMessages() {
    for (int64_t role = 0; role + 1 < roles(); ++role)
      for (int64_t mb = 0; mb < microBatches; ++mb) {
        int64_t out = forwards[role + 1][mb];
        if (mb + 1 < microBatches)
          out = std::min(out, forwards[role][mb + 1]);
        messages[out].push_back(
            {role, role + 1, TransferValue::Activation, mb});
        int64_t back = inputs[role + 1][mb] + 1;
        if (mb > 0)
          back = std::max(back, inputs[role][mb - 1] + 1);
        messages[back].push_back({role + 1, role, TransferValue::Gradient, mb});
      }
  }

  int64_t microBatches, ticked = 0;
  std::vector<std::vector<Entry>> entries;
  std::vector<std::vector<int64_t>> forwards, inputs; ///< ticks
  std::map<int64_t, std::vector<Message>> messages;
};

class ZeroBubbleLong final : public ListedStages {
public:
  StringRef name() const override { return "zb-h2"; }
  bool separatesMessages(const ScheduleShape &shape) const override {
    return shape.roles > 1;
  }

  int64_t slots(const ScheduleShape &shape, int64_t /*chunk*/) const override {
    return std::min(2 * shape.roles - 1, shape.microBatches);
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return 2 * shape.roles - 1;
  }

private:
  TimeForm upperAlike(const ScheduleShape &shape) const override;
  TimeForm lowerAlike(const ScheduleShape &shape) const override {
    return lowerOfAny(shape);
  }
  void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                   int64_t role) const override;

  /// Returns no forms: nothing asks, as `upperAlike` has a form of its own.
  std::vector<RoleForm> slowest() const override { return {}; }
};

void ZeroBubbleLong::buildSteady(PartWriter &steady, const ScheduleShape &shape,
                                 int64_t role) const {
  TickTable table(shape.roles, shape.microBatches);
  auto message = table.exchanged().begin();
  auto exchangeUntil = [&](int64_t tick) {
    for (; message != table.exchanged().end() && message->first <= tick;
         ++message) {
      std::vector<PartWriter::Message> parts;
      for (const TickTable::Message &of : message->second)
        if (of.sender == role || of.receiver == role)
          parts.push_back({of.sender == role ? TransferDirection::Send
                                             : TransferDirection::Receive,
                           of.value, of.microBatch});
      if (!parts.empty())
        steady.exchange(parts);
    }
  };
  for (const TickTable::Entry &entry : table.of(role)) {
    exchangeUntil(entry.tick);
    if (entry.kind == TaskKind::Forward)
      steady.forward(entry.microBatch);
    else if (entry.kind == TaskKind::BackwardInput)
      steady.backwardInput(entry.microBatch);
    else
      steady.backwardWeight(entry.microBatch);
  }
  exchangeUntil(table.ticks());
}

TimeForm ZeroBubbleLong::upperAlike(const ScheduleShape &shape) const {
  // A task waits only for tasks and messages of ticks before it: so a tick ends
  // no later than the one before it by more than its longest task and its
  // messages. Beyond so many micro-batches each one adds the same three ticks.
  int64_t counted = std::min(shape.microBatches, 6 * shape.roles);
  TickTable table(shape.roles, counted);
  TimeBound bound;
  std::vector<TimeMaximum> ticks(table.ticks());
  for (TimeMaximum &tick : ticks)
    tick.at.resize(shape.roles);
  for (int64_t role = 0; role < shape.roles; ++role)
    for (const TickTable::Entry &entry : table.of(role))
      ticks[entry.tick].at[role].add(
          entry.kind == TaskKind::Forward         ? RoleTime::Forward
          : entry.kind == TaskKind::BackwardInput ? RoleTime::InputPart
                                                  : RoleTime::WeightPart,
          1);
  for (TimeMaximum &tick : ticks)
    bound.maxima.push_back({1, std::move(tick)});
  RoleTime const ofValue[] = {RoleTime::ActivationOut, RoleTime::GradientIn};
  double mixed = 0;
  for (const auto &[tick, messages] : table.exchanged()) {
    auto value = static_cast<size_t>(messages.front().value);
    bool alike = all_of(messages, [&](const TickTable::Message &message) {
      return message.value == messages.front().value;
    });
    // Messages of one kind use no end twice.
    if (alike)
      bound.maxima.push_back({1, largestOf({{ofValue[value], 1}})});
    else
      ++mixed;
  }
  auto more = static_cast<double>(shape.microBatches - counted);
  for (RoleTime time :
       {RoleTime::Forward, RoleTime::InputPart, RoleTime::WeightPart,
        RoleTime::ActivationOut, RoleTime::GradientIn})
    if (more > 0)
      bound.maxima.push_back({more, largestOf({{time, 1}})});
  bound.sum = {{RoleTime::ActivationOut, mixed},
               {RoleTime::GradientIn, mixed},
               {RoleTime::Behind, 1}};
  for (RoleTime time : {RoleTime::Tail, RoleTime::Norm, RoleTime::Update})
    bound.maxima.push_back({1, largestOf({{time, 1}})});
  return {bound};
}

} // namespace

std::unique_ptr<Schedule> makeZeroBubbleLong() {
  return std::make_unique<ZeroBubbleLong>();
}

} // namespace galvatron
