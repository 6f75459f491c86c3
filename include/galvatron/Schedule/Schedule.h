//===- Schedule.h - Pipeline schedules as objects ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule says all that the rest of the compiler wants to know of it: which
// shapes it can have, its tasks, how many micro-batches it holds at once, how
// long a step takes at most and at least. Search, memory, simulator and passes
// ask the object; nobody tests which one it is. Schedules are known by name in
// one registry.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_SCHEDULE_H
#define GALVATRON_SCHEDULE_SCHEDULE_H

#include "galvatron/Schedule/Offload.h"
#include "galvatron/Schedule/PassTimes.h"
#include "galvatron/Schedule/TaskProgram.h"
#include "galvatron/Schedule/TimeForm.h"

#include "llvm/Support/Error.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

/// The shape that a schedule is made for.
struct ScheduleShape {
  int64_t roles = 1;
  int64_t microBatches = 1;
  int64_t chunks = 1;         ///< of a role
  int64_t residentChunks = 0; ///< see TaskProgram
  bool justInTime = false;    ///< see TaskProgram
  bool slotsAtHome = false;   ///< see TaskProgram
  /// Gradients that are late are clipped by the norm of the batch before.
  bool delayedNorm = false;
  /// The times of passes by chunk, for schedules that list passes by them.
  /// Empty: all take the same, and messages nothing.
  std::vector<PassTimes> passTimes = {};
  /// The first layers of the packs that run forward only, and of those that run
  /// backward. Chunks are these, in this order, and roles may have different
  /// numbers of them.
  std::vector<int64_t> forwardPacks = {}, backwardPacks = {};
  bool bringsAhead = false;    ///< see TaskProgram
  bool updateOnDevice = false; ///< see TaskProgram
  /// Micro-batches of packs that run forward only; 0: as many as of the others.
  int64_t forwardMicroBatches = 0;
  bool homesByLayer = false; ///< see TaskProgram

  /// The shape of roles of so many chunks, with what has its home on the host.
  static ScheduleShape of(int64_t roles, int64_t microBatches, int64_t chunks,
                          Offload offload) {
    ScheduleShape shape{roles,
                        microBatches,
                        chunks,
                        offload.residentChunks(chunks),
                        offload.justInTime,
                        offload.activations};
    shape.bringsAhead = offload.prefetch;
    shape.homesByLayer = offload.byLayer();
    shape.updateOnDevice = offload.updateOnDevice;
    return shape;
  }
  /// The shape that a program was made for, with so many micro-batches.
  static ScheduleShape of(const TaskProgram &program, int64_t microBatches);

  /// The shape of packs that begin with these layers. What they recompute from
  /// has its home on the host with the states.
  static ScheduleShape ofPacks(int64_t roles, int64_t microBatches,
                               Offload offload, std::vector<int64_t> forward,
                               std::vector<int64_t> backward,
                               int64_t forwardMicroBatches = 0) {
    ScheduleShape shape = of(roles, microBatches, /*chunks=*/1, offload);
    shape.slotsAtHome = true;
    shape.forwardMicroBatches = forwardMicroBatches;
    shape.forwardPacks = std::move(forward);
    shape.backwardPacks = std::move(backward);
    return shape;
  }

  bool hasPacks() const { return !backwardPacks.empty(); }
  /// Whether micro-batches have two sizes.
  bool regroups() const {
    return forwardMicroBatches != 0 && forwardMicroBatches != microBatches;
  }
  /// Micro-batches of the larger size; all there are of one size.
  int64_t groups() const {
    return regroups() ? std::min(forwardMicroBatches, microBatches)
                      : microBatches;
  }
  int64_t allChunks() const {
    return hasPacks() ? static_cast<int64_t>(forwardPacks.size()) + runCount()
                      : roles * chunks;
  }
  /// Runs of layers that the model is cut into, and the chunk of one that has
  /// its states.
  int64_t runCount() const {
    return hasPacks() ? static_cast<int64_t>(backwardPacks.size())
                      : roles * chunks;
  }
  int64_t chunkOfRun(int64_t run) const {
    return static_cast<int64_t>(forwardPacks.size()) + run;
  }
};

class Schedule {
public:
  virtual ~Schedule();

  /// Returns the name in files and options: "1f1b".
  virtual llvm::StringRef name() const = 0;
  /// Error: why this shape cannot have it. All that follows is asked only of
  /// shapes that can.
  virtual llvm::Error check(const ScheduleShape &shape) const;

  /// The role of a chunk, by the chunk's number in the order of the model.
  virtual int64_t home(const ScheduleShape &shape, int64_t chunk) const;
  /// The tasks of all roles.
  virtual TaskProgram build(const ScheduleShape &shape,
                            std::vector<TieRoles> ties = {}) const = 0;
  /// Micro-batches whose activations the home of a chunk holds at once for it.
  virtual int64_t slots(const ScheduleShape &shape, int64_t chunk) const = 0;
  /// Micro-batches from which on more of them take no more slots; nothing if
  /// every one of them takes a slot.
  virtual std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const = 0;

  /// Copies of the weights that are in use at once, buffers that gradients are
  /// added up in, and how many steps behind the gradients of a step are.
  virtual int64_t weightVersions(const ScheduleShape &shape) const;
  virtual int64_t gradientBuffers(const ScheduleShape &shape) const;
  virtual int64_t delay(const ScheduleShape &shape) const;
  /// Whether backward passes are two tasks, BackwardInput and BackwardWeight.
  virtual bool splitsBackward() const;
  /// Whether the order of passes is made for the times that they take.
  virtual bool listsByTimes() const;
  /// Whether outputs that wait and gradients that came have regions of their
  /// own (grt/accesses.h).
  virtual bool separatesMessages(const ScheduleShape &shape) const;
  /// Whether its chunks are packs (TaskProgram::hasPacks).
  virtual bool runsPacks() const;
  /// See RoleProgram.
  virtual int64_t waitingPlaces(const ScheduleShape &shape, int64_t role) const;
  /// Returns nothing where chunks are no packs.
  WaitingMessages waitingMessages(const ScheduleShape &shape,
                                  int64_t role) const;

  /// A step's time, at most and at least, as the simulator runs it.
  virtual TimeForm upper(const ScheduleShape &shape) const = 0;
  virtual TimeForm lower(const ScheduleShape &shape) const = 0;
};

/// The schedules that can be compiled, by name. Everything that reads a name
/// asks here.
class ScheduleRegistry {
public:
  static ScheduleRegistry &get();

  /// The name must be new.
  const Schedule &add(std::unique_ptr<Schedule> schedule);
  /// Null if there is none of this name.
  const Schedule *find(llvm::StringRef name) const;
  const std::vector<std::unique_ptr<Schedule>> &all() const {
    return schedules;
  }

private:
  ScheduleRegistry();
  std::vector<std::unique_ptr<Schedule>> schedules;
};

/// The schedule taken where nobody names one: 1F1B.
const Schedule &defaultSchedule();
/// Error: the names that are known.
llvm::Expected<const Schedule *> parseSchedule(llvm::StringRef name);
/// Spaces of the planner (Baselines/Baselines.h) whose schedules nothing can
/// compile or run: none at present.
llvm::ArrayRef<llvm::StringLiteral> plannedOnlySchedules();
/// "schedule 'NAME' is planned, not executed yet".
std::string notExecuted(llvm::StringRef schedule);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_SCHEDULE_H
