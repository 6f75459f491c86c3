//===- ListedPasses.cpp - Passes listed for the times they take -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two steps. The first lists the passes of every role, as "Zero Bubble Pipeline
// Parallelism" (Qi et al., ICLR 2024) does: forward passes ahead, as far as
// they fit, then rounds of an input part and a forward pass on every role, and
// weight parts where a role would wait anyway or where there is no room left.
// It looks at messages as if they took time and no role. How many forward
// passes go ahead in a line is one of what is tried: from as many as under 1F1B
// to twice as many, or those that a role has time for while the first
// micro-batch is away.
//
// The second puts the messages between the passes. There a message holds up
// both of its roles, and needs the place that it goes to: the only one of a
// role for an output that waits, for a gradient that came and for one that
// leaves, and a slot of the chunk. Where these places are one region a gradient
// comes only in front of its input part, and a pass finds nothing left to be
// sent. In which order places are used follows from the order of passes alone,
// so whether the lists can be run at all does not depend on times: those for
// equal times in a V always can, which a test holds for all sizes. Lists that
// cannot are left out.
//
// The open choices, how early messages go and where weight parts fill, are
// tried.
//
//===----------------------------------------------------------------------===//

#include "ListedPasses.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <limits>
#include <optional>
#include <set>

using namespace llvm;

namespace galvatron {

int64_t ListedShape::slots(int64_t chunk) const {
  if (perRole == 1)
    return mostHeld;
  // All micro-batches go forward first if there are few; with more of them the
  // way up needs less, as it begins to go back before the way down has ended.
  int64_t fewest =
      std::max<int64_t>(1, std::min(microBatches, 2 * roles - microBatches));
  return std::clamp(2 * roles - chunk, fewest, microBatches);
}

namespace {

struct Pass {
  TaskKind kind;
  int64_t chunk, microBatch;
  bool operator==(const Pass &other) const = default;
};
/// The passes of each role, by role.
using PassLists = std::vector<std::vector<Pass>>;

int64_t lengthOf(TaskKind kind, const PassTimes &times) {
  return kind == TaskKind::Forward         ? times.forward
         : kind == TaskKind::BackwardInput ? times.input
                                           : times.weight;
}

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

/// Waits that a weight part fills although it takes longer than the wait.
struct FillRule {
  bool beforeForward, beforeInput;
};

/// The common part of lists in a line and in a V.
class PassLister {
public:
  PassLister(const ListedShape &shape, ArrayRef<PassTimes> times, FillRule rule)
      : shape(shape), times(times), rule(rule), roles(shape.roles),
        forwardEnds(shape.chunks()), inputEnds(shape.chunks()),
        clocks(shape.roles), waited(shape.roles), held(shape.roles),
        weights(shape.roles), weightsRun(shape.chunks()), lists(shape.roles) {}

protected:
  static int64_t down(int64_t role) { return role; }
  int64_t forwards(int64_t chunk) const {
    return static_cast<int64_t>(forwardEnds[chunk].size());
  }
  int64_t inputs(int64_t chunk) const {
    return static_cast<int64_t>(inputEnds[chunk].size());
  }
  int64_t messageTime(int64_t from, int64_t to) const {
    return shape.home(from) == shape.home(to)
               ? 0
               : times[std::min(from, to)].message;
  }

  /// Time at which all that the next pass of a chunk needs of others is there;
  /// nothing if it is not known yet.
  std::optional<int64_t> ready(TaskKind kind, int64_t chunk) const {
    bool isForward = kind == TaskKind::Forward;
    const auto &ends = isForward ? forwardEnds : inputEnds;
    int64_t from = isForward ? chunk - 1 : chunk + 1;
    if (from < 0 || from == shape.chunks())
      return 0;
    size_t microBatch = ends[chunk].size();
    if (ends[from].size() <= microBatch)
      return std::nullopt;
    return ends[from][microBatch] + messageTime(from, chunk);
  }

  /// The next micro-batch of a chunk; nothing if there is none left, or if it
  /// cannot be run yet.
  void run(TaskKind kind, int64_t chunk) {
    auto &ends = kind == TaskKind::Forward ? forwardEnds : inputEnds;
    auto microBatch = static_cast<int64_t>(ends[chunk].size());
    std::optional<int64_t> from = ready(kind, chunk);
    bool isInput = kind == TaskKind::BackwardInput;
    if (microBatch == shape.microBatches || !from ||
        (isInput && forwards(chunk) <= microBatch))
      return;
    int64_t role = shape.home(chunk);
    int64_t begin = std::max(*from, clocks[role]);
    if (forwards(down(role)) > 0)
      waited[role] += begin - clocks[role];
    clocks[role] = begin + lengthOf(kind, times[chunk]);
    ends[chunk].push_back(clocks[role]);
    lists[role].push_back({kind, chunk, microBatch});
    if (isInput)
      weights[role].push_back(chunk);
    else
      ++held[role];
  }

  void runWeight(int64_t role) {
    int64_t chunk = weights[role].front();
    weights[role].pop_front();
    clocks[role] += times[chunk].weight;
    lists[role].push_back(
        {TaskKind::BackwardWeight, chunk, weightsRun[chunk]++});
    --held[role];
  }

  /// Weight parts while a role waits for `until`, if that is known: those that
  /// fit, and one more where it would otherwise wait longer than any role has.
  void fill(int64_t role, std::optional<int64_t> until, bool fillsMore) {
    if (!until || *until == 0)
      return;
    while (!weights[role].empty() &&
           *until >= clocks[role] + times[weights[role].front()].weight)
      runWeight(role);
    int64_t most = *std::max_element(waited.begin(), waited.end());
    if (!weights[role].empty() && fillsMore &&
        *until - clocks[role] > most - waited[role])
      runWeight(role);
  }

  /// The next micro-batch of a chunk, behind weight parts that fill the wait
  /// for it or make room.
  void fillAndRun(TaskKind kind, int64_t chunk, bool fillsMore) {
    int64_t role = shape.home(chunk);
    bool isForward = kind == TaskKind::Forward;
    while (isForward && held[role] >= shape.mostHeld && !weights[role].empty())
      runWeight(role);
    fill(role, ready(kind, chunk), fillsMore);
    run(kind, chunk);
  }

  /// Lists what is left.
  PassLists finish() {
    for (int64_t role = 0; role < roles; ++role)
      while (!weights[role].empty())
        runWeight(role);
    return std::move(lists);
  }

  const ListedShape &shape;
  ArrayRef<PassTimes> times; ///< by chunk
  FillRule rule;
  int64_t roles;
  std::vector<std::vector<int64_t>> forwardEnds, inputEnds; ///< by chunk
  std::vector<int64_t> clocks, waited;                      ///< by role
  std::vector<int64_t> held; ///< micro-batches of a role's chunks
  std::vector<std::deque<int64_t>> weights; ///< chunks, by role, not run yet
  std::vector<int64_t> weightsRun;          ///< by chunk
  PassLists lists;
};

class LineLister : public PassLister {
public:
  /// `ahead`: by role, forward passes in front of the first input part; no more
  /// than the role before has.
  LineLister(const ListedShape &shape, ArrayRef<PassTimes> times, FillRule rule,
             ArrayRef<int64_t> ahead)
      : PassLister(shape, times, rule), ahead(ahead) {}

  PassLists list() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t role = 0; role < roles; ++role)
        moved |= runNext(role);
    }
    return finish();
  }

private:
  /// False if it cannot be run yet, or none is left.
  bool runNext(int64_t role) {
    if (inputs(role) == shape.microBatches)
      return false;
    bool isForward = forwards(role) < shape.microBatches &&
                     forwards(role) < inputs(role) + ahead[role];
    TaskKind kind = isForward ? TaskKind::Forward : TaskKind::BackwardInput;
    if (!ready(kind, role))
      return false;
    fillAndRun(kind, role, isForward ? rule.beforeForward : rule.beforeInput);
    return true;
  }

  ArrayRef<int64_t> ahead;
};

class VLister : public PassLister {
public:
  using PassLister::PassLister;

  PassLists list() {
    begin();
    runAhead();
    for (int64_t round = 0; round < 2 * shape.microBatches; ++round) {
      for (int64_t chunk : inputsOfRound())
        runInput(chunk);
      for (int64_t role = 0; role < roles; ++role)
        runForward(role);
    }
    return finish();
  }

private:
  int64_t up(int64_t role) const { return shape.chunks() - 1 - role; }

  /// The first micro-batch goes forward, and others behind it while it is away.
  void begin() {
    for (int64_t role = 0; role < roles; ++role)
      run(TaskKind::Forward, down(role));
    for (int64_t role = roles; role-- > 0;) {
      if (role + 1 < roles) {
        int64_t back = *ready(TaskKind::Forward, up(role));
        while (held[role] + 2 * (role + 1) <= 2 * roles &&
               clocks[role] + times[down(role)].forward <= back &&
               forwards(down(role)) < shape.microBatches)
          for (int64_t before = 0; before <= role; ++before)
            run(TaskKind::Forward, down(before));
      }
      run(TaskKind::Forward, up(role));
    }
  }

  /// Runs forward passes until gradients come: roles go forward in both of
  /// their chunks in turns, as often as the role before, and further on the way
  /// up.
  void runAhead() {
    bool isUp = false;
    auto all = [&](int64_t role) {
      return forwards(down(role)) + forwards(up(role));
    };
    auto isBehind = [&](int64_t role) {
      return all(role) < all(role - 1) ||
             (forwards(up(role)) <= forwards(up(role - 1)) &&
              forwards(up(role - 1)) < shape.microBatches);
    };
    for (int64_t role = 1; role < roles; ++role) {
      // The loop ends if there is nothing to run in either direction.
      for (int idle = 0; idle < 2 && isBehind(role); isUp = !isUp) {
        int64_t before = all(role);
        for (int64_t behind = roles; behind-- > role;)
          run(TaskKind::Forward, isUp ? up(behind) : down(behind));
        idle = all(role) > before ? 0 : idle + 1;
      }
    }
  }

  /// Chunks of which an input part is run in this round, in an order in which
  /// they can be.
  std::vector<int64_t> inputsOfRound() const {
    std::vector<int64_t> ofDown, ofUp;
    for (int64_t role = 0; role < roles; ++role) {
      bool isDown =
          inputs(down(role)) < inputs(up(role)) &&
          (role + 1 == roles || ready(TaskKind::BackwardInput, down(role)) ||
           inputs(up(role)) == shape.microBatches);
      (isDown ? ofDown : ofUp).push_back(isDown ? down(role) : up(role));
    }
    std::reverse(ofDown.begin(), ofDown.end());
    ofDown.insert(ofDown.end(), ofUp.begin(), ofUp.end());
    return ofDown;
  }

  void runInput(int64_t chunk) {
    if (inputs(chunk) == shape.microBatches)
      return;
    fillAndRun(TaskKind::BackwardInput, chunk,
               chunk == down(shape.home(chunk)) || rule.beforeInput);
  }

  void runForward(int64_t role) {
    if (forwards(up(role)) == shape.microBatches)
      return;
    int64_t chunk = down(role);
    if (forwards(up(role)) < forwards(down(role)) &&
        (role + 1 == roles || ready(TaskKind::Forward, up(role))))
      chunk = up(role);
    else if (forwards(down(role)) == shape.microBatches ||
             !ready(TaskKind::Forward, down(role)))
      return;
    fillAndRun(TaskKind::Forward, chunk, rule.beforeForward);
  }
};

/// The forward passes that each role has time for until the first gradient
/// comes back. `oneMore`: also one that lets that wait.
std::vector<int64_t> forwardsWhileAway(const ListedShape &shape,
                                       ArrayRef<PassTimes> times,
                                       bool oneMore) {
  // Times at which the first micro-batch has gone forward on a role, and comes
  // back.
  std::vector<int64_t> gone, back(shape.roles);
  for (int64_t role = 0; role < shape.roles; ++role)
    gone.push_back(times[role].forward +
                   (role ? gone.back() + times[role - 1].message : 0));
  back.back() = gone.back();
  for (int64_t role = shape.roles - 1; role-- > 0;)
    back[role] = back[role + 1] + times[role + 1].input + times[role].message;
  int64_t most = std::min(shape.mostHeld, shape.microBatches);
  std::vector<int64_t> ahead;
  std::vector<int64_t> before; // ends of the role before
  for (int64_t role = 0; role < shape.roles; ++role) {
    int64_t message = role ? times[role - 1].message : 0;
    std::vector<int64_t> ends = {gone[role]};
    int64_t limit = role ? ahead.back() : most;
    while (static_cast<int64_t>(ends.size()) < limit) {
      int64_t begin = ends.back() + times[role].message;
      if (role)
        begin = std::max(begin, before[ends.size()]) + message;
      int64_t end = begin + times[role].forward;
      if ((oneMore ? begin : end) > back[role])
        break;
      ends.push_back(end);
    }
    ahead.push_back(static_cast<int64_t>(ends.size()));
    before = std::move(ends);
  }
  return ahead;
}

/// The number of forward passes of each role that stand in front of the first
/// input part: the ways that are tried.
std::vector<std::vector<int64_t>> waysAhead(const ListedShape &shape,
                                            ArrayRef<PassTimes> times) {
  std::vector<std::vector<int64_t>> ways;
  auto add = [&](std::vector<int64_t> way) {
    if (!is_contained(ways, way))
      ways.push_back(std::move(way));
  };
  // Try to run as far ahead as under 1F1B, up to twice as far, within the
  // slots.
  int64_t most = std::min(shape.mostHeld, shape.microBatches);
  for (int64_t quarters = 4; quarters <= 8; ++quarters) {
    std::vector<int64_t> way;
    for (int64_t behind = shape.roles; behind-- > 0;)
      way.push_back(std::min(most, 1 + (quarters * behind + 3) / 4));
    add(std::move(way));
  }
  for (bool oneMore : {false, true})
    add(forwardsWhileAway(shape, times, oneMore));
  return ways;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

class MessagePlacer {
public:
  /// `early`: a message goes as soon as both roles are between two passes;
  /// else when one of them cannot go on without it.
  MessagePlacer(const ListedShape &shape, ArrayRef<PassTimes> times,
                const PassLists &lists, bool early)
      : shape(shape), times(times), lists(lists), early(early),
        busyUntil(shape.roles), next(shape.roles), outputs(shape.roles),
        gradientsOut(shape.roles), gradientsIn(shape.roles),
        inputOrder(shape.roles), inputsRun(shape.roles),
        slotsTaken(shape.chunks()), arrived(shape.chunks()) {
    std::fill(arrived.begin(), arrived.end(), -1);
    for (size_t role = 0; role < lists.size(); ++role) {
      left += lists[role].size();
      for (const Pass &pass : lists[role])
        if (pass.kind == TaskKind::BackwardInput &&
            pass.chunk + 1 < shape.chunks())
          inputOrder[role].push_back({pass.chunk, pass.microBatch});
    }
  }

  /// False: some role waits for ever.
  bool run() {
    while (left > 0) {
      bool moved = true;
      while (moved) {
        moved = false;
        for (int64_t role = 0; role < shape.roles; ++role) {
          moved |= sendOutput(role);
          moved |= sendGradient(role);
        }
        for (int64_t role = 0; role < shape.roles; ++role)
          moved |= runNext(role);
      }
      auto later = moments.upper_bound(now);
      if (left > 0 && later == moments.end())
        return false;
      if (left > 0)
        now = *later;
    }
    return true;
  }

  ListedSteps takeSteps() { return std::move(steps); }

private:
  struct Held {
    int64_t chunk = -1, microBatch = -1;
    bool operator==(const Held &other) const = default;
    bool isFree() const { return chunk < 0; }
  };

  bool isIdle(int64_t role) const { return busyUntil[role] <= now; }
  const Pass *nextOf(int64_t role) const {
    return next[role] < lists[role].size() ? &lists[role][next[role]] : nullptr;
  }
  bool isNext(int64_t role, TaskKind kind, int64_t chunk) const {
    const Pass *pass = nextOf(role);
    return pass && pass->kind == kind && pass->chunk == chunk;
  }
  /// True if a role's next pass needs the place of what waits to be sent. That
  /// of the last chunk, and the input part of the first one, use it too.
  bool needsPlace(int64_t role, TaskKind kind) const {
    const Pass *pass = nextOf(role);
    return !pass || pass->kind == kind ||
           (shape.sharesBoundary && pass->kind != TaskKind::BackwardWeight);
  }
  /// True if a gradient would stand in the way of what a role does before it.
  bool comesTooEarly(int64_t role, const Held &gradient) const {
    if (!shape.sharesBoundary)
      return false;
    size_t number = next[role];
    while (lists[role][number].kind == TaskKind::BackwardWeight)
      ++number;
    return lists[role][number].kind != TaskKind::BackwardInput ||
           lists[role][number].microBatch != gradient.microBatch ||
           !gradientsOut[role].isFree();
  }

  void busy(int64_t role, int64_t time) {
    busyUntil[role] = now + time;
    moments.insert(now + time);
  }

  void message(TransferValue value, const Held &held, int64_t from,
               int64_t to) {
    steps.push_back({TaskKind::Transfer, value, held.chunk, held.microBatch});
    if (from == to)
      return;
    int64_t front = held.chunk - (value == TransferValue::Gradient ? 1 : 0);
    busy(from, times[front].message);
    busy(to, times[front].message);
  }

  bool sendOutput(int64_t role) {
    Held &output = outputs[role];
    if (output.isFree() || !isIdle(role))
      return false;
    int64_t chunk = output.chunk + 1, to = shape.home(chunk);
    bool wanted = early || isNext(to, TaskKind::Forward, chunk) ||
                  needsPlace(role, TaskKind::Forward);
    if (!wanted || !isIdle(to) || slotsTaken[chunk] == shape.slots(chunk))
      return false;
    ++slotsTaken[chunk];
    arrived[chunk] = output.microBatch;
    message(TransferValue::Activation, output, role, to);
    output = {};
    return true;
  }

  bool sendGradient(int64_t role) {
    Held &gradient = gradientsOut[role];
    if (gradient.isFree() || !isIdle(role))
      return false;
    Held received = {gradient.chunk - 1, gradient.microBatch};
    int64_t to = shape.home(received.chunk);
    bool wanted = early ||
                  isNext(to, TaskKind::BackwardInput, received.chunk) ||
                  needsPlace(role, TaskKind::BackwardInput);
    // The place is only for the gradient that is used next.
    if (!wanted || !isIdle(to) || !gradientsIn[to].isFree() ||
        !(inputOrder[to][inputsRun[to]] == received) ||
        comesTooEarly(to, received))
      return false;
    gradientsIn[to] = received;
    message(TransferValue::Gradient, gradient, role, to);
    gradient = {};
    return true;
  }

  /// True if gradients take the place that a forward pass would use.
  bool isBoundaryTaken(int64_t role) const {
    return shape.sharesBoundary &&
           !(gradientsIn[role].isFree() && gradientsOut[role].isFree());
  }

  bool runNext(int64_t role) {
    const Pass *pass = nextOf(role);
    if (!pass || !isIdle(role))
      return false;
    auto [kind, chunk, microBatch] = *pass;
    if (kind == TaskKind::Forward) {
      bool isFirst = chunk == 0, isLast = chunk + 1 == shape.chunks();
      if (!outputs[role].isFree() || isBoundaryTaken(role) ||
          (isFirst ? slotsTaken[0] == shape.slots(0)
                   : arrived[chunk] < microBatch))
        return false;
      slotsTaken[0] += isFirst;
      if (!isLast)
        outputs[role] = {chunk, microBatch};
    } else if (kind == TaskKind::BackwardInput) {
      Held gradient = {chunk, microBatch};
      bool comes = chunk + 1 < shape.chunks();
      if (!gradientsOut[role].isFree() ||
          (shape.sharesBoundary && !outputs[role].isFree()) ||
          (comes && !(gradientsIn[role] == gradient)))
        return false;
      if (comes) {
        gradientsIn[role] = {};
        ++inputsRun[role];
      }
      if (chunk > 0)
        gradientsOut[role] = gradient;
    } else {
      --slotsTaken[chunk];
    }
    steps.push_back({kind, TransferValue::Activation, chunk, microBatch});
    ++next[role];
    --left;
    busy(role, lengthOf(kind, times[chunk]));
    return true;
  }

  const ListedShape &shape;
  ArrayRef<PassTimes> times; ///< by chunk
  const PassLists &lists;
  bool early;
  int64_t now = 0;
  size_t left = 0;
  std::set<int64_t> moments;
  std::vector<int64_t> busyUntil; ///< by role
  std::vector<size_t> next;
  std::vector<Held> outputs, gradientsOut, gradientsIn;
  /// Input parts of each role that need a gradient, and how many were run.
  std::vector<std::vector<Held>> inputOrder;
  std::vector<size_t> inputsRun;
  std::vector<int64_t> slotsTaken; ///< by chunk
  std::vector<int64_t> arrived;    ///< by chunk, the last micro-batch
  ListedSteps steps;
};

} // namespace

/// Time until all roles have run their part of the steps.
static int64_t stepLength(const ListedShape &shape, ArrayRef<PassTimes> times,
                          ArrayRef<ListedStep> steps) {
  std::vector<int64_t> clocks(shape.roles, 0);
  for (const ListedStep &step : steps) {
    int64_t &clock = clocks[shape.home(step.chunk)];
    if (step.kind != TaskKind::Transfer) {
      clock += lengthOf(step.kind, times[step.chunk]);
      continue;
    }
    bool isGradient = step.value == TransferValue::Gradient;
    int64_t to = isGradient ? step.chunk - 1 : step.chunk + 1;
    int64_t &other = clocks[shape.home(to)];
    if (&other != &clock)
      clock = other =
          std::max(clock, other) + times[std::min(step.chunk, to)].message;
  }
  return *std::max_element(clocks.begin(), clocks.end());
}

/// Time until all roles have run their passes, if messages took time and no
/// role; nothing if some role waits for ever.
static std::optional<int64_t> leastLength(const ListedShape &shape,
                                          ArrayRef<PassTimes> times,
                                          const PassLists &lists) {
  std::vector<std::vector<int64_t>> forwards(shape.chunks()),
      inputs(shape.chunks()); // ends, by chunk
  std::vector<size_t> next(shape.roles);
  std::vector<int64_t> clocks(shape.roles);
  auto run = [&](int64_t role) {
    const auto &[kind, chunk, microBatch] = lists[role][next[role]];
    int64_t &clock = clocks[role];
    if (kind != TaskKind::BackwardWeight) {
      auto &all = kind == TaskKind::Forward ? forwards : inputs;
      int64_t from = kind == TaskKind::Forward ? chunk - 1 : chunk + 1;
      if (from >= 0 && from < shape.chunks()) {
        if (static_cast<int64_t>(all[from].size()) <= microBatch)
          return false;
        bool stays = shape.home(from) == role;
        clock = std::max(
            clock, all[from][microBatch] +
                       (stays ? 0 : times[std::min(from, chunk)].message));
      }
      all[chunk].push_back(clock + lengthOf(kind, times[chunk]));
    }
    clock += lengthOf(kind, times[chunk]);
    ++next[role];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t role = 0; role < shape.roles; ++role)
      while (next[role] < lists[role].size() && run(role))
        moved = true;
  }
  for (int64_t role = 0; role < shape.roles; ++role)
    if (next[role] < lists[role].size())
      return std::nullopt;
  return *std::max_element(clocks.begin(), clocks.end());
}

void listOrders(const ListedShape &shape, ArrayRef<PassTimes> times,
                int64_t most, function_ref<int64_t(ListedSteps)> visit) {
  const std::vector<PassTimes> alike(shape.chunks());
  std::vector<PassLists> seen;
  auto place = [&](PassLists lists) {
    size_t count = 0;
    for (const std::vector<Pass> &list : lists)
      count += list.size();
    // Rounds may end before everything was run.
    if (count != static_cast<size_t>(3 * shape.chunks() * shape.microBatches) ||
        is_contained(seen, lists))
      return;
    std::optional<int64_t> least = leastLength(shape, times, lists);
    if (!least || *least >= most)
      return;
    // Placed for either times, as a role that is done early may well wait.
    for (ArrayRef<PassTimes> placedFor : {ArrayRef(alike), times})
      for (bool early : {false, true}) {
        MessagePlacer placer(shape, placedFor, lists, early);
        if (placer.run())
          most = visit(placer.takeSteps());
      }
    seen.push_back(std::move(lists));
  };
  for (ArrayRef<PassTimes> listedFor : {ArrayRef(alike), times}) {
    for (FillRule rule : {FillRule{true, true}, FillRule{true, false},
                          FillRule{false, true}, FillRule{false, false}}) {
      if (shape.perRole == 2)
        place(VLister(shape, listedFor, rule).list());
      else
        for (const std::vector<int64_t> &ahead : waysAhead(shape, listedFor))
          place(LineLister(shape, listedFor, rule, ahead).list());
    }
    if (times == listedFor)
      break;
  }
}

ListedSteps listPasses(const ListedShape &shape, ArrayRef<PassTimes> times) {
  int64_t least = std::numeric_limits<int64_t>::max();
  ListedSteps best;
  listOrders(shape, times, least, [&](ListedSteps steps) {
    int64_t length = stepLength(shape, times, steps);
    if (length < least) {
      least = length;
      best = std::move(steps);
    }
    return least;
  });
  assert(!best.empty() && "lists for equal times can be run");
  return best;
}

ListedSteps listForwards(const ListedShape &shape) {
  // A micro-batch is in a chunk one tick later than in the one before, and two
  // ticks behind the micro-batch before: so a role's chunks take turns.
  ListedSteps steps;
  int64_t ticks = shape.chunks() + 2 * (shape.microBatches - 1);
  auto atTick = [&](int64_t tick, auto visit) {
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk)
      if (int64_t ahead = tick - chunk;
          ahead >= 0 && ahead % 2 == 0 && ahead / 2 < shape.microBatches)
        visit(chunk, ahead / 2);
  };
  for (int64_t tick = 0; tick < ticks; ++tick) {
    atTick(tick, [&](int64_t chunk, int64_t microBatch) {
      if (chunk > 0)
        steps.push_back({TaskKind::Transfer, TransferValue::Activation,
                         chunk - 1, microBatch});
    });
    atTick(tick, [&](int64_t chunk, int64_t microBatch) {
      steps.push_back(
          {TaskKind::Forward, TransferValue::Activation, chunk, microBatch});
    });
  }
  return steps;
}

} // namespace galvatron
