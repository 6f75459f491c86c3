//===- ZeroBubbleV.cpp - Backward passes in two parts, chunks in a V ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ZB-V of "Zero Bubble Pipeline Parallelism" (Qi et al., ICLR 2024). Role r of
// P has chunks r and 2 P - 1 - r, so a micro-batch goes down the roles and up
// again, and the role that begins has the loss. Its gradient begins to come
// back where it is needed first, so that with half of the forward passes that
// ZB-H2 runs ahead, no more than 1F1B's, no role stands still between its first
// pass and its last where all passes take the same time.
//
// Passes are listed for the times they take (ListedPasses.h). Neighbours on one
// role are those at the bottom of the V: both ends of their messages are in one
// task of that role.
//
//===----------------------------------------------------------------------===//

#include "ListedPasses.h"
#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

using namespace llvm;

namespace galvatron {
namespace {

using Steps = std::vector<ListedStep>;

/// Steps in order, and those that concern a role.
struct Listed {
  Listed(Steps all, const VShape &shape)
      : steps(std::move(all)), ofRole(shape.roles) {
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

  Steps steps;
  std::vector<std::vector<uint32_t>> ofRole;
};

class ZeroBubbleV final : public SynchronousSchedule {
public:
  StringRef name() const override { return "zb-v"; }
  bool splitsBackward() const override { return true; }
  bool listsByTimes() const override { return true; }

  Error check(const ScheduleShape &shape) const override {
    if (shape.chunks != 2)
      return makeError("schedule 'zb-v' has 2 chunks a stage, found " +
                       Twine(shape.chunks));
    if (shape.roles < 2)
      return makeError("schedule 'zb-v' needs at least 2 stages, found " +
                       Twine(shape.roles));
    return Schedule::check(shape);
  }

  int64_t home(const ScheduleShape &shape, int64_t chunk) const override {
    return vOf(shape).home(chunk);
  }
  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return vOf(shape).slots(chunk);
  }
  /// From here on the last chunk has one.
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return 2 * shape.roles;
  }

  TimeForm upper(const ScheduleShape &shape) const override;
  TimeForm lower(const ScheduleShape &shape) const override;

private:
  static VShape vOf(const ScheduleShape &shape) {
    return {shape.roles, shape.microBatches};
  }
  std::shared_ptr<const Listed> stepsOf(const ScheduleShape &shape) const;
  std::shared_ptr<const Listed> forwardsOf(const ScheduleShape &shape) const;

  void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                   int64_t role) const override;
  static void buildPart(TaskProgram &program, const Listed &listed,
                        int64_t role, SchedulePart part);

  // Of one shape every role asks, and the forms of its time.
  using Key = std::tuple<int64_t, int64_t, std::vector<PassTimes>>;
  mutable std::mutex mutex;
  mutable std::map<Key, std::shared_ptr<const Listed>> listed;
  mutable std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const Listed>>
      forwards;
};

/// Lists that are kept.
constexpr size_t kMostListed = 64;

std::shared_ptr<const Listed>
ZeroBubbleV::stepsOf(const ScheduleShape &shape) const {
  std::vector<PassTimes> times = shape.passTimes;
  times.resize(shape.allChunks());
  Key key{shape.roles, shape.microBatches, times};
  std::lock_guard<std::mutex> lock(mutex);
  auto known = listed.find(key);
  if (known != listed.end())
    return known->second;
  if (listed.size() == kMostListed)
    listed.clear();
  VShape v = vOf(shape);
  return listed[key] = std::make_shared<const Listed>(listPasses(v, times), v);
}

std::shared_ptr<const Listed>
ZeroBubbleV::forwardsOf(const ScheduleShape &shape) const {
  std::lock_guard<std::mutex> lock(mutex);
  if (forwards.size() == kMostListed)
    forwards.clear();
  auto &known = forwards[{shape.roles, shape.microBatches}];
  VShape v = vOf(shape);
  if (!known)
    known = std::make_shared<const Listed>(listForwards(v), v);
  return known;
}

void ZeroBubbleV::buildPasses(TaskProgram &program, const ScheduleShape &shape,
                              int64_t role) const {
  buildPart(program, *stepsOf(shape), role, SchedulePart::Steady);
  buildPart(program, *forwardsOf(shape), role, SchedulePart::Evaluate);
}

void ZeroBubbleV::buildPart(TaskProgram &program, const Listed &listed,
                            int64_t role, SchedulePart part) {
  std::vector<Task> &tasks = program.roles[role].part(part);
  // Messages between two passes are one grouped operation, as far as one may
  // have them: one of each direction and value, and those that go from one role
  // to another in their order. That is to meet others no later, and in the same
  // order.
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
  for (uint32_t number : listed.ofRole[role]) {
    const ListedStep &step = listed.steps[number];
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
        return other.direction == end.direction &&
               (other.value == end.value ||
                (peerRole(other) == peerRole(end) && standsBefore(end, other)));
      });
    };
    if (llvm::any_of(ends, cannotJoin))
      flush();
    llvm::append_range(parts, ends);
  }
  flush();
}

TimeForm ZeroBubbleV::upper(const ScheduleShape &shape) const {
  // Passes come in levels: one behind all that it waits for. A chain of waits
  // has at most one pass of every level, and so many messages.
  struct Reached {
    size_t level = 0;
    int64_t messages[2] = {0, 0}; ///< by value
  };
  VShape v = vOf(shape);
  std::vector<Reached> reached(shape.roles);
  std::vector<TimeMaximum> levels;
  for (const ListedStep &step : stepsOf(shape)->steps) {
    Reached &role = reached[v.home(step.chunk)];
    if (step.kind == TaskKind::Transfer) {
      bool isGradient = step.value == TransferValue::Gradient;
      Reached &other =
          reached[v.home(isGradient ? step.chunk - 1 : step.chunk + 1)];
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
    levels[role.level++].at[v.home(step.chunk)].add(
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

TimeForm ZeroBubbleV::lower(const ScheduleShape &shape) const {
  return lowerOfChunks(shape, /*splitsBackward=*/true);
}

} // namespace

std::unique_ptr<Schedule> makeZeroBubbleV() {
  return std::make_unique<ZeroBubbleV>();
}

} // namespace galvatron
