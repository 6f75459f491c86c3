//===- report.h - What galvatron-run prints and writes --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_REPORT_H
#define GALVATRON_RUN_REPORT_H

#include "grt/processes.h"
#include "options.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Collects steps; prints the line of each, writes log and summary. Of several
/// processes the first does, and the others say nothing.
class Report {
public:
  Report(const Options &options, const grt::Program &program,
         const grt::Processes *processes);
  ~Report();
  Report(const Report &) = delete;
  Report &operator=(const Report &) = delete;

  /// Opens the log, to add to it if the run goes on. Errors have exit code 1.
  grt::Status open(bool resumed);
  /// A line for people.
  void note(const std::string &text);
  grt::Status step(const grt::StepResult &result,
                   const std::vector<grt::RankMemory> &memory,
                   std::optional<double> validationLoss);
  void generated(const std::string &prompt, const std::string &continuation);
  /// Takes the shares of time for the summary.
  grt::Status shares(const grt::Session &session);
  /// The closing lines and the summary.
  grt::Status finish(const std::vector<grt::RankMemory> &memory);

private:
  std::string summaryText(const std::vector<grt::RankMemory> &memory) const;
  double medianMilliseconds() const;

  const Options &options;
  const grt::Program &program;
  const grt::Processes *processes;
  const bool silent;
  /// Lines for people; standard error if standard output is for a machine.
  FILE *people;
  FILE *log = nullptr;
  std::vector<double> milliseconds;
  uint64_t steps = 0, skipped = 0;
  double startUpSeconds = 0; ///< of the process, to the end of the first step
  double firstLoss = 0, finalLoss = 0;
  std::optional<double> validation;
  std::optional<std::string> continuation;
  grt::TimeShares measuredShares, predictedShares;
};

#endif // GALVATRON_RUN_REPORT_H
