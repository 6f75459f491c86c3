//===- backend.cpp - The CPU backend's table
//-------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "call.h"

#include <cstdio>
#include <exception>
#include <utility>

namespace grt::cpu {
namespace {

/// Runs `body`, turning exceptions into a status and a message that begins with
/// the op's name.
template <class Body>
int32_t guarded(const grt_kernel_op *op, const char *kernel, char *message,
                size_t messageBytes, Body body) {
  const char *what = "unknown failure";
  const char *name = op->name && *op->name ? op->name : kernel;
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    std::snprintf(message, messageBytes, "%s: %s", name, error.what());
  } catch (...) {
    std::snprintf(message, messageBytes, "%s: %s", name, what);
  }
  return 1;
}

[[noreturn]] void tooFew(const char *kernel, const char *what, int64_t least,
                         int64_t found) {
  throw CallError(std::string("kernel ") + kernel + " takes at least " +
                  std::to_string(least) + " " + what + ", found " +
                  std::to_string(found));
}

void checkCounts(const KernelEntry &entry, const grt_kernel_op &op) {
  if (int64_t(op.buffer_count) < entry.buffers)
    tooFew(entry.name, "buffers", entry.buffers, op.buffer_count);
  if (int64_t(op.int_count) < entry.ints)
    tooFew(entry.name, "integers", entry.ints, op.int_count);
  if (int64_t(op.real_count) < entry.reals)
    tooFew(entry.name, "reals", entry.reals, op.real_count);
}

template <int Kernel>
int32_t launch(const grt_call *call, char *message, size_t messageBytes) {
  const KernelEntry &entry = kernelEntries[Kernel];
  return guarded(call->op, entry.name, message, messageBytes, [&] {
    checkCounts(entry, *call->op);
    uint32_t dtype = GRT_F32;
    if (entry.typed >= 0)
      dtype = call->op->buffers[entry.typed].dtype;
    if (dtype == GRT_F32)
      entry.f32(Call(*call));
    else if (dtype == GRT_F64)
      entry.f64(Call(*call));
    else if (dtype == GRT_BF16)
      entry.bf16(Call(*call));
    else
      throw CallError(std::string("kernel ") + entry.name +
                      " of the cpu backend takes f32, f64 or bf16, found "
                      "dtype " +
                      std::to_string(dtype));
  });
}

void prepareGemm(Rank &rank, const grt_kernel_op &op) {
  if (op.buffers[0].dtype == GRT_F64)
    return;
  for (bool accumulate : {false, true}) {
    GemmShape shape = gemmShape(op, accumulate);
    if (shape.m > 0 && shape.n > 0 && shape.k > 0)
      rank.oneDnn.prepare(shape);
  }
}

int32_t prepare(void *rankState, const grt_kernel_op *op, char *message,
                size_t messageBytes) {
  bool gemm = op->kernel == GRT_KERNEL_GEMM;
  bool attention = op->kernel == GRT_KERNEL_ATTENTION ||
                   op->kernel == GRT_KERNEL_ATTENTION_GRAD;
  if (!gemm && !attention)
    return 0;
  const KernelEntry &entry = kernelEntries[op->kernel];
  return guarded(op, entry.name, message, messageBytes, [&] {
    checkCounts(entry, *op);
    Rank &rank = *static_cast<Rank *>(rankState);
    if (gemm)
      prepareGemm(rank, *op);
    else
      rank.reserveScratch(attentionScratchBytes(*op));
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

template <int... Kernels>
grt_backend makeBackend(std::integer_sequence<int, Kernels...>) {
  return {GRT_ABI_VERSION, "cpu",       {launch<Kernels>...},
          createRank,      destroyRank, mapPages,
          unmapPages,      mapArena,    unmapArena,
          prepare,         nullptr,     nullptr};
}

} // namespace
} // namespace grt::cpu

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static const grt_backend backend = grt::cpu::makeBackend(
      std::make_integer_sequence<int, GRT_KERNEL_COUNT>());
  return &backend;
}
