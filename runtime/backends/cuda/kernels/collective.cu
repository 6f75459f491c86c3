//===- collective.cu - Reductions over the ranks of one process -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "kernels.h"
#include "portable.h"

namespace grt::cuda {
namespace {

constexpr int sumThreads = 256;

/// w bytes an element for every member and every place of the result; bound by
/// memory. Each element is read before it is written, by the same thread.
template <class T, int N>
__global__ void __launch_bounds__(sumThreads)
    sumKernel(int64_t count, const __grid_constant__ Members in, const T *onto,
              const __grid_constant__ Members out) {
  using A = Accumulator<T>;
  int64_t i = (int64_t(blockIdx.x) * sumThreads + threadIdx.x) * N;
  if (i >= count)
    return;
  A sum[N] = {};
  for (int m = 0; m < in.count; ++m) {
    Pack<T, N> values = load<N>(static_cast<const T *>(in.at[m]) + i);
    for (int e = 0; e < N; ++e)
      sum[e] = m == 0 ? wide(values.at[e]) : sum[e] + wide(values.at[e]);
  }
  if (onto) {
    Pack<T, N> values = load<N>(onto + i);
    for (int e = 0; e < N; ++e)
      sum[e] += wide(values.at[e]);
  }
  Pack<T, N> result;
  for (int e = 0; e < N; ++e)
    result.at[e] = narrow<T>(sum[e]);
  for (int m = 0; m < out.count; ++m)
    store<N>(static_cast<T *>(out.at[m]) + i, result);
}

template <class T>
void sumOf(Stream stream, int64_t count, const Members &in, const void *onto,
           const Members &out) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(onto);
  for (const Members *members : {&in, &out})
    for (int m = 0; m < members->count; ++m)
      bits |= reinterpret_cast<uintptr_t>(members->at[m]);
  // Packs as far as they go, then the few that are left.
  constexpr int N = packSize<T>;
  int64_t packed = bits % 16 == 0 ? count / N * N : 0;
  auto run = [&](auto *kernel, int64_t begin, int64_t n, int64_t pack) {
    if (n <= 0)
      return;
    Members from = in, to = out;
    for (int m = 0; m < from.count; ++m)
      from.at[m] = static_cast<T *>(from.at[m]) + begin;
    for (int m = 0; m < to.count; ++m)
      to.at[m] = static_cast<T *>(to.at[m]) + begin;
    const T *first = onto ? static_cast<const T *>(onto) + begin : nullptr;
    int64_t threads = (n + pack - 1) / pack;
    launch(kernel, dim3(unsigned((threads + sumThreads - 1) / sumThreads)),
           dim3(sumThreads), 0, stream, n, from, first, to);
  };
  run(sumKernel<T, N>, 0, packed, N);
  run(sumKernel<T, 1>, packed, count - packed, 1);
}

template <class T> __device__ inline bool isBelow(T a, T b) { return a < b; }
template <> __device__ inline bool isBelow<BF16>(BF16 a, BF16 b) {
  return wide(a) < wide(b);
}

/// w bytes an element for every member and every place of the result; bound by
/// memory. Each element is read before it is written, by the same thread.
template <class T>
__global__ void __launch_bounds__(sumThreads)
    largestKernel(int64_t count, const __grid_constant__ Members in,
                  const __grid_constant__ Members out) {
  const int64_t i = int64_t(blockIdx.x) * sumThreads + threadIdx.x;
  if (i >= count)
    return;
  T largest = static_cast<const T *>(in.at[0])[i];
  for (int m = 1; m < in.count; ++m)
    if (const T value = static_cast<const T *>(in.at[m])[i];
        isBelow(largest, value))
      largest = value;
  for (int m = 0; m < out.count; ++m)
    static_cast<T *>(out.at[m])[i] = largest;
}

template <class T>
void largestOf(Stream stream, int64_t count, const Members &in,
               const Members &out) {
  if (count > 0)
    launch(largestKernel<T>,
           dim3(unsigned((count + sumThreads - 1) / sumThreads)),
           dim3(sumThreads), 0, stream, count, in, out);
}

} // namespace

void largestInOrder(Stream stream, uint32_t dtype, uint64_t count,
                    const Members &in, const Members &out) {
  if (dtype == GRT_F32)
    largestOf<float>(stream, int64_t(count), in, out);
  else if (dtype == GRT_F64)
    largestOf<double>(stream, int64_t(count), in, out);
  else if (dtype == GRT_BF16)
    largestOf<BF16>(stream, int64_t(count), in, out);
  else if (dtype == GRT_I32)
    largestOf<int32_t>(stream, int64_t(count), in, out);
  else if (dtype == GRT_U8)
    largestOf<uint8_t>(stream, int64_t(count), in, out);
  else
    throw DeviceError("cannot compare elements of dtype " +
                      std::to_string(dtype));
}

void sumInOrder(Stream stream, uint32_t dtype, uint64_t count,
                const Members &in, const void *onto, const Members &out) {
  if (dtype == GRT_F32)
    sumOf<float>(stream, int64_t(count), in, onto, out);
  else if (dtype == GRT_F64)
    sumOf<double>(stream, int64_t(count), in, onto, out);
  else if (dtype == GRT_BF16)
    sumOf<BF16>(stream, int64_t(count), in, onto, out);
  else
    throw DeviceError("cannot sum elements of dtype " + std::to_string(dtype));
}

} // namespace grt::cuda
