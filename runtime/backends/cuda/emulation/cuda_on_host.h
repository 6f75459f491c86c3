//===- cuda_on_host.h - Kernel sources for the host compiler --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The words of CUDA C++ that the kernels use, for a compiler that knows none of
// them. Every thread of a block is a fiber; a block runs at a time, its fibers
// in an order that changes at every barrier, so that a barrier that is missing
// shows. Threads that wait at different barriers end the process with a
// message.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_EMULATION_CUDA_ON_HOST_H
#define GRT_BACKENDS_CUDA_EMULATION_CUDA_ON_HOST_H

#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
// A block at a time, and rank threads beside each other.
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace grt::cuda::emulation {

struct Place {
  dim3 thread, block, blockSize, gridSize;
};
/// Returns the place of the running fiber.
const Place &place();
void *dynamicShared();
/// Runs `body` once per thread of the grid. Shared memory starts as NaN bytes.
void run(dim3 grid, dim3 block, int shared, const std::function<void()> &body);

void blockBarrier();
void warpBarrier();
/// Whether `mine` holds on any thread of the block.
bool blockAny(bool mine);
/// Returns what lane `from` of the warp gave in this call.
uint64_t exchange(uint64_t mine, int from);
/// Returns one bit per lane.
uint32_t ballot(bool mine);

template <class T> T exchangeValue(T mine, int from) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &mine, sizeof(T));
  bits = exchange(bits, from);
  T theirs;
  __builtin_memcpy(&theirs, &bits, sizeof(T));
  return theirs;
}

/// all[l] = where lane l's value stands, until the next barrier of the warp.
void shareAddress(const void *mine, const void **all);
template <class T> void share(const T *mine, const T **all) {
  shareAddress(mine, reinterpret_cast<const void **>(all));
}

inline int lane() { return int(place().thread.x) % 32; }

} // namespace grt::cuda::emulation

#define threadIdx (::grt::cuda::emulation::place().thread)
#define blockIdx (::grt::cuda::emulation::place().block)
#define blockDim (::grt::cuda::emulation::place().blockSize)
#define gridDim (::grt::cuda::emulation::place().gridSize)

inline void __syncthreads() { grt::cuda::emulation::blockBarrier(); }
inline int __syncthreads_or(int mine) {
  return grt::cuda::emulation::blockAny(mine != 0);
}
inline void __syncwarp() { grt::cuda::emulation::warpBarrier(); }
template <class T> T __shfl_sync(unsigned, T value, int from) {
  return grt::cuda::emulation::exchangeValue(value, from % 32);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
  return grt::cuda::emulation::exchangeValue(
      value, grt::cuda::emulation::lane() ^ mask);
}
inline unsigned __ballot_sync(unsigned, int mine) {
  return grt::cuda::emulation::ballot(mine != 0);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(int(bits)); }
inline unsigned atomicOr(unsigned *word, unsigned bits) {
  return __atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}
inline unsigned atomicCAS(unsigned *word, unsigned expected, unsigned desired) {
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return expected;
}
inline void __threadfence_system() {}

#endif // GRT_BACKENDS_CUDA_EMULATION_CUDA_ON_HOST_H
