//===- Verify.h - Proof that a task program is sound ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The proof is the runtime's (grt/schedule_proof.h), which repeats it for every
// program that it loads. Here is the machine that it is compared with.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_VERIFY_H
#define GALVATRON_SCHEDULE_VERIFY_H

#include "galvatron/Schedule/TaskProgram.h"
#include "grt/schedule_proof.h"

#include "llvm/ADT/ArrayRef.h"

namespace galvatron {

using tasks::ScheduleFault;
using tasks::ScheduleFaultKind;
using tasks::verifySchedule;

/// Runs the fully expanded program, every rank of every role on its own, on the
/// machine above: rank r of a role of n ranks exchanges with the ranks of the
/// next role of n' ranks whose share of the samples meets its own. Returns an
/// empty string if all ranks finish, or else who is stuck where. For tests and
/// small programs.
std::string runExpanded(const TaskProgram &program,
                        llvm::ArrayRef<int64_t> ranksPerRole);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_VERIFY_H
