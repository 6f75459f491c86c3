//===- backend.cpp - The CPU backend's table ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dispatch.h"

namespace grt::cpu {
namespace {

/// A kernel's code for every type.
struct KernelEntry {
  void (*f32)(const Call &call);
  void (*f64)(const Call &call);
  void (*bf16)(const Call &call);
};

/// Indexed by grt_kernel.
constexpr KernelEntry kernelEntries[GRT_KERNEL_COUNT] = {
#define GRT_KERNEL(NAME, Name, ...)                                            \
  {run##Name<float>, run##Name<double>, run##Name<BF16>},
#include GRT_KERNEL_LIST
};

template <class K>
int32_t launch(const grt_call *call, char *message, size_t messageBytes) {
  return guarded(nameOf(*call->op), message, messageBytes, [&] {
    checkForm<K>(*call->op);
    const KernelEntry &entry = kernelEntries[K::kernel];
    uint32_t dtype = computeType(*call->op, "cpu");
    (dtype == GRT_F32   ? entry.f32
     : dtype == GRT_F64 ? entry.f64
                        : entry.bf16)(Call(*call));
  });
}

void prepareGemm(Rank &rank, const grt_kernel_op &op) {
  // Calls without scratch use the rank's own, which is taken now.
  int index = gemmScratchIndex(op);
  uint64_t bytes =
      index < 0 ? rank.reserveScratch(gemmScratchBytes(op, rank.threads)).bytes
                : op.buffers[index].bytes;
  if (op.buffers[0].dtype == GRT_F64)
    return;
  for (bool accumulate : {false, true}) {
    GemmShape shape = gemmShape(op, accumulate);
    if (shape.m > 0 && shape.n > 0 && shape.k > 0)
      rank.oneDnn.prepare(shape, bytes);
  }
}

int32_t prepare(void *rankState, const grt_kernel_op *op, char *message,
                size_t messageBytes) {
  if (!isGemm(*op))
    return 0;
  return guarded(nameOf(*op), message, messageBytes, [&] {
    checkForm(*op);
    prepareGemm(*static_cast<Rank *>(rankState), *op);
  });
}

void *createRank(int32_t, int32_t threads) {
  try {
    return new Rank(threads);
  } catch (...) {
    return nullptr;
  }
}

void destroyRank(void *rankState) { delete static_cast<Rank *>(rankState); }

grt_backend makeBackend() {
  static const grt_kernel_function functions[GRT_KERNEL_COUNT] = {
#define GRT_KERNEL(NAME, Name, ...) launch<kernels::Name>,
#include GRT_KERNEL_LIST
  };
  grt_backend backend = {};
  backend.abi_version = GRT_ABI_VERSION;
  backend.bytes = sizeof(backend);
  backend.name = "cpu";
  backend.kernels = functions;
  backend.kernel_count = GRT_KERNEL_COUNT;
  backend.create_rank = createRank;
  backend.destroy_rank = destroyRank;
  backend.allocate = mapPages;
  backend.release = unmapPages;
  backend.map_arena = mapArena;
  backend.unmap_arena = unmapArena;
  backend.prepare = prepare;
  return backend;
}

} // namespace
} // namespace grt::cpu

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static const grt_backend backend = grt::cpu::makeBackend();
  return &backend;
}
