//===- fakes.h - What stands behind the libraries of tests ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Libraries of the names that the backend loads, with the functions it uses:
// they check how they are called, keep count of what is alive, and answer with
// the status that a test asks for. Tests find these calls by name.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_FAKES_H
#define GRT_BACKENDS_CUDA_TESTS_FAKES_H

#include <dlfcn.h>
#include <stdint.h>

#define GRT_FAKE extern "C" __attribute__((visibility("default")))

/// What the next calls of a kind answer; 0 is success. `kind` is "matmul",
/// "heuristic", "check", "finalize" or "execute"; "candidates" is how many
/// algorithms heuristics name.
using GrtFakeAnswer = void(const char *kind, int status);
/// Handles and descriptors that were made and not destroyed.
using GrtFakeLive = int64_t();
/// Calls of "matmul" or "execute" that were carried out.
using GrtFakeRuns = int64_t();
/// Of cuBLASLt, "last": the algorithm of the last product that was carried out,
/// by its place among those that heuristics named.
using GrtFakeLast = int64_t();
/// What was wrong with calls so far, a line each; forgets it.
using GrtFakeComplaints = const char *();

/// Of libcudart, for libcudart, libcuda and libnccl: `complaints` as above, and
/// "fault": from now on call `number` (from 1) of a function is left out
/// ("skip"), made again ("twice"), fails ("fail"), or, of NCCL, is made with
/// another count ("change"). One fault at a time; kind "" is none.
using GrtFakeCudaFault = void(const char *function, int64_t number,
                              const char *kind);
/// "alive": kinds and numbers of what was made and not destroyed, a line each.
using GrtFakeCudaAlive = const char *();
/// "forget": the same; what is alive counts no longer, all ("") or a kind.
using GrtFakeCudaForget = const char *(const char *kind);
/// "calls": how often a function was called; launches are "cudaLaunchKernel".
using GrtFakeCudaCalls = int64_t(const char *function);
/// "use": `what` is put on a stream by another library, or, where that is null,
/// is a call that may not be made while a graph is captured. A cudaError_t.
using GrtFakeCudaUse = int32_t(const void *stream, const char *what);
/// "patience": milliseconds that a host waits for what nothing ends, which is
/// complained about; 20 s unless it is said.
using GrtFakeCudaPatience = void(int64_t milliseconds);
/// "clock": whether events have the times at which work before them was done;
/// else any two are a second apart.
using GrtFakeCudaClock = void(int32_t is);
/// Of libnccl, "communicators": those that are alive, a line each, as "rank 0:
/// 'world' of 2, ctas 32, share 0", in the order they were made.
using GrtFakeNcclCommunicators = const char *();
/// "priorities" of the streams that are alive, in the order they were made.
using GrtFakeCudaPriorities = const char *();

/// `use` of the tests' CUDA runtime, where the process has loaded it; null
/// where libraries are tested without a device.
inline GrtFakeCudaUse *grtFakeCudaUse() {
  static GrtFakeCudaUse *use = [] {
    void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    return library ? reinterpret_cast<GrtFakeCudaUse *>(
                         dlsym(library, "grt_fake_cuda_use"))
                   : nullptr;
  }();
  return use;
}

#endif // GRT_BACKENDS_CUDA_TESTS_FAKES_H
