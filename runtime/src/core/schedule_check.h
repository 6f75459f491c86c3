//===- schedule_check.h - The proof of a program that is loaded -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler proves of its schedules that no role waits for ever, and that no
// task reads what is not there or overwrites what is needed. What is loaded is
// proven again, by the same function (grt/schedule_proof.h): a file may be
// another compiler's, or changed.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_SCHEDULE_CHECK_H
#define GRT_CORE_SCHEDULE_CHECK_H

#include "core/manifest.h"
#include "grt/tasks.h"

#include <span>
#include <string>

namespace grt {

/// The tasks of all roles as the proof has them. What the compiler knows of a
/// schedule and a program does not say follows from where things lie: which
/// chunks take turns in a place for resident ones, and whether messages have
/// regions of their own.
galvatron::tasks::TaskProgram
taskProgramOf(const Manifest &manifest,
              std::span<const grt_schedule> schedules);

/// The first fault that the proof finds in a program's schedules, and how many
/// there are; "" if it finds none. The rows have been checked one by one
/// (Program::loadFile).
std::string wrongSchedule(const Manifest &manifest,
                          std::span<const grt_schedule> schedules);

} // namespace grt

#endif // GRT_CORE_SCHEDULE_CHECK_H
