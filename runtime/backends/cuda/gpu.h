//===- gpu.h - What the backend asks of a device --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thin layer over the driver and the CUDA runtime: memory, streams, events,
// graphs. gpu.cpp has it for devices, emulation/gpu.cpp for tests on the CPU.
// Everything throws DeviceError with a message that names the call.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_GPU_H
#define GRT_BACKENDS_CUDA_GPU_H

#include "grt/backend.h"

#include <stdexcept>
#include <stdint.h>
#include <string>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace grt::cuda {

class DeviceError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

using Stream = CUstream_st *;
using Event = CUevent_st *;
using Graph = CUgraphExec_st *;

/// Throws if `error`, a cudaError_t, says that a kernel was not launched.
void checkLaunch(int error);

namespace gpu {

/// Makes this process's device current on the calling thread. Throws where
/// there is none, saying what was tried.
void use();

/// Allocates one piece of memory that NCCL can register, or, of less than
/// GRT_CUDA_GRANULE, whatever the runtime has. Null when the device has less.
void *allocate(uint64_t bytes);
void release(void *memory);
/// Pieces that NCCL can register if the arena has whole buffers. Null when the
/// device has less; throws where the window's numbers are no multiples of
/// GRT_CUDA_GRANULE.
void *mapArena(const grt_arena &arena);
void unmapArena(void *memory, const grt_arena &arena);
/// Allocates pinned memory of the host that kernels can read; null when there
/// is none.
void *allocateHost(uint64_t bytes);
void releaseHost(void *memory);
/// The address that kernels use for memory of allocateHost.
void *addressOnDevice(void *hostMemory);
/// Bytes of the device in use at this moment, by whomever.
uint64_t bytesInUse();

/// Work on an `urgent` stream goes before what waits on others; in graphs too.
Stream makeStream(bool urgent);
void destroyStream(Stream stream);
void synchronise(Stream stream);
void fill(Stream stream, void *to, int byte, uint64_t bytes);
void copy(Stream stream, void *to, const void *from, uint64_t bytes);

/// Only records of a `timed` event read the device's clock.
Event makeEvent(bool timed = false);
void destroyEvent(Event event);
void record(Stream stream, Event event);
/// Records an event for `await`, and no stream. Every start of a graph that was
/// captured around it records it.
void recordForHost(Stream stream, Event event);
/// The host waits for the last record of the event. Throws what went wrong
/// before it.
void await(Event event);
/// The stream waits for the last record of the event before this call.
void wait(Stream stream, Event event);
double millisecondsBetween(Event first, Event second);

/// Work on this stream, and on those that wait for its events, is collected.
void beginCapture(Stream origin);
Graph endCapture(Stream origin);
/// Ends a capture and what was collected, whatever state it is in. On the
/// thread that began it.
void dropCapture(Stream origin);
bool isCapturing(Stream stream);
void launchGraph(Graph graph, Stream stream);
void destroyGraph(Graph graph);

} // namespace gpu
} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_GPU_H
