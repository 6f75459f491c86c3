//===- main.cpp - galvatron-run: runs a compiled program ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/learning_rate.h"
#include "options.h"
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

using namespace grt;

namespace {

/// Options that depend on the program.
Status checkAgainstProgram(const Options &options, const Program &program) {
  if (options.ranks && *options.ranks != program.worldSize())
    return Status(
        2, "the program needs " + std::to_string(program.worldSize()) +
               " ranks, --ranks gives " + std::to_string(*options.ranks));
  if (options.clipNorm && !program.clipsGradients())
    return Status(2, "--clip-norm: the program was compiled with --clip=off");
  if (options.generate && program.vocabularySize() > 256)
    return Status(2, "--generate needs byte tokens, a vocabulary of at most "
                     "256; the program's is " +
                         std::to_string(program.vocabularySize()));
  if (options.generate)
    for (size_t i = 0; i < options.generate->size(); ++i)
      if (uint8_t((*options.generate)[i]) >= program.vocabularySize())
        return Status(2, "--generate: byte " +
                             std::to_string(uint8_t((*options.generate)[i])) +
                             " at position " + std::to_string(i) +
                             ", expected less than the vocabulary of " +
                             std::to_string(program.vocabularySize()));
  return Status();
}

void applyHyperparameters(const Options &options, Hyperparameters &values) {
  if (options.betas)
    std::tie(values.beta1, values.beta2) = *options.betas;
  values.learningRate = options.lr.value_or(values.learningRate);
  values.eps = options.eps.value_or(values.eps);
  values.weightDecay = options.weightDecay.value_or(values.weightDecay);
  values.momentum = options.momentum.value_or(values.momentum);
  values.clipNorm = options.clipNorm.value_or(values.clipNorm);
}

/// Mean loss over the validation samples.
Status validate(const Options &options, TokenFile &data, Session &session,
                double &loss) {
  int64_t batch = session.program().batchSize();
  uint64_t batches = data.validationBatches(batch);
  if (options.validationBatches)
    batches = std::min(batches, options.validationBatches);
  std::vector<int32_t> inputs, labels;
  double sum = 0;
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < batches; ++i) {
    Status status = data.validationBatch(i, batch, inputs, labels);
    if (status)
      status = session.setBatch(inputs, labels);
    double mean = 0;
    uint64_t valid = 0;
    if (status)
      status = session.evaluate(mean, valid);
    if (!status)
      return status;
    sum += mean * double(valid);
    tokens += valid;
  }
  loss = tokens ? sum / double(tokens) : 0;
  return Status();
}

/// Appends the likeliest byte again and again; the model sees the last bytes
/// that fit its sequence length.
Status generate(const Options &options, Session &session, std::string &text) {
  std::vector<int32_t> tokens;
  for (char c : *options.generate)
    tokens.push_back(uint8_t(c));
  size_t window = size_t(session.program().sequenceLength());
  std::vector<int32_t> predicted;
  for (uint64_t i = 0; i < options.tokens; ++i) {
    size_t seen = std::min(window, tokens.size());
    std::span<const int32_t> tail(tokens.data() + tokens.size() - seen, seen);
    if (Status status = session.predict(tail, predicted); !status)
      return status;
    tokens.push_back(predicted.back());
    text.push_back(char(predicted.back()));
  }
  return Status();
}

Status train(const Options &options, TokenFile &data, Session &session,
             Report &report) {
  LearningRateSchedule schedule;
  schedule.peak = session.hyperparameters().learningRate;
  schedule.least = options.minLr.value_or(schedule.peak);
  schedule.warmupSteps = options.warmupSteps;
  schedule.steps = *options.steps;
  std::vector<int32_t> inputs, labels;
  for (uint64_t step = 1; step <= *options.steps; ++step) {
    session.hyperparameters().learningRate = schedule.at(step);
    Status status =
        data.trainingBatch(step, session.program().batchSize(), inputs, labels);
    if (status)
      status = session.setBatch(inputs, labels);
    StepResult result;
    if (status)
      status = session.step(result);
    if (status && step == 1 && !options.dumpGradients.empty())
      status = session.saveGradients(options.dumpGradients);
    std::optional<double> validation;
    bool wanted = options.validateEvery &&
                  (step % options.validateEvery == 0 || step == *options.steps);
    if (status && wanted)
      status = validate(options, data, session, validation.emplace());
    if (status)
      status = report.step(result, session.memory(), validation);
    if (!status)
      return status;
  }
  return Status();
}

Status run(const Options &options) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadFile(options.program, program);
  if (status)
    status = checkAgainstProgram(options, *program);
  if (!status)
    return status;

  std::unique_ptr<TokenFile> data;
  if (*options.steps > 0)
    status = TokenFile::open(options.data, program->vocabularySize(),
                             program->sequenceLength(), data);
  if (status && data && data->trainingSamples() == 0)
    status = Status(2, "data file '" + options.data.path +
                           "': the validation fraction leaves no samples");
  if (status && data && options.validateEvery && data->validationSamples() == 0)
    status = Status(2, "data file '" + options.data.path +
                           "': the validation fraction gives no samples");
  if (!status)
    return status;

  Report report(options, *program);
  SessionOptions sessionOptions;
  sessionOptions.seed = options.seed;
  sessionOptions.decayAll = options.decayAll;
  sessionOptions.threadsPerRank = options.threadsPerRank;
  std::unique_ptr<Session> session;
  status = report.open();
  if (status)
    status = Session::create(program, sessionOptions, session);
  if (!status)
    return status;
  applyHyperparameters(options, session->hyperparameters());
  if (data)
    status = train(options, *data, *session, report);
  if (status && !options.save.empty())
    status = session->save(options.save);
  if (status && options.generate) {
    std::string text;
    status = generate(options, *session, text);
    if (status)
      report.generated(*options.generate, text);
  }
  return status ? report.finish(session->memory()) : status;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  Status status = parseOptions(argc - 1, argv + 1, options);
  if (status && options.help) {
    std::fputs(helpText(), stdout);
    return 0;
  }
  if (status && options.version) {
    std::printf("galvatron-run %s\n", version());
    return 0;
  }
  if (status)
    status = run(options);
  if (!status)
    std::fprintf(stderr, "galvatron-run: error: %s\n",
                 status.message().c_str());
  return status.exitCode();
}
