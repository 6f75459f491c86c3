//===- Memory.h - Step and peak as a software has them ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_MEMORY_H
#define GALVATRON_LIB_SOFTWARE_MEMORY_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Software/Configuration.h"
#include "galvatron/Software/Execution.h"
#include "galvatron/Strategy/Plan.h"

#include <utility>

namespace galvatron {

/// Milliseconds of a step among others. Where stages do not meet behind it and
/// have slots enough to go on (ZB-H2), it is the work of the busiest one.
double stepMs(const Plan &plan, const Execution &execution);

/// Bytes that the software has allocated at its peak: the planner's ledger of
/// every stage, with what the software keeps otherwise. Micro-batches in flight
/// are those of 1F1B.
int64_t allocatedBytes(const Plan &plan, const ModelShape &shape,
                       const Configuration &configuration,
                       const Execution &execution);

/// Bytes of a layer's parameters and 16-bit gradients besides those of its
/// largest matrix, under all degrees of tensor parallelism together.
int64_t gatheredBeyondAMatrix(const ModelShape &shape);

/// The bytes that the software prints for that peak.
int64_t shownBytes(int64_t allocated, const Execution &execution,
                   const DeviceType &type);

/// Whether a peak fits the card. The allocator gives back what it only holds
/// before it fails, but only blocks that are free as a whole: of the allocator
/// of `allocatorReserve` one of the largest tensors is taken to find no place
/// among what is left. Of other software than that whose context is known, with
/// its buckets, only the reserve of the device type is.
bool fitsCard(int64_t allocated, const ModelShape &shape,
              const Configuration &configuration, const Execution &execution,
              const DeviceType &type);

/// The numbers of a stage of the interleaved schedule: passes whose activations
/// are there at once, and places for them where every chunk has its own, as the
/// planner has them (Schedule/Interleaved.cpp) and an allocator does not.
std::pair<int64_t, int64_t> interleavedPasses(int64_t stages, int64_t chunks,
                                              int64_t index,
                                              int64_t microBatches);

/// Passes whose activations stage `index` of a V holds at once for its two
/// chunks, with those whose weights' gradients are put off.
int64_t foldedPasses(const Configuration &degrees, int64_t index);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_MEMORY_H
