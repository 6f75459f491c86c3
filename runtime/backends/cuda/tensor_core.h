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

// A group of four warps multiplies on Hopper what stands in shared memory, 64
// rows at a time and without a warp's loading it (PTX ISA, "wgmma.mma_async").
// Code of sm_90a alone has these; matrices of 64 rows then stand in blocks of
// 64 columns, 128 bytes a row, whose packs of 16 bytes are exchanged by their
// row's number
// ("128-byte swizzle").
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GRT_WARP_GROUPS 1
#else
#define GRT_WARP_GROUPS 0
#endif

#if GRT_WARP_GROUPS
/// Returns the descriptor of where b of a product begins, in such blocks:
/// `from` is the first element, of a row that is a multiple of eight.
/// `blockBytes`: to the next 64 columns.
__device__ inline uint64_t operandAt(const BF16 *from, int blockBytes) {
  const auto address = uint32_t(__cvta_generic_to_shared(from));
  constexpr uint64_t eightRows = 1024, swizzle128 = 1;
  return uint64_t(address >> 4 & 0x3fffu) | uint64_t(blockBytes >> 4) << 16 |
         eightRows >> 4 << 32 | swizzle128 << 62;
}

#define GRT_COLUMNS_(c, n)                                                     \
  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
/// Begins c = a b, or c += a b if `add`. A warp's a and c are its 16 rows, as
/// in multiplyAdd; c has columns [8 n, 8 n + 8) in c[n]. b has 16 columns in
/// memory, or, if Transposed, 16 rows.
template <bool Transposed, int N>
__device__ inline void multiplyGroup(float (&c)[N][4], const Fragments &a,
                                     uint64_t b, bool add) {
  static_assert(N == 8 || N == 16);
  if constexpr (N == 8)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                 "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31}"
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
                 : GRT_COLUMNS_(c, 0), GRT_COLUMNS_(c, 1), GRT_COLUMNS_(c, 2),
                   GRT_COLUMNS_(c, 3), GRT_COLUMNS_(c, 4), GRT_COLUMNS_(c, 5),
                   GRT_COLUMNS_(c, 6), GRT_COLUMNS_(c, 7)
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]),
                   "l"(b), "r"(int(add)), "n"(Transposed)
                 : "memory");
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                 "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, "
                 "%37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "
                 "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                 "%61, %62, %63}"
                 ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
                 : GRT_COLUMNS_(c, 0), GRT_COLUMNS_(c, 1), GRT_COLUMNS_(c, 2),
                   GRT_COLUMNS_(c, 3), GRT_COLUMNS_(c, 4), GRT_COLUMNS_(c, 5),
                   GRT_COLUMNS_(c, 6), GRT_COLUMNS_(c, 7), GRT_COLUMNS_(c, 8),
                   GRT_COLUMNS_(c, 9), GRT_COLUMNS_(c, 10), GRT_COLUMNS_(c, 11),
                   GRT_COLUMNS_(c, 12), GRT_COLUMNS_(c, 13),
                   GRT_COLUMNS_(c, 14), GRT_COLUMNS_(c, 15)
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]),
                   "l"(b), "r"(int(add)), "n"(Transposed)
                 : "memory");
}
/// The same with a in memory too, 64 rows of 16 columns.
template <int N>
__device__ inline void multiplyGroup(float (&c)[N][4], uint64_t a, uint64_t b,
                                     bool add) {
  static_assert(N == 4 || N == 8);
  if constexpr (N == 4)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                 "%13, %14, %15}"
                 ", %16, %17, p, 1, 1, 0, 0;\n}\n"
                 : GRT_COLUMNS_(c, 0), GRT_COLUMNS_(c, 1), GRT_COLUMNS_(c, 2),
                   GRT_COLUMNS_(c, 3)
                 : "l"(a), "l"(b), "r"(int(add))
                 : "memory");
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                 "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31}"
                 ", %32, %33, p, 1, 1, 0, 0;\n}\n"
                 : GRT_COLUMNS_(c, 0), GRT_COLUMNS_(c, 1), GRT_COLUMNS_(c, 2),
                   GRT_COLUMNS_(c, 3), GRT_COLUMNS_(c, 4), GRT_COLUMNS_(c, 5),
                   GRT_COLUMNS_(c, 6), GRT_COLUMNS_(c, 7)
                 : "l"(a), "l"(b), "r"(int(add))
                 : "memory");
}
#undef GRT_COLUMNS_

// Around products: what they read and write in registers is theirs in between,
// and nothing that makes or uses it may move over there.

__device__ inline void settle(float &value) {
  asm volatile("" : "+f"(value)::"memory");
}
__device__ inline void settle(Fragments &fragments) {
  for (uint32_t &word : fragments.at)
    asm volatile("" : "+r"(word)::"memory");
}
template <class T, int N> __device__ inline void settle(T (&array)[N]) {
  for (T &element : array)
    settle(element);
}
template <class... Registers>
__device__ inline void beginProducts(Registers &...registers) {
  (settle(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <class... Registers>
__device__ inline void endProducts(Registers &...registers) {
  asm volatile("wgmma.commit_group.sync.aligned;\n"
               "wgmma.wait_group.sync.aligned 0;" ::
                   : "memory");
  (settle(registers), ...);
}
/// Makes data that were copied to shared memory visible to products.
__device__ inline void showToProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_TENSOR_CORE_H
