//===- backend.cpp - The CUDA backend's table -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "choices.h"
#include "collectives.h"
#include "dispatch.h"
#include "queries.h"
#include "rank.h"

#include "../common/call.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace grt::cuda {
namespace {

/// Why the last call on this thread that can only say null said so.
thread_local std::string lastFailure;

/// Runs a call that gives memory or a rank; null after a failure.
template <class Body> auto orNull(Body body) -> decltype(body()) {
  try {
    auto made = body();
    if (!made)
      lastFailure = "the device has no memory left";
    return made;
  } catch (const std::exception &error) {
    lastFailure = error.what();
  } catch (...) {
    lastFailure = "unknown failure";
  }
  return nullptr;
}

int32_t launchKernel(const grt_call *call, char *message, size_t messageBytes) {
  return guarded(nameOf(*call->op), message, messageBytes, [&] {
    gpu::use();
    launchCall(*call);
  });
}

int32_t prepare(void *state, const grt_kernel_op *op, char *message,
                size_t messageBytes) {
  return guarded(nameOf(*op), message, messageBytes, [&] {
    gpu::use();
    prepareCall(rankOf(state), *op);
  });
}

void *createRank(int32_t, int32_t) {
  return orNull([] {
    auto rank = std::make_unique<Rank>();
    rank->peakBytes();
    return static_cast<void *>(rank.release());
  });
}

void destroyRank(void *state) {
  if (state)
    gpu::use();
  delete static_cast<Rank *>(state);
}

void *allocate(size_t bytes) {
  return orNull([&] {
    gpu::use();
    return gpu::allocate(bytes);
  });
}

/// Makes the rank's device the thread's, for calls that cannot fail, of memory
/// that a device gave: threads that have not chosen it would open another.
void useQuietly() noexcept {
  try {
    gpu::use();
  } catch (const std::exception &) {
    // The call itself has the same to say to nobody.
  }
}

void release(void *memory, size_t) {
  if (!memory)
    return;
  useQuietly();
  gpu::release(memory);
}

void *mapArena(const grt_arena *arena) {
  return orNull([&] {
    gpu::use();
    return gpu::mapArena(*arena);
  });
}

void unmapArena(void *memory, const grt_arena *arena) {
  if (!memory)
    return;
  useQuietly();
  gpu::unmapArena(memory, *arena);
}

void *allocateHost(uint64_t bytes) {
  return orNull([&] {
    gpu::use();
    return gpu::allocateHost(bytes);
  });
}

void releaseHost(void *memory, uint64_t) {
  if (!memory)
    return;
  useQuietly();
  gpu::releaseHost(memory);
}

int32_t useWorkspace(void *state, void *memory, uint64_t bytes, char *message,
                     size_t messageBytes) {
  return guarded("use_workspace", message, messageBytes,
                 [&] { rankOf(state).useWorkspace(memory, bytes); });
}

int32_t fill(void *state, uint32_t stream, void *to, int32_t byte,
             uint64_t bytes, char *message, size_t messageBytes) {
  return guarded("fill", message, messageBytes, [&] {
    gpu::use();
    gpu::fill(rankOf(state).stream(stream), to, byte, bytes);
  });
}

int32_t copy(void *state, uint32_t stream, void *to, const void *from,
             uint64_t bytes, char *message, size_t messageBytes) {
  return guarded("copy", message, messageBytes, [&] {
    gpu::use();
    gpu::copy(rankOf(state).stream(stream), to, from, bytes);
  });
}

int32_t record(void *state, uint32_t stream, uint32_t event, char *message,
               size_t messageBytes) {
  return guarded("record", message, messageBytes, [&] {
    gpu::use();
    gpu::record(rankOf(state).stream(stream), rankOf(state).event(event));
  });
}

int32_t wait(void *state, uint32_t stream, uint32_t event, char *message,
             size_t messageBytes) {
  return guarded("wait", message, messageBytes, [&] {
    gpu::use();
    gpu::wait(rankOf(state).stream(stream), rankOf(state).event(event));
  });
}

int32_t synchronise(void *state, uint32_t stream, char *message,
                    size_t messageBytes) {
  return guarded("synchronise", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).synchronise(stream);
  });
}

int32_t beginGraph(void *state, char *message, size_t messageBytes) {
  return guarded("begin_graph", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).beginGraph();
  });
}

int32_t endGraph(void *state, uint32_t graph, char *message,
                 size_t messageBytes) {
  return guarded("end_graph", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).endGraph(graph);
  });
}

int32_t launchGraph(void *state, uint32_t graph, char *message,
                    size_t messageBytes) {
  return guarded("launch_graph", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).launchGraph(graph);
  });
}

int32_t stamp(void *state, uint32_t stream, uint32_t number, char *message,
              size_t messageBytes) {
  return guarded("stamp", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).stamp(stream, number);
  });
}

int32_t stamped(void *state, uint32_t number, double *milliseconds,
                char *message, size_t messageBytes) {
  return guarded("stamped", message, messageBytes, [&] {
    gpu::use();
    *milliseconds = rankOf(state).stamped(number);
  });
}

int32_t query(void *state, uint32_t event, int32_t *done, char *message,
              size_t messageBytes) {
  return guarded("query", message, messageBytes, [&] {
    gpu::use();
    *done = gpu::isDone(rankOf(state).event(event));
  });
}

uint64_t peakBytes(void *state) {
  try {
    gpu::use();
    return rankOf(state).peakBytes();
  } catch (const DeviceError &) {
    return 0;
  }
}

uint64_t cacheBytes(void *) {
  try {
    gpu::use();
    return gpu::cacheBytes();
  } catch (const DeviceError &) {
    return 0;
  }
}

int32_t pinHost(void *memory, uint64_t bytes, char *message,
                size_t messageBytes) {
  return guarded("pin_host", message, messageBytes, [&] {
    gpu::use();
    gpu::pinHost(memory, bytes);
  });
}

void unpinHost(void *memory, uint64_t) {
  useQuietly();
  gpu::unpinHost(memory);
}

int32_t addResults(void *state, const double *losses, uint64_t count,
                   grt_step *step, char *message, size_t messageBytes) {
  return guarded("add_results", message, messageBytes, [&] {
    gpu::use();
    addResults(rankOf(state).queue("losses"), losses, count, step);
  });
}

int32_t decideUpdate(void *state, const double *results, uint64_t ranks,
                     int32_t clips, grt_step *step, char *message,
                     size_t messageBytes) {
  return guarded("decide_update", message, messageBytes, [&] {
    gpu::use();
    decideUpdate(rankOf(state).queue("update"), results, ranks, clips != 0,
                 step);
  });
}

int32_t recordForHost(void *state, uint32_t stream, uint32_t event,
                      char *message, size_t messageBytes) {
  return guarded("record_for_host", message, messageBytes, [&] {
    gpu::use();
    gpu::recordForHost(rankOf(state).stream(stream),
                       rankOf(state).event(event));
  });
}

int32_t await(void *state, uint32_t event, char *message, size_t messageBytes) {
  return guarded("await", message, messageBytes, [&] {
    gpu::use();
    rankOf(state).await(event);
  });
}

const char *failure() { return lastFailure.c_str(); }

const char *choices() {
  static thread_local std::string text;
  text = usedChoices();
  return text.c_str();
}

int32_t choose(const char *text, char *message, size_t messageBytes) {
  return guarded("choose", message, messageBytes, [&] { giveChoices(text); });
}

/// Does the same as `guarded` for calls whose name says nothing to a user.
template <class Body>
int32_t told(char *message, size_t messageBytes, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    std::snprintf(message, messageBytes, "%s", error.what());
  }
  return 1;
}

int32_t countDevices(int32_t *count, char *message, size_t messageBytes) {
  return told(message, messageBytes, [&] { *count = gpu::count(); });
}

int32_t useDevice(int32_t number, char *message, size_t messageBytes) {
  return told(message, messageBytes, [&] { gpu::choose(number); });
}

int32_t deviceIdentity(char *identity, size_t bytes, char *message,
                       size_t messageBytes) {
  return told(message, messageBytes, [&] {
    std::snprintf(identity, bytes, "%s", gpu::identity().c_str());
  });
}

/// Returns the collectives of threads on one device; null where
/// GRT_CUDA_COLLECTIVES asks for NCCL between them, too.
const grt_device_collectives *collectivesOfThreads() {
  const char *wish = std::getenv("GRT_CUDA_COLLECTIVES");
  return wish && std::strcmp(wish, "nccl") == 0 ? nullptr : threadCollectives();
}

grt_device makeDevice() {
  grt_device device = {};
  device.bytes = sizeof(device);
  device.event_count = rankEvents;
  device.use_workspace = useWorkspace;
  device.allocate_host = allocateHost;
  device.release_host = releaseHost;
  device.fill = fill;
  device.copy = copy;
  device.record = record;
  device.wait = wait;
  device.synchronise = synchronise;
  if (gpu::hasGraphs()) {
    device.begin_graph = beginGraph;
    device.end_graph = endGraph;
    device.launch_graph = launchGraph;
  }
  device.stamp = stamp;
  device.stamped = stamped;
  device.query = query;
  device.peak_bytes = peakBytes;
  device.collectives = processCollectives();
  device.local_collectives = collectivesOfThreads();
  device.cache_bytes = cacheBytes;
  device.pin_host = pinHost;
  device.unpin_host = unpinHost;
  device.add_results = addResults;
  device.decide_update = decideUpdate;
  device.record_for_host = recordForHost;
  device.await = await;
  return device;
}

grt_backend makeBackend() {
  static const grt_device device = makeDevice();
  // All kernels share one function, which finds the kernel of a call itself.
  static const auto kernels = [] {
    std::array<grt_kernel_function, GRT_KERNEL_COUNT> all;
    all.fill(launchKernel);
    return all;
  }();
  grt_backend backend = {};
  backend.abi_version = GRT_ABI_VERSION;
  backend.bytes = sizeof(backend);
  backend.name = "cuda";
  backend.kernels = kernels.data();
  backend.kernel_count = uint32_t(kernels.size());
  backend.create_rank = createRank;
  backend.destroy_rank = destroyRank;
  backend.allocate = allocate;
  backend.release = release;
  backend.map_arena = mapArena;
  backend.unmap_arena = unmapArena;
  backend.prepare = prepare;
  backend.device = &device;
  backend.failure = failure;
  backend.choices = choices;
  backend.choose = choose;
  backend.count_devices = countDevices;
  backend.use_device = useDevice;
  backend.device_identity = deviceIdentity;
  return backend;
}

} // namespace
} // namespace grt::cuda

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static const grt_backend backend = grt::cuda::makeBackend();
  return &backend;
}
