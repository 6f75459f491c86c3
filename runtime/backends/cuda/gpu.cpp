//===- gpu.cpp - Memory, streams, events and graphs of a device -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The CUDA runtime is linked in; it loads the driver when it is first asked for
// something. The process's ranks share one device and its primary context.
//
//===----------------------------------------------------------------------===//

#include "gpu.h"
#include "queries.h"

#include "grt/cuda_bounds.h"
#include "windows.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <map>
#include <mutex>

namespace grt::cuda {

namespace {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  // It is told here: the thread's next launch does not take it for its own.
  static_cast<void>(cudaGetLastError());
  throw DeviceError(std::string(what) + ": " + cudaGetErrorString(error));
}

/// The driver's calls for memory behind chosen addresses.
struct Driver {
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) setAccess;
  decltype(&cuGetErrorString) errorString;
  decltype(&cuDeviceGet) deviceGet;
  decltype(&cuDeviceGetAttribute) attribute;
  /// The function, from 11.4 on, names the part of a device (MIG), where the
  /// device is one.
  decltype(&cuDeviceGetUuid) uuid;

  Driver() {
    auto find = [](auto &function, const char *name) {
      void *found = nullptr;
      cudaDriverEntryPointQueryResult status;
      cudaError_t error = cudaGetDriverEntryPointByVersion(
          name, &found, 12000, cudaEnableDefault, &status);
      if (error != cudaSuccess || !found)
        throw DeviceError(std::string("the CUDA driver has no ") + name);
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find(reserve, "cuMemAddressReserve");
    find(free, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(release, "cuMemRelease");
    find(map, "cuMemMap");
    find(unmap, "cuMemUnmap");
    find(setAccess, "cuMemSetAccess");
    find(errorString, "cuGetErrorString");
    find(deviceGet, "cuDeviceGet");
    find(attribute, "cuDeviceGetAttribute");
    find(uuid, "cuDeviceGetUuid");
  }
  void check(CUresult result, const char *what) const {
    if (result == CUDA_SUCCESS)
      return;
    const char *text = "unknown error";
    errorString(result, &text);
    throw DeviceError(std::string(what) + ": " + text);
  }
};

const Driver &driver() {
  static const Driver table;
  return table;
}

int countDevices() {
  // The runtime's own message for this says less.
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    const char *why = dlerror();
    throw DeviceError(
        std::string("no CUDA device: the driver cannot be loaded (") +
        (why ? why : "libcuda.so.1") + ")");
  }
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    throw DeviceError(std::string("no CUDA device: ") +
                      (error != cudaSuccess ? cudaGetErrorString(error)
                                            : "the driver lists none") +
                      // The error comes on machines whose GPUs are joined by
                      // switches.
                      (error == cudaErrorSystemNotReady
                           ? "; is the fabric manager up (systemctl status "
                             "nvidia-fabricmanager)?"
                           : ""));
  return count;
}

/// The device of this process, once it is chosen.
std::atomic<int> chosen = -1;

/// The device that was chosen; else the one that the environment names, or the
/// first.
int openDevice() {
  int count = countDevices(), number = 0;
  if (const char *wish = std::getenv("GRT_CUDA_DEVICE")) {
    char *end = nullptr;
    long device = std::strtol(wish, &end, 10);
    if (end == wish || *end || device < 0 || device >= count)
      throw DeviceError("GRT_CUDA_DEVICE must be in [0, " +
                        std::to_string(count) + "), found '" + wish + "'");
    number = int(device);
  }
  int none = -1;
  return chosen.compare_exchange_strong(none, number) ? number : none;
}

int device() {
  static const int number = openDevice();
  return number;
}

/// Whether the device says yes to an attribute; no where the driver is older.
bool deviceHas(CUdevice_attribute attribute) {
  const Driver &table = driver();
  CUdevice handle = 0;
  int value = 0;
  table.check(table.deviceGet(&handle, device()), "cuDeviceGet");
  return table.attribute(&value, attribute, handle) == CUDA_SUCCESS && value;
}

/// Returns how pieces of memory are made: so that other processes of the
/// machine, or of machines that share their switches, can map them, and network
/// adapters reach them, as far as this device can. NCCL registers no other
/// memory.
CUmemAllocationProp findPieceProperties() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device();
  properties.allocFlags.gpuDirectRDMACapable =
      deviceHas(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  int handles = CU_MEM_HANDLE_TYPE_NONE;
  if (deviceHas(
          CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    handles |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.requestedHandleTypes = CUmemAllocationHandleType(handles);
#if CUDA_VERSION >= 12040
  // A device that has them may belong to a process that may not.
  if (deviceHas(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
    CUmemAllocationProp shared = properties;
    shared.requestedHandleTypes =
        CUmemAllocationHandleType(handles | CU_MEM_HANDLE_TYPE_FABRIC);
    CUmemGenericAllocationHandle tried = 0;
    const Driver &table = driver();
    if (table.create(&tried, GRT_CUDA_GRANULE, &shared, 0) == CUDA_SUCCESS) {
      table.release(tried);
      return shared;
    }
  }
#endif
  return properties;
}

const CUmemAllocationProp &pieceProperties() {
  static const CUmemAllocationProp properties = findPieceProperties();
  return properties;
}

/// The arenas that `allocate` made of pieces, by their address.
struct Allocated {
  std::mutex mutex;
  std::map<void *, grt_arena> arenas;
};
Allocated &allocated() {
  static auto *all = new Allocated(); // threads may outlive statics
  return *all;
}

} // namespace

void checkLaunch(int error) { check(cudaError_t(error), "kernel launch"); }

namespace gpu {

int count() { return countDevices(); }

void choose(int number) {
  if (int there = count(); number < 0 || number >= there)
    throw DeviceError("device " + std::to_string(number) +
                      " is not among the " + std::to_string(there) +
                      " that this process may use");
  int used = -1;
  if (!chosen.compare_exchange_strong(used, number) && used != number)
    throw DeviceError("this process is on device " + std::to_string(used) +
                      " already, expected device " + std::to_string(number));
}

std::string identity() {
  CUdevice handle = 0;
  CUuuid uuid = {};
  const Driver &table = driver();
  table.check(table.deviceGet(&handle, device()), "cuDeviceGet");
  table.check(table.uuid(&uuid, handle), "cuDeviceGetUuid");
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x",
                  unsigned(static_cast<unsigned char>(uuid.bytes[i])));
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "");
    text += digits;
  }
  return text;
}

void use() {
  static thread_local bool current = false;
  if (current)
    return;
  check(cudaSetDevice(device()), "cudaSetDevice");
  current = true;
}

void *allocate(uint64_t bytes) {
  static const bool hasPieces =
      deviceHas(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (bytes >= GRT_CUDA_GRANULE && hasPieces) {
    const grt_arena whole = {bytes, 0, 0, 0, 1, 1};
    void *made = mapArena(whole);
    if (made) {
      std::lock_guard<std::mutex> lock(allocated().mutex);
      allocated().arenas[made] = whole;
    }
    return made;
  }
  void *memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError(); // so that no later call reports it
    return nullptr;
  }
  check(error, "cudaMalloc");
  return memory;
}

void release(void *memory) {
  {
    std::unique_lock<std::mutex> lock(allocated().mutex);
    auto found = allocated().arenas.find(memory);
    if (found != allocated().arenas.end()) {
      const grt_arena whole = found->second;
      allocated().arenas.erase(found);
      lock.unlock();
      return unmapArena(memory, whole);
    }
  }
  cudaFree(memory);
}

void *mapArena(const grt_arena &arena) {
  std::vector<MappedRange> ranges = mappedRanges(arena, GRT_CUDA_GRANULE);
  const Driver &table = driver();
  // NCCL registers the piece that a buffer begins in (cuMemGetAddressRange),
  // and not all versions look where it ends: without handles nothing is
  // registered.
  CUmemAllocationProp properties = pieceProperties();
  if (!arena.whole_buffers)
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  uint64_t bytes = ranges.back().offset + ranges.back().bytes;
  CUdeviceptr base = 0;
  table.check(table.reserve(&base, bytes, GRT_CUDA_GRANULE, 0, 0),
              "cuMemAddressReserve");
  CUmemGenericAllocationHandle shared = 0;
  size_t mapped = 0;
  CUresult result = CUDA_SUCCESS;
  for (; mapped < ranges.size(); ++mapped) {
    const MappedRange &range = ranges[mapped];
    CUmemGenericAllocationHandle memory = range.window ? shared : 0;
    if (!memory) {
      result = table.create(&memory, range.bytes, &properties, 0);
      if (result != CUDA_SUCCESS)
        break;
    }
    if (range.window)
      shared = memory;
    result = table.map(base + range.offset, range.bytes, 0, memory, 0);
    // A mapping keeps its memory.
    if (!range.window)
      table.release(memory);
    if (result != CUDA_SUCCESS)
      break;
  }
  if (shared)
    table.release(shared);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = table.setAccess(base, bytes, &access, 1);
  }
  if (result == CUDA_SUCCESS)
    return reinterpret_cast<void *>(base);
  for (size_t i = 0; i < mapped; ++i)
    table.unmap(base + ranges[i].offset, ranges[i].bytes);
  table.free(base, bytes);
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    table.check(result, "mapping an arena");
  return nullptr;
}

void unmapArena(void *memory, const grt_arena &arena) {
  std::vector<MappedRange> ranges = mappedRanges(arena, GRT_CUDA_GRANULE);
  auto base = reinterpret_cast<CUdeviceptr>(memory);
  for (const MappedRange &range : ranges)
    driver().unmap(base + range.offset, range.bytes);
  driver().free(base, ranges.back().offset + ranges.back().bytes);
}

void *allocateHost(uint64_t bytes) {
  void *memory = nullptr;
  cudaError_t error =
      cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes,
                    cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(error, "cudaHostAlloc");
  return memory;
}

void releaseHost(void *memory) { cudaFreeHost(memory); }

void *addressOnDevice(void *hostMemory) {
  void *address = nullptr;
  check(cudaHostGetDevicePointer(&address, hostMemory, 0),
        "cudaHostGetDevicePointer");
  return address;
}

uint64_t bytesInUse() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total - free;
}

uint64_t cacheBytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device()),
        "cudaDeviceGetAttribute");
  return uint64_t(bytes);
}

uint64_t sharedBytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(
            &bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device()),
        "cudaDeviceGetAttribute");
  return uint64_t(bytes);
}

int capability() {
  int major = 0, minor = 0;
  for (auto [to, attribute] :
       {std::pair(&major, cudaDevAttrComputeCapabilityMajor),
        {&minor, cudaDevAttrComputeCapabilityMinor}})
    check(cudaDeviceGetAttribute(to, attribute, device()),
          "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

int multiprocessors() {
  int count = 0;
  check(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device()),
      "cudaDeviceGetAttribute");
  return count;
}

bool multipliesInGroups() {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                               device()),
        "cudaDeviceGetAttribute");
  return major == 9;
}

std::string deviceKind() {
  auto ask = [](cudaDeviceAttr attribute) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device()),
          "cudaDeviceGetAttribute");
    return std::to_string(value);
  };
  return "compute capability " + ask(cudaDevAttrComputeCapabilityMajor) + "." +
         ask(cudaDevAttrComputeCapabilityMinor) + ", " +
         ask(cudaDevAttrMultiProcessorCount) + " multiprocessors";
}

Stream makeStream(bool urgent) {
  // The smaller a number, the more urgent.
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
        "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     urgent ? greatest : least),
        "cudaStreamCreate");
  return stream;
}

void destroyStream(Stream stream) { cudaStreamDestroy(stream); }

void synchronise(Stream stream) {
  check(cudaStreamSynchronize(stream), "earlier work failed");
}

void fill(Stream stream, void *to, int byte, uint64_t bytes) {
  if (bytes > 0)
    check(cudaMemsetAsync(to, byte, bytes, stream), "cudaMemsetAsync");
}

void copy(Stream stream, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
          "cudaMemcpyAsync");
}

Event makeEvent(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault
                                               : cudaEventDisableTiming),
        "cudaEventCreate");
  return event;
}

void destroyEvent(Event event) { cudaEventDestroy(event); }

void record(Stream stream, Event event) {
  check(cudaEventRecord(event, stream), "cudaEventRecord");
}

void recordForHost(Stream stream, Event event) {
  check(cudaEventRecordWithFlags(event, stream,
                                 isCapturing(stream) ? cudaEventRecordExternal
                                                     : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
}

void await(Event event) {
  check(cudaEventSynchronize(event), "earlier work failed");
}

void wait(Stream stream, Event event) {
  check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

bool isDone(Event event) {
  cudaError_t error = cudaEventQuery(event);
  if (error == cudaErrorNotReady) {
    // It is no error, but the thread's last one, which the next launch would
    // take for its own.
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(error, "earlier work failed");
  return true;
}

double millisecondsBetween(Event first, Event second) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, first, second),
        "cudaEventElapsedTime");
  return milliseconds;
}

bool hasGraphs() { return true; }

void beginCapture(Stream origin) {
  // Other ranks of the process go on doing what they do.
  check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}

Graph endCapture(Stream origin) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(origin, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  // Kernels keep the priority of the stream that they were captured on.
  cudaError_t error = cudaGraphInstantiate(
      &executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
  return executable;
}

void dropCapture(Stream origin) {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(origin, &graph);
  if (graph)
    cudaGraphDestroy(graph);
  cudaGetLastError(); // so that no later call reports it
}

bool isCapturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void launchGraph(Graph graph, Stream stream) {
  check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
}

void destroyGraph(Graph graph) { cudaGraphExecDestroy(graph); }

} // namespace gpu
} // namespace grt::cuda
