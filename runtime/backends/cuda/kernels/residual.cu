//===- residual.cu - Sums into the residual stream, with their norm -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "masked.h"
#include "normalize.h"

#include <initializer_list>

namespace grt::cuda {
namespace {

constexpr int rowThreads = 256;

/// sum = dropout(x) + residual, then its mean and variance in two passes, then
/// y. A thread reads again what it wrote itself, from the first-level cache. 4w
/// bytes an element, 8 operations: an addition and a norm apart move 5w.
template <class T, int N, int Threads, bool Drops>
__global__ void __launch_bounds__(rowThreads)
    addLayerNormKernel(int64_t rows, int64_t n, Mask<T> mask, const T *x,
                       const T *residual, const T *gamma, const T *beta, T *sum,
                       T *y, Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  constexpr int teams = rowThreads / Threads;
  int64_t r = int64_t(blockIdx.x) * teams + int64_t(threadIdx.x) / Threads;
  int first = int(threadIdx.x) % Threads * N;
  // Teams past the end stay for the barriers.
  int64_t length = r < rows ? n : 0;
  T *row = sum + r * n;
  A total = 0;
  for (int64_t i = first; i < length; i += Threads * N) {
    Pack<T, N> in = load<N>(x + r * n + i),
               onto = load<N>(residual + r * n + i);
    Pack<T, N> out;
    A value[N];
    if (Drops)
      mask.template drop<N>(r * n + i, in, value);
    for (int e = 0; e < N; ++e) {
      out.at[e] =
          narrow<T>((Drops ? value[e] : wide(in.at[e])) + wide(onto.at[e]));
      total += wide(out.at[e]);
    }
    store<N>(row + i, out);
  }
  normalizeRow<Threads, N>(row, r, n, length, first, total, gamma, beta, y,
                           stats, eps);
}

bool aligned(std::initializer_list<const void *> addresses) {
  uintptr_t bits = 0;
  for (const void *address : addresses)
    bits |= reinterpret_cast<uintptr_t>(address);
  return bits % 16 == 0;
}

} // namespace

template <class T>
void addLayerNorm(const Queue &queue, const DropoutArguments &d, const T *x,
                  const T *residual, const T *gamma, const T *beta, T *sum,
                  T *y, Accumulator<T> *stats, double eps) {
  int64_t rows = d.rows, n = d.cols;
  if (rows <= 0 || n <= 0)
    return;
  auto run = [&](auto *kernel, int threads) {
    int64_t teams = rowThreads / threads;
    launch(kernel, dim3(unsigned((rows + teams - 1) / teams)), dim3(rowThreads),
           0, queue.stream, rows, n, Mask<T>(d), x, residual, gamma, beta, sum,
           y, stats, eps);
  };
  bool drops = d.key.p > 0;
  auto pick = [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    // Wide rows would leave a warp with too long a way.
    if (n * int64_t(sizeof(T)) <= 8192)
      drops ? run(addLayerNormKernel<T, N, 32, true>, 32)
            : run(addLayerNormKernel<T, N, 32, false>, 32);
    else
      drops ? run(addLayerNormKernel<T, N, rowThreads, true>, rowThreads)
            : run(addLayerNormKernel<T, N, rowThreads, false>, rowThreads);
  };
  if (n % packSize<T> == 0 && aligned({x, residual, gamma, beta, sum, y}))
    pick(std::integral_constant<int, packSize<T>>());
  else
    pick(std::integral_constant<int, 1>());
}

#define GRT_INSTANTIATE(T)                                                     \
  template void addLayerNorm(const Queue &, const DropoutArguments &,          \
                             const T *, const T *, const T *, const T *, T *,  \
                             T *, Accumulator<T> *, double)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
