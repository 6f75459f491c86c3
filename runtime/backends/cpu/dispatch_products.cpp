//===- dispatch_products.cpp - Calls of products --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"

#include <algorithm>
#include <type_traits>

namespace grt::cpu {

GemmShape gemmShape(const grt_kernel_op &op, bool accumulate) {
  const bool narrow = op.buffers[kernels::Gemm::a].dtype == GRT_BF16;
  auto adds = [&](int64_t acc) { return acc == 1 || (acc == 2 && accumulate); };
  auto isNarrow = [&](int buffer) {
    return op.buffers[buffer].dtype == GRT_BF16;
  };
  switch (op.kernel) {
  case GRT_KERNEL_GEMM_GELU: {
    const auto n = intsOf<kernels::GemmGelu>(op);
    return {n.M,           n.N,   n.K,    n.transA != 0, n.transB != 0,
            /*bias=*/true, false, narrow, narrow};
  }
  case GRT_KERNEL_GEMM_GELU_GRAD: {
    const auto n = intsOf<kernels::GemmGeluGrad>(op);
    return {n.M,
            n.N,
            n.K,
            n.transA != 0,
            n.transB != 0,
            /*bias=*/false,
            false,
            narrow,
            narrow};
  }
  case GRT_KERNEL_GEMM_BIAS_GRAD: {
    const auto n = intsOf<kernels::GemmBiasGrad>(op);
    return {n.M,
            n.N,
            n.K,
            /*transA=*/true,
            false,
            false,
            adds(n.acc),
            narrow,
            isNarrow(kernels::GemmBiasGrad::c)};
  }
  default: {
    const auto n = intsOf<kernels::Gemm>(op);
    return {n.M,           n.N,           n.K,
            n.transA != 0, n.transB != 0, n.hasBias != 0,
            adds(n.acc),   narrow,        isNarrow(kernels::Gemm::c)};
  }
  }
}

int gemmScratchIndex(const grt_kernel_op &op) {
  using namespace kernels;
  // What a call lacks in front of it moves it.
  int index = op.kernel == GRT_KERNEL_GEMM
                  ? Gemm::scratch - (intsOf<Gemm>(op).hasBias == 0)
              : op.kernel == GRT_KERNEL_GEMM_GELU
                  ? GemmGelu::scratch - (intsOf<GemmGelu>(op).hasPre == 0)
              : op.kernel == GRT_KERNEL_GEMM_GELU_GRAD
                  ? int(GemmGeluGrad::scratch)
                  : int(GemmBiasGrad::scratch);
  return int64_t(op.buffer_count) > index ? index : -1;
}

uint64_t gemmScratchBytes(const grt_kernel_op &op, int threads) {
  GemmShape s = gemmShape(op, /*accumulate=*/true);
  uint32_t wide = op.buffers[kernels::Gemm::a].dtype == GRT_F64 ? 8 : 4;
  return grt_cpu_gemm_scratch_bytes(s.m, s.n, s.k, s.transA, s.transB, s.add,
                                    s.narrow ? 2 : wide,
                                    s.narrowResult ? 2 : wide, threads);
}

namespace {

/// As many threads as there is scratch for, and as wide blocks as they can
/// have.
GemmBlocks gemmBlocks(const GemmShape &s, uint32_t accumulatorBytes,
                      int threads, Scratch scratch) {
  auto needed = [&](uint64_t bytesOfRow) {
    return grt_cpu_gemm_pack_bytes(s.m, s.n, s.k, accumulatorBytes,
                                   s.narrowResult, bytesOfRow);
  };
  constexpr uint64_t step = GRT_CPU_GEMM_LEAST_BYTES_OF_ROW;
  // A block of b for the last-level cache, no wider than b.
  constexpr uint64_t block = (1 << 20) / GRT_CPU_GEMM_DEPTH;
  uint64_t widest = std::min(block, uint64_t(s.n) * accumulatorBytes);
  uint64_t least = needed(step);
  if (scratch.bytes < least)
    throw CallError("gemm needs " + std::to_string(least) +
                    " bytes of scratch, found " +
                    std::to_string(scratch.bytes));
  threads = int(std::min<uint64_t>(uint64_t(s.threadsOf(threads)),
                                   scratch.bytes / least));
  uint64_t share = scratch.bytes / uint64_t(threads) / 64 * 64;
  uint64_t row = step;
  while (row < widest && needed(row + step) <= share)
    row += step;
  return {threads, scratch.memory, int64_t(share), int64_t(row)};
}

/// The product of a and b, which all products begin with.
template <class T>
void multiply(const Call &call, const GemmShape &shape, void *c,
              const T *bias) {
  const T *a = call.buffer<T>(kernels::Gemm::a);
  const T *b = call.buffer<T>(kernels::Gemm::b);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  if (shape.m <= fewRows && !shape.transA && shape.k > 0) {
    const int threads = shape.threadsOf(call.threads());
    auto few = [&](auto gemm, auto *to) {
      gemm(threads, shape.m, shape.n, shape.k, a, b, shape.transB, to, bias,
           shape.add);
    };
    return shape.narrowResult
               ? few(call.table<T>().gemmOfFewRowsNarrow, static_cast<T *>(c))
               : few(call.table<T>().gemmOfFewRows,
                     static_cast<Accumulator<T> *>(c));
  }
  int index = gemmScratchIndex(call.op());
  Scratch scratch = index < 0 ? call.rank().reserveScratch(
                                    gemmScratchBytes(call.op(), call.threads()))
                              : Scratch{call.buffer<char>(index),
                                        call.descriptor(index).bytes};
  if constexpr (!std::is_same_v<T, double>) {
    // oneDNN refuses empty sums; ours gives zeros.
    if (shape.k > 0 && call.rank().oneDnn.run(shape, a, b, c, bias, scratch))
      return;
  }
  GemmBlocks blocks =
      gemmBlocks(shape, sizeof(Accumulator<T>), call.threads(), scratch);
  auto own = [&](auto gemm, auto *c) {
    gemm(blocks, shape.m, shape.n, shape.k, a, shape.transA, b, shape.transB, c,
         bias, shape.add);
  };
  if (shape.narrowResult)
    own(call.table<T>().gemmNarrow, static_cast<T *>(c));
  else
    own(call.table<T>().gemm, static_cast<Accumulator<T> *>(c));
}

} // namespace

template <class T> void runGemm(const Call &call) {
  using K = kernels::Gemm;
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  multiply<T>(call, shape, call.buffer<void>(K::c),
              call.buffer<T>(K::bias, shape.bias));
}

template <class T> void runGemmGelu(const Call &call) {
  using K = kernels::GemmGelu;
  const auto n = call.ints<K>();
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *y = call.buffer<T>(K::y), *pre = call.buffer<T>(K::pre, n.hasPre);
  if (!pre)
    pre = y;
  multiply(call, shape, pre, call.buffer<T>(K::bias));
  call.table<T>().biasGelu(call.threads(), 1, shape.m * shape.n, pre, nullptr,
                           nullptr, y, n.approximate != 0);
}

template <class T> void runGemmGeluGrad(const Call &call) {
  using K = kernels::GemmGeluGrad;
  const auto n = call.ints<K>();
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  T *c = call.buffer<T>(K::c);
  multiply<T>(call, shape, c, nullptr);
  call.table<T>().geluGrad(call.threads(), shape.m * shape.n,
                           call.buffer<T>(K::x), c, c, n.approximate != 0);
}

template <class T> void runGemmBiasGrad(const Call &call) {
  using K = kernels::GemmBiasGrad;
  GemmShape shape = gemmShape(call.op(), call.accumulate());
  multiply<T>(call, shape, call.buffer<void>(K::c), nullptr);
  call.table<T>().biasGrad(call.threads(), shape.k, shape.n,
                           call.buffer<T>(K::b),
                           call.buffer<Accumulator<T>>(K::dbias), shape.add);
}

GRT_CPU_KERNEL(Gemm)
GRT_CPU_KERNEL(GemmGelu)
GRT_CPU_KERNEL(GemmGeluGrad)
GRT_CPU_KERNEL(GemmBiasGrad)

} // namespace grt::cpu
