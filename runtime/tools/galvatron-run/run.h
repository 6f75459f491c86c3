//===- run.h - A run of galvatron-run -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_RUN_H
#define GALVATRON_RUN_RUN_H

#include "grt/processes.h"
#include "grt/session.h"
#include "options.h"

#include <memory>

/// Trains, evaluates, and writes what was asked for. Whatever fails, everything
/// else that can be written is. `exitCode` is that of a run without a failure.
/// `program`: the one of the options, if it was loaded before. `processes`:
/// null where this one is alone.
grt::Status run(const Options &options,
                std::shared_ptr<const grt::Program> program,
                std::shared_ptr<grt::Processes> processes, int &exitCode);

#endif // GALVATRON_RUN_RUN_H
