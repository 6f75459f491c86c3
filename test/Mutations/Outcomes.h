//===- Outcomes.h - What becomes of changed IR ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_OUTCOMES_H
#define GALVATRON_TEST_MUTATIONS_OUTCOMES_H

#include "Cases.h"
#include "Changes.h"
#include "Runs.h"
#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"

#include <string>

namespace galvatron::test {

enum class Outcome {
  Refused,    ///< with a diagnostic, before there is a program
  Same,       ///< the same program
  Equal,      ///< another program whose losses, gradients and weights are equal
  OtherModel, ///< a legal other model, as the list of these says
  Wrong,      ///< what it computes differs from the reference
  Late,       ///< refused only when the program is loaded or run
  Crashed,    ///< a signal, a failed assertion, or no end
};

constexpr size_t kOutcomes = size_t(Outcome::Crashed) + 1;
const char *outcomeName(Outcome outcome);

struct Result {
  Outcome outcome = Outcome::Refused;
  std::string message;
};

/// IR of a phase and what it means.
struct Subject {
  const Case *given;
  mlir::galvatron::Phase phase;
  std::string text;    ///< generic form
  std::string program; ///< what it compiles to
  Figures reference;
};

/// Compiles the text of a phase to a program; false: `message` says why not.
bool compileText(mlir::StringRef text, mlir::galvatron::Phase phase,
                 std::string &program, std::string &message);

/// What becomes of one change. The program runs in a process of its own.
Result judge(const Subject &subject, const Change &change,
             std::string *changed = nullptr);

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_OUTCOMES_H
