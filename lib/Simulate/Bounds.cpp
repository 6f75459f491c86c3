//===- Bounds.cpp - A step's time in closed form --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lower and upper bounds of a simulated step: the times of the stages' tasks,
// put into the forms of the schedule. What overlaps inside a task is bounded by
// two facts. While two operations run together each is slowed down at most to
// half, so a task takes no longer than all its operations one after the other.
// And at any moment at most one operation computes or exchanges and at most one
// gathers or reduces, so it takes no less than both sums overlapped as well as
// can be. Where communication is one queue, what exchanges runs beside nothing.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace llvm;

namespace galvatron {
namespace {

class Bounds {
public:
  explicit Bounds(const SimulationInput &input)
      : input(input), count(input.roles.size()) {
    countUsers();
    for (size_t role = 0; role < count; ++role)
      roles.push_back(timesOf(role));
    addChunks();
    for (size_t cut = 0; cut < input.cuts.size(); ++cut)
      addMessages(cut);
  }

  double lower() const {
    auto shape = ScheduleShape::of(input.program, input.microBatches());
    return evaluate(input.program.schedule->lower(shape), roles,
                    /*upper=*/false);
  }

  StepBounds make() const {
    const Schedule &schedule = *input.program.schedule;
    auto shape = ScheduleShape::of(input.program, input.microBatches());
    StepBounds bounds;
    bounds.lower = lower();
    bounds.upper = evaluate(schedule.upper(shape), roles, /*upper=*/true);
    for (const SimulatedTie &tie : input.ties)
      bounds.upper += range(tie.reduce).upper + range(tie.broadcast).upper;
    return bounds;
  }

private:
  /// Counts the operations that may share an uplink: a stage is at one of its
  /// own at a time, besides what its collectives do beside its tasks.
  void countUsers() {
    std::map<int32_t, std::vector<char>> usedBy;
    auto use = [&](const std::vector<int32_t> &uplinks, size_t role) {
      for (int32_t uplink : uplinks)
        usedBy.try_emplace(uplink, count, 0).first->second[role] = 1;
    };
    for (auto [number, role] : enumerate(input.roles))
      for (const SimulatedLayer &layer : role.layers)
        for (const std::vector<int32_t> *uplinks :
             {&layer.dpUplinks, &layer.sdpUplinks, &layer.tpUplinks,
              &layer.reshardForward.uplinks, &layer.reshardBackward.uplinks})
          use(*uplinks, number);
    for (auto [number, cut] : enumerate(input.cuts))
      for (const SimulatedExchange *exchange : {&cut.activation, &cut.gradient})
        for (size_t chunk : {number, number + 1})
          use(exchange->uplinks, homeOf(chunk));
    for (auto [tie, ends] : zip_equal(input.ties, input.program.ties))
      for (const SimulatedExchange *exchange : {&tie.reduce, &tie.broadcast})
        for (int64_t role : {ends.owner, ends.borrower})
          use(exchange->uplinks, static_cast<size_t>(role));
    for (const auto &[uplink, roles] : usedBy) {
      double &total = users[uplink];
      for (size_t role = 0; role < count; ++role)
        if (roles[role])
          total += runsBeside(role) ? 2 : 1;
    }
  }

  size_t homeOf(size_t chunk) const {
    return static_cast<size_t>(input.program.chunks[chunk].role);
  }

  /// True if a chunk is the first one of its role.
  bool isFirst(size_t chunk) const {
    return input.program.chunksOf(static_cast<int64_t>(homeOf(chunk)))
               .front() == static_cast<int64_t>(chunk);
  }

  /// True if a role's collectives run beside other communication of its own.
  bool runsBeside(size_t role) const {
    return syncsBehind(role) ||
           any_of(input.roles[role].layers, [](const SimulatedLayer &layer) {
             return layer.forwardAhead || layer.backwardAhead;
           });
  }

  bool syncsBehind(size_t role) const {
    return galvatron::syncsBehind(input.program.roles[role]);
  }

  double shared(double seconds, const std::vector<int32_t> &uplinks) const {
    double most = 1;
    for (int32_t uplink : uplinks)
      most = std::max(most, users.at(uplink));
    return seconds * most;
  }
  TimeRange range(const SimulatedExchange &exchange) const {
    return {exchange.seconds, shared(exchange.seconds, exchange.uplinks)};
  }

  /// The longest passes of a role's chunks, and those of the first one.
  void addChunks() {
    for (auto [number, chunk] : enumerate(chunkLayers(input))) {
      RoleTimes times = timesOf(chunk.role, chunk.begin, chunk.end);
      RoleTimes &role = roles[chunk.role];
      if (isFirst(number))
        for (auto [first, of] :
             {std::pair(RoleTime::FirstForward, RoleTime::Forward),
              std::pair(RoleTime::FirstBackward, RoleTime::Backward),
              std::pair(RoleTime::FirstInputPart, RoleTime::InputPart),
              std::pair(RoleTime::FirstWeightPart, RoleTime::WeightPart)})
          role[first] = times[of];
      for (auto [longest, of] :
           {std::pair(RoleTime::LongestForward, RoleTime::Forward),
            std::pair(RoleTime::LongestBackward, RoleTime::Backward),
            std::pair(RoleTime::LongestInputPart, RoleTime::InputPart),
            std::pair(RoleTime::LongestWeightPart, RoleTime::WeightPart)})
        role[longest].atLeast(times[of]);
    }
  }

  RoleTimes timesOf(size_t number) const {
    RoleTimes times = timesOf(number, 0, input.roles[number].layers.size());
    std::vector<ChunkLayers> chunks = chunkLayers(input);
    if (input.program.justInTime) {
      // Work behind backward passes stands in others' way there, and not at the
      // end.
      for (RoleTime end : {RoleTime::Tail, RoleTime::Update})
        times[end].lower = 0;
      for (auto [chunk, layers] : enumerate(chunks)) {
        if (layers.role != number)
          continue;
        RoleTimes own = timesOf(number, layers.begin, layers.end);
        bool isBehind =
            input.program.updatesBehind(static_cast<int64_t>(chunk));
        for (RoleTime end : {RoleTime::Tail, RoleTime::Update}) {
          if (isBehind)
            times[RoleTime::Behind].upper += own[end].upper;
          else
            times[end].lower += own[end].lower;
        }
      }
    }
    // Whenever a role swaps, all may have to wait for it.
    for (const Task &task :
         input.program.roles[number].part(SchedulePart::Steady))
      if (task.kind == TaskKind::Swap)
        times[RoleTime::Behind].upper +=
            swapSeconds(task, ArrayRef(input.roles[number].layers)
                                  .slice(chunks[task.chunk].begin,
                                         chunks[task.chunk].end -
                                             chunks[task.chunk].begin));
    return times;
  }
  RoleTimes timesOf(size_t number, size_t begin, size_t end) const {
    const SimulatedRole &role = input.roles[number];
    bool behind = syncsBehind(number);
    double slowdown = 1;
    for (const SimulatedLayer &layer : role.layers)
      slowdown = std::max(slowdown, layer.time.slowdown);
    bool ahead = false;
    // Seconds of what computes, what exchanges, and what gathers or reduces.
    double computing[2] = {0, 0}, exchanging[2] = {0, 0};
    double collective[2] = {0, 0};
    TimeRange forward, backward, sync;
    TimeRange weight;       // of backward the weight parts
    double inLine = 0;      // all of a backward's operations, one by one
    double inputInLine = 0; // of these the input parts'
    // The last layer computes so long before its gradients can be summed.
    double beforeSums = 0;
    bool splits = input.program.schedule->splitsBackward();
    double norm = 0, update = 0;
    for (size_t i = begin; i < end; ++i) {
      const SimulatedLayer &layer = role.layers[i];
      const LayerTimeParts &time = layer.time;
      ahead |= layer.forwardAhead || layer.backwardAhead;
      TimeRange gather{time.gather, shared(time.gather, layer.sdpUplinks)};
      TimeRange scatter{time.scatter, shared(time.scatter, layer.sdpUplinks)};
      TimeRange tpForward{time.tpForward,
                          shared(time.tpForward, layer.tpUplinks)};
      double back = time.tpRecompute + time.tpBackward;
      TimeRange tpBackward{back, shared(back, layer.tpUplinks)};
      TimeRange reshardForward = range(layer.reshardForward);
      TimeRange reshardBackward = range(layer.reshardBackward);
      double computed = time.recompute + time.backward;

      // A layer that cannot be split has all in the input part.
      bool split = splits && time.split;
      double inWeight = split ? time.weight : 0;
      TimeRange inScatter = split ? scatter : TimeRange();
      TimeRange tpWeight;
      if (split)
        tpWeight = {time.tpWeight, shared(time.tpWeight, layer.tpUplinks)};
      TimeRange weightHere{
          overlapSeconds(inWeight, inScatter.lower, slowdown) + tpWeight.lower,
          overlapSeconds(inWeight, inScatter.upper, slowdown) + tpWeight.upper};
      weight += weightHere;
      beforeSums =
          splits ? inWeight + tpWeight.lower : time.recompute + time.backward;

      computing[0] += time.forward;
      exchanging[0] += time.tpForward + reshardForward.lower;
      collective[0] += time.gather;
      computing[1] += computed - inWeight;
      exchanging[1] += back - tpWeight.lower + reshardBackward.lower;
      collective[1] += time.gather + time.scatter - inScatter.lower;

      forward += gather + tpForward + reshardForward;
      forward += {time.forward, time.forward};
      TimeRange inInput = split ? TimeRange() : scatter;
      backward += gather + reshardBackward;
      backward += {tpBackward.lower - tpWeight.lower,
                   tpBackward.upper - tpWeight.upper};
      backward +=
          {overlapSeconds(computed - inWeight, inInput.lower, slowdown),
           overlapSeconds(computed - inWeight, inInput.upper, slowdown)};
      inputInLine += computed - inWeight + gather.upper + inInput.upper +
                     tpBackward.upper - tpWeight.upper + reshardBackward.upper;
      inLine += inWeight + inScatter.upper + tpWeight.upper;
      sync += {time.sync, shared(time.sync, layer.dpUplinks)};
      norm += time.norm;
      update += time.update;
    }
    if (ahead) {
      auto least = [&](int pass) {
        double alone = role.oneQueue ? exchanging[pass] : 0;
        double beside = computing[pass] + exchanging[pass] - alone;
        return alone + overlapSeconds(beside, collective[pass], slowdown);
      };
      forward.lower = least(0);
      backward = {least(1), inputInLine};
    }
    inLine += inputInLine;
    RoleTimes times;
    times[RoleTime::Forward] = forward;
    times[RoleTime::InputPart] = backward;
    times[RoleTime::WeightPart] = weight;
    times[RoleTime::Backward] = backward + weight;
    times[RoleTime::Norm] = {norm, norm};
    times[RoleTime::Update] = {update, update};
    TimeRange &tail = times[RoleTime::Tail];
    tail = sync;
    if (behind) {
      // The others may compute beside the sums.
      const TimeRange &computes = splits ? weight : backward;
      tail.lower =
          input.program.hasSeveralChunks()
              ? 0
              : std::max(0.0, beforeSums + sync.lower - computes.lower);
      times[RoleTime::Behind].upper =
          std::max(0.0, inLine - times[RoleTime::Backward].upper) + sync.upper;
    }
    return times;
  }

  void addMessages(size_t cut) {
    RoleTimes &from = roles[homeOf(cut)], &to = roles[homeOf(cut + 1)];
    TimeRange activation = range(input.cuts[cut].activation);
    TimeRange gradient = range(input.cuts[cut].gradient);
    TimeRange round{std::max(activation.lower, gradient.lower),
                    std::max(activation.upper, gradient.upper)};
    from[RoleTime::ActivationOut] += activation;
    to[RoleTime::ActivationIn] += activation;
    from[RoleTime::GradientIn] += gradient;
    to[RoleTime::GradientOut] += gradient;
    from[RoleTime::RoundNext] += round;
    to[RoleTime::RoundPrevious] += round;
    from[RoleTime::LongestActivationOut].atLeast(activation);
    from[RoleTime::LongestGradientIn].atLeast(gradient);
    if (isFirst(cut)) {
      from[RoleTime::FirstActivationOut] = activation;
      from[RoleTime::FirstGradientIn] = gradient;
    }
    if (isFirst(cut + 1))
      to[RoleTime::FirstActivationIn] = activation;
    // Gradients that are not summed behind the last backward pass are when its
    // message has gone. That is of a role's first chunk.
    if (cut + 1 < count && !syncsBehind(cut + 1))
      to[RoleTime::Tail].lower += gradient.lower;
  }

  const SimulationInput &input;
  size_t count;
  std::map<int32_t, double> users; ///< by uplink
  std::vector<RoleTimes> roles;
};

} // namespace

StepBounds stepBounds(const SimulationInput &input) {
  return Bounds(input).make();
}

double leastStepSeconds(const SimulationInput &input) {
  return Bounds(input).lower();
}

std::vector<PassTimes> passTimes(const SimulationInput &input) {
  struct Seconds {
    double forward = 0, input = 0, weight = 0, message = 0;
  };
  std::vector<Seconds> chunks;
  double sum = 0;
  for (auto [number, chunk] : enumerate(chunkLayers(input))) {
    Seconds seconds;
    for (size_t l = chunk.begin; l < chunk.end; ++l) {
      const SimulatedLayer &layer = input.roles[chunk.role].layers[l];
      const LayerTimeParts &time = layer.time;
      double backward = time.gather + time.recompute + time.backward +
                        time.scatter + time.tpRecompute + time.tpBackward +
                        layer.reshardBackward.seconds;
      double weight =
          time.split ? time.weight + time.tpWeight + time.scatter : 0;
      seconds.forward += time.gather + time.forward + time.tpForward +
                         layer.reshardForward.seconds;
      seconds.input += backward - weight;
      seconds.weight += weight;
    }
    if (number < input.cuts.size())
      seconds.message = std::max(input.cuts[number].activation.seconds,
                                 input.cuts[number].gradient.seconds);
    sum += seconds.forward + seconds.input + seconds.weight;
    chunks.push_back(seconds);
  }
  double unit = sum / (3e2 * static_cast<double>(chunks.size()));
  auto inUnits = [unit](double seconds) {
    return unit > 0 ? static_cast<int64_t>(std::llround(
                          std::min(seconds / unit, 1.0 * PassTimes::kMost)))
                    : 0;
  };
  std::vector<PassTimes> times;
  for (const Seconds &seconds : chunks)
    times.push_back({inUnits(seconds.forward), inUnits(seconds.input),
                     inUnits(seconds.weight), inUnits(seconds.message)});
  return times;
}

} // namespace galvatron
