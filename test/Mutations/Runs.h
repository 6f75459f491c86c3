//===- Runs.h - Programs that are run and compared --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_RUNS_H
#define GALVATRON_TEST_MUTATIONS_RUNS_H

#include "llvm/ADT/StringRef.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace galvatron::test {

/// What a run gives, as numbers with names; or an error.
struct Figures {
  std::string error;
  std::string stage; ///< where it ended: `load`, `ranks` or `run`
  std::vector<std::pair<std::string, std::vector<double>>> values;

  std::string pack() const;
  static Figures unpack(llvm::StringRef bytes);
};

/// Loads a program and does some steps of training and an evaluation of it, on
/// ranks that are threads of this process.
Figures runProgram(const std::string &program);

/// What is not equal, or empty.
std::string compare(const Figures &run, const Figures &reference);

/// Gives this process so many seconds of processor time more, all its threads
/// together; then a signal ends it.
void limitProcessor(int seconds);

/// Says how a process ended that `waitpid` gave this status of.
std::string howEnded(int status);

/// Calls `work` in a process of its own, which may take `processorSeconds` of
/// processor time. Nothing if that does not end by itself; `why` says how it
/// ended.
std::optional<std::string> inProcess(int processorSeconds,
                                     const std::function<std::string()> &work,
                                     std::string &why);

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_RUNS_H
