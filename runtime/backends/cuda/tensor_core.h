//===- tensor_core.h - Products of small matrices by a warp ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix". With lane = 4 g
// + t a lane holds
//   of A [16, 16]   registers (row g, g + 8) x (columns 2t and 2t + 1, and
//   those
//                   plus 8): 0 is (g, 2t), 1 (g + 8, 2t), 2 (g, 2t + 8), 3 the
//                   last
//   of B [16, 8]    column g, rows 2t and 2t + 1, and those plus 8
//   of C [16, 8]    rows g (0, 1) and g + 8 (2, 3), columns 2t and 2t + 1.
// So C of two neighbouring products is, rounded, A of the next.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TENSOR_CORE_H
#define GRT_BACKENDS_CUDA_TENSOR_CORE_H

#include "portable.h"

namespace grt::cuda {

/// Four 8 by 8 matrices of bf16, or A.
struct Fragments {
  uint32_t at[4];
};

/// c += a b; b is (b0, b1).
__device__ inline void multiplyAdd(float (&c)[4], const Fragments &a,
                                   uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0),
        "r"(b1));
#else
  const uint32_t mine[6] = {a.at[0], a.at[1], a.at[2], a.at[3], b0, b1};
  const uint32_t *all[32];
  emulation::share(mine, all);
  auto half = [](uint32_t word, int k) {
    return wide(BF16{uint16_t(k % 2 ? word >> 16 : word)});
  };
  int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      int pair = k % 8 / 2;
      c[i] += half(all[4 * (row % 8) + pair][row / 8 + 2 * (k / 8)], k) *
              half(all[4 * column + pair][4 + k / 8], k);
    }
  }
  __syncwarp();
#endif
}

/// Four matrices; lane l says where row l % 8 of matrix l / 8 stands, 16 bytes
/// at a multiple of 16. A lane gets columns 2t and 2t + 1 of row g of each; if
/// Transposed, rows 2t and 2t + 1 of column g.
template <bool Transposed>
__device__ inline Fragments loadMatrices(const BF16 *row) {
  Fragments f;
#ifdef __CUDACC__
  auto address = uint32_t(__cvta_generic_to_shared(row));
  if (Transposed)
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3])
        : "r"(address)
        : "memory");
  else
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3])
        : "r"(address)
        : "memory");
#else
  const BF16 *all[32];
  emulation::share(row, all);
  int g = emulation::lane() / 4, t = emulation::lane() % 4;
  for (int m = 0; m < 4; ++m) {
    BF16 low = Transposed ? all[8 * m + 2 * t][g] : all[8 * m + g][2 * t];
    BF16 high =
        Transposed ? all[8 * m + 2 * t + 1][g] : all[8 * m + g][2 * t + 1];
    f.at[m] = uint32_t(low.bits) | uint32_t(high.bits) << 16;
  }
  __syncwarp();
#endif
  return f;
}

/// Two numbers rounded, the first in the lower half.
__device__ inline uint32_t packed(float low, float high) {
#ifdef __CUDACC__
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return uint32_t(narrow<BF16>(low).bits) | uint32_t(narrow<BF16>(high).bits)
                                                << 16;
#endif
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_TENSOR_CORE_H
