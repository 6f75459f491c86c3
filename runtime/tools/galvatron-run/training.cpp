//===- training.cpp - The loop over the steps of a run --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "training.h"

#include "core/manifest.h"
#include "preflight.h"
#include "prompts.h"
#include "signals.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>

using namespace grt;

Status validate(const Dataset &data, Session &session, uint64_t batches,
                Validation &result) {
  int64_t batch = session.program().batchSize();
  uint64_t all = data.validationBatches(batch);
  batches = batches ? std::min(all, batches) : all;
  DataBatch samples;
  double sum = 0;
  result = {};
  for (uint64_t i = 0; i < batches; ++i) {
    uint64_t counted = 0, hits = 0;
    Status status = data.validationBatch(i, batch, samples,
                                         &session.samplesRead(), &counted);
    if (status)
      status = session.setBatch(samples, counted);
    double mean = 0;
    if (status)
      status = session.evaluate(mean, counted, &hits);
    if (!status)
      return status;
    sum += mean * double(counted);
    result.values += counted;
    result.hits += hits;
  }
  result.loss = result.values ? sum / double(result.values) : 0;
  return Status();
}

Status makePrompt(const Options &options, const Program &program,
                  const TextCoding &text, Prompt &prompt) {
  if (!program.decoderLength()) {
    const Status status = text.encode(*options.generate, prompt.tokens);
    return status
               ? status
               : Status(status.exitCode(), "--generate: " + status.message());
  }
  DecoderTokens around;
  if (Status status = findDecoderTokens("--generate", program, text, around);
      !status)
    return status;
  if (Status status = encodeSource("--generate", program, text, around,
                                   *options.generate, prompt.tokens);
      !status)
    return status;
  prompt.decoder = around;
  return Status();
}

Status generate(const Options &options, const TextCoding &text,
                const Prompt &prompt, Session &session,
                std::string &continuation) {
  const Program &program = session.program();
  std::optional<EncoderPrompt> encoder;
  std::vector<int32_t> tokens = prompt.tokens;
  uint64_t window = uint64_t(program.sequenceLength()), most = options.tokens;
  if (prompt.decoder) {
    encoder = {prompt.tokens, prompt.decoder->padding};
    tokens = {prompt.decoder->start};
    window = uint64_t(program.decoderLength());
    most = std::min(most, window);
  }
  const EncoderPrompt *read = encoder ? &*encoder : nullptr;
  size_t given = tokens.size();
  std::vector<int32_t> predicted;
  std::vector<double> scores;
  for (uint64_t i = 0; i < most; ++i) {
    size_t seen = std::min(size_t(window), tokens.size());
    std::span<const int32_t> tail(tokens.data() + tokens.size() - seen, seen);
    int32_t next = 0;
    if (options.sampling.isGreedy()) {
      if (Status status = session.predict(tail, predicted, read); !status)
        return status;
      next = predicted.back();
    } else {
      if (Status status = session.predictScores(tail, scores, read); !status)
        return status;
      next = sampleToken(scores, options.sampling, i);
    }
    if (next == text.end() || (prompt.decoder && next == prompt.decoder->end))
      break;
    tokens.push_back(next);
  }
  continuation = continuationText(
      text, {tokens.begin(), tokens.begin() + std::ptrdiff_t(given)},
      {tokens.begin() + std::ptrdiff_t(given), tokens.end()});
  return Status();
}

BatchReader::BatchReader(const Dataset &data, const Session &session,
                         uint64_t parts)
    : data(data), samples(int64_t(parts) * session.program().batchSize()) {
  for (const std::vector<SampleRange> &ranges : session.samplesRead()) {
    std::vector<SampleRange> &all = wanted.emplace_back();
    for (uint64_t part = 0; part < parts; ++part)
      for (SampleRange range : ranges) {
        range.first += int64_t(part) * session.program().batchSize();
        if (!all.empty() && all.back().first + all.back().count == range.first)
          all.back().count += range.count;
        else
          all.push_back(range);
      }
  }
}

Status BatchReader::read(uint64_t first, Batch &batch) const {
  batch.first = batch.end = first;
  // An epoch's batches, and the one that an epoch's end stands in.
  uint64_t most = data.trainingSamples() / uint64_t(samples) + 2;
  for (uint64_t i = 0; i < most; ++i) {
    uint64_t begin = std::exchange(batch.end, batch.end + uint64_t(samples));
    Status status = data.trainingBatch(begin, samples, batch.values, &wanted,
                                       &batch.counted);
    if (!status || batch.counted)
      return status;
  }
  return Status(ExitInvalid,
                "data: no label counts in the " + std::to_string(most) +
                    " batches from sample " + std::to_string(first) + " on");
}

Status BatchReader::turnTo(uint64_t first) {
  if (!next.values.empty() && next.first == first) {
    std::swap(current, next);
    return Status();
  }
  return read(first, current);
}

void BatchReader::note(const Batch &batch) {
  givenFirst = batch.first;
  givenEnd = batch.end;
  passedOver += (batch.end - batch.first) / uint64_t(samples) - 1;
}

Status BatchReader::give(uint64_t first, bool more, Session &to,
                         uint64_t &end) {
  Status status;
  if (ahead.valid())
    status = ahead.get();
  if (status && !to.hasBegun()) {
    status = turnTo(first);
    if (status)
      status = to.setBatch(current.values, current.counted);
    if (status)
      note(current);
  }
  if (!status)
    return status;
  // The batch that the session has begun with was given behind another.
  end = givenFirst == first ? givenEnd : first + uint64_t(samples);
  uint64_t behind = end;
  if (more && to.program().gradientDelay() > 0) {
    status = turnTo(behind);
    if (status)
      status = to.setNextBatch(current.values, current.counted);
    if (!status)
      return status;
    note(current);
    behind = current.end;
  }
  // The session copies what it takes, so nothing is read by two at once.
  if (more)
    ahead = std::async(std::launch::async,
                       [this, behind] { return read(behind, next); });
  return Status();
}

/// Steps in a row that --skip-norm leaves out before a run ends: a few are
/// outliers, more a run that has diverged.
static constexpr uint64_t kDefaultSkipLimit = 10;

/// Storage that fails may come back: a checkpoint is tried again after 1 s, and
/// twice as long each time, up to this.
static constexpr double kLongestRetry = 60;
/// The last step is tried this often, with nothing behind it.
static constexpr int kLastTries = 4;

static double retrySeconds(uint64_t failures) {
  return std::min(kLongestRetry,
                  double(uint64_t(1) << std::min<uint64_t>(failures - 1, 6)));
}

Training::Training(const Options &options, std::string traceFile,
                   const Dataset &data, const Dataset &held, Session &session,
                   Beginning &beginning, Report &report)
    : options(options), traceFile(std::move(traceFile)), held(held),
      session(session), folder(beginning.folder.get()), state(beginning.state),
      report(report), batches(data, session, state.accumulate),
      written(state.step) {}

Status Training::prepareCheckpoint() {
  // A checkpoint should hold what all replicas hold.
  return options.checkReplicas ? session.checkReplicas() : Status();
}

void Training::wroteCheckpoint(uint64_t step, double seconds,
                               const std::string &warning) {
  if (!warning.empty())
    report.warn(warning);
  checkpointSeconds = seconds;
  failedWrites = 0;
  retryAt = 0;
  written = step;
  newest = folder->stepFolder(step);
}

Status Training::writeCheckpoint() {
  double begin = secondsSinceStart();
  std::string warning;
  Status status = prepareCheckpoint();
  if (status)
    status = session.writeCheckpoint(*folder, state, &warning);
  if (status)
    wroteCheckpoint(state.step, secondsSinceStart() - begin, warning);
  return status;
}

Status Training::beginCheckpoint() {
  double begin = secondsSinceStart();
  Status status = prepareCheckpoint();
  if (status)
    status = session.beginCheckpoint(*folder, state);
  copySeconds = secondsSinceStart() - begin;
  if (status)
    behind = state.step;
  return status;
}

Status Training::endCheckpoint() {
  if (!behind)
    return Status();
  uint64_t step = *std::exchange(behind, std::nullopt);
  CheckpointEnd end;
  Status status = session.endCheckpoint(end);
  if (status)
    wroteCheckpoint(step, copySeconds + end.seconds, end.warning);
  return status;
}

Status Training::afterCheckpoint(const Status &status) {
  if (!status && !session.usable())
    return status;
  if (!status) {
    double wait = retrySeconds(++failedWrites);
    retryAt = secondsSinceStart() + wait;
    report.warn(status.message() + "; the run goes on, " +
                (folder->newest()
                     ? "the newest checkpoint is '" + *folder->newest() + "'"
                     : "there is no checkpoint yet") +
                "; the next try is in " + std::to_string(uint64_t(wait)) +
                " s");
  }
  if (status && asksForCheckpoint && !behind)
    report.note("checkpoint: '" + newest + "'");
  asksForCheckpoint &= behind.has_value();
  return Status();
}

/// Whether another step, with those until all know of it, and what is to be
/// written behind would end too late.
bool Training::isOutOfTime() const {
  return options.maxSeconds > 0 &&
         secondsSinceStart() + stepSeconds * (1 + session.requestsLate()) +
                 checkpointSeconds >=
             options.maxSeconds;
}

/// Returns what this process asks all for at the moment.
uint32_t Training::wishes() {
  uint32_t asked = takeRequests();
  if (isOutOfTime())
    asked |= EndByTime;
  if (report.readerGone() && options.save.empty() && !folder)
    asked |= EndByPipe;
  if (session.isWriting())
    asked |= StillWriting;
  if (retryAt > 0 && secondsSinceStart() >= retryAt)
    asked |= RetryCheckpoint;
  return asked;
}

Status Training::step(uint64_t number, bool last) {
  session.hyperparameters() = state.hyperparameters;
  session.hyperparameters().learningRate = state.schedule.at(number);
  // A session whose updates are late is given no batch ahead of a validation:
  // it would have to give it up.
  bool validates =
      options.validateEvery && (number % options.validateEvery == 0 || last);
  bool more = number < *options.steps &&
              !(validates && session.program().gradientDelay() > 0);
  uint64_t end = 0; // sample behind the batch
  Status status = batches.give(state.samples, more, session, end);
  StepResult result;
  if (status && options.wantsRecording() && state.accumulate == 1)
    status =
        session.record(window || number + options.traceSteps > *options.steps);
  // One step of a window tells who waits for whom on GPUs.
  session.measureWaits(onGpus() && number % StragglerWatch::window == 0);
  const double before = secondsSinceStart();
  if (status)
    status = session.step(result);
  if (!status)
    return status;
  lastStepSeconds = secondsSinceStart() - before;
  // The ranks have gone on: whatever fails from here on, this step is done.
  state.step = number;
  state.samples = end;
  if (uint64_t passedOver = batches.takePassedOver())
    report.note(std::to_string(passedOver) +
                (passedOver == 1 ? " batch has" : " batches have") +
                " no label that counts: passed over");
  if (number == 1 && !options.dumpGradients.empty()) {
    status = session.saveGradients(options.dumpGradients);
    if (!status && !session.usable())
      return status;
    if (status)
      report.wrote("gradients", options.dumpGradients);
    else
      report.failure(status);
    status = Status();
  }
  std::optional<double> loss;
  if (status && validates) {
    Validation validation;
    status = validate(held, session, options.validationBatches, validation);
    loss = validation.loss;
    if (status)
      status = noteValidation(validation.loss);
  }
  if (status)
    report.step(result, loss, state);
  if (status && number % StragglerWatch::window == 0)
    lookForStraggler();
  if (status && options.checkReplicas && number % options.checkReplicas == 0)
    status = session.checkReplicas();
  return status ? checkSkips(result) : status;
}

/// A loss that is no number is never the least. Like that of gradients, a file
/// that cannot be written is a failure of the run behind its last step.
Status Training::noteValidation(double loss) {
  if (state.bestLoss ? !(loss < *state.bestLoss) : std::isnan(loss)) {
    ++state.validationsSince;
    return Status();
  }
  state.bestLoss = loss;
  state.bestStep = state.step;
  state.validationsSince = 0;
  if (options.saveBest.empty())
    return Status();
  Status status = session.save(options.saveBest, options.merge);
  if (!status && !session.usable())
    return status;
  if (status)
    savedBest = true;
  else
    report.failure(status);
  return Status();
}

void Training::beginWindow() {
  if (traceFile.empty())
    return report.warn("SIGUSR2: no step is recorded without --trace=FILE");
  // Who asks again while one is recorded has it.
  if (!window) {
    session.forgetRecorded();
    window.emplace(state.step + 1, state.step + options.traceSteps);
  }
}

void Training::endWindow() {
  if (!window || state.step < window->second)
    return;
  std::filesystem::path path(traceFile);
  path.replace_extension("step-" + std::to_string(window->first) +
                         path.extension().string());
  window.reset();
  // The trace of the last steps, at the end, has those alone.
  Status status = session.writeTrace(path);
  session.forgetRecorded();
  if (status)
    report.note("trace: '" + path.string() + "'");
  else
    report.failure(status);
}

/// A run that leaves out step after step learns nothing any more.
Status Training::checkSkips(const StepResult &result) {
  skippedInRow = result.skipped ? skippedInRow + 1 : 0;
  bool byNorm = state.hyperparameters.skipNorm > 0;
  uint64_t limit = options.skipLimit.value_or(byNorm ? kDefaultSkipLimit : 0);
  if (!limit || skippedInRow < limit)
    return Status();
  return Status(ExitNumerics,
                "step " + std::to_string(result.step) + ": the updates of " +
                    std::to_string(skippedInRow) +
                    " steps in a row were left out, the last for a gradient "
                    "norm of " +
                    std::to_string(result.gradientNorm) +
                    "; --skip-limit allows for more");
}

bool Training::onGpus() const {
  return session.program().manifest().backend == "cuda";
}

void Training::lookForStraggler() {
  std::vector<RankWork> work =
      session.takeWork(onGpus() ? readClock(options.card) : DeviceClock());
  double now = secondsSinceStart();
  uint64_t steps = state.step - windowStep;
  // The first window began before the first step.
  if (windowStep && steps) {
    std::string line =
        onGpus() ? straggler.look(work, lastStepSeconds, 1, slowdownText)
                 : straggler.look(work, now - windowBegan, steps);
    const std::string slowest =
        onGpus() ? clocks.lookAtClocks(work, slowdownText) : "";
    if (line.empty())
      line = slowest;
    if (!line.empty())
      report.note(line);
  }
  windowBegan = now;
  windowStep = state.step;
}

Status Training::run() { return namingCheckpoint(runSteps()); }

Status Training::finish() { return namingCheckpoint(endCheckpoints()); }

/// Names the newest checkpoint where numbers were found wrong behind later
/// steps: it is what is left of the run.
Status Training::namingCheckpoint(const Status &status) const {
  if (status || status.exitCode() != ExitNumerics || !session.goesAhead())
    return status;
  std::optional<std::string> kept =
      folder ? folder->newest() : std::optional<std::string>();
  return Status(ExitNumerics,
                status.message() +
                    (kept ? "; the newest checkpoint is '" + *kept + "'"
                          : "; there is no checkpoint"));
}

Status Training::runSteps() {
  const uint64_t first = state.step;
  bool askedEarly = false;
  while (state.step < *options.steps && !hasStalled()) {
    // All processes do the same behind the same step.
    uint32_t asked = session.anywhere(wishes());
    // The last try answers what was asked for before it.
    if (state.step <= retried)
      asked &= ~uint32_t(RetryCheckpoint);
    endedBy = asked & endRequests;
    if (endedBy)
      break;
    if (asked & TraceNow)
      beginWindow();
    if (asked & CheckpointNow && !folder)
      report.warn("SIGUSR1: nothing is written without --checkpoint=DIR");
    // Nothing is there to write before the first step.
    if (state.step == first)
      askedEarly = (asked & CheckpointNow) != 0;
    else if (std::exchange(askedEarly, false))
      asked |= CheckpointNow;
    uint64_t number = state.step + 1;
    bool due =
        options.checkpointEvery && state.step % options.checkpointEvery == 0;
    due |= (asked & (CheckpointNow | RetryCheckpoint)) != 0;
    due &= folder && state.step != written && state.step != behind;
    // It takes steps until all know that one is still writing.
    const uint64_t late = session.requestsLate();
    bool mayBeWriting = (asked & StillWriting) ||
                        (late && behind && state.step < *behind + late + 1);
    if (behind && (due || !mayBeWriting))
      if (Status status = afterCheckpoint(endCheckpoint()); !status)
        return status;
    if (due) {
      retryAt = 0;
      retried = state.step + late;
      asksForCheckpoint |= (asked & CheckpointNow) != 0;
      Status status = afterCheckpoint(
          session.writesBehind() ? beginCheckpoint() : writeCheckpoint());
      if (!status)
        return status;
    }
    double begin = secondsSinceStart();
    if (Status status = step(number, number == *options.steps); !status)
      return status;
    stepSeconds = std::max(stepSeconds, secondsSinceStart() - begin);
    endWindow();
  }
  if (hasStalled())
    report.note("ended after step " + std::to_string(state.step) +
                " by --patience: none of the last " +
                std::to_string(state.validationsSince) +
                " validations was less than that of step " +
                std::to_string(state.bestStep));
  if (savedBest)
    report.wrote("best model", options.saveBest);
  return Status();
}

Status Training::endCheckpoints() {
  if (behind)
    if (Status status = afterCheckpoint(endCheckpoint()); !status)
      return status;
  if (folder && state.step != written) {
    Status status = writeCheckpoint();
    for (int tries = 1; !status && tries < kLastTries; ++tries) {
      if (status.exitCode() != ExitStorage || !session.usable())
        break;
      double wait = retrySeconds(uint64_t(tries));
      report.warn(status.message() + "; the next try is in " +
                  std::to_string(uint64_t(wait)) + " s");
      std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      status = writeCheckpoint();
    }
    if (!status)
      return status;
  }
  if (!newest.empty())
    report.note("checkpoint: '" + newest + "'");
  return Status();
}
