//===- PerDeviceSwap.cpp - Devices that swap by themselves ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The baselines that Harmony is compared with: data parallelism or a pipeline
// of stages under 1F1B, made for devices that hold everything, on devices with
// virtual memory. Each of them looks at one task at a time, a pack's pass of
// one micro-batch or its update: what the task uses comes before it, and goes
// back behind it to make room for what the next one uses, changed or not. What
// a pack hands to its neighbour on the same device stays, between stages it
// goes from device to device; what backward recomputes from waits in the host.
//
//===----------------------------------------------------------------------===//

#include "Step.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace llvm;

namespace galvatron::harmony {

std::vector<int64_t> stageBounds(size_t packs, int64_t devices) {
  std::vector<int64_t> bounds;
  auto count = static_cast<int64_t>(packs);
  int64_t stages = std::min(devices, count);
  for (int64_t stage = 0; stage <= stages; ++stage)
    bounds.push_back(stage * count / stages);
  return bounds;
}

namespace {

class SwappedStepBuilder {
public:
  SwappedStepBuilder(const StepInput &input, CostSource &costs)
      : input(input), costs(costs), packs(input.config.backwardPacks),
        sizes(microBatchSizes(input.samples, input.config.backwardSize)),
        isPipeline(input.rules.mode == HarmonyMode::Pipeline),
        bounds(
            stageBounds(packs.size(), isPipeline ? input.machine.devices : 1)),
        used(isPipeline ? stages() : input.machine.devices),
        graph(input.machine.devices), works(bounds.size() - 1),
        room(bounds.size() - 1, -1) {
    packs.push_back(input.profile.layerCount());
    for (int64_t stage = 0; stage < stages(); ++stage)
      list(stage);
  }

  EventGraph build() {
    std::vector<size_t> next(works.size(), 0);
    for (bool ran = true; std::exchange(ran, false);)
      for (size_t stage = 0; stage < works.size(); ++stage)
        while (next[stage] < works[stage].size() &&
               isReady(works[stage][next[stage]])) {
          run(static_cast<int64_t>(stage), works[stage][next[stage]++]);
          ran = true;
        }
    return std::move(graph);
  }

private:
  enum class Kind : uint8_t { Forward, Backward, Update };
  struct Work {
    Kind kind;
    int64_t pack, microBatch;
  };

  int64_t stages() const { return static_cast<int64_t>(bounds.size()) - 1; }

  /// Lists the work of a stage: 1F1B, where the stage is the whole model a
  /// micro-batch forward and backward behind the other. Updates end the step.
  void list(int64_t stage) {
    std::vector<Work> &list = works[stage];
    int64_t first = bounds[stage], end = bounds[stage + 1];
    auto all = static_cast<int64_t>(sizes.size());
    auto forward = [&](int64_t mb) {
      for (int64_t pack = first; pack < end; ++pack)
        list.push_back({Kind::Forward, pack, mb});
    };
    auto backward = [&](int64_t mb) {
      for (int64_t pack = end; pack-- > first;)
        list.push_back({Kind::Backward, pack, mb});
    };
    int64_t ahead = std::min(stages() - 1 - stage, all);
    for (int64_t mb = 0; mb < ahead; ++mb)
      forward(mb);
    for (int64_t mb = 0; mb < all; ++mb) {
      if (ahead + mb < all)
        forward(ahead + mb);
      backward(mb);
    }
    for (int64_t pack = end; pack-- > first;)
      list.push_back({Kind::Update, pack, 0});
  }

  /// The pack before or behind whose message a pass uses; -1: there is none.
  int64_t sourceOf(const Work &work) const {
    if (work.kind == Kind::Forward)
      return work.pack - 1;
    bool isLast = work.pack + 2 == static_cast<int64_t>(packs.size());
    return work.kind == Kind::Update || isLast ? -1 : work.pack + 1;
  }
  bool isReady(const Work &work) const {
    int64_t source = sourceOf(work);
    return source < 0 || made.count({work.kind, source, work.microBatch});
  }
  int64_t stageOf(int64_t pack) const {
    return llvm::upper_bound(bounds, pack) - bounds.begin() - 1;
  }

  //===--- Events ---------------------------------------------------------===//

  EventId event(StringLiteral what, HarmonyStream stream,
                Picoseconds duration) {
    HarmonyEvent event;
    event.what = what;
    event.task = task;
    event.microBatch = static_cast<int32_t>(now.microBatch);
    event.device = static_cast<int32_t>(device);
    event.stream = stream;
    event.duration = duration;
    EventId id = graph.add(event);
    graph.enqueue(id, device, stream);
    return id;
  }
  EventId copy(StringLiteral what, HarmonyStream stream, HarmonyTensor tensor,
               int64_t bytes) {
    double rate = input.machine.swapRate / static_cast<double>(used);
    EventId id =
        event(what, stream, toPicoseconds(static_cast<double>(bytes) / rate));
    graph[id].tensor = tensor;
    graph[id].bytes = bytes;
    return id;
  }
  /// Comes when what the task before used has left.
  void bring(StringLiteral what, HarmonyTensor tensor, int64_t bytes,
             EventId behind = -1) {
    EventId id = copy(what, HarmonyStream::SwapIn, tensor, bytes);
    graph.after(id, room[device]);
    graph.after(id, behind);
    came = id;
  }
  /// Leaves behind the computation; the last of them makes room.
  EventId evict(StringLiteral what, HarmonyTensor tensor, int64_t bytes) {
    EventId id = copy(what, HarmonyStream::SwapOut, tensor, bytes);
    graph.after(id, computed);
    return left = id;
  }
  void compute(StringLiteral what, Picoseconds duration, bool ofModel) {
    EventId id = event(what, HarmonyStream::Compute, duration);
    graph.after(id, came);
    graph[id].isComputation = ofModel;
    computed = id;
  }

  int64_t bytesOf(ArrayRef<int64_t> sums) const {
    return sums[packs[now.pack + 1]] - sums[packs[now.pack]];
  }
  /// The bytes of the micro-batch's input of a pack.
  int64_t boundaryBytes(int64_t pack) {
    return costs.input(sizes[now.microBatch])[packs[pack]];
  }
  Picoseconds timeOf(Direction direction) {
    return costs.at(direction, sizes[now.microBatch])
        .time(packs[now.pack], packs[now.pack + 1]);
  }

  //===--- Tasks ----------------------------------------------------------===//

  void run(int64_t stage, const Work &work) {
    device = stage;
    now = work;
    came = computed = left = -1;
    int64_t weights = bytesOf(input.profile.weightSums());
    bring("weights", HarmonyTensor::Weights, weights);
    switch (work.kind) {
    case Kind::Forward:
      forward();
      break;
    case Kind::Backward:
      backward(weights);
      break;
    case Kind::Update:
      update(weights);
      break;
    }
    evict("weights", HarmonyTensor::Weights, weights);
    room[device] = left;
    ++task;
  }

  void forward() {
    if (now.pack == 0)
      bring("boundary", HarmonyTensor::Boundary, boundaryBytes(0));
    EventId message = received();
    compute("forward", timeOf(Direction::Forward), /*ofModel=*/true);
    graph.after(computed, message);
    stashes[{now.pack, now.microBatch}] =
        evict("stash", HarmonyTensor::Stash, boundaryBytes(now.pack));
    send(now.pack + 1, now.pack + 1);
  }

  void backward(int64_t weights) {
    bring("gradients", HarmonyTensor::Gradients, weights);
    bring("stash", HarmonyTensor::Stash, boundaryBytes(now.pack),
          stashes.at({now.pack, now.microBatch}));
    Picoseconds again = timeOf(Direction::Forward);
    compute("recompute", again, /*ofModel=*/true);
    EventId message = received();
    compute("backward",
            std::max<Picoseconds>(timeOf(Direction::Backward) - again, 0),
            /*ofModel=*/true);
    graph.after(computed, message);
    evict("gradients", HarmonyTensor::Gradients, weights);
    send(now.pack - 1, now.pack);
  }

  void update(int64_t weights) {
    int64_t state = bytesOf(input.profile.optimizerSums());
    bring("gradients", HarmonyTensor::Gradients, weights);
    bring("optimizer", HarmonyTensor::Optimizer, state);
    if (!isPipeline && used > 1) {
      auto ranks = static_cast<double>(used);
      compute(
          "all-reduce",
          toPicoseconds(2 * (ranks - 1) / ranks * static_cast<double>(weights) /
                        input.machine.peerRate),
          /*ofModel=*/false);
    }
    double moved =
        3 * static_cast<double>(weights) + 2 * static_cast<double>(state);
    compute("update", toPicoseconds(moved / input.machine.memoryRate),
            /*ofModel=*/false);
    evict("gradients", HarmonyTensor::Gradients, weights);
    evict("optimizer", HarmonyTensor::Optimizer, state);
  }

  /// The event by which a pass gets its neighbour's output: the pass itself, or
  /// the transfer from its stage; -1 at the model's ends.
  EventId received() {
    int64_t source = sourceOf(now);
    if (source < 0)
      return -1;
    EventId id = made.at({now.kind, source, now.microBatch});
    if (graph[id].peer < 0)
      return id;
    graph.enqueue(id, device, HarmonyStream::PeerIn);
    graph.after(id, room[device]);
    return id;
  }

  /// Hands what a pass has made to the pass of pack `to`, which has the
  /// boundary in front of pack `cut`.
  void send(int64_t to, int64_t cut) {
    EventId result = computed;
    bool isThere = to >= 0 && to + 1 < static_cast<int64_t>(packs.size());
    int64_t receiver = isThere ? stageOf(to) : device;
    if (receiver != device) {
      int64_t bytes = boundaryBytes(cut);
      result = event(
          "boundary", HarmonyStream::PeerOut,
          toPicoseconds(static_cast<double>(bytes) / input.machine.peerRate));
      graph[result].bytes = bytes;
      graph[result].peer = static_cast<int32_t>(receiver);
      graph.after(result, computed);
    }
    made[{now.kind, now.pack, now.microBatch}] = result;
  }

  const StepInput &input;
  CostSource &costs;
  std::vector<int64_t> packs; ///< first layers, and the end
  std::vector<int64_t> sizes; ///< of micro-batches
  bool isPipeline;
  std::vector<int64_t> bounds; ///< of stages: first packs, and the end
  int64_t used;
  EventGraph graph;
  std::vector<std::vector<Work>> works; ///< by stage
  /// Event of each stage at which all of its last task has left the device.
  std::vector<EventId> room;
  /// The events at which passes have made their output, by kind, pack and
  /// micro-batch.
  std::map<std::tuple<Kind, int64_t, int64_t>, EventId> made;
  std::map<std::pair<int64_t, int64_t>, EventId> stashes;
  // State of the task that is being made.
  int64_t device = 0;
  Work now = {};
  EventId came = -1, computed = -1, left = -1;
  int32_t task = 0;
};

} // namespace

EventGraph buildSwappedStep(const StepInput &input, CostSource &costs) {
  return SwappedStepBuilder(input, costs).build();
}

} // namespace galvatron::harmony
