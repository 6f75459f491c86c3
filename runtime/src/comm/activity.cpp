//===- activity.cpp - What a rank is doing --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/activity.h"
#include "base/values.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace grt {
namespace {

/// Appends to a buffer of fixed size; only what may run in a signal handler.
class Text {
public:
  Text(char *begin, size_t bytes) : at(begin), end(begin + bytes - 1) {
    *at = 0;
  }
  Text &operator<<(const char *text) {
    while (text && *text && at < end)
      *at++ = *text++;
    *at = 0;
    return *this;
  }
  Text &operator<<(uint64_t number) {
    char digits[24];
    char *digit = digits + sizeof(digits);
    *--digit = 0;
    do
      *--digit = char('0' + number % 10);
    while (number /= 10);
    return *this << digit;
  }

private:
  char *at, *end;
};

template <typename T> T read(const std::atomic<T> &from) {
  return from.load(std::memory_order_relaxed);
}

class WatchedCommunicator : public Communicator {
  using WaitKind = Activity::WaitKind;

public:
  WatchedCommunicator(std::unique_ptr<Communicator> communicator,
                      Activity &activity, LeaveMark leaveMark)
      : inner(std::move(communicator)), activity(activity),
        leaveMark(std::move(leaveMark)) {
    if (onDevice())
      return;
    // Loss and norm are of all ranks.
    std::vector<int> all(static_cast<size_t>(inner->size()));
    std::iota(all.begin(), all.end(), 0);
    everyone = activity.collectives.communicator(this, "results", all);
  }

  int rank() const override { return inner->rank(); }
  int size() const override { return inner->size(); }
  Group &group(const std::vector<int> &ranks) override {
    return inner->group(ranks);
  }
  void onStream(grt_stream to) override {
    stream = to;
    activity.setStream(to);
    inner->onStream(to);
  }
  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override {
    Call call(*this, CollectiveKind::AllReduce, group,
              count * dtypeBytes(dtype));
    inner->allReduce(group, data, count, dtype);
    call.end();
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    Call call(*this, CollectiveKind::AllGather, group, bytes);
    inner->allGather(group, in, out, bytes);
    call.end();
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    Call call(*this, CollectiveKind::ReduceScatter, group,
              count * dtypeBytes(dtype));
    inner->reduceScatter(group, in, out, count, dtype, accumulate);
    call.end();
  }
  void allReduceMax(Group &group, void *data, uint64_t count,
                    grt_dtype dtype) override {
    Call call(*this, CollectiveKind::AllReduceMax, group,
              count * dtypeBytes(dtype));
    inner->allReduceMax(group, data, count, dtype);
    call.end();
  }
  void allToAll(Group &group, const void *in, void *out,
                uint64_t bytes) override {
    Call call(*this, CollectiveKind::AllToAll, group, bytes);
    inner->allToAll(group, in, out, bytes);
    call.end();
  }
  void allToAll(Group &group, const void *in, void *out,
                const BlockCounts &counts) override {
    Call call(*this, group, counts);
    inner->allToAll(group, in, out, counts);
    call.end();
  }
  void shift(Group &group, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    Call call(*this, CollectiveKind::Shift, group, bytes);
    inner->shift(group, in, out, bytes, distance);
    call.end();
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    Call call(*this, calls);
    inner->exchange(calls);
    call.end();
  }
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    // A device's gathers are collectives of the host, which notes them itself.
    if (onDevice())
      return inner->gather(in, out);
    Call call(*this, in.size_bytes());
    inner->gather(in, out);
    call.end();
  }
  void reserveBoxes(size_t boxes) override { inner->reserveBoxes(boxes); }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    inner->post(call, send, box);
  }
  void awaitTaken(int peer, size_t box) override {
    Wait wait(activity, "posted message", WaitKind::Ranks);
    activity.addPeer(peer);
    inner->awaitTaken(peer, box);
  }
  void take(const ExchangeCall &call, const ExchangePeer &receive,
            size_t box) override {
    Wait wait(activity, "posted message", WaitKind::Ranks);
    activity.addPeer(receive.peer);
    inner->take(call, receive, box);
  }
  void tell(uint64_t number, std::span<const std::byte> message) override {
    inner->tell(number, message);
  }
  void hear(int from, uint64_t number, std::span<std::byte> message) override {
    Wait wait(activity, "loss and norm", WaitKind::Ranks);
    activity.addPeer(from);
    inner->hear(from, number, message);
  }
  void abort() override { inner->abort(); }

private:
  bool onDevice() const { return bool(leaveMark); }

  /// Notes a wait as long as it lives.
  struct Wait {
    Wait(Activity &activity, const char *what, WaitKind kind)
        : activity(activity) {
      activity.beginWait(what, kind);
    }
    ~Wait() { activity.endWait(); }
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;
    Activity &activity;
  };

  /// Notes a collective, and the wait in it as long as it lives.
  class Call {
  public:
    Call(WatchedCommunicator &owner, CollectiveKind kind, const Group &group,
         uint64_t bytes)
        : owner(owner),
          wait(owner.activity, collectiveName(kind), WaitKind::Collective) {
      for (int peer : group.ranks())
        owner.activity.addPeer(peer);
      begin();
      if (group.size() > 1)
        enqueue(owner.activity.collectives.communicator(&group, "group",
                                                        group.ranks()),
                kind, bytes);
    }
    Call(WatchedCommunicator &owner, std::span<const ExchangeCall> calls)
        : owner(owner), wait(owner.activity, "exchange", WaitKind::Collective) {
      begin();
      for (const ExchangeCall &call : calls)
        for (const auto *side : {&call.table->receives, &call.table->sends})
          for (const ExchangePeer &peer : *side) {
            owner.activity.addPeer(peer.peer);
            if (peer.peer == owner.rank())
              continue;
            uint64_t bytes = 0;
            for (const ExchangeRow &row : peer.rows)
              bytes += uint64_t(row.units) * call.bytesPerUnit;
            transfer(peer.peer, side == &call.table->sends, bytes);
          }
    }
    /// Blocks of an all-to-all are what two members have to agree on.
    Call(WatchedCommunicator &owner, const Group &group,
         const BlockCounts &counts)
        : owner(owner),
          wait(owner.activity, "all-to-all with counts", WaitKind::Collective) {
      for (int peer : group.ranks())
        owner.activity.addPeer(peer);
      begin();
      for (const auto *side : {&counts.receives, &counts.sends})
        for (size_t i = 0; i < std::min(side->size(), group.ranks().size());
             ++i)
          if (group.ranks()[i] != owner.rank() && (*side)[i])
            transfer(group.ranks()[i], side == &counts.sends,
                     (*side)[i] * counts.bytesPerUnit);
    }
    Call(WatchedCommunicator &owner, uint64_t bytes)
        : owner(owner),
          wait(owner.activity, "gather of messages", WaitKind::Collective) {
      for (int peer = 0; peer < owner.size(); ++peer)
        owner.activity.addPeer(peer);
      begin();
      enqueue(owner.everyone, CollectiveKind::Gather, bytes);
    }
    /// The call has returned, and not because another rank failed.
    void end() {
      if (owner.onDevice())
        owner.leaveMark(owner.stream, owner.activity.begun());
      else
        for (int i = 0; i < count; ++i)
          owner.activity.collectives.finish(enqueued[i]);
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

  private:
    void begin() {
      if (owner.onDevice())
        owner.leaveMark(owner.stream, owner.activity.begun() - 1);
    }
    void transfer(int peer, bool sends, uint64_t bytes) {
      const int self = owner.rank();
      enqueue(owner.activity.collectives.channel(sends ? self : peer,
                                                 sends ? peer : self),
              CollectiveKind::Transfer, bytes);
    }
    void enqueue(int communicator, CollectiveKind kind, uint64_t bytes) {
      owner.activity.collectives.enqueue(communicator, kind, bytes,
                                         owner.stream, owner.activity.begun(),
                                         owner.onDevice());
      if (communicator >= 0 && count < most)
        enqueued[count++] = communicator;
    }

    static constexpr int most = int(CollectiveLog::mostCommunicators);
    WatchedCommunicator &owner;
    Wait wait;
    int enqueued[most];
    int count = 0;
  };

  std::unique_ptr<Communicator> inner;
  Activity &activity;
  LeaveMark leaveMark;
  grt_stream stream = GRT_STREAM_COMPUTE;
  int everyone = -1;
};

} // namespace

thread_local Activity *currentActivity = nullptr;

void Activity::beginWait(const char *what, WaitKind kind) {
  store(peerCount, 0);
  store(operation, what);
  store(waitKind, kind);
  store(waiting, true);
  waitBegan = std::chrono::steady_clock::now();
  // A collective of the program was begun under its name.
  if (flying)
    store(ring[(operations - 1) % mostOperations].what, what);
  else
    fly(what, nullptr);
  advance();
}

void Activity::addPeer(int peer) {
  int count = read(peerCount);
  if (peer == rank || count >= mostPeers || waitsFor(peer))
    return;
  store(peers[count], peer);
  store(peerCount, count + 1);
}

void Activity::narrowWait(int peer) {
  store(peerCount, 0);
  store(peers[0], peer);
  store(peerCount, 1);
  advance();
}

void Activity::endWait() {
  waited += std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                          waitBegan)
                .count();
  store(waiting, false);
  end();
}

bool Activity::waitsFor(int peer) const {
  for (int i = 0; i < read(peerCount); ++i)
    if (read(peers[i]) == peer)
      return true;
  return false;
}

std::vector<int> Activity::awaited() const {
  std::vector<int> result;
  if (isWaiting())
    for (int i = 0; i < read(peerCount); ++i)
      result.push_back(read(peers[i]));
  return result;
}

void Activity::describeInto(char *buffer, size_t bytes) const {
  Text text(buffer, bytes);
  text << "step " << read(step);
  if (const char *running = read(layer))
    text << ", layer '" << running << "'";
  if (const char *what = read(operation)) {
    text << ", " << what;
    if (const char *called = read(name))
      text << " '" << called << "'";
  }
  if (!isWaiting())
    return;
  int count = read(peerCount);
  text << ", waiting for rank" << (count > 1 ? "s " : " ");
  for (int i = 0; i < count; ++i)
    text << (i ? ", " : "") << uint64_t(read(peers[i]));
  if (count == mostPeers)
    text << " and more";
}

void Activity::fly(const char *what, const char *called) {
  Entry &entry = ring[operations++ % mostOperations];
  entry.number.store(0, std::memory_order_release);
  store(entry.step, read(step));
  store(entry.layer, read(layer));
  store(entry.task, read(task));
  store(entry.what, what);
  store(entry.name, called);
  store(entry.stream, read(stream));
  store(entry.left, false);
  entry.number.store(operations, std::memory_order_release);
  flying = true;
}

void Activity::land() {
  if (std::exchange(flying, false))
    store(ring[(operations - 1) % mostOperations].left, true);
}

void Activity::mark(uint32_t onStream, uint32_t event, uint64_t number) {
  MarkEntry &entry = markRing[event % mostMarks];
  store(entry.stream, onStream);
  store(entry.event, event);
  entry.number.store(number, std::memory_order_release);
  store(hasMarks, true);
}

void Activity::forgetMark(uint32_t event) {
  markRing[event % mostMarks].number.store(0, std::memory_order_seq_cst);
}

void Activity::lookAtMarks(const std::function<bool(uint32_t)> &isDone) {
  for (const Mark &mark : marks())
    if (mark.stream < GRT_STREAM_COUNT &&
        mark.number > read(passed[mark.stream]) && isDone(mark.event))
      store(passed[mark.stream], mark.number);
}

bool Activity::deviceDid(uint32_t onStream, uint64_t number) const {
  return !read(hasMarks) ||
         (onStream < GRT_STREAM_COUNT && number <= read(passed[onStream]));
}

RankCollectives Activity::calledCollectives() const {
  RankCollectives called;
  called.rank = rank;
  called.peers = awaited();
  if (isWaiting())
    switch (read(waitKind)) {
    case WaitKind::Ranks:
      called.host = RankCollectives::ForRanks;
      break;
    case WaitKind::Collective:
      called.host = RankCollectives::InCollective;
      break;
    case WaitKind::Device:
      called.host = RankCollectives::ForDevice;
      break;
    }
  called.communicators =
      collectives.states([this](uint32_t onStream, uint64_t number) {
        return deviceDid(onStream, number);
      });
  return called;
}

std::vector<Activity::Operation> Activity::lastOperations() const {
  std::vector<Operation> found;
  for (size_t i = 0; i < mostOperations; ++i) {
    const Entry &entry = ring[i];
    uint64_t number = entry.number.load(std::memory_order_acquire);
    Operation operation{number,
                        read(entry.step),
                        read(entry.layer),
                        read(entry.task),
                        read(entry.what),
                        read(entry.name),
                        read(entry.stream),
                        read(entry.left)};
    if (number && entry.number.load(std::memory_order_acquire) == number)
      found.push_back(operation);
  }
  std::sort(found.begin(), found.end(),
            [](const Operation &a, const Operation &b) {
              return a.number < b.number;
            });
  return found;
}

std::vector<Activity::Mark> Activity::marks() const {
  std::vector<Mark> found;
  for (size_t i = 0; i < mostMarks; ++i) {
    const MarkEntry &entry = markRing[i];
    if (uint64_t number = entry.number.load(std::memory_order_acquire))
      found.push_back({number, read(entry.stream), read(entry.event)});
  }
  return found;
}

std::string Activity::describe() const {
  char text[512];
  describeInto(text, sizeof(text));
  return text;
}

std::unique_ptr<Communicator>
watchedCommunicator(std::unique_ptr<Communicator> communicator,
                    Activity &activity, LeaveMark leaveMark) {
  return std::make_unique<WatchedCommunicator>(std::move(communicator),
                                               activity, std::move(leaveMark));
}

} // namespace grt
