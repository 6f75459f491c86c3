//===- search-speed.cpp - How long planning takes -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times plan() over random transformers, budgets and noise, in seconds of CPU
// of its one thread, so that a busy machine does not matter much:
//
//   search-speed [--runs=N] [--case=TEXT] [--seed=N] [--time-limit=SECONDS]
//                [--search-limit=STEPS] [--verbose]
//
// Layers are given as profiles with FLOPs and bytes; embedding and head differ
// from the body, and the body has one to three kinds of layers. Every case has
// a process of its own, so that peak memory is its own too. The last
// columns tell how many of the plans are proven optimal and the gap that is
// proven of the others: those that a limit ended.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Planner.h"

#include "galvatron/Support/Hash.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace galvatron;

namespace {

struct Case {
  std::string name;
  int64_t nodes, devicesPerNode;
  int64_t layers; ///< with embedding and head
  bool sweep;
  int64_t batch;             ///< or the largest of a sweep
  double aimMedian, aimLate; ///< seconds; 0: none
};

double cpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

double peakMiB() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double uniform(std::mt19937_64 &random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

/// A transformer of a size that the cluster can train at all: 24 bytes of
/// everything a parameter and device at most.
std::unique_ptr<ProfileLayerModel> makeModel(std::mt19937_64 &random,
                                             const Case &which) {
  int64_t devices = which.nodes * which.devicesPerNode;
  int64_t body = which.layers - 2;
  double memory = 24e9 * static_cast<double>(devices);
  double parameters = memory / 16 * uniform(random, 0.03, 0.3);
  double width = std::sqrt(parameters / 12 / static_cast<double>(body));
  int64_t hidden =
      std::clamp<int64_t>(static_cast<int64_t>(width) / 64 * 64, 512, 16384);
  int64_t tokens = int64_t(256)
                   << std::uniform_int_distribution<>(0, 3)(random);
  constexpr int64_t vocabulary = 50304;
  auto h = static_cast<double>(hidden), s = static_cast<double>(tokens);

  std::vector<ProfileLayer> layers;
  auto add = [&](const char *name, int64_t count, double flops,
                 double parameterCount, double boundary, double kept) {
    ProfileLayer layer;
    layer.name = name;
    layer.count = count;
    layer.forwardFlops = flops * uniform(random, 0.9, 1.1);
    layer.forwardMovedBytes = 4 * kept;
    layer.parameterBytes = static_cast<int64_t>(4 * parameterCount);
    layer.boundaryBytes = static_cast<int64_t>(boundary);
    layer.intermediateBytes = static_cast<int64_t>(4 * kept);
    layer.tpReplicatedBytes = layer.intermediateBytes / 4;
    layers.push_back(layer);
  };
  add("embed", 1, 0, vocabulary * h, 8 * s, s * h);
  int64_t kinds = std::uniform_int_distribution<>(1, 3)(random);
  for (int64_t k = 0; k < kinds; ++k) {
    int64_t count = body / kinds + (k < body % kinds);
    std::string name = "block" + std::to_string(k);
    add(name.c_str(), count, 24 * s * h * h + 4 * s * s * h, 12 * h * h,
        4 * s * h, 16 * s * h + 2 * s * s * h / 64);
  }
  add("head", 1, 2 * s * h * vocabulary, vocabulary * h, 4 * s * h,
      2 * s * vocabulary);
  return llvm::cantFail(
      ProfileLayerModel::get("random", "f32", std::move(layers)));
}

Cluster makeCluster(const Case &which) {
  DeviceType type;
  type.name = "card";
  type.backend = "cuda";
  type.memory = int64_t(24) << 30;
  type.flops = {{"f32", 15e12}};
  type.memoryBandwidth = 600e9;
  std::optional<Link> network;
  if (which.nodes > 1)
    network = Link{12.5e9, 10e-6};
  return llvm::cantFail(Cluster::get(
      "random", {type},
      {{which.nodes, "card", which.devicesPerNode, {10e9, 8e-6}}}, network));
}

struct Settings {
  int runs = 200;
  uint64_t seed = 1;
  std::optional<double> timeLimit; ///< seconds
  uint64_t mostSteps = kDefaultMostSteps;
  Objective objective = Objective::Executed;
  bool verbose = false;
};

/// One line about a plan; equal plans have equal lines.
std::string describe(Plan plan) {
  plan.searchMs = 0;
  std::string text, json;
  llvm::raw_string_ostream(json) << plan.toJson();
  llvm::raw_string_ostream(text)
      << "pp" << plan.pipelineDegree << " m" << plan.microBatches << " batch "
      << plan.batch
      << llvm::format(", %.6f ms, heuristic +%.2f%%, gap %.2f%%, "
                      "%.2f%% executed, ",
                      plan.iterationMs,
                      plan.heuristicMs > 0
                          ? (plan.heuristicMs / plan.iterationMs - 1) * 100
                          : 0.0,
                      plan.provenGapPercent.value_or(0),
                      plan.gapPercent.value_or(-1))
      << contentHash(json);
  return text;
}

void measure(const Case &which, const Settings &settings) {
  std::mt19937_64 random(settings.seed);
  std::vector<double> times, gaps;
  int pipelines = 0, proven = 0;
  for (int run = 0; run < settings.runs; ++run) {
    std::unique_ptr<ProfileLayerModel> model = makeModel(random, which);
    Cluster cluster = makeCluster(which);
    PlannerOptions options;
    options.relaxations = false;
    Cancellation cancellation;
    if (settings.timeLimit) {
      cancellation.setSeconds(*settings.timeLimit);
      options.cancellation = &cancellation;
    }
    options.mostSteps = settings.mostSteps;
    options.objective = settings.objective;
    options.memory = static_cast<int64_t>(
        std::exp(uniform(random, std::log(6e9), std::log(40e9))));
    if (which.sweep)
      options.maxBatch = which.batch;
    else
      options.batch =
          which.batch >> std::uniform_int_distribution<>(0, 2)(random);
    double begin = cpuSeconds();
    PlannerResult result = llvm::cantFail(plan(*model, cluster, options));
    double seconds = cpuSeconds() - begin;
    if (settings.verbose) {
      llvm::outs() << llvm::format("  %3d: %9.2f ms, %7.2f million steps, ",
                                   run, seconds * 1e3,
                                   static_cast<double>(result.steps) / 1e6)
                   << (result.feasible() ? describe(result.plan())
                                         : std::string("infeasible"))
                   << "\n";
      llvm::outs().flush();
    }
    if (!result.feasible())
      continue;
    pipelines += result.plan().pipelineDegree > 1;
    times.push_back(seconds);
    double gap = result.plan().provenGapPercent.value_or(0);
    gaps.push_back(gap);
    proven += gap == 0;
  }
  auto at = [](std::vector<double> &values, double part) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0.0
                          : values[static_cast<size_t>(
                                part * static_cast<double>(values.size() - 1))];
  };
  llvm::outs() << llvm::format(
      "| %-42s | %8.2f | %8.2f | %8.2f | %4d | %4d | %6.0f |",
      which.name.c_str(), at(times, 0.5) * 1e3, at(times, 0.99) * 1e3,
      at(times, 1) * 1e3, static_cast<int>(times.size()), pipelines, peakMiB());
  if (which.aimMedian > 0)
    llvm::outs() << llvm::format(" %.0f / %.0f |", which.aimMedian * 1e3,
                                 which.aimLate * 1e3);
  else
    llvm::outs() << " |";
  llvm::outs() << llvm::format(" %d | %.2f | %.2f |\n", proven, at(gaps, 0.5),
                               at(gaps, 1));
  llvm::outs().flush();
}

} // namespace

int main(int argc, char **argv) {
  Settings settings;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef argument = argv[i];
    double limit = 0;
    if ((argument.consume_front("--runs=") &&
         !argument.getAsInteger(10, settings.runs)) ||
        (argument.consume_front("--seed=") &&
         !argument.getAsInteger(10, settings.seed)))
      continue;
    if (argument.consume_front("--time-limit=") &&
        !argument.getAsDouble(limit)) {
      settings.timeLimit = limit;
      continue;
    }
    if (argument.consume_front("--search-limit=") &&
        !argument.getAsInteger(10, settings.mostSteps))
      continue;
    if (argument.consume_front("--case=")) {
      only = argument.str();
      continue;
    }
    if (argument == "--objective=paper") {
      settings.objective = Objective::Paper;
      continue;
    }
    if (argument == "--verbose") {
      settings.verbose = true;
      continue;
    }
    llvm::errs() << "search-speed: error: expected --runs=N, --seed=N, "
                    "--case=TEXT, --time-limit=SECONDS, "
                    "--search-limit=STEPS, --objective=paper or --verbose, "
                    "found '"
                 << argv[i] << "'\n";
    return 2;
  }
  const Case cases[] = {
      {"8 devices, 34 layers, one batch", 1, 8, 34, false, 128, 0.01, 0.1},
      {"8 devices, 50 layers, sweep to 1024", 1, 8, 50, true, 1024, 0.1, 0.5},
      {"64 devices, 130 layers, one batch", 8, 8, 130, false, 1024, 0.1, 1},
      {"64 devices, 130 layers, sweep to 2048", 8, 8, 130, true, 2048, 1, 0},
      {"1024 devices, 98 layers, one batch", 128, 8, 98, false, 8192, 0.2, 2},
      {"8 devices, 32 layers, one batch", 1, 8, 32, false, 128, 0, 0},
      {"8 devices, 128 layers, one batch", 1, 8, 128, false, 128, 0.1, 0},
      {"8 devices, 512 layers, one batch", 1, 8, 512, false, 128, 0.3, 0},
      {"16 devices, 98 layers, one batch", 2, 8, 98, false, 256, 0, 0},
      {"32 devices, 98 layers, one batch", 4, 8, 98, false, 512, 0, 0},
      {"128 devices, 98 layers, one batch", 16, 8, 98, false, 1024, 0, 0},
      {"256 devices, 98 layers, one batch", 32, 8, 98, false, 2048, 0, 0},
      {"512 devices, 98 layers, one batch", 64, 8, 98, false, 4096, 0, 0},
      {"96 devices, 98 layers, one batch", 12, 8, 98, false, 1536, 0, 0},
  };
  llvm::outs()
      << "| case | median ms | p99 ms | worst ms | plans | pipelines "
         "| peak MiB | aim ms | proven | median gap % | worst gap % |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Case &which : cases) {
    if (!llvm::StringRef(which.name).contains(only))
      continue;
    llvm::outs().flush();
    pid_t child = fork();
    if (child == 0) {
      measure(which, settings);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
      llvm::errs() << "search-speed: error: '" << which.name
                   << "' did not end well\n";
      return 1;
    }
  }
  return 0;
}
