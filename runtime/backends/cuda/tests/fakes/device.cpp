//===- device.cpp - A device that watches how it is used ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "device.h"

#include <algorithm>
#include <set>
#include <utility>

namespace grt::fake {

namespace {
thread_local bool hasDevice = false;
thread_local std::set<std::string> loaded;

void merge(Clock &into, const Clock &from) {
  for (auto [stream, number] : from) {
    uint64_t &known = into[stream];
    known = std::max(known, number);
  }
}

void addAll(std::vector<size_t> &into, const std::vector<size_t> &from) {
  for (size_t node : from)
    if (std::find(into.begin(), into.end(), node) == into.end())
      into.push_back(node);
}

bool overlap(const Range &range, uintptr_t begin, uint64_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(range.address);
  return range.bytes && at < begin + bytes && begin < at + range.bytes;
}

bool allDone(const Works &works) {
  return std::all_of(works.begin(), works.end(),
                     [](const auto &work) { return work->done; });
}
} // namespace

Device &Device::get() {
  // Alive until the last static object of a library has ended.
  static Device *device = new Device();
  return *device;
}

bool Device::expect(bool holds, const std::string &what) {
  if (!holds)
    complaints += what + "\n";
  return holds;
}

std::string Device::takeComplaints() {
  std::string told = std::move(complaints);
  complaints.clear();
  return told;
}

void Device::planFault(const std::string &function, int64_t number,
                       Fault newFault) {
  faultyFunction = function;
  faultyCall = calls[function] + number;
  fault = newFault;
}

Fault Device::faultOf(const std::string &function) {
  int64_t number = ++calls[function];
  return function == faultyFunction && number == faultyCall ? fault
                                                            : Fault::None;
}

int64_t Device::callsOf(const std::string &function) const {
  auto found = calls.find(function);
  return found == calls.end() ? 0 : found->second;
}

std::string Device::alive() const {
  std::string all;
  auto say = [&](const std::string &kind, size_t count) {
    if (count)
      all += kind + ": " + std::to_string(count) + "\n";
  };
  say("streams", streams.size());
  say("events", events.size());
  say("graphs", graphs.size());
  say("executable graphs", executables.size());
  say("memory", memory.size());
  for (const auto &[kind, things] : others)
    say(kind, things.size());
  return all;
}

void Device::forget(const std::string &kind) {
  if (!kind.empty()) {
    others[kind].clear();
    return;
  }
  streams.clear();
  priorities.clear();
  events.clear();
  graphs.clear();
  executables.clear();
  destroyed.clear();
  memory.clear();
  others.clear();
}

void Device::chooseDevice(int) { hasDevice = true; }

bool Device::threadHasDevice(const char *what) {
  return expect(hasDevice,
                std::string(what) + " on a thread that chose no device");
}

bool Device::maySkipCapture(const char *what) {
  for (auto &[handle, stream] : streams) {
    if (!stream.capture || stream.capture->origin != handle ||
        stream.capture->mode == cudaStreamCaptureModeRelaxed)
      continue;
    if (stream.capture->thread == std::this_thread::get_id() ||
        stream.capture->mode == cudaStreamCaptureModeGlobal) {
      stream.capture->invalid = true;
      return expect(false, std::string(what) + " while a graph is captured");
    }
  }
  return true;
}

StreamState *Device::streamOf(uint64_t handle, const std::string &what) {
  auto found = streams.find(handle);
  return expect(found != streams.end(),
                what + (handle ? " on a stream that is not alive"
                               : " on the default stream"))
             ? &found->second
             : nullptr;
}

EventState *Device::eventOf(uint64_t handle, const char *what) {
  auto found = events.find(handle);
  return expect(found != events.end(),
                std::string(what) + " of an event that is not alive")
             ? &found->second
             : nullptr;
}

void Device::load(const std::string &what) {
  if (!loaded.insert(what).second)
    return;
  for (const auto &[handle, stream] : streams) {
    if (stream.thread != std::this_thread::get_id())
      continue;
    const bool busy = std::any_of(
        stream.pending.begin(), stream.pending.end(),
        [](const auto &each) { return each.operation.user != nullptr; });
    if (!expect(!busy, what + " is loaded while a collective may run"))
      return;
  }
}

uint64_t Device::makeStream(int priority) {
  uint64_t handle = newHandle();
  streams[handle].thread = std::this_thread::get_id();
  priorities[handle] = priority;
  return handle;
}

cudaError_t Device::destroyStream(uint64_t handle) {
  StreamState *stream = streamOf(handle, "cudaStreamDestroy");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  expect(!stream->capture, "a stream is destroyed while it is captured");
  expect(stream->pending.empty() || isDone({{handle, stream->put}}),
         "a stream is destroyed that nobody waited for");
  streams.erase(handle);
  priorities.erase(handle);
  return cudaSuccess;
}

bool Device::isDone(const Clock &known) const {
  for (auto [stream, number] : known) {
    auto found = done.find(stream);
    if (number && (found == done.end() || found->second < number))
      return false;
  }
  return true;
}

void Device::finish(const Clock &known) {
  merge(done, known);
  for (auto &[handle, stream] : streams)
    while (!stream.pending.empty() &&
           stream.pending.front().number <= done[handle])
      stream.pending.pop_front();
}

bool Device::checkMemory(const Operation &operation) {
  bool alive = true;
  for (const Range &range : operation.ranges)
    alive = alive && (!range.bytes || isMemory(range, /*pinnedToo=*/true));
  return expect(alive,
                operation.what + " of memory that is not alive, or not pinned");
}

std::shared_ptr<Work> Device::start(const Operation &operation,
                                    const Works &before) {
  auto work = std::make_shared<Work>();
  work->begin = operation.begin;
  auto follow = [&](const Works &all) {
    for (const std::shared_ptr<Work> &one : all)
      if (!one->done) {
        one->after.push_back(work);
        ++work->waitsFor;
      }
  };
  follow(before);
  if (operation.chain) {
    follow(operation.chain->last);
    operation.chain->last = {work};
  }
  if (!work->waitsFor)
    beginAll({work});
  return work;
}

void Device::beginAll(Works ready) {
  // One after the other: a chain that stood still may be long.
  while (!ready.empty()) {
    std::shared_ptr<Work> work = ready.back();
    ready.pop_back();
    if (auto begin = std::exchange(work->begin, nullptr)) {
      begin(work);
      continue;
    }
    if (std::exchange(work->done, true))
      continue;
    for (const std::shared_ptr<Work> &next : std::exchange(work->after, {}))
      if (--next->waitsFor == 0)
        ready.push_back(next);
  }
  changed.notify_all();
}

void Device::finish(const std::shared_ptr<Work> &work) { beginAll({work}); }

bool Device::await(const Works &works, std::unique_lock<std::mutex> &lock,
                   const char *what) {
  bool done = changed.wait_for(lock, patience, [&] { return allDone(works); });
  return expect(done, std::string(what) + " waits for work that nothing ends");
}

void Device::expectNothingPromised(const StreamState &stream,
                                   const char *what) {
  expect(!stream.promised,
         std::string(what) +
             " on a stream that NCCL has not put its own work on yet");
}

void Device::promise(uint64_t handle, int launches) {
  if (StreamState *stream = streamOf(handle, "an operation of NCCL"))
    stream->promised += launches;
}

void Device::put(uint64_t handle, StreamState &stream, Operation operation) {
  if (operation.body)
    operation.body();
  stream.last = {start(operation, stream.last)};
  operation.begin = nullptr;
  stream.known[handle] = ++stream.put;
  operation.body = nullptr;
  stream.pending.push_back({stream.put, std::move(operation)});
}

cudaError_t Device::put(uint64_t handle, Operation operation) {
  threadHasDevice(operation.what.c_str());
  StreamState *stream = streamOf(handle, operation.what);
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  expectNothingPromised(*stream, operation.what.c_str());
  if (!checkMemory(operation))
    operation.body = nullptr;
  if (!stream->capture) {
    put(handle, *stream, std::move(operation));
    return cudaSuccess;
  }
  if (stream->capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  std::vector<Node> &nodes = stream->capture->nodes;
  nodes.push_back({std::move(operation), stream->heads});
  stream->heads = {nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t Device::synchronise(uint64_t handle,
                                std::unique_lock<std::mutex> &lock) {
  threadHasDevice("cudaStreamSynchronize");
  if (!maySkipCapture("cudaStreamSynchronize"))
    return cudaErrorStreamCaptureUnsupported;
  StreamState *stream = streamOf(handle, "cudaStreamSynchronize");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    stream->capture->invalid = true;
    expect(false, "the host waits for a stream that is captured");
    return cudaErrorStreamCaptureUnsupported;
  }
  expectNothingPromised(*stream, "a wait of the host");
  const Clock known = stream->known;
  if (!await(Works(stream->last), lock, "cudaStreamSynchronize"))
    return cudaErrorLaunchTimeout;
  finish(known);
  return cudaSuccess;
}

cudaError_t Device::queryStream(uint64_t handle) {
  StreamState *stream = streamOf(handle, "cudaStreamQuery");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  return allDone(stream->last) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Device::isCapturing(uint64_t handle,
                                cudaStreamCaptureStatus *status) {
  StreamState *stream = streamOf(handle, "cudaStreamIsCapturing");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

uint64_t Device::makeEvent(bool timing) {
  uint64_t handle = newHandle();
  events[handle].timing = timing;
  return handle;
}

cudaError_t Device::destroyEvent(uint64_t handle) {
  EventState *event = eventOf(handle, "cudaEventDestroy");
  if (!event)
    return cudaErrorInvalidResourceHandle;
  expect(!event->capture || event->capture->ended,
         "an event is destroyed while a graph that has it is captured");
  for (const auto &[number, executable] : executables)
    expect(
        std::none_of(executable.nodes.begin(), executable.nodes.end(),
                     [&](const Node &node) { return node.records == handle; }),
        "an event is destroyed that a graph records");
  events.erase(handle);
  return cudaSuccess;
}

cudaError_t Device::record(uint64_t handle, uint64_t streamHandle) {
  threadHasDevice("cudaEventRecord");
  EventState *event = eventOf(handle, "cudaEventRecord");
  StreamState *stream = streamOf(streamHandle, "cudaEventRecord");
  if (!event || !stream)
    return cudaErrorInvalidResourceHandle;
  expectNothingPromised(*stream, "cudaEventRecord");
  if (event->timing && !stream->capture) {
    count("record of a time");
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    Operation look;
    look.begin = [this, time](const std::shared_ptr<Work> &work) {
      *time = std::chrono::steady_clock::now();
      finish(work);
    };
    start(look, stream->last);
    event->time = time;
  }
  event->recorded = true;
  event->works = stream->last;
  event->capture = stream->capture;
  event->nodes = stream->heads;
  event->known = stream->known;
  return stream->capture && stream->capture->invalid
             ? cudaErrorStreamCaptureInvalidated
             : cudaSuccess;
}

cudaError_t Device::recordInGraph(uint64_t handle, uint64_t streamHandle) {
  threadHasDevice("cudaEventRecord");
  EventState *event = eventOf(handle, "cudaEventRecord");
  StreamState *stream = streamOf(streamHandle, "cudaEventRecord");
  if (!event || !stream)
    return cudaErrorInvalidResourceHandle;
  if (!expect(stream->capture != nullptr,
              "an event is recorded in a graph, and there is none"))
    return cudaErrorIllegalState;
  if (stream->capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  expectNothingPromised(*stream, "cudaEventRecord");
  std::vector<Node> &nodes = stream->capture->nodes;
  nodes.push_back({{"a record", {}, nullptr, nullptr}, stream->heads, handle});
  stream->heads = {nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t Device::synchroniseEvent(uint64_t handle,
                                     std::unique_lock<std::mutex> &lock) {
  threadHasDevice("cudaEventSynchronize");
  if (!maySkipCapture("cudaEventSynchronize"))
    return cudaErrorStreamCaptureUnsupported;
  EventState *event = eventOf(handle, "cudaEventSynchronize");
  if (!event)
    return cudaErrorInvalidResourceHandle;
  // CUDA would not wait at all.
  if (!expect(event->recorded && !event->capture,
              "the host waits for an event that nothing outside graphs, or no "
              "graph that was started, recorded"))
    return cudaErrorInvalidValue;
  const Clock known = event->known;
  if (!await(Works(event->works), lock, "cudaEventSynchronize"))
    return cudaErrorLaunchTimeout;
  finish(known);
  return cudaSuccess;
}

cudaError_t Device::wait(uint64_t streamHandle, uint64_t handle) {
  threadHasDevice("cudaStreamWaitEvent");
  EventState *event = eventOf(handle, "cudaStreamWaitEvent");
  StreamState *stream = streamOf(streamHandle, "cudaStreamWaitEvent");
  if (!event || !stream)
    return cudaErrorInvalidResourceHandle;
  expectNothingPromised(*stream, "cudaStreamWaitEvent");
  if (event->capture && event->capture->ended) {
    expect(false, "a stream waits for an event that only a graph recorded");
    return cudaErrorCapturedEvent;
  }
  if (event->capture) {
    if (stream->capture && stream->capture != event->capture) {
      expect(false, "a stream of one capture waits for another");
      return cudaErrorStreamCaptureMerge;
    }
    if (!stream->capture) {
      // It forks: even if nothing else is put on it, it has to come back.
      stream->capture = event->capture;
      stream->capture->nodes.push_back(
          {{"a fork", {}, nullptr, nullptr}, event->nodes});
      stream->heads = {stream->capture->nodes.size() - 1};
    } else {
      addAll(stream->heads, event->nodes);
    }
    return cudaSuccess;
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    expect(false, "a stream that is captured waits for what is outside");
    return cudaErrorStreamCaptureIsolation;
  }
  merge(stream->known, event->known);
  for (const std::shared_ptr<Work> &work : event->works)
    if (!work->done)
      stream->last.push_back(work);
  return cudaSuccess;
}

cudaError_t Device::query(uint64_t handle) {
  threadHasDevice("cudaEventQuery");
  if (!maySkipCapture("cudaEventQuery"))
    return cudaErrorStreamCaptureUnsupported;
  EventState *event = eventOf(handle, "cudaEventQuery");
  if (!event)
    return cudaErrorInvalidResourceHandle;
  if (!expect(!event->capture, "the host asks for an event of a graph"))
    return cudaErrorCapturedEvent;
  if (!allDone(event->works))
    return cudaErrorNotReady;
  // A host that sees it knows that it is done.
  finish(event->known);
  return cudaSuccess;
}

cudaError_t Device::elapsed(uint64_t first, uint64_t second,
                            float *milliseconds) {
  // So long that whoever measures does not measure often.
  *milliseconds = 1000;
  for (uint64_t handle : {first, second}) {
    EventState *event = eventOf(handle, "cudaEventElapsedTime");
    if (!event ||
        !expect(event->recorded && event->timing && !event->capture,
                "the time of an event that no stream outside graphs recorded"))
      return cudaErrorInvalidResourceHandle;
    if (!expect(isDone(event->known),
                "the time of an event that nobody waited for"))
      return cudaErrorNotReady;
  }
  if (hasClock)
    *milliseconds = std::chrono::duration<float, std::milli>(
                        *eventOf(second, "cudaEventElapsedTime")->time -
                        *eventOf(first, "cudaEventElapsedTime")->time)
                        .count();
  return cudaSuccess;
}

cudaError_t Device::beginCapture(uint64_t handle, cudaStreamCaptureMode mode) {
  threadHasDevice("cudaStreamBeginCapture");
  StreamState *stream = streamOf(handle, "cudaStreamBeginCapture");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  if (!expect(!stream->capture, "a stream is captured twice"))
    return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>(
      Capture{handle, std::this_thread::get_id(), mode, false, false, {}});
  stream->heads.clear();
  return cudaSuccess;
}

cudaError_t Device::endCapture(uint64_t handle, uint64_t *graph) {
  *graph = 0;
  StreamState *stream = streamOf(handle, "cudaStreamEndCapture");
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  std::shared_ptr<Capture> capture = stream->capture;
  if (!expect(capture && capture->origin == handle,
              "a capture is ended that this stream did not begin"))
    return cudaErrorIllegalState;
  if (!expect(capture->mode == cudaStreamCaptureModeRelaxed ||
                  capture->thread == std::this_thread::get_id(),
              "a capture is ended by another thread"))
    return cudaErrorStreamCaptureWrongThread;
  for (auto &[other, state] : streams)
    if (state.capture == capture && !capture->invalid)
      expectNothingPromised(state, "the end of a capture");
  std::vector<bool> reached(capture->nodes.size());
  std::vector<size_t> open = stream->heads;
  while (!open.empty()) {
    size_t node = open.back();
    open.pop_back();
    if (reached[node])
      continue;
    reached[node] = true;
    for (size_t before : capture->nodes[node].before)
      open.push_back(before);
  }
  bool joined = true;
  for (auto &[other, state] : streams) {
    if (state.capture != capture)
      continue;
    for (size_t head : state.heads)
      joined = joined && reached[head];
    state.capture = nullptr;
    state.heads.clear();
  }
  capture->ended = true;
  changed.notify_all();
  if (capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  if (!expect(joined, "a stream of a capture does not come back to its origin"))
    return cudaErrorStreamCaptureUnjoined;
  *graph = newHandle();
  graphs[*graph] = std::move(capture->nodes);
  return cudaSuccess;
}

cudaError_t Device::destroyGraph(uint64_t graph) {
  changed.notify_all();
  return expect(graphs.erase(graph) == 1, "a graph is destroyed that is none")
             ? cudaSuccess
             : cudaErrorInvalidResourceHandle;
}

cudaError_t Device::instantiate(uint64_t graph, uint64_t *executable) {
  if (!maySkipCapture("cudaGraphInstantiate"))
    return cudaErrorStreamCaptureUnsupported;
  auto found = graphs.find(graph);
  if (!expect(found != graphs.end(), "a graph is made of one that is none"))
    return cudaErrorInvalidResourceHandle;
  *executable = newHandle();
  executables[*executable] = {found->second, {}};
  return cudaSuccess;
}

cudaError_t Device::launch(uint64_t executable, uint64_t handle) {
  threadHasDevice("cudaGraphLaunch");
  auto found = executables.find(executable);
  StreamState *stream = streamOf(handle, "cudaGraphLaunch");
  if (!expect(found != executables.end(),
              "a graph is started that is not alive") ||
      !stream)
    return cudaErrorInvalidResourceHandle;
  if (!expect(!stream->capture, "a graph is started on a captured stream"))
    return cudaErrorStreamCaptureUnsupported;
  expectNothingPromised(*stream, "cudaGraphLaunch");
  // In the order in which it was captured, which is one of those it allows.
  const std::vector<Node> &nodes = found->second.nodes;
  for (const Node &node : nodes)
    if (checkMemory(node.operation) && node.operation.body)
      node.operation.body();
  // Of one graph, starts run one behind the other.
  Works &runs = found->second.runs, first = stream->last, works;
  first.insert(first.end(), runs.begin(), runs.end());
  for (const Node &node : nodes) {
    Works before = node.before.empty() ? first : Works();
    for (size_t i : node.before)
      before.push_back(works[i]);
    works.push_back(start(node.operation, before));
  }
  // Whoever waits for an event that the graph records knows of what comes
  // before it in the graph, and not of the rest.
  std::vector<bool> isPut(nodes.size());
  auto putPart = [&](std::vector<size_t> open) {
    Operation part{"a graph", {}, nullptr, nullptr};
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      if (isPut[i])
        continue;
      isPut[i] = true;
      const Operation &one = nodes[i].operation;
      part.ranges.insert(part.ranges.end(), one.ranges.begin(),
                         one.ranges.end());
      part.user = part.user ? part.user : one.user;
      open.insert(open.end(), nodes[i].before.begin(), nodes[i].before.end());
    }
    put(handle, *stream, std::move(part));
  };
  std::vector<size_t> all;
  for (size_t i = 0; i < nodes.size(); ++i) {
    all.push_back(i);
    EventState *event = nodes[i].records
                            ? eventOf(nodes[i].records, "cudaGraphLaunch")
                            : nullptr;
    if (!event)
      continue;
    putPart({i});
    event->recorded = true;
    event->capture = nullptr;
    event->known = stream->known;
    event->works = {works[i]};
  }
  putPart(std::move(all));
  stream->last.insert(stream->last.end(), works.begin(), works.end());
  runs =
      stream->last = {start({"a graph", {}, nullptr, nullptr}, stream->last)};
  return cudaSuccess;
}

cudaError_t Device::destroyExecutable(uint64_t executable) {
  auto found = executables.find(executable);
  if (!expect(found != executables.end(),
              "an executable graph is destroyed that is none"))
    return cudaErrorInvalidResourceHandle;
  // Nobody waits: what runs is freed when it ends.
  destroyed.push_back(std::move(found->second));
  executables.erase(found);
  std::erase_if(destroyed,
                [](const Executable &each) { return allDone(each.runs); });
  changed.notify_all();
  return cudaSuccess;
}

int64_t Device::graphsOf(const void *user) const {
  auto has = [&](const std::vector<Node> &nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [&](const Node &node) {
      return node.operation.user == user;
    });
  };
  int64_t count = 0;
  for (const auto &[handle, nodes] : graphs)
    count += has(nodes);
  for (const auto &[handle, executable] : executables)
    count += has(executable.nodes);
  for (const Executable &executable : destroyed)
    count += !allDone(executable.runs) && has(executable.nodes);
  for (const auto &[handle, stream] : streams)
    count += stream.capture && stream.capture->origin == handle &&
             has(stream.capture->nodes);
  return count;
}

void Device::addMemory(const void *address, uint64_t bytes, Memory kind) {
  memory[reinterpret_cast<uintptr_t>(address)] = {bytes, kind};
}

bool Device::removeMemory(const void *address, Memory kind, const char *what) {
  auto found = memory.find(reinterpret_cast<uintptr_t>(address));
  if (!expect(found != memory.end() && found->second.kind == kind,
              std::string(what) + " of memory that is not alive"))
    return false;
  for (const auto &[handle, stream] : streams)
    for (const StreamState::Pending &pending : stream.pending)
      for (const Range &range : pending.operation.ranges)
        if (overlap(range, found->first, found->second.bytes)) {
          expect(false, std::string(what) + " of memory that " +
                            pending.operation.what + " may still use");
          memory.erase(found);
          return true;
        }
  memory.erase(found);
  return true;
}

bool Device::isMemory(const Range &range, bool pinnedToo) const {
  auto at = reinterpret_cast<uintptr_t>(range.address);
  auto found = memory.upper_bound(at);
  if (found == memory.begin())
    return false;
  --found;
  return at - found->first + range.bytes <= found->second.bytes &&
         (pinnedToo || found->second.kind == Memory::Device);
}

bool Device::isWhole(const Range &range) const {
  auto at = reinterpret_cast<uintptr_t>(range.address);
  auto found = registrable.upper_bound(at);
  if (found == registrable.begin())
    return true;
  --found;
  const uintptr_t end = found->first + found->second;
  return at >= end || at + range.bytes <= end;
}

uint64_t Device::bytesOnDevice() const {
  uint64_t bytes = 0;
  for (const auto &[address, allocation] : memory)
    if (allocation.kind == Memory::Device)
      bytes += allocation.bytes;
  // Buffers of communicators, which the library takes by itself.
  constexpr uint64_t bytesOfCommunicator = uint64_t(8) << 20;
  if (auto found = others.find("communicators"); found != others.end())
    bytes += bytesOfCommunicator * found->second.size();
  return bytes;
}

} // namespace grt::fake
