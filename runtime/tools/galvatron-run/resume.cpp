//===- resume.cpp - Where a run begins ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "resume.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <tuple>
#include <vector>

using namespace grt;

namespace {

/// What the options say goes before what the checkpoint or the program says.
void applyOptions(const Options &options, TrainingState &state) {
  Hyperparameters &values = state.hyperparameters;
  if (options.betas)
    std::tie(values.beta1, values.beta2) = *options.betas;
  values.eps = options.eps.value_or(values.eps);
  values.weightDecay = options.weightDecay.value_or(values.weightDecay);
  values.momentum = options.momentum.value_or(values.momentum);
  values.clipNorm = options.clipNorm.value_or(values.clipNorm);
  LearningRateSchedule &schedule = state.schedule;
  // Without a decay the least rate follows the rate.
  bool decays = schedule.least != schedule.peak;
  schedule.peak = options.lr.value_or(schedule.peak);
  schedule.least =
      options.minLr.value_or(decays ? schedule.least : schedule.peak);
  schedule.warmupSteps = options.warmupSteps.value_or(schedule.warmupSteps);
  schedule.steps = *options.steps;
  state.decayAll |= options.decayAll;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

/// What goes on differently than the run that wrote the checkpoint.
void tellChanges(const Options &options, const LearningRateSchedule &before,
                 Beginning &beginning) {
  const TrainingState &state = beginning.state;
  const LearningRateSchedule &schedule = state.schedule;
  beginning.notes.push_back("resumed from '" + *beginning.checkpoint + "'");
  // --steps=0 only takes the model out.
  if (*options.steps && state.step >= *options.steps)
    beginning.notes.push_back("already at step " + std::to_string(state.step) +
                              ": --steps=" + std::to_string(*options.steps) +
                              " leaves nothing to train");
  else if (*options.steps && schedule.least != schedule.peak &&
           before.steps != schedule.steps)
    beginning.notes.push_back(
        "the cosine ends at step " + std::to_string(schedule.steps) +
        ", that of the checkpoint at step " + std::to_string(before.steps) +
        ": the rate of step " + std::to_string(state.step + 1) + " is " +
        number(schedule.at(state.step + 1)) + " instead of " +
        number(before.at(state.step + 1)));
}

Status otherRun(const Beginning &beginning, const std::string &what) {
  return Status(2, "checkpoint '" + *beginning.checkpoint + "' " + what +
                       "; to start another run from its weights, use --init=" +
                       *beginning.checkpoint);
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
    std::vector<uint64_t> steps = beginning.folder->steps();
    if (!steps.empty())
      chosen = std::to_string(steps.back());
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
  // Without a mark process 0 could not open its folder, and says so.
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
  if (beginning.checkpoint && !options.resume)
    return Status(2, "'" + options.checkpoint +
                         "' holds checkpoints of another run: add --resume to "
                         "go on from '" +
                         *beginning.checkpoint + "', or name another folder");
  if (beginning.checkpoint) {
    if (Status status = readTrainingState(*beginning.checkpoint, state);
        !status)
      return status;
    if (options.seed && *options.seed != state.seed)
      return otherRun(beginning,
                      "was made with seed " + std::to_string(state.seed) +
                          ", --seed gives " + std::to_string(*options.seed));
  }
  LearningRateSchedule before = state.schedule;
  applyOptions(options, state);
  const LearningRateSchedule &schedule = state.schedule;
  if (schedule.least > schedule.peak)
    return Status(ExitInvalid,
                  "--min-lr ends the decay of --lr: expected at most " +
                      number(schedule.peak) + ", found " +
                      number(schedule.least));
  if (beginning.checkpoint)
    tellChanges(options, before, beginning);
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
  if (state.validationFraction != options.data.validationFraction)
    return otherRun(beginning,
                    "was made with --validation-fraction=" +
                        std::to_string(state.validationFraction) + ", found " +
                        std::to_string(options.data.validationFraction));
  if (state.data.size() != files.size())
    return otherRun(beginning,
                    "was made with " + std::to_string(state.data.size()) +
                        " data files, found " + std::to_string(files.size()));
  std::vector<std::string> names = data.fileNames();
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
