//===- accesses.h - What kernels read and write ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The comments of grt_kernel in grt/abi.h as a table, for whoever must know it
// at run time.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_RECORDING_ACCESSES_H
#define GRT_BACKENDS_RECORDING_ACCESSES_H

#include "grt/abi.h"

#include <cstdint>
#include <vector>

namespace grt::recording {

enum class Access : uint8_t {
  Read,
  Write,
  ReadWrite,
  Accumulate, ///< written, and read first unless `acc` is 0
  Scratch     ///< free for the kernel while it runs
};
inline bool reads(Access access) { return access != Access::Write; }
inline bool writes(Access access) { return access != Access::Read; }

/// What a kernel does with the step block.
enum class StepUse : uint8_t { None, Reads, AddsNorm };

/// Of a kernel below GRT_KERNEL_COUNT.
StepUse stepUseOf(uint32_t kernel);

/// What a call of such a kernel does with its buffers; scratch that it may do
/// without is the last of them.
std::vector<Access> accessesOf(const grt_kernel_op &op);

/// Bytes from the beginning of a buffer that a call may touch: those that its
/// descriptor names, or as far as its rows reach where they lie apart.
uint64_t touchedBytes(const grt_kernel_op &op, uint32_t buffer);

} // namespace grt::recording

#endif // GRT_BACKENDS_RECORDING_ACCESSES_H
