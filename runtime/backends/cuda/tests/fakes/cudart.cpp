//===- cudart.cpp - A CUDA runtime of tests -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The calls that the backend makes, and those that nvcc writes for a kernel's
// launch, on the device of device.h. Kernels are looked up and their launches
// held to the limits of the devices that the backend is built for; nothing of
// them is run.
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "fakes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <utility>

using namespace grt::fake;

namespace {

constexpr uint64_t deviceBytes = uint64_t(8) << 30;
/// Of compute capability 8.9, the least of those that the backend is built for.
constexpr int mostDynamicShared = 99 * 1024, withoutAsking = 48 * 1024;

thread_local cudaError_t lastError = cudaSuccess;

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess)
    lastError = error;
  return error;
}

/// As `called`, for functions that say cudaError_t.
template <class Body> cudaError_t call(const char *function, Body body) {
  return noted(called(function, cudaSuccess, cudaErrorLaunchFailure,
                      [&](Device &device, std::unique_lock<std::mutex> &,
                          bool) -> cudaError_t { return body(device); }));
}
/// The same for calls in which the host waits.
template <class Body> cudaError_t waitingCall(const char *function, Body body) {
  return noted(called(function, cudaSuccess, cudaErrorLaunchFailure,
                      [&](Device &device, std::unique_lock<std::mutex> &lock,
                          bool) -> cudaError_t { return body(device, lock); }));
}

struct Kernel {
  std::string name;
  int dynamicShared = withoutAsking;
};
std::map<const void *, Kernel> &kernels() {
  static auto *all = new std::map<const void *, Kernel>();
  return *all;
}

/// What <<<...>>> leaves for the launch that follows it.
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t launch(const void *function, dim3 grid, dim3 block, size_t shared,
                   cudaStream_t stream) {
  return call("cudaLaunchKernel", [&](Device &device) {
    auto found = kernels().find(function);
    if (!device.expect(found != kernels().end(),
                       "a kernel is launched that nobody registered"))
      return cudaErrorInvalidDeviceFunction;
    const Kernel &kernel = found->second;
    const uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (!device.expect(grid.x && grid.y && grid.z && grid.x < 1u << 31 &&
                           grid.y <= 65535 && grid.z <= 65535 && threads &&
                           threads <= 1024 && block.z <= 64,
                       kernel.name + ": a grid or block of no such size") ||
        !device.expect(shared <= size_t(kernel.dynamicShared),
                       kernel.name + ": more shared memory than was asked for"))
      return cudaErrorInvalidConfiguration;
    device.load(kernel.name);
    return device.put(numberOf(stream), {kernel.name, {}, nullptr, nullptr});
  });
}

} // namespace

// ---- For tests --------------------------------------------------------------

GRT_FAKE void grt_fake_cuda_fault(const char *function, int64_t number,
                                  const char *kind) {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  const std::string name = kind;
  device.planFault(function, number,
                   name == "skip"     ? Fault::Skip
                   : name == "twice"  ? Fault::Twice
                   : name == "change" ? Fault::Change
                   : name == "fail"   ? Fault::Fail
                                      : Fault::None);
}
GRT_FAKE const char *grt_fake_cuda_complaints() {
  static std::string told;
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  told = device.takeComplaints();
  return told.c_str();
}
GRT_FAKE const char *grt_fake_cuda_alive() {
  static std::string told;
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  told = device.alive();
  return told.c_str();
}
GRT_FAKE const char *grt_fake_cuda_forget(const char *kind) {
  static std::string told;
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  told = device.alive();
  device.forget(kind);
  return told.c_str();
}
GRT_FAKE int64_t grt_fake_cuda_calls(const char *function) {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  return device.callsOf(function);
}
GRT_FAKE void grt_fake_cuda_patience(int64_t milliseconds) {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  device.patience = std::chrono::milliseconds(milliseconds);
}
GRT_FAKE void grt_fake_cuda_clock(int32_t is) {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  device.hasClock = is != 0;
}
GRT_FAKE int32_t grt_fake_cuda_use(const void *stream, const char *what) {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (stream) {
    device.load(what);
    return device.put(numberOf(stream), {what, {}, nullptr, nullptr});
  }
  device.threadHasDevice(what);
  return device.maySkipCapture(what) ? 0 : cudaErrorStreamCaptureUnsupported;
}

/// What nobody asked for, for programs that know nothing of this library. At
/// the end of the process, when the strings above are gone.
__attribute__((destructor)) static void sayComplaints() {
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  const std::string told = device.takeComplaints();
  if (!told.empty())
    std::fprintf(stderr, "complaints of the tests' CUDA runtime:\n%s",
                 told.c_str());
}

// ---- Launches ---------------------------------------------------------------

GRT_FAKE void **__cudaRegisterFatBinary(void *) {
  return static_cast<void **>(std::calloc(1, sizeof(void *)));
}
GRT_FAKE void __cudaRegisterFatBinaryEnd(void **) {}
GRT_FAKE void __cudaUnregisterFatBinary(void **handle) { std::free(handle); }
GRT_FAKE char __cudaInitModule(void **) { return 1; }
GRT_FAKE void __cudaRegisterVar(void **, char *, char *, const char *, int,
                                size_t, int, int) {}
GRT_FAKE void __cudaRegisterFunction(void **, const char *function, char *,
                                     const char *name, int, uint3 *, uint3 *,
                                     dim3 *, dim3 *, int *) {
  kernels()[function].name = name;
}
GRT_FAKE unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block,
                                              size_t shared,
                                              cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
GRT_FAKE cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block,
                                                size_t *shared, void *stream) {
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t *>(stream) = last.stream;
  return cudaSuccess;
}
GRT_FAKE cudaError_t __cudaGetKernel(cudaKernel_t *kernel,
                                     const void *function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void *>(function));
  return cudaSuccess;
}
GRT_FAKE cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid,
                                        dim3 block, void **, size_t shared,
                                        cudaStream_t stream) {
  return launch(kernel, grid, block, shared, stream);
}
GRT_FAKE cudaError_t cudaLaunchKernel(const void *function, dim3 grid,
                                      dim3 block, void **, size_t shared,
                                      cudaStream_t stream) {
  return launch(function, grid, block, shared, stream);
}
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute name,
                                 int value) {
  return call("cudaFuncSetAttribute", [&](Device &device) {
    device.threadHasDevice("cudaFuncSetAttribute");
    auto found = kernels().find(function);
    if (found == kernels().end() ||
        name != cudaFuncAttributeMaxDynamicSharedMemorySize)
      return cudaErrorInvalidValue;
    if (!device.expect(value >= 0 && value <= mostDynamicShared,
                       found->second.name +
                           ": more shared memory than the device has"))
      return cudaErrorInvalidValue;
    found->second.dynamicShared = std::max(value, withoutAsking);
    return cudaSuccess;
  });
}

// ---- Devices ----------------------------------------------------------------

/// As many as GRT_FAKE_DEVICES says.
static int fakeDevices() {
  const char *text = std::getenv("GRT_FAKE_DEVICES");
  return text ? std::atoi(text) : 1;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = fakeDevices();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  return call("cudaSetDevice", [&](Device &device) {
    device.chooseDevice(number);
    device.faultOf("cudaSetDevice of " + std::to_string(number));
    return number >= 0 && number < fakeDevices() ? cudaSuccess
                                                 : cudaErrorInvalidDevice;
  });
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr name, int) {
  *value = name == cudaDevAttrL2CacheSize                        ? 1 << 20
           : name == cudaDevAttrComputeCapabilityMajor           ? 9
           : name == cudaDevAttrMultiProcessorCount              ? 132
           : name == cudaDevAttrMaxSharedMemoryPerMultiprocessor ? 100 << 10
                                                                 : 0;
  return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = "error " + std::to_string(int(error)) + " of the tests' device";
  return text.c_str();
}
cudaError_t cudaGetLastError() { return std::exchange(lastError, cudaSuccess); }
cudaError_t
cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                 unsigned long long,
                                 cudaDriverEntryPointQueryResult *status) {
  static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = driver ? dlsym(driver, name) : nullptr;
  // Of what has two versions the driver has the second.
  if (driver && !*function)
    *function = dlsym(driver, (std::string(name) + "_v2").c_str());
  *status = *function ? cudaDriverEntryPointSuccess
                      : cudaDriverEntryPointSymbolNotFound;
  return *function ? cudaSuccess : cudaErrorSymbolNotFound;
}

// ---- Memory -----------------------------------------------------------------

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = nullptr;
  return call("cudaMalloc", [&](Device &device) {
    device.threadHasDevice("cudaMalloc");
    if (!device.maySkipCapture("cudaMalloc"))
      return cudaErrorStreamCaptureUnsupported;
    if (device.bytesOnDevice() + bytes > deviceBytes)
      return cudaErrorMemoryAllocation;
    *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    device.addMemory(*memory, bytes, Memory::Device);
    return cudaSuccess;
  });
}
// What is taken is not given back to the host: so no address comes twice.
cudaError_t cudaFree(void *memory) {
  return call("cudaFree", [&](Device &device) {
    device.threadHasDevice("cudaFree");
    if (!device.maySkipCapture("cudaFree"))
      return cudaErrorStreamCaptureUnsupported;
    return device.removeMemory(memory, Memory::Device, "cudaFree")
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
  *memory = nullptr;
  return call("cudaHostAlloc", [&](Device &device) {
    device.threadHasDevice("cudaHostAlloc");
    if (!device.maySkipCapture("cudaHostAlloc"))
      return cudaErrorStreamCaptureUnsupported;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    device.addMemory(*memory, bytes, Memory::Pinned);
    return cudaSuccess;
  });
}
cudaError_t cudaFreeHost(void *memory) {
  return call("cudaFreeHost", [&](Device &device) {
    device.threadHasDevice("cudaFreeHost");
    if (!device.maySkipCapture("cudaFreeHost"))
      return cudaErrorStreamCaptureUnsupported;
    if (!device.removeMemory(memory, Memory::Pinned, "cudaFreeHost"))
      return cudaErrorInvalidValue;
    std::free(memory);
    return cudaSuccess;
  });
}
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
  return call("cudaHostRegister", [&](Device &device) {
    device.threadHasDevice("cudaHostRegister");
    if (!device.maySkipCapture("cudaHostRegister"))
      return cudaErrorStreamCaptureUnsupported;
    device.addMemory(memory, bytes, Memory::Pinned);
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void *memory) {
  return call("cudaHostUnregister", [&](Device &device) {
    device.threadHasDevice("cudaHostUnregister");
    if (!device.maySkipCapture("cudaHostUnregister"))
      return cudaErrorStreamCaptureUnsupported;
    return device.removeMemory(memory, Memory::Pinned, "cudaHostUnregister")
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}
cudaError_t cudaHostGetDevicePointer(void **onDevice, void *memory, unsigned) {
  *onDevice = memory;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *free = *total = deviceBytes;
  return call("cudaMemGetInfo", [&](Device &device) {
    device.threadHasDevice("cudaMemGetInfo");
    *free -= device.bytesOnDevice();
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes,
                            cudaStream_t stream) {
  return call("cudaMemsetAsync", [&](Device &device) {
    return device.put(numberOf(stream),
                      {"cudaMemsetAsync", {{memory, bytes}}, nullptr, [=] {
                         std::memset(memory, byte, bytes);
                       }});
  });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&](Device &device) {
    if (!device.expect(kind == cudaMemcpyDefault,
                       "a copy says where its memory is"))
      return cudaErrorInvalidValue;
    return device.put(
        numberOf(stream),
        {"cudaMemcpyAsync", {{from, bytes}, {to, bytes}}, nullptr, [=] {
           std::memmove(to, from, bytes);
         }});
  });
}

// ---- Streams and events -----------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority) {
  return call("cudaStreamCreate", [&](Device &device) {
    device.threadHasDevice("cudaStreamCreate");
    device.expect(flags == cudaStreamNonBlocking,
                  "a stream that waits for the default stream");
    device.expect(priority <= 0 && priority >= -5,
                  "a stream of a priority that the device does not have");
    *stream = handleOf<cudaStream_t>(device.makeStream(priority));
    return cudaSuccess;
  });
}
GRT_FAKE const char *grt_fake_cuda_priorities() {
  static std::string told;
  Device &device = Device::get();
  std::lock_guard<std::mutex> lock(device.mutex);
  told.clear();
  for (const auto &[stream, priority] : device.priorities)
    told += (told.empty() ? "" : " ") + std::to_string(priority);
  return told.c_str();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&](Device &device) {
    return device.destroyStream(numberOf(stream));
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return waitingCall("cudaStreamSynchronize", [&](Device &device, auto &lock) {
    return device.synchronise(numberOf(stream), lock);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&](Device &device) {
    return device.queryStream(numberOf(stream));
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  return call("cudaStreamWaitEvent", [&](Device &device) {
    return device.wait(numberOf(stream), numberOf(event));
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus *status) {
  return call("cudaStreamIsCapturing", [&](Device &device) {
    return device.isCapturing(numberOf(stream), status);
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&](Device &device) {
    return device.beginCapture(numberOf(stream), mode);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = nullptr;
  return call("cudaStreamEndCapture", [&](Device &device) {
    uint64_t made = 0;
    cudaError_t error = device.endCapture(numberOf(stream), &made);
    *graph = handleOf<cudaGraph_t>(made);
    return error;
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return call("cudaEventCreate", [&](Device &device) {
    device.threadHasDevice("cudaEventCreate");
    *event = handleOf<cudaEvent_t>(
        device.makeEvent(!(flags & cudaEventDisableTiming)));
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&](Device &device) {
    return device.destroyEvent(numberOf(event));
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&](Device &device) {
    return device.record(numberOf(event), numberOf(stream));
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  return call("cudaEventRecordWithFlags", [&](Device &device) {
    return flags == cudaEventRecordExternal
               ? device.recordInGraph(numberOf(event), numberOf(stream))
               : device.record(numberOf(event), numberOf(stream));
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return waitingCall("cudaEventSynchronize", [&](Device &device, auto &lock) {
    return device.synchroniseEvent(numberOf(event), lock);
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery",
              [&](Device &device) { return device.query(numberOf(event)); });
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first,
                                 cudaEvent_t second) {
  *milliseconds = 0;
  return call("cudaEventElapsedTime", [&](Device &device) {
    return device.elapsed(numberOf(first), numberOf(second), milliseconds);
  });
}

// ---- Graphs -----------------------------------------------------------------

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  *executable = nullptr;
  return call("cudaGraphInstantiate", [&](Device &device) {
    device.expect(flags == cudaGraphInstantiateFlagUseNodePriority,
                  "a graph forgets the priorities of its streams");
    uint64_t made = 0;
    cudaError_t error = device.instantiate(numberOf(graph), &made);
    *executable = handleOf<cudaGraphExec_t>(made);
    return error;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&](Device &device) {
    return device.destroyGraph(numberOf(graph));
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&](Device &device) {
    return device.launch(numberOf(executable), numberOf(stream));
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call("cudaGraphExecDestroy", [&](Device &device) {
    return device.destroyExecutable(numberOf(executable));
  });
}
