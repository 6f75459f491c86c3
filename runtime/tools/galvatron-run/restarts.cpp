//===- restarts.cpp - A run that is started again after a failure ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "restarts.h"

#include "children.h"
#include "core/init.h"
#include "grt/checkpoint.h"
#include "grt/launcher.h"
#include "grt/processes.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <unistd.h>

using namespace grt;

namespace {

constexpr const char *attemptVariable = "GALVATRON_ATTEMPT";
constexpr const char *skipVariable = "GALVATRON_SKIP_BATCHES";
/// Counts the attempts of processes that meet by TCP: those of
/// an attempt before are turned away.
constexpr const char *countVariable = "TORCHELASTIC_RESTART_COUNT";

/// A wait doubles with every failure at the same place, up to this.
constexpr double longestWait = 300;
/// The wait for what may pass soon: a machine that comes back, a port that gets
/// free.
constexpr double shortWait = 1;
/// Storage and memory that others have taken.
constexpr double longWait = 10;
/// A window of data doubles up to this.
constexpr uint64_t widestWindow = 1024;

uint64_t valueOf(const char *name) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

void say(const std::string &text) {
  std::fprintf(stderr, "galvatron-run: note: %s\n", text.c_str());
  std::fflush(stderr);
}

/// Ends early if the run is asked to end.
void waitFor(double seconds) {
  timespec left{time_t(seconds),
                long((seconds - double(time_t(seconds))) * 1e9)};
  while (!askedToEnd() && nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

/// The arguments of an attempt: as given, and --resume from the second one on.
std::vector<char *> argumentsOf(char **arguments, bool resume, bool again) {
  static char option[] = "--resume";
  std::vector<char *> result;
  for (char **argument = arguments; *argument; ++argument)
    result.push_back(*argument);
  if (again && !resume)
    result.push_back(option);
  result.push_back(nullptr);
  return result;
}

ChildEnd runAttempt(const Options &options, char **arguments,
                    const Attempt &attempt, uint64_t countBefore) {
  Variables variables = {{attemptVariable, std::to_string(attempt.number)},
                         {skipVariable, std::to_string(attempt.skipBatches)}};
  if (Launch launch; readLaunch(launch) && launch.joinsByTcp())
    variables.emplace_back(countVariable,
                           std::to_string(countBefore + attempt.number));
  pid_t process = startChild(
      argumentsOf(arguments, options.resume, attempt.number > 0), variables);
  return process < 0 ? ChildEnd{ExitFailed, 0} : waitForChild(process);
}

uint64_t newestStep(const Options &options) {
  std::vector<uint64_t> steps = checkpointSteps(options.checkpoint);
  return steps.empty() ? 0 : steps.back();
}

const char *valueIfAny(std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (const char *value = std::getenv(name); value && *value)
      return value;
  return nullptr;
}

/// mpirun and srun end all processes when one of those that they started fails,
/// and MPI cannot begin twice in one. So what they started waits, and attempts
/// beneath it are joined as under torchrun's variables, by TCP.
Status takeLauncher() {
  if (std::getenv("TORCHELASTIC_USE_AGENT_STORE"))
    return Status(ExitInvalid, "--restarts: torchrun starts processes again "
                               "itself: torchrun --max-restarts, and --resume");
  Launch launch;
  if (Status status = readLaunch(launch); !status || !launch.joinsByMpi())
    return status;
  if (!launch.rank || !launch.size || !launch.localRank)
    return Status(ExitInvalid,
                  "--restarts: this launcher does not say which of how many "
                  "processes this is: expected the variables of mpirun, srun "
                  "or torchrun");
  const char *machines =
      valueIfAny({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES"});
  bool oneMachine = launch.localSize
                        ? launch.localSize->value == launch.size->value
                        : machines && std::string(machines) == "1";
  std::string address;
  if (const char *given = valueIfAny({"MASTER_ADDR"}))
    address = given;
  else if (oneMachine)
    address = "127.0.0.1";
  else if (const char *nodes =
               valueIfAny({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}))
    address = firstHost(nodes);
  else
    return Status(ExitInvalid,
                  "--restarts: mpirun on several machines joins no process "
                  "twice: expected the machine of process 0 in MASTER_ADDR "
                  "(mpirun -x MASTER_ADDR=HOST)");
  // The same for all processes of a job, another for the next.
  std::string job;
  for (const char *name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                           "SLURM_JOB_ID", "SLURM_STEP_ID"})
    if (const char *value = std::getenv(name))
      job += std::string(job.empty() ? "" : ".") + value;
  setenv("MASTER_ADDR", address.c_str(), 1);
  if (!valueIfAny({"MASTER_PORT", "GRT_RENDEZVOUS_PORT"})) {
    const std::string ports = portsOfJob(job);
    setenv("GRT_RENDEZVOUS_PORT", ports.c_str(), 1);
    setenv("MASTER_PORT", ports.substr(0, ports.find(',')).c_str(), 1);
  }
  const std::pair<const char *, std::optional<LaunchNumber>> numbers[] = {
      {"RANK", launch.rank},
      {"WORLD_SIZE", launch.size},
      {"LOCAL_RANK", launch.localRank},
      {"LOCAL_WORLD_SIZE", launch.localSize}};
  for (const auto &[name, number] : numbers)
    if (number)
      setenv(name, std::to_string(number->value).c_str(), 1);
    else
      unsetenv(name);
  setenv("TORCHELASTIC_RUN_ID", job.c_str(), 1);
  // These variables would join the attempts by MPI.
  std::vector<std::string> gone;
  for (char **entry = environ; *entry; ++entry) {
    std::string name(*entry, std::strcspn(*entry, "="));
    if (name.starts_with("OMPI_") || name.starts_with("PMIX_") ||
        name.starts_with("PMI_"))
      gone.push_back(name);
  }
  for (const std::string &name : gone)
    unsetenv(name.c_str());
  return Status();
}

} // namespace

RestartDecision RestartPolicy::ended(const ChildEnd &end, uint64_t step) {
  if (step > lastStep)
    inPlace = numerics = 0;
  lastStep = std::max(step, lastStep);
  RestartDecision next;
  double wait = shortWait;
  if (end.signal) {
    next.why = "a signal";
  } else {
    switch (end.exitCode) {
    case ExitFailed:
      next.why = "a failure";
      break;
    case ExitNumerics:
      next.why = "values that are not finite";
      // Nobody else has to come back.
      wait = 0;
      next.skipBatches = std::min(
          widestWindow, uint64_t(1) << std::min<uint64_t>(numerics, 63));
      ++numerics;
      break;
    case ExitPeerLost:
      next.why = "a lost process";
      break;
    case ExitStorage:
      next.why = "storage";
      wait = longWait;
      break;
    case ExitMemory:
      next.why = "memory";
      wait = longWait;
      break;
    default:
      // Done, asked to end, or what another attempt would meet too.
      return next;
    }
  }
  if (!left)
    return next;
  --left;
  next.again = true;
  for (uint64_t i = 0; i < inPlace && wait < longestWait; ++i)
    wait *= 2;
  next.waitSeconds = std::min(wait, longestWait);
  ++inPlace;
  return next;
}

std::string portsOfJob(const std::string &job) {
  constexpr uint64_t first = 20000, all = 12000, count = 8;
  const uint64_t begin = hashName(job) % all;
  std::string ports;
  for (uint64_t i = 0; i < count; ++i)
    ports += (i ? "," : "") +
             std::to_string(first + (begin + i * (all / count)) % all);
  return ports;
}

std::string firstHost(const std::string &list) {
  size_t open = list.find('[');
  size_t comma = list.find(',');
  if (open == std::string::npos || comma < open)
    return list.substr(0, comma);
  size_t end = list.find_first_of("],-", open + 1);
  size_t close = list.find(']', open);
  if (end == std::string::npos || close == std::string::npos)
    return list.substr(0, open);
  std::string behind = list.substr(close + 1);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) +
         behind.substr(0, behind.find(','));
}

Status findElasticPrograms(const Options &options, ElasticPrograms &programs) {
  if (options.elastic.empty())
    return Status();
  Launch launch;
  if (Status status = readLaunch(launch); !status)
    return status;
  if (launch.launcher == Launcher::None)
    return Status(ExitInvalid, "--elastic: this process has all ranks, which "
                               "live and die together");
  std::shared_ptr<const Program> whole, program;
  if (Status status = Program::loadFile(options.program, whole); !status)
    return status;
  std::error_code problem;
  for (const auto &entry :
       std::filesystem::directory_iterator(options.elastic, problem)) {
    if (entry.path().extension() != ".gvx")
      continue;
    std::string path = entry.path().string();
    if (Status status = Program::loadFile(path, program); !status)
      return status;
    // The folder may hold the run's own program, too.
    if (program->worldSize() >= whole->worldSize())
      continue;
    auto [other, isNew] = programs.emplace(program->worldSize(), path);
    if (!isNew)
      return Status(ExitInvalid, "--elastic: '" + other->second + "' and '" +
                                     path + "' are both for " +
                                     std::to_string(program->worldSize()) +
                                     " ranks");
  }
  if (problem)
    return Status(ExitInvalid, "--elastic: cannot read folder '" +
                                   options.elastic + "': " + problem.message());
  if (programs.empty())
    return Status(ExitInvalid, "--elastic: '" + options.elastic +
                                   "' has no program for fewer than the " +
                                   std::to_string(whole->worldSize()) +
                                   " ranks of '" + options.program + "'");
  return Status();
}

bool isAttempt() { return std::getenv(attemptVariable) != nullptr; }

Attempt currentAttempt() {
  return {valueOf(attemptVariable), valueOf(skipVariable)};
}

int supervise(const Options &options, char **arguments) {
  bool leads = Processes::launchedNumber() == 0;
  if (Status status = takeLauncher(); !status) {
    // A fault that every process finds is said once.
    if (leads)
      std::fprintf(stderr, "galvatron-run: error: %s\n",
                   status.message().c_str());
    return status.exitCode();
  }
  uint64_t countBefore = valueOf(countVariable);
  RestartPolicy policy(*options.restarts);
  Attempt attempt;
  passSignalsOn();
  while (true) {
    bool wasDone = attempt.number > 0 && newestStep(options) >= *options.steps;
    ChildEnd end = runAttempt(options, arguments, attempt, countBefore);
    uint64_t step = newestStep(options);
    // A process that is lost when the others have done all steps finds nobody
    // when it comes back.
    if (!leads && wasDone && end.exitCode == ExitPeerLost && !end.signal) {
      say("the run has done all its steps, and nobody waits for this process");
      return ExitDone;
    }
    RestartDecision next = policy.ended(end, step);
    int code = end.signal ? 128 + end.signal : end.exitCode;
    // The run is well, without this process.
    if (end.exitCode == exitSpare && !end.signal)
      return ExitDone;
    if (askedToEnd() || !next.again) {
      if (leads && *next.why && attempt.number)
        say("the run ended after " + std::to_string(attempt.number) +
            (attempt.number == 1 ? " restart" : " restarts") +
            ", the last time by " + next.why);
      return code;
    }
    ++attempt.number;
    attempt.skipBatches = next.skipBatches;
    if (leads)
      say("restart " + std::to_string(attempt.number) + " of " +
          std::to_string(*options.restarts) + " after " + next.why + " (" +
          (end.signal ? "signal " + std::to_string(end.signal)
                      : "exit code " + std::to_string(end.exitCode)) +
          "), from " +
          (step ? "step " + std::to_string(step)
                : std::string("the beginning")) +
          " in " + std::to_string(uint64_t(next.waitSeconds)) + " s");
    waitFor(next.waitSeconds);
    if (int signal = askedToEnd())
      return 128 + signal;
  }
}
