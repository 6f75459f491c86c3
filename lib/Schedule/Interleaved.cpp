//===- Interleaved.cpp - 1F1B over several chunks a stage -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Interleaved 1F1B (arXiv 2104.04473): a stage runs V chunks, chunk c of P * V
// on stage c mod P, so that filling and emptying the pipeline takes the V-th
// part.
//
// The order is that of a clock. Micro-batches go in groups of P, a group
// forward through a stage's chunks in ascending and backward in descending
// order. Stage p does its a-th forward at tick p + a, its b-th backward at tick
// p + w + b behind the forward of that tick, w = 2 (P - 1 - p) + (V - 1) P.
// Then what a chunk makes at one tick its neighbour uses at the next, in both
// directions and between the last stage and the first too. All messages between
// two ticks are one transfer of each stage, so both ends of every message stand
// in the transfer of one moment, and nobody can wait in a circle. Where P does
// not divide the number of micro-batches the last group leaves its other places
// empty: groups of more than P would need gradients to wait, which have one
// place, and were slower or stuck in all cases tried.
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {
namespace {

class Interleaved final : public SynchronousSchedule {
public:
  StringRef name() const override { return "interleaved"; }

  Error check(const ScheduleShape &shape) const override {
    if (shape.chunks < 2)
      return makeError("schedule 'interleaved' needs at least 2 chunks a "
                       "stage, found " +
                       Twine(shape.chunks));
    if (shape.roles < 2)
      return makeError(
          "schedule 'interleaved' needs at least 2 stages, found " +
          Twine(shape.roles));
    return Schedule::check(shape);
  }

  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return std::min(shape.microBatches, mostSlots(shape, chunk));
  }
  /// The first chunk of the first stage has the most.
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return mostSlots(shape, /*chunk=*/0);
  }

  TimeForm upper(const ScheduleShape &shape) const override;
  TimeForm lower(const ScheduleShape &shape) const override;

private:
  /// One chunk of a stage, on one micro-batch.
  struct Pass {
    int64_t chunk, microBatch;
  };

  static int64_t warmup(const ScheduleShape &shape, int64_t role) {
    return 2 * (shape.roles - 1 - role) + (shape.chunks - 1) * shape.roles;
  }
  /// Places of forwards, and of backwards, on a stage.
  static int64_t places(const ScheduleShape &shape) {
    int64_t groups = (shape.microBatches + shape.roles - 1) / shape.roles;
    return groups * shape.allChunks();
  }
  /// The pass in a place; nothing if it is empty.
  static std::optional<Pass> passAt(const ScheduleShape &shape, int64_t role,
                                    int64_t place, bool forward);
  /// Most slots of a chunk: the forward and the backward of a micro-batch lie
  /// as many ticks apart as warmup and the chunk's place in a group say;
  /// forwards of the chunk come P at a time, every P * V ticks.
  static int64_t mostSlots(const ScheduleShape &shape, int64_t chunk) {
    int64_t ofRole = chunk / shape.roles, group = shape.allChunks();
    int64_t ticks = warmup(shape, chunk % shape.roles) +
                    (shape.chunks - 1 - 2 * ofRole) * shape.roles + 1;
    return ticks / group * shape.roles + std::min(ticks % group, shape.roles);
  }

  void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                   int64_t role) const override {
    buildPart(program, shape, role, SchedulePart::Steady);
    buildPart(program, shape, role, SchedulePart::Evaluate);
  }
  static void buildPart(TaskProgram &program, const ScheduleShape &shape,
                        int64_t role, SchedulePart part);
};

std::optional<Interleaved::Pass> Interleaved::passAt(const ScheduleShape &shape,
                                                     int64_t role,
                                                     int64_t place,
                                                     bool forward) {
  if (place < 0 || place >= places(shape))
    return std::nullopt;
  int64_t group = place / shape.allChunks();
  int64_t ofRole = place % shape.allChunks() / shape.roles;
  int64_t microBatch = group * shape.roles + place % shape.roles;
  if (microBatch >= shape.microBatches)
    return std::nullopt;
  if (!forward)
    ofRole = shape.chunks - 1 - ofRole;
  return Pass{ofRole * shape.roles + role, microBatch};
}

void Interleaved::buildPart(TaskProgram &program, const ScheduleShape &shape,
                            int64_t role, SchedulePart part) {
  std::vector<Task> &tasks = program.roles[role].part(part);
  bool training = part == SchedulePart::Steady;
  int64_t ahead = warmup(shape, role);
  int64_t ticks = places(shape) + (training ? ahead : 0);
  // Parts of the transfer that comes next: what the last tick made, in front of
  // what the next one needs.
  std::vector<TransferPart> parts;
  auto add = [&](TransferDirection direction, TransferValue value,
                 const Pass &pass) {
    bool forNext = value == TransferValue::Activation;
    bool toNext = forNext == (direction == TransferDirection::Send);
    if (toNext ? program.isLastChunk(pass.chunk) : pass.chunk == 0)
      return;
    parts.push_back(
        transferPart(program, direction, value, pass.chunk, pass.microBatch));
  };
  auto addBoth = [&](TransferDirection direction,
                     const std::optional<Pass> &forward,
                     const std::optional<Pass> &backward) {
    if (forward)
      add(direction, TransferValue::Activation, *forward);
    if (backward)
      add(direction, TransferValue::Gradient, *backward);
  };
  auto flush = [&] {
    if (parts.empty())
      return;
    tasks.push_back(transferOf(std::move(parts)));
    parts.clear();
  };
  for (int64_t tick = 0; tick < ticks; ++tick) {
    std::optional<Pass> forward = passAt(shape, role, tick, true), backward;
    if (training)
      backward = passAt(shape, role, tick - ahead, false);
    addBoth(TransferDirection::Receive, forward, backward);
    // Over an empty tick too: what comes behind it belongs to another moment.
    flush();
    if (forward)
      tasks.push_back(computeTask(program, TaskKind::Forward, forward->chunk,
                                  forward->microBatch));
    if (backward)
      tasks.push_back(computeTask(program, TaskKind::Backward, backward->chunk,
                                  backward->microBatch));
    addBoth(TransferDirection::Send, forward, backward);
  }
  flush();
}

TimeForm Interleaved::upper(const ScheduleShape &shape) const {
  // The bound counts ticks: a tick is as long as the longest pass of all
  // stages, and forwards stand in as many ticks as backwards do.
  TimeBound bound;
  bound.sum = {{RoleTime::Behind, 1}};
  auto ticks = static_cast<double>(places(shape) + shape.roles - 1);
  for (RoleTime longest :
       {RoleTime::LongestForward, RoleTime::LongestBackward,
        RoleTime::LongestActivationOut, RoleTime::LongestGradientIn})
    bound.maxima.push_back({ticks, largestOf({{longest, 1}})});
  for (RoleTime end : {RoleTime::Tail, RoleTime::Norm, RoleTime::Update})
    bound.maxima.push_back({1, largestOf({{end, 1}})});
  return {bound};
}

TimeForm Interleaved::lower(const ScheduleShape &shape) const {
  return lowerOfChunks(shape, /*splitsBackward=*/false);
}

} // namespace

std::unique_ptr<Schedule> makeInterleaved() {
  return std::make_unique<Interleaved>();
}

} // namespace galvatron
