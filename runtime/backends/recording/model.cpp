//===- model.cpp - Ranks, streams and what is on them ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "model.h"
#include "comm/sum.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

namespace grt::recording {
namespace {

std::mutex modelMutex;
std::atomic<int> wanting{0};

double now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string bytesText(uint64_t begin, uint64_t end) {
  return "bytes " + std::to_string(begin) + " to " + std::to_string(end);
}

bool movesBytes(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll;
}

/// Moves what members of a gather or an all-to-all have for each other.
void move(const std::vector<Operation *> &members) {
  const Part &first = members[0]->part;
  const bool gathers = first.kind == CollectiveKind::AllGather;
  for (size_t to = 0; to < members.size(); ++to)
    for (size_t from = 0; from < members.size(); ++from)
      std::memmove(static_cast<char *>(members[to]->part.out) +
                       from * first.count,
                   static_cast<const char *>(members[from]->part.in) +
                       (gathers ? 0 : to * first.count),
                   first.count);
}

/// The values of a collective, joined in the order of the group's list.
void perform(const std::vector<Operation *> &members) {
  const Part &first = members[0]->part;
  if (movesBytes(first.kind))
    return move(members);
  bool scatters = first.kind == CollectiveKind::ReduceScatter;
  auto reduce = [&](auto element) {
    using E = decltype(element);
    using T = typename E::Type;
    uint64_t count = first.count * (scatters ? members.size() : 1);
    std::vector<T> total(count);
    auto sum = [&](uint64_t begin, uint64_t elements, const T *onto) {
      sumInOrder<E>(
          int(members.size()), elements, onto,
          [&](int member) {
            return static_cast<const T *>(members[size_t(member)]->part.in) +
                   begin;
          },
          [&](uint64_t at, uint64_t n, const T *sums) {
            std::copy_n(sums, n, total.begin() + long(begin + at));
          });
    };
    if (!scatters)
      sum(0, count, nullptr);
    for (size_t i = 0; scatters && i < members.size(); ++i) {
      const Part &part = members[i]->part;
      sum(i * first.count, first.count,
          part.accumulate ? static_cast<const T *>(part.out) : nullptr);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const Part &part = members[i]->part;
      // Nobody may rely on what a backend leaves there.
      if (part.accumulate)
        std::memset(part.scratch, 0xff, first.count * sizeof(T));
      std::memcpy(part.out, total.data() + (scatters ? i * first.count : 0),
                  first.count * sizeof(T));
    }
  };
  if (first.kind == CollectiveKind::AllReduceMax)
    dispatchLargest(grt_dtype(first.dtype), reduce);
  else
    dispatchSum(grt_dtype(first.dtype), reduce);
}

std::string partText(const Part &part) {
  std::string text = collectiveName(part.kind);
  text += " of " + std::to_string(part.count) + " ";
  return text + (movesBytes(part.kind)
                     ? "bytes"
                     : std::string("elements of ") + dtypeName(part.dtype));
}

} // namespace

ModelLock::ModelLock() : lock(modelMutex, std::defer_lock) {
  ++wanting;
  lock.lock();
  --wanting;
}

void ModelLock::handOver() {
  if (wanting == 0)
    return;
  lock.unlock();
  std::this_thread::yield();
  lock.lock();
}

const char *collectiveName(CollectiveKind kind) {
  static const char *const names[] = {"all-reduce", "all-gather",
                                      "reduce-scatter", "all-reduce of max",
                                      "all-to-all"};
  return names[int(kind)];
}

World::World(int size, uint64_t seed)
    : ranks(size_t(size), nullptr), random(seed) {}

void World::fail(const std::string &what) {
  if (problem.empty())
    problem = what;
  changed.notify_all();
}

Group *World::group(const std::vector<int> &list) {
  std::unique_ptr<Group> &entry = groups[list];
  if (!entry) {
    entry = std::make_unique<Group>();
    entry->ranks = list;
    entry->calls.resize(list.size());
  }
  return entry.get();
}

bool Rank::isAlive(const char *begin, const char *end) const {
  auto isIn = [&](const std::vector<Span> &spans) {
    return std::any_of(spans.begin(), spans.end(), [&](const Span &span) {
      return span.begin <= begin && end <= span.end;
    });
  };
  return isIn(kept) || isIn(live);
}

void World::put(Operation &operation) {
  const Rank &rank = *operation.rank;
  for (int other : operation.meets) {
    // The messages of one exchange may be those of several at the other end.
    auto messages = std::count_if(
        operation.pieces.begin(), operation.pieces.end(),
        [other](const Piece &piece) { return piece.peer == other; });
    for (ptrdiff_t i = std::max<ptrdiff_t>(messages, 1); i > 0; --i)
      expectOrder(*operation.label, other, operation.pairing);
    putBehind(operation, other, /*isCollective=*/operation.group != nullptr);
  }
  if (operation.group)
    operation.sequence = operation.group->calls[operation.member]++;
  for (Piece &piece : operation.pieces)
    piece.number =
        numberPiece(piece.sends ? rank.number : piece.peer,
                    piece.sends ? piece.peer : rank.number, piece.sends);
}

void World::expectOrder(const OperationLabel &label, int other,
                        const std::string &what) {
  std::deque<PairedOperation> &theirs = pairedOperations[{other, label.rank}];
  if (theirs.empty()) {
    pairedOperations[{label.rank, other}].push_back({what, label});
    return;
  }
  if (theirs.front().what != what)
    fail(label.text() + " meets " + theirs.front().label.text() +
         ": ranks must come to what they share in one order");
  theirs.pop_front();
}

void World::putBehind(Operation &operation, int other, bool isCollective) {
  LastPaired &last = lastPaired[{operation.rank->number, other}];
  if (last.collective)
    operation.behind.push_back(last.collective);
  if (isCollective && last.exchange)
    operation.behind.push_back(last.exchange);
  (isCollective ? last.collective : last.exchange) = operation.label;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

bool World::isDrained(const Rank &rank, uint32_t stream) const {
  if (stream < GRT_STREAM_COUNT)
    return rank.streams[stream].queue.empty();
  return std::all_of(rank.streams.begin(), rank.streams.end(),
                     [](const Stream &s) { return s.queue.empty(); });
}

bool World::canAct(const Rank &rank, uint32_t stream) const {
  const Stream &on = rank.streams[stream];
  if (on.queue.empty())
    return false;
  const Operation &operation = *on.queue.front();
  if (operation.kind == Operation::Kind::Wait)
    return operation.marker->done;
  // What has started and is still there waits for others.
  return !operation.started;
}

bool World::hasArrived(const Rank &rank) const {
  return rank.awaits ? rank.awaits->done : isDrained(rank, *rank.waitsFor);
}

void World::runUntilArrived(ModelLock &lock, Rank &rank) {
  std::vector<size_t> order(ranks.size() * GRT_STREAM_COUNT);
  std::iota(order.begin(), order.end(), size_t(0));
  std::shuffle(order.begin(), order.end(), random);
  while (problem.empty() && !aborted && !hasArrived(rank)) {
    auto next = std::find_if(order.begin(), order.end(), [&](size_t index) {
      const Rank *owner = ranks[index / GRT_STREAM_COUNT];
      return owner && canAct(*owner, uint32_t(index % GRT_STREAM_COUNT));
    });
    if (next != order.end()) {
      act(*ranks[*next / GRT_STREAM_COUNT], uint32_t(*next % GRT_STREAM_COUNT));
      changed.notify_all();
      lock.handOver();
      continue;
    }
    bool somebodyGoesOn =
        std::any_of(ranks.begin(), ranks.end(), [&](const Rank *other) {
          return !other || (!other->waitsFor && !other->awaits) ||
                 hasArrived(*other);
        });
    if (!somebodyGoesOn) {
      fail("all ranks wait for ever" + describeStuck());
      break;
    }
    changed.wait(lock.lock);
  }
}

void World::await(ModelLock &lock, Rank &rank, std::shared_ptr<Marker> marker) {
  rank.awaits = std::move(marker);
  runUntilArrived(lock, rank);
  Clock known = *rank.host;
  if (rank.awaits->done)
    join(known, rank.awaits->clock);
  rank.awaits.reset();
  rank.host = std::make_shared<const Clock>(std::move(known));
}

void World::drain(ModelLock &lock, Rank &rank, uint32_t stream) {
  rank.waitsFor = stream;
  runUntilArrived(lock, rank);
  rank.waitsFor.reset();
  Clock known = *rank.host;
  for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
    if (stream == s || stream == GRT_STREAM_COUNT)
      join(known, rank.streams[s].clock);
  rank.host = std::make_shared<const Clock>(std::move(known));
}

std::string World::describeStuck() const {
  std::string text;
  for (const Rank *rank : ranks)
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      if (!rank->streams[s].queue.empty())
        text += "; " + rank->streams[s].queue.front()->label->text();
  return text;
}

void World::start(Operation &operation, Clock &clock) {
  operation.started = true;
  join(clock, *operation.host);
  ++clock[operation.label->queue];
  for (const LabelPointer &before : operation.behind)
    if (!before->isBefore(clock))
      fail(operation.label->text() + " and " + before->text() +
           " share ranks, and nothing orders the two");
  for (const Touch &touch : operation.touches)
    use(touch, operation.label, clock);
}

void World::use(const Touch &touch, const LabelPointer &label,
                const Clock &clock) {
  auto look = [&](AccessMap &accesses, uint64_t begin, uint64_t end) {
    accesses.use(
        begin, end, touch.writes, label, clock,
        [&](const AccessMap::Conflict &conflict) {
          fail(label->text() + (touch.writes ? " writes " : " reads ") +
               bytesText(std::max(begin, conflict.begin),
                         std::min(end, conflict.end)) +
               " of " + touch.where() + ", which " + conflict.other->text() +
               (conflict.otherWrites ? " writes" : " reads") +
               ", and nothing orders the two");
        });
  };
  if (touch.home)
    return look(touch.home->accesses, touch.begin, touch.end);
  touch.allocation->forMemory(touch.begin, touch.end,
                              [&](uint64_t begin, uint64_t end) {
                                look(touch.allocation->accesses, begin, end);
                              });
}

void World::useByHost(Rank &rank, const Touch &touch, const std::string &what) {
  auto label = std::make_shared<OperationLabel>();
  label->rank = rank.number;
  label->stream = GRT_STREAM_COUNT;
  label->queue = rank.queueOfHost();
  label->number = ++rank.hostUses;
  label->place = rank.place;
  label->what = what;
  use(touch, label, *rank.host);
  // What is put on streams from here on comes behind it.
  Clock known = *rank.host;
  known[label->queue] = label->number;
  rank.host = std::make_shared<const Clock>(std::move(known));
}

void World::act(Rank &rank, uint32_t stream) {
  Stream &on = rank.streams[stream];
  Operation &operation = *on.queue.front();
  start(operation, on.clock);
  if (!problem.empty())
    return;
  switch (operation.kind) {
  case Operation::Kind::Work: {
    char message[512] = "";
    if (operation.run(message, sizeof(message)) != 0) {
      message[sizeof(message) - 1] = 0;
      return fail(operation.label->text() + ": " + message);
    }
    break;
  }
  case Operation::Kind::Record:
    operation.marker->clock = on.clock;
    operation.marker->milliseconds = now();
    operation.marker->done = true;
    break;
  case Operation::Kind::Wait:
    join(on.clock, operation.marker->clock);
    break;
  case Operation::Kind::Joined:
    checkJoined(operation, on.clock);
    break;
  case Operation::Kind::Collective:
    return assemble(operation);
  case Operation::Kind::Exchange:
    return match(operation);
  }
  on.queue.pop_front();
}

void World::checkJoined(const Operation &operation, const Clock &clock) {
  for (const LabelPointer &before : operation.before)
    if (before && !before->isBefore(clock))
      fail(operation.label->text() + " does not wait for " + before->text());
}

void World::assemble(Operation &operation) {
  Group &group = *operation.group;
  Assembly &assembly = group.assemblies[operation.sequence];
  assembly.members.resize(group.ranks.size());
  assembly.members[operation.member] = &operation;
  if (++assembly.arrived < group.ranks.size())
    return;
  std::vector<Operation *> members = std::move(assembly.members);
  group.assemblies.erase(operation.sequence);
  const Part &part = members[0]->part;
  for (const Operation *other : members)
    if (other->part.kind != part.kind || other->part.count != part.count ||
        other->part.dtype != part.dtype)
      return fail(members[0]->label->text() + " is an " + partText(part) +
                  ", " + other->label->text() + " is an " +
                  partText(other->part));
  perform(members);
  // Nobody is done before all have come.
  Clock all = members[0]->rank->streams[members[0]->stream].clock;
  for (const Operation *member : members)
    join(all, member->rank->streams[member->stream].clock);
  for (Operation *member : members) {
    Stream &on = member->rank->streams[member->stream];
    on.clock = all;
    on.queue.pop_front();
  }
}

void World::match(Operation &operation) {
  int self = operation.rank->number;
  operation.piecesLeft = operation.pieces.size();
  operation.began = operation.rank->streams[operation.stream].clock;
  if (operation.pieces.empty())
    return complete(operation);
  // The last piece may complete the operation, which is gone then.
  std::vector<Piece> pieces = operation.pieces;
  for (const Piece &piece : pieces) {
    std::pair<int, int> ends =
        piece.sends ? std::pair(self, piece.peer) : std::pair(piece.peer, self);
    Channel &channel = channels[ends];
    (piece.sends ? channel.sends : channel.receives)[piece.number] = {
        &operation, piece.memory, piece.bytes};
    auto sent = channel.sends.find(piece.number);
    auto expected = channel.receives.find(piece.number);
    if (sent == channel.sends.end() || expected == channel.receives.end())
      continue;
    Half from = sent->second, to = expected->second;
    channel.sends.erase(sent);
    channel.receives.erase(expected);
    if (from.bytes != to.bytes)
      return fail(from.operation->label->text() + " sends " +
                  std::to_string(from.bytes) + " bytes, " +
                  to.operation->label->text() + " expects " +
                  std::to_string(to.bytes));
    std::memcpy(to.memory, from.memory, from.bytes);
    // What arrives was sent before; who has sent knows nothing.
    join(to.operation->rank->streams[to.operation->stream].clock,
         from.operation->began);
    for (Operation *side : {from.operation, to.operation})
      if (--side->piecesLeft == 0)
        complete(*side);
  }
}

void World::complete(Operation &operation) {
  operation.rank->streams[operation.stream].queue.pop_front();
}

} // namespace grt::recording
