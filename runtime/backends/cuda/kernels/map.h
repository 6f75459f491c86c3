//===- map.h - Kernels that take packs of elements ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_KERNELS_MAP_H
#define GRT_BACKENDS_CUDA_KERNELS_MAP_H

#include "kernels.h"
#include "portable.h"

#include <initializer_list>

namespace grt::cuda {
namespace {

constexpr int mapThreads = 256;

/// Runs `function` on packs of N elements, and on the rest one by one.
template <int N, class Function>
__global__ void __launch_bounds__(mapThreads)
    mapKernel(int64_t n, Function function) {
  int64_t p = int64_t(blockIdx.x) * mapThreads + threadIdx.x;
  int64_t packs = n / N;
  if (p < packs)
    function.template run<N>(p * N);
  else if (int64_t i = packs * N + (p - packs); i < n)
    function.template run<1>(i);
}

template <int N, class Function>
void launchMap(const Queue &queue, int64_t n, const Function &function) {
  int64_t threads = n / N + n % N;
  int64_t blocks = (threads + mapThreads - 1) / mapThreads;
  launch(mapKernel<N, Function>, dim3(unsigned(blocks)), dim3(mapThreads), 0,
         queue.stream, n, function);
}

/// Over n elements: packs if all addresses allow them, and rows of `rowLength`
/// (0: none) are whole packs.
template <class T, class Function>
void map(const Queue &queue, int64_t n, int64_t rowLength,
         std::initializer_list<const void *> addresses,
         const Function &function) {
  if (n <= 0)
    return;
  if (rowLength % packSize<T> == 0 && aligned(addresses))
    launchMap<packSize<T>>(queue, n, function);
  else
    launchMap<1>(queue, n, function);
}

} // namespace
} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_KERNELS_MAP_H
