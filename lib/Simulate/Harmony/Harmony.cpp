//===- Harmony.cpp - A step whose states live on the host -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Step.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

using namespace llvm;

namespace galvatron {

StringRef harmonyTensorName(HarmonyTensor tensor) {
  switch (tensor) {
  case HarmonyTensor::Weights:
    return "parameters";
  case HarmonyTensor::Gradients:
    return "gradients";
  case HarmonyTensor::Optimizer:
    return "optimizer";
  case HarmonyTensor::Boundary:
    return "boundary";
  case HarmonyTensor::Stash:
    return "stash";
  }
  llvm_unreachable("all tensors are handled");
}

StringRef harmonyStreamName(HarmonyStream stream) {
  switch (stream) {
  case HarmonyStream::Compute:
    return "compute";
  case HarmonyStream::SwapIn:
    return "swap-in";
  case HarmonyStream::SwapOut:
    return "swap-out";
  case HarmonyStream::PeerIn:
    return "peer-in";
  case HarmonyStream::PeerOut:
    return "peer-out";
  case HarmonyStream::Host:
    return "host";
  }
  llvm_unreachable("all streams are handled");
}

namespace harmony {

EventId EventGraph::add(HarmonyEvent event) {
  events.push_back(event);
  return static_cast<EventId>(events.size()) - 1;
}

void EventGraph::enqueue(EventId event, int64_t device, HarmonyStream stream) {
  EventId &tail =
      tails[device * kHarmonyStreamCount + static_cast<size_t>(stream)];
  after(event, std::exchange(tail, event));
}

std::optional<Picoseconds> EventGraph::run() {
  size_t count = events.size();
  std::vector<int32_t> missing(count, 0), firstEdge(count + 1, 0);
  for (const auto &[former, later] : edges) {
    ++missing[later];
    ++firstEdge[former + 1];
  }
  for (size_t i = 0; i < count; ++i)
    firstEdge[i + 1] += firstEdge[i];
  std::vector<EventId> laterOf(edges.size());
  std::vector<int32_t> next(firstEdge.begin(), firstEdge.end() - 1);
  for (const auto &[former, later] : edges)
    laterOf[next[former]++] = later;

  std::vector<EventId> ready;
  for (size_t i = 0; i < count; ++i) {
    events[i].start = 0;
    if (missing[i] == 0)
      ready.push_back(static_cast<EventId>(i));
  }
  Picoseconds end = 0;
  size_t done = 0;
  while (!ready.empty()) {
    EventId id = ready.back();
    ready.pop_back();
    ++done;
    Picoseconds finish = events[id].start + events[id].duration;
    end = std::max(end, finish);
    for (int32_t e = firstEdge[id]; e < firstEdge[id + 1]; ++e) {
      HarmonyEvent &later = events[laterOf[e]];
      later.start = std::max(later.start, finish);
      if (--missing[laterOf[e]] == 0)
        ready.push_back(laterOf[e]);
    }
  }
  if (done < count)
    return std::nullopt;
  return end;
}

} // namespace harmony

using namespace harmony;

struct HarmonySimulator::Cache : CostSource {
  explicit Cache(const HarmonyProfile &profile) : profile(profile) {}

  const SizeCosts &at(Direction direction, int64_t size) override {
    auto [it, isNew] = sizes.try_emplace({direction, size});
    if (isNew) {
      it->second.costs = profile.costs(direction, size);
      it->second.timeSums = {0};
      for (Picoseconds time : it->second.costs.time)
        it->second.timeSums.push_back(it->second.timeSums.back() + time);
    }
    return it->second;
  }
  const std::vector<int64_t> &input(int64_t size) override {
    auto [it, isNew] = inputs.try_emplace(size);
    if (isNew)
      it->second = profile.inputBytes(size);
    return it->second;
  }

  const HarmonyProfile &profile;
  std::map<std::pair<Direction, int64_t>, SizeCosts> sizes;
  std::map<int64_t, std::vector<int64_t>> inputs;
};

HarmonySimulator::HarmonySimulator(const HarmonyProfile &profile,
                                   const HarmonyMachine &machine,
                                   int64_t minibatch, const HarmonyRules &rules)
    : profile(profile), machine(machine), minibatch(minibatch), rules(rules),
      cache(std::make_unique<Cache>(profile)) {}

HarmonySimulator::~HarmonySimulator() = default;

const HarmonyCosts &HarmonySimulator::costs(Direction direction, int64_t size) {
  return cache->at(direction, size).costs;
}

const std::vector<int64_t> &HarmonySimulator::inputBytes(int64_t size) {
  return cache->input(size);
}

int64_t HarmonySimulator::samples() const {
  if (rules.mode == HarmonyMode::Pipeline)
    return minibatch;
  return (minibatch + machine.devices - 1) / machine.devices;
}

Error HarmonySimulator::check(const HarmonyConfig &config) const {
  int64_t layers = profile.layerCount();
  auto ascending = [](ArrayRef<int64_t> packs, int64_t end) {
    if (packs.empty() || packs.front() != 0 || packs.back() >= end)
      return false;
    for (size_t p = 1; p < packs.size(); ++p)
      if (packs[p] <= packs[p - 1])
        return false;
    return true;
  };
  if (!ascending(config.backwardPacks, layers))
    return makeError("backward packs: expected first layers ascending from 0 "
                     "to below " +
                     Twine(layers));
  int64_t forwardEnd =
      rules.joinLastPack ? config.backwardPacks.back() : layers;
  if (forwardEnd == 0 ? !config.forwardPacks.empty()
                      : !ascending(config.forwardPacks, forwardEnd))
    return makeError("forward packs: expected first layers ascending from 0 "
                     "to below " +
                     Twine(forwardEnd));
  if (rules.perDeviceSwap &&
      (rules.joinLastPack || rules.prefetch || rules.grouping ||
       config.forwardPacks != config.backwardPacks))
    return makeError("a device that swaps by itself runs each pack forward and "
                     "backward, micro-batch by micro-batch: expected packs of "
                     "forward and of backward alike, none joined, no grouping "
                     "and no prefetch");
  if (!rules.grouping && rules.prefetch)
    return makeError("copies run ahead along the micro-batches of a pack, "
                     "which are one without grouping: expected no prefetch");
  if (!rules.grouping && config.forwardSize != config.backwardSize)
    return makeError("without grouping forward and backward have one "
                     "micro-batch size, found " +
                     Twine(config.forwardSize) + " and " +
                     Twine(config.backwardSize));
  int64_t share = rules.mode == HarmonyMode::Pipeline
                      ? minibatch
                      : minibatch / machine.devices;
  if (share < 1)
    return makeError("expected at least one sample for each of the " +
                     Twine(machine.devices) + " devices, found " +
                     Twine(minibatch));
  std::pair<Direction, int64_t> sizes[] = {
      {Direction::Forward, config.forwardSize},
      {Direction::Forward, config.backwardSize},
      {Direction::Backward, config.backwardSize}};
  for (const auto &[direction, size] : sizes) {
    ArrayRef<int64_t> measured = profile.sizes(direction);
    for (int64_t part : {size, samples() % std::max<int64_t>(size, 1),
                         share % std::max<int64_t>(size, 1)})
      if (size < 1 || size > share ||
          (part && (part < measured.front() || part > measured.back())))
        return makeError("micro-batch size " + Twine(size) + ": expected " +
                         Twine(measured.front()) + " to " +
                         Twine(std::min(share, measured.back())) +
                         (part && part != size
                              ? ", also for the rest of " + Twine(part)
                              : Twine("")));
  }
  return Error::success();
}

Picoseconds HarmonySimulator::lowerBound(const HarmonyConfig &config) {
  std::vector<Picoseconds> busy(machine.devices, 0);
  for (const StepTask &task :
       stepTasks(config, rules, machine.devices, profile.layerCount())) {
    Direction direction =
        task.backward ? Direction::Backward : Direction::Forward;
    int64_t size = task.backward ? config.backwardSize : config.forwardSize;
    Picoseconds &sum = busy[task.device];
    sum += (rules.perDeviceSwap ? 0 : machine.taskOverhead) +
           samples() / size *
               cache->at(direction, size).time(task.begin, task.end);
    if (samples() % size)
      sum += cache->at(direction, samples() % size).time(task.begin, task.end);
  }
  return *llvm::max_element(busy);
}

std::optional<HarmonyTimeline>
HarmonySimulator::run(const HarmonyConfig &config,
                      std::vector<HarmonyEvent> *trace) {
  HarmonyTimeline timeline;
  // Devices of DataParallel differ by one sample at most: those with the most
  // say how long the step is, all of them move bytes.
  int64_t larger = 1, smaller = 0;
  if (rules.mode == HarmonyMode::DataParallel) {
    larger = minibatch % machine.devices ? minibatch % machine.devices
                                         : machine.devices;
    smaller = machine.devices - larger;
  }
  std::vector<Picoseconds> busy(machine.devices, 0);
  for (bool most : {true, false}) {
    if (!most && smaller == 0)
      break;
    StepInput input{profile, machine, rules, config,
                    samples() - (most ? 0 : 1)};
    EventGraph graph = rules.perDeviceSwap ? buildSwappedStep(input, *cache)
                                           : buildStep(input, *cache);
    if (most) {
      std::optional<Picoseconds> end = graph.run();
      if (!end)
        return std::nullopt;
      timeline.end = *end;
      timeline.events = static_cast<int64_t>(graph.all().size());
    }
    for (const HarmonyEvent &event : graph.all()) {
      HarmonyVolume &volume =
          timeline.volumes[static_cast<size_t>(event.tensor)];
      int64_t bytes = event.bytes * (most ? larger : smaller);
      if (event.peer >= 0)
        volume.peer += bytes;
      else if (event.stream == HarmonyStream::SwapIn)
        volume.in += bytes;
      else if (event.stream == HarmonyStream::SwapOut)
        volume.out += bytes;
      else if (most && event.stream == HarmonyStream::Compute &&
               event.isComputation)
        busy[event.device] += event.duration;
    }
    if (most && trace)
      *trace = std::move(graph.all());
  }
  timeline.busiest = *llvm::max_element(busy);
  return timeline;
}

} // namespace galvatron
