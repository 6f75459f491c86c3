//===- per_gpu.cpp - A process for each GPU of this machine ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL advises against several GPUs in one process where work is captured as
// graphs, and the CUDA backend has one. So the command that the user gives
// starts itself once for each rank and waits, as it does for the attempts of
// --restarts, which stand around this.
//
//===----------------------------------------------------------------------===//

#include "per_gpu.h"

#include "base/error.h"
#include "core/executor.h"
#include "core/placement.h"
#include "grt/launcher.h"
#include "grt/processes.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

using namespace grt;

namespace {

/// The others have this long to say why one has ended, or to end as well: the
/// monitor finds what died or stands still sooner.
constexpr Patience patience = {.toEnd = 20, .toSave = 30};

void say(const char *kind, const std::string &text) {
  std::fprintf(stderr, "galvatron-run: %s: %s\n", kind, text.c_str());
  std::fflush(stderr);
}

std::string randomText() {
  std::random_device source;
  char text[65];
  for (int i = 0; i < 64; i += 8)
    std::snprintf(text + i, 9, "%08x", source());
  return text;
}

/// A port of the loopback that nobody listens at, below those that connections
/// are given, which others would take meanwhile.
int freePort() {
  std::random_device source;
  for (int tries = 0; tries < 1000; ++tries) {
    int port = 20000 + int(source() % 12000);
    int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(uint16_t(port));
    bool isFree = ::bind(socket, reinterpret_cast<sockaddr *>(&address),
                         sizeof(address)) == 0;
    ::close(socket);
    if (isFree)
      return port;
  }
  fail("no port of the loopback from 20000 to 31999 is free");
}

/// Returns how many processes the program wants here; 0: this one alone.
int processesFor(const Options &options) {
  std::shared_ptr<const Program> program;
  // The run itself says what is wrong with the program.
  if (!Program::loadFile(options.program, program) || program->worldSize() == 1)
    return 0;
  BackendHandle backend(program->manifest().backend, "");
  int devices = deviceCount(*backend);
  if (devices == 0)
    return 0;
  int64_t ranks = program->worldSize();
  if (options.ranks && *options.ranks != ranks)
    invalid("the program needs " + std::to_string(ranks) +
            " ranks, --ranks gives " + std::to_string(*options.ranks));
  if (ranks > devices)
    invalid("the program needs " + std::to_string(ranks) +
            " ranks, with a GPU each, and this machine has " +
            std::to_string(devices) +
            ": start it on several machines (torchrun, mpirun, srun), or let "
            "ranks share a GPU with --share-gpus");
  say("note", std::to_string(ranks) + " processes, one for each of " +
                  (ranks == devices ? "" : "the first ") +
                  std::to_string(ranks) + " GPUs");
  return int(ranks);
}

/// The children of this process, by the number of each.
class Started {
public:
  Started(char **arguments, int count) : pids(size_t(count)) {
    // A process has one rank, whatever stands before.
    static char ranks[] = "--ranks=1";
    std::vector<char *> passed;
    for (char **argument = arguments; *argument; ++argument)
      passed.push_back(*argument);
    passed.push_back(ranks);
    passed.push_back(nullptr);
    const int port = freePort();
    const std::string run = "started-" + std::to_string(getpid());
    const char *given = std::getenv("GALVATRON_LAUNCH_SECRET");
    const std::string secret = given && *given ? given : randomText();
    for (int number = 0; number < count && !failed; ++number) {
      pids[size_t(number)] = startChild(
          passed, joiningVariables(number, count, port, run, secret));
      failed = pids[size_t(number)] < 0;
      left += !failed;
    }
    if (failed) {
      order.push_back({ExitFailed, 0});
      signalChildren(SIGTERM);
    }
  }

  /// Waits until all have ended and returns the exit code.
  int wait() {
    waitForChildren(
        left, failed, patience,
        [](const ChildEnd &end) {
          return end.signal != 0 || end.exitCode != exitSpare;
        },
        [&](pid_t child, const ChildEnd &end) { note(child, end); });
    return exitCodeOf(order);
  }

private:
  void note(pid_t child, const ChildEnd &end) {
    order.push_back(end);
    for (size_t number = 0; number < pids.size(); ++number)
      if (pids[number] == child && end.signal && !askedToEnd())
        say("note", "process " + std::to_string(number) + " (pid " +
                        std::to_string(child) + ") was ended by signal " +
                        std::to_string(end.signal) + " (" +
                        strsignal(end.signal) + ")");
  }

  std::vector<pid_t> pids;
  std::vector<ChildEnd> order;
  int left = 0;
  bool failed = false;
};

} // namespace

Variables joiningVariables(int number, int count, int port,
                           const std::string &run, const std::string &secret) {
  return {{"RANK", std::to_string(number)},
          {"LOCAL_RANK", std::to_string(number)},
          {"WORLD_SIZE", std::to_string(count)},
          {"LOCAL_WORLD_SIZE", std::to_string(count)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"GRT_RENDEZVOUS_PORT", std::to_string(port)},
          {"GRT_LISTEN", "127.0.0.1"},
          {"TORCHELASTIC_RUN_ID", run},
          {"GALVATRON_LAUNCH_SECRET", secret}};
}

int exitCodeOf(const std::vector<ChildEnd> &ends) {
  bool lost = false;
  for (const ChildEnd &end : ends) {
    if (!end.signal && end.exitCode != ExitDone && end.exitCode != exitSpare)
      return end.exitCode;
    lost |= end.signal != 0;
  }
  return lost ? ExitPeerLost : ExitDone;
}

std::optional<int> runOnEachGpu(const Options &options, char **arguments) {
  Launch launch;
  // The run itself says how a launcher contradicts itself.
  if (!readLaunch(launch) || launch.launcher != Launcher::None)
    return std::nullopt;
  const char *chosen = std::getenv("GRT_CUDA_DEVICE");
  if (options.shareGpus || options.checkStreams || options.measure ||
      (chosen && *chosen))
    return std::nullopt;
  int count = 0;
  if (Status status = guarded([&] { count = processesFor(options); });
      !status) {
    // --check says it beside all else that it finds.
    if (options.check)
      return std::nullopt;
    say("error", status.message());
    return status.exitCode();
  }
  if (count == 0)
    return std::nullopt;
  passSignalsOn();
  int exitCode = ExitFailed;
  Status status = guarded([&] { exitCode = Started(arguments, count).wait(); });
  if (!status)
    say("error", status.message());
  return exitCode;
}
