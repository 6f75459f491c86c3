//===- Solve.h - What the problems of galvatron-solve share -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRON_SOLVE_SOLVE_H
#define GALVATRON_TOOLS_GALVATRON_SOLVE_SOLVE_H

#include "galvatron/Support/Json.h"

#include <chrono>
#include <string>

namespace galvatron::solve {

constexpr int exitDone = 0, exitInfeasible = 1, exitInvalid = 2;

/// Result of a run: an answer, or a reason with an exit code.
struct Outcome {
  int code = exitDone;
  llvm::json::Object answer;
  std::string message;
};

Outcome invalid(llvm::Error error);
Outcome infeasible(const llvm::Twine &reason);

/// Milliseconds since its construction.
class Stopwatch {
public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - begin)
        .count();
  }

private:
  std::chrono::steady_clock::time_point begin =
      std::chrono::steady_clock::now();
};

/// "harmony". A profile's path is taken from the folder of the problem's file,
/// or from the current one if there is no such file.
Outcome solveHarmony(ObjectReader &reader, llvm::StringRef problemPath);

/// "2bw".
Outcome solveTwoBuffers(ObjectReader &reader);

} // namespace galvatron::solve

#endif // GALVATRON_TOOLS_GALVATRON_SOLVE_SOLVE_H
