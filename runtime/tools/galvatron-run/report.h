//===- report.h - What galvatron-run prints and writes --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_REPORT_H
#define GALVATRON_RUN_REPORT_H

#include "generation.h"
#include "grt/data.h"
#include "grt/processes.h"
#include "options.h"
#include "page.h"

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Seconds that this process has run.
double secondsSinceStart();

/// The figures of validation samples: the mean loss, over how many values it is
/// a mean, and how many of these have the largest logit.
struct Validation {
  double loss = 0;
  uint64_t values = 0, hits = 0;

  /// The part of the values that the model has right; none: there are no
  /// values.
  std::optional<double> accuracy() const {
    return values ? std::optional(double(hits) / double(values)) : std::nullopt;
  }
};

/// Collects steps; prints their lines, writes log and summary. Of several
/// processes the first does, and the others say nothing.
///
/// An output that fails does not end the run: a warning says so once, and the
/// failure is in `failures()` at the end.
class Report {
public:
  Report(const Options &options, const grt::Program &program,
         const grt::Processes *processes);
  ~Report();
  Report(const Report &) = delete;
  Report &operator=(const Report &) = delete;

  /// Opens the log, to add to it if the run goes on.
  grt::Status open(bool resumed);
  /// Prints what will run: model, plan, ranks, data (null: none), from `state`
  /// on. `links` are lines about what connects the ranks.
  void header(const grt::Session &session, const grt::Dataset *data,
              const grt::TrainingState &state,
              const std::vector<std::string> &links);
  /// A line of console output.
  void note(const std::string &text);
  /// The same to standard error.
  void warn(const std::string &text);
  /// An output that was not, or not wholly, written.
  void failure(const grt::Status &status);
  /// A step and its line. `samples` were consumed up to here.
  void step(const grt::StepResult &result, std::optional<double> validationLoss,
            const grt::TrainingState &state);
  /// The validation loss of a run without a step.
  void validated(double loss);
  /// The loss over all samples of the data (`--evaluate`), and over how many
  /// values it is a mean.
  void evaluated(const Validation &found);
  /// `prompt` is shown in front; it is empty where a decoder writes what an
  /// encoder read.
  void generated(const std::string &prompt, const std::string &continuation);
  void generationCost(const GenerationCost &cost);
  /// A line at the end that says what was written where.
  void wrote(const std::string &what, const std::string &path);
  /// Takes the shares of time for the summary, and the page's last step.
  grt::Status shares(const grt::Session &session);
  /// Nobody reads the lines any more: the other end of the pipe is closed.
  bool readerGone() const { return gone; }
  /// The closing lines and the summary; `endedBy` is its word.
  void finish(const std::vector<grt::RankMemory> &memory,
              const std::vector<grt::RankSwaps> &swaps,
              const std::string &endedBy);
  /// Returns the failures of outputs that were not, or not wholly, written.
  const std::vector<grt::Status> &failures() const { return failed; }

private:
  void say(const std::string &line);
  /// Letters that a line may have; no limit where there is no terminal.
  size_t terminalColumns() const;
  void writePage(const std::vector<grt::RankMemory> &memory,
                 const std::string &endedBy);
  bool printed(const grt::StepResult &result, bool validates);
  std::string progress(uint64_t step, uint64_t samples) const;
  std::string summaryText(const std::vector<grt::RankMemory> &memory,
                          const std::vector<grt::RankSwaps> &swaps,
                          const std::string &endedBy) const;
  /// Steps of one kind tell a time: of graphs if there are such, else of calls.
  grt::StepKind medianKind() const;
  double medianMilliseconds() const;
  /// Returns the passes over the data; of a mixture the mean over its samples.
  double epochs(uint64_t samples) const;
  /// Returns the passes over each source so far; data that are no mixture have
  /// one.
  std::vector<double> sourcePasses() const;
  std::string passesText() const;
  uint64_t stepSamples() const {
    return accumulate * uint64_t(program.batchSize());
  }
  /// Returns the predicted time of a step: what the cost model has for one
  /// batch, times the number of batches. The update is counted as often, too.
  double predictedMilliseconds() const {
    return double(accumulate) * program.predictedStepMilliseconds();
  }

  const Options &options;
  const grt::Program &program;
  const grt::Processes *processes;
  const bool silent;
  /// Console output; standard error if standard output is for a machine.
  FILE *console;
  const bool onTerminal;
  bool gone = false;
  FILE *log = nullptr;
  uint64_t lostLogLines = 0;
  std::vector<grt::Status> failed;
  std::map<grt::StepKind, std::vector<double>> milliseconds;
  uint64_t steps = 0, skipped = 0;
  uint64_t accumulate = 1; ///< batches of the program in a step
  int graphsPerStep = 0;
  std::string collectives; ///< Session::collectivesLibrary
  std::vector<std::string> links;
  uint64_t firstStep = 0; ///< before the first of this run
  uint64_t lastSamples = 0;
  const grt::Dataset *data = nullptr;   ///< null: none is read
  uint64_t trainingSamples = 0;         ///< of an epoch
  double stepsBegan = 0, lastLine = -1; ///< seconds since the start
  double startUpSeconds = 0; ///< of the process, to the end of the first step
  double firstLoss = 0, finalLoss = 0;
  std::optional<double> validation, bestValidation;
  uint64_t bestStep = 0;
  std::optional<Validation> evaluation;
  std::vector<std::string> continuations;
  std::optional<GenerationCost> generation;
  std::vector<std::pair<std::string, std::string>> places;
  grt::TimeShares measuredShares, predictedShares;
  PageContent page; ///< of --report
};

#endif // GALVATRON_RUN_REPORT_H
