//===- run.cpp - A run of galvatron-run -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "run.h"
#include "agreement.h"
#include "base/error.h"
#include "checkpoint/state.h"
#include "core/adapters.h"
#include "core/manifest.h"
#include "corruption.h"
#include "links.h"
#include "model_config.h"
#include "outputs.h"
#include "prompts.h"
#include "report.h"
#include "resume.h"
#include "signals.h"
#include "text.h"
#include "training.h"

#include <cstdio>
#include <optional>
#include <sstream>

using namespace grt;

namespace {

/// The same for a program that keeps keys and values: it does nothing else than
/// to generate.
Status checkKept(const Options &options, const Program &program) {
  if (*options.steps > 0 || options.evaluate || options.validateEvery)
    return Status(2, std::string(options.evaluate     ? "--evaluate"
                                 : *options.steps > 0 ? "--steps"
                                                      : "--validate-every") +
                         ": the program keeps keys and values of a position at "
                         "a time, it generates and is not trained or "
                         "evaluated: expected --generate or --prompts");
  if (!options.generates())
    return Status(2, "expected --generate=TEXT or --prompts=FILE, as the "
                     "program keeps keys and values of " +
                         std::to_string(program.cacheRows()) + " texts");
  return Status();
}

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
  if (options.merge && !program.facts().adapterRank)
    return Status(ExitInvalid,
                  "--merge: expected adapters that can be merged into the "
                  "model, found a program without");
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
  if (program.cacheRows())
    return checkKept(options, program);
  if (!options.generationConfig.empty())
    return Status(2, "--generation-config: expected a program that keeps keys "
                     "and values, as galvatron-compile --generate makes them");
  if (!options.prompts.empty())
    return Status(2,
                  "--prompts: expected a program that keeps keys and values, "
                  "as galvatron-compile --generate makes them");
  if (options.generate && !program.predictsTokens())
    return Status(2, "--generate: expected a program whose labels are the "
                     "tokens that follow, of a decoder or of one behind an "
                     "encoder");
  if (const std::string layer = program.dividedPredictions();
      options.generate && !layer.empty())
    return Status(
        ExitInvalid,
        "--generate: expected a program whose last layer has all "
        "positions of a sample on one rank, found the rows of '" +
            layer + "' divided; galvatron-compile --layers='" + layer +
            ":STRATEGY' with one of dp, sdp and tp leaves them whole");
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

/// Opens what is to be trained or validated on; `data` stays null if nothing
/// is. `held` are what validation has of its own; null: nothing.
Status openData(const Options &options, const Program &program,
                const TextCoding &text, Beginning &beginning,
                std::unique_ptr<Dataset> &data,
                std::unique_ptr<Dataset> &held) {
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
  if (status && !options.validationFiles.empty()) {
    DataOptions heldOptions = dataOptions;
    heldOptions.files = options.validationFiles;
    heldOptions.validationFraction = 1;
    status = Dataset::open(heldOptions, program.data(), held);
  }
  if (status && (options.validateEvery || options.evaluate) &&
      (held ? *held : *data).validationSamples() == 0)
    status =
        Status(ExitInvalid, "data: the validation fraction gives no samples");
  // A model that is only looked at may have other data than the checkpoint's.
  if (status && !options.evaluate)
    status = checkData(options, *data, program.sequenceLength(), beginning);
  // One that does not validate leaves what the one before it has found.
  if (status && !options.evaluate && options.validateEvery)
    forgetOtherValidation(held.get(), beginning);
  return status;
}

/// Returns the option that wants the weights of a run that trains nothing;
/// empty if none does.
std::string useOfWeights(const Options &options) {
  return options.evaluate        ? "--evaluate"
         : !options.save.empty() ? "--save"
         : options.generate      ? "--generate"
         : options.generates()   ? "--prompts"
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

/// The outcome of a run: its first failure is the cause.
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
      std::fprintf(stderr, "galvatron-run: error: %s\n",
                   status.message().c_str());
  }
  const Status &cause() const { return first; }

private:
  const bool leads;
  Status first;
};

/// Whether --save writes adapters without the model.
bool savesAdapters(const Options &options, const Program &program) {
  return program.facts().adapterRank && !options.merge;
}

/// Says what is lost of a run that ends before its last step, and how to go on.
void tellLoss(const Options &options, const Program &program,
              const TrainingState &state, bool savesModel, Report &report) {
  if (!options.checkpoint.empty())
    report.note("to go on: the same command with --resume");
  else if (savesModel)
    report.note("to go on from the saved weights, with a new optimizer: " +
                std::string(savesAdapters(options, program) ? "--adapters="
                                                            : "--init=") +
                options.save);
  else if (state.step)
    report.note("the weights are lost, as neither --save=DIR nor "
                "--checkpoint=DIR was given; with --checkpoint=DIR and "
                "--resume a run goes on where it was ended");
}

/// The warning that the adapters of a checkpoint have another scale than the
/// program's, as their files would be refused for; empty if they have not, or
/// nothing says which they have.
std::string warningOfAdapters(const std::string &checkpoint,
                              const Manifest &manifest) {
  if (!manifest.adapters.rank)
    return "";
  return guarded([&] {
           const std::string config =
               readCheckpointManifest(checkpoint).adapters;
           if (!config.empty())
             checkAdapterConfig(config, checkpoint, manifest.adapters);
         })
      .message();
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

/// A run, phase by phase.
class Run {
public:
  Run(const Options &options, std::shared_ptr<const Program> program,
      std::shared_ptr<Processes> processes)
      : options(options), program(std::move(program)),
        processes(std::move(processes)),
        leads(!this->processes || this->processes->number() == 0),
        outcome(leads) {}

  Status execute(int &exitCode);

private:
  /// Makes `own` the status of all processes.
  Status agree(const Status &own, const std::vector<Term> &terms = {}) {
    return processes ? processes->agree(own, terms) : own;
  }
  /// The program, what it says of the options, and texts.
  Status load();
  /// Finds where the run begins, and its data.
  Status findBeginning();
  /// The ranks, with their weights.
  Status makeSession();
  /// Prints what the run is and what is to be said of it before its steps.
  void tellBeginning();
  void train();
  void save();
  /// Looks at the model that a run that was not ended leaves.
  void validateAndGenerate();
  void continuePrompts();
  void writeTrace();
  /// The failure that ends the run, where it is one.
  Status finish(int &exitCode);

  bool isUsable() const { return session->usable(); }
  TrainingState &state() { return beginning.state; }
  const Dataset &validationData() const { return held ? *held : *data; }

  const Options &options;
  std::shared_ptr<const Program> program;
  const std::shared_ptr<Processes> processes; ///< null: this one alone
  const bool leads;
  std::unique_ptr<TextCoding> text;
  Prompt prompt;
  KeptPrompts kept; ///< of a program that keeps keys
  std::optional<Report> report;
  Beginning beginning;
  std::unique_ptr<Dataset> data, held; ///< `held`: of validation alone
  LinksFound links;
  SessionOptions sessionOptions;
  std::unique_ptr<Session> session;
  std::string versions;    ///< of the weights, where a note is due
  bool roundsAlike = true; ///< as the run that is continued
  Outcome outcome;
  std::optional<Training> training;
  uint64_t firstStep = 0; ///< done before this run
  uint32_t ended = 0;     ///< by which request
  bool stopped = false;   ///< by a failure
  bool reachable = true;  ///< all processes do what follows together
  bool refused = false;   ///< nothing was done that could be lost
  bool saves = false;     ///< the model is written
};

Status Run::load() {
  Status status;
  if (!program)
    status = Program::loadFile(options.program, program);
  // Nobody goes on with a layout or an option that another process lacks.
  if (processes)
    status = processes->agree(status, termsOfOptions(options, program.get()));
  if (status)
    status = checkAgainstProgram(options, *program, processes.get());
  if (status)
    status = openTextCoding(options, *program, text);
  if (status && program->cacheRows())
    status = readPrompts(options, *program, *text, kept);
  else if (status && options.generate)
    status = makePrompt(options, *program, *text, prompt);
  if (!status)
    return status;
  report.emplace(options, *program, processes.get());
  return agree(tryAllOutputs(options, *program, processes.get(), *report));
}

Status Run::findBeginning() {
  Status status = begin(options, *program, processes.get(), beginning);
  if (status)
    status = openData(options, *program, *text, beginning, data, held);
  std::vector<Term> terms;
  if (status && processes)
    status = termsOfBeginning(options, beginning, data.get(), terms);
  return agree(status, terms);
}

Status Run::makeSession() {
  sessionOptions = sessionOptionsOf(options, state(), processes.get());
  if (processes) {
    // They have a watchdog in common, which sees the ranks of all.
    sessionOptions.world = processes->world();
    sessionOptions.timeoutSeconds = 0;
  }
  Status status;
  std::string noLinks; // of which the session says why
  if (program->manifest().backend != "cpu")
    status = lookAtLinks(options, *program, processes.get(), links, noLinks);
  if (status)
    status = report->open(beginning.checkpoint.has_value());
  if (status)
    status = Session::create(program, sessionOptions, session);
  if (status && beginning.checkpoint) {
    status = session->resume(*beginning.checkpoint, &versions);
    if (!status)
      status = offerOlder(beginning, status);
  } else if (status && !options.init.empty()) {
    status = session->loadWeights(options.init);
  }
  if (status && !beginning.checkpoint && !options.adapters.empty())
    status = session->loadAdapters(options.adapters);
  if (!status)
    return status;
  const std::string choices = session->kernelChoices();
  roundsAlike =
      !beginning.checkpoint || areAmong(choices, state().kernelChoices);
  if (!beginning.checkpoint || !roundsAlike)
    state().kernelChoices = choices;
  return status;
}

void Run::tellBeginning() {
  std::vector<std::string> connected = linesOf(links);
  if (!options.gpu.empty())
    connected.insert(connected.begin(), "GPU: " + options.gpu);
  report->header(*session, data.get(), state(), connected);
  for (const Finding &finding : judgeLinks(links, /*onDevices=*/true))
    report->warn(finding.text);
  for (const std::string &note : session->notes())
    report->warn(note);
  if (beginning.checkpoint && leads)
    if (std::string other =
            warningOfAdapters(*beginning.checkpoint, program->manifest());
        !other.empty())
      report->warn(other);
  const std::string weights = beginning.checkpoint.value_or(options.init);
  if (std::string other =
          warningOfConfig(weights, program->manifest().modelConfig);
      !weights.empty() && !other.empty())
    report->warn(other);
  for (const std::string &note : beginning.notes)
    report->note(note);
  if (!kept.rules.unread.empty())
    report->warn("'" + generationConfigPath(options) +
                 "': not read: " + kept.rules.unread);
  if (!versions.empty())
    report->warn(versions);
  if (!roundsAlike)
    report->note("products are run by other algorithms than in the run that "
                 "this one continues: sums may be rounded otherwise");
  if (std::string why = session->whyNotOneGraph();
      !why.empty() && options.graphs && !options.checkStreams)
    report->note(session->graphsPerStep()
                     ? "a step is two graphs of the device, as " + why
                     : "steps are no graphs of the device, as " + why);
  if (sessionOptions.checkpointCopies && !session->writesBehind())
    report->note("no memory for copies of the state: steps wait while "
                 "checkpoints are written");
  if (std::string use = useOfWeights(options);
      !*options.steps && !use.empty() && !beginning.checkpoint &&
      options.init.empty())
    report->warn(use + " without steps, --init or --resume: the weights are "
                       "random ones");
}

void Run::train() {
  firstStep = state().step;
  // A run that only looks at a model loses nothing when it is ended.
  if (firstStep < *options.steps)
    catchSignals();
  if (data) {
    bool traces = !options.trace.empty() && recordsSteps(options, state());
    training.emplace(options,
                     traces ? ownFile(options.trace, processes.get()) : "",
                     *data, validationData(), *session, beginning, *report);
    outcome.add(training->run());
    ended = training->ended();
  }
  stopped = !outcome.cause();
  // Other processes may not know of the failure, and what follows they do
  // together.
  reachable = isUsable() && (!stopped || !processes ||
                             outcome.cause().exitCode() == ExitNumerics);
  // A run that was refused at its first step has nothing to lose.
  refused = stopped && state().step == firstStep &&
            outcome.cause().exitCode() == ExitInvalid;
  if (ended)
    report->note(std::string("ended by ") + endingOf(ended).word +
                 " after step " + std::to_string(state().step));
}

void Run::save() {
  saves = reachable && !refused && !options.save.empty();
  if (!reachable)
    return;
  outcome.add(session->finish());
  if (training)
    outcome.add(training->finish());
  if (!isUsable() || !saves)
    return;
  Status saved = session->save(options.save, options.merge);
  outcome.add(saved);
  saves = bool(saved);
  if (!saved)
    return;
  const bool areAdapters = savesAdapters(options, *program);
  report->wrote(areAdapters ? "adapters" : "model", options.save);
  // Who generates with the model goes by what came with its weights.
  const std::string rules = generationConfigPath(options);
  std::error_code failed;
  if (leads && !areAdapters && !rules.empty())
    std::filesystem::copy_file(rules,
                               std::filesystem::path(options.save) /
                                   std::filesystem::path(rules).filename(),
                               std::filesystem::copy_options::skip_existing,
                               failed);
  if (failed)
    report->warn("'" + rules + "' is not copied: " + failed.message());
}

void Run::validateAndGenerate() {
  if (stopped || ended || !isUsable())
    return;
  Validation validation;
  if (options.evaluate ||
      (options.validateEvery && state().step == firstStep)) {
    Status validated = validate(validationData(), *session,
                                options.validationBatches, validation);
    outcome.add(validated);
    if (validated && options.evaluate)
      report->evaluated(validation);
    else if (validated)
      report->validated(validation.loss);
  }
  if (program->cacheRows())
    return continuePrompts();
  if (!options.generate)
    return;
  std::string continuation;
  Status generated = generate(options, *text, prompt, *session, continuation);
  outcome.add(generated);
  if (generated)
    report->generated(prompt.decoder ? "" : *options.generate, continuation);
}

void Run::continuePrompts() {
  GenerationCost cost;
  // Texts are told in their order, each as soon as those before it are there.
  std::vector<bool> isThere(kept.prompts.size(), false);
  size_t told = 0;
  Status written = continueTexts(
      kept.prompts, kept.rules, *session,
      [&](size_t number, const std::vector<int32_t> &tokens) {
        kept.continuations[number] = tokens;
        isThere[number] = true;
        for (; told < isThere.size() && isThere[told]; ++told)
          report->generated(kept.texts[told],
                            continuationText(*text, kept.prompts[told].tokens,
                                             kept.continuations[told]));
      },
      cost);
  outcome.add(written);
  if (!written)
    return;
  report->generationCost(cost);
}

void Run::writeTrace() {
  if (!reachable || !isUsable())
    return;
  if (!options.trace.empty()) {
    std::string file = ownFile(options.trace, processes.get());
    Status traced = session->writeTrace(file);
    outcome.add(traced);
    if (traced)
      report->wrote("trace", file);
  }
  if (recordsSteps(options, state()))
    outcome.add(report->shares(*session));
}

Status Run::finish(int &exitCode) {
  if ((ended || stopped) && !refused)
    tellLoss(options, *program, state(), saves, *report);
  size_t told = 0;
  auto addFailures = [&] {
    for (; told < report->failures().size(); ++told)
      outcome.add(report->failures()[told], /*told=*/true);
  };
  addFailures();
  exitCode = ended ? endingOf(ended).exitCode : 0;
  report->finish(session->memory(),
                 outcome.cause() ? session->swaps() : std::vector<RankSwaps>(),
                 !outcome.cause() ? failureWord(outcome.cause().exitCode())
                 : ended          ? endingOf(ended).word
                                  : "completed");
  addFailures();
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

Status Run::execute(int &exitCode) {
  Status status = load();
  if (status)
    status = findBeginning();
  if (status)
    status = makeSession();
  if (!status)
    return status;
  tellBeginning();
  train();
  save();
  validateAndGenerate();
  writeTrace();
  return finish(exitCode);
}

} // namespace

Status run(const Options &options, std::shared_ptr<const Program> program,
           std::shared_ptr<Processes> processes, int &exitCode) {
  return Run(options, std::move(program), std::move(processes))
      .execute(exitCode);
}
