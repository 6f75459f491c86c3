//===- watched.h - The CUDA backend on libraries that watch it ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The backend's own objects, with a CUDA runtime, driver, NCCL, cuBLASLt and
// cuDNN of tests/fakes/ behind them. Kernels are not run, so results mean
// nothing; what is wrong with the order of calls and with lives is a complaint.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_WATCHED_H
#define GRT_BACKENDS_CUDA_TESTS_WATCHED_H

#include "fakes/fakes.h"

#include "grt/backend.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>

namespace grt::test {

class Watched {
public:
  /// Loads the backend, and finds its libraries in the folder `fakes`.
  Watched(const std::string &backend, const std::string &fakes) : fakes(fakes) {
    auto get = reinterpret_cast<decltype(&grt_backend_get)>(
        symbol(backend, "grt_backend_get"));
    threads = *get();
    // Between threads too, NCCL: as if each were a process.
    device = *threads.device;
    device.local_collectives = nullptr;
    processes = threads;
    processes.device = &device;
  }
  Watched(const Watched &) = delete;

  /// Ranks of one process with the backend's own collectives.
  const grt_backend *betweenThreads() const { return &threads; }
  /// Ranks of one process with those of several.
  const grt_backend *withNccl() const { return &processes; }

  void fault(const char *function, int64_t number, const char *kind) const {
    find<GrtFakeCudaFault>("libcudart.so.13", "cuda_fault")(function, number,
                                                            kind);
  }
  int64_t calls(const char *function) const {
    return find<GrtFakeCudaCalls>("libcudart.so.13", "cuda_calls")(function);
  }
  void patience(int64_t milliseconds) const {
    find<GrtFakeCudaPatience>("libcudart.so.13", "cuda_patience")(milliseconds);
  }
  void clock(bool is) const {
    find<GrtFakeCudaClock>("libcudart.so.13", "cuda_clock")(is);
  }
  std::string communicators() const {
    return find<GrtFakeNcclCommunicators>("libnccl.so.2",
                                          "nccl_communicators")();
  }
  std::string priorities() const {
    return find<GrtFakeCudaPriorities>("libcudart.so.13", "cuda_priorities")();
  }
  std::string alive() const {
    return find<GrtFakeCudaAlive>("libcudart.so.13", "cuda_alive")();
  }
  /// The same, and takes what is alive for ended: all kinds, or one.
  std::string forgetAlive(const char *kind = "") const {
    return find<GrtFakeCudaForget>("libcudart.so.13", "cuda_forget")(kind);
  }
  /// Of all libraries; forgets them.
  std::string complaints() const {
    using Get = GrtFakeComplaints;
    return std::string(find<Get>("libcudart.so.13", "cuda_complaints")()) +
           find<Get>("libcublasLt.so.13", "cublaslt_complaints")() +
           find<Get>("libcudnn.so.9", "cudnn_complaints")();
  }
  int64_t products() const {
    return find<GrtFakeRuns>("libcublasLt.so.13", "cublaslt_runs")();
  }
  int64_t attentions() const {
    return find<GrtFakeRuns>("libcudnn.so.9", "cudnn_runs")();
  }

private:
  static void *symbol(const std::string &library, const std::string &name) {
    void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, name.c_str()) : nullptr;
    if (!found) {
      // Some tests are built without exceptions.
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    return found;
  }
  template <class Function>
  Function *find(const char *library, const char *name) const {
    return reinterpret_cast<Function *>(
        symbol(fakes + "/" + library, std::string("grt_fake_") + name));
  }

  const std::string fakes;
  grt_backend threads, processes;
  grt_device device;
};

/// The backend and the folder of libraries that the build names.
inline const Watched &watched() {
  static const Watched libraries(WATCHED_BACKEND, FAKES);
  return libraries;
}

} // namespace grt::test

#endif // GRT_BACKENDS_CUDA_TESTS_WATCHED_H
