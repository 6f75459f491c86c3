//===- main.cpp - galvatron-run: runs a compiled program ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "agreement.h"
#include "base/error.h"
#include "check.h"
#include "checkpoint/files.h"
#include "children.h"
#include "core/manifest.h"
#include "corruption.h"
#include "error_file.h"
#include "grt/outputs.h"
#include "grt/processes.h"
#include "grt/variables.h"
#include "links.h"
#include "measure.h"
#include "options.h"
#include "per_gpu.h"
#include "restarts.h"
#include "signals.h"
#include "text.h"
#include "training.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

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
  bool isSgd = program.optimizer() == "sgd";
  auto notOf = [&](const char *option) {
    return Status(ExitInvalid, std::string(option) + ": the program's " +
                                   "optimizer, " + program.optimizer() +
                                   ", has none");
  };
  if (options.momentum && !isSgd)
    return notOf("--momentum");
  if (options.betas && isSgd)
    return notOf("--betas");
  if (options.eps && isSgd)
    return notOf("--eps");
  if (options.generate && !program.predictsTokens())
    return Status(2, "--generate: expected a program whose labels are the "
                     "tokens that follow, of a decoder or of one behind an "
                     "encoder");
  if (options.generate && program.decoderLength() &&
      options.given.count("--tokens") &&
      options.tokens > uint64_t(program.decoderLength()))
    return Status(2, "--tokens: expected at most the " +
                         std::to_string(program.decoderLength()) +
                         " of the program's decoder, found " +
                         std::to_string(options.tokens) +
                         "; galvatron-compile --decoder-seq-len=" +
                         std::to_string(options.tokens) + " has room for them");
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

/// What checkpoints take that an earlier run did not complete: they go before
/// one is written.
uint64_t unfinishedBytes(const std::string &folder) {
  uint64_t bytes = 0;
  std::error_code problem;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(folder, problem))
    if (entry.path().parent_path().extension() == ".partial" &&
        entry.is_regular_file(problem))
      bytes += entry.file_size(problem);
  return bytes;
}

/// The files that a run reads.
std::vector<Input> inputsOf(const Options &options) {
  std::vector<Input> inputs = {{"the program", options.program}};
  std::error_code missing;
  for (const DataFiles &files : options.data.files)
    for (const std::string &path : files.paths) {
      inputs.push_back({"the data", path});
      for (const std::string &index : possibleIndices(path))
        if (std::filesystem::exists(index, missing))
          inputs.push_back({"an index of the data", index});
    }
  if (!options.init.empty())
    for (const std::string &path : weightFiles(options.init))
      inputs.push_back({"--init", path});
  const std::pair<const char *, const std::string *> others[] = {
      {"--tokenizer", &options.tokenizer},
      {"--launch-secret", &options.launchSecret}};
  for (const auto &[option, path] : others)
    if (!path->empty())
      inputs.push_back({option, *path});
  return inputs;
}

/// The files of process 0, and those that every process writes of its ranks.
Status tryAllOutputs(const Options &options, const Program &program,
                     const Processes *processes, Report &report) {
  ProgramFacts facts = program.facts();
  bool leads = !processes || processes->number() == 0;
  std::vector<Output> outputs;
  auto add = [&](const char *option, const std::string &path,
                 Output::Kind kind) -> Output * {
    if (path.empty() || path == "-")
      return nullptr;
    outputs.push_back({option, path, kind});
    return &outputs.back();
  };
  if (leads) {
    if (Output *save = add("--save", options.save, Output::Folder))
      save->bytes = save->largestFile = facts.modelBytes;
    if (Output *folder =
            add("--checkpoint", options.checkpoint, Output::Folder);
        folder && *options.steps) {
      // One more than stay, unless so many stand there already.
      uint64_t writes = 1;
      std::error_code missing;
      if (options.checkpointEvery &&
          (!std::filesystem::exists(options.checkpoint, missing) ||
           std::filesystem::is_empty(options.checkpoint, missing)))
        writes = std::min(*options.steps / options.checkpointEvery + 1,
                          options.checkpoints.keep + 1);
      uint64_t bytes = writes * facts.checkpointBytes;
      folder->bytes =
          bytes - std::min(bytes, unfinishedBytes(options.checkpoint));
      folder->largestFile = facts.largestFileBytes;
    }
    add("--log", options.log, Output::Stream);
    add("--summary", options.summary, Output::Stream);
    add("--report", options.report, Output::Stream);
    add("--json", options.json, Output::Stream);
    add("--dump-gradients", options.dumpGradients, Output::Whole);
  }
  if (!options.trace.empty())
    add("--trace", ownFile(options.trace, processes), Output::Whole);
  if (options.flightGiven && !options.flight.empty())
    add("--flight-recorder", ownFile(options.flight, processes), Output::Whole);
  if (Status status = tryOutputs(outputs, inputsOf(options)); !status)
    return status;
  if (options.flightGiven || options.flight.empty())
    return Status();
  // Nobody asked for this file, so that it is not worth the run.
  Output flight{"--flight-recorder", ownFile(options.flight, processes),
                Output::Whole};
  if (Status status = tryOutputs({&flight, 1}); !status)
    report.warn(status.message() +
                "; a run that fails will not say what its ranks did last");
  return Status();
}

/// Opens what is to be trained or validated on; `data` stays null if nothing
/// is.
Status openData(const Options &options, const Program &program,
                const TextCoding &text, Beginning &beginning,
                std::unique_ptr<Dataset> &data) {
  if (!*options.steps && !options.validateEvery && !options.evaluate)
    return Status();
  DataOptions dataOptions = options.data;
  dataOptions.seed = beginning.state.seed;
  if (beginning.checkpoint && !options.evaluate &&
      !options.given.count("--validation-fraction"))
    dataOptions.validationFraction = beginning.state.validationFraction;
  dataOptions.encodeText = text.fileEncoder();
  dataOptions.tokenizerHash = text.tokenizerHash();
  Status status =
      findCorruptionTokens(options, program, text, dataOptions.corruption);
  if (status)
    status = Dataset::open(dataOptions, program.data(), data);
  if (status && *options.steps && data->trainingSamples() == 0)
    status =
        Status(ExitInvalid, "data: the validation fraction leaves no samples");
  if (status && (options.validateEvery || options.evaluate) &&
      data->validationSamples() == 0)
    status =
        Status(ExitInvalid, "data: the validation fraction gives no samples");
  // What is only looked at may be other data than the checkpoint's.
  if (status && !options.evaluate)
    status = checkData(options, *data, program.sequenceLength(), beginning);
  return status;
}

/// What wants the weights of a run that trains nothing; empty if nothing does.
std::string useOfWeights(const Options &options) {
  return options.evaluate        ? "--evaluate"
         : !options.save.empty() ? "--save"
         : options.generate      ? "--generate"
         : options.validateEvery ? "--validate-every"
                                 : "";
}

/// The cost model has the time of a step of one batch.
bool recordsSteps(const Options &options, const TrainingState &state) {
  return options.wantsRecording() && state.accumulate == 1;
}

SessionOptions sessionOptionsOf(const Options &options,
                                const TrainingState &state,
                                const Processes *processes) {
  SessionOptions result;
  result.seed = state.seed;
  result.decayAll = state.decayAll;
  result.groups = state.groups;
  result.kernelChoices = state.kernelChoices;
  result.threadsPerRank = options.threadsPerRank;
  result.timeoutSeconds = options.timeout;
  result.onNan = options.onNan;
  result.checkStreams = options.checkStreams;
  result.graphs = options.graphs;
  result.shareDevices = options.shareGpus;
  result.anyPlacement = options.anyPlacement;
  result.checkpointCopies = options.checkpointEvery && options.writeBehind;
  result.hostMemoryBytes = options.hostMemory;
  if (!options.flight.empty())
    result.flightFile = ownFile(options.flight, processes);
  result.trace = recordsSteps(options, state);
  return result;
}

/// The summary's word for a failure.
const char *failureWord(int exitCode) {
  switch (exitCode) {
  case ExitInvalid:
    return "invalid-input";
  case ExitNumerics:
    return "numerics";
  case ExitPeerLost:
    return "peer-lost";
  case ExitStorage:
    return "storage";
  case ExitMemory:
    return "memory";
  default:
    return "failed";
  }
}

void complain(const Status &status) {
  std::fprintf(stderr, "galvatron-run: error: %s\n", status.message().c_str());
}

/// What became of a run: the first failure is its cause.
class Outcome {
public:
  explicit Outcome(bool leads) : leads(leads) {}
  /// Whether it is the first; later ones are told at once.
  void add(const Status &status, bool told = false) {
    if (status)
      return;
    if (first)
      first = status;
    else if (!told && leads)
      complain(status);
  }
  const Status &cause() const { return first; }

private:
  const bool leads;
  Status first;
};

/// Says what is lost of a run that ends before its last step, and how to go on.
void tellLoss(const Options &options, const TrainingState &state,
              bool savesModel, Report &report) {
  if (!options.checkpoint.empty())
    report.note("to go on: the same command with --resume");
  else if (savesModel)
    report.note("to go on from the saved weights, with a new optimizer: "
                "--init=" +
                options.save);
  else if (state.step)
    report.note("the weights are lost, as neither --save=DIR nor "
                "--checkpoint=DIR was given; with --checkpoint=DIR and "
                "--resume a run goes on where it was ended");
}

/// Whether each line of `choices` is one of `all`, which a run that has tried
/// more than it takes has, too.
bool areAmong(const std::string &choices, const std::string &all) {
  if (choices.empty() != all.empty())
    return false;
  std::istringstream lines(choices);
  for (std::string line; std::getline(lines, line);)
    if (("\n" + all).find("\n" + line + "\n") == std::string::npos)
      return false;
  return true;
}

/// Trains, evaluates, and writes what was asked for. Whatever fails, everything
/// else that can be written is. `exitCode` is that of a run without a failure.
/// `program`: the one of the options, if it was loaded before.
Status run(const Options &options, std::shared_ptr<const Program> program,
           std::shared_ptr<Processes> processes, int &exitCode) {
  Status status;
  if (!program)
    status = Program::loadFile(options.program, program);
  // Nobody goes on with a layout or an option that another process lacks.
  if (processes)
    status = processes->agree(status, termsOfOptions(options, program.get()));
  if (status)
    status = checkAgainstProgram(options, *program, processes.get());
  std::unique_ptr<TextCoding> text;
  Prompt prompt;
  if (status)
    status = openTextCoding(options, *program, text);
  if (status && options.generate)
    status = makePrompt(options, *program, *text, prompt);
  if (!status)
    return status;
  Report report(options, *program, processes.get());
  status = tryAllOutputs(options, *program, processes.get(), report);
  if (processes)
    status = processes->agree(status, {});
  if (!status)
    return status;

  Beginning beginning;
  TrainingState &state = beginning.state;
  status = begin(options, *program, processes.get(), beginning);
  std::unique_ptr<Dataset> data;
  if (status)
    status = openData(options, *program, *text, beginning, data);
  if (processes) {
    std::vector<Term> terms;
    if (status)
      status = termsOfBeginning(options, beginning, data.get(), terms);
    status = processes->agree(status, terms);
  }
  if (!status)
    return status;

  SessionOptions sessionOptions =
      sessionOptionsOf(options, state, processes.get());
  if (processes) {
    // They have a watchdog in common, which sees the ranks of all.
    sessionOptions.world = processes->world();
    sessionOptions.timeoutSeconds = 0;
  }
  LinksFound links;
  std::string noLinks; // of which the session says why
  if (program->manifest().backend != "cpu")
    status = lookAtLinks(options, *program, processes.get(), links, noLinks);
  std::unique_ptr<Session> session;
  if (status)
    status = report.open(beginning.checkpoint.has_value());
  if (status)
    status = Session::create(program, sessionOptions, session);
  std::string versions;
  if (status && beginning.checkpoint) {
    status = session->resume(*beginning.checkpoint, &versions);
    if (!status)
      status = offerOlder(beginning, status);
  } else if (status && !options.init.empty())
    status = session->loadWeights(options.init);
  if (!status)
    return status;
  const std::string choices = session->kernelChoices();
  const bool roundsAlike =
      !beginning.checkpoint || areAmong(choices, state.kernelChoices);
  if (!beginning.checkpoint || !roundsAlike)
    state.kernelChoices = choices;
  std::vector<std::string> connected = linesOf(links);
  if (!options.gpu.empty())
    connected.insert(connected.begin(), "GPU: " + options.gpu);
  report.header(*session, data.get(), state, connected);
  for (const Finding &finding : judgeLinks(links, /*onDevices=*/true))
    report.warn(finding.text);
  for (const std::string &note : session->notes())
    report.warn(note);
  for (const std::string &note : beginning.notes)
    report.note(note);
  if (!versions.empty())
    report.warn(versions);
  if (!roundsAlike)
    report.note("products are run by other algorithms than in the run that "
                "this one continues: sums may be rounded otherwise");
  if (std::string why = session->whyNotOneGraph();
      !why.empty() && options.graphs && !options.checkStreams)
    report.note(session->graphsPerStep()
                    ? "a step is two graphs of the device, as " + why
                    : "steps are no graphs of the device, as " + why);
  if (sessionOptions.checkpointCopies && !session->writesBehind())
    report.note("no memory for copies of the state: steps wait while "
                "checkpoints are written");
  if (std::string use = useOfWeights(options);
      !*options.steps && !use.empty() && !beginning.checkpoint &&
      options.init.empty())
    report.warn(use + " without steps, --init or --resume: the weights are "
                      "random ones");
  // What only looks at a model loses nothing when it is ended.
  if (state.step < *options.steps)
    catchSignals();

  bool leads = !processes || processes->number() == 0;
  Outcome outcome(leads);
  std::optional<Training> training;
  uint64_t firstStep = state.step;
  if (data) {
    bool traces = !options.trace.empty() && recordsSteps(options, state);
    training.emplace(options,
                     traces ? ownFile(options.trace, processes.get()) : "",
                     *data, *session, beginning, report);
    outcome.add(training->run());
  }
  bool stopped = !outcome.cause();
  uint32_t ended = training ? training->ended() : 0;
  // Of several processes others may not know of the failure, and what follows
  // they do together.
  bool reachable =
      session->usable() &&
      (!stopped || !processes || outcome.cause().exitCode() == ExitNumerics);
  // A run that was refused at its first step has nothing to lose.
  bool refused = stopped && state.step == firstStep &&
                 outcome.cause().exitCode() == ExitInvalid;
  bool saves = reachable && !refused && !options.save.empty();
  if (ended)
    report.note(std::string("ended by ") + endingOf(ended).word +
                " after step " + std::to_string(state.step));
  if (reachable) {
    outcome.add(session->finish());
    if (training)
      outcome.add(training->finish());
    if (session->usable() && saves) {
      Status saved = session->save(options.save);
      outcome.add(saved);
      saves = bool(saved);
      if (saved)
        report.wrote("model", options.save);
    }
  }
  if (!stopped && !ended && session->usable()) {
    Validation validation;
    if (options.evaluate ||
        (options.validateEvery && state.step == firstStep)) {
      Status validated =
          validate(*data, *session, options.validationBatches, validation);
      outcome.add(validated);
      if (validated && options.evaluate)
        report.evaluated(validation);
      else if (validated)
        report.validated(validation.loss);
    }
    if (options.generate) {
      std::string continuation;
      Status generated =
          generate(options, *text, prompt, *session, continuation);
      outcome.add(generated);
      if (generated)
        report.generated(prompt.decoder ? "" : *options.generate, continuation);
    }
  }
  if (reachable && session->usable()) {
    if (!options.trace.empty()) {
      std::string file = ownFile(options.trace, processes.get());
      Status traced = session->writeTrace(file);
      outcome.add(traced);
      if (traced)
        report.wrote("trace", file);
    }
    if (recordsSteps(options, state))
      outcome.add(report.shares(*session));
  }
  if ((ended || stopped) && !refused)
    tellLoss(options, state, saves, report);
  for (const Status &failure : report.failures())
    outcome.add(failure, /*told=*/true);
  size_t told = report.failures().size();
  exitCode = ended ? endingOf(ended).exitCode : 0;
  report.finish(session->memory(),
                outcome.cause() ? session->swaps() : std::vector<RankSwaps>(),
                !outcome.cause() ? failureWord(outcome.cause().exitCode())
                : ended          ? endingOf(ended).word
                                 : "completed");
  for (; told < report.failures().size(); ++told)
    outcome.add(report.failures()[told], /*told=*/true);
  std::string note = session->flightNote();
  if (note.empty() || outcome.cause())
    return outcome.cause();
  if (!processes)
    return Status(outcome.cause().exitCode(),
                  outcome.cause().message() + " (" + note + ")");
  // The message is that of whichever process failed first.
  if (leads)
    std::fprintf(stderr, "galvatron-run: note: %s\n", note.c_str());
  return outcome.cause();
}

/// A program of a run of so many ranks (0: any number); null where there is
/// none or it cannot be read, which the run itself says.
std::shared_ptr<const Program>
programFor(const Options &options, const ElasticPrograms &programs, int ranks) {
  std::vector<std::string> paths = {options.program};
  if (auto found = programs.find(ranks); found != programs.end())
    paths = {found->second};
  if (options.measure) {
    // All are for one cluster.
    paths.clear();
    std::error_code problem;
    for (const auto &entry :
         std::filesystem::directory_iterator(options.program, problem))
      if (entry.path().extension() == ".gvx")
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
  }
  std::shared_ptr<const Program> program;
  for (const std::string &path : paths)
    if (Program::loadFile(path, program) &&
        (ranks == 0 || program->worldSize() == ranks))
      return program;
  return nullptr;
}

/// What does not look at processes, data or weights.
Status printAnswer(const std::string &text) {
  return guarded([&] { writeStandardOutput(text); });
}

/// `--check`: what is found makes the exit code.
Status checkOnly(const Options &options, Processes *processes,
                 const std::string &own, int &exitCode) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadFile(options.program, program);
  if (processes)
    status = processes->agree(status, termsOfOptions(options, program.get()));
  bool ends = false;
  if (status)
    status = check(options, *program, processes, own, ends);
  if (ends)
    exitCode = ExitInvalid;
  return status;
}

/// Says what was found on the machines, at process 0; the first finding that
/// ends a run is the error of all processes.
Status tellFindings(const Findings &findings, const Processes *processes) {
  Status status;
  for (const Finding &finding : findings)
    if (finding.ends && status)
      status = Status(finding.ends, finding.text);
    else if (!processes || processes->number() == 0)
      std::fprintf(stderr, "galvatron-run: %s: %s\n",
                   finding.ends ? "error" : "warning", finding.text.c_str());
  return status;
}

/// `--describe`: what the program is.
Status describe(const Options &options) {
  std::shared_ptr<const Program> program;
  if (Status status = Program::loadFile(options.program, program); !status)
    return status;
  std::string text = options.described == "manifest"
                         ? std::string(program->manifestText()) + "\n"
                         : program->describe(!options.json.empty(),
                                             options.described == "whole");
  if (options.json.empty() || options.json == "-")
    return printAnswer(text);
  const Output output{"--json", options.json, Output::Whole};
  const Input input{"the program", options.program};
  if (Status status = tryOutputs({&output, 1}, {&input, 1}); !status)
    return status;
  return guarded([&] {
    AtomicFile file(options.json);
    file.write(text);
    file.commit();
  });
}

} // namespace

int main(int argc, char **argv) {
  openStandardDescriptors();
  setLibraryVariables();
  Options options;
  Status status = parseOptions(argc - 1, argv + 1, options);
  bool asks = status && (options.help || options.version || options.describe);
  if (asks)
    status = options.help ? printAnswer(helpText())
             : options.version
                 ? printAnswer(std::string("galvatron-run ") + version() + "\n")
                 : describe(options);
  if (asks && status)
    return 0;
  // What every process of a run finds wrong is said once.
  if (!status) {
    writeErrorFile(status);
    if (Processes::launchedNumber() == 0)
      complain(status);
    return status.exitCode();
  }
  if (!options.check && options.restarts && !isAttempt())
    return supervise(options, argv);
  if (std::optional<int> code = runOnEachGpu(options, argv))
    return *code;
  makeWritesFail();
  catchWishes();
  unblockWishes();
  reportFatalSignals("galvatron-run: error: ", options.coreDumps);
  ProcessOptions processOptions;
  processOptions.threadRanks = int(options.ranks.value_or(1));
  processOptions.timeout = options.timeout;
  processOptions.secretFile = options.launchSecret;
  processOptions.listen = options.listen;
  processOptions.restarts = isAttempt();
  ElasticPrograms programs;
  status = findElasticPrograms(options, programs);
  for (const auto &[ranks, path] : programs)
    if (ranks % processOptions.threadRanks == 0)
      processOptions.smaller.push_back(int(ranks) / processOptions.threadRanks);
  processOptions.nodes = [&](int ranks) {
    std::shared_ptr<const Program> program =
        programFor(options, programs, ranks);
    return program ? program->nodes() : std::vector<int>();
  };
  std::shared_ptr<const Program> program;
  if (status)
    program = programFor(options, programs, 0);
  if (program)
    processOptions.tells = lookAtMachine(options, *program);
  // Behind the look at what the user has set.
  if (program && program->manifest().backend == "cuda")
    NcclLog::capture();
  std::shared_ptr<Processes> processes;
  if (status)
    status = Processes::join(processOptions, processes);
  if (status.exitCode() == exitSpare) {
    std::fprintf(stderr,
                 "galvatron-run: note: this process is not needed: %s\n",
                 status.message().c_str());
    return exitSpare;
  }
  if (processes)
    if (auto found = programs.find(processes->ranks());
        found != programs.end()) {
      if (processes->number() == 0)
        std::fprintf(stderr, "galvatron-run: note: going on with %lld ranks\n",
                     static_cast<long long>(found->first));
      options.program = found->second;
      program = nullptr;
    }
  if (processes && processes->number() == 0)
    if (std::string text = processes->renumbering(); !text.empty())
      std::fprintf(stderr, "galvatron-run: note: %s\n", text.c_str());
  options.checkpoints.leads = !processes || processes->number() == 0;
  int exitCode = 0;
  if (status && options.check)
    status =
        checkOnly(options, processes.get(), processOptions.tells, exitCode);
  else if (status)
    status = tellFindings(findingsOfAll(processes.get(), processOptions.tells),
                          processes.get());
  if (status && !options.check)
    status = options.measure ? measure(options, processes, exitCode)
                             : run(options, program, processes, exitCode);
  // Before others are ended: whoever is first is the cause.
  if (!status)
    writeErrorFile(status);
  if (processes) {
    int common = processes->finish(status);
    return common ? common : exitCode;
  }
  if (status)
    return exitCode;
  complain(status);
  // Not by way of destructors: a rank that is stuck still uses what they end.
  std::fflush(nullptr);
  std::_Exit(status.exitCode());
}
