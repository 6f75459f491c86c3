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

/// sum = dropout(x) + residual, then its mean and variance in two passes over
/// registers, then y. 4w bytes an element, some 20 instructions, 15 more where
/// elements are dropped: an addition and a norm apart move 5w.
template <class T, class Plan, bool Drops>
__global__ void __launch_bounds__(Plan::block)
    addLayerNormKernel(int64_t rows, int n, Mask<T> mask, const T *x,
                       const T *residual, const T *gamma, const T *beta, T *sum,
                       T *y, Accumulator<T> *stats, Accumulator<T> inverseN,
                       Accumulator<T> eps) {
  using A = Accumulator<T>;
  constexpr int N = Plan::N;
  const int64_t r = Plan::row();
  // Teams past the end stay for the barriers.
  const int length = r < rows ? n : 0;
  const T *from = x + r * n, *past = residual + r * n;
  T *row = sum + r * n;
  Pack<T, N> held[Plan::held], onto[Plan::held];
  auto loadBoth = [&](int i, int k) {
    held[k] = load<N>(from + i);
    onto[k] = load<N>(past + i);
  };
  if constexpr (Plan::K > 0)
    Plan::each(length, loadBoth);
  StepKey step = {};
  if constexpr (Drops)
    step = stepKey(mask.arguments.key);
  A total = 0;
  Plan::each(length, [&](int i, int k) {
    if constexpr (Plan::K == 0)
      loadBoth(i, k);
    A value[N], add[N];
    widen(held[k], value);
    widen(onto[k], add);
    if constexpr (Drops)
      drop<N>(mask, step, r, i, value);
    for (int e = 0; e < N; ++e)
      value[e] += add[e];
    held[k] = narrowAll<T, N>(value);
    store<N>(row + i, held[k]);
    // The norm is that of the sum as it is stored.
    widen(held[k], value);
    total += sumOf(value);
  });
  normalizeRow<Plan>(row, held, r, n, length, inverseN, total, gamma, beta, y,
                     stats, eps);
}

} // namespace

template <class T>
void addLayerNorm(const Queue &queue, const DropoutArguments &d, const T *x,
                  const T *residual, const T *gamma, const T *beta, T *sum,
                  T *y, Accumulator<T> *stats, double eps) {
  int64_t rows = d.rows, n = d.cols;
  if (rows <= 0 || n <= 0)
    return;
  using A = Accumulator<T>;
  const bool packs =
      n % packSize<T> == 0 && aligned({x, residual, gamma, beta, sum, y});
  planRows<T>(n, packs, [&](auto plan) {
    using Plan = decltype(plan);
    launch(d.key.p > 0 ? addLayerNormKernel<T, Plan, true>
                       : addLayerNormKernel<T, Plan, false>,
           Plan::grid(rows), dim3(Plan::block), 0, queue.stream, rows, int(n),
           Mask<T>(d), x, residual, gamma, beta, sum, y, stats,
           A(1 / double(n)), A(eps));
  });
}

#define GRT_INSTANTIATE(T)                                                     \
  template void addLayerNorm(const Queue &, const DropoutArguments &,          \
                             const T *, const T *, const T *, const T *, T *,  \
                             T *, Accumulator<T> *, double)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
