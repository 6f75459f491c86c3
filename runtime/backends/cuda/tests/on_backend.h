//===- on_backend.h - A backend with a device, for tests and benchmarks ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_ON_BACKEND_H
#define GRT_BACKENDS_CUDA_TESTS_ON_BACKEND_H

#include "core/backend_table.h"

#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace grt::test {

/// Loads a backend by path; throws if it has no device.
inline const grt_backend &loadBackend(const std::string &path) {
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error(dlerror());
  auto get = reinterpret_cast<const grt_backend *(*)()>(
      dlsym(library, "grt_backend_get"));
  if (!get || !get()->device)
    throw std::runtime_error("'" + path + "' is no backend with a device");
  static const BackendTable table(*get());
  return *table;
}

/// Calls that throw their message.
template <class Function, class... Arguments>
void run(Function *function, Arguments... arguments) {
  char message[512] = "";
  if (function(arguments..., message, sizeof(message)) != 0)
    throw std::runtime_error(message);
}

/// A rank of a backend.
class OnRank {
public:
  explicit OnRank(const grt_backend &backend, int rank = 0)
      : backend(backend), device(*backend.device),
        state(backend.create_rank(rank, 1)) {
    if (!state)
      throw std::runtime_error(backend.failure());
  }
  ~OnRank() { backend.destroy_rank(state); }
  OnRank(const OnRank &) = delete;
  OnRank &operator=(const OnRank &) = delete;

  void synchronise() {
    run(device.synchronise, state, uint32_t(GRT_STREAM_COUNT));
  }

  const grt_backend &backend;
  const grt_device &device;
  void *const state;
};

/// Memory of the device with a copy on the host.
class DeviceMemory {
public:
  DeviceMemory(OnRank &rank, uint64_t size)
      : rank(rank), bytes(size), memory(rank.backend.allocate(size)),
        host(rank.device.allocate_host(size)) {
    if (!memory || !host)
      throw std::runtime_error("no memory");
    std::memset(host, 0, size);
  }
  ~DeviceMemory() {
    rank.backend.release(memory, bytes);
    rank.device.release_host(host, bytes);
  }
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  template <class T> T *onHost() { return static_cast<T *>(host); }
  template <class T = void> T *onDevice() { return static_cast<T *>(memory); }
  void send(uint32_t stream = GRT_STREAM_COMPUTE) {
    run(rank.device.copy, rank.state, stream, memory,
        static_cast<const void *>(host), bytes);
  }
  /// Done on return.
  void fetch(uint32_t stream = GRT_STREAM_COMPUTE) {
    run(rank.device.copy, rank.state, stream, host,
        static_cast<const void *>(memory), bytes);
    run(rank.device.synchronise, rank.state, stream);
  }

private:
  OnRank &rank;
  const uint64_t bytes;
  void *const memory;
  void *const host;
};

} // namespace grt::test

#endif // GRT_BACKENDS_CUDA_TESTS_ON_BACKEND_H
