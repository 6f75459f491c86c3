//===- per_gpu.h - A process for each GPU of this machine -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_PER_GPU_H
#define GALVATRON_RUN_PER_GPU_H

#include "children.h"
#include "options.h"

#include <optional>
#include <string>
#include <vector>

/// Starts the same command line as one process for each rank of the program,
/// with a GPU each, where no launcher did, the program is for GPUs and has
/// several ranks, and they shall not share one. Returns the exit code when all
/// have ended; nothing where this process is to run the program itself.
std::optional<int> runOnEachGpu(const Options &options, char **arguments);

/// Returns the exit code of a command from how its processes ended, in that
/// order: the code of the first that failed with one; where all of those that
/// failed were ended by a signal, that a process was lost (4).
int exitCodeOf(const std::vector<ChildEnd> &ends);

/// Returns the variables by which process `number` of `count` joins the others
/// of this machine, which meet at `port` of the loopback and know `secret`.
Variables joiningVariables(int number, int count, int port,
                           const std::string &run, const std::string &secret);

#endif // GALVATRON_RUN_PER_GPU_H
