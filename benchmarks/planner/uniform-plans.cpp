//===- uniform-plans.cpp - The plan found beside all uniform ones ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plans a model on clusters of H100 with slow and fast networks, simulates
// every uniform plan beside it, and says how the fastest of them compares:
//
//   uniform-plans CONFIG [--devices=N] [--network=GB/s] [--quick]
//                 [--most-percent=PERCENT]
//
// Uniform: even stages of 1 to 16, one strategy of all layers, tensor
// parallelism of 1 to 8 inside a node, dp or sdp over the rest, with and
// without recomputation, all powers of two as micro-batches. --quick looks at
// fewer degrees and micro-batches. Without --devices and --network all of 64,
// 256 and 1,024 devices and 25, 50 and 360 GB/s. The exit code is 1 if a
// uniform plan is faster than the plan found by more than --most-percent.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Simulate/Simulate.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <limits>

using namespace galvatron;

namespace {

struct Settings {
  std::string config;
  std::vector<int64_t> devices = {64, 256, 1024};
  std::vector<double> networks = {25, 50, 360}; ///< GB/s of a node
  bool quick = false;
  std::optional<double> mostPercent;
};

constexpr int64_t kDevicesOfNode = 8;
/// Samples of a step for every device.
constexpr int64_t kSamplesOfDevice = 2;

Cluster makeCluster(int64_t devices, double network) {
  Cluster known = llvm::cantFail(Cluster::load("8x8xh100"));
  DeviceType type = known.deviceType(0);
  NodeGroup nodes = known.nodeGroups()[0];
  nodes.count = devices / kDevicesOfNode;
  nodes.devices = kDevicesOfNode;
  nodes.network.reset();
  return llvm::cantFail(
      Cluster::get("sweep", {type}, {nodes}, Link{network * 1e9, 10e-6}));
}

struct Fastest {
  double ms = std::numeric_limits<double>::infinity();
  std::string name;
  int plans = 0, fitting = 0, simulated = 0;
};

/// Simulates the plan if its lower bound is below the fastest.
void tryPlan(LayerModel &model, const Cluster &cluster, Plan plan,
             Fastest &fastest) {
  ++fastest.plans;
  plan.objective = Objective::Paper;
  llvm::Expected<PlannerResult> priced = evaluate(model, cluster, plan);
  if (!priced) {
    llvm::consumeError(priced.takeError());
    return;
  }
  if (!priced->feasible())
    return;
  ++fastest.fitting;
  SimulationInput input =
      llvm::cantFail(simulationInput(model, cluster, priced->plan()));
  if (stepBounds(input).lower * 1e3 >= fastest.ms)
    return;
  ++fastest.simulated;
  plan.objective = Objective::Executed;
  double ms = llvm::cantFail(evaluate(model, cluster, plan)).plan().iterationMs;
  if (ms < fastest.ms) {
    fastest.ms = ms;
    fastest.name = plan.summary();
  }
}

Fastest uniformPlans(LayerModel &model, const Cluster &cluster, int64_t batch,
                     bool quick) {
  Fastest fastest;
  auto layers = static_cast<int64_t>(model.layerCount());
  for (int64_t stages = 1; stages <= 16; stages *= quick ? 4 : 2) {
    int64_t size = cluster.deviceCount() / stages;
    for (int64_t tp = 1; tp <= std::min(kDevicesOfNode, size);
         tp *= quick ? 8 : 2)
      for (const char *paradigm : {"dp", "sdp"})
        for (const char *suffix : {"", ".ckpt"}) {
          std::string text;
          if (size > tp)
            text = paradigm + std::to_string(size / tp);
          else if (paradigm == std::string("sdp"))
            continue;
          if (tp > 1)
            text += (text.empty() ? "tp" : ".tp") + std::to_string(tp);
          Strategy strategy = llvm::cantFail(
              Strategy::parse((text.empty() ? "single" : text) + suffix));
          int64_t most = batch / strategy.sampleShards();
          for (int64_t m = stages == 1 ? 1 : stages; m <= most;
               m *= quick ? 8 : 2) {
            Plan plan;
            plan.batch = batch;
            plan.microBatches = m;
            plan.pipelineDegree = stages;
            std::vector<int64_t> sizes = evenPartition(layers, stages);
            int64_t next = 0;
            for (auto [s, devices] :
                 llvm::enumerate(stageDevices(cluster.deviceCount(), stages))) {
              PlanStage stage;
              stage.devices = devices;
              stage.firstLayer = next;
              stage.layerCount = sizes[s];
              for (int64_t l = 0; l < sizes[s]; ++l)
                plan.layers.push_back({model.layerName(next++),
                                       static_cast<int64_t>(s), strategy});
              plan.stages.push_back(std::move(stage));
            }
            tryPlan(model, cluster, std::move(plan), fastest);
          }
        }
  }
  return fastest;
}

/// False if a uniform plan is faster by more than is allowed.
bool compare(LayerModel &model, int64_t devices, double network,
             const Settings &settings) {
  Cluster cluster = makeCluster(devices, network);
  PlannerOptions options;
  options.batch = kSamplesOfDevice * devices;
  PlannerResult result = llvm::cantFail(plan(model, cluster, options));
  if (!result.feasible()) {
    llvm::errs() << "uniform-plans: error: no plan fits\n";
    return false;
  }
  const Plan &found = result.plan();
  Fastest uniform =
      uniformPlans(model, cluster, *options.batch, settings.quick);
  double percent = (found.iterationMs / uniform.ms - 1) * 100;
  llvm::outs() << llvm::format("| %lld | %.0f GB/s | %.3f s | ",
                               static_cast<long long>(devices), network,
                               found.iterationMs / 1e3)
               << found.summary() << " | "
               << (found.gapPercent
                       ? llvm::formatv("{0:f1}%", *found.gapPercent).str()
                       : "-")
               << llvm::format(" | %.3f s | ", uniform.ms / 1e3) << uniform.name
               << llvm::format(" | %+.1f%% | %d of %d |\n", percent,
                               uniform.fitting, uniform.plans);
  llvm::outs().flush();
  return !settings.mostPercent || percent <= *settings.mostPercent;
}

} // namespace

int main(int argc, char **argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef argument = argv[i];
    int64_t devices = 0;
    double number = 0;
    if (argument.consume_front("--devices=") &&
        !argument.getAsInteger(10, devices) && devices % kDevicesOfNode == 0 &&
        devices > 0) {
      settings.devices = {devices};
    } else if (argument.consume_front("--network=") &&
               !argument.getAsDouble(number) && number > 0) {
      settings.networks = {number};
    } else if (argument.consume_front("--most-percent=") &&
               !argument.getAsDouble(number)) {
      settings.mostPercent = number;
    } else if (argument == "--quick") {
      settings.quick = true;
    } else if (!argument.starts_with("-") && settings.config.empty()) {
      settings.config = argument.str();
    } else {
      llvm::errs() << "uniform-plans: error: expected a configuration, "
                      "--devices=N (a multiple of 8), --network=GB/s, --quick "
                      "or --most-percent=PERCENT, found '"
                   << argv[i] << "'\n";
      return 2;
    }
  }
  auto file = llvm::MemoryBuffer::getFile(settings.config);
  if (!file) {
    llvm::errs() << "uniform-plans: error: '" << settings.config
                 << "' cannot be read\n";
    return 2;
  }
  mlir::MLIRContext context;
  loadImportDialects(context);
  mlir::DialectRegistry registry;
  registerFootprints(registry);
  context.appendDialectRegistry(registry);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      llvm::cantFail(importHuggingFaceConfig(
          (*file)->getBuffer(), settings.config, {0, "bf16"}, context));
  std::unique_ptr<LayerModel> model =
      llvm::cantFail(createIRLayerModel(*module, "adamw", {"cuda", 1}));
  llvm::outs() << "| devices | network | found | plan | gap | fastest uniform "
                  "| which | found against it | fit |\n"
                  "|---|---|---|---|---|---|---|---|---|\n";
  bool good = true;
  for (int64_t devices : settings.devices)
    for (double network : settings.networks)
      good &= compare(*model, devices, network, settings);
  return good ? 0 : 1;
}
