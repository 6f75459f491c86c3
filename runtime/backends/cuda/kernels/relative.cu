//===- relative.cu - Biases of relative positions -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both move little: a bias has as many elements as samples times heads times
// two lengths of a sequence.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"

namespace grt::cuda {
namespace {

constexpr int relativeThreads = 256;

__device__ inline int64_t bucketAt(const RelativeBiasArguments &a, int64_t d) {
  return a.rule.of(d - (a.positions - 1));
}

/// A thread an element. w bytes an element, and those of the table.
template <class T>
__global__ void __launch_bounds__(relativeThreads)
    relativeBiasKernel(RelativeBiasArguments a, const T *table, T *bias) {
  const int64_t distances = 2 * a.positions - 1;
  int64_t i = int64_t(blockIdx.x) * relativeThreads + threadIdx.x;
  if (i >= a.samples * a.heads * distances)
    return;
  int64_t head = i / distances % a.heads;
  bias[i] = table[bucketAt(a, i % distances) * a.heads + head];
}

/// A warp an element of the table, its lanes over distances: every sum has one
/// order. w bytes an element of dbias, and distances are looked at once for
/// every bucket.
template <class T>
__global__ void __launch_bounds__(warpSize_)
    relativeBiasGradKernel(RelativeBiasArguments a, const T *dbias,
                           Accumulator<T> *dtable, bool add) {
  const int64_t distances = 2 * a.positions - 1;
  const int64_t bucket = blockIdx.x, head = blockIdx.y;
  Accumulator<T> sum = 0;
  for (int64_t d = threadIdx.x; d < distances; d += warpSize_)
    if (bucketAt(a, d) == bucket)
      for (int64_t s = 0; s < a.samples; ++s)
        sum += wide(dbias[(s * a.heads + head) * distances + d]);
  sum = warpSum(sum);
  if (threadIdx.x == 0) {
    Accumulator<T> &place = dtable[bucket * a.heads + head];
    place = add ? place + sum : sum;
  }
}

} // namespace

template <class T>
void relativeBias(const Queue &queue, const RelativeBiasArguments &a,
                  const T *table, T *bias) {
  int64_t n = a.samples * a.heads * (2 * a.positions - 1);
  if (n > 0)
    launch(relativeBiasKernel<T>,
           dim3(unsigned((n + relativeThreads - 1) / relativeThreads)),
           dim3(relativeThreads), 0, queue.stream, a, table, bias);
}

template <class T>
void relativeBiasGrad(const Queue &queue, const RelativeBiasArguments &a,
                      const T *dbias, Accumulator<T> *dtable, bool add) {
  if (a.heads > 0)
    launch(relativeBiasGradKernel<T>,
           dim3(unsigned(a.buckets), unsigned(a.heads)), dim3(warpSize_), 0,
           queue.stream, a, dbias, dtable, add);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void relativeBias(const Queue &, const RelativeBiasArguments &,     \
                             const T *, T *);                                  \
  template void relativeBiasGrad(const Queue &, const RelativeBiasArguments &, \
                                 const T *, Accumulator<T> *, bool)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
