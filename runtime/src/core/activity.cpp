//===- activity.cpp - What a rank is doing --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/activity.h"

#include <algorithm>
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
public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, Activity &activity)
      : inner(std::move(inner)), activity(activity) {}

  int rank() const override { return inner->rank(); }
  int size() const override { return inner->size(); }
  Group &group(const std::vector<int> &ranks) override {
    return inner->group(ranks);
  }
  void onStream(grt_stream stream) override {
    activity.setStream(stream);
    inner->onStream(stream);
  }
  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override {
    Wait wait(*this, "all-reduce", group);
    inner->allReduce(group, data, count, dtype);
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    Wait wait(*this, "all-gather", group);
    inner->allGather(group, in, out, bytes);
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    Wait wait(*this, "reduce-scatter", group);
    inner->reduceScatter(group, in, out, count, dtype, accumulate);
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    Wait wait(*this, calls);
    inner->exchange(calls);
  }
  void gather(std::span<const double> in, std::span<double> out) override {
    Wait wait(*this);
    inner->gather(in, out);
  }
  void reserveBoxes(size_t boxes) override { inner->reserveBoxes(boxes); }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    inner->post(call, send, box);
  }
  void awaitTaken(int peer, size_t box) override {
    Wait wait(*this, "posted message", peer);
    inner->awaitTaken(peer, box);
  }
  void take(const ExchangeCall &call, const ExchangePeer &receive,
            size_t box) override {
    Wait wait(*this, "posted message", receive.peer);
    inner->take(call, receive, box);
  }
  void tell(uint64_t number, std::span<const double> values) override {
    inner->tell(number, values);
  }
  void hear(int from, uint64_t number, std::span<double> values) override {
    Wait wait(*this, "loss and norm", from);
    inner->hear(from, number, values);
  }
  void abort() override { inner->abort(); }

private:
  /// Notes a wait as long as it lives.
  class Wait {
  public:
    Wait(WatchedCommunicator &owner, const char *what, const Group &group)
        : activity(owner.activity) {
      activity.beginWait(what);
      for (int peer : group.ranks())
        activity.addPeer(peer);
    }
    Wait(WatchedCommunicator &owner, std::span<const ExchangeCall> calls)
        : activity(owner.activity) {
      activity.beginWait("exchange");
      for (const ExchangeCall &call : calls)
        for (const auto *side : {&call.table->receives, &call.table->sends})
          for (const ExchangePeer &peer : *side)
            activity.addPeer(peer.peer);
    }
    Wait(WatchedCommunicator &owner, const char *what, int peer)
        : activity(owner.activity) {
      activity.beginWait(what);
      activity.addPeer(peer);
    }
    explicit Wait(WatchedCommunicator &owner) : activity(owner.activity) {
      activity.beginWait("gather of loss and norm");
      for (int peer = 0; peer < owner.size(); ++peer)
        activity.addPeer(peer);
    }
    ~Wait() { activity.endWait(); }
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Activity &activity;
  };

  std::unique_ptr<Communicator> inner;
  Activity &activity;
};

} // namespace

thread_local Activity *currentActivity = nullptr;

void Activity::beginWait(const char *what) {
  store(peerCount, 0);
  store(operation, what);
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
  if (const Layer *running = read(layer))
    text << ", layer '" << running->name.c_str() << "'";
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

void Activity::mark(uint32_t onStream, uint32_t event) {
  MarkEntry &entry = markRing[marksMade++ % mostMarks];
  store(entry.number, uint64_t(0));
  store(entry.stream, onStream);
  store(entry.event, event);
  entry.number.store(operations, std::memory_order_release);
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
  for (const MarkEntry &entry : markRing)
    if (uint64_t number = entry.number.load(std::memory_order_acquire))
      found.push_back({number, read(entry.stream), read(entry.event)});
  return found;
}

std::string Activity::describe() const {
  char text[512];
  describeInto(text, sizeof(text));
  return text;
}

std::unique_ptr<Communicator>
watchedCommunicator(std::unique_ptr<Communicator> communicator,
                    Activity &activity) {
  return std::make_unique<WatchedCommunicator>(std::move(communicator),
                                               activity);
}

} // namespace grt
