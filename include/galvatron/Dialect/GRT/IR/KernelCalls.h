//===- KernelCalls.h - What calls of kernels do with their operands -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime's list of kernels (grt/kernels.h), asked about a `grt.kernel`.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_KERNELCALLS_H
#define GALVATRON_DIALECT_GRT_IR_KERNELCALLS_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "grt/kernels.h"

namespace mlir::grt {

/// Returns the list's entries for the buffers of a call, by operand. Fewer or
/// more than operands if the call was not verified.
::grt::KernelBuffers getKernelBuffers(KernelOp call);

/// Bytes from the first to the last that a kernel touches of a buffer of this
/// type.
int64_t getReachBytes(const ::grt::KernelBuffer &buffer, MemRefType type);

/// Begin and length of each segment of parameters that a call names.
SmallVector<std::pair<int64_t, int64_t>> getSegments(KernelOp call);

} // namespace mlir::grt

#endif // GALVATRON_DIALECT_GRT_IR_KERNELCALLS_H
