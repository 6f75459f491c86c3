//===- TwoBuffers.cpp - Batch after batch without a drain -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PipeDream-2BW (arXiv 2006.09503, section 3.1): 1F1B that goes on with the
// next batch at once. A stage keeps two versions of its weights, so gradients
// are one batch late: W(t+1) = W(t) - lr * grad f(W(t-1)), W(-1) = W(0). It is
// not the mathematics of one device, so nobody gets it unasked.
//
// Role s of P is w = min(P - 1 - s, m) forward passes ahead. In the part for
// batch t it runs forward passes w to m - 1 of that batch with W(t-1), then the
// first w of batch t + 1 with W(t), each followed by a backward pass of batch
// t. More than m ahead would need weights that are not made yet.
//
// Between roles that are one pass apart opposite messages are one grouped
// operation, as in 1F1B. With fewer micro-batches than P - 1 neighbours are as
// far ahead, and a message in one direction is followed by one in the other:
// sound, and slower than a drain.
//
// The update waits for nobody but the ranks that share the parameters, so there
// is no norm over all ranks and nothing that depends on one. A norm, where
// there is one, is told to all, and what is used is that of the batch before:
// from P - 1 micro-batches on everybody has told it.
//
// Ends of a tie do not meet. The borrower of a parameter leaves its gradient of
// batch t where the owner takes it for update t, and goes on; who borrows comes
// later in the pipeline, so the gradient is there before the owner's last
// backward pass. The owner leaves the new value W(t+1), which the borrower
// takes in front of its first forward pass of batch t + 2. From P - 1
// micro-batches on neither waits: the borrower has ended batch t + 1 but for
// the passes that it is ahead with, and update t was P - 1 backward passes
// behind its batch t.
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {
namespace {

class TwoBuffers final : public Schedule {
public:
  StringRef name() const override { return "2bw"; }

  Error check(const ScheduleShape &shape) const override {
    if (shape.chunks > 1)
      return makeError("schedule '2bw' has one chunk a stage, found " +
                       Twine(shape.chunks));
    if (shape.residentChunks > 0)
      return makeError("schedule '2bw' needs all states on the devices: it "
                       "goes on with weights of two versions, expected "
                       "offload 'off'");
    return Schedule::check(shape);
  }

  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return ahead(shape, chunk) + 1;
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return shape.roles;
  }
  int64_t weightVersions(const ScheduleShape & /*shape*/) const override {
    return 2;
  }
  int64_t delay(const ScheduleShape & /*shape*/) const override { return 1; }

  TaskProgram build(const ScheduleShape &shape,
                    std::vector<TieRoles> ties) const override {
    TaskProgram program = emptyProgram(*this, shape, std::move(ties));
    for (int64_t role = 0; role < shape.roles; ++role) {
      buildPrologue(program, shape, role);
      buildBatch(program, shape, role, SchedulePart::Steady);
      buildBatch(program, shape, role, SchedulePart::Drain);
      buildStepEnd(program, role, shape.delayedNorm);
      buildEvaluate(program, role);
    }
    return program;
  }

  TimeForm upper(const ScheduleShape &shape) const override {
    TimeBound bound;
    auto all = static_cast<double>(shape.microBatches);
    if (hasLockstep(shape)) {
      // Every micro-batch goes there and back before the next one.
      bound.sum = {{RoleTime::Forward, all},
                   {RoleTime::ActivationOut, all},
                   {RoleTime::Backward, all},
                   {RoleTime::GradientIn, all}};
      addEnds(bound);
      return {bound};
    }
    RoleForm pass = {{RoleTime::Forward, 1},
                     {RoleTime::Backward, 1},
                     {RoleTime::RoundNext, 1},
                     {RoleTime::RoundPrevious, 1}};
    // Ends of a tie wait for each other: for the last gradient, which goes
    // through all roles between them.
    bound.sum = {{RoleTime::Backward, 1}, {RoleTime::GradientIn, 1}};
    bound.maxima.push_back({all, largestOf(pass)});
    addEnds(bound);
    return {bound};
  }

  TimeForm lower(const ScheduleShape &shape) const override {
    // No role is busy longer than between two of its updates.
    auto all = static_cast<double>(shape.microBatches);
    TimeBound busy;
    busy.maxima.push_back({1, largestOf({{RoleTime::Forward, all},
                                         {RoleTime::Backward, all},
                                         {RoleTime::RoundNext, all},
                                         {RoleTime::RoundPrevious, all},
                                         {RoleTime::Update, 1}})});
    return {busy};
  }

private:
  static int64_t ahead(const ScheduleShape &shape, int64_t role) {
    return std::min(shape.roles - 1 - role, shape.microBatches);
  }
  /// True if neighbours are as far ahead as each other.
  static bool hasLockstep(const ScheduleShape &shape) {
    return shape.microBatches < shape.roles - 1;
  }
  static void addEnds(TimeBound &bound) {
    for (RoleTime time :
         {RoleTime::Behind, RoleTime::Tail, RoleTime::Norm, RoleTime::Update})
      bound.maxima.push_back({1, largestOf({{time, 1}})});
  }
  /// True if role `role` is one pass further ahead than the next one.
  static bool isGrouped(const ScheduleShape &shape, int64_t role) {
    return ahead(shape, role) > ahead(shape, role + 1);
  }

  static void buildPrologue(TaskProgram &program, const ScheduleShape &shape,
                            int64_t role) {
    PartWriter tasks(program, program.roles[role].part(SchedulePart::Prologue),
                     role);
    int64_t warmup = ahead(shape, role);
    for (int64_t mb = 0; mb < warmup; ++mb) {
      tasks.recvActivation(mb);
      tasks.forward(mb);
      tasks.sendActivation(mb);
    }
    if (isGrouped(shape, role - 1))
      tasks.recvActivation(warmup);
  }

  static void buildBatch(TaskProgram &program, const ScheduleShape &shape,
                         int64_t role, SchedulePart part) {
    PartWriter tasks(program, program.roles[role].part(part), role);
    int64_t warmup = ahead(shape, role);
    // The last batch has none behind it that its roles could run ahead with.
    int64_t end = part == SchedulePart::Drain ? shape.microBatches
                                              : 2 * shape.microBatches;
    // Tied values of the update before are new to the first pass of the batch
    // behind, or to the next update.
    int64_t firstNew = shape.microBatches - warmup;
    auto takeTied = [&] {
      if (!program.takesTied(role))
        return;
      Task task;
      task.kind = TaskKind::TieBroadcast;
      program.roles[role].part(part).push_back(task);
    };
    bool left = isGrouped(shape, role - 1), right = isGrouped(shape, role);
    for (int64_t mb = 0; mb < shape.microBatches; ++mb) {
      int64_t next = mb + warmup;
      if (mb == firstNew)
        takeTied();
      if (next < end) {
        if (!left)
          tasks.recvActivation(next);
        tasks.forward(next);
        if (right) {
          tasks.sendActivationRecvGradient(next, mb);
        } else {
          tasks.sendActivation(next);
          tasks.recvGradient(mb);
        }
      } else {
        tasks.recvGradient(mb);
      }
      tasks.backward(mb);
      if (left && next + 1 < end)
        tasks.sendGradientRecvActivation(mb, next + 1);
      else
        tasks.sendGradient(mb);
    }
    if (firstNew == shape.microBatches)
      takeTied();
  }
};

} // namespace

std::unique_ptr<Schedule> makeTwoBuffers() {
  return std::make_unique<TwoBuffers>();
}

} // namespace galvatron
