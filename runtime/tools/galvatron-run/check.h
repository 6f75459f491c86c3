//===- check.h - A look at the machines before a run ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_CHECK_H
#define GALVATRON_RUN_CHECK_H

#include "grt/processes.h"
#include "options.h"
#include "preflight.h"

#include <string>

/// Returns what this process finds on its machine, encoded for the others; of a
/// run that uses no GPUs nothing, unless it is asked for (--check). A process
/// that is to run near its GPU does so from here on. `options.card` becomes its
/// number, `options.gpu` what it is.
std::string lookAtMachine(Options &options, const grt::Program &program);

/// Returns what all processes found; `own` is what this one would have told.
Findings findingsOfAll(const grt::Processes *processes, const std::string &own);

/// `--check`: prints a line for each finding, where process 0 is, and how many
/// there are. `ends`: whether a run would end by one of them, the same in all
/// processes.
grt::Status check(const Options &options, const grt::Program &program,
                  grt::Processes *processes, const std::string &own,
                  bool &ends);

#endif // GALVATRON_RUN_CHECK_H
