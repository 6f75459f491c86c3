//===- Registry.cpp - Schedules by name -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>

using namespace llvm;

namespace galvatron {

ScheduleRegistry::ScheduleRegistry() {
  add(makeOneForwardOneBackward());
  add(makeAllForwardsFirst());
  add(makeInterleaved());
  add(makeTwoBuffers());
  add(makeZeroBubble());
  add(makeZeroBubbleLong());
  add(makeZeroBubbleV());
  add(makePacks());
  add(makeDataParallelPacks());
}

ScheduleRegistry &ScheduleRegistry::get() {
  static ScheduleRegistry registry;
  return registry;
}

const Schedule &ScheduleRegistry::add(std::unique_ptr<Schedule> schedule) {
  assert(!find(schedule->name()) && "a schedule of this name is known");
  return *schedules.emplace_back(std::move(schedule));
}

const Schedule *ScheduleRegistry::find(StringRef name) const {
  for (const std::unique_ptr<Schedule> &schedule : schedules)
    if (schedule->name() == name)
      return schedule.get();
  return nullptr;
}

const Schedule &defaultSchedule() {
  return *ScheduleRegistry::get().all().front();
}

ArrayRef<StringLiteral> plannedOnlySchedules() { return {}; }

std::string notExecuted(StringRef schedule) {
  return ("schedule '" + schedule + "' is planned, not executed yet").str();
}

Expected<const Schedule *> parseSchedule(StringRef name) {
  if (const Schedule *schedule = ScheduleRegistry::get().find(name))
    return schedule;
  if (is_contained(plannedOnlySchedules(), name))
    return makeError(notExecuted(name));
  std::string known;
  const auto &all = ScheduleRegistry::get().all();
  for (const std::unique_ptr<Schedule> &schedule : all)
    known += (known.empty()            ? "'"
              : schedule == all.back() ? " or '"
                                       : ", '") +
             schedule->name().str() + "'";
  return makeError("unknown schedule '" + name + "', expected " + known);
}

} // namespace galvatron
