//===- dispatch.h - From calls of the C ABI to kernels --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_DISPATCH_H
#define GRT_BACKENDS_CUDA_DISPATCH_H

#include "grt/backend.h"

namespace grt::cuda {

class Rank;

/// Puts a call's work on COMPUTE; throws what is wrong with it.
void launchCall(const grt_call &call);
/// Chooses what libraries will do for calls of this op.
void prepareCall(Rank &rank, const grt_kernel_op &op);

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_DISPATCH_H
