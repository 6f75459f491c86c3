//===- Harmony.h - A step whose states live on the host ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One training step of a model that does not fit on the devices of its server,
// as Harmony runs it (arXiv 2202.01306): packs of layers go through the devices
// one after another, each for all micro-batches of the step, and bring their
// weights with them. The step is a graph of tasks; the simulator says when each
// event of it runs and how many bytes of what are moved. Rules and differences
// are in docs/harmony.md.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SIMULATE_HARMONY_H
#define GALVATRON_SIMULATE_HARMONY_H

#include "galvatron/Cost/HarmonyProfile.h"

#include "llvm/ADT/StringRef.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

enum class HarmonyMode : uint8_t {
  /// Every device runs all packs on its share of the samples.
  DataParallel,
  /// Packs are bound to the devices in turn, forward and on through backward.
  Pipeline
};

/// The four-tuple of Sec. 4.2: micro-batch sizes and packs of forward and
/// backward. Packs are lists of first layers. The last backward pack also runs
/// its forward, so the forward packs end where it begins; with one backward
/// pack there is none.
struct HarmonyConfig {
  int64_t forwardSize = 1, backwardSize = 1;
  std::vector<int64_t> forwardPacks, backwardPacks;
  bool operator==(const HarmonyConfig &other) const = default;
};

/// The rules of the schedule; the defaults are those of the paper's search.
struct HarmonyRules {
  HarmonyMode mode = HarmonyMode::Pipeline;
  /// Copies run ahead of the computation that needs them (double buffering).
  bool prefetch = false;
  /// Forward and backward of the last pack are one task that stashes nothing.
  bool joinLastPack = true;
  /// The optimizer runs on the device, right after a pack's backward: its state
  /// comes and goes, the weights go back, gradients stay.
  bool updateOnDevice = false;
  // The paper's means, which ablations turn off one by one.
  /// A pack runs all micro-batches before the next one comes. Without, packs
  /// come for every micro-batch anew, and sums of gradients with them; the
  /// micro-batches follow each other through the packs. Sizes of forward and
  /// backward must be equal then.
  bool grouping = true;
  /// Packs are updated behind their backward; without, when the gradients of
  /// all are in the host.
  bool justInTime = true;
  /// Boundaries go from device to device; without, through the host.
  bool peerToPeer = true;
  /// Simulates what Harmony is compared with: every device swaps by itself what
  /// a task of it uses, in before the task and out behind it, and packs are
  /// those of data parallelism, or of stages under 1F1B. No task has an
  /// overhead.
  bool perDeviceSwap = false;

  /// The rules of that, which has none of the means above.
  static HarmonyRules swappingByDevice(HarmonyMode mode) {
    HarmonyRules rules;
    rules.mode = mode;
    rules.joinLastPack = rules.grouping = rules.justInTime = false;
    rules.updateOnDevice = rules.perDeviceSwap = true;
    return rules;
  }
};

/// Bytes by what they are, of all devices together.
enum class HarmonyTensor : uint8_t {
  Weights,   ///< with buffers
  Gradients, ///< with buffers
  Optimizer,
  Boundary, ///< X, Y, dX, dY between packs, and the samples
  Stash     ///< inputs kept for recomputation
};
inline constexpr size_t kHarmonyTensorCount = 5;
/// "parameters", "gradients", "optimizer", "boundary", "stash".
llvm::StringRef harmonyTensorName(HarmonyTensor tensor);

struct HarmonyVolume {
  int64_t in = 0;   ///< host to device
  int64_t out = 0;  ///< device to host
  int64_t peer = 0; ///< device to device, counted once
  bool operator==(const HarmonyVolume &other) const = default;
};
using HarmonyVolumes = std::array<HarmonyVolume, kHarmonyTensorCount>;

enum class HarmonyStream : uint8_t {
  Compute,
  SwapIn,
  SwapOut,
  PeerIn,
  PeerOut,
  Host ///< of the device's process: messages and updates
};
inline constexpr size_t kHarmonyStreamCount = 6;
llvm::StringRef harmonyStreamName(HarmonyStream stream);

/// One event of a simulated step. A transfer between two devices is one event
/// on the sender's PeerOut and the receiver's PeerIn stream.
struct HarmonyEvent {
  /// "forward", "recompute", "backward", "end", "weights", "stash", ...
  llvm::StringLiteral what = "";
  int32_t task = 0; ///< in the order of the step
  int32_t microBatch = 0;
  int32_t device = 0;
  int32_t peer = -1; ///< the receiver of a peer transfer
  HarmonyStream stream = HarmonyStream::Compute;
  HarmonyTensor tensor = HarmonyTensor::Boundary; ///< if it moves something
  int64_t bytes = 0;
  bool isComputation = false; ///< of the model: forward or backward
  Picoseconds duration = 0;
  Picoseconds start = 0;
};

struct HarmonyTimeline {
  Picoseconds end = 0;
  /// Computation of the device that computes most, without overheads.
  Picoseconds busiest = 0;
  HarmonyVolumes volumes;
  int64_t events = 0;
};

/// Simulates steps of one profile on one machine; keeps what is asked often.
class HarmonySimulator {
public:
  HarmonySimulator(const HarmonyProfile &profile, const HarmonyMachine &machine,
                   int64_t minibatch, const HarmonyRules &rules);
  ~HarmonySimulator();

  /// Costs at a micro-batch size; kept.
  const HarmonyCosts &costs(Direction direction, int64_t size);
  const std::vector<int64_t> &inputBytes(int64_t size);
  /// Samples of a minibatch that pass through one device, the most of any.
  int64_t samples() const;

  /// Checks that packs and sizes are what HarmonyConfig says.
  llvm::Error check(const HarmonyConfig &config) const;
  /// No step of `config` is shorter than this.
  Picoseconds lowerBound(const HarmonyConfig &config);
  /// Runs a step of `config`, which must have passed check(). Nothing if
  /// transfers wait for each other in a circle. In DataParallel all devices do
  /// the same, so the first is simulated. `trace` gets all events in the order
  /// in which they were created.
  std::optional<HarmonyTimeline>
  run(const HarmonyConfig &config, std::vector<HarmonyEvent> *trace = nullptr);

private:
  struct Cache;
  const HarmonyProfile &profile;
  HarmonyMachine machine;
  int64_t minibatch;
  HarmonyRules rules;
  std::unique_ptr<Cache> cache;
};

} // namespace galvatron

#endif // GALVATRON_SIMULATE_HARMONY_H
