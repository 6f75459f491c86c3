//===- rank.cpp - What the CUDA backend keeps for one rank ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "rank.h"
#include "../common/call.h"
#include "grt/axes.h"

#include "grt/cuda_bounds.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

namespace grt::cuda {

namespace {
/// The time that an abort gets to be through before a rank that ends leaves it
/// behind.
constexpr std::chrono::milliseconds abortPatience{2000};

[[noreturn]] void throwAborted() { throw DeviceError("the rank was aborted"); }
} // namespace

Rank::Rank() {
  gpu::use();
  try {
    // Kernels fill the device whenever it is left to them; a collective that
    // comes late holds up all of its group.
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      streams[s] = gpu::makeStream(streamForms[s].first);
    for (uint32_t i = 0; i < rankEvents; ++i)
      events.push_back(gpu::makeEvent());
    fork = gpu::makeEvent();
    for (Event &join : joins)
      join = gpu::makeEvent();
    complaint = static_cast<Complaint *>(gpu::allocateHost(sizeof(Complaint)));
    if (!complaint)
      throw DeviceError("no pinned memory of the host");
    std::memset(static_cast<void *>(complaint), 0, sizeof(Complaint));
    complaintOnDevice =
        static_cast<Complaint *>(gpu::addressOnDevice(complaint));
    products = openProducts();
    fusedAttention = openFusedAttention();
    const char *wish = std::getenv("GRT_CUDA_ATTENTION");
    plainAttention = wish && !std::strcmp(wish, "plain");
  } catch (...) {
    release();
    throw;
  }
}

Rank::~Rank() { release(); }

void Rank::destroyGraphs() {
  std::vector<Graph> taken;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    if (!makesGraph && !startsGraph)
      taken.swap(graphs);
  }
  for (Graph graph : taken)
    if (graph)
      gpu::destroyGraph(graph);
}

void Rank::setMembership(std::unique_ptr<Membership> joined) {
  std::lock_guard<std::mutex> lock(graphsMutex);
  expectRunning();
  membership = std::move(joined);
}

void Rank::abort() {
  Membership *joined = nullptr;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    aborted = true;
    joined = membership.get();
  }
  // First, as a device whose queues are full behind what hangs may hold up
  // whoever comes with anything else.
  if (joined)
    joined->abort();
  gpu::use();
  destroyGraphs();
}

void Rank::release() {
  bool inCapture, wasAborted;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    inCapture = std::exchange(makesGraph, false);
    wasAborted = aborted;
  }
  // A call failed between the beginning and the end of a graph.
  if (inCapture)
    gpu::dropCapture(streams[GRT_STREAM_COMPUTE]);
  if (wasAborted || (membership && membership->isAborted())) {
    abort();
    if (membership && !membership->awaitAbort(abortPatience)) {
      // The membership that hangs uses what would be given back here, and
      // nobody may wait for it: the process ends with all of that.
      static_cast<void>(membership.release());
      static_cast<void>(fusedAttention.release());
      static_cast<void>(products.release());
      return;
    }
  }
  // Work that is left would use what goes.
  for (Stream stream : streams)
    if (stream)
      try {
        gpu::synchronise(stream);
      } catch (const DeviceError &) {
        // It has been reported, or nobody asked.
      }
  destroyGraphs();
  membership.reset();
  fusedAttention.reset();
  products.reset();
  for (Event stamp : stamps)
    gpu::destroyEvent(stamp);
  for (Event event : events)
    gpu::destroyEvent(event);
  if (fork)
    gpu::destroyEvent(fork);
  for (Event join : joins)
    if (join)
      gpu::destroyEvent(join);
  for (Stream stream : streams)
    if (stream)
      gpu::destroyStream(stream);
  if (ownsWorkspace)
    gpu::release(workspace);
  if (complaint)
    gpu::releaseHost(complaint);
}

Stream Rank::stream(uint32_t number) const {
  if (number >= GRT_STREAM_COUNT)
    throw DeviceError("streams are below " + std::to_string(GRT_STREAM_COUNT) +
                      ", found " + std::to_string(number));
  return streams[number];
}

Event Rank::event(uint32_t number) const {
  if (number >= rankEvents)
    throw DeviceError("events are below " + std::to_string(rankEvents) +
                      ", found " + std::to_string(number));
  return events[number];
}

Queue Rank::queue(const char *opName) {
  if (!workspace) {
    workspace = gpu::allocate(GRT_CUDA_WORKSPACE);
    if (!workspace)
      throw DeviceError("no memory for a workspace of " +
                        std::to_string(GRT_CUDA_WORKSPACE) + " bytes");
    workspaceBytes = GRT_CUDA_WORKSPACE;
    ownsWorkspace = true;
  }
  return {streams[GRT_STREAM_COMPUTE], workspace, workspaceBytes,
          complaintOnDevice, opName};
}

void Rank::useWorkspace(void *memory, uint64_t bytes) {
  if (workspace)
    throw DeviceError("the workspace is given once, before the first kernel");
  if (bytes < GRT_CUDA_WORKSPACE || reinterpret_cast<uintptr_t>(memory) % 256)
    throw DeviceError("a workspace has " + std::to_string(GRT_CUDA_WORKSPACE) +
                      " bytes at a multiple of 256, found " +
                      std::to_string(bytes));
  workspace = memory;
  workspaceBytes = bytes;
}

void Rank::synchronise(uint32_t number) {
  if (number == GRT_STREAM_COUNT)
    for (Stream one : streams)
      gpu::synchronise(one);
  else
    gpu::synchronise(stream(number));
  throwComplaint();
}

void Rank::await(uint32_t number) {
  gpu::await(event(number));
  throwComplaint();
}

void Rank::throwComplaint() {
  // Kernels that still run on other streams may be about to complain: `kind` is
  // written last, and what is not there yet is seen the next time.
  auto kind = std::atomic_ref<uint32_t>(complaint->kind).load();
  if (kind == Complaint::None)
    return;
  Complaint found = *complaint;
  std::memset(static_cast<void *>(complaint), 0, sizeof(Complaint));
  std::string where =
      std::to_string(found.value) + " at row " + std::to_string(found.row);
  std::string limit = std::to_string(found.limit);
  if (kind == Complaint::Generation)
    throw DeviceError(std::string(found.name) + ": " + generationOfBlocks);
  throw DeviceError(std::string(found.name) + ": " +
                    (kind == Complaint::Token
                         ? "token " + where + " is not in [0, " + limit + ")"
                         : "label " + where + " is not below " + limit));
}

void Rank::expectRunning() const {
  if (aborted)
    throwAborted();
}

void Rank::beginGraph() {
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    expectRunning();
    makesGraph = true;
  }
  try {
    gpu::beginCapture(streams[GRT_STREAM_COMPUTE]);
  } catch (...) {
    std::lock_guard<std::mutex> lock(graphsMutex);
    makesGraph = false;
    throw;
  }
  // All streams are part of the capture, whether or not the caller ties them to
  // COMPUTE.
  gpu::record(streams[GRT_STREAM_COMPUTE], fork);
  for (uint32_t s = 1; s < GRT_STREAM_COUNT; ++s)
    gpu::wait(streams[s], fork);
}

void Rank::endGraph(uint32_t number) {
  for (uint32_t s = 1; s < GRT_STREAM_COUNT; ++s) {
    gpu::record(streams[s], joins[s]);
    gpu::wait(streams[GRT_STREAM_COMPUTE], joins[s]);
  }
  // The graph is made outside the lock: an abort waits for nothing that the
  // device does.
  Graph graph = nullptr, before = nullptr;
  std::exception_ptr failure;
  try {
    graph = gpu::endCapture(streams[GRT_STREAM_COMPUTE]);
  } catch (...) {
    failure = std::current_exception();
  }
  bool ends = false;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    makesGraph = false;
    ends = aborted;
    if (graph) {
      graphs.resize(std::max<size_t>(graphs.size(), number + 1));
      before = std::exchange(graphs[number], graph);
    }
  }
  if (before)
    gpu::destroyGraph(before);
  if (ends) {
    destroyGraphs();
    throwAborted();
  }
  if (failure)
    std::rethrow_exception(failure);
}

void Rank::launchGraph(uint32_t number) {
  Graph graph = nullptr;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    expectRunning();
    if (number >= graphs.size() || !graphs[number])
      throw DeviceError("there is no graph " + std::to_string(number));
    graph = graphs[number];
    startsGraph = true;
  }
  // The launch is outside the lock: it may wait for room behind what an abort
  // has to end.
  std::exception_ptr failure;
  try {
    gpu::launchGraph(graph, streams[GRT_STREAM_COMPUTE]);
  } catch (...) {
    failure = std::current_exception();
  }
  bool ends = false;
  {
    std::lock_guard<std::mutex> lock(graphsMutex);
    startsGraph = false;
    ends = aborted;
  }
  if (ends)
    destroyGraphs();
  if (failure)
    std::rethrow_exception(failure);
}

void Rank::stamp(uint32_t number, uint32_t place) {
  while (stamps.size() <= place)
    stamps.push_back(gpu::makeEvent(/*timed=*/true));
  gpu::record(stream(number), stamps[place]);
}

double Rank::stamped(uint32_t place) const {
  if (place >= stamps.size())
    throw DeviceError("there is no stamp " + std::to_string(place));
  return gpu::millisecondsBetween(stamps[0], stamps[place]);
}

uint64_t Rank::peakBytes() {
  // All ranks of the process have one device.
  static std::atomic<uint64_t> most{0};
  uint64_t now = gpu::bytesInUse(), before = most.load();
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  return most.load();
}

} // namespace grt::cuda
