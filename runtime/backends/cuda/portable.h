//===- portable.h - What kernel sources are written in --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels (kernels/*.cu) are compiled twice: by nvcc for devices, and by the
// host compiler against emulation/cuda_on_host.h, which runs their threads on
// the CPU. Tests hold the second to the same conformance suite as every
// backend, so what they show is true of the source that runs on a device, but
// for what nvcc makes of it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_PORTABLE_H
#define GRT_BACKENDS_CUDA_PORTABLE_H

#include "gpu.h"
#include "types.h"

#include <initializer_list>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GRT_EVERYWHERE __host__ __device__ __forceinline__
#else
#include "emulation/cuda_on_host.h"
#define GRT_EVERYWHERE inline
#endif

#include <math.h>

namespace grt::cuda {

GRT_EVERYWHERE float bitsToFloat(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

GRT_EVERYWHERE float wide(float x) { return x; }
GRT_EVERYWHERE double wide(double x) { return x; }
GRT_EVERYWHERE float wide(BF16 x) {
  return bitsToFloat(uint32_t(x.bits) << 16);
}

template <class T> GRT_EVERYWHERE T narrow(Accumulator<T> x) { return x; }
/// Rounds to the nearest, ties to even; NaN stays one.
template <> GRT_EVERYWHERE BF16 narrow<BF16>(float x) {
#ifdef __CUDA_ARCH__
  uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return {result};
#else
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if (x != x)
    return {uint16_t(bits >> 16 | 0x40u)};
  return {uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

template <class A> GRT_EVERYWHERE A infinity() {
  return A(bitsToFloat(0x7f800000u));
}

/// N neighbours in memory, moved 16 bytes at a time where N allows.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};
/// Elements of 16 bytes.
template <class T> constexpr int packSize = int(16 / sizeof(T));
/// Whether packs can be read and written at all addresses.
inline bool aligned(std::initializer_list<const void *> addresses) {
  uintptr_t bits = 0;
  for (const void *address : addresses)
    bits |= reinterpret_cast<uintptr_t>(address);
  return bits % 16 == 0;
}

inline int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <int N, class T> GRT_EVERYWHERE Pack<T, N> load(const T *from) {
  return *reinterpret_cast<const Pack<T, N> *>(from);
}
template <int N, class T>
GRT_EVERYWHERE void store(T *to, const Pack<T, N> &pack) {
#ifdef __CUDA_ARCH__
  // The pack is copied as words: where an address is not plain, nvcc stores
  // elements of two bytes one by one.
  if constexpr (sizeof(T) == 2 && sizeof(pack) == 16) {
    *reinterpret_cast<uint4 *>(to) = __builtin_bit_cast(uint4, pack);
    return;
  } else if constexpr (sizeof(T) == 2 && sizeof(pack) == 8) {
    const uint2 words = __builtin_bit_cast(uint2, pack);
    asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words.x),
                 "r"(words.y)
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, N> *>(to) = pack;
}

/// The elements of a pack as they are counted with. Those of 16 bits lie two in
/// a word: each is one instruction away where it is taken from there.
template <class T, int N>
__device__ inline void widen(const Pack<T, N> &pack,
                             Accumulator<T> (&values)[N]) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    struct Words {
      uint32_t at[N / 2];
    } words = __builtin_bit_cast(Words, pack);
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      values[e] = bitsToFloat(words.at[e / 2] << 16);
      values[e + 1] = bitsToFloat(words.at[e / 2] & 0xffff0000u);
    }
  } else
#endif
  {
#pragma unroll
    for (int e = 0; e < N; ++e)
      values[e] = wide(pack.at[e]);
  }
}

/// narrow() of all, two in one instruction in 16 bits: one at a time, nvcc
/// sends some through the device's slow unit, where exponentials are made too.
template <class T, int N>
__device__ inline Pack<T, N> narrowAll(const Accumulator<T> (&values)[N]) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    struct Words {
      uint32_t at[N / 2];
    } words;
#pragma unroll
    for (int e = 0; e < N; e += 2)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(words.at[e / 2])
          : "f"(values[e + 1]), "f"(values[e]));
    using Result = Pack<T, N>;
    return __builtin_bit_cast(Result, words);
  } else
#endif
  {
    Pack<T, N> pack;
#pragma unroll
    for (int e = 0; e < N; ++e)
      pack.at[e] = narrow<T>(values[e]);
    return pack;
  }
}

/// a b + c, rounded once.
GRT_EVERYWHERE float multiplyAdd(float a, float b, float c) {
  return fmaf(a, b, c);
}
GRT_EVERYWHERE double multiplyAdd(double a, double b, double c) {
  return fma(a, b, c);
}

/// Begins to copy 16 bytes of global to shared memory, both at multiples of 16.
/// They are there for the thread that asked once it has waited.
__device__ inline void copyAhead(void *shared, const void *global) {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#else
  *static_cast<Pack<uint32_t, 4> *>(shared) =
      *static_cast<const Pack<uint32_t, 4> *>(global);
#endif
}
/// The same, or sixteen bytes of zeros: nothing is read then.
__device__ inline void copyAheadOrZeros(void *shared, const void *global,
                                        bool copies) {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(copies ? 16 : 0)
               : "memory");
#else
  *static_cast<Pack<uint32_t, 4> *>(shared) =
      copies ? *static_cast<const Pack<uint32_t, 4> *>(global)
             : Pack<uint32_t, 4>{};
#endif
}
__device__ inline void waitForCopies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
/// The copies that this thread began since the last call are a group.
__device__ inline void endGroupOfCopies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for all groups of copies but the last `Rest`.
template <int Rest> __device__ inline void waitForGroups() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(Rest) : "memory");
#endif
}
/// A pack into shared memory; ahead where it has 16 bytes.
template <int N, class T>
__device__ inline void fetchPack(Pack<T, N> *shared, const T *global) {
  if constexpr (sizeof(*shared) == 16)
    copyAhead(shared, global);
  else
    *shared = load<N>(global);
}

/// i / n and the rest. Indices fit 32 bits in most calls, and dividing those
/// takes a quarter of the instructions.
struct Quotient {
  int64_t quotient, rest;
};
GRT_EVERYWHERE Quotient divide(int64_t i, int64_t n) {
  int64_t q = ((i | n) >> 32) == 0 ? int64_t(uint32_t(i) / uint32_t(n)) : i / n;
  return {q, i - q * n};
}

/// Divides by a number that a launch knows: for i < 2^31 a multiplication and a
/// shift. With 2^(s-1) < n <= 2^s and m the least integer of at least
/// 2^(31+s) / n, which fits 32 bits, i m / 2^(31+s) exceeds i / n by less than
/// i / 2^31 / n, so both have the same integer part.
class Divisor {
public:
  explicit Divisor(int64_t n) : n(n), multiplier(0), shift(31) {
    if (n <= 0 || n > INT32_MAX)
      return;
    while ((int64_t(1) << (shift - 31)) < n)
      ++shift;
    multiplier =
        uint32_t(((uint64_t(1) << shift) + uint64_t(n) - 1) / uint64_t(n));
  }
  GRT_EVERYWHERE Quotient divide(int64_t i) const {
    if (uint64_t(i) > uint64_t(INT32_MAX) || multiplier == 0)
      return cuda::divide(i, n);
    const int64_t q = int64_t(uint64_t(i) * multiplier >> shift);
    return {q, i - q * n};
  }

private:
  int64_t n;
  uint32_t multiplier;
  int shift;
};

/// Calls use(i, load(i)) for i = first, first + step ... below end, in that
/// order, with `Ahead` loads on their way before the first of them is used.
/// Unrolling a loop does not do that: nvcc keeps one or two.
template <int Ahead, class Load, class Use>
__device__ void loadAhead(int first, int end, int step, Load load, Use use) {
  decltype(load(0)) held[Ahead];
  int i = first;
  for (; i + (Ahead - 1) * step < end; i += Ahead * step) {
#pragma unroll
    for (int a = 0; a < Ahead; ++a)
      held[a] = load(i + a * step);
#pragma unroll
    for (int a = 0; a < Ahead; ++a)
      use(i + a * step, held[a]);
  }
#pragma unroll
  for (int a = 0; a < Ahead - 1; ++a)
    if (i + a * step < end)
      held[a] = load(i + a * step);
#pragma unroll
  for (int a = 0; a < Ahead - 1; ++a)
    if (i + a * step < end)
      use(i + a * step, held[a]);
}

constexpr int warpSize_ = 32;

template <class A, class Combine>
__device__ A warpCombine(A value, Combine combine) {
  for (int mask = warpSize_ / 2; mask > 0; mask /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, mask));
  return value;
}
/// The same bits on every lane: each adds the same pairs.
template <class A> __device__ A warpSum(A value) {
  return warpCombine(value, [](A a, A b) { return a + b; });
}
/// NaN is ignored.
template <class A> __device__ A larger(A a, A b) {
  return a > b || b != b ? a : b;
}
template <class A> __device__ A warpMaximum(A value) {
  return warpCombine(value, [](A a, A b) { return larger(a, b); });
}

/// Combines over `Threads` neighbouring threads of a block, a multiple of 32;
/// every thread of the block calls it, every one of the team gets the result.
/// The order of combination is that of the threads.
template <int Threads, class A, class Combine>
__device__ A teamCombine(A value, Combine combine) {
  value = warpCombine(value, combine);
  if constexpr (Threads > warpSize_) {
    __shared__ A parts[32];
    int warp = int(threadIdx.x) / warpSize_;
    int first = int(threadIdx.x) / Threads * (Threads / warpSize_);
    __syncthreads();
    if (threadIdx.x % warpSize_ == 0)
      parts[warp] = value;
    __syncthreads();
    value = parts[first];
    for (int i = 1; i < Threads / warpSize_; ++i)
      value = combine(value, parts[first + i]);
  }
  return value;
}
template <int Threads, class A> __device__ A teamSum(A value) {
  return teamCombine<Threads>(value, [](A a, A b) { return a + b; });
}

#ifdef __CUDACC__
template <class T> __device__ T *dynamicShared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T *>(memory);
}
/// The same at a multiple of 1024, as blocks of eight rows are to stand.
template <class T> __device__ T *dynamicSharedBlocks() {
  extern __shared__ __align__(1024) unsigned char blocks[];
  return reinterpret_cast<T *>(blocks);
}

/// Throws DeviceError where the launch is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared,
            Stream stream, Arguments... arguments) {
  // 48 KiB, of which a kernel's own arrays are a part.
  constexpr int withoutAsking = 32 * 1024;
  if (shared > withoutAsking)
    checkLaunch(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  kernel<<<grid, block, size_t(shared), stream>>>(Parameters(arguments)...);
  checkLaunch(cudaGetLastError());
}
#else
template <class T> T *dynamicShared() {
  return static_cast<T *>(emulation::dynamicShared());
}
template <class T> T *dynamicSharedBlocks() { return dynamicShared<T>(); }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared,
            Stream, Arguments... arguments) {
  emulation::run(grid, block, shared,
                 [&] { kernel(Parameters(arguments)...); });
}
#endif

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_PORTABLE_H
