//===- product.cu - Products without the library --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For what cuBLASLt refuses, empty sums, and tests. Tiles of 64 by 64 in shared
// memory, 4 by 4 sums a thread, ordinary arithmetic: 2 m n k operations at less
// than half of the device's rate without tensor cores, bound by shared memory.
//
//===----------------------------------------------------------------------===//

#include "kernels.h"
#include "portable.h"

namespace grt::cuda {
namespace {

constexpr int tile = 64, depth = 16, side = 4;
constexpr int productThreads = (tile / side) * (tile / side);

template <class T, class C>
__global__ void __launch_bounds__(productThreads)
    productKernel(ProductArguments<T> p, C *c) {
  using A = Accumulator<T>;
  __shared__ A left[depth][tile + 1], right[depth][tile + 1];
  const int64_t firstRow = int64_t(blockIdx.y) * tile;
  const int64_t firstColumn = int64_t(blockIdx.x) * tile;
  // Neighbouring threads own neighbouring columns.
  const int x = int(threadIdx.x) % (tile / side);
  const int y = int(threadIdx.x) / (tile / side);
  A sums[side][side] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
    __syncthreads();
    for (int i = int(threadIdx.x); i < tile * depth; i += productThreads) {
      // The index that runs fastest is the one that memory has together.
      int row = p.transA ? i % tile : i / depth;
      int k = p.transA ? i / tile : i % depth;
      bool in = firstRow + row < p.m && k0 + k < p.k;
      int64_t at = p.transA ? (k0 + k) * p.m + firstRow + row
                            : (firstRow + row) * p.k + k0 + k;
      left[k][row] = in ? wide(p.a[at]) : A(0);
    }
    for (int i = int(threadIdx.x); i < tile * depth; i += productThreads) {
      int column = p.transB ? i / depth : i % tile;
      int k = p.transB ? i % depth : i / tile;
      bool in = firstColumn + column < p.n && k0 + k < p.k;
      int64_t at = p.transB ? (firstColumn + column) * p.k + k0 + k
                            : (k0 + k) * p.n + firstColumn + column;
      right[k][column] = in ? wide(p.b[at]) : A(0);
    }
    __syncthreads();
    for (int k = 0; k < depth; ++k) {
      A l[side], r[side];
      for (int i = 0; i < side; ++i) {
        l[i] = left[k][y * side + i];
        r[i] = right[k][x + i * (tile / side)];
      }
      for (int i = 0; i < side; ++i)
        for (int j = 0; j < side; ++j)
          sums[i][j] += l[i] * r[j];
    }
  }
  for (int i = 0; i < side; ++i)
    for (int j = 0; j < side; ++j) {
      int64_t row = firstRow + y * side + i;
      int64_t column = firstColumn + x + j * (tile / side);
      if (row >= p.m || column >= p.n)
        continue;
      C *to = c + row * p.n + column;
      A value = sums[i][j];
      if (p.add)
        value += A(wide(*to));
      if (p.bias)
        value += wide(p.bias[column]);
      if constexpr (sizeof(C) == sizeof(A))
        *to = value;
      else
        *to = narrow<C>(value);
    }
}

} // namespace

template <class T, class C>
void product(const Queue &queue, const ProductArguments<T> &p, C *c) {
  if (p.m <= 0 || p.n <= 0)
    return;
  launch(productKernel<T, C>,
         dim3(unsigned((p.n + tile - 1) / tile),
              unsigned((p.m + tile - 1) / tile)),
         dim3(productThreads), 0, queue.stream, p, c);
}

template void product(const Queue &, const ProductArguments<float> &, float *);
template void product(const Queue &, const ProductArguments<double> &,
                      double *);
template void product(const Queue &, const ProductArguments<BF16> &, float *);
template void product(const Queue &, const ProductArguments<BF16> &, BF16 *);

} // namespace grt::cuda
