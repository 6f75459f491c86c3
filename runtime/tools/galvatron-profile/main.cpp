//===- main.cpp - galvatron-profile: measures a machine -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "base/error.h"
#include "base/files.h"
#include "comm/threads.h"
#include "core/executor.h"
#include "describe.h"
#include "device.h"
#include "doubts.h"
#include "grt/outputs.h"
#include "grt/processes.h"
#include "grt/variables.h"
#include "layers.h"
#include "measure.h"
#include "options.h"
#include "signals.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

using namespace grt;
using namespace grt::profile;

namespace {

uint64_t defaultMemory(int ranks) {
  uint64_t machine =
      uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  uint64_t share = machine / 4 * 3 / uint64_t(ranks);
  return std::max<uint64_t>(share >> 20, 1) << 20;
}

/// A file is whole or as it was; `-` is standard output.
void write(const std::string &path, const std::string &text) {
  if (path != "-") {
    AtomicFile file(path);
    file.write(text);
    file.commit();
    return;
  }
  writeStandardOutput(text);
}

void report(const Options &options, const Measurement &measurement,
            uint64_t memory, double othersBusy) {
  for (const std::string &doubt : doubts(measurement, othersBusy))
    std::fprintf(stderr, "galvatron-profile: warning: %s\n", doubt.c_str());
  nlohmann::ordered_json cluster = describe(measurement, memory);
  if (options.output != "-" || options.json != "-")
    write(options.output, toYaml(cluster, measurement));
  if (!options.json.empty())
    write(options.json, cluster.dump(2) + "\n");
}

/// Tries the files that the first process is to write: what was measured for a
/// minute is not to be lost to a folder that does not exist.
Status tryFiles(const Options &options) {
  std::vector<Output> outputs;
  if (options.output != "-")
    outputs.push_back({"-o", options.output});
  if (!options.json.empty() && options.json != "-")
    outputs.push_back({"--json", options.json});
  return tryOutputs(outputs);
}

/// A line on a terminal that says how long the measurement has gone on; it goes
/// when the measurement is over.
class Progress {
public:
  explicit Progress(double seconds) {
    if (isatty(STDERR_FILENO))
      ticker = std::thread([this, seconds] { show(seconds); });
  }
  ~Progress() {
    if (!ticker.joinable())
      return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      over = true;
    }
    changed.notify_one();
    ticker.join();
    std::fputs("\r\x1b[K", stderr);
  }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

private:
  void show(double seconds) {
    std::unique_lock<std::mutex> lock(mutex);
    for (int passed = 0; !over; ++passed) {
      std::fprintf(stderr, "\rmeasuring: %d of about %.0f s\x1b[K", passed,
                   seconds);
      changed.wait_for(lock, std::chrono::seconds(1), [this] { return over; });
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread ticker;
};

Measurement measureOnRanks(World &world, const MeasureOptions &how) {
  std::optional<Progress> progress;
  if (world.firstLocal() == 0)
    progress.emplace(how.seconds);
  return measure(world, how);
}

/// The device of this process, and of several processes their links; the same
/// on all.
Measurement measureDevices(const Options &options, Processes *processes,
                           const MeasureOptions &how) {
  const bool several = processes && processes->ranks() > 1;
  std::optional<Progress> progress;
  if (!processes || processes->number() == 0)
    progress.emplace(how.seconds);
  MeasureOptions part = how;
  part.seconds *= several ? 0.6 : 1;
  Measurement result = measureDevice(options.backend, options.largest, part);
  if (!several)
    return result;
  part.seconds = how.seconds - part.seconds;
  BackendHandle backend(options.backend, "");
  measureDeviceLinks(*processes->world(), *backend, part, result);
  return result;
}

/// "1, 2, 4"
std::string listText(const std::vector<int64_t> &numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Measures the layers of a model; returns what was asked for, as run().
uint32_t runLayers(const Options &options) {
  catchSignals();
  uint32_t asked = 0;
  LayersEnd end = measureLayers(options, [&] {
    asked |= takeRequests() & endRequests;
    return asked != 0;
  });
  if (end.interrupted) {
    std::vector<int64_t> measured;
    for (const auto &[size, measurement] : end.profile.measured)
      measured.push_back(size);
    std::fprintf(stderr,
                 "galvatron-profile: warning: ended by %s: nothing is written; "
                 "measured micro-batch sizes: %s\n",
                 endingOf(asked).word,
                 measured.empty() ? "none" : listText(measured).c_str());
    return asked;
  }
  for (const std::string &doubt : doubts(end.profile, end.profile.othersBusy))
    std::fprintf(stderr, "galvatron-profile: warning: %s\n", doubt.c_str());
  write(options.output, toHarmonyJson(end.profile));
  if (options.output != "-")
    std::printf("%zu layers, micro-batches forward %s, backward %s\n",
                end.profile.measured.begin()->second.needs.size(),
                listText(end.profile.sizes[0]).c_str(),
                listText(end.profile.sizes[1]).c_str());
  return 0;
}

/// Measures and writes the result. The first SIGINT or SIGTERM is a request to
/// end in order. Returns what was asked for by the end; see signals.h.
uint32_t run(const Options &options, Processes *processes) {
  MeasureOptions how;
  catchSignals();
  uint32_t asked = 0;
  auto begin = std::chrono::steady_clock::now();
  double endedAfter = 0;
  how.ended = [&] {
    if (!asked && (asked = takeRequests() & endRequests))
      endedAfter = std::chrono::duration<double>(
                       std::chrono::steady_clock::now() - begin)
                       .count();
    return asked != 0;
  };
  how.quick = options.quick;
  how.seconds =
      options.seconds > 0 ? options.seconds : (options.quick ? 2 : 60);
  auto tellEnd = [&] {
    if (asked)
      std::fprintf(stderr,
                   "galvatron-profile: warning: ended by %s after %.0f s: what "
                   "was left was measured once\n",
                   endingOf(asked).word, endedAfter);
  };
  if (!options.backend.empty()) {
    Measurement measurement = measureDevices(options, processes, how);
    if (processes && processes->number() > 0)
      return asked;
    tellEnd();
    report(options, measurement, options.memory, /*othersBusy=*/0);
    return asked;
  }
  int ranks = options.ranks
                  ? options.ranks
                  : std::max(1, int(std::thread::hardware_concurrency()));
  // Processes of a launcher wait for each other and are at work that way.
  double othersBusy = processes ? 0 : busyCoresNow();
  std::shared_ptr<World> world;
  if (processes)
    world = processes->world();
  else
    world = std::make_shared<ThreadsWorld>(ranks);
  Measurement measurement = measureOnRanks(*world, how);
  if (world->firstLocal() == 0) {
    tellEnd();
    report(options, measurement,
           options.memory ? options.memory
                          : defaultMemory(world->machineRanks()),
           othersBusy);
  }
  return asked;
}

} // namespace

int main(int argc, char **argv) {
  openStandardDescriptors();
  setLibraryVariables();
  Options options;
  Status status = parseOptions(argc - 1, argv + 1, options);
  bool asks = status && (options.help || options.version);
  if (asks)
    status = guarded([&] {
      writeStandardOutput(options.help ? helpText()
                                       : std::string("galvatron-profile ") +
                                             version() + "\n");
    });
  if (asks && status)
    return 0;
  std::shared_ptr<Processes> processes;
  ProcessOptions launch;
  launch.tool = "galvatron-profile";
  launch.threadRanks = std::max(1, options.ranks);
  if (status)
    status = Processes::join(launch, processes);
  if (status && !options.layers.empty() && processes && processes->count() > 1)
    status = Status(ExitInvalid, "--layers measures one rank: expected one "
                                 "process, found " +
                                     std::to_string(processes->count()));
  if (status) {
    Status files =
        Processes::launchedNumber() == 0 ? tryFiles(options) : Status();
    status = processes ? processes->agree(files, {}) : files;
  }
  int exitCode = 0;
  if (status)
    status = guarded([&] {
      if (uint32_t asked = options.layers.empty()
                               ? run(options, processes.get())
                               : runLayers(options))
        exitCode = endingOf(asked).exitCode;
    });
  if (processes) {
    int common = processes->finish(status);
    return common ? common : exitCode;
  }
  if (status)
    return exitCode;
  if (Processes::launchedNumber() == 0)
    std::fprintf(stderr, "galvatron-profile: error: %s\n",
                 status.message().c_str());
  return status.exitCode();
}
