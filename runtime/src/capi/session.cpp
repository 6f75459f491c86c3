//===- session.cpp - Sessions of compiled programs, in C ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "capi/sized.h"
#include "core/manifest.h"
#include "grt/c_api.h"
#include "grt/checkpoint.h"
#include "grt/processes.h"

#include <filesystem>
#include <optional>

using namespace grt;

struct grt_session {
  std::shared_ptr<Processes> processes; ///< null: this one alone
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session; ///< goes before what it uses
  std::unique_ptr<CheckpointFolder> folder;
  std::vector<int> stored; ///< parameters, by number of the tensor
  TrainingState state;     ///< of the steps that are done
  /// Batches of the program in the step that was handed in and is not ended.
  std::optional<uint64_t> pending;
};

namespace {

thread_local std::string errorText;

/// Runs the body of a function, and keeps what it says of a failure.
template <typename Body> int32_t call(Body &&body) {
  Status status = guarded(std::forward<Body>(body));
  errorText = status.message();
  return status.exitCode();
}

void check(const Status &status) {
  if (!status)
    fail(ExitCode(status.exitCode()), status.message());
}

grt_session &use(const grt_session *session) {
  if (!session)
    invalid("session: expected one, found null");
  return const_cast<grt_session &>(*session);
}

std::string textOf(const char *text) { return text ? text : ""; }

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

std::shared_ptr<const Program> loadProgram(const grt_session_options &options) {
  std::shared_ptr<const Program> program;
  if (options.program && options.program_data)
    invalid("program: expected a file or its bytes, found both");
  if (options.program)
    check(Program::loadFile(options.program, program));
  else if (options.program_data)
    check(Program::loadMemory({static_cast<const char *>(options.program_data),
                               options.program_bytes},
                              "program", program));
  else
    invalid("program: expected a file or its bytes, found none");
  return program;
}

/// Ranks of this process. Without `processes`, those of all are here.
int localRanks(const grt_session_options &options, const Program &program) {
  const int64_t world = program.worldSize();
  if (options.local_ranks < 0)
    invalid("local_ranks: expected at least 0, found " +
            str(options.local_ranks));
  if (options.local_ranks)
    return options.local_ranks;
  if (options.processes <= 1)
    return options.processes == GRT_PROCESSES_OF_LAUNCHER ? 1 : int(world);
  if (world % options.processes)
    invalid("the program's " + str(world) +
            " ranks are not shared equally by " + str(options.processes) +
            " processes: expected 'local_ranks' of each");
  return int(world / options.processes);
}

std::shared_ptr<Processes> join(const grt_session_options &options,
                                const Program &program) {
  if (options.processes < GRT_PROCESSES_OF_LAUNCHER)
    invalid("processes: expected at least 0, or GRT_PROCESSES_OF_LAUNCHER, "
            "found " +
            str(options.processes));
  if (options.processes == 0 || options.processes == 1)
    return nullptr;
  ProcessOptions how;
  how.tool = "galvatron";
  how.ownsProcess = false;
  how.threadRanks = localRanks(options, program);
  how.timeout = options.timeout;
  how.folder = textOf(options.plugins);
  how.secretFile = textOf(options.secret_file);
  how.nodes = [&](int) { return program.nodes(); };
  if (options.processes > 1) {
    if (options.process < 0 || options.process >= options.processes)
      invalid("process: expected 0 to " + str(options.processes - 1) +
              ", found " + str(options.process));
    if (!options.address || !options.port)
      invalid("address and port: expected where process 0 listens, as there "
              "are " +
              str(options.processes) + " processes");
    KnownProcesses &known = how.known.emplace();
    known.number = options.process;
    known.count = options.processes;
    known.address = options.address;
    known.port = options.port;
    known.run = textOf(options.run);
    if (options.rendezvous_seconds > 0)
      known.seconds = options.rendezvous_seconds;
  }
  std::shared_ptr<Processes> processes;
  check(Processes::join(how, processes));
  return processes;
}

/// The checkpoint from which a session continues: `path`, or the newest one in
/// it if it is a folder of checkpoints.
std::string findCheckpoint(const std::string &path) {
  const std::vector<uint64_t> steps = checkpointSteps(path);
  return steps.empty() ? path : checkpointPath(path, steps.back());
}

/// Throws where processes differ in what they have in common.
void agree(Processes &processes, const Status &own, const Program *program,
           const grt_session_options &options, const std::string &checkpoint) {
  std::vector<Term> terms;
  Status status = own;
  auto add = [&](const char *name, const std::string &text) {
    terms.push_back({name, std::string(name) + " " + text});
  };
  auto addWeights = [&](const char *name, const std::string &path) {
    std::string identity;
    if (status && !path.empty())
      status = identifyWeights(path, identity);
    if (!path.empty())
      add(name, identity);
  };
  if (program)
    add("program", program->hash().substr(0, 16));
  add("seed", str(options.seed));
  add("on_nan", str(options.on_nan));
  addWeights("resume", checkpoint);
  addWeights("weights", textOf(options.weights));
  check(processes.agree(status, terms));
}

OnNan onNanOf(const grt_session_options &options, const Program &program) {
  switch (options.on_nan) {
  case GRT_ON_NAN_DEFAULT:
    return program.gradientDelay() > 0 || program.updatesJustInTime()
               ? OnNan::Late
               : OnNan::Stop;
  case GRT_ON_NAN_STOP:
    return OnNan::Stop;
  case GRT_ON_NAN_SKIP:
    return OnNan::Skip;
  case GRT_ON_NAN_LATE:
    return OnNan::Late;
  }
  invalid("on_nan: expected a grt_on_nan, found " + str(options.on_nan));
}

/// Sets the part of the state that is known before there is a session.
void beginState(grt_session &session, const grt_session_options &options,
                const std::string &checkpoint) {
  session.state.seed = options.seed;
  session.state.sequenceLength = session.program->sequenceLength();
  session.state.hyperparameters = Hyperparameters::defaults(*session.program);
  if (!checkpoint.empty() && options.weights)
    invalid("expected 'resume' or 'weights', found both");
  if (!checkpoint.empty())
    check(readTrainingState(checkpoint, session.state));
  session.state.hyperparameters.learningRate =
      checkpoint.empty() ? session.state.hyperparameters.learningRate
                         : session.state.schedule.at(session.state.step + 1);
}

SessionOptions sessionOptionsOf(const grt_session &session,
                                const grt_session_options &options) {
  SessionOptions result;
  result.seed = session.state.seed;
  result.decayAll = session.state.decayAll;
  result.groups = session.state.groups;
  result.kernelChoices = session.state.kernelChoices;
  result.threadsPerRank = options.threads_per_rank;
  result.onNan = onNanOf(options, *session.program);
  result.backendFolder = textOf(options.plugins);
  if (options.processes != GRT_PROCESSES_OF_LAUNCHER)
    result.device = options.device;
  if (session.processes)
    // The processes share one watchdog, which sees the ranks of all.
    result.world = session.processes->world();
  else
    result.timeoutSeconds = options.timeout;
  return result;
}

std::unique_ptr<grt_session> create(const grt_session_options &options) {
  auto session = std::make_unique<grt_session>();
  std::string checkpoint;
  // Faults that a process finds are shared with the others, once all have met.
  Status own = guarded([&] {
    session->program = loadProgram(options);
    if (options.threads_per_rank < 0)
      invalid("threads_per_rank: expected at least 0, found " +
              str(options.threads_per_rank));
    if (!(options.timeout >= 0))
      invalid("timeout: expected seconds, at least 0");
  });
  if (!session->program)
    check(own);
  session->processes = join(options, *session->program);
  if (own)
    own = guarded([&] {
      if (options.resume)
        checkpoint = findCheckpoint(options.resume);
      beginState(*session, options, checkpoint);
    });
  if (session->processes)
    agree(*session->processes, own, session->program.get(), options,
          checkpoint);
  check(own);
  check(Session::create(session->program, sessionOptionsOf(*session, options),
                        session->session));
  if (!checkpoint.empty())
    check(session->session->resume(checkpoint));
  else if (options.weights)
    check(session->session->loadWeights(options.weights));
  if (checkpoint.empty())
    session->state.kernelChoices = session->session->kernelChoices();
  session->session->hyperparameters() = session->state.hyperparameters;
  for (const StoredParameter &each :
       storedParameters(session->program->manifest()))
    session->stored.push_back(each.index);
  return session;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

bool isLate(const grt_session &session) {
  return session.program->gradientDelay() > 0;
}

DataBatch copyBatch(const grt_session &session, const grt_array *arrays,
                    size_t count, uint64_t &parts) {
  const std::vector<Datum> &data = session.program->data();
  if (count != data.size() || !arrays)
    invalid("batch: expected an array for each of the program's " +
            str(data.size()) + " data, found " + str(arrays ? count : 0));
  const auto samples = uint64_t(session.program->batchSize());
  DataBatch batch;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t whole = data[i].bytesPerSample * samples;
    if (!arrays[i].values || !arrays[i].bytes || arrays[i].bytes % whole)
      invalid("batch: '" + data[i].name + "': expected " + str(whole) +
              " bytes for " + str(samples) + " samples, or a multiple, found " +
              str(arrays[i].values ? arrays[i].bytes : 0));
    parts = arrays[i].bytes / whole;
    const char *values = static_cast<const char *>(arrays[i].values);
    batch.emplace_back(values, values + arrays[i].bytes);
  }
  return batch;
}

/// The step of the batch that is set, of so many of the program's.
grt_step_result doStep(grt_session &session, uint64_t parts) {
  Session &does = *session.session;
  StepResult done;
  check(does.step(done));
  session.state.step = done.step;
  session.state.samples += parts * uint64_t(session.program->batchSize());
  session.state.accumulate = parts;
  grt_step_result result{};
  result.step = done.step;
  result.loss = done.loss;
  result.gradient_norm = done.gradientNorm;
  result.learning_rate = done.learningRate;
  result.milliseconds = done.milliseconds;
  result.counted = done.countedValues;
  result.skipped = done.skipped;
  return result;
}

grt_step_result step(grt_session &session, const grt_array *arrays,
                     size_t count) {
  uint64_t parts = 1;
  DataBatch batch = copyBatch(session, arrays, count, parts);
  if (!isLate(session)) {
    check(session.session->setBatch(batch));
    return doStep(session, parts);
  }
  if (!session.pending) {
    check(session.session->setBatch(batch));
    session.pending = parts;
    return {};
  }
  check(session.session->setNextBatch(batch));
  grt_step_result result = doStep(session, *session.pending);
  session.pending = parts;
  return result;
}

//===----------------------------------------------------------------------===//
// Tensors and files
//===----------------------------------------------------------------------===//

const Parameter &parameterOf(const grt_session &session, size_t tensor) {
  if (tensor >= session.stored.size())
    invalid("tensor: expected a number below " + str(session.stored.size()) +
            ", found " + str(tensor));
  return session.program->manifest().parameters[size_t(session.stored[tensor])];
}

void checkElements(const Parameter &parameter, const double *values,
                   uint64_t elements) {
  if (!values || elements != uint64_t(parameter.elements()))
    invalid("tensor '" + parameter.name + "': expected room for " +
            str(parameter.elements()) + " values, found " +
            str(values ? elements : 0));
}

bool leads(const grt_session &session) {
  return !session.processes || session.processes->number() == 0;
}

/// Everybody goes on, or nobody.
void together(grt_session &session, const Status &own) {
  check(session.processes ? session.processes->agree(own, {}) : own);
}

void holdFolder(grt_session &session, const std::string &path, uint64_t keep) {
  if (session.folder && session.folder->path() == path &&
      session.folder->options().keep == keep)
    return;
  session.folder.reset();
  CheckpointOptions options;
  options.keep = keep;
  options.leads = leads(session);
  // The first process makes the folder, and the others find it.
  Status status;
  if (options.leads)
    status = CheckpointFolder::open(path, options, session.folder);
  together(session, status);
  if (!options.leads)
    status = CheckpointFolder::open(path, options, session.folder);
  together(session, status);
}

/// The state that a checkpoint has of a session whose rate its user gives.
TrainingState stateOf(const grt_session &session) {
  TrainingState state = session.state;
  state.hyperparameters = session.session->hyperparameters();
  LearningRateSchedule &schedule = state.schedule;
  schedule = LearningRateSchedule();
  schedule.peak = schedule.least = state.hyperparameters.learningRate;
  schedule.steps = std::max<uint64_t>(state.step, 1);
  schedule.decay = Decay::Constant;
  return state;
}

} // namespace

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

const char *grt_version(void) { return version(); }

const char *grt_error_text(void) { return errorText.c_str(); }

int32_t grt_session_create(const grt_session_options *options,
                           grt_session **session) {
  return call([&] {
    if (!session)
      invalid("session: expected where it goes, found null");
    *session = nullptr;
    *session = create(readSized(options, "options")).release();
  });
}

int32_t grt_session_close(grt_session *session) {
  int32_t code = call([&] {
    grt_session &last = use(session);
    check(last.session->finish());
    last.folder.reset();
    last.session.reset();
    if (last.processes)
      check(last.processes->leave());
  });
  delete session;
  return code;
}

void grt_session_destroy(grt_session *session) { delete session; }

int32_t grt_session_facts_of(const grt_session *session,
                             grt_session_facts *facts) {
  return call([&] {
    const grt_session &of = use(session);
    const Program &program = *of.program;
    grt_session_facts result{};
    result.ranks = int32_t(program.worldSize());
    const std::vector<RankMemory> own = of.session->memory(false);
    result.local_ranks = int32_t(own.size());
    result.first_rank = own.empty() ? 0 : own.front().rank;
    result.leads = leads(of);
    result.batch = program.batchSize();
    result.data = program.data().size();
    result.tensors = of.stored.size();
    result.elements = program.facts().parameters;
    result.steps = of.state.step;
    result.samples = of.state.samples;
    result.losses_late = isLate(of);
    result.threads = of.session->threadsPerRank();
    result.predicted_ms = program.predictedStepMilliseconds();
    result.flops_per_sample = program.flopsPerSample();
    writeSized(facts, result, "facts");
  });
}

int32_t grt_session_datum(const grt_session *session, size_t index,
                          grt_datum *datum) {
  return call([&] {
    const std::vector<Datum> &data = use(session).program->data();
    if (index >= data.size())
      invalid("datum: expected a number below " + str(data.size()) +
              ", found " + str(index));
    const Datum &of = data[index];
    grt_datum result{};
    result.name = of.name.c_str();
    result.type = of.type;
    result.dimensions = uint32_t(of.shape.size());
    result.shape = of.shape.data();
    result.bytes = of.bytesPerSample;
    result.below = of.below;
    result.counted = of.counted;
    writeSized(datum, result, "datum");
  });
}

int32_t grt_session_step(grt_session *session, const grt_array *batch,
                         size_t arrays, grt_step_result *result) {
  return call([&] {
    checkSized(result, "result");
    writeSized(result, step(use(session), batch, arrays), "result");
  });
}

int32_t grt_session_flush(grt_session *session, grt_step_result *result) {
  return call([&] {
    checkSized(result, "result");
    grt_session &last = use(session);
    grt_step_result ended{};
    if (std::optional<uint64_t> parts =
            std::exchange(last.pending, std::nullopt))
      ended = doStep(last, *parts);
    check(last.session->finish());
    writeSized(result, ended, "result");
  });
}

int32_t grt_session_evaluate(grt_session *session, const grt_array *batch,
                             size_t arrays, double *loss, uint64_t *counted) {
  return call([&] {
    grt_session &of = use(session);
    if (of.pending)
      invalid("evaluation: a step was handed in and not ended, expected "
              "grt_session_flush before");
    uint64_t parts = 1, count = 0;
    double mean = 0;
    check(of.session->setBatch(copyBatch(of, batch, arrays, parts)));
    check(of.session->evaluate(mean, count));
    if (loss)
      *loss = mean;
    if (counted)
      *counted = count;
  });
}

int32_t grt_session_hyperparameters(const grt_session *session,
                                    grt_hyperparameters *values) {
  return call([&] {
    const Hyperparameters &now = use(session).session->hyperparameters();
    writeSized(values,
               grt_hyperparameters{sizeof(grt_hyperparameters),
                                   now.learningRate, now.beta1, now.beta2,
                                   now.eps, now.weightDecay, now.momentum,
                                   now.clipNorm, now.skipNorm},
               "values");
  });
}

int32_t grt_session_set_hyperparameters(grt_session *session,
                                        const grt_hyperparameters *values) {
  return call([&] {
    Hyperparameters &now = use(session).session->hyperparameters();
    const grt_hyperparameters wanted = readSized(
        values, "values",
        grt_hyperparameters{sizeof(grt_hyperparameters), now.learningRate,
                            now.beta1, now.beta2, now.eps, now.weightDecay,
                            now.momentum, now.clipNorm, now.skipNorm});
    auto expect = [](const char *name, double value, bool good,
                     const char *range) {
      if (!good)
        invalid(std::string(name) + ": expected a number " + range +
                ", found " + std::to_string(value));
    };
    expect("learning_rate", wanted.learning_rate, wanted.learning_rate >= 0,
           "of at least 0");
    expect("beta1", wanted.beta1, wanted.beta1 >= 0 && wanted.beta1 < 1,
           "from 0 to below 1");
    expect("beta2", wanted.beta2, wanted.beta2 >= 0 && wanted.beta2 < 1,
           "from 0 to below 1");
    expect("eps", wanted.eps, wanted.eps > 0, "above 0");
    expect("weight_decay", wanted.weight_decay, wanted.weight_decay >= 0,
           "of at least 0");
    expect("momentum", wanted.momentum,
           wanted.momentum >= 0 && wanted.momentum < 1, "from 0 to below 1");
    expect("clip_norm", wanted.clip_norm, wanted.clip_norm > 0, "above 0");
    expect("skip_norm", wanted.skip_norm, wanted.skip_norm >= 0,
           "of at least 0");
    now.learningRate = wanted.learning_rate;
    now.beta1 = wanted.beta1;
    now.beta2 = wanted.beta2;
    now.eps = wanted.eps;
    now.weightDecay = wanted.weight_decay;
    now.momentum = wanted.momentum;
    now.clipNorm = wanted.clip_norm;
    now.skipNorm = wanted.skip_norm;
  });
}

int32_t grt_session_tensor(const grt_session *session, size_t index,
                           grt_tensor *tensor) {
  return call([&] {
    const Parameter &parameter = parameterOf(use(session), index);
    grt_tensor result{};
    result.name = parameter.name.c_str();
    result.dimensions = uint32_t(parameter.shape.size());
    result.shape = parameter.shape.data();
    result.elements = uint64_t(parameter.elements());
    writeSized(tensor, result, "tensor");
  });
}

int32_t grt_session_read(grt_session *session, size_t tensor, int32_t what,
                         double *values, uint64_t elements) {
  return call([&] {
    grt_session &of = use(session);
    const Parameter &parameter = parameterOf(of, tensor);
    if (what < GRT_VALUES_PARAMETER || what > GRT_VALUES_SECOND_STATE)
      invalid("what: expected a grt_values, found " + str(what));
    // The others need not wait for a process that would only fail here.
    Status own = guarded([&] {
      if (leads(of))
        checkElements(parameter, values, elements);
    });
    together(of, own);
    Tensor whole;
    check(of.session->tensor(parameter.name, TensorKind(what), whole));
    if (leads(of))
      std::copy(whole.values.begin(), whole.values.end(), values);
  });
}

int32_t grt_session_write(grt_session *session, size_t tensor,
                          const double *values, uint64_t elements) {
  return call([&] {
    grt_session &of = use(session);
    const Parameter &parameter = parameterOf(of, tensor);
    together(of, guarded([&] { checkElements(parameter, values, elements); }));
    check(of.session->setParameter(parameter.name, {values, elements}));
  });
}

int32_t grt_session_save(grt_session *session, const char *folder) {
  return call([&] {
    grt_session &of = use(session);
    if (!folder || !*folder)
      invalid("folder: expected a name, found none");
    check(of.session->save(folder));
  });
}

int32_t grt_session_checkpoint(grt_session *session, const char *folder,
                               uint64_t keep) {
  return call([&] {
    grt_session &of = use(session);
    if (!folder || !*folder)
      invalid("folder: expected a name, found none");
    holdFolder(of, folder, keep ? keep : CheckpointOptions().keep);
    check(of.session->writeCheckpoint(*of.folder, stateOf(of)));
  });
}

int32_t grt_session_memory(grt_session *session, int32_t local_rank,
                           grt_rank_memory *memory) {
  return call([&] {
    const std::vector<RankMemory> all = use(session).session->memory(false);
    if (local_rank < 0 || size_t(local_rank) >= all.size())
      invalid("local_rank: expected a number below " + str(all.size()) +
              ", found " + str(local_rank));
    const RankMemory &of = all[size_t(local_rank)];
    grt_rank_memory result{};
    result.rank = of.rank;
    result.planned = of.plannedPeakBytes;
    result.measured = of.measuredPeakBytes;
    result.home = of.homeBytes;
    result.device = of.deviceBytes;
    writeSized(memory, result, "memory");
  });
}
