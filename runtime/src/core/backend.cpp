//===- backend.cpp - Loading a backend ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/executor.h"

#include <cstdlib>
#include <dlfcn.h>

namespace grt {
namespace {

/// The folder of the library that this code is in.
std::string ownFolder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void *>(&grt_launch), &info) || !info.dli_fname)
    return "";
  std::string path = info.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// A kernel is followed by the next one at once, or by a rank that waits for
/// others: threads that spin for long between kernels only take time from other
/// ranks, and on a shared machine from the thread that they wait for. 1000 turns
/// are about 60 us. OpenMP's library reads this when it is loaded; what the user
/// says stands.
void limitSpinning() {
  if (!std::getenv("OMP_WAIT_POLICY"))
    setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0);
}

} // namespace

BackendHandle::BackendHandle(const std::string &name,
                             const std::string &folder) {
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
      invalid("backend '" + name + "': expected letters and digits");
  limitSpinning();
  std::string file = "libgrt_" + name + ".so";
  std::string beside = folder.empty() ? ownFolder() : folder;
  std::string problem;
  void *library = nullptr;
  for (const std::string &path : {beside + "/" + file, file}) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library)
      break;
    if (problem.empty())
      problem = dlerror();
    if (!folder.empty())
      break;
  }
  if (!library)
    fail("cannot load backend '" + name + "': " + problem);
  using Getter = const grt_backend *(*)();
  auto getter = reinterpret_cast<Getter>(dlsym(library, "grt_backend_get"));
  table = getter ? getter() : nullptr;
  if (!table || table->abi_version != GRT_ABI_VERSION) {
    dlclose(library);
    fail("backend '" + name + "' " +
         (table ? "has ABI version " + std::to_string(table->abi_version) +
                      ", this runtime has " + std::to_string(GRT_ABI_VERSION)
                : "exports no table"));
  }
}

const char *kernelName(uint32_t kernel) {
  static const char *const names[GRT_KERNEL_COUNT] = {"gemm",
                                                      "bias-add",
                                                      "bias-grad",
                                                      "layer-norm",
                                                      "layer-norm-grad",
                                                      "gelu",
                                                      "gelu-grad",
                                                      "bias-gelu",
                                                      "attention",
                                                      "attention-grad",
                                                      "dropout",
                                                      "dropout-add",
                                                      "add",
                                                      "embedding",
                                                      "embedding-grad",
                                                      "position-add",
                                                      "position-grad",
                                                      "softmax-stats",
                                                      "cross-entropy",
                                                      "copy",
                                                      "zero",
                                                      "optimizer",
                                                      "norm",
                                                      "scale"};
  return kernel < GRT_KERNEL_COUNT ? names[kernel] : "unknown kernel";
}

} // namespace grt
