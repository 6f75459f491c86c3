//===- collectives.h - Collectives over memory of a device ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_COLLECTIVES_H
#define GRT_BACKENDS_CUDA_COLLECTIVES_H

#include "grt/backend.h"

namespace grt::cuda {

/// "nccl": one rank per process.
const grt_device_collectives *processCollectives();
/// "device": all ranks are threads of this process, on one device. Sums are
/// made in the order of a group's list and rounded once, with the same bits on
/// every member, as the communicators of the host make them.
const grt_device_collectives *threadCollectives();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_COLLECTIVES_H
