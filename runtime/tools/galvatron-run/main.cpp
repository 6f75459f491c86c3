//===- main.cpp - galvatron-run: runs a compiled program ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "agreement.h"
#include "grt/processes.h"
#include "options.h"
#include "report.h"
#include "resume.h"
#include "signals.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace grt;

namespace {

/// Options that depend on the program.
Status checkAgainstProgram(const Options &options, const Program &program,
                           const Processes *processes) {
  std::string needed =
      "the program needs " + std::to_string(program.worldSize()) + " ranks, ";
  if (processes && processes->ranks() != program.worldSize())
    return Status(
        2, needed + std::to_string(processes->count()) + " processes have " +
               std::to_string(processes->ranks()) + "; --ranks=N gives each N");
  if (!processes && options.ranks && *options.ranks != program.worldSize())
    return Status(2,
                  needed + "--ranks gives " + std::to_string(*options.ranks));
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

/// Mean loss over the validation samples.
Status validate(const Options &options, const Dataset &data, Session &session,
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

/// Every process writes of its ranks: `trace.json`, `trace.1.json`.
std::string ownFile(const std::string &name, const Processes *processes) {
  std::filesystem::path path(name);
  if (!processes || processes->number() == 0)
    return path;
  return path.replace_extension(std::to_string(processes->number()) +
                                path.extension().string());
}

/// Trains up to the last step, or to the one during which the run is asked to
/// end (`ended`); `state` follows.
Status train(const Options &options, const Dataset &data, Session &session,
             const CheckpointFolder *folder, TrainingState &state,
             Report &report, bool &ended) {
  int64_t batch = session.program().batchSize();
  std::vector<int32_t> inputs, labels;
  uint64_t written = state.step;
  while (state.step < *options.steps) {
    // All processes end after the same step.
    ended = endRequested() != nullptr;
    if (Status status = session.anywhere(ended); !status)
      return status;
    if (ended)
      break;
    uint64_t step = state.step + 1;
    bool last = step == *options.steps;
    session.hyperparameters() = state.hyperparameters;
    session.hyperparameters().learningRate = state.schedule.at(step);
    Status status = data.trainingBatch(state.samples, batch, inputs, labels);
    if (status)
      status = session.setBatch(inputs, labels);
    StepResult result;
    if (status && options.wantsRecording())
      status = session.record(step + options.traceSteps > *options.steps);
    if (status)
      status = session.step(result);
    if (status && step == 1 && !options.dumpGradients.empty())
      status = session.saveGradients(options.dumpGradients);
    std::optional<double> validation;
    bool wanted =
        options.validateEvery && (step % options.validateEvery == 0 || last);
    if (status && wanted)
      status = validate(options, data, session, validation.emplace());
    if (status)
      status = report.step(result, session.memory(), validation);
    state.step = step;
    state.samples += uint64_t(batch);
    if (status && folder && options.checkpointEvery &&
        step % options.checkpointEvery == 0) {
      status = session.writeCheckpoint(*folder, state);
      written = step;
    }
    if (!status)
      return status;
  }
  if (ended) {
    const char *signal = endRequested();
    report.note(std::string("ended by ") +
                (signal ? signal : "a signal to another process") +
                " after step " + std::to_string(state.step));
  }
  if (!folder)
    return Status();
  if (state.step != written)
    if (Status status = session.writeCheckpoint(*folder, state); !status)
      return status;
  if (std::optional<std::string> newest = folder->newest())
    report.note("checkpoint: '" + *newest + "'");
  return Status();
}

Status run(const Options &options, std::shared_ptr<Processes> processes) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadFile(options.program, program);
  // Nobody goes on with a layout or an option that another process lacks.
  if (processes)
    status = processes->agree(status, termsOfOptions(options, program.get()));
  if (status)
    status = checkAgainstProgram(options, *program, processes.get());
  if (!status)
    return status;

  Beginning beginning;
  TrainingState &state = beginning.state;
  status = begin(options, *program, processes.get(), beginning);
  std::unique_ptr<Dataset> data;
  if (status && *options.steps > 0) {
    DataOptions dataOptions = options.data;
    dataOptions.seed = state.seed;
    status = Dataset::open(dataOptions, program->vocabularySize(),
                           program->sequenceLength(), data);
    if (status && data->trainingSamples() == 0)
      status = Status(2, "data: the validation fraction leaves no samples");
    if (status && options.validateEvery && data->validationSamples() == 0)
      status = Status(2, "data: the validation fraction gives no samples");
    if (status)
      status = checkData(options, *data, program->sequenceLength(), beginning);
  }
  if (processes) {
    std::vector<Term> terms;
    if (status)
      status = termsOfBeginning(options, beginning, data.get(), terms);
    status = processes->agree(status, terms);
  }
  if (!status)
    return status;

  Report report(options, *program, processes.get());
  SessionOptions sessionOptions;
  sessionOptions.seed = state.seed;
  sessionOptions.decayAll = state.decayAll;
  sessionOptions.threadsPerRank = options.threadsPerRank;
  sessionOptions.timeoutSeconds = options.timeout;
  sessionOptions.onNan = options.onNan;
  sessionOptions.checkStreams = options.checkStreams;
  sessionOptions.graphs = options.graphs;
  if (!options.flight.empty())
    sessionOptions.flightFile = ownFile(options.flight, processes.get());
  sessionOptions.trace = options.wantsRecording();
  if (processes) {
    // They have a watchdog in common, which sees the ranks of all.
    sessionOptions.world = processes->world();
    sessionOptions.timeoutSeconds = 0;
  }
  std::unique_ptr<Session> session;
  status = report.open(beginning.checkpoint.has_value());
  if (status)
    status = Session::create(program, sessionOptions, session);
  if (status && beginning.checkpoint) {
    status = session->resume(*beginning.checkpoint);
    if (status)
      report.note("resumed from '" + *beginning.checkpoint + "'");
  } else if (status && !options.init.empty()) {
    status = session->loadWeights(options.init);
  }
  if (!status)
    return status;
  catchSignals();
  bool ended = false;
  if (data)
    status = train(options, *data, *session, beginning.folder.get(), state,
                   report, ended);
  if (status)
    status = session->finish();
  if (status && !options.trace.empty())
    status = session->writeTrace(ownFile(options.trace, processes.get()));
  if (status && options.wantsRecording())
    status = report.shares(*session);
  if (status && ended)
    return report.finish(session->memory());
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

void complain(const Status &status) {
  std::fprintf(stderr, "galvatron-run: error: %s\n", status.message().c_str());
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
  // What every process of a run finds wrong is said once.
  if (!status) {
    if (Processes::launchedNumber() == 0)
      complain(status);
    return status.exitCode();
  }
  reportFatalSignals("galvatron-run: error: ");
  ProcessOptions processOptions;
  processOptions.threadRanks = int(options.ranks.value_or(1));
  processOptions.timeout = options.timeout;
  processOptions.secretFile = options.launchSecret;
  processOptions.listen = options.listen;
  std::shared_ptr<Processes> processes;
  status = Processes::join(processOptions, processes);
  options.checkpoints.leads = !processes || processes->number() == 0;
  if (status)
    status = run(options, processes);
  if (processes)
    return processes->finish(status);
  if (status)
    return 0;
  complain(status);
  // Not by way of destructors: a rank that is stuck still uses what they end.
  std::fflush(nullptr);
  std::_Exit(status.exitCode());
}
