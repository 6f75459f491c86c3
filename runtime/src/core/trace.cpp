//===- trace.cpp - Recording what a rank does -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/trace.h"
#include "base/error.h"
#include "core/device.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <sys/mman.h>

namespace grt {
namespace {

/// Addresses for events, backed as far as they are written. Where memory may
/// not be promised in advance, less has to do.
constexpr size_t mostBytes = size_t(1) << 28, leastBytes = size_t(1) << 20;

thread_local Recorder *current = nullptr;

uint64_t now() {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

int32_t tracedKernel(const grt_call *call, char *message, size_t bytes) {
  Recorder &recorder = *current;
  grt_kernel_function kernel = recorder.backend().kernels[call->op->kernel];
  if (!recorder.isActive())
    return kernel(call, message, bytes);
  TraceSpan span(recorder, TraceKind::Kernel);
  if (span) {
    span->name = call->op->name;
    span->detail = uint8_t(call->op->kernel);
  }
  return kernel(call, message, bytes);
}

bool hasDeviceTimes(TraceKind kind) {
  return kind == TraceKind::Kernel || kind == TraceKind::Communication;
}

class TracedCommunicator : public Communicator {
public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, Recorder &recorder)
      : inner(std::move(inner)), recorder(recorder) {}

  int rank() const override { return inner->rank(); }
  int size() const override { return inner->size(); }
  Group &group(const std::vector<int> &ranks) override {
    return inner->group(ranks);
  }
  void onStream(grt_stream stream) override {
    recorder.setStream(stream);
    inner->onStream(stream);
  }
  void allReduce(Group &group, void *data, uint64_t count,
                 grt_dtype dtype) override {
    Scope scope(recorder, "all-reduce", &group);
    inner->allReduce(group, data, count, dtype);
  }
  void allGather(Group &group, const void *in, void *out,
                 uint64_t bytes) override {
    Scope scope(recorder, "all-gather", &group);
    inner->allGather(group, in, out, bytes);
  }
  void reduceScatter(Group &group, const void *in, void *out, uint64_t count,
                     grt_dtype dtype, bool accumulate) override {
    Scope scope(recorder, "reduce-scatter", &group);
    inner->reduceScatter(group, in, out, count, dtype, accumulate);
  }
  void allReduceMax(Group &group, void *data, uint64_t count,
                    grt_dtype dtype) override {
    Scope scope(recorder, "all-reduce of max", &group);
    inner->allReduceMax(group, data, count, dtype);
  }
  void allToAll(Group &group, const void *in, void *out,
                uint64_t bytes) override {
    Scope scope(recorder, "all-to-all", &group);
    inner->allToAll(group, in, out, bytes);
  }
  void allToAll(Group &group, const void *in, void *out,
                const BlockCounts &counts) override {
    Scope scope(recorder, "all-to-all with counts", &group);
    inner->allToAll(group, in, out, counts);
  }
  void shift(Group &group, const void *in, void *out, uint64_t bytes,
             int64_t distance) override {
    Scope scope(recorder, "shift", &group);
    inner->shift(group, in, out, bytes, distance);
  }
  void exchange(std::span<const ExchangeCall> calls) override {
    Scope scope(recorder, "exchange", nullptr, calls);
    inner->exchange(calls);
  }
  void gather(std::span<const std::byte> in,
              std::span<std::byte> out) override {
    Scope scope(recorder, "gather of losses and norms", nullptr);
    scope.onHost();
    inner->gather(in, out);
  }
  void reserveBoxes(size_t boxes) override { inner->reserveBoxes(boxes); }
  void post(const ExchangeCall &call, const ExchangePeer &send,
            size_t box) override {
    inner->post(call, send, box);
  }
  void awaitTaken(int peer, size_t box) override {
    Scope scope(recorder, "posted message", nullptr);
    scope.onHost();
    inner->awaitTaken(peer, box);
  }
  void take(const ExchangeCall &call, const ExchangePeer &receive,
            size_t box) override {
    Scope scope(recorder, "posted message", nullptr, {&call, 1});
    inner->take(call, receive, box);
  }
  void tell(uint64_t number, std::span<const std::byte> message) override {
    inner->tell(number, message);
  }
  void hear(int from, uint64_t number, std::span<std::byte> message) override {
    Scope scope(recorder, "losses and norms", nullptr);
    scope.onHost();
    inner->hear(from, number, message);
  }
  void abort() override { inner->abort(); }

private:
  class Scope {
  public:
    Scope(Recorder &recorder, const char *name, const Group *group,
          std::span<const ExchangeCall> calls = {})
        : recorder(recorder) {
      if (!recorder.isActive())
        return;
      event = recorder.open(TraceKind::Communication);
      if (!event)
        return;
      event->name = name;
      event->group = group;
      for (const ExchangeCall &call : calls)
        if (event->tableCount < std::size(event->tables))
          event->tables[event->tableCount++] = call.table;
    }
    ~Scope() {
      if (event)
        recorder.close(*event);
    }
    /// The device takes no part.
    void onHost() {
      if (event)
        event->firstStamp = TraceEvent::none;
    }

  private:
    Recorder &recorder;
    TraceEvent *event = nullptr;
  };

  std::unique_ptr<Communicator> inner;
  Recorder &recorder;
};

} // namespace

Recorder::Recorder(int rank, const grt_backend &backend)
    : self(rank), original(backend) {
  for (reserved = mostBytes; reserved >= leastBytes; reserved /= 4) {
    void *memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      continue;
    first = static_cast<TraceEvent *>(memory);
    return;
  }
  fail(ExitMemory, "rank " + std::to_string(rank) + ": no memory for a trace");
}

Recorder::~Recorder() { munmap(first, reserved); }

void Recorder::attach(const LiveSet &set, uint64_t bytes) {
  live = &set;
  staticBytes = bytes;
  current = this;
}

TraceEvent *Recorder::open(TraceKind kind) {
  if (count == reserved / sizeof(TraceEvent)) {
    ++lostEvents;
    return nullptr;
  }
  TraceEvent *event = new (first + count++) TraceEvent();
  event->kind = kind;
  event->task = task;
  event->layer = layer;
  event->step = step;
  // All kernels are on COMPUTE, also those of an exchange elsewhere.
  event->stream =
      uint8_t(kind == TraceKind::Kernel ? GRT_STREAM_COMPUTE : stream);
  if (device && hasDeviceTimes(kind))
    event->firstStamp = device->stamp(event->stream);
  event->begin = now();
  return event;
}

void Recorder::attach(Device &with) {
  if (with.hasClock())
    device = &with;
}

void Recorder::fetchDeviceTimes() {
  if (!device)
    return;
  auto time = [&](uint32_t number) {
    return device->milliseconds(number) * 1e6;
  };
  // The clocks meet at the beginning of a step, where the device is idle.
  double origin = 0;
  uint64_t onHost = 0;
  for (; fetched < count; ++fetched) {
    TraceEvent &event = first[fetched];
    if (event.kind == TraceKind::Step && event.firstStamp != TraceEvent::none) {
      origin = time(event.firstStamp);
      onHost = event.begin;
    }
    if (event.lastStamp == TraceEvent::none)
      continue;
    auto place = [&](uint32_t stamp) {
      return onHost + uint64_t(std::max(0.0, time(stamp) - origin));
    };
    event.deviceBegin = place(event.firstStamp);
    event.deviceEnd = place(event.lastStamp);
  }
}

void Recorder::close(TraceEvent &event) {
  if (event.firstStamp != TraceEvent::none && hasDeviceTimes(event.kind))
    event.lastStamp = device->stamp(event.stream);
  event.end = now();
  event.live = staticBytes + live->liveBytes();
}

void Recorder::beginStep(uint64_t number) {
  active = recording;
  if (!active)
    return;
  step = uint32_t(number);
  task = {};
  layer = -1;
  if (device)
    device->waitForAll();
  stepEvent = open(TraceKind::Step);
  if (device && stepEvent)
    stepEvent->firstStamp = device->stamp(GRT_STREAM_COMPUTE);
}

void Recorder::endStep() {
  if (active && device)
    device->waitForAll();
  if (active && stepEvent)
    close(*stepEvent);
  active = false;
  stepEvent = nullptr;
}

BackendTable tracedBackend(const grt_backend &backend) {
  BackendTable table(backend);
  for (grt_kernel_function &kernel : table.kernels)
    if (kernel)
      kernel = tracedKernel;
  return table;
}

std::unique_ptr<Communicator>
tracedCommunicator(std::unique_ptr<Communicator> inner, Recorder &recorder) {
  return std::make_unique<TracedCommunicator>(std::move(inner), recorder);
}

} // namespace grt
