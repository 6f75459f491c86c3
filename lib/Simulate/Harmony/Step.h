//===- Step.h - The events of one Harmony step ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SIMULATE_HARMONY_STEP_H
#define GALVATRON_LIB_SIMULATE_HARMONY_STEP_H

#include "galvatron/Simulate/Harmony.h"

#include <utility>

namespace galvatron::harmony {

using EventId = int32_t;

/// Events with fixed durations. An event starts when all that it comes after
/// have ended, which includes the one before it on each of its streams; so a
/// step is a longest path.
class EventGraph {
public:
  explicit EventGraph(int64_t devices)
      : tails(devices * kHarmonyStreamCount, -1) {}

  /// Adds an event that is not yet on a stream.
  EventId add(HarmonyEvent event);
  /// Appends it to a stream of a device.
  void enqueue(EventId event, int64_t device, HarmonyStream stream);
  /// `event` comes after `former`; nothing if that is -1.
  void after(EventId event, EventId former) {
    if (former >= 0)
      edges.push_back({former, event});
  }
  HarmonyEvent &operator[](EventId event) { return events[event]; }

  /// Gives every event its start and returns the last end; nothing if some
  /// events wait for each other.
  std::optional<Picoseconds> run();
  std::vector<HarmonyEvent> &all() { return events; }

private:
  std::vector<HarmonyEvent> events;
  std::vector<std::pair<EventId, EventId>> edges; ///< former, later
  std::vector<EventId> tails;                     ///< by device and stream
};

/// Prefix sums of what a pack takes at one micro-batch size.
struct SizeCosts {
  HarmonyCosts costs;
  std::vector<Picoseconds> timeSums; ///< of the first layers
  Picoseconds time(int64_t begin, int64_t end) const {
    return timeSums[end] - timeSums[begin];
  }
};

/// The costs that the simulator knows at the sizes of one configuration.
class CostSource {
public:
  virtual ~CostSource() = default;
  virtual const SizeCosts &at(Direction direction, int64_t size) = 0;
  virtual const std::vector<int64_t> &input(int64_t size) = 0;
};

/// A pass of one pack.
struct StepTask {
  bool backward = false;
  bool joined = false;        ///< backward that also runs its forward
  bool last = false;          ///< backward of the last pack: the loss is here
  int64_t begin = 0, end = 0; ///< layers
  int64_t device = 0;
};

/// The passes of one device (DataParallel) or of all (Pipeline), in the order
/// of the step. An update follows each backward pass.
std::vector<StepTask> stepTasks(const HarmonyConfig &config,
                                const HarmonyRules &rules, int64_t devices,
                                int64_t layers);
/// The number of devices that have a task.
int64_t devicesInUse(const HarmonyConfig &config, const HarmonyRules &rules,
                     int64_t devices);
/// Sizes of the micro-batches of `samples`: all `size` but perhaps the last.
std::vector<int64_t> microBatchSizes(int64_t samples, int64_t size);

/// The input from which a step is made.
struct StepInput {
  const HarmonyProfile &profile;
  const HarmonyMachine &machine;
  const HarmonyRules &rules;
  const HarmonyConfig &config;
  int64_t samples; ///< of a device
};

/// Makes the events of a step.
EventGraph buildStep(const StepInput &input, CostSource &costs);

/// The step of devices that swap by themselves (PerDeviceSwap.cpp).
EventGraph buildSwappedStep(const StepInput &input, CostSource &costs);
/// First packs of the stages that so many devices are for packs there, and the
/// number of packs.
std::vector<int64_t> stageBounds(size_t packs, int64_t devices);

} // namespace galvatron::harmony

#endif // GALVATRON_LIB_SIMULATE_HARMONY_STEP_H
