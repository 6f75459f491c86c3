//===- Synchronous.cpp - What synchronous schedules share -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <limits>

using namespace llvm;

namespace galvatron {

//===----------------------------------------------------------------------===//
// Common parts of all schedules
//===----------------------------------------------------------------------===//

Schedule::~Schedule() = default;

Error Schedule::check(const ScheduleShape &shape) const {
  if (shape.hasPacks() && !runsPacks())
    return makeError("schedule '" + name() +
                     "' has the chunks of its stages, no packs of layers");
  if (shape.roles < 1)
    return makeError("expected at least one stage, found " +
                     Twine(shape.roles));
  if (shape.microBatches < 1)
    return makeError("expected at least one micro-batch, found " +
                     Twine(shape.microBatches));
  if (shape.chunks < 1)
    return makeError("expected at least one chunk a stage, found " +
                     Twine(shape.chunks));
  if (shape.residentChunks < 0 || shape.residentChunks > shape.chunks)
    return makeError("expected 0 to " + Twine(shape.chunks) +
                     " resident chunks of a stage, found " +
                     Twine(shape.residentChunks));
  if (shape.justInTime && shape.residentChunks == 0)
    return makeError("updates behind backward passes are done at home: "
                     "expected states with their home on the host");
  if (shape.updateOnDevice && !shape.justInTime)
    return makeError("packs are updated on the devices behind their backward "
                     "passes: expected 'just-in-time'");
  if (shape.updateOnDevice && !runsPacks())
    return makeError("schedule '" + name() +
                     "' updates states at home: expected packs of layers "
                     "('harmony-pp' or 'harmony-dp') for 'update-on-device'");
  if (shape.slotsAtHome && shape.residentChunks == 0)
    return makeError("activations go home with the states: expected states "
                     "with their home on the host");
  if (shape.slotsAtHome && splitsBackward())
    return makeError("schedule '" + name() +
                     "' needs activations again for weight parts: expected "
                     "them on the devices");
  if (shape.residentChunks > 0 && shape.residentChunks < shape.chunks &&
      splitsBackward())
    return makeError("schedule '" + name() +
                     "' comes back to a chunk for its weight parts: expected "
                     "all chunks of a stage on its devices");
  if (shape.bringsAhead && shape.residentChunks != 2)
    return makeError("parameters are brought ahead to a second place on the "
                     "devices: expected two chunks of a stage or more, found " +
                     Twine(shape.chunks));
  if (!shape.passTimes.empty() && !listsByTimes())
    return makeError("schedule '" + name() +
                     "' has one order of passes: expected no times that they "
                     "take");
  if (!shape.passTimes.empty() &&
      static_cast<int64_t>(shape.passTimes.size()) != shape.allChunks())
    return makeError("expected the times of " + Twine(shape.allChunks()) +
                     " chunks, found " + Twine(shape.passTimes.size()));
  for (const PassTimes &times : shape.passTimes)
    for (int64_t time :
         {times.forward, times.input, times.weight, times.message})
      if (time < 0 || time > PassTimes::kMost)
        return makeError("expected times of passes from 0 to " +
                         Twine(PassTimes::kMost) + ", found " + Twine(time));
  // Fields of a task's row.
  constexpr int64_t mostMicroBatches = std::numeric_limits<uint32_t>::max();
  constexpr int64_t mostSlots = std::numeric_limits<uint16_t>::max();
  constexpr int64_t mostChunks = std::numeric_limits<uint16_t>::max();
  if (shape.roles > mostChunks / shape.chunks)
    return makeError("expected at most " + Twine(mostChunks) +
                     " chunks, found " + Twine(shape.chunks) + " of each of " +
                     Twine(shape.roles) + " stages");
  if (shape.microBatches > mostMicroBatches)
    return makeError("expected at most " + Twine(mostMicroBatches) +
                     " micro-batches, found " + Twine(shape.microBatches));
  for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
    if (int64_t held = slots(shape, chunk); held > mostSlots)
      return makeError("schedule '" + name() + "' holds " + Twine(held) +
                       " micro-batches at once, expected at most " +
                       Twine(mostSlots));
  return Error::success();
}

int64_t Schedule::home(const ScheduleShape &shape, int64_t chunk) const {
  return chunk % shape.roles;
}

int64_t Schedule::weightVersions(const ScheduleShape & /*shape*/) const {
  return 1;
}
int64_t Schedule::gradientBuffers(const ScheduleShape & /*shape*/) const {
  return 1;
}
int64_t Schedule::delay(const ScheduleShape & /*shape*/) const { return 0; }
bool Schedule::splitsBackward() const { return false; }
bool Schedule::listsByTimes() const { return false; }
bool Schedule::runsPacks() const { return false; }
int64_t Schedule::waitingPlaces(const ScheduleShape & /*shape*/,
                                int64_t /*role*/) const {
  return 0;
}
WaitingMessages Schedule::waitingMessages(const ScheduleShape &shape,
                                          int64_t role) const {
  return runsPacks() ? galvatron::waitingMessages(build(shape), role)
                     : WaitingMessages();
}
bool Schedule::separatesMessages(const ScheduleShape &shape) const {
  return shape.chunks > 1;
}

ScheduleShape ScheduleShape::of(const TaskProgram &program,
                                int64_t microBatches) {
  auto roles = static_cast<int64_t>(program.roles.size());
  ScheduleShape shape{roles,
                      microBatches,
                      static_cast<int64_t>(program.chunks.size()) / roles,
                      program.residentChunks,
                      program.justInTime,
                      program.slotsAtHome,
                      program.delayedNorm,
                      program.passTimes};
  shape.homesByLayer = program.homesByLayer;
  shape.bringsAhead = program.bringsAhead;
  shape.updateOnDevice = program.updateOnDevice;
  return shape;
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

Task computeTask(const TaskProgram &program, TaskKind kind, int64_t chunk,
                 int64_t microBatch) {
  Task task;
  task.kind = kind;
  task.chunk = static_cast<uint16_t>(chunk);
  task.slot = static_cast<uint16_t>(microBatch % program.chunks[chunk].slots);
  task.generation = static_cast<uint8_t>(microBatch / program.microBatches);
  task.microBatch = static_cast<uint32_t>(microBatch % program.microBatches);
  return task;
}

TransferPart transferPart(const TaskProgram &program,
                          TransferDirection direction, TransferValue value,
                          int64_t chunk, int64_t microBatch) {
  bool sends = direction == TransferDirection::Send;
  bool toNext = sends == (value == TransferValue::Activation);
  TransferPart part;
  part.direction = direction;
  part.value = value;
  part.chunk = static_cast<uint16_t>(chunk);
  part.peerChunk = static_cast<uint16_t>(toNext ? chunk + 1 : chunk - 1);
  part.generation = static_cast<uint8_t>(microBatch / program.microBatches);
  part.microBatch = static_cast<uint32_t>(microBatch % program.microBatches);
  if (!sends && value == TransferValue::Activation)
    part.slot = static_cast<uint16_t>(microBatch % program.chunks[chunk].slots);
  return part;
}

void PartWriter::recvActivation(int64_t microBatch) {
  if (!isFirst())
    transfer({part(TransferDirection::Receive, TransferValue::Activation,
                   microBatch)});
}
void PartWriter::sendActivation(int64_t microBatch) {
  if (!isLast())
    transfer(
        {part(TransferDirection::Send, TransferValue::Activation, microBatch)});
}
void PartWriter::recvGradient(int64_t microBatch) {
  if (!isLast())
    transfer({part(TransferDirection::Receive, TransferValue::Gradient,
                   microBatch)});
}
void PartWriter::sendGradient(int64_t microBatch) {
  if (!isFirst())
    transfer(
        {part(TransferDirection::Send, TransferValue::Gradient, microBatch)});
}
void PartWriter::exchange(ArrayRef<Message> messages) {
  std::vector<TransferPart> parts;
  for (const Message &message : messages)
    parts.push_back(part(message.direction, message.value, message.microBatch));
  transfer(std::move(parts));
}
void PartWriter::sendActivationRecvGradient(int64_t sent, int64_t received) {
  if (!isLast())
    transfer(
        {part(TransferDirection::Send, TransferValue::Activation, sent),
         part(TransferDirection::Receive, TransferValue::Gradient, received)});
}
void PartWriter::sendGradientRecvActivation(int64_t sent, int64_t received) {
  if (!isFirst())
    transfer({part(TransferDirection::Send, TransferValue::Gradient, sent),
              part(TransferDirection::Receive, TransferValue::Activation,
                   received)});
}

void PartWriter::run(TaskKind kind, int64_t microBatch) {
  tasks.push_back(computeTask(program, kind, role, microBatch));
}

TransferPart PartWriter::part(TransferDirection direction, TransferValue value,
                              int64_t microBatch) const {
  return transferPart(program, direction, value, role, microBatch);
}

void PartWriter::transfer(std::vector<TransferPart> parts) {
  tasks.push_back(transferOf(std::move(parts)));
}

TaskProgram emptyProgram(const Schedule &schedule, const ScheduleShape &shape,
                         std::vector<TieRoles> ties) {
  assert(shape.roles >= 1 && shape.microBatches >= 1 && "an empty schedule");
  TaskProgram program;
  program.schedule = &schedule;
  program.microBatches = shape.microBatches;
  program.weightVersions = schedule.weightVersions(shape);
  program.delay = schedule.delay(shape);
  program.delayedNorm = shape.delayedNorm;
  program.passTimes = shape.passTimes;
  program.separatesMessages = schedule.separatesMessages(shape);
  program.justInTime = shape.justInTime;
  program.updateOnDevice = shape.updateOnDevice;
  program.slotsAtHome = shape.slotsAtHome;
  program.bringsAhead = shape.bringsAhead;
  program.homesByLayer = shape.homesByLayer;
  program.ties = std::move(ties);
  for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
    program.chunks.push_back(
        {schedule.home(shape, chunk), schedule.slots(shape, chunk)});
  program.roles.resize(shape.roles);
  return program;
}

void buildStepEnd(TaskProgram &program, int64_t role, bool withNorm) {
  bool tied = any_of(program.ties, [role](const TieRoles &tie) {
    return tie.owner == role || tie.borrower == role;
  });
  bool sums = program.sumsTied(role);
  std::vector<Task> &end = program.roles[role].part(SchedulePart::StepEnd);
  auto append = [&](TaskKind kind, int64_t chunk = 0) {
    Task task;
    task.kind = kind;
    task.chunk = static_cast<uint16_t>(chunk);
    end.push_back(task);
  };
  std::vector<int64_t> chunks = program.chunksOf(role);
  llvm::erase_if(chunks, [&](int64_t chunk) {
    return program.updatesBehind(chunk) || program.chunks[chunk].forwardOnly;
  });
  // The last chunk ends its backward passes first.
  for (int64_t chunk : reverse(chunks))
    append(TaskKind::SyncGradients, chunk);
  if (sums)
    append(TaskKind::TieReduce);
  if (withNorm)
    append(TaskKind::Norm);
  for (int64_t chunk : chunks)
    append(TaskKind::Update, chunk);
  if (tied)
    append(TaskKind::TieBroadcast);
}

void buildEvaluate(TaskProgram &program, int64_t role) {
  PartWriter evaluate(program, program.roles[role].part(SchedulePart::Evaluate),
                      role);
  for (int64_t mb = 0; mb < program.microBatches; ++mb) {
    evaluate.recvActivation(mb);
    evaluate.forward(mb);
    evaluate.sendActivation(mb);
  }
}

TaskProgram SynchronousSchedule::build(const ScheduleShape &shape,
                                       std::vector<TieRoles> ties) const {
  TaskProgram program = emptyProgram(*this, shape, std::move(ties));
  for (int64_t role = 0; role < shape.roles; ++role) {
    buildPasses(program, shape, role);
    buildStepEnd(program, role, /*withNorm=*/true);
  }
  if (shape.residentChunks > 0)
    insertSwaps(program, shape.residentChunks);
  return program;
}

Error WholeStageSchedule::check(const ScheduleShape &shape) const {
  if (shape.chunks > 1)
    return makeError("schedule '" + name() + "' has one chunk a stage, found " +
                     Twine(shape.chunks));
  return Schedule::check(shape);
}

void WholeStageSchedule::buildPasses(TaskProgram &program,
                                     const ScheduleShape &shape,
                                     int64_t number) const {
  RoleProgram &role = program.roles[number];
  PartWriter steady(program, role.part(SchedulePart::Steady), number);
  buildSteady(steady, shape, number);
  buildEvaluate(program, number);
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

TimeMaximum largestOf(RoleForm form) {
  TimeMaximum term;
  term.at = {form};
  return term;
}

TimeForm lowerOfChunks(const ScheduleShape &shape, bool splitsBackward) {
  auto all = static_cast<double>(shape.microBatches);
  RoleTime back = splitsBackward ? RoleTime::InputPart : RoleTime::Backward;
  RoleTime firstBack =
      splitsBackward ? RoleTime::FirstInputPart : RoleTime::FirstBackward;
  TimeForm form;
  auto add = [&form](RoleForm sum, TimeMaximum maximum) {
    TimeBound bound;
    bound.sum = sum;
    bound.maxima.push_back({1, std::move(maximum)});
    bound.maxima.push_back({1, largestOf({{RoleTime::Update, 1}})});
    form.push_back(std::move(bound));
  };
  // A role begins behind the first micro-batch's way to its first chunk, then
  // has all passes to run and messages to pass on. It sends one after the
  // other, and receives so: two bounds. The gradient that comes last goes
  // through all roles before, each of which ends the step behind it; the tail
  // has the one that a role sends last.
  TimeMaximum sends, receives;
  sends.before = {{RoleTime::FirstForward, 1},
                  {RoleTime::FirstActivationOut, 1}};
  sends.at = {{{RoleTime::Forward, all},
               {back, all},
               {RoleTime::ActivationOut, all},
               {RoleTime::GradientOut, all - 1}}};
  receives.before = {{RoleTime::FirstForward, 1},
                     {RoleTime::FirstActivationIn, 1}};
  receives.at = {{{RoleTime::Forward, all},
                  {back, all},
                  {RoleTime::ActivationIn, all},
                  {RoleTime::GradientIn, all}}};
  for (TimeMaximum *busy : {&sends, &receives}) {
    if (splitsBackward) {
      // Weight parts delay no other role, so they are a bound of the role
      // itself.
      TimeMaximum own = *busy;
      for (RoleTime time :
           {RoleTime::WeightPart, RoleTime::Tail, RoleTime::Norm})
        own.at.front().add(time, time == RoleTime::WeightPart ? all : 1);
      add({}, std::move(own));
      busy->first.add(RoleTime::FirstWeightPart, 1);
    }
    busy->chained = true;
    busy->first.add(RoleTime::Tail, 1);
    busy->first.add(RoleTime::Norm, 1);
    busy->between = {{firstBack, 1}, {RoleTime::FirstGradientIn, 1}};
    add({}, std::move(*busy));
  }
  // A micro-batch goes through all chunks and back.
  TimeMaximum end;
  end.at.resize(shape.roles);
  end.at.front() = {{RoleTime::Tail, 1}, {RoleTime::Norm, 1}};
  add({{RoleTime::Forward, 1},
       {back, 1},
       {RoleTime::ActivationOut, 1},
       {RoleTime::GradientIn, 1}},
      std::move(end));
  return form;
}

TimeForm WholeStageSchedule::upper(const ScheduleShape &shape) const {
  TimeBound bound;
  // The sum is the time until role 0 ends its last backward pass: one
  // micro-batch there and back, and the part that every other one adds.
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

TimeForm WholeStageSchedule::lower(const ScheduleShape &shape) const {
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
    double later = all - static_cast<double>(slots(shape, role));
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
