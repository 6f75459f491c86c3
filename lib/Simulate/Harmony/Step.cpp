//===- Step.cpp - The events of one Harmony step --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Step.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace llvm;

namespace galvatron::harmony {

std::vector<int64_t> microBatchSizes(int64_t samples, int64_t size) {
  std::vector<int64_t> sizes(samples / size, size);
  if (samples % size)
    sizes.push_back(samples % size);
  return sizes;
}

std::vector<StepTask> stepTasks(const HarmonyConfig &config,
                                const HarmonyRules &rules, int64_t devices,
                                int64_t layers) {
  ArrayRef<int64_t> forward = config.forwardPacks,
                    backward = config.backwardPacks;
  int64_t forwardEnd = rules.joinLastPack ? backward.back() : layers;
  std::vector<StepTask> tasks;
  auto place = [&](StepTask task) {
    if (rules.mode == HarmonyMode::Pipeline && rules.perDeviceSwap) {
      int64_t pack =
          llvm::upper_bound(backward, task.begin) - backward.begin() - 1;
      std::vector<int64_t> bounds = stageBounds(backward.size(), devices);
      task.device = llvm::upper_bound(bounds, pack) - bounds.begin() - 1;
    } else if (rules.mode == HarmonyMode::Pipeline) {
      task.device = static_cast<int64_t>(tasks.size()) % devices;
    }
    tasks.push_back(task);
  };
  for (size_t p = 0; p < forward.size(); ++p)
    place({false, false, false, forward[p],
           p + 1 < forward.size() ? forward[p + 1] : forwardEnd, 0});
  for (size_t p = backward.size(); p-- > 0;) {
    bool last = p + 1 == backward.size();
    place({true, last && rules.joinLastPack, last, backward[p],
           last ? layers : backward[p + 1], 0});
  }
  return tasks;
}

int64_t devicesInUse(const HarmonyConfig &config, const HarmonyRules &rules,
                     int64_t devices) {
  if (rules.mode == HarmonyMode::DataParallel)
    return devices;
  auto tasks = static_cast<int64_t>(config.forwardPacks.size() +
                                    config.backwardPacks.size());
  return std::min(devices, tasks);
}

namespace {

/// The handles that later tasks need of an earlier one.
struct Made {
  EventId done = -1;   ///< the task has ended
  EventId sumOut = -1; ///< the gradients are in the host
  /// Last event of the task's computation of each micro-batch; of backward also
  /// that of the recomputation.
  std::vector<EventId> compute, recompute;
  /// Event of each micro-batch of the receiver at which its boundary is in the
  /// host or, of a peer transfer, the transfer.
  std::vector<EventId> out;
  /// Message that the stash is there, by stash layer and micro-batch of
  /// backward.
  std::vector<std::pair<int64_t, std::vector<EventId>>> stash;
};

class StepBuilder {
public:
  StepBuilder(const StepInput &input, CostSource &costs)
      : input(input), rules(input.rules), costs(costs),
        layers(input.profile.layerCount()),
        tasks(stepTasks(input.config, rules, input.machine.devices, layers)),
        used(devicesInUse(input.config, rules, input.machine.devices)),
        graph(input.machine.devices) {
    // Neighbours meet in the host if one device runs at a time, as in
    // DataParallel.
    alone =
        rules.mode == HarmonyMode::DataParallel || input.machine.devices == 1;
    throughHost = alone || !rules.peerToPeer;
    regroups = input.config.forwardSize != input.config.backwardSize;
    std::vector<int64_t> forward =
        microBatchSizes(input.samples, input.config.forwardSize);
    std::vector<int64_t> backward =
        microBatchSizes(input.samples, input.config.backwardSize);
    if (rules.grouping)
      passes.push_back({forward, backward, 0, std::vector<Made>(tasks.size())});
    else
      for (auto [number, size] : enumerate(forward))
        passes.push_back(
            {{size}, {size}, number, std::vector<Made>(tasks.size())});
    left.resize(input.machine.devices);
    beforeLeft.resize(input.machine.devices);
  }

  EventGraph build() {
    // A task of a pass comes behind the task before it in the pass, and behind
    // the same task of the pass before.
    for (size_t wave = 0; wave + 1 < tasks.size() + passes.size(); ++wave)
      for (size_t p = 0; p < passes.size() && p <= wave; ++p)
        if (wave - p < tasks.size())
          run(p, wave - p);
    if (!rules.justInTime)
      updateAll();
    return std::move(graph);
  }

private:
  /// Micro-batches that go through all tasks together.
  struct Pass {
    std::vector<int64_t> forwardSizes, backwardSizes;
    size_t firstMicroBatch;
    std::vector<Made> made; ///< by task
  };
  /// A task of a pass; none if the task is negative.
  struct Former {
    size_t pass = 0;
    int32_t task = -1;
  };

  void run(size_t p, size_t t) {
    pass = p;
    current = static_cast<int32_t>(t);
    forwardSizes = passes[p].forwardSizes;
    backwardSizes = passes[p].backwardSizes;
    mapMicroBatches();
    if (tasks[t].backward)
      backward();
    else
      forward();
    int64_t device = tasks[t].device;
    beforeLeft[device] = std::exchange(left[device], Former{pass, current});
  }

  const StepTask &task() const { return tasks[current]; }
  std::vector<Made> &made() { return passes[pass].made; }
  bool isLastPass() const { return pass + 1 == passes.size(); }
  const Made *madeBy(Former former) const {
    return former.task < 0 ? nullptr : &passes[former.pass].made[former.task];
  }
  /// The task before this one on the same device; null if there is none.
  const Made *formerOnDevice() const { return madeBy(left[task().device]); }
  EventId doneBefore(ArrayRef<Former> which) const {
    const Made *former = madeBy(which[task().device]);
    return former ? former->done : -1;
  }

  /// Backward micro-batch j is whole with the forward micro-batch that has its
  /// last sample.
  void mapMicroBatches() {
    producer.clear();
    int64_t produced = 0, needed = 0;
    size_t f = 0;
    for (int64_t size : backwardSizes) {
      needed += size;
      while (produced < needed)
        produced += forwardSizes[f++];
      producer.push_back(f - 1);
    }
  }

  //===--- Events ---------------------------------------------------------===//

  EventId event(StringLiteral what, size_t microBatch, HarmonyStream stream,
                Picoseconds duration) {
    HarmonyEvent event;
    event.what = what;
    event.task = current;
    event.microBatch =
        static_cast<int32_t>(passes[pass].firstMicroBatch + microBatch);
    event.device = static_cast<int32_t>(task().device);
    event.stream = stream;
    event.duration = duration;
    return graph.add(event);
  }
  void enqueue(EventId id) {
    graph.enqueue(id, graph[id].device, graph[id].stream);
  }
  EventId queued(StringLiteral what, size_t microBatch, HarmonyStream stream,
                 Picoseconds duration) {
    EventId id = event(what, microBatch, stream, duration);
    enqueue(id);
    return id;
  }
  EventId computation(StringLiteral what, size_t microBatch,
                      Picoseconds duration) {
    EventId id = queued(what, microBatch, HarmonyStream::Compute, duration);
    graph[id].isComputation = true;
    return id;
  }
  /// A copy of `bytes` between host and device, not yet on its stream.
  EventId swap(StringLiteral what, size_t microBatch, HarmonyStream stream,
               HarmonyTensor tensor, int64_t bytes) {
    double rate = input.machine.swapRate / static_cast<double>(used);
    EventId id = event(what, microBatch, stream,
                       toPicoseconds(static_cast<double>(bytes) / rate));
    graph[id].tensor = tensor;
    graph[id].bytes = bytes;
    return id;
  }
  /// Tells the process of `device` that bytes are in the host; they are copied
  /// once more if that is another process.
  EventId message(size_t microBatch, int64_t device, int64_t bytes) {
    double rate = input.machine.messageRate / static_cast<double>(used);
    double copied =
        device == task().device ? 0 : 2 * static_cast<double>(bytes);
    return queued("message", microBatch, HarmonyStream::Host,
                  toPicoseconds(copied / rate));
  }
  EventId transfer(StringLiteral what, size_t microBatch, int64_t receiver,
                   int64_t bytes) {
    EventId id = queued(
        what, microBatch, HarmonyStream::PeerOut,
        toPicoseconds(static_cast<double>(bytes) / input.machine.peerRate));
    graph[id].bytes = bytes;
    graph[id].peer = static_cast<int32_t>(receiver);
    return id;
  }

  int64_t weightBytes() const {
    ArrayRef<int64_t> sums = input.profile.weightSums();
    return sums[task().end] - sums[task().begin];
  }

  //===--- What a task begins with ----------------------------------------===//

  EventId weights() {
    EventId id = swap("weights", 0, HarmonyStream::SwapIn,
                      HarmonyTensor::Weights, weightBytes());
    const Made *former = formerOnDevice();
    if (!former)
      return id;
    graph.after(id, rules.prefetch ? former->compute.back() : former->done);
    return id;
  }

  /// Orders the copy `id` of an input of micro-batch `i` behind what must have
  /// left the device. Without prefetch that is all that came before it.
  void orderInput(EventId id, size_t i, EventId weights,
                  EventId beforeOnDevice) {
    if (!rules.prefetch) {
      graph.after(id, i == 0 ? weights : beforeOnDevice);
      return;
    }
    const Made *former = formerOnDevice();
    if (i >= 2)
      graph.after(id, made()[current].compute[i - 2]);
    else if (former && i == 1)
      graph.after(id, former->done);
    else if (former && former->compute.size() >= 2)
      graph.after(id, former->compute[former->compute.size() - 2]);
    else if (former)
      graph.after(id, doneBefore(beforeLeft));
  }

  /// The input of micro-batch `i` of a forward or joined task.
  EventId boundaryIn(size_t i, ArrayRef<int64_t> sizes, EventId weights,
                     EventId beforeOnDevice) {
    EventId id;
    bool samples = task().begin == 0;
    const Made *source = samples ? nullptr : &made()[current - 1];
    if (source && graph[source->out[i]].peer >= 0) {
      id = source->out[i];
      graph.enqueue(id, task().device, HarmonyStream::PeerIn);
      orderInput(id, i, weights, beforeOnDevice);
      return id;
    }
    id = swap("boundary", i, HarmonyStream::SwapIn, HarmonyTensor::Boundary,
              costs.input(sizes[i])[task().begin]);
    if (source)
      graph.after(id, source->out[i]);
    orderInput(id, i, weights, beforeOnDevice);
    enqueue(id);
    return id;
  }

  /// Weights follow the first input where copies run ahead, but for pipelines'
  /// forward and joined tasks.
  bool weightsFollowInput() const {
    return rules.prefetch && formerOnDevice() &&
           (alone || (task().backward && !task().joined));
  }

  //===--- Tasks ----------------------------------------------------------===//

  /// Layers of a forward task whose inputs backward needs, ascending.
  std::vector<int64_t> stashLayers() const {
    std::vector<int64_t> result;
    for (const StepTask &other : tasks)
      if (other.backward && !other.joined && other.begin >= task().begin &&
          other.begin < task().end)
        result.push_back(other.begin);
    llvm::sort(result);
    return result;
  }

  int64_t stashReceiver(int64_t layer) const {
    for (const StepTask &other : tasks)
      if (other.backward && other.begin == layer)
        return other.device;
    llvm_unreachable("every stash has a backward pack");
  }

  /// A message that what `copied` brings is in the host.
  EventId told(size_t i, int64_t receiver, int64_t bytes, EventId copied) {
    EventId id = message(i, receiver, bytes);
    graph.after(id, copied);
    return id;
  }

  /// Adds one message per micro-batch of backward that is whole with forward
  /// micro-batch `i`.
  void messages(size_t i, EventId copied, int64_t receiver, int64_t layer,
                std::vector<EventId> &result) {
    for (size_t j = 0; j < backwardSizes.size(); ++j)
      if (producer[j] == i)
        result.push_back(
            told(j, receiver, costs.input(backwardSizes[j])[layer], copied));
  }

  void forward() {
    Made &own = made()[current];
    std::vector<int64_t> stashes = stashLayers();
    for (int64_t layer : stashes)
      own.stash.push_back({layer, {}});
    // The task is cut at every stash, so that it can leave as soon as it is
    // there.
    std::vector<int64_t> cuts = stashes;
    if (cuts.empty() || cuts.front() != task().begin)
      cuts.insert(cuts.begin(), task().begin);
    cuts.push_back(task().end);
    size_t firstStash = cuts.size() - 1 - stashes.size();

    EventId w = weights();
    if (!weightsFollowInput())
      enqueue(w);
    EventId beforeOnDevice = -1;
    for (size_t i = 0; i < forwardSizes.size(); ++i) {
      int64_t size = forwardSizes[i];
      EventId x = boundaryIn(i, forwardSizes, w, beforeOnDevice);
      if (i == 0 && weightsFollowInput())
        enqueue(w);
      const SizeCosts &time = costs.at(Direction::Forward, size);
      std::vector<EventId> parts;
      for (size_t p = 0; p + 1 < cuts.size(); ++p)
        parts.push_back(
            computation("forward", i, time.time(cuts[p], cuts[p + 1])));
      if (i == 0)
        graph.after(parts.front(), w);
      graph.after(parts.front(), x);
      for (size_t s = 0; s < stashes.size(); ++s) {
        size_t part = firstStash + s;
        EventId out = swap("stash", i, HarmonyStream::SwapOut,
                           HarmonyTensor::Stash, costs.input(size)[stashes[s]]);
        graph.after(out, part == 0 ? x : parts[part - 1]);
        if (!rules.prefetch)
          graph.after(parts[part], out);
        else if (part == 0)
          graph.after(out, i == 0 ? doneBefore(left) : own.compute[i - 1]);
        enqueue(out);
        messages(i, out, stashReceiver(stashes[s]), stashes[s],
                 own.stash[s].second);
      }
      own.compute.push_back(parts.back());
      beforeOnDevice = parts.back();
      if (EventId y = boundaryOut(i); y >= 0 && throughHost)
        beforeOnDevice = y;
    }
    own.done =
        queued("end", 0, HarmonyStream::Compute, input.machine.taskOverhead);
    if (!rules.prefetch && throughHost)
      graph.after(own.done, beforeOnDevice);
  }

  /// Sends the output of forward micro-batch `i` to the next task; -1 if there
  /// is none.
  EventId boundaryOut(size_t i) {
    Made &own = made()[current];
    int64_t layer = task().end;
    if (layer == layers)
      return -1;
    const StepTask &next = tasks[current + 1];
    int64_t bytes = costs.input(forwardSizes[i])[layer];
    EventId done = own.compute.back();
    EventId out;
    if (!throughHost && !(next.backward && regroups)) {
      out = transfer("boundary", i, next.device, bytes);
      graph.after(out, done);
      own.out.push_back(out);
      return out;
    }
    out = swap("boundary", i, HarmonyStream::SwapOut, HarmonyTensor::Boundary,
               bytes);
    graph.after(out, done);
    enqueue(out);
    if (!next.backward)
      own.out.push_back(alone ? out : told(i, next.device, bytes, out));
    else if (!alone)
      messages(i, out, next.device, layer, own.out);
    else
      own.out.insert(own.out.end(), llvm::count(producer, i), out);
    return out;
  }

  /// The stash that `task()` recomputes from.
  const std::vector<EventId> &stash() {
    for (const Made &other : made())
      for (const auto &[layer, arrived] : other.stash)
        if (layer == task().begin)
          return arrived;
    llvm_unreachable("forward stashes what backward needs");
  }

  void backward() {
    Made &own = made()[current];
    bool joined = task().joined;
    const std::vector<EventId> *arrived = joined ? nullptr : &stash();
    EventId w = weights();
    if (!weightsFollowInput())
      enqueue(w);
    // The sum of the micro-batches before.
    EventId sum = -1;
    if (pass > 0) {
      sum = swap("gradients", 0, HarmonyStream::SwapIn,
                 HarmonyTensor::Gradients, weightBytes());
      graph.after(sum, passes[pass - 1].made[current].sumOut);
      graph.after(sum, w);
      enqueue(sum);
    }
    EventId beforeOnDevice = -1;
    for (size_t i = 0; i < backwardSizes.size(); ++i) {
      int64_t size = backwardSizes[i];
      EventId x;
      if (joined) {
        x = boundaryIn(i, backwardSizes, w, beforeOnDevice);
      } else {
        x = swap("stash", i, HarmonyStream::SwapIn, HarmonyTensor::Stash,
                 costs.input(size)[task().begin]);
        graph.after(x, (*arrived)[i]);
        orderInput(x, i, w, beforeOnDevice);
        enqueue(x);
      }
      EventId dy = task().last ? -1 : gradientIn(i);
      if (i == 0 && weightsFollowInput())
        enqueue(w);
      Picoseconds again =
          costs.at(Direction::Forward, size).time(task().begin, task().end);
      Picoseconds whole =
          costs.at(Direction::Backward, size).time(task().begin, task().end);
      EventId recompute = computation(joined ? StringLiteral("forward")
                                             : StringLiteral("recompute"),
                                      i, again);
      if (i == 0)
        graph.after(recompute, w);
      graph.after(recompute, x);
      EventId compute =
          computation("backward", i, std::max<Picoseconds>(whole - again, 0));
      graph.after(compute, sum);
      if (dy >= 0) {
        graph.after(compute, dy);
        if (!rules.prefetch)
          graph.after(dy, recompute);
      }
      own.recompute.push_back(recompute);
      own.compute.push_back(compute);
      beforeOnDevice = compute;
      if (EventId dx = gradientOut(i); dx >= 0 && throughHost)
        beforeOnDevice = dx;
    }
    finishBackward(beforeOnDevice);
  }

  EventId gradientIn(size_t i) {
    const Made &source = made()[current - 1];
    EventId id = source.out[i];
    bool toPeer = graph[id].peer >= 0;
    if (!toPeer) {
      EventId sent = id;
      id = swap("boundary", i, HarmonyStream::SwapIn, HarmonyTensor::Boundary,
                costs.input(backwardSizes[i])[task().end]);
      graph.after(id, sent);
    }
    // The gradient waits for the recomputation without prefetch, see
    // backward().
    if (rules.prefetch) {
      const Made *former = formerOnDevice();
      if (i > 0) {
        graph.after(id, made()[current].recompute[i - 1]);
      } else if (former) {
        const StepTask &before = tasks[left[task().device].task];
        if (before.backward && (alone || !before.joined))
          graph.after(id, former->recompute.back());
        else if (former->compute.size() >= 2)
          graph.after(id, former->compute[former->compute.size() - 2]);
        else
          graph.after(id, doneBefore(beforeLeft));
      }
    }
    if (toPeer)
      graph.enqueue(id, task().device, HarmonyStream::PeerIn);
    else
      enqueue(id);
    return id;
  }

  EventId gradientOut(size_t i) {
    if (task().begin == 0)
      return -1;
    Made &own = made()[current];
    int64_t bytes = costs.input(backwardSizes[i])[task().begin];
    int64_t receiver = tasks[current + 1].device;
    EventId id;
    if (throughHost) {
      id = swap("boundary", i, HarmonyStream::SwapOut, HarmonyTensor::Boundary,
                bytes);
      enqueue(id);
    } else {
      id = transfer("boundary", i, receiver, bytes);
    }
    graph.after(id, own.compute.back());
    own.out.push_back(throughHost && !alone ? told(i, receiver, bytes, id)
                                            : id);
    return id;
  }

  /// Adds the all-reduce, the gradients' swap or the update, and the task's
  /// end. Sums of gradients that go on leave without an update.
  void finishBackward(EventId beforeOnDevice) {
    Made &own = made()[current];
    EventId reduced = own.compute.back();
    EventId sent = beforeOnDevice == reduced ? -1 : beforeOnDevice;
    if (rules.mode == HarmonyMode::DataParallel && used > 1 && isLastPass()) {
      auto ranks = static_cast<double>(used);
      reduced = queued("all-reduce", 0, HarmonyStream::Compute,
                       toPicoseconds(2 * (ranks - 1) / ranks *
                                     static_cast<double>(weightBytes()) /
                                     input.machine.peerRate));
      if (!rules.prefetch)
        graph.after(reduced, sent);
    }
    bool updates = isLastPass() && rules.justInTime;
    std::vector<EventId> outs;
    if (updates && rules.updateOnDevice)
      outs = updateOnDevice(reduced, sent);
    else
      outs = {own.sumOut = gradientsToHost(reduced, sent)};
    own.done =
        queued("end", 0, HarmonyStream::Compute, input.machine.taskOverhead);
    for (EventId out : outs)
      graph.after(own.done, out);
    if (updates && !rules.updateOnDevice)
      updateOnHost(own.sumOut);
  }

  void updateOnHost(EventId after) {
    ArrayRef<Picoseconds> sums = input.profile.updateSums();
    EventId update = queued("update", 0, HarmonyStream::Host,
                            sums[task().end] - sums[task().begin]);
    graph.after(update, after);
  }

  /// Updates all packs, once the gradients of all are in the host. On the
  /// devices weights and gradients come once more.
  void updateAll() {
    EventId all = queued("gradients", 0, HarmonyStream::Host, 0);
    for (const Made &other : made())
      graph.after(all, other.sumOut);
    std::vector<EventId> before(input.machine.devices, all);
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (!tasks[t].backward)
        continue;
      current = static_cast<int32_t>(t);
      if (!rules.updateOnDevice) {
        updateOnHost(all);
        continue;
      }
      EventId ready = before[task().device];
      for (HarmonyTensor tensor :
           {HarmonyTensor::Weights, HarmonyTensor::Gradients}) {
        EventId in =
            swap(tensor == HarmonyTensor::Weights ? StringLiteral("weights")
                                                  : StringLiteral("gradients"),
                 0, HarmonyStream::SwapIn, tensor, weightBytes());
        graph.after(in, ready);
        enqueue(in);
        ready = in;
      }
      std::vector<EventId> outs = updateOnDevice(ready, /*sent=*/-1);
      EventId done =
          queued("end", 0, HarmonyStream::Compute, input.machine.taskOverhead);
      for (EventId out : outs)
        graph.after(done, out);
      before[task().device] = done;
    }
  }

  EventId gradientsToHost(EventId reduced, EventId sent) {
    EventId out = swap("gradients", 0, HarmonyStream::SwapOut,
                       HarmonyTensor::Gradients, weightBytes());
    graph.after(out, reduced);
    if (!rules.prefetch)
      graph.after(out, sent);
    enqueue(out);
    return out;
  }

  /// The optimizer's state comes, and goes with the weights. The update reads
  /// the gradient and reads and writes the other two.
  std::vector<EventId> updateOnDevice(EventId reduced, EventId sent) {
    ArrayRef<int64_t> sums = input.profile.optimizerSums();
    int64_t state = sums[task().end] - sums[task().begin];
    EventId in = swap("optimizer", 0, HarmonyStream::SwapIn,
                      HarmonyTensor::Optimizer, state);
    bool ahead = rules.prefetch && rules.justInTime;
    graph.after(in, ahead ? made()[current].recompute.back() : reduced);
    if (!rules.prefetch)
      graph.after(in, sent);
    enqueue(in);
    double moved =
        3 * static_cast<double>(weightBytes()) + 2 * static_cast<double>(state);
    EventId update = queued("update", 0, HarmonyStream::Compute,
                            toPicoseconds(moved / input.machine.memoryRate));
    graph.after(update, in);
    EventId outs[] = {swap("weights", 0, HarmonyStream::SwapOut,
                           HarmonyTensor::Weights, weightBytes()),
                      swap("optimizer", 0, HarmonyStream::SwapOut,
                           HarmonyTensor::Optimizer, state)};
    for (EventId out : outs) {
      graph.after(out, update);
      enqueue(out);
    }
    return {outs[0], outs[1]};
  }

  const StepInput &input;
  const HarmonyRules &rules;
  CostSource &costs;
  int64_t layers;
  std::vector<StepTask> tasks;
  int64_t used;
  std::vector<int64_t> forwardSizes, backwardSizes;
  std::vector<size_t> producer; ///< by micro-batch of backward
  std::vector<Pass> passes;
  EventGraph graph;
  /// Neighbours are one device, or meet in the host at any rate.
  bool alone = false, throughHost = false;
  bool regroups = false;
  size_t pass = 0;
  int32_t current = 0;
  std::vector<Former> left, beforeLeft; ///< by device
};

} // namespace

EventGraph buildStep(const StepInput &input, CostSource &costs) {
  return StepBuilder(input, costs).build();
}

} // namespace galvatron::harmony
