//===- outputs.h - Files that a run writes --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_OUTPUTS_H
#define GALVATRON_RUN_OUTPUTS_H

#include "grt/processes.h"
#include "options.h"
#include "report.h"

#include <string>

/// Every process writes of its ranks: `trace.json`, `trace.1.json`.
std::string ownFile(const std::string &name, const grt::Processes *processes);

/// Tries the files of process 0, and those that every process writes of its
/// ranks, before there is anything to write. One that nobody asked for is only
/// warned of.
grt::Status tryAllOutputs(const Options &options, const grt::Program &program,
                          const grt::Processes *processes, Report &report);

#endif // GALVATRON_RUN_OUTPUTS_H
