//===- normalize.h - A row's norm once its sum is known -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_NORMALIZE_H
#define GRT_BACKENDS_CUDA_NORMALIZE_H

#include "elements.h"

#include <string>

namespace grt::cuda {

/// The plan by which kernels of norms share rows out: `Threads` neighbouring
/// threads of a block take a row, whose packs of N they have in turns.
///
/// With K > 0 a thread holds its packs of a row in registers, up to K: all of
/// them are asked for before the first is used, and the row is read once. That
/// is what keeps enough of memory on its way: a device that moves 4.8 TB/s and
/// takes some 700 ns from a load to its value needs 26 KB under way on each of
/// its 132 multiprocessors, which is 12 to 50 warps with 2 KB to 512 bytes
/// each. K = 0 is for rows that are wider, and for single elements: they are
/// read again, from a cache.
template <int Threads_, int N_, int K_> struct RowPlan {
  static constexpr int Threads = Threads_, N = N_, K = K_;
  static constexpr int held = K > 0 ? K : 1;
  static constexpr int block = Threads < 128 ? 128 : Threads;
  static constexpr int teams = block / Threads;
  /// The row of the calling thread's team.
  __device__ static int64_t row() {
    return int64_t(blockIdx.x) * teams + int(threadIdx.x) / Threads;
  }
  __device__ static int first() { return int(threadIdx.x) % Threads * N; }
  static dim3 grid(int64_t rows) {
    return dim3(unsigned((rows + teams - 1) / teams));
  }

  /// body(column, k) for all packs of a row that are this thread's.
  template <class Body> __device__ static void each(int length, Body body) {
    if constexpr (K > 0) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (const int i = first() + k * Threads * N; i < length)
          body(i, k);
    } else {
      for (int i = first(); i < length; i += Threads * N)
        body(i, 0);
    }
  }
};

/// Calls run(plan) with the plan for rows of n elements; whether addresses and
/// rows allow packs is the caller's to say.
template <class T, class Run> void planRows(int64_t n, bool packs, Run run) {
  constexpr int N = packSize<T>, K = 4;
  if (n > INT32_MAX / 2)
    throw DeviceError("rows of " + std::to_string(n) +
                      " elements: norms take up to 2^30");
  if (packs && n <= 32 * K * N)
    run(RowPlan<32, N, K>());
  else if (packs && n <= 128 * K * N)
    run(RowPlan<128, N, K>());
  else if (packs && n <= 256 * K * N)
    run(RowPlan<256, N, K>());
  else if (packs)
    run(RowPlan<256, N, 0>());
  else if (n * int64_t(sizeof(T)) <= 8192)
    run(RowPlan<32, 1, 0>());
  else
    run(RowPlan<256, 1, 0>());
}

/// Sums in pairs: no value waits for all before it.
template <class A, int N> __device__ A sumOf(A (&values)[N]) {
#pragma unroll
  for (int s = 1; s < N; s *= 2)
#pragma unroll
    for (int e = 0; e + s < N; e += 2 * s)
      values[e] += values[e + s];
  return values[0];
}

/// Row r of y and stats from the row of `length` elements (0: a team past the
/// end, which stays for the barriers), of which this thread holds packs in
/// `held` and added up `share`. `inverseN` is 1 / n. Without `Shifted` there is
/// no beta, without `Scaled` no gamma either.
template <class Plan, bool Shifted = true, bool Scaled = true, class T>
__device__ void
normalizeRow(const T *row, const Pack<T, Plan::N> (&held)[Plan::held],
             int64_t r, int n, int length, Accumulator<T> inverseN,
             Accumulator<T> share, const T *gamma, const T *beta, T *y,
             Accumulator<T> *stats, Accumulator<T> eps) {
  using A = Accumulator<T>;
  constexpr int N = Plan::N;
  auto values = [&](int i, int k, A(&out)[N]) {
    widen(Plan::K > 0 ? held[k] : load<N>(row + i), out);
  };
  const A mean = teamSum<Plan::Threads>(share) * inverseN;
  A squares = 0;
  Plan::each(length, [&](int i, int k) {
    A d[N];
    values(i, k, d);
    for (int e = 0; e < N; ++e) {
      d[e] -= mean;
      d[e] *= d[e];
    }
    squares += sumOf(d);
  });
  squares = teamSum<Plan::Threads>(squares);
  const A inverse = A(1) / squareRoot(multiplyAdd(squares, inverseN, eps));
  if (length > 0 && Plan::first() == 0) {
    stats[2 * r] = mean;
    stats[2 * r + 1] = inverse;
  }
  T *to = y + r * n;
  Plan::each(length, [&](int i, int k) {
    A out[N], scale[N], shift[N] = {};
    values(i, k, out);
    if constexpr (Scaled)
      widen(load<N>(gamma + i), scale);
    if (Shifted)
      widen(load<N>(beta + i), shift);
    for (int e = 0; e < N; ++e)
      out[e] = Scaled
                   ? multiplyAdd((out[e] - mean) * inverse, scale[e], shift[e])
                   : (out[e] - mean) * inverse;
    store<N>(to + i, narrowAll<T, N>(out));
  });
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_NORMALIZE_H
