//===- HarmonyPlan.cpp - Harmony on a model's layers ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes the profile by micro-batch size that Harmony measures from the costs of
// a model's layers on a cluster's devices, and searches packs and sizes.
//
//===----------------------------------------------------------------------===//

#include "Spaces.h"

#include "galvatron/Baselines/HarmonySearch.h"
#include "galvatron/Cluster/Backend.h"
#include "galvatron/Planner/Budget.h"
#include "galvatron/Planner/Gap.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/TextTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

#include <chrono>

using namespace llvm;

namespace galvatron::baselines {

namespace {

/// Footprints on one device at micro-batches of these sizes, ascending.
/// Weights, gradients and optimizer state are the host's; a task has those of
/// its pack, and what its functions keep and take.
Expected<HarmonyProfile> profileOf(LayerModel &model, const Cluster &cluster,
                                   ArrayRef<int64_t> sizes) {
  auto layers = static_cast<int64_t>(model.layerCount());
  Strategy single;
  std::vector<int64_t> device = {0};
  std::array<HarmonyMeasurements, 2> measurements;
  std::vector<double> slope, intercept(layers, 0), update;
  std::vector<int64_t> weights, buffers(layers, 0), optimizer;
  for (int64_t size : sizes) {
    for (HarmonyMeasurements &direction : measurements) {
      direction.sizes.push_back(size);
      direction.seconds.emplace_back();
      direction.bytes.emplace_back();
    }
    for (int64_t l = 0; l < layers; ++l) {
      Expected<LayerFootprint> found =
          model.footprint(model.kindOf(l), single, size);
      if (!found)
        return found.takeError();
      LayerTimeParts time =
          layerTimeParts(*found, single, linksOf(cluster, single, device),
                         cluster, device, model.dtype(), {});
      auto add = [&](Direction direction, double seconds, int64_t bytes) {
        HarmonyMeasurements &measured =
            measurements[static_cast<size_t>(direction)];
        measured.seconds.back().push_back(seconds);
        measured.bytes.back().push_back(static_cast<double>(bytes));
      };
      int64_t boundaries = found->inputBytes + found->outputBytes;
      add(Direction::Forward, time.forward,
          found->parameterBytes + boundaries + found->stashBytes +
              found->forwardTransient);
      // Recomputation is part of what is measured of backward.
      add(Direction::Backward, time.forward + time.backward,
          found->parameterBytes + found->gradientBytes + 2 * boundaries +
              found->stashBytes + found->backwardTransient);
      if (size != sizes.front())
        continue;
      slope.push_back(static_cast<double>(found->inputBytes) /
                      static_cast<double>(size));
      weights.push_back(found->parameterBytes);
      optimizer.push_back(found->optimizerBytes);
      update.push_back(static_cast<double>(found->updateBytes) /
                       kHarmonyHostRate);
    }
  }
  return HarmonyProfile::get(model.name(), std::move(measurements),
                             std::move(slope), std::move(intercept),
                             std::move(weights), std::move(buffers),
                             std::move(optimizer), std::move(update));
}

/// The least milliseconds of a step of any packs and sizes: a device computes
/// one micro-batch after the other, and the busiest one no less than the mean.
/// Every layer runs forward and backward, and forward again if it cannot be in
/// the last backward pack, whose parameters are on a device at once and in
/// front of which there are others. Parameters come from the host once at
/// least, beside computation where devices have streams; with data parallelism
/// each device's part of them.
double leastMsOfPacks(const Cluster &cluster, const HarmonyProfile &profile,
                      const HarmonyProblem &problem, int64_t samples) {
  int64_t layers = profile.layerCount();
  std::vector<double> forward(layers, INFINITY), backward(layers, INFINITY);
  for (int64_t size : profile.sizes(Direction::Forward)) {
    double count = static_cast<double>(samples) / static_cast<double>(size);
    HarmonyCosts once = profile.costs(Direction::Forward, size);
    HarmonyCosts both = profile.costs(Direction::Backward, size);
    for (int64_t l = 0; l < layers; ++l) {
      auto time = static_cast<double>(once.time[l]);
      forward[l] = std::min(forward[l], count * time);
      backward[l] = std::min(
          backward[l], count * (static_cast<double>(both.time[l]) - time));
    }
  }
  ArrayRef<int64_t> weights = profile.weightSums();
  double sum = 0;
  for (int64_t l = 0; l < layers; ++l) {
    bool mayBeLast = l + 1 >= problem.leastPacks &&
                     weights[layers] - weights[l] <= problem.machine.capacity;
    sum += (mayBeLast ? 1 : 2) * forward[l] + backward[l];
  }
  // Whole picoseconds are rounded.
  constexpr double rounding = 1 - 1e-6;
  bool isPipeline = problem.rules.mode == HarmonyMode::Pipeline;
  auto devices = static_cast<double>(problem.machine.devices);
  double computing = sum * rounding / 1e12 / (isPipeline ? devices : 1);
  double copying =
      hostCopySeconds(cluster, {0}, weights[layers]) * rounding / devices;
  bool streams = backendTraits(cluster.backendOf({0})).streams;
  return 1e3 * (streams ? std::max(computing, copying) : computing + copying);
}

/// The bytes in the host's memory during a step: all states, and the stash.
json::Object hostLedger(LayerModel &model, const HarmonyProfile &profile,
                        const HarmonyPlan &plan) {
  return json::Object{
      {"parameters", profile.weightSums().back()},
      {"gradients",
       plan.rules.updateOnDevice ? 0 : profile.weightSums().back()},
      {"optimizer", profile.optimizerSums().back()},
      {"activations",
       plan.timeline.volumes[static_cast<size_t>(HarmonyTensor::Stash)].out}};
}

json::Object harmonyJson(LayerModel &model, const Cluster &cluster,
                         const PlannerOptions &options,
                         const HarmonyProfile &profile, const HarmonyPlan &plan,
                         double searchMs) {
  const HarmonyConfig &config = plan.config;
  int64_t devices = cluster.deviceCount();
  bool pipeline = plan.rules.mode == HarmonyMode::Pipeline;
  // A stage is a backward pack; they are numbered in the order of the layers.
  json::Array stages, layers;
  auto packs = static_cast<int64_t>(config.backwardPacks.size());
  for (int64_t p = 0; p < packs; ++p) {
    int64_t begin = config.backwardPacks[p];
    int64_t end =
        p + 1 < packs ? config.backwardPacks[p + 1] : profile.layerCount();
    std::vector<int64_t> on;
    if (pipeline)
      on.push_back(
          (static_cast<int64_t>(config.forwardPacks.size()) + packs - 1 - p) %
          devices);
    else
      for (int64_t device = 0; device < devices; ++device)
        on.push_back(device);
    stages.push_back(json::Object{{"devices", json::Array(on)},
                                  {"first-layer", begin},
                                  {"layer-count", end - begin}});
    for (int64_t l = begin; l < end; ++l)
      layers.push_back(json::Object{
          {"name", model.layerName(l)}, {"stage", p}, {"strategy", "single"}});
  }
  double seconds = toMilliseconds(plan.timeline.end) / 1000;
  return json::Object{
      {"version", 1},
      {"tool-version", options.toolVersion},
      {"model", model.name()},
      {"model-hash", model.hash()},
      {"profile-hash", model.profileHash()},
      {"cluster", cluster.name()},
      {"cluster-hash", cluster.hash()},
      {"space", options.space},
      {"schedule", options.space},
      {"training", options.training.toJson()},
      {"seq-len", model.sequenceLength()},
      {"batch", *options.batch},
      {"micro-batches",
       *options.batch / (pipeline ? 1 : devices) / config.backwardSize},
      {"pipeline-degree", packs},
      {"iteration-ms", toMilliseconds(plan.timeline.end)},
      {"simulated-iteration-ms", toMilliseconds(plan.timeline.end)},
      {"samples-per-second", static_cast<double>(*options.batch) / seconds},
      {"search-ms", searchMs},
      {"peak-is", "estimate"},
      {"u-f", config.forwardSize},
      {"packs-f", json::Array(config.forwardPacks)},
      {"u-b", config.backwardSize},
      {"packs-b", json::Array(config.backwardPacks)},
      {"update", plan.rules.updateOnDevice ? "device" : "host"},
      {"host-ledger", hostLedger(model, profile, plan)},
      {"stages", std::move(stages)},
      {"layers", std::move(layers)}};
}

std::string packsText(ArrayRef<int64_t> packs, int64_t end) {
  std::string text;
  for (size_t p = 0; p < packs.size(); ++p) {
    int64_t last = (p + 1 < packs.size() ? packs[p + 1] : end) - 1;
    text += (p ? " " : "") + std::to_string(packs[p]);
    if (last > packs[p])
      text += "-" + std::to_string(last);
  }
  return text.empty() ? "none" : text;
}

std::string harmonyText(LayerModel &model, const Cluster &cluster,
                        const PlannerOptions &options,
                        const HarmonyProfile &profile,
                        const HarmonyPlan &plan) {
  const HarmonyConfig &config = plan.config;
  std::string text;
  raw_string_ostream os(text);
  os << "plan for '" << model.name() << "' on '" << cluster.name()
     << "', schedule " << options.space << "\n";
  TextTable rows("lrrl");
  rows.row({"pass", "micro-batch", "packs", "layers"});
  rows.row({"forward", std::to_string(config.forwardSize),
            std::to_string(config.forwardPacks.size()),
            packsText(config.forwardPacks, config.backwardPacks.back())});
  rows.row({"backward", std::to_string(config.backwardSize),
            std::to_string(config.backwardPacks.size()),
            packsText(config.backwardPacks, profile.layerCount())});
  rows.print(os);
  double ms = toMilliseconds(plan.timeline.end);
  os << format("  executed: %.3f ms\n", ms)
     << format("  a batch of %lld, %.2f samples/s; the busiest device computes "
               "%.3f ms\n",
               static_cast<long long>(*options.batch),
               1000 * static_cast<double>(*options.batch) / ms,
               toMilliseconds(plan.timeline.busiest));
  os << "  the optimizer runs on the "
     << (plan.rules.updateOnDevice ? "devices" : "host") << "; moved a batch:";
  for (size_t i = 0; i < kHarmonyTensorCount; ++i) {
    const HarmonyVolume &volume = plan.timeline.volumes[i];
    if (int64_t bytes = volume.in + volume.out + volume.peer)
      os << " " << harmonyTensorName(static_cast<HarmonyTensor>(i)) << " "
         << printBytesRounded(bytes);
  }
  os << "\n";
  return text;
}

/// The problem on the devices of a cluster.
HarmonyProblem problemOn(const Cluster &cluster, int64_t batch,
                         std::optional<int64_t> memory) {
  HarmonyProblem problem;
  problem.minibatch = batch;
  problem.machine.devices = cluster.deviceCount();
  problem.machine.capacity = cluster.budgetOf({0}, memory);
  if (cluster.deviceCount() > 1)
    problem.machine.peerRate = cluster.linkBetween(0, 1).bandwidth;
  problem.machine.memoryRate = cluster.deviceType(0).memoryBandwidth;
  // If the host's cores are the devices, they copy themselves, through their
  // own share of its memory, and no task waits for another process.
  if (!backendTraits(cluster.backendOf({0})).streams) {
    auto devices = static_cast<double>(problem.machine.devices);
    problem.machine.taskOverhead = 0;
    double link = cluster.deviceType(0).hostBandwidth;
    double memory = problem.machine.memoryRate / 2;
    problem.machine.swapRate =
        devices * (link > 0 ? std::min(link, memory) : memory);
    problem.machine.messageRate = 2 * devices * problem.machine.peerRate;
  }
  problem.backwardPackings = {PackingMethod::BalancedTime,
                              PackingMethod::BalancedMemory,
                              PackingMethod::GreedyBackward};
  problem.forwardPackings = problem.backwardPackings;
  problem.forwardPackings.push_back(PackingMethod::Reuse);
  return problem;
}

/// The plan that programs have of packs.
Plan toPlan(LayerModel &model, const Cluster &cluster,
            const PlannerOptions &options, const HarmonyConfig &config) {
  Plan plan;
  plan.space = options.space;
  plan.training = options.training;
  plan.toolVersion = options.toolVersion;
  plan.objective = Objective::Executed;
  plan.batch = *options.batch;
  // Devices of data parallelism hold all packs, and each updates a part of what
  // all have.
  int64_t copies = 1;
  Strategy strategy;
  if (options.space == "harmony-dp" && cluster.deviceCount() > 1) {
    copies = cluster.deviceCount();
    strategy = cantFail(Strategy::get({{Paradigm::ZDP, copies}}, false));
  }
  plan.microBatches = plan.batch / (copies * config.backwardSize);
  if (config.forwardSize != config.backwardSize)
    plan.forwardMicroBatches = plan.batch / (copies * config.forwardSize);
  plan.schedule = cantFail(parseSchedule(options.space));
  plan.offload = Offload::All;
  plan.offload.justInTime = options.offload.justInTime;
  plan.offload.updateOnDevice = options.offload.updateOnDevice;
  plan.pipelineDegree = cluster.deviceCount() / copies;
  plan.forwardPacks = config.forwardPacks;
  auto shape = ScheduleShape::ofPacks(
      plan.pipelineDegree, plan.microBatches, plan.offload, config.forwardPacks,
      config.backwardPacks, plan.forwardMicroBatches);
  std::vector<std::vector<LayerRange>> ranges(plan.pipelineDegree);
  auto layers = static_cast<int64_t>(model.layerCount());
  for (int64_t run = 0; run < shape.runCount(); ++run) {
    int64_t first = shape.backwardPacks[run];
    int64_t end =
        run + 1 < shape.runCount() ? shape.backwardPacks[run + 1] : layers;
    int64_t stage = plan.schedule->home(shape, shape.chunkOfRun(run));
    ranges[stage].push_back({first, end - first});
    for (int64_t l = first; l < end; ++l)
      plan.layers.push_back({model.layerName(l), stage, strategy});
  }
  for (int64_t s = 0; s < plan.pipelineDegree; ++s) {
    PlanStage stage;
    for (int64_t device = 0; device < copies; ++device)
      stage.devices.push_back(s * copies + device);
    stage.setRanges(ranges[s]);
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

/// Whether every layer reads the one before it alone.
bool isChain(const LayerModel &model) {
  for (size_t l = 0; l < model.layerCount(); ++l)
    if (LiveTensors behind = model.liveTensors(l);
        behind.made.size() + behind.passing.size() > 1)
      return false;
  return true;
}

HarmonyMode modeOf(const PlannerOptions &options) {
  return options.space == "harmony-dp" ? HarmonyMode::DataParallel
                                       : HarmonyMode::Pipeline;
}

/// Samples of a batch that go through one device.
Expected<int64_t> samplesOfDevice(const Cluster &cluster,
                                  const PlannerOptions &options) {
  if (modeOf(options) == HarmonyMode::Pipeline)
    return *options.batch;
  int64_t devices = cluster.deviceCount();
  if (*options.batch % devices != 0)
    return makeError("space '" + options.space +
                     "': expected a batch that the " + Twine(devices) +
                     " devices divide, found " + Twine(*options.batch));
  return *options.batch / devices;
}

/// A plan of packs with its times and memory, and what was decided; why it does
/// not fit.
Expected<PlannerResult> pricePacks(LayerModel &model, const Cluster &cluster,
                                   const PlannerOptions &options, Plan made) {
  Expected<PlannerResult> priced =
      evaluate(model, cluster, std::move(made), options.memory);
  if (!priced || !priced->feasible())
    return priced;
  Plan plan = priced->plan();
  if (std::optional<Infeasible> full =
          planner::fullHost(cluster, plan, options.hostMemory))
    return PlannerResult{std::move(*full), {}, {}, 0};
  plan.foundBy = "heuristic";
  ScheduleShape shape = plan.shape();
  // All layers have one strategy.
  int64_t shards = plan.layers.front().strategy.sampleShards();
  std::string sizes = std::to_string(plan.microBatchSamples() / shards);
  if (shape.regroups())
    sizes = std::to_string(plan.forwardSamples() / shards) +
            " samples forward and " + sizes + " backward";
  else
    sizes += " samples";
  std::vector<std::string> decisions = {
      "micro-batches of " + sizes + " a device",
      "forward packs: " +
          packsText(shape.forwardPacks, shape.backwardPacks.back()),
      "backward packs: " + packsText(shape.backwardPacks,
                                     static_cast<int64_t>(model.layerCount()))};
  return PlannerResult{
      std::move(plan), std::move(decisions), {}, 0, priced->formulaMs};
}

} // namespace

Expected<PlannerResult> planHarmony(LayerModel &model, const Cluster &cluster,
                                    const PlannerOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  if (!cluster.isUniform() || cluster.nodeCount() > 1)
    return refuse(options, "expected one node of devices of one type");
  if (options.pipelineDegree || options.microBatches)
    return refuse(options, "expected neither --pipeline-degree nor "
                           "--micro-batches, packs and sizes are searched");
  if (options.offload.states == Offload::States::Optimizer ||
      options.offload.activations)
    return refuse(options, "has all states and stashes on the host, expected "
                           "'--offload=all', 'all,just-in-time' or "
                           "'all,just-in-time,update-on-device', found '" +
                               offloadName(options.offload) + "'");
  HarmonyProblem problem = problemOn(cluster, *options.batch, options.memory);
  problem.rules.mode = modeOf(options);
  problem.sizes = HarmonyProblem::Sizes::Multiples;
  // Several tensors go home where a forward pack begins, as they are.
  if (!isChain(model)) {
    problem.sizes = HarmonyProblem::Sizes::Equal;
    problem.forwardPackings = {PackingMethod::Reuse};
    problem.fallback = false;
  }
  problem.leastPacks =
      problem.rules.mode == HarmonyMode::Pipeline ? problem.machine.devices : 1;
  problem.rules.justInTime = options.offload.justInTime;
  problem.rules.updateOnDevice = options.offload.updateOnDevice;
  Expected<int64_t> share = samplesOfDevice(cluster, options);
  if (!share)
    return share.takeError();
  Expected<HarmonyProfile> profile =
      profileOf(model, cluster, divisors(*share));
  if (!profile)
    return profile.takeError();
  // The paper's rule of memory has one pack and one input. Programs have data
  // of all micro-batches and places in which messages wait besides: packs are
  // made smaller until all that fits.
  const int64_t available = problem.machine.capacity;
  const double leastMs = leastMsOfPacks(cluster, *profile, problem, *share);
  std::optional<Infeasible> closest;
  for (; problem.machine.capacity > 0;
       problem.machine.capacity -= (problem.machine.capacity + 15) / 16) {
    Expected<HarmonyResult> found = searchHarmony(*profile, problem);
    if (!found)
      return found.takeError();
    if (!found->plan && found->neededBytes <= problem.machine.capacity)
      continue;
    if (!found->plan) {
      if (!closest) {
        closest.emplace();
        closest->reason = "no plan of space '" + options.space +
                          "' fits: " + found->reason + ", at least " +
                          std::to_string(found->neededBytes) + " bytes";
        closest->neededBytes = found->neededBytes;
        closest->availableBytes = available;
      }
      break;
    }
    // The fastest by Harmony's simulator may need more than there is or take
    // longer than it says; what it finds of one size is the other candidate.
    std::vector<HarmonyConfig> candidates = {found->plan->config};
    if (candidates.front().forwardSize != candidates.front().backwardSize) {
      HarmonyProblem equal = problem;
      equal.sizes = HarmonyProblem::Sizes::Equal;
      Expected<HarmonyResult> other = searchHarmony(*profile, equal);
      if (!other)
        return other.takeError();
      if (other->plan)
        candidates.push_back(other->plan->config);
    }
    std::optional<PlannerResult> best;
    for (const HarmonyConfig &config : candidates) {
      Expected<PlannerResult> priced = pricePacks(
          model, cluster, options, toPlan(model, cluster, options, config));
      if (!priced)
        return priced.takeError();
      if (!priced->feasible())
        closest = priced->infeasible();
      else if (!best || priced->plan().iterationMs < best->plan().iterationMs)
        best = std::move(*priced);
    }
    if (!best)
      continue;
    planner::setLeastMs(std::get<Plan>(best->outcome), leastMs);
    std::get<Plan>(best->outcome).searchMs =
        std::chrono::duration<double, std::milli>(
            std::chrono::steady_clock::now() - begin)
            .count();
    return std::move(*best);
  }
  if (!closest) {
    closest.emplace();
    closest->reason =
        available > 0
            ? "no packing that was tried has a backward pack for "
              "each of the " +
                  std::to_string(problem.leastPacks) + " devices"
            : "no plan of space '" + options.space + "' fits: " +
                  planner::availableText(cluster, int64_t(0), options.memory);
    closest->availableBytes = available;
  }
  PlannerResult none{std::move(*closest), {}, {}, 0};
  none.leastMs = leastMs;
  return none;
}

Expected<BaselineReport> reportHarmony(LayerModel &model,
                                       const Cluster &cluster,
                                       const PlannerOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  HarmonyProblem problem = problemOn(cluster, *options.batch, options.memory);
  problem.rules.mode = modeOf(options);
  problem.chooseUpdate = true;
  Expected<int64_t> share = samplesOfDevice(cluster, options);
  if (!share)
    return share.takeError();
  Expected<HarmonyProfile> profile =
      profileOf(model, cluster, divisors(*share));
  if (!profile)
    return profile.takeError();
  Expected<HarmonyResult> result = searchHarmony(*profile, problem);
  if (!result)
    return result.takeError();
  BaselineReport answer;
  if (!result->plan) {
    Infeasible infeasible;
    infeasible.reason = "no plan of space '" + options.space +
                        "' fits: " + result->reason + ", at least " +
                        std::to_string(result->neededBytes) + " bytes";
    infeasible.neededBytes = result->neededBytes;
    infeasible.availableBytes = problem.machine.capacity;
    answer.infeasible = std::move(infeasible);
    return answer;
  }
  double elapsed = std::chrono::duration<double, std::milli>(
                       std::chrono::steady_clock::now() - begin)
                       .count();
  answer.json =
      harmonyJson(model, cluster, options, *profile, *result->plan, elapsed);
  answer.text = harmonyText(model, cluster, options, *profile, *result->plan);
  return answer;
}

} // namespace galvatron::baselines
