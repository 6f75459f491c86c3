//===- session.cpp - Running a compiled program in this process -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/cores.h"
#include "comm/threads.h"
#include "core/placement.h"
#include "core/program_check.h"
#include "core/topology.h"
#include "grt/variables.h"
#include "session/replicas.h"
#include "session/session_implementation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace grt {
namespace {

bool poisonWanted(const SessionOptions &options) {
#ifdef GRT_POISON
  return true;
#else
  const char *wanted = std::getenv("GRT_POISON");
  return options.poison || (wanted && std::string(wanted) != "0");
#endif
}

/// Of SessionOptions::copyRate.
double copyRateWanted(const SessionOptions &options) {
  const char *wanted = std::getenv("GRT_COPY_RATE");
  if (!wanted)
    return options.copyRate;
  char *end = nullptr;
  const double rate = std::strtod(wanted, &end);
  if (end == wanted || *end || !(rate >= 1 && rate <= 1e15))
    invalid("GRT_COPY_RATE: expected bytes per second from 1 to 1e15, found '" +
            std::string(wanted) + "'");
  return rate;
}

/// The threads of a rank: its share of the cores, of the process and of the
/// machine.
int defaultThreads(const World &world) {
  int machine = int(std::thread::hardware_concurrency());
  return std::max(1, std::min(availableCores() / world.localCount(),
                              machine / world.machineRanks()));
}

/// Before the ranks are made, whose kernels run as these say. Empty ones undo
/// those of another session.
void giveChoices(const grt_backend &backend, const std::string &choices) {
  char message[1024] = "";
  if (backend.choose &&
      backend.choose(choices.c_str(), message, sizeof(message)))
    invalid("the checkpoint's kernel choices: " + std::string(message));
}

double milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

} // namespace

Session::Implementation::Implementation(std::shared_ptr<const Program> loaded,
                                        const SessionOptions &options)
    : program(std::move(loaded)),
      backend(options.backend ? BackendHandle(options.backend)
                              : BackendHandle(options.checkStreams
                                                  ? "recording"
                                                  : program->manifest().backend,
                                              options.backendFolder)),
      traced(tracedBackend(*backend)),
      homeBackend(
          backend->device && program->manifest().hasHomes()
              ? std::make_unique<BackendHandle>("cpu", options.backendFolder)
              : nullptr),
      state{*program, program->manifest(), options.trace ? *traced : *backend,
            options},
      set{.hyperparameters = Hyperparameters::defaults(*program)},
      owner(options.world
                ? options.world
                : std::make_shared<ThreadsWorld>(int(program->worldSize()))),
      world(*owner) {
  if (world.size() != program->manifest().world)
    invalid("the program needs " + std::to_string(program->manifest().world) +
            " ranks, there are " + std::to_string(world.size()));
  if (Status sound = proven(*program); !sound)
    invalid(sound.message());
  if (world.localCount() == 0)
    invalid("expected at least one rank in every process");
  state.options.decayAll |= program->manifest().decayAll;
  checkHosts();
  placeProcess(*backend, options.shareDevices, options.device);
  giveChoices(*backend, options.kernelChoices);
  setUp(options);
  local = std::make_unique<ProcessRanks>(state, world, *backend);
  flight = std::make_unique<FlightRecord>(state, world, *local);
  threads = std::make_unique<RankThreads>(state, world, *local, *flight);
}

void Session::Implementation::setUp(const SessionOptions &options) {
  const Manifest &manifest = program->manifest();
  const int first = world.firstLocal(), size = world.localCount();
  state.rules = parameterRules(manifest, options.groups);
  for (const ParameterRule &rule : state.rules)
    if (rule.hasScalars() && state.backend.device)
      invalid(std::string("parameter groups with 'lr' or 'decay': backend '") +
              state.backend.name +
              "' reads one rate and one decay a step; 'frozen' and "
              "--decay-all it has");
  state.homeBackend = homeBackend ? &**homeBackend : nullptr;
  state.poison = poisonWanted(options);
  state.copyRate = copyRateWanted(options);
  state.oneProcess = isAlone();
  state.threadsPerRank = options.threadsPerRank > 0 ? options.threadsPerRank
                                                    : defaultThreads(world);
  noteVariables();
  for (const Exchange &exchange : manifest.exchanges)
    state.exchanges.push_back(exchangeTables(exchange, {first, size}));
  for (const Tie &tie : manifest.ties)
    state.ties.push_back(tieTables(manifest, tie, {first, size}));
}

ProcessRanks::ProcessRanks(RunState &state, World &world,
                           const grt_backend &backend) {
  const int first = world.firstLocal();
  const bool traced = state.options.trace;
  for (int rank = first; rank < first + world.localCount(); ++rank) {
    activities.push_back(std::make_unique<Activity>(rank));
    communicators.push_back(
        watchedCommunicator(world.join(rank), *activities.back()));
    if (traced) {
      recorders.push_back(std::make_unique<Recorder>(rank, backend));
      communicators.back() = tracedCommunicator(std::move(communicators.back()),
                                                *recorders.back());
    }
    ranks.push_back(
        std::make_unique<Rank>(state, *communicators.back(), *activities.back(),
                               traced ? recorders.back().get() : nullptr));
  }
}

std::vector<RankFlight> ProcessRanks::flights() const {
  std::vector<RankFlight> flights;
  for (const std::unique_ptr<Rank> &rank : ranks)
    flights.push_back(rank->flight());
  return flights;
}

void Session::Implementation::runPass(const std::function<void(Rank &)> &body) {
  runAll([&, pass = std::make_shared<const PassInput>(set)](Rank &rank) {
    rank.take(pass);
    body(rank);
  });
}

void Session::Implementation::together(const std::function<void()> &body) {
  std::optional<Error> problem;
  if (Status status = guarded(body); !status)
    problem.emplace(status.exitCode(), status.message());
  throwFirst(problem, /*mayStand=*/true);
}

namespace {

/// A failure of a process, as it is told to all others.
struct FailureMessage {
  int32_t exitCode = 0;   ///< 0: none
  uint32_t textBytes = 0; ///< of the message, which follows

  /// Longer texts are cut.
  static constexpr size_t mostBytes = 64 << 10;
};

} // namespace

void Session::Implementation::throwFirst(const std::optional<Error> &problem,
                                         bool mayStand) {
  const std::string text =
      problem
          ? std::string(problem->what()).substr(0, FailureMessage::mostBytes)
          : "";
  // One rank speaks for its process.
  auto speaks = [&](Rank &rank) {
    return problem && &rank == local->ranks.front().get();
  };
  const RankMessages<FailureMessage> failures = gather<FailureMessage>(
      MessageKind::Failure, 1,
      [&](Rank &rank, std::span<FailureMessage> to) {
        if (speaks(rank))
          to.front() = {problem->exitCode(), uint32_t(text.size())};
      },
      mayStand);
  size_t first = 0, most = 0;
  while (first < failures.ranks() && failures[first].exitCode == 0)
    ++first;
  if (first == failures.ranks())
    return;
  for (size_t rank = first; rank < failures.ranks(); ++rank)
    most = std::max<size_t>(most, failures[rank].textBytes);
  const RankMessages<char> texts = gather<char>(
      MessageKind::FailureText, most, [&](Rank &rank, std::span<char> to) {
        if (speaks(rank))
          std::copy(text.begin(), text.end(), to.begin());
      });
  // All throw the same: whichever process is heard first tells the cause.
  throw Error(failures[first].exitCode,
              std::string(texts.of(first).data(), failures[first].textBytes));
}

void Session::Implementation::checkHosts() {
  const RunHosts *hosts = world.hosts();
  const std::string wrong =
      hosts ? misplacedText(program->manifest(), *hosts) : "";
  if (wrong.empty())
    return;
  if (backend->device_identity && !state.options.anyPlacement)
    invalid(wrong +
            "; start as many processes on each host as its node of the plan "
            "has devices, or run it so with --any-placement");
  notes.push_back(wrong);
}

void Session::Implementation::noteVariables() {
  static std::atomic<bool> noted = false;
  // A rank alone has nobody to wait for, nor has a thread.
  const bool several =
      backend->device ? world.size() > 1 : state.threadsPerRank > 1;
  for (const LibraryVariable &variable : missingLibraryVariables())
    if (variable.backend == std::string(backend->name) && several &&
        !noted.exchange(true))
      notes.push_back(std::string(variable.name) + " is not set, so that " +
                      variable.cost + ": set " + variable.name + "=" +
                      variable.value +
                      ", or call grt::setLibraryVariables(), before anything "
                      "loads the library");
}

void Session::Implementation::checkDevices() {
  if (!backend->device_identity || state.options.shareDevices)
    return;
  const RankPlace own = ownPlace(*backend);
  std::vector<RankPlace> places(size_t(world.size()) * local->ranks.size());
  runAll([&](Rank &rank) {
    size_t local = size_t(rank.globalRank() - world.firstLocal());
    Communicator &peers = rank.peers();
    std::vector<int> all(size_t(peers.size()));
    std::iota(all.begin(), all.end(), 0);
    peers.allGather(peers.group(all), &own,
                    &places[local * size_t(peers.size())], sizeof(own));
  });
  places.resize(size_t(world.size()));
  // All find the same.
  if (std::string message = sharedDevice(places); !message.empty())
    invalid(message);
}

void Session::Implementation::checkMemory() {
  // A device's own memory is its allocator's to refuse; the model of one that
  // checks streams lives in the host's.
  bool onHost = !state.backend.device || state.options.checkStreams;
  if (!onHost && !state.options.checkpointCopies &&
      !program->manifest().hasHomes())
    return;
  std::optional<MemoryBound> machine = machineMemory(), group = groupMemory();
  if (state.options.hostMemoryBytes && machine)
    machine = {state.options.hostMemoryBytes, "as given", machine->scope};
  if (state.options.hostMemoryBytes)
    group.reset();
  std::vector<RankNeed> needs =
      gather<RankNeed>(MessageKind::HostMemory, [&](Rank &rank) -> RankNeed {
        return {rank.role().homeBytes + (onHost ? rank.role().arenaBytes : 0),
                machine ? machine->scope : 0, group ? group->scope : 0};
      }).values();
  std::optional<Error> problem;
  if (Status status = guarded([&] { checkHostMemory(needs, machine, group); });
      !status)
    problem.emplace(status.exitCode(), status.message());
  // No arena is made before all have looked.
  throwFirst(problem);
  if (state.options.checkpointCopies)
    checkCopies(std::move(needs), machine, group);
}

Session::Session() = default;

Session::~Session() {
  // A stuck thread cannot be ended; what it uses is left to it.
  if (impl && !impl->threads->end()) [[maybe_unused]]
    Implementation *left = impl.release();
}

Hyperparameters Hyperparameters::defaults(const Program &program) {
  Hyperparameters values;
  if (program.optimizer() != "adamw")
    values.weightDecay = 0;
  return values;
}

Status Session::create(std::shared_ptr<const Program> program,
                       const SessionOptions &options,
                       std::unique_ptr<Session> &result) {
  return guarded([&] {
    std::unique_ptr<Session> session(new Session);
    session->impl =
        std::make_unique<Implementation>(std::move(program), options);
    try {
      session->impl->checkDevices();
      session->impl->checkMemory();
      session->impl->runAll([](Rank &rank) { rank.load(); });
      session->impl->findSamplesRead();
    } catch (const Error &error) {
      // There will be no session to ask.
      std::string note = session->flightNote();
      if (note.empty())
        throw;
      throw Error(error.exitCode(),
                  std::string(error.what()) + " (" + note + ")");
    }
    result = std::move(session);
  });
}

const Program &Session::program() const { return *impl->program; }

Hyperparameters &Session::hyperparameters() {
  return impl->set.hyperparameters;
}

LossSums Session::Implementation::runStep(StepResult &result) {
  result.skipped = false;
  result.kind = StepKind::Calls;
  result.gradientNorm = 0;
  if (goesAhead())
    return threads->runStepAhead(std::make_shared<const PassInput>(set),
                                 requestsHeard);
  runPass([](Rank &rank) { rank.train(); });
  const StepResults &results = local->ranks[0]->results();
  result.gradientNorm = results.gradientNorm;
  result.skipped = results.updateLeftOut;
  result.kind = results.stepKind;
  requestsHeard = results.requestsHeard;
  return results.lossSum;
}

void Session::Implementation::checkFinite(double loss, double norm) {
  const OnNan onNan = state.options.onNan;
  if (std::isfinite(loss) && std::isfinite(norm))
    return;
  if (onNan == OnNan::Late)
    fail(ExitNumerics,
         "step " + std::to_string(set.step) + ": the loss is " +
             (std::isnan(loss) ? "nan" : "infinite") +
             ", and was so before anybody could look: weights are of no use "
             "any more, a checkpoint of before is");
  if (onNan != OnNan::Stop)
    return;
  runAll([](Rank &rank) { rank.inspect(); });
  uint64_t number = set.step--;
  bool lossFinite = std::isfinite(loss);
  fail(ExitNumerics,
       "step " + std::to_string(number) + ": the " +
           (lossFinite ? "gradient norm" : "loss") + " is " +
           (std::isnan(lossFinite ? norm : loss) ? "nan" : "infinite") + "; " +
           local->ranks[0]->describeNotFinite());
}

Status Session::step(StepResult &result) {
  return guarded([&] {
    if (program().cacheRows())
      invalid("a program that keeps keys and values generates and is not "
              "trained: expected Session::decode()");
    if (!impl->set.batch)
      invalid("no batch was set");
    impl->threads->checkUsable();
    impl->checkLate();
    auto begin = std::chrono::steady_clock::now();
    ++impl->set.step;
    impl->set.mode = GRT_MODE_TRAIN;
    const LossSums sums = impl->runStep(result);
    impl->gradientsKnown = true;
    uint64_t valid = impl->set.batch->countedValues;
    impl->checkFinite(sums.loss + sums.squares, result.gradientNorm);
    result.step = impl->set.step;
    result.loss = valid ? sums.loss / double(valid) : 0;
    result.zLoss =
        valid ? impl->program->manifest().zLoss * sums.squares / double(valid)
              : 0;
    result.learningRate = impl->set.hyperparameters.learningRate;
    result.milliseconds =
        milliseconds(std::chrono::steady_clock::now() - begin);
    result.countedValues = valid;
    result.peakBytes = 0;
    for (const RankMemory &rank : memory(/*everywhere=*/false))
      result.peakBytes = std::max(result.peakBytes, rank.measuredPeakBytes);
    if (!impl->goesAhead())
      result.peakBytes = std::max(result.peakBytes,
                                  impl->local->ranks[0]->results().peakBytes);
    impl->toNextBatch();
  });
}

Status Session::finish() {
  return guarded([&] { impl->runAll([](Rank &rank) { rank.finish(); }); });
}

Status Session::evaluate(double &loss, uint64_t &countedValues,
                         uint64_t *hits) {
  return guarded([&] {
    if (!impl->set.batch)
      invalid("no batch was set");
    if (impl->set.parts > 1)
      invalid("evaluation: expected one batch of the program, found " +
              std::to_string(impl->set.parts));
    impl->set.mode = GRT_MODE_EVALUATE;
    impl->set.textsBegin = true;
    impl->set.begun = false;
    impl->set.countsHits = hits != nullptr;
    impl->runPass([](Rank &rank) { rank.evaluate(false); });
    impl->set.countsHits = false;
    if (hits) {
      const std::vector<uint64_t> all =
          impl->gather<uint64_t>(MessageKind::Hits,
                                 [](Rank &rank) { return rank.hits(); })
              .values();
      *hits = std::accumulate(all.begin(), all.end(), uint64_t(0));
    }
    countedValues = impl->set.batch->countedValues;
    loss = countedValues ? impl->local->ranks[0]->results().lossSum.loss /
                               double(countedValues)
                         : 0;
  });
}

uint64_t Session::stepsDone() const { return impl->set.step; }

bool Session::usable() const { return impl->threads->usable(); }

int Session::threadsPerRank() const { return impl->state.threadsPerRank; }

uint32_t Session::anywhere(uint32_t bits) {
  if (impl->isAlone())
    return bits;
  // What is asked for is told with the numbers of the next step.
  impl->set.requests = bits;
  bits = std::exchange(impl->requestsHeard, 0);
  return bits;
}

unsigned Session::requestsLate() const {
  return impl->isAlone() ? 0 : impl->goesAhead() ? 2 : 1;
}

Status Session::checkReplicas() {
  return guarded([&] {
    const Manifest &manifest = impl->program->manifest();
    std::string difference = compareReplicas(
        manifest,
        impl->gather<uint64_t>(MessageKind::Replicas, replicaNumbers(manifest),
                               [&](Rank &rank, std::span<uint64_t> to) {
                                 sumReplicas(manifest, rank, to);
                               })
            .values());
    if (difference.empty())
      return;
    // What any rank holds may be wrong: nothing of it is to be had any more.
    std::string text = "step " + std::to_string(impl->set.step) +
                       ": replicas hold different parameters: " + difference;
    impl->runAll([&](Rank &) { fail(text); });
  });
}

} // namespace grt
