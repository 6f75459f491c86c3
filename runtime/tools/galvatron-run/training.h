//===- training.h - The loop over the steps of a run ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_TRAINING_H
#define GALVATRON_RUN_TRAINING_H

#include "corruption.h"
#include "report.h"
#include "resume.h"
#include "straggler.h"
#include "text.h"

#include <future>
#include <optional>
#include <string>
#include <utility>

/// The batches of a run, each with the samples that the ranks of this process
/// read: while a step goes on, the next one is read by a thread.
class BatchReader {
public:
  /// A batch of a step is `parts` of the program's.
  BatchReader(const grt::Dataset &data, const grt::Session &session,
              uint64_t parts);

  /// Gives the session the batch that begins with training sample `first`,
  /// unless it has begun with it; the next one begins behind it if `more`, and
  /// the session gets that too if its gradients are late. Batches without a
  /// label that counts are passed over: `end` becomes the sample behind the
  /// batch that was given.
  grt::Status give(uint64_t first, bool more, grt::Session &to, uint64_t &end);

  /// Batches that were passed over on the way to those given, since the last
  /// call.
  uint64_t takePassedOver() { return std::exchange(passedOver, 0); }

private:
  struct Batch {
    uint64_t first = 0; ///< where it was looked for
    uint64_t end = 0;   ///< behind its samples
    grt::DataBatch values;
    uint64_t counted = 0;
  };
  grt::Status read(uint64_t first, Batch &batch) const;
  /// Remembers where a batch that the session took begins and ends.
  void note(const Batch &batch);
  /// Makes the batch the current one; it may have been read ahead.
  grt::Status turnTo(uint64_t first);

  const grt::Dataset &data;
  const int64_t samples; ///< of a step
  grt::SamplesRead wanted;
  Batch current, next;
  /// Begin and end of the batch that the session got ahead of its step.
  uint64_t givenFirst = ~uint64_t(0), givenEnd = 0;
  uint64_t passedOver = 0;
  std::future<grt::Status> ahead; ///< fills `next`
};

/// Trains a session on data, with validation and checkpoints on the way.
class Training {
public:
  /// `traceFile` is this process's; empty: no steps are recorded on request.
  /// `held` are data whose validation samples are validated on.
  Training(const Options &options, std::string traceFile,
           const grt::Dataset &data, const grt::Dataset &held,
           grt::Session &session, Beginning &beginning, Report &report);

  /// Trains up to the last step, or to the one during which the run is asked
  /// to end. A checkpoint on the way that cannot be written is a warning.
  grt::Status run();
  /// Writes the checkpoint that `--checkpoint` promises of the last step, if
  /// its step has none yet.
  grt::Status finish();

  /// The requests (signals.h) that ended the loop; 0: it was not asked.
  uint32_t ended() const { return endedBy; }

private:
  grt::Status runSteps();
  grt::Status endCheckpoints();
  grt::Status namingCheckpoint(const grt::Status &status) const;
  grt::Status step(uint64_t number, bool last);
  /// A checkpoint of the state now: written before the next step, or copied
  /// and written while steps go on, to be ended later.
  grt::Status writeCheckpoint();
  grt::Status beginCheckpoint();
  grt::Status endCheckpoint();
  grt::Status prepareCheckpoint();
  void wroteCheckpoint(uint64_t step, double seconds,
                       const std::string &warning);
  /// Tells what came of one; an error only if the run cannot go on.
  grt::Status afterCheckpoint(const grt::Status &status);
  /// SIGUSR2: begins a window of recorded steps.
  void beginWindow();
  /// Writes the window that ends with the step that was done.
  void endWindow();
  bool onGpus() const;
  void lookForStraggler();
  grt::Status checkSkips(const grt::StepResult &result);
  /// Compares a validation loss with the least so far.
  grt::Status noteValidation(double loss);
  /// Whether --patience has ended the run.
  bool hasStalled() const {
    return options.patience > 0 && state.validationsSince >= options.patience;
  }
  bool isOutOfTime() const;
  uint32_t wishes();

  const Options &options;
  const std::string traceFile;
  /// First and last step of the window that is recorded.
  std::optional<std::pair<uint64_t, uint64_t>> window;
  const grt::Dataset &held;
  grt::Session &session;
  const grt::CheckpointFolder *folder;
  grt::TrainingState &state;
  Report &report;
  BatchReader batches;
  uint32_t endedBy = 0;
  uint64_t skippedInRow = 0;
  StragglerWatch straggler, clocks;
  double lastStepSeconds = 0; ///< until its results were there
  uint64_t windowStep = 0;    ///< the last step before the window
  double windowBegan = 0;
  uint64_t written;               ///< step of the newest checkpoint
  std::optional<uint64_t> behind; ///< step of the one that is being written
  bool savedBest = false;         ///< by this run
  bool asksForCheckpoint = false; ///< SIGUSR1 waits to hear of it
  /// Failures to write a checkpoint since the last that was written, and when
  /// it is tried again; 0: at the next that is due.
  uint64_t failedWrites = 0;
  double retryAt = 0;
  /// Requests to try again that come until behind this step were for the last
  /// try.
  uint64_t retried = 0;
  std::string newest;                            ///< that this run wrote
  double stepSeconds = 0, checkpointSeconds = 0; ///< the longest, the last
  double copySeconds = 0; ///< that the steps waited for the one behind
};

/// Over all validation samples, or at most `batches` batches of them (0: all).
grt::Status validate(const grt::Dataset &data, grt::Session &session,
                     uint64_t batches, Validation &result);

/// A prompt that --generate asks a model.
struct Prompt {
  /// The tokens of the text; behind an encoder the end that it was trained with
  /// is the last of them.
  std::vector<int32_t> tokens;
  /// The tokens where a decoder begins that an encoder reads the text for.
  std::optional<DecoderTokens> decoder;
};

/// ExitInvalid where the text is longer than an encoder reads, or nothing says
/// which tokens stand around it.
grt::Status makePrompt(const Options &options, const grt::Program &program,
                       const TextCoding &text, Prompt &prompt);

/// The tokens that follow the prompt's, one after the other, as the text that
/// they add; the model sees the last ones that fit its sequence length. Behind
/// an encoder they are what the decoder writes, up to the end or its length.
/// Every token is computed from all of these: the program keeps no keys.
grt::Status generate(const Options &options, const TextCoding &text,
                     const Prompt &prompt, grt::Session &session,
                     std::string &continuation);

#endif // GALVATRON_RUN_TRAINING_H
