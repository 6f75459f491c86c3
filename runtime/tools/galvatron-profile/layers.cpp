//===- layers.cpp - Measures the layers of a model ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "layers.h"
#include "child.h"
#include "doubts.h"
#include "made_up.h"

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "core/host_memory.h"
#include "core/manifest.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace grt::profile {
namespace {

/// The first step touches memory for the first time. Medians are of at least
/// three steps, and of ten where those are short.
constexpr int fewestSteps = 3, mostSteps = 10;
constexpr double defaultSeconds = 60;
constexpr uint64_t mostProgramBytes = uint64_t(1) << 30;
/// The memory that programs are planned with: a model that needs too much is
/// refused by the needs of its layers here, or by the session for those of all.
constexpr const char *unboundedMemory = "--memory=1000TiB";

/// Thrown where the measurement was asked to end.
struct Interrupted {};

void require(const Status &status) {
  if (!status)
    fail(ExitCode(status.exitCode()), status.message());
}

std::string samplesText(int64_t count) {
  return std::to_string(count) + (count == 1 ? " sample" : " samples");
}

/// A folder for one file, which goes with it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::error_code problem;
    std::filesystem::path parent =
        std::filesystem::temp_directory_path(problem);
    if (problem)
      fail(ExitStorage, "no folder for temporary files: " + problem.message());
    path = (parent / "galvatron-profile-XXXXXX").string();
    if (!mkdtemp(path.data()))
      fail(ExitStorage, "cannot make a folder in '" + parent.string() +
                            "': " + std::string(std::strerror(errno)));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  std::string file(const char *name) const { return path + "/" + name; }

private:
  std::string path;
};

/// A line on a terminal that says what is measured; the destructor removes it.
class SizeProgress {
public:
  SizeProgress() : shown(isatty(STDERR_FILENO)) {}
  ~SizeProgress() { show(""); }
  SizeProgress(const SizeProgress &) = delete;
  SizeProgress &operator=(const SizeProgress &) = delete;
  void show(const std::string &text) const {
    if (shown)
      std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  }

private:
  bool shown;
};

class LayerMeasurement {
public:
  LayerMeasurement(const Options &options, const std::function<bool()> &ended)
      : options(options), ended(ended),
        compiler(toolBesideThis("galvatron-compile")) {}

  LayersEnd run() {
    LayersEnd end;
    try {
      findSizes();
      measureSizes();
    } catch (const Interrupted &) {
      end.interrupted = true;
    }
    end.profile = std::move(profile);
    return end;
  }

private:
  struct Compiled {
    std::shared_ptr<const Program> program;
    std::vector<LayerNeed> needs;
  };

  const Compiled &compiled(int64_t size) {
    auto known = programs.find(size);
    if (known != programs.end())
      return known->second;
    return programs.emplace(size, compile(size)).first->second;
  }
  Compiled compile(int64_t size);
  const LayerNeed &largestLayer(int64_t size, bool isBackward);
  void findSizes();
  void measureSizes();
  /// Why this machine does not have the memory for the whole model; empty if it
  /// has.
  std::string lackOfMemory(int64_t size);
  std::vector<LayerSeconds> measureSize(int64_t size);
  void say(const std::string &what) { progress.show(what); }

  const Options &options;
  const std::function<bool()> &ended;
  const std::string compiler;
  std::map<int64_t, Compiled> programs; ///< by micro-batch size
  LayerProfile profile;
  SizeProgress progress;
};

LayerMeasurement::Compiled LayerMeasurement::compile(int64_t size) {
  if (ended())
    throw Interrupted();
  say("compiling: micro-batches of " + samplesText(size));
  TemporaryFolder folder;
  std::string file = folder.file("layers.gvx");
  // A name that begins like an option is none.
  std::string model =
      options.layers[0] == '-' ? "./" + options.layers : options.layers;
  std::vector<std::string> arguments = {model,
                                        "--cluster=1xcpu",
                                        "--batch=" + std::to_string(size),
                                        "--micro-batches=1",
                                        "--strategy=single",
                                        "--replan",
                                        unboundedMemory,
                                        "-o",
                                        file};
  arguments.insert(arguments.end(), options.compileOptions.begin(),
                   options.compileOptions.end());
  ChildEnd end = runChild(compiler, arguments, ended);
  if (ended())
    throw Interrupted();
  if (end.exitCode != 0) {
    while (!end.said.empty() && end.said.back() == '\n')
      end.said.pop_back();
    fail(end.exitCode == ExitInvalid ? ExitInvalid : ExitFailed,
         "--layers: galvatron-compile ended with exit code " +
             std::to_string(end.exitCode) + " for a batch of " +
             samplesText(size) + ":\n" + end.said);
  }
  Compiled result;
  require(Program::loadMemory(readWholeFile(file, mostProgramBytes),
                              options.layers + " with a batch of " +
                                  samplesText(size),
                              result.program));
  result.needs = needsOf(*result.program);
  return result;
}

const LayerNeed &LayerMeasurement::largestLayer(int64_t size, bool isBackward) {
  const std::vector<LayerNeed> &needs = compiled(size).needs;
  return *std::max_element(needs.begin(), needs.end(),
                           [&](const LayerNeed &a, const LayerNeed &b) {
                             return a.peak(isBackward) < b.peak(isBackward);
                           });
}

void LayerMeasurement::findSizes() {
  // Harmony's rule for a pack of one layer: its peak, input and all, is at most
  // the capacity (docs/harmony.md).
  auto fits = [&](int64_t size, bool isBackward) {
    return uint64_t(largestLayer(size, isBackward).peak(isBackward)) <=
           options.memory;
  };
  for (bool isBackward : {true, false})
    if (sizesThatFit(options.largest, [&](int64_t size) {
          return fits(size, isBackward);
        }).empty()) {
      const LayerNeed &layer = largestLayer(1, isBackward);
      fail("layer '" + layer.name + "' alone needs " +
           std::to_string(layer.peak(isBackward)) + " bytes for " +
           (isBackward ? "backward" : "forward") +
           " of one sample, --memory has " + std::to_string(options.memory));
    }
  // Programs that were compiled for one direction serve the other, too.
  for (const auto &[size, program] : programs)
    for (bool isBackward : {false, true})
      if (fits(size, isBackward))
        profile.sizes[isBackward].push_back(size);
}

std::string LayerMeasurement::lackOfMemory(int64_t size) {
  uint64_t needed = compiled(size).program->manifest().roles[0].arenaBytes;
  auto lacks = [&](uint64_t available, const std::string &source) {
    return "the whole model with a batch of " + samplesText(size) + " needs " +
           bytesText(needed) + " of this machine, " + bytesText(available) +
           " are available (" + source + ")";
  };
  if (options.hostMemory)
    return needed > options.hostMemory
               ? lacks(options.hostMemory, "--host-memory")
               : "";
  for (const std::optional<MemoryBound> &bound :
       {machineMemory(), groupMemory()})
    if (bound && needed > bound->bytes)
      return lacks(bound->bytes, bound->source);
  return "";
}

std::vector<LayerSeconds> LayerMeasurement::measureSize(int64_t size) {
  const Program &program = *compiled(size).program;
  SessionOptions sessionOptions;
  sessionOptions.threadsPerRank = options.threadsPerRank;
  sessionOptions.hostMemoryBytes = options.hostMemory;
  sessionOptions.trace = true;
  // The numbers are made up, and so may any loss be.
  sessionOptions.onNan = OnNan::Skip;
  std::unique_ptr<Session> session;
  require(Session::create(compiled(size).program, sessionOptions, session));
  session->hyperparameters() = Hyperparameters::defaults(program);
  session->hyperparameters().learningRate = 0;
  require(session->setBatch(madeUpBatch(program)));
  auto step = [&] {
    if (ended())
      throw Interrupted();
    StepResult result;
    require(session->step(result));
    return result.milliseconds / 1e3;
  };
  step();
  require(session->record(true));
  double budget = (options.seconds > 0 ? options.seconds : defaultSeconds) /
                  double(profile.sizes[0].size());
  double passed = 0;
  int fewest = options.quick ? 1 : fewestSteps;
  for (int number = 0;
       number < fewest ||
       (!options.quick && number < mostSteps && passed < budget);
       ++number)
    passed += step();
  std::vector<LayerSeconds> seconds;
  require(session->layerSeconds(seconds));
  profile.note = "galvatron-profile " + std::string(version()) +
                 ", one CPU rank with " +
                 std::to_string(session->threadsPerRank()) +
                 (session->threadsPerRank() == 1 ? " thread, " : " threads, ") +
                 program.facts().dtype + ", " + program.optimizer() +
                 (program.sequenceLength()
                      ? ", " + std::to_string(program.sequenceLength()) +
                            " tokens a sample"
                      : std::string()) +
                 "; BWD includes the recomputed forward";
  return seconds;
}

void LayerMeasurement::measureSizes() {
  profile.othersBusy = busyCoresNow();
  const Compiled &first = compiled(1);
  profile.model = first.program->facts().model;
  if (profile.model.empty())
    profile.model = std::filesystem::path(options.layers).stem().string();
  std::vector<int64_t> sizes = profile.sizes[0]; // backward's are among them
  for (size_t i = 0; i < sizes.size(); ++i) {
    say("measuring: micro-batches of " + samplesText(sizes[i]) + ", " +
        std::to_string(i + 1) + " of " + std::to_string(sizes.size()) +
        " sizes");
    if (std::string lack = lackOfMemory(sizes[i]); !lack.empty()) {
      if (i == 0)
        fail(ExitMemory, lack);
      say("");
      std::fprintf(stderr,
                   "galvatron-profile: warning: micro-batches of %s and more "
                   "are not measured: %s\n",
                   samplesText(sizes[i]).c_str(), lack.c_str());
      for (std::vector<int64_t> &list : profile.sizes)
        std::erase_if(list, [&](int64_t size) { return size >= sizes[i]; });
      return;
    }
    std::vector<LayerSeconds> seconds = measureSize(sizes[i]);
    profile.measured[sizes[i]] = {compiled(sizes[i]).needs, std::move(seconds)};
    programs.erase(sizes[i]);
  }
}

} // namespace

LayersEnd measureLayers(const Options &options,
                        const std::function<bool()> &ended) {
  return LayerMeasurement(options, ended).run();
}

} // namespace grt::profile
