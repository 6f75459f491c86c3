//===- Synchronous.cpp - What synchronous schedules share -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include <cassert>
#include <limits>

using namespace llvm;

namespace galvatron {

//===----------------------------------------------------------------------===//
// What any schedule has
//===----------------------------------------------------------------------===//

Schedule::~Schedule() = default;

Error Schedule::check(const ScheduleShape &shape) const {
  if (shape.roles < 1)
    return makeError("expected at least one stage, found " +
                     Twine(shape.roles));
  if (shape.microBatches < 1)
    return makeError("expected at least one micro-batch, found " +
                     Twine(shape.microBatches));
  // Fields of a task's row.
  constexpr int64_t mostMicroBatches = std::numeric_limits<uint32_t>::max();
  constexpr int64_t mostSlots = std::numeric_limits<uint16_t>::max();
  if (shape.microBatches > mostMicroBatches)
    return makeError("expected at most " + Twine(mostMicroBatches) +
                     " micro-batches, found " + Twine(shape.microBatches));
  std::vector<int64_t> roleOf = homes(shape);
  for (size_t chunk = 0; chunk < roleOf.size(); ++chunk)
    if (int64_t held = slots(shape, roleOf[chunk], chunk); held > mostSlots)
      return makeError("schedule '" + name() + "' holds " + Twine(held) +
                       " micro-batches at once, expected at most " +
                       Twine(mostSlots));
  return Error::success();
}

std::vector<int64_t> Schedule::homes(const ScheduleShape &shape) const {
  std::vector<int64_t> roles(shape.roles);
  for (int64_t role = 0; role < shape.roles; ++role)
    roles[role] = role;
  return roles;
}

int64_t Schedule::weightVersions(const ScheduleShape & /*shape*/) const {
  return 1;
}
int64_t Schedule::gradientBuffers(const ScheduleShape & /*shape*/) const {
  return 1;
}
int64_t Schedule::delay(const ScheduleShape & /*shape*/) const { return 0; }

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

void PartWriter::recvActivation(int64_t microBatch) {
  if (!first)
    transfer(RecvActivation, 0, microBatch);
}
void PartWriter::sendActivation(int64_t microBatch) {
  if (!last)
    transfer(SendActivation, microBatch, 0);
}
void PartWriter::recvGradient(int64_t microBatch) {
  if (!last)
    transfer(RecvGradient, 0, microBatch);
}
void PartWriter::sendGradient(int64_t microBatch) {
  if (!first)
    transfer(SendGradient, microBatch, 0);
}
void PartWriter::sendActivationRecvGradient(int64_t sent, int64_t received) {
  if (!last)
    transfer(SendActivation | RecvGradient, sent, received);
}
void PartWriter::sendGradientRecvActivation(int64_t sent, int64_t received) {
  if (!first)
    transfer(SendGradient | RecvActivation, sent, received);
}

uint16_t PartWriter::slotOf(int64_t microBatch) const {
  return static_cast<uint16_t>(microBatch % slots);
}

void PartWriter::run(TaskKind kind, int64_t microBatch) {
  Task task;
  task.kind = kind;
  task.slot = slotOf(microBatch);
  task.microBatch = static_cast<uint32_t>(microBatch);
  tasks.push_back(task);
}

void PartWriter::transfer(int flags, int64_t sent, int64_t received) {
  Task task;
  task.kind = TaskKind::Transfer;
  task.flags = static_cast<uint8_t>(flags);
  task.sendMicroBatch = static_cast<uint32_t>(sent);
  task.recvMicroBatch = static_cast<uint32_t>(received);
  if (flags & RecvActivation)
    task.slot = slotOf(received);
  tasks.push_back(task);
}

TaskProgram SynchronousSchedule::build(const ScheduleShape &shape,
                                       std::vector<TieRoles> ties) const {
  assert(shape.roles >= 1 && shape.microBatches >= 1 && "an empty schedule");
  TaskProgram program;
  program.schedule = this;
  program.microBatches = shape.microBatches;
  program.ties = std::move(ties);
  program.roles.resize(shape.roles);
  for (int64_t number = 0; number < shape.roles; ++number) {
    RoleProgram &role = program.roles[number];
    role.slots = slots(shape, number, /*chunk=*/number);

    PartWriter steady(role.part(SchedulePart::Steady), number, shape.roles,
                      role.slots);
    buildSteady(steady, shape, number);

    PartWriter evaluate(role.part(SchedulePart::Evaluate), number, shape.roles,
                        role.slots);
    for (int64_t mb = 0; mb < shape.microBatches; ++mb) {
      evaluate.recvActivation(mb);
      evaluate.forward(mb);
      evaluate.sendActivation(mb);
    }

    bool tied = false;
    for (const TieRoles &tie : program.ties)
      tied |= tie.owner == number || tie.borrower == number;
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

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// The largest over all roles of the same form.
static TimeMaximum largestOf(RoleForm form) {
  TimeMaximum term;
  term.at = {form};
  return term;
}

TimeForm SynchronousSchedule::upper(const ScheduleShape &shape) const {
  TimeBound bound;
  // Until role 0 ends its last backward pass: one micro-batch there and back,
  // and what every other one adds.
  bound.sum = {{RoleTime::Forward, 1},
               {RoleTime::Backward, 1},
               {RoleTime::Behind, 1},
               {RoleTime::ActivationOut, 1},
               {RoleTime::GradientIn, 1}};
  auto others = static_cast<double>(shape.microBatches - 1);
  for (const RoleForm &form : slowest())
    bound.maxima.push_back({others, largestOf(form)});
  // Role s ends before role 0 by what comes in between; what is summed behind
  // its last backward pass is in the sum already.
  TimeMaximum tail = largestOf({{RoleTime::Tail, 1}});
  tail.before = {{RoleTime::Backward, -1}};
  bound.maxima.push_back({1, tail});
  bound.maxima.push_back({1, largestOf({{RoleTime::Norm, 1}})});
  bound.maxima.push_back({1, largestOf({{RoleTime::Update, 1}})});
  return {bound};
}

TimeForm SynchronousSchedule::lower(const ScheduleShape &shape) const {
  auto all = static_cast<double>(shape.microBatches);
  TimeMaximum busy, waits;
  // The last gradient goes through all roles before, and each of them ends the
  // step behind it.
  for (TimeMaximum *term : {&busy, &waits}) {
    term->chained = true;
    term->first = {{RoleTime::Tail, 1}, {RoleTime::Norm, 1}};
    term->between = {{RoleTime::GradientIn, 1}, {RoleTime::Backward, 1}};
  }
  // A role is never idle once it has begun ...
  busy.before = {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}};
  busy.at = {{{RoleTime::Forward, all},
              {RoleTime::Backward, all},
              {RoleTime::RoundNext, all},
              {RoleTime::RoundPrevious, all - 1}}};
  // ... or it is while the first micro-batch is away: all it can do then is
  // what it has slots for.
  waits.after = {{RoleTime::Backward, 1}, {RoleTime::GradientIn, 1}};
  for (int64_t role = 0; role < shape.roles; ++role) {
    double later = all - static_cast<double>(slots(shape, role, role));
    waits.at.push_back({{RoleTime::Forward, later},
                        {RoleTime::Backward, all - 1},
                        {RoleTime::RoundNext, later},
                        {RoleTime::RoundPrevious, later}});
  }
  TimeForm form(2);
  form[0].maxima.push_back({1, busy});
  form[1].sum = {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}};
  form[1].maxima.push_back({1, waits});
  for (TimeBound &bound : moreEnds(shape)) {
    TimeMaximum end;
    end.at.resize(shape.roles);
    end.at.front() = {{RoleTime::Tail, 1}, {RoleTime::Norm, 1}};
    bound.maxima.push_back({1, end});
    form.push_back(std::move(bound));
  }
  for (TimeBound &bound : form)
    bound.maxima.push_back({1, largestOf({{RoleTime::Update, 1}})});
  return form;
}

} // namespace galvatron
