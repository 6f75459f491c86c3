//===- Synchronous.h - What synchronous schedules share ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules that run all micro-batches of a step and then update: they differ
// in the order of their steady part. What others have in common with them, too.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H
#define GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H

#include "galvatron/Schedule/Schedule.h"

namespace galvatron {

class SynchronousSchedule : public Schedule {
public:
  TaskProgram build(const ScheduleShape &shape,
                    std::vector<TieRoles> ties) const final;

protected:
  /// The parts Steady and Evaluate of a role. Slots are taken in turns.
  virtual void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                           int64_t role) const = 0;
};

/// The largest over all roles of the same form.
TimeMaximum largestOf(RoleForm form);
/// Lower form of a step of several chunks a role, of which chunk r is the first
/// one of role r, with backward passes whole or in two parts.
TimeForm lowerOfChunks(const ScheduleShape &shape, bool splitsBackward);

/// Chunks and parameters of the shape, roles without tasks.
TaskProgram emptyProgram(const Schedule &schedule, const ScheduleShape &shape,
                         std::vector<TieRoles> ties);
/// The part StepEnd of a role. With a norm every update waits for all ranks.
void buildStepEnd(TaskProgram &program, int64_t role, bool withNorm);
/// The part Evaluate of a role of one chunk.
void buildEvaluate(TaskProgram &program, int64_t role);

// Micro-batches go on counting with those of the next batch; slots are taken in
// turns.
Task computeTask(const TaskProgram &program, TaskKind kind, int64_t chunk,
                 int64_t microBatch);
/// A message to, or from the neighbour of `chunk` in the order of the model.
TransferPart transferPart(const TaskProgram &program,
                          TransferDirection direction, TransferValue value,
                          int64_t chunk, int64_t microBatch);

/// Appends tasks of a role with one chunk to one of its parts.
class PartWriter {
public:
  PartWriter(const TaskProgram &program, std::vector<Task> &tasks, int64_t role)
      : program(program), tasks(tasks), role(role) {}

  void forward(int64_t microBatch) { run(TaskKind::Forward, microBatch); }
  void backward(int64_t microBatch) { run(TaskKind::Backward, microBatch); }
  void backwardInput(int64_t microBatch) {
    run(TaskKind::BackwardInput, microBatch);
  }
  void backwardWeight(int64_t microBatch) {
    run(TaskKind::BackwardWeight, microBatch);
  }
  // A transfer that has no neighbour to meet is left out.
  void recvActivation(int64_t microBatch);
  void sendActivation(int64_t microBatch);
  void recvGradient(int64_t microBatch);
  void sendGradient(int64_t microBatch);
  /// A message of a transfer; exchange() makes several of them one grouped
  /// operation.
  struct Message {
    TransferDirection direction;
    TransferValue value;
    int64_t microBatch;
  };
  void exchange(llvm::ArrayRef<Message> messages);
  void sendActivationRecvGradient(int64_t sent, int64_t received);
  void sendGradientRecvActivation(int64_t sent, int64_t received);

private:
  bool isFirst() const { return role == 0; }
  bool isLast() const { return program.isLastChunk(role); }
  void run(TaskKind kind, int64_t microBatch);
  TransferPart part(TransferDirection direction, TransferValue value,
                    int64_t microBatch) const;
  void transfer(std::vector<TransferPart> parts);

  const TaskProgram &program;
  std::vector<Task> &tasks;
  int64_t role;
};

/// Schedules of stages that are one chunk each.
class WholeStageSchedule : public SynchronousSchedule {
public:
  llvm::Error check(const ScheduleShape &shape) const final;
  TimeForm upper(const ScheduleShape &shape) const override;
  TimeForm lower(const ScheduleShape &shape) const override;

protected:
  void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                   int64_t role) const override;
  virtual void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                           int64_t role) const = 0;
  /// The most that every micro-batch but one adds to a step.
  virtual std::vector<RoleForm> slowest() const = 0;
  /// Lower bounds of when role 0 ends its last backward pass, beside those that
  /// follow from the number of slots.
  virtual std::vector<TimeBound>
  moreEnds(const ScheduleShape & /*shape*/) const {
    return {};
  }
};

/// The forward passes that role `role` of 1F1B is ahead of its backward passes.
int64_t forwardsAhead(const ScheduleShape &shape, int64_t role);
/// The passes of 1F1B. With a `weightDelay` backward passes are split: a weight
/// part comes behind the input part that is so many micro-batches later.
void buildAlternating(PartWriter &steady, const ScheduleShape &shape,
                      int64_t role, std::optional<int64_t> weightDelay);

std::unique_ptr<Schedule> makeAllForwardsFirst();
std::unique_ptr<Schedule> makeOneForwardOneBackward();
std::unique_ptr<Schedule> makeInterleaved();
std::unique_ptr<Schedule> makePacks();
std::unique_ptr<Schedule> makeDataParallelPacks();
std::unique_ptr<Schedule> makeTwoBuffers();
std::unique_ptr<Schedule> makeZeroBubble();
std::unique_ptr<Schedule> makeZeroBubbleLong();
std::unique_ptr<Schedule> makeZeroBubbleV();

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_SYNCHRONOUS_H
