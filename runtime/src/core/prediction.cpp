//===- prediction.cpp - The step as the cost model expects it -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/prediction.h"

#include <algorithm>
#include <array>
#include <map>

namespace grt {
namespace {

class Layout {
public:
  Layout(const PredictedTimes &times, std::span<const grt_schedule> schedules)
      : times(times), roles(schedules.size()) {
    for (size_t r = 0; r < roles.size(); ++r) {
      roles[r].transfers = schedules[r].transfers;
      for (grt_part part : {GRT_PART_PROLOGUE, GRT_PART_STEADY,
                            GRT_PART_STEP_END, GRT_PART_DRAIN}) {
        const grt_task_list &list = schedules[r].parts[part];
        roles[r].tasks.insert(roles[r].tasks.end(), list.tasks,
                              list.tasks + list.count);
      }
      for (size_t t = 0; t < roles[r].tasks.size(); ++t)
        if (roles[r].tasks[t].kind == GRT_TASK_BACKWARD ||
            roles[r].tasks[t].kind == GRT_TASK_BACKWARD_WEIGHT)
          roles[r].lastBackward[roles[r].tasks[t].chunk] = t;
    }
  }

  PredictedStep run() {
    // A role goes as far as it can, then the next one; waits are monotonic, so
    // the order does not matter.
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t r = 0; r < roles.size(); ++r)
        while (roles[r].at < roles[r].tasks.size() && runTask(r))
          progress = true;
    }
    PredictedStep step;
    for (Role &role : roles) {
      step.length = std::max(step.length, role.time);
      step.roles.push_back(std::move(role.spans));
    }
    return step;
  }

private:
  struct Role {
    std::vector<grt_task> tasks;
    const grt_transfer_part *transfers = nullptr;
    size_t at = 0;
    std::map<uint16_t, size_t> lastBackward; ///< by chunk
    double time = 0;
    std::vector<PredictedSpan> spans;
    /// Messages so far by value, direction and cut.
    std::map<std::pair<int, size_t>, size_t> messages;
    /// Where swaps have streams of their own: when those are free, events were
    /// recorded, and the host had done what is done at home.
    std::array<double, GRT_STREAM_COUNT> streams{};
    std::array<double, GRT_SCHEDULE_EVENTS + 1> events{};
    double host = 0;
  };
  /// Where one thing waits for another: when each side came, by side.
  struct Rendezvous {
    std::map<size_t, double> arrivals;
  };

  void add(size_t r, PredictedRow row, const std::string &what, double begin,
           double end, int32_t layer) {
    if (end > begin)
      roles[r].spans.push_back(
          {begin, end, row, what, roles[r].tasks[roles[r].at], layer});
  }
  /// Something that nothing overlaps.
  void alone(size_t r, PredictedRow row, const std::string &what, double length,
             int32_t layer = -1) {
    add(r, row, what, roles[r].time, roles[r].time + length, layer);
    roles[r].time += length;
  }

  static double sumOf(std::span<const LayerTimes> layers,
                      double LayerTimes::*part) {
    double sum = 0;
    for (const LayerTimes &layer : layers)
      sum += layer.*part;
    return sum;
  }

  /// The first layer of the running task's chunk, and its layers.
  std::pair<size_t, std::span<const LayerTimes>> chunkOf(size_t r) const {
    const PredictedTimes::Role &role = times.roles[r];
    uint16_t number = roles[r].tasks[roles[r].at].chunk;
    for (const PredictedTimes::Chunk &chunk : role.chunks)
      if (chunk.number == number)
        return {
            chunk.firstLayer,
            std::span(role.layers).subspan(chunk.firstLayer, chunk.layerCount)};
    return {};
  }

  void forward(size_t r) {
    auto [front, layers] = chunkOf(r);
    for (size_t l = 0; l < layers.size(); ++l) {
      auto layer = int32_t(front + l);
      alone(r, PredictedRow::Communication, "gather", layers[l].gather, layer);
      alone(r, PredictedRow::Compute, "forward", layers[l].forward, layer);
      alone(r, PredictedRow::Communication, layers[l].exchanges.forward,
            layers[l].tpForward, layer);
      alone(r, PredictedRow::Communication, "reshard", layers[l].reshardForward,
            layer);
    }
  }

  void backward(size_t r) {
    Role &role = roles[r];
    double slowdown = times.roles[r].slowdown;
    auto [front, layers] = chunkOf(r);
    const grt_task &task = role.tasks[role.at];
    bool isLast = role.at == role.lastBackward[task.chunk];
    bool isInput = task.kind == GRT_TASK_BACKWARD_INPUT;
    bool isWeight = task.kind == GRT_TASK_BACKWARD_WEIGHT;
    for (size_t l = layers.size(); l-- > 0;) {
      auto layer = int32_t(front + l);
      // What the task does of the layer: what cannot be split is in the input
      // part.
      LayerTimes time = layers[l];
      if (isInput && time.split) {
        time.backward -= time.weight;
        time.tpBackward -= time.tpWeight;
        time.scatter = 0;
      } else if (isWeight) {
        LayerTimes part;
        part.sync = time.sync;
        if (time.split) {
          part.backward = time.weight;
          part.tpBackward = time.tpWeight;
          part.scatter = time.scatter;
        }
        time = part;
      }
      double sync = isLast ? time.sync : 0;
      double compute = time.recompute + time.backward;
      double communication = time.gather + time.scatter + sync;
      // Where alone a point of one side would lie: both are slowed down until
      // the shorter one ends.
      double shorter = std::min(compute, communication);
      auto stretch = [&](double at) {
        return role.time + at + (slowdown - 1) * std::min(at, shorter);
      };
      double done = 0;
      auto next = [&](PredictedRow row, const std::string &what,
                      double length) {
        add(r, row, what, stretch(done), stretch(done + length), layer);
        done += length;
      };
      next(PredictedRow::Compute, "recompute", time.recompute);
      next(PredictedRow::Compute, isWeight ? "backward weight" : "backward",
           time.backward);
      done = 0;
      next(PredictedRow::Communication, "gather", time.gather);
      next(PredictedRow::Communication, "reduce-scatter", time.scatter);
      next(PredictedRow::Communication, "gradient all-reduce", sync);
      role.time = stretch(std::max(compute, communication));
      alone(r, PredictedRow::Communication, layers[l].exchanges.backward,
            time.tpBackward, layer);
      alone(r, PredictedRow::Communication, "reshard", time.reshardBackward,
            layer);
    }
  }

  /// Notes that role `r` has come to a rendezvous of `sides`; true, with the
  /// time at which all are there, once they are.
  bool meet(int kind, size_t place, size_t number, size_t r, size_t sides,
            double arrival, double &start) {
    Rendezvous &rendezvous = allRendezvous[{kind, {place, number}}];
    rendezvous.arrivals.try_emplace(r, arrival);
    if (rendezvous.arrivals.size() < sides)
      return false;
    for (const auto &[role, time] : rendezvous.arrivals)
      start = std::max(start, time);
    return true;
  }

  enum Kind { Activation, Gradient, Stash, Norm, TieReduce, TieBroadcast };

  bool transfer(size_t r, const grt_task &task) {
    struct Part {
      const std::string &what;
      std::pair<int, size_t> channel;
      size_t cut;
      Kind kind;
      size_t sides; ///< roles that meet
      double start, length;
    };
    auto isHere = [&](uint16_t number) {
      return std::any_of(times.roles[r].chunks.begin(),
                         times.roles[r].chunks.end(),
                         [&](const PredictedTimes::Chunk &chunk) {
                           return chunk.number == number;
                         });
    };
    std::vector<Part> parts;
    static const char *const names[2][3] = {
        {"send activation", "send gradient", "send stash"},
        {"receive activation", "receive gradient", "receive stash"}};
    static const Kind kinds[] = {Activation, Gradient, Stash};
    for (uint32_t p = 0; p < task.count; ++p) {
      const grt_transfer_part &part = roles[r].transfers[task.first + p];
      const Kind kind = kinds[part.value];
      // A stash is known by the pack that recomputes from it.
      size_t cut = kind != Stash ? std::min(part.chunk, part.peer_chunk)
                   : part.direction == GRT_SEND ? part.peer_chunk
                                                : part.chunk;
      parts.push_back({names[part.direction][part.value],
                       {3 * part.direction + part.value, cut},
                       cut,
                       kind,
                       isHere(part.peer_chunk) ? size_t(1) : size_t(2),
                       0,
                       kind == Stash      ? times.stashes.at(cut)
                       : kind == Gradient ? times.cuts.at(cut).gradient
                                          : times.cuts.at(cut).activation});
    }
    if (parts.empty())
      return true;
    bool all = true;
    for (Part &part : parts)
      all &= meet(part.kind, part.cut, roles[r].messages[part.channel], r,
                  part.sides, roles[r].time, part.start);
    if (!all)
      return false;
    // Both directions share a row: one slice from the first start on.
    double begin = parts.front().start, end = roles[r].time;
    for (const Part &part : parts) {
      ++roles[r].messages[part.channel];
      begin = std::min(begin, part.start);
      end = std::max(end, part.start + part.length);
    }
    this->add(r, PredictedRow::Communication,
              parts.size() == 1 ? parts[0].what : "send and receive", begin,
              end, -1);
    roles[r].time = end;
    return true;
  }

  bool tie(size_t r, bool reduce) {
    // All ties of the task are one step here, so that a role that waits can
    // come back to it.
    double time = roles[r].time;
    struct Slice {
      double begin, end;
    };
    std::vector<Slice> slices;
    for (size_t t = 0; t < times.ties.size(); ++t) {
      const PredictedTimes::Tie &tie = times.ties[t];
      if (tie.owner != int(r) && tie.borrower != int(r))
        continue;
      if (reduce && tie.forwardOnly)
        continue;
      double start = time;
      if (!meet(reduce ? TieReduce : TieBroadcast, t, 0, r,
                tie.owner == tie.borrower ? 1 : 2, time, start))
        return false;
      time = start + (reduce ? tie.reduce : tie.broadcast);
      slices.push_back({start, time});
    }
    for (const Slice &slice : slices)
      add(r, PredictedRow::Communication,
          reduce ? "tied gradients" : "tied values", slice.begin, slice.end,
          -1);
    roles[r].time = time;
    return true;
  }

  /// A copy beside computation.
  void copy(size_t r, const grt_task &task, double length) {
    Role &role = roles[r];
    double begin = std::max(role.streams[task.stream], role.host);
    for (uint8_t event : task.waits)
      begin = std::max(begin, role.events[event]);
    add(r, PredictedRow::Communication, "swap", begin, begin + length, -1);
    role.streams[task.stream] = role.events[task.records] = begin + length;
    role.events[0] = 0;
  }

  bool runTask(size_t r) {
    Role &role = roles[r];
    grt_task task = role.tasks[role.at];
    size_t slices = role.spans.size();
    const bool beside = task.kind == GRT_TASK_SWAP && task.stream;
    const bool atHome = task.kind >= GRT_TASK_SYNC_GRADIENTS &&
                        task.kind <= GRT_TASK_TIE_BROADCAST;
    for (uint8_t event : task.waits)
      if (!beside)
        role.time = std::max(role.time, role.events[event]);
    // The host waits for what is on its way.
    if (atHome)
      role.time = std::max(role.time, role.streams[GRT_STREAM_OUT]);
    switch (task.kind) {
    case GRT_TASK_FORWARD:
      forward(r);
      break;
    case GRT_TASK_BACKWARD:
    case GRT_TASK_BACKWARD_INPUT:
    case GRT_TASK_BACKWARD_WEIGHT:
      backward(r);
      break;
    case GRT_TASK_TRANSFER:
      if (!transfer(r, task))
        return false;
      break;
    case GRT_TASK_TIE_REDUCE:
    case GRT_TASK_TIE_BROADCAST:
      if (!tie(r, task.kind == GRT_TASK_TIE_REDUCE))
        return false;
      break;
    case GRT_TASK_NORM: {
      double length = sumOf(times.roles[r].layers, &LayerTimes::norm);
      double start = 0;
      if (!meet(Norm, 0, 0, r, roles.size(), role.time + length, start))
        return false;
      alone(r, PredictedRow::Compute, "norm", length);
      role.time = start;
      break;
    }
    case GRT_TASK_UPDATE:
      alone(r, PredictedRow::Compute, "update",
            sumOf(chunkOf(r).second, &LayerTimes::update));
      break;
    case GRT_TASK_SWAP: {
      auto layers = chunkOf(r).second;
      double length = 0;
      for (auto [moved, part] :
           {std::pair(GRT_SWAP_PARAMETERS, &LayerTimes::swapParameters),
            std::pair(GRT_SWAP_GRADIENTS, &LayerTimes::swapGradients),
            std::pair(GRT_SWAP_OPTIMIZER, &LayerTimes::swapOptimizer),
            std::pair(GRT_SWAP_ACTIVATIONS, &LayerTimes::swapKept)})
        if (task.classes & moved)
          length += sumOf(layers, part);
      if (beside)
        copy(r, task, length);
      else // The thread that computes copies.
        alone(r, PredictedRow::Compute, "swap", length);
      break;
    }
    default:
      // The cost model counts gradients with the last backward.
      break;
    }
    if (!beside)
      role.events[task.records] = task.records ? role.time : 0;
    if (atHome)
      role.host = role.time;
    if (role.spans.size() > slices) {
      PredictedSpan span = role.spans[slices];
      for (size_t s = slices; s < role.spans.size(); ++s) {
        span.begin = std::min(span.begin, role.spans[s].begin);
        span.end = std::max(span.end, role.spans[s].end);
      }
      span.row = PredictedRow::Task;
      span.layer = -1;
      role.spans.push_back(span);
    }
    ++role.at;
    return true;
  }

  const PredictedTimes &times;
  std::vector<Role> roles;
  std::map<std::pair<int, std::pair<size_t, size_t>>, Rendezvous> allRendezvous;
};

} // namespace

PredictedStep layOut(const PredictedTimes &times,
                     std::span<const grt_schedule> schedules) {
  return Layout(times, schedules).run();
}

} // namespace grt
