//===- resume.cpp - Where a run begins ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "resume.h"
#include "restarts.h"

#include "base/text.h"
#include "core/host_memory.h"
#include "grt/parameter_groups.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

using namespace grt;

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

/// The samples of a step and of the one behind it are in host memory, besides
/// the arenas.
Status checkStepSamples(const Program &program, uint64_t accumulate) {
  double bytes = 0;
  for (const Datum &datum : program.data())
    bytes += 2.0 * double(datum.bytesPerSample);
  bytes *= double(program.batchSize()) * double(accumulate);
  for (const std::optional<MemoryBound> &bound :
       {machineMemory(), groupMemory()})
    if (bound && bytes > double(bound->bytes))
      return Status(ExitMemory,
                    "--accumulate=" + std::to_string(accumulate) +
                        ": the samples of two steps take " +
                        bytesText(uint64_t(std::min(bytes, 0x1p63))) + ", " +
                        bytesText(bound->bytes) + " are available (" +
                        bound->source + ")");
  return Status();
}

/// Sets what the options say; it goes before what the checkpoint or the program
/// says.
void applyOptions(const Options &options, TrainingState &state) {
  Hyperparameters &values = state.hyperparameters;
  if (options.betas)
    std::tie(values.beta1, values.beta2) = *options.betas;
  values.eps = options.eps.value_or(values.eps);
  values.weightDecay = options.weightDecay.value_or(values.weightDecay);
  values.momentum = options.momentum.value_or(values.momentum);
  values.clipNorm = options.clipNorm.value_or(values.clipNorm);
  values.skipNorm = options.skipNorm.value_or(values.skipNorm);
  state.accumulate = options.accumulate.value_or(state.accumulate);
  state.groups = options.groups.value_or(state.groups);
  LearningRateSchedule &schedule = state.schedule;
  // The least rate follows the rate where there is no decay, unless it is
  // named.
  bool decays = schedule.least != schedule.peak;
  schedule.peak = options.lr.value_or(schedule.peak);
  double least = decays ? schedule.least : schedule.peak;
  if (options.decay && *options.decay != schedule.decay)
    schedule.decaySteps = 0;
  if (options.decay)
    least = *options.decay == Decay::Constant ? schedule.peak
            : decays                          ? schedule.least
                                              : 0;
  schedule.decay = options.decay.value_or(schedule.decay);
  schedule.least = options.minLr.value_or(least);
  schedule.warmupSteps = options.warmupSteps.value_or(schedule.warmupSteps);
  schedule.decaySteps = options.decaySteps.value_or(schedule.decaySteps);
  schedule.steps = *options.steps;
  state.decayAll |= options.decayAll;
}

/// Refuses a schedule that cannot be.
Status checkSchedule(const Options &options, const LearningRateSchedule &s) {
  bool constant = s.decay == Decay::Constant;
  if (constant && (options.minLr || options.decaySteps))
    return Status(ExitInvalid,
                  std::string(options.minLr ? "--min-lr" : "--decay-steps") +
                      ": a constant rate has no decay");
  if (s.least > s.peak)
    return Status(ExitInvalid,
                  "--min-lr ends the decay of --lr: expected at most " +
                      number(s.peak) + ", found " + number(s.least));
  if (options.decaySteps && s.least == s.peak)
    return Status(ExitInvalid, "--decay-steps: the rate does not fall without "
                               "--lr-schedule or --min-lr");
  uint64_t room = s.steps - std::min(s.steps, s.warmupSteps);
  if (options.decaySteps && s.decaySteps > room)
    return Status(ExitInvalid, "--decay-steps: expected at most the " +
                                   std::to_string(room) +
                                   " steps after the warm-up, found " +
                                   std::to_string(s.decaySteps));
  return Status();
}

/// Tells which groups of parameters and which batch go on.
void tellSettings(const TrainingState &before, const TrainingState &state,
                  std::vector<std::string> &notes) {
  auto changed = [&](const char *what, const std::string &now,
                     const std::string &then) {
    notes.push_back(std::string(what) + " " + now + ", the checkpoint's were " +
                    then);
  };
  auto groups = [](const TrainingState &of) {
    return of.groups.empty() ? std::string("none")
                             : "'" + printParameterGroups(of.groups) + "'";
  };
  if (before.groups != state.groups)
    changed("parameter groups are", groups(state), groups(before));
  if (before.accumulate != state.accumulate)
    changed("batches of a step are", std::to_string(state.accumulate),
            std::to_string(before.accumulate));
}

/// Tells what differs from the run that wrote the checkpoint.
void tellChanges(const Options &options, const TrainingState &old,
                 Beginning &beginning) {
  const TrainingState &state = beginning.state;
  const LearningRateSchedule &schedule = state.schedule, &before = old.schedule;
  beginning.notes.push_back("resumed from '" + *beginning.checkpoint + "'");
  // --steps=0 only takes the model out.
  if (*options.steps && state.step >= *options.steps)
    beginning.notes.push_back("already at step " + std::to_string(state.step) +
                              ": --steps=" + std::to_string(*options.steps) +
                              " leaves nothing to train");
  else if (*options.steps && schedule.least != schedule.peak &&
           before.decayEnd() != schedule.decayEnd() &&
           before.at(state.step + 1) != schedule.at(state.step + 1))
    beginning.notes.push_back(
        "the " +
        std::string(schedule.decay == Decay::Cosine ? "cosine" : "decay") +
        " ends at step " + std::to_string(schedule.decayEnd()) +
        ", that of the checkpoint at step " +
        std::to_string(before.decayEnd()) + ": the rate of step " +
        std::to_string(state.step + 1) + " is " +
        number(schedule.at(state.step + 1)) + " instead of " +
        number(before.at(state.step + 1)));
}

Status otherRun(const Beginning &beginning, const std::string &what) {
  return Status(2, "checkpoint '" + *beginning.checkpoint + "' " + what +
                       "; to start another run from its weights, use --init=" +
                       *beginning.checkpoint);
}

/// The step of the newest checkpoint; "" if there is none. A run with restarts
/// goes on from the one before a damaged one.
std::string newestWhole(const Options &options, Beginning &beginning) {
  const CheckpointFolder &folder = *beginning.folder;
  std::vector<uint64_t> steps = folder.steps();
  while (options.restarts && folder.options().leads && !steps.empty()) {
    std::string newest = folder.stepFolder(steps.back());
    Status whole = verifyCheckpoint(newest);
    if (whole)
      break;
    beginning.notes.push_back(whole.message() + "; '" + newest +
                              "' is set aside");
    if (Status aside = setCheckpointAside(newest); !aside) {
      beginning.notes.back() = whole.message() + "; " + aside.message();
      break;
    }
    steps.pop_back();
  }
  return steps.empty() ? "" : std::to_string(steps.back());
}

} // namespace

Status offerOlder(const Beginning &beginning, Status failed) {
  const CheckpointFolder &folder = *beginning.folder;
  // One of several processes looks; a checkpoint that is whole has another
  // fault.
  if (!folder.options().leads || verifyCheckpoint(*beginning.checkpoint))
    return failed;
  std::vector<uint64_t> steps = folder.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::string older = folder.stepFolder(*step);
    if (older < *beginning.checkpoint && verifyCheckpoint(older))
      return Status(failed.exitCode(),
                    failed.message() + "; '" + older + "' is whole: rename '" +
                        *beginning.checkpoint + "' to go on from there");
  }
  return failed;
}

namespace {

/// Leaves out the data where the attempts before met a value that is not
/// finite.
void skipData(const Program &program, Beginning &beginning) {
  Attempt attempt = currentAttempt();
  TrainingState &state = beginning.state;
  if (!attempt.skipBatches)
    return;
  uint64_t samples =
      attempt.skipBatches * state.accumulate * uint64_t(program.batchSize());
  beginning.notes.push_back("samples " + std::to_string(state.samples) +
                            " to " +
                            std::to_string(state.samples + samples - 1) +
                            " are left out: a value was not finite there");
  state.samples += samples;
}

/// Opens the folder and finds the newest checkpoint. Process 0 alone chooses,
/// so that no process goes on from another; all must write into its folder.
Status openFolder(const Options &options, Processes *processes,
                  Beginning &beginning) {
  Status status = CheckpointFolder::open(options.checkpoint,
                                         options.checkpoints, beginning.folder);
  std::string mark, chosen;
  if (status) {
    mark = beginning.folder->mark();
    chosen = newestWhole(options, beginning);
  }
  if (processes) {
    Status shared = processes->share(mark);
    if (shared)
      shared = processes->share(chosen);
    if (!shared)
      return shared;
  }
  if (!status)
    return status;
  // The mark is empty where process 0 could not open its folder, which it says
  // itself.
  std::error_code problem;
  if (!mark.empty() &&
      !std::filesystem::exists(options.checkpoint + "/" + mark, problem))
    return Status(2, "'" + options.checkpoint +
                         "' is not the checkpoint folder of process 0: all "
                         "processes read and write checkpoints, so machines "
                         "must share it");
  if (!chosen.empty())
    beginning.checkpoint = beginning.folder->stepFolder(std::stoull(chosen));
  return Status();
}

} // namespace

Status begin(const Options &options, const Program &program,
             Processes *processes, Beginning &beginning) {
  TrainingState &state = beginning.state;
  state.seed = options.seed.value_or(0);
  state.hyperparameters = Hyperparameters::defaults(program);
  state.schedule.peak = state.schedule.least =
      state.hyperparameters.learningRate;
  state.sequenceLength = program.sequenceLength();
  state.validationFraction = options.data.validationFraction;
  if (!options.checkpoint.empty()) {
    if (Status status = openFolder(options, processes, beginning); !status)
      return status;
  }
  if (options.resume && !beginning.checkpoint && !*options.steps &&
      options.init.empty())
    return Status(ExitInvalid, "--resume: '" + options.checkpoint +
                                   "' has no checkpoint, and without steps no "
                                   "run begins");
  if (beginning.checkpoint && !options.resume)
    return Status(2, "'" + options.checkpoint +
                         "' holds checkpoints of another run: add --resume to "
                         "go on from '" +
                         *beginning.checkpoint + "', or name another folder");
  if (beginning.checkpoint) {
    if (Status status = readTrainingState(*beginning.checkpoint, state);
        !status)
      return offerOlder(beginning, status);
    if (options.seed && *options.seed != state.seed)
      return otherRun(beginning,
                      "was made with seed " + std::to_string(state.seed) +
                          ", --seed gives " + std::to_string(*options.seed));
  }
  TrainingState before = state;
  applyOptions(options, state);
  if (Status status = checkSchedule(options, state.schedule); !status)
    return status;
  GroupFacts facts;
  if (Status status = checkParameterGroups(state.groups, program, facts);
      !status)
    return status;
  if (state.accumulate > 1 && !options.trace.empty())
    return Status(ExitInvalid, "--trace shows a step of one batch: expected "
                               "no --accumulate above 1, found " +
                                   std::to_string(state.accumulate));
  if (Status status = checkStepSamples(program, state.accumulate); !status)
    return status;
  if (beginning.checkpoint) {
    tellChanges(options, before, beginning);
    tellSettings(before, state, beginning.notes);
  }
  skipData(program, beginning);
  // What adapters are added to stays as it is.
  if (program.facts().adapterRank && *options.steps && options.init.empty() &&
      !beginning.checkpoint)
    beginning.notes.push_back("adapters beside weights that are random: "
                              "--init=MODEL names those that they are of");
  if (facts.frozen)
    beginning.notes.push_back(
        "frozen: " + std::to_string(facts.frozen) + " of " +
        std::to_string(facts.frozen + facts.trained) + " parameters");
  return Status();
}

Status checkData(const Options &options, const Dataset &data,
                 int64_t sequenceLength, Beginning &beginning) {
  TrainingState &state = beginning.state;
  std::vector<DataIdentity> files = data.identity();
  if (!beginning.checkpoint) {
    state.data = std::move(files);
    return Status();
  }
  if (state.sequenceLength != sequenceLength)
    return otherRun(beginning, "was made with sequences of " +
                                   std::to_string(state.sequenceLength) +
                                   " tokens, the program's have " +
                                   std::to_string(sequenceLength));
  if (options.given.count("--validation-fraction") &&
      state.validationFraction != options.data.validationFraction)
    return otherRun(beginning, "was made with --validation-fraction=" +
                                   number(state.validationFraction) +
                                   ", found " +
                                   number(options.data.validationFraction));
  // The last identity says what is made of the rows of the files in front of
  // it.
  auto corruptionOf = [](const std::vector<DataIdentity> &identities) {
    std::string last = identities.empty() ? "" : identities.back().format;
    return last == "masked tokens"     ? "--corrupt=tokens"
           : last == "corrupted spans" ? "--corrupt=spans"
                                       : "samples as files have them";
  };
  if (std::string before = corruptionOf(state.data), now = corruptionOf(files);
      before != now)
    return otherRun(beginning, "was made with " + before + ", found " + now);
  if (state.data.size() != files.size())
    return otherRun(beginning,
                    "was made with " + std::to_string(state.data.size()) +
                        " data files, found " + std::to_string(files.size()));
  std::vector<std::string> names = data.fileNames();
  // Sources of a mixture were once read in no whole passes.
  for (size_t i = 0; i < files.size(); ++i) {
    DataIdentity older = files[i];
    older.format = "mixture";
    if (files[i].format != mixtureFormat || state.data[i] != older)
      continue;
    if (!options.acceptNewOrder)
      return Status(2, "checkpoint '" + *beginning.checkpoint +
                           "' was made by a version that read mixtures in "
                           "another order, without whole passes over small "
                           "sources: version " +
                           version() +
                           " cannot go on in it; --accept-new-order goes on in "
                           "the new one, in which samples may come again");
    state.data[i] = files[i];
    beginning.notes.push_back(
        "the mixture goes on in another order than the checkpoint's");
  }
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i] != state.data[i])
      return otherRun(beginning,
                      "was made with other data: file " + std::to_string(i) +
                          " had " + std::to_string(state.data[i].tokens) + " " +
                          state.data[i].format + " values, '" + names[i] +
                          "' has " + std::to_string(files[i].tokens) + " " +
                          files[i].format + " values" +
                          (files[i].tokens == state.data[i].tokens
                               ? " and differs from it"
                               : ""));
  return Status();
}

void forgetOtherValidation(const Dataset *held, Beginning &beginning) {
  TrainingState &state = beginning.state;
  std::vector<DataIdentity> now =
      held ? held->identity() : std::vector<DataIdentity>();
  if (std::exchange(state.validationData, now) == now || !state.bestLoss)
    return;
  state.bestLoss.reset();
  state.bestStep = state.validationsSince = 0;
  beginning.notes.push_back("the checkpoint was validated on other data: its "
                            "least validation loss is forgotten");
}
