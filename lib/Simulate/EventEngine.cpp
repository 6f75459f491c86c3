//===- EventEngine.cpp - Operations on streams, run in time ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/EventEngine.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cassert>
#include <queue>

using namespace llvm;

namespace galvatron {

StringRef streamName(Stream stream) {
  switch (stream) {
  case Stream::Compute:
    return "compute";
  case Stream::Exchange:
    return "exchange";
  case Stream::Collective:
    return "collective";
  case Stream::Send:
    return "send";
  case Stream::Receive:
    return "receive";
  case Stream::CopyIn:
    return "copy in";
  case Stream::CopyOut:
    return "copy out";
  case Stream::Posted:
    return "posted";
  }
  llvm_unreachable("all streams are handled");
}

OperationId EventEngine::add(const Operation &operation,
                             ArrayRef<OperationId> after) {
  assert(operation.work >= 0 && "time does not run backwards");
  auto id = static_cast<OperationId>(operations.size());
  operations.push_back(operation);
  append_range(before, after);
  beforeEnd.push_back(before.size());
  return id;
}

int32_t EventEngine::addUplinks(ArrayRef<int32_t> uplinks) {
  if (uplinks.empty())
    return -1;
  uplinkSets.emplace_back(uplinks.begin(), uplinks.end());
  return static_cast<int32_t>(uplinkSets.size()) - 1;
}

namespace {

constexpr Stream kCommunication[] = {Stream::Exchange, Stream::Collective,
                                     Stream::Send, Stream::Receive};

/// One run over the operations.
class Run {
public:
  Run(ArrayRef<double> slowdowns, ArrayRef<char> oneQueue,
      ArrayRef<Operation> operations, ArrayRef<OperationId> before,
      ArrayRef<size_t> beforeEnd, ArrayRef<std::vector<int32_t>> uplinkSets,
      int32_t joinCount)
      : slowdowns(slowdowns), oneQueue(oneQueue), operations(operations),
        uplinkSets(uplinkSets) {
    size_t count = operations.size();
    pending.resize(count);
    nextInStream.assign(count, -1);
    afterEnd.assign(count, 0);
    for (OperationId id : before)
      ++afterEnd[id];
    size_t sum = 0;
    for (size_t &end : afterEnd)
      end = sum += end;
    after.resize(before.size());
    std::vector<size_t> fill(afterEnd);
    for (size_t id = count; id-- > 0;) {
      size_t begin = id ? beforeEnd[id - 1] : 0;
      pending[id] = static_cast<int32_t>(beforeEnd[id] - begin);
      for (size_t i = begin; i < beforeEnd[id]; ++i)
        after[--fill[before[i]]] = static_cast<OperationId>(id);
    }
    heads.assign(slowdowns.size() * kStreamCount, -1);
    active.assign(heads.size(), -1);
    std::vector<OperationId> tails(heads.size(), -1);
    joins.resize(joinCount);
    for (size_t id = 0; id < count; ++id) {
      size_t stream = streamOf(id);
      OperationId &tail = tails[stream];
      (tail < 0 ? heads[stream] : nextInStream[tail]) =
          static_cast<OperationId>(id);
      tail = static_cast<OperationId>(id);
      if (operations[id].join >= 0)
        ++joins[operations[id].join].missing;
    }
    state.resize(count);
    int32_t uplinkCount = 0;
    for (const std::vector<int32_t> &set : uplinkSets)
      for (int32_t uplink : set)
        uplinkCount = std::max(uplinkCount, uplink + 1);
    uplinks.resize(uplinkCount);
    timeline.start.assign(count, 0);
    timeline.finish.assign(count, 0);
  }

  Timeline run() {
    for (OperationId head : heads)
      if (head >= 0 && pending[head] == 0)
        arrive(head);
    size_t done = 0;
    while (!queue.empty()) {
      Event event = queue.top();
      queue.pop();
      if (event.version != state[event.id].version)
        continue;
      ++timeline.events;
      now = event.time;
      finish(event.id);
      ++done;
    }
    timeline.end = now;
    if (done < operations.size())
      for (OperationId head : heads)
        if (head >= 0 && (timeline.stuck < 0 || head < timeline.stuck))
          timeline.stuck = head;
    return std::move(timeline);
  }

private:
  struct Event {
    double time;
    OperationId id;
    uint32_t version;
    /// Earliest first; the number decides between equals, for determinism.
    bool operator<(const Event &other) const {
      return time != other.time ? time > other.time : id > other.id;
    }
  };
  struct State {
    double remaining = 0, since = 0, rate = 0;
    uint32_t version = 0;
  };
  struct Join {
    int32_t missing = 0;
    SmallVector<OperationId, 2> waiting;
    SmallVector<OperationId, 2> queued; ///< that run, of one queue each
  };

  struct Flow {
    int32_t number;
    int32_t users;
  };
  struct Uplink {
    std::vector<OperationId> users; ///< operations that run
    SmallVector<Flow, 4> flows;
  };

  size_t streamOf(size_t id) const {
    return static_cast<size_t>(operations[id].actor) * kStreamCount +
           static_cast<size_t>(operations[id].stream);
  }
  OperationId activeOn(int32_t actor, Stream stream) const {
    return active[static_cast<size_t>(actor) * kStreamCount +
                  static_cast<size_t>(stream)];
  }

  /// The operation is the first of its stream and comes after nothing that
  /// still runs.
  void arrive(OperationId id) {
    int32_t number = operations[id].join;
    if (number < 0) {
      start(id);
      return;
    }
    Join &join = joins[number];
    join.waiting.push_back(id);
    if (--join.missing > 0)
      return;
    for (OperationId member : join.waiting)
      start(member);
    join.waiting.clear();
  }

  void start(OperationId id) {
    ++timeline.events;
    timeline.start[id] = now;
    active[streamOf(id)] = id;
    state[id].remaining = operations[id].work;
    state[id].since = now;
    if (operations[id].work > 0)
      enter(id, true);
    setRate(id);
  }

  void finish(OperationId id) {
    timeline.finish[id] = now;
    size_t stream = streamOf(id);
    active[stream] = -1;
    heads[stream] = nextInStream[id];
    if (operations[id].work > 0)
      enter(id, false);
    OperationId next = heads[stream];
    if (next >= 0 && pending[next] == 0)
      arrive(next);
    for (size_t i = id ? afterEnd[id - 1] : 0; i < afterEnd[id]; ++i)
      if (--pending[after[i]] == 0 && heads[streamOf(after[i])] == after[i])
        arrive(after[i]);
  }

  /// An operation that takes time begins or ends to run: others change rate.
  void enter(OperationId id, bool begins) {
    const Operation &operation = operations[id];
    if (operation.uplinkSet >= 0)
      for (int32_t number : uplinkSets[operation.uplinkSet])
        enterUplink(uplinks[number], id, begins);
    auto touch = [&](Stream stream) {
      OperationId other = activeOn(operation.actor, stream);
      if (other >= 0 && other != id)
        setRate(other);
    };
    if (isQueued(operation))
      enterQueue(id, begins);
    if (operation.stream == Stream::Collective) {
      touch(Stream::Compute);
      touch(Stream::Exchange);
    } else if (operation.stream == Stream::Compute ||
               operation.stream == Stream::Exchange) {
      touch(Stream::Collective);
    }
  }

  ArrayRef<OperationId> queuedWith(OperationId id) const {
    int32_t join = operations[id].join;
    return join < 0 ? ArrayRef<OperationId>() : joins[join].queued;
  }

  /// Joins or leaves the queue: what its actor communicates changes rate, and
  /// with it the other ends.
  void enterQueue(OperationId id, bool begins) {
    if (int32_t join = operations[id].join; join >= 0) {
      SmallVector<OperationId, 2> &queued = joins[join].queued;
      if (begins)
        queued.push_back(id);
      else
        queued.erase(find(queued, id));
    }
    auto touch = [&](OperationId other) {
      if (other != id)
        setRate(other);
    };
    for (Stream stream : kCommunication)
      if (OperationId other = activeOn(operations[id].actor, stream);
          other >= 0) {
        touch(other);
        for_each(queuedWith(other), touch);
      }
    for_each(queuedWith(id), touch);
  }

  /// Operations of a flow come and go one by one; rates of others change with
  /// the first and the last of them only.
  void enterUplink(Uplink &uplink, OperationId id, bool begins) {
    int32_t number = operations[id].flow;
    auto flow = find_if(uplink.flows, [&](const Flow &candidate) {
      return candidate.number == number;
    });
    if (begins) {
      uplink.users.push_back(id);
      if (flow != uplink.flows.end()) {
        ++flow->users;
        return;
      }
      uplink.flows.push_back({number, 1});
    } else {
      uplink.users.erase(find(uplink.users, id));
      if (--flow->users > 0)
        return;
      uplink.flows.erase(flow);
    }
    for (OperationId user : uplink.users)
      if (user != id)
        setRate(user);
  }

  /// Shares what its actor can send with others.
  bool isQueued(const Operation &operation) const {
    return oneQueue[operation.actor] &&
           is_contained(kCommunication, operation.stream);
  }

  bool runs(int32_t actor, Stream stream) const {
    OperationId other = activeOn(actor, stream);
    return other >= 0 && operations[other].work > 0;
  }

  /// The number of operations that share an actor's queue. Messages of one task
  /// are one call.
  int queueUsers(int32_t actor) const {
    return runs(actor, Stream::Exchange) + runs(actor, Stream::Collective) +
           (runs(actor, Stream::Send) || runs(actor, Stream::Receive));
  }

  /// The rate of an operation, as slowed down by other operations of its actor
  /// and of those at its other ends; 1 if nothing does.
  double rateBesides(OperationId id) const {
    const Operation &operation = operations[id];
    bool queued = isQueued(operation);
    bool overlaps =
        operation.stream == Stream::Collective
            ? runs(operation.actor, Stream::Compute) ||
                  (!queued && runs(operation.actor, Stream::Exchange))
            : (operation.stream == Stream::Compute ||
               (!queued && operation.stream == Stream::Exchange)) &&
                  runs(operation.actor, Stream::Collective);
    double rate = overlaps ? 1 / slowdowns[operation.actor] : 1;
    if (!queued)
      return rate;
    int users = std::max(1, queueUsers(operation.actor));
    for (OperationId other : queuedWith(id))
      users = std::max(users, queueUsers(operations[other].actor));
    return rate / users;
  }

  double rateOf(OperationId id) const {
    const Operation &operation = operations[id];
    double rate = rateBesides(id);
    size_t most = 1;
    if (operation.uplinkSet >= 0)
      for (int32_t number : uplinkSets[operation.uplinkSet])
        most = std::max(most, uplinks[number].flows.size());
    return rate / static_cast<double>(most);
  }

  void setRate(OperationId id) {
    State &current = state[id];
    double rate = rateOf(id);
    if (rate == current.rate)
      return;
    current.remaining =
        std::max(0.0, current.remaining - (now - current.since) * current.rate);
    current.since = now;
    current.rate = rate;
    ++current.version;
    queue.push({now + current.remaining / rate, id, current.version});
  }

  ArrayRef<double> slowdowns;
  ArrayRef<char> oneQueue;
  ArrayRef<Operation> operations;
  ArrayRef<std::vector<int32_t>> uplinkSets;
  std::vector<int32_t> pending; ///< dependencies that still run
  std::vector<OperationId> nextInStream;
  std::vector<OperationId> after;         ///< dependents, of all in turn
  std::vector<size_t> afterEnd;           ///< by operation, into `after`
  std::vector<OperationId> heads, active; ///< by actor and stream
  std::vector<Join> joins;
  std::vector<State> state;
  std::vector<Uplink> uplinks;
  std::priority_queue<Event> queue;
  double now = 0;
  Timeline timeline;
};

} // namespace

Timeline EventEngine::run() const {
  return Run(slowdowns, oneQueue, operations, before, beforeEnd, uplinkSets,
             joinCount)
      .run();
}

} // namespace galvatron
