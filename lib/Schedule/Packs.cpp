//===- Packs.cpp - Packs of layers that take turns on few devices ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pipeline of Harmony (VLDB 2022, docs/harmony.md). Forward and backward
// have packs of layers of their own, which are bound to the devices in turn:
// forward pack i to device i mod N, and behind them backward packs from the
// last one on. All states have their home on the host, and a device has the
// pack that runs. A pack runs all micro-batches of the step before the next one
// comes, so it comes once. The last backward pack runs its layers forward too,
// where the forward packs end. The others run them again, from what went into
// their first layer: whoever ran that forward has sent it to their home.
//
// The order is that of a clock, as of the interleaved schedule: at a tick every
// role runs its next pass if what that needs has come. All messages between two
// ticks are one transfer of each role, behind which stashes are sent one by one
// in the order of the packs; so transfers stand in the same order everywhere,
// and nobody can wait in a circle. What comes while its receiver is busy with
// the pack before waits in a place there, of which a role has as many as are
// taken at once.
//
// Forward packs may have micro-batches of another size. What goes home from
// them is regrouped there: a slot is as large as the larger of the two, and is
// filled and read in parts of the smaller. What the last forward pack makes
// goes home as well then, since the last pack runs it in other micro-batches.
//
// With data parallelism there is one role, whose ranks all run the same packs
// on their share of every micro-batch. Gradients are summed over them at home.
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

using namespace llvm;

namespace galvatron {
namespace {

/// One part of a step, or evaluation, of all roles.
class Clock {
public:
  Clock(TaskProgram &program, SchedulePart part)
      : program(program), part(part), training(part == SchedulePart::Steady),
        roles(program.roles.size()) {
    int64_t chunks = static_cast<int64_t>(program.chunks.size());
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      if (program.chunks[chunk].forwardOnly)
        append(chunk);
    for (int64_t chunk = chunks - 1; chunk >= program.forwardPacks(); --chunk)
      if (training || program.isLastChunk(chunk))
        append(chunk);
  }

  void run() {
    while (any_of(roles, [](const Role &role) {
      return role.next < role.passes.size();
    })) {
      std::vector<Pass> ran;
      for (Role &role : roles)
        if (role.next < role.passes.size() && isReady(role, role.next))
          ran.push_back(role.passes[role.next++]);
      assert(!ran.empty() && "a pass waits for one before it only");
      for (const Pass &pass : ran)
        runPass(pass);
      deliver(ran);
      sendStashes(ran);
    }
  }

private:
  struct Pass {
    TaskKind kind;
    int64_t chunk, microBatch;
  };
  /// A message that waits to be used.
  using Message = std::tuple<TransferValue, int64_t, int64_t>;
  struct Role {
    std::vector<Pass> passes;
    size_t next = 0;
    std::map<Message, uint16_t> waiting; ///< and its place
    std::set<uint16_t> freePlaces;
    int64_t places = 0;
  };

  int64_t roleOf(int64_t chunk) const { return program.chunks[chunk].role; }
  std::vector<Task> &tasksOf(int64_t chunk) {
    return program.roles[roleOf(chunk)].part(part);
  }

  /// Appends all passes of a pack.
  void append(int64_t chunk) {
    Role &role = roles[roleOf(chunk)];
    for (int64_t mb = 0; mb < program.microBatchesOf(chunk); ++mb) {
      role.passes.push_back({TaskKind::Forward, chunk, mb});
      if (training && !program.chunks[chunk].forwardOnly)
        role.passes.push_back({TaskKind::Backward, chunk, mb});
    }
  }

  int64_t peerOf(TransferDirection direction, TransferValue value,
                 int64_t chunk) const {
    TransferPart end;
    end.direction = direction;
    end.value = value;
    end.chunk = static_cast<uint16_t>(chunk);
    return program.peerOf(end);
  }

  /// The message that a pass uses; null if it needs none.
  std::optional<Message> needOf(const Pass &pass) const {
    TransferValue value = pass.kind == TaskKind::Forward
                              ? TransferValue::Activation
                              : TransferValue::Gradient;
    if (peerOf(TransferDirection::Receive, value, pass.chunk) < 0)
      return std::nullopt;
    return Message(value, pass.chunk, pass.microBatch);
  }

  bool isReady(const Role &role, size_t next) const {
    const Pass &pass = role.passes[next];
    if (pass.kind == TaskKind::Forward &&
        program.chunks[pass.chunk].stashFrom >= 0) {
      int64_t end = program.firstPartOf(pass.chunk, pass.microBatch + 1);
      for (int64_t part = program.firstPartOf(pass.chunk, pass.microBatch);
           part < end; ++part)
        if (!stashes.count({pass.chunk, part}))
          return false;
      return true;
    }
    std::optional<Message> need = needOf(pass);
    return !need || role.waiting.count(*need);
  }

  void runPass(const Pass &pass) {
    std::vector<Task> &tasks = tasksOf(pass.chunk);
    Task task;
    task.kind = pass.kind;
    task.chunk = static_cast<uint16_t>(pass.chunk);
    task.microBatch = static_cast<uint32_t>(pass.microBatch);
    if (pass.kind == TaskKind::Forward &&
        program.chunks[pass.chunk].stashFrom >= 0) {
      Task swap = task;
      swap.kind = TaskKind::Swap;
      swap.classes = SwapActivations;
      swap.slot =
          static_cast<uint16_t>(program.groupOf(pass.chunk, pass.microBatch));
      tasks.push_back(std::move(swap));
    }
    Role &role = roles[roleOf(pass.chunk)];
    if (std::optional<Message> need = needOf(pass)) {
      auto it = role.waiting.find(*need);
      task.slot = it->second;
      role.freePlaces.insert(it->second);
      role.waiting.erase(it);
    }
    tasks.push_back(std::move(task));
  }

  /// Messages of passes that ran at one tick, one transfer of each role.
  void deliver(ArrayRef<Pass> ran) {
    std::map<int64_t, std::vector<TransferPart>> parts;
    for (const Pass &pass : ran) {
      TransferPart sent;
      sent.value = pass.kind == TaskKind::Forward ? TransferValue::Activation
                                                  : TransferValue::Gradient;
      sent.chunk = static_cast<uint16_t>(pass.chunk);
      sent.microBatch = static_cast<uint32_t>(pass.microBatch);
      int64_t peer = program.peerOf(sent);
      if (peer < 0)
        continue;
      sent.peerChunk = static_cast<uint16_t>(peer);
      TransferPart received = sent;
      received.direction = TransferDirection::Receive;
      std::swap(received.chunk, received.peerChunk);
      received.slot =
          takePlace(roleOf(peer), {sent.value, peer, pass.microBatch});
      std::vector<TransferPart> &here = parts[roleOf(pass.chunk)];
      here.insert(here.begin(), sent);
      parts[roleOf(peer)].push_back(received);
    }
    for (auto &[role, messages] : parts)
      transfer(role, std::move(messages));
  }

  uint16_t takePlace(int64_t number, const Message &message) {
    Role &role = roles[number];
    if (role.freePlaces.empty())
      role.freePlaces.insert(static_cast<uint16_t>(role.places++));
    uint16_t place = *role.freePlaces.begin();
    role.freePlaces.erase(place);
    role.waiting[message] = place;
    int64_t &most = program.roles[number].waitingPlaces;
    most = std::max(most, role.places);
    return place;
  }

  /// The chunks that receive what is regrouped: in an evaluation none that
  /// would recompute from it.
  std::vector<int64_t> receiversOf(int64_t chunk) const {
    std::vector<int64_t> receivers;
    if (training)
      receivers = program.stashesOf(chunk);
    if (program.sendsHome(chunk))
      receivers.push_back(static_cast<int64_t>(program.chunks.size()) - 1);
    return receivers;
  }

  void sendStashes(ArrayRef<Pass> ran) {
    std::map<int64_t, Pass> senders; // by receiver
    for (const Pass &pass : ran)
      if (pass.kind == TaskKind::Forward)
        for (int64_t receiver : receiversOf(pass.chunk))
          senders.insert({receiver, pass});
    for (const auto &[receiver, pass] : senders) {
      TransferPart sent;
      sent.value = TransferValue::Stash;
      sent.chunk = static_cast<uint16_t>(pass.chunk);
      sent.peerChunk = static_cast<uint16_t>(receiver);
      sent.microBatch = static_cast<uint32_t>(pass.microBatch);
      TransferPart received = sent;
      received.direction = TransferDirection::Receive;
      std::swap(received.chunk, received.peerChunk);
      received.slot =
          static_cast<uint16_t>(program.groupOf(pass.chunk, pass.microBatch));
      int64_t end = program.firstPartOf(pass.chunk, pass.microBatch + 1);
      for (int64_t part = program.firstPartOf(pass.chunk, pass.microBatch);
           part < end; ++part)
        stashes.insert({receiver, part});
      if (roleOf(pass.chunk) == roleOf(receiver)) {
        transfer(roleOf(receiver), {sent, received});
        continue;
      }
      transfer(roleOf(pass.chunk), {sent});
      transfer(roleOf(receiver), {received});
    }
  }

  void transfer(int64_t role, std::vector<TransferPart> parts) {
    program.roles[role].part(part).push_back(transferOf(std::move(parts)));
  }

  TaskProgram &program;
  SchedulePart part;
  bool training;
  std::vector<Role> roles;
  /// Parts that are at home, by the chunk that takes them.
  std::set<std::pair<int64_t, int64_t>> stashes;
};

class Packs final : public Schedule {
public:
  explicit Packs(bool dataParallel) : dataParallel(dataParallel) {}

  StringRef name() const override {
    return dataParallel ? "harmony-dp" : "harmony-pp";
  }

  bool runsPacks() const override { return true; }

  Error check(const ScheduleShape &shape) const override {
    if (!shape.hasPacks())
      return makeError("schedule '" + name() +
                       "' runs packs of layers, which '--space=" + name() +
                       "' plans; found none");
    if (dataParallel && shape.roles != 1)
      return makeError("schedule '" + name() +
                       "' runs all packs on every device: expected one stage, "
                       "found " +
                       Twine(shape.roles));
    if (shape.residentChunks != 1 || !shape.slotsAtHome)
      return makeError("schedule '" + name() +
                       "' needs states and stashes with their home on the host "
                       "('--offload=all')");
    auto ascend = [](ArrayRef<int64_t> packs) {
      return packs.empty() ||
             (packs.front() == 0 &&
              std::adjacent_find(packs.begin(), packs.end(),
                                 std::greater_equal<>()) == packs.end());
    };
    if (!ascend(shape.forwardPacks) || !ascend(shape.backwardPacks))
      return makeError("schedule '" + name() +
                       "': expected first layers of packs "
                       "that begin with layer 0 and ascend");
    if (shape.forwardPacks.empty() != (shape.backwardPacks.size() == 1) ||
        (!shape.forwardPacks.empty() &&
         shape.forwardPacks.back() >= shape.backwardPacks.back()))
      return makeError("schedule '" + name() +
                       "': expected forward packs of the "
                       "layers in front of the last backward pack");
    if (Error error = checkSizes(shape))
      return error;
    if (shape.runCount() < shape.roles)
      return makeError("schedule '" + name() +
                       "': expected at least a backward "
                       "pack for each of " +
                       Twine(shape.roles) + " devices, found " +
                       Twine(shape.runCount()));
    return Schedule::check(shape);
  }

  /// Backward packs go on, from the last one, where forward packs end.
  int64_t home(const ScheduleShape &shape, int64_t chunk) const override {
    auto forward = static_cast<int64_t>(shape.forwardPacks.size());
    if (chunk < forward)
      return chunk % shape.roles;
    return (forward + shape.allChunks() - 1 - chunk) % shape.roles;
  }

  /// The slots are at home and hold the inputs, of all micro-batches, of packs
  /// that take them from there.
  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return stashFrom(shape, chunk) < 0 ? 0 : shape.groups();
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape & /*shape*/) const override {
    return std::nullopt;
  }
  bool separatesMessages(const ScheduleShape & /*shape*/) const override {
    return true;
  }
  int64_t waitingPlaces(const ScheduleShape &shape,
                        int64_t role) const override {
    return build(shape).roles[role].waitingPlaces;
  }

  TaskProgram build(const ScheduleShape &shape,
                    std::vector<TieRoles> ties = {}) const override {
    TaskProgram program = emptyProgram(*this, shape, std::move(ties));
    program.hasPacks = true;
    program.forwardMicroBatches =
        shape.regroups() ? shape.forwardMicroBatches : 0;
    for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk) {
      program.chunks[chunk].forwardOnly = chunk < shape.chunkOfRun(0);
      program.chunks[chunk].stashFrom = stashFrom(shape, chunk);
    }
    Clock(program, SchedulePart::Steady).run();
    Clock(program, SchedulePart::Evaluate).run();
    for (int64_t role = 0; role < shape.roles; ++role)
      buildStepEnd(program, role, /*withNorm=*/true);
    insertSwaps(program, shape.residentChunks);
    return program;
  }

  // A step is simulated with its packs (Simulate/Harmony.h), which knows what
  // is beside what. These hold of any order: passes of all roles one after the
  // other, and those of the busiest.
  TimeForm upper(const ScheduleShape &shape) const override {
    TimeBound bound;
    auto all = static_cast<double>(shape.microBatches);
    bound.sum = {{RoleTime::Forward, 2 * all},
                 {RoleTime::Backward, all},
                 {RoleTime::ActivationOut, all},
                 {RoleTime::GradientOut, all},
                 {RoleTime::Behind, 1},
                 {RoleTime::Tail, 1},
                 {RoleTime::Norm, 1},
                 {RoleTime::Update, 1}};
    return {bound};
  }
  TimeForm lower(const ScheduleShape &shape) const override {
    TimeBound bound;
    auto all = static_cast<double>(shape.microBatches);
    bound.maxima.push_back({1, largestOf({{RoleTime::Forward, all},
                                          {RoleTime::Backward, all},
                                          {RoleTime::Norm, 1},
                                          {RoleTime::Update, 1}})});
    return {bound};
  }

private:
  bool dataParallel; ///< of every device on its share of the samples

  /// Checks that what is regrouped is cut into whole micro-batches.
  Error checkSizes(const ScheduleShape &shape) const {
    int64_t forward = shape.forwardMicroBatches, backward = shape.microBatches;
    if (forward < 0)
      return makeError("schedule '" + name() +
                       "': expected at least 1 micro-batch of forward packs, "
                       "found " +
                       Twine(forward));
    if (!shape.regroups() || backward < 1)
      return Error::success();
    std::string found = (", found " + Twine(forward) + " of forward and " +
                         Twine(backward) + " of backward packs")
                            .str();
    if (shape.forwardPacks.empty())
      return makeError("schedule '" + name() +
                       "': expected as many micro-batches of either direction "
                       "where one pack has the whole model" +
                       found);
    if (std::max(forward, backward) % shape.groups() != 0)
      return makeError("schedule '" + name() +
                       "' regroups whole micro-batches: expected as many of "
                       "one direction as of the other, or a multiple" +
                       found);
    return Error::success();
  }

  /// The forward pack in which the input of a backward pack is; none for the
  /// first, which reads data, and for the last, which goes on where forward
  /// packs end, unless that is regrouped at home.
  static int64_t stashFrom(const ScheduleShape &shape, int64_t chunk) {
    int64_t run = chunk - shape.chunkOfRun(0);
    if (shape.regroups() && run > 0 && run + 1 == shape.runCount())
      return static_cast<int64_t>(shape.forwardPacks.size()) - 1;
    if (run < 1 || run + 1 >= shape.runCount())
      return -1;
    const std::vector<int64_t> &packs = shape.forwardPacks;
    return std::upper_bound(packs.begin(), packs.end(),
                            shape.backwardPacks[run]) -
           packs.begin() - 1;
  }
};

} // namespace

namespace {

/// Follows one part of a role's tasks.
class WaitingFollower {
public:
  explicit WaitingFollower(int64_t places)
      : held(static_cast<size_t>(places)) {}

  void follow(ArrayRef<Task> tasks) {
    int64_t there = -1; // the chunk on the devices
    for (const Task &task : tasks) {
      if (task.kind == TaskKind::Transfer) {
        for (const TransferPart &part : task.parts)
          if (!part.sends() && part.value != TransferValue::Stash &&
              part.slot < held.size())
            held[part.slot] = {part.chunk, part.microBatch, part.value};
      } else if (task.computes() || task.kind == TaskKind::Swap) {
        there = task.chunk;
      } else {
        continue;
      }
      note(there);
      // A pass without a message names place 0.
      Message used = {task.chunk, task.microBatch,
                      task.kind == TaskKind::Forward ? TransferValue::Activation
                                                     : TransferValue::Gradient};
      if (task.computes() && task.slot < held.size() && held[task.slot] == used)
        held[task.slot].reset();
    }
  }

  WaitingMessages result() const {
    WaitingMessages waiting;
    for (const auto &[pair, places] : uses)
      waiting.uses.push_back({pair.first, pair.second, places});
    waiting.together.assign(together.begin(), together.end());
    return waiting;
  }

private:
  using Message = std::tuple<int64_t, int64_t, TransferValue>;

  void note(int64_t there) {
    std::set<int64_t> chunks;
    for (auto [place, message] : enumerate(held)) {
      if (!message)
        continue;
      int64_t chunk = std::get<0>(*message);
      int64_t &places = uses[{there, chunk}];
      places = std::max(places, static_cast<int64_t>(place) + 1);
      for (int64_t other : chunks)
        if (other != chunk)
          together.insert(std::minmax(other, chunk));
      chunks.insert(chunk);
    }
  }

  std::vector<std::optional<Message>> held; ///< by place
  std::map<std::pair<int64_t, int64_t>, int64_t> uses;
  std::set<std::pair<int64_t, int64_t>> together;
};

} // namespace

WaitingMessages waitingMessages(const TaskProgram &program, int64_t role) {
  const RoleProgram &tasks = program.roles[role];
  WaitingFollower follower(tasks.waitingPlaces);
  for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Evaluate})
    follower.follow(tasks.part(part));
  return follower.result();
}

std::unique_ptr<Schedule> makePacks() {
  return std::make_unique<Packs>(/*dataParallel=*/false);
}

std::unique_ptr<Schedule> makeDataParallelPacks() {
  return std::make_unique<Packs>(/*dataParallel=*/true);
}

} // namespace galvatron
