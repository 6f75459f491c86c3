//===- Bounds.cpp - A step's time in closed form --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lower and upper bounds of a simulated step. They see a stage as the times of
// its tasks; what overlaps inside a task is bounded by two facts. While two
// operations run together each is slowed down at most to half, so a task takes
// no longer than all its operations one after the other. And at any moment at
// most one operation computes or exchanges and at most one gathers or reduces,
// so it takes no less than both sums overlapped as well as can be.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

using namespace llvm;

namespace galvatron {
namespace {

/// A duration between two bounds.
struct Range {
  double lower = 0, upper = 0;

  Range &operator+=(const Range &other) {
    lower += other.lower;
    upper += other.upper;
    return *this;
  }
  friend Range operator+(Range a, const Range &b) { return a += b; }
};

/// What a role's tasks take.
struct RoleTimes {
  Range forward, backward; ///< of a micro-batch, gradients not summed
  double inLine = 0;       ///< all of a backward's operations, one by one
  Range sync;              ///< all sums of gradients
  bool behind = false;     ///< which begin in the last backward
  /// Of the layer that is first in backward: what computes before its
  /// gradients can be summed.
  double first = 0;
  double norm = 0, update = 0;
};

class Bounds {
public:
  explicit Bounds(const SimulationInput &input)
      : input(input), count(input.roles.size()),
        microBatches(static_cast<double>(input.program.microBatches)) {
    countUsers();
    for (size_t role = 0; role < count; ++role)
      roles.push_back(timesOf(role));
    for (const SimulatedCut &cut : input.cuts) {
      activations.push_back(range(cut.activation));
      gradients.push_back(range(cut.gradient));
    }
  }

  StepBounds make() const { return {lower(), upper()}; }

private:
  /// How many operations may share an uplink: a stage is at one of its own at a
  /// time, besides what its collectives do beside its tasks.
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
        for (size_t role : {number, number + 1})
          use(exchange->uplinks, role);
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

  /// Whether a role's collectives run beside other communication of its own.
  bool runsBeside(size_t role) const {
    return syncsBehind(role) ||
           any_of(input.roles[role].layers, [](const SimulatedLayer &layer) {
             return layer.forwardAhead || layer.backwardAhead;
           });
  }

  bool syncsBehind(size_t role) const {
    return any_of(input.program.roles[role].part(SchedulePart::Steady),
                  [](const Task &task) {
                    return task.kind == TaskKind::Backward &&
                           (task.flags & SyncBehind);
                  });
  }

  double shared(double seconds, const std::vector<int32_t> &uplinks) const {
    double most = 1;
    for (int32_t uplink : uplinks)
      most = std::max(most, users.at(uplink));
    return seconds * most;
  }
  Range range(const SimulatedExchange &exchange) const {
    return {exchange.seconds, shared(exchange.seconds, exchange.uplinks)};
  }

  RoleTimes timesOf(size_t number) const {
    const SimulatedRole &role = input.roles[number];
    RoleTimes times;
    times.behind = syncsBehind(number);
    double slowdown = 1;
    for (const SimulatedLayer &layer : role.layers)
      slowdown = std::max(slowdown, layer.time.slowdown);
    bool ahead = false;
    // What computes or exchanges, and what gathers or reduces.
    double computing[2] = {0, 0}, collective[2] = {0, 0};
    Range inOrder;
    for (const SimulatedLayer &layer : role.layers) {
      const LayerTimeParts &time = layer.time;
      ahead |= layer.forwardAhead || layer.backwardAhead;
      Range gather{time.gather, shared(time.gather, layer.sdpUplinks)};
      Range scatter{time.scatter, shared(time.scatter, layer.sdpUplinks)};
      Range tpForward{time.tpForward, shared(time.tpForward, layer.tpUplinks)};
      double back = time.tpRecompute + time.tpBackward;
      Range tpBackward{back, shared(back, layer.tpUplinks)};
      Range reshardForward = range(layer.reshardForward);
      Range reshardBackward = range(layer.reshardBackward);
      double computed = time.recompute + time.backward;

      computing[0] += time.forward + time.tpForward + reshardForward.lower;
      collective[0] += time.gather;
      computing[1] += computed + back + reshardBackward.lower;
      collective[1] += time.gather + time.scatter;

      times.forward += gather + tpForward + reshardForward;
      times.forward += {time.forward, time.forward};
      inOrder += gather + tpBackward + reshardBackward;
      inOrder += {overlapSeconds(computed, scatter.lower, slowdown),
                  overlapSeconds(computed, scatter.upper, slowdown)};
      times.inLine += computed + gather.upper + scatter.upper +
                      tpBackward.upper + reshardBackward.upper;
      times.sync += {time.sync, shared(time.sync, layer.dpUplinks)};
      times.norm += time.norm;
      times.update += time.update;
    }
    times.backward = inOrder;
    if (ahead) {
      times.forward.lower =
          overlapSeconds(computing[0], collective[0], slowdown);
      times.backward = {overlapSeconds(computing[1], collective[1], slowdown),
                        times.inLine};
    }
    const LayerTimeParts &last = role.layers.back().time;
    times.first = last.recompute + last.backward;
    return times;
  }

  /// A role's messages of one micro-batch: what it exchanges with the next role
  /// and with the one before.
  double messages(size_t role, double Range::*bound) const {
    double sum = 0;
    if (role + 1 < count)
      sum += std::max(activations[role].*bound, gradients[role].*bound);
    if (role > 0)
      sum += std::max(activations[role - 1].*bound, gradients[role - 1].*bound);
    return sum;
  }
  double period(size_t role, double Range::*bound) const {
    return roles[role].forward.*bound + roles[role].backward.*bound +
           messages(role, bound);
  }

  /// When stage 0 ends its last backward pass, at the latest.
  double latestEnd() const {
    double sum = 0, slowest = 0, forward = 0, backward = 0;
    for (size_t role = 0; role < count; ++role) {
      const RoleTimes &times = roles[role];
      sum += times.forward.upper + times.backward.upper;
      // The last backward, with sums of gradients beside it.
      if (times.behind)
        sum += std::max(0.0, times.inLine - times.backward.upper) +
               times.sync.upper;
      double sends = 0, returns = 0;
      if (role + 1 < count) {
        sends = activations[role].upper;
        returns = gradients[role].upper;
        sum += sends + returns;
      }
      slowest = std::max(slowest, period(role, &Range::upper));
      if (role > 0) {
        sends += activations[role - 1].upper;
        returns += gradients[role - 1].upper;
      }
      forward = std::max(forward, times.forward.upper + sends);
      backward = std::max(backward, times.backward.upper + returns);
    }
    bool gpipe = input.program.schedule == ScheduleKind::GPipe;
    return sum + (microBatches - 1) * (gpipe ? forward + backward : slowest);
  }

  double upper() const {
    double end = latestEnd(), after = 0, later = 0, latest = 0;
    double norm = 0, update = 0;
    for (const RoleTimes &times : roles) {
      // Stage i ends before stage 0 by what comes in between; what is summed
      // behind its last backward is in latestEnd().
      double tail = times.sync.upper;
      latest = std::max(latest, end - later + tail);
      later += times.backward.lower;
      norm = std::max(norm, times.norm);
      update = std::max(update, times.update);
    }
    for (const SimulatedTie &tie : input.ties)
      after += range(tie.reduce).upper + range(tie.broadcast).upper;
    return latest + norm + update + after;
  }

  /// By role: when it ends its last backward pass, at the earliest.
  std::vector<double> earliestEnds() const {
    double trip = 0; // of one micro-batch, there and back
    for (size_t role = 0; role < count; ++role) {
      trip += roles[role].forward.lower + roles[role].backward.lower;
      if (role + 1 < count)
        trip += activations[role].lower + gradients[role].lower;
    }
    double before = 0;  // until the first micro-batch reaches the stage
    double remains = 0; // of a trip, once it has left the stage backward
    std::vector<double> ends;
    for (size_t role = 0; role < count; ++role) {
      const RoleTimes &times = roles[role];
      auto message = [&](size_t cut) {
        return std::max(activations[cut].lower, gradients[cut].lower);
      };
      double own = times.forward.lower + times.backward.lower;
      double next = role + 1 < count ? message(role) : 0;
      double previous = role > 0 ? message(role - 1) : 0;
      // The stage is never idle once it has begun ...
      double busy =
          before + microBatches * (own + next) + (microBatches - 1) * previous;
      // ... or it is while the first micro-batch is away: all it can do then is
      // what it has slots for.
      auto slots = static_cast<double>(input.program.roles[role].slots);
      double waits = trip - remains + (microBatches - 1) * own -
                     (slots - 1) * times.forward.lower +
                     (microBatches - slots) * (next + previous);
      ends.push_back(std::max(busy, waits));
      before += times.forward.lower;
      remains += times.backward.lower;
      if (role + 1 < count) {
        before += activations[role].lower;
        remains += gradients[role].lower;
      }
    }
    if (input.program.schedule == ScheduleKind::GPipe)
      ends[0] = std::max(ends[0], phases());
    // The last gradient goes through all stages before.
    for (size_t role = count - 1; role-- > 0;)
      ends[role] = std::max(ends[role], ends[role + 1] + gradients[role].lower +
                                            roles[role].backward.lower);
    return ends;
  }

  double lower() const {
    std::vector<double> ends = earliestEnds();
    double total = 0, update = 0;
    for (size_t role = 0; role < count; ++role) {
      const RoleTimes &times = roles[role];
      double end = ends[role];
      if (times.behind)
        end = std::max(end, end - times.backward.lower + times.first +
                                times.sync.lower);
      else
        end += times.sync.lower + (role > 0 ? gradients[role - 1].lower : 0);
      total = std::max(total, end + times.norm);
      update = std::max(update, times.update);
    }
    return total + update;
  }

  /// GPipe's forwards up to the last stage, and its backwards from there.
  double phases() const {
    double forward = 0, backward = 0, forwards = 0, backwards = 0;
    for (size_t role = 0; role < count; ++role) {
      const RoleTimes &times = roles[role];
      forwards += times.forward.lower;
      backwards += times.backward.lower;
      if (role + 1 < count) {
        forwards += activations[role].lower;
        backwards += gradients[role].lower;
      }
      forward = std::max(forward, times.forward.lower);
      backward = std::max(backward, times.backward.lower);
    }
    return forwards + backwards + (microBatches - 1) * (forward + backward);
  }

  const SimulationInput &input;
  size_t count;
  double microBatches;
  std::map<int32_t, double> users; ///< by uplink
  std::vector<RoleTimes> roles;
  std::vector<Range> activations, gradients; ///< by cut
};

} // namespace

StepBounds stepBounds(const SimulationInput &input) {
  return Bounds(input).make();
}

} // namespace galvatron
