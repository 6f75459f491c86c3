//===- Bounds.h - What a configuration takes at least -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds that take no plan, by which most of a target's configurations are
// ruled out before they are priced.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_BOUNDS_H
#define GALVATRON_SOFTWARE_BOUNDS_H

#include "galvatron/Software/Pricing.h"

namespace galvatron {

/// The least time of a step that a configuration can take, ms: the products and
/// attention of the busiest stage and what fills and empties the pipeline, at
/// the rate of the largest products. Sound for every schedule of the registry
/// that changes nothing but time and memory.
double leastStepMs(const ModelShape &shape, const Configuration &configuration,
                   const Execution &execution, const Cluster &cluster);

/// Bytes that the first stage has allocated at least: states of its blocks, and
/// what the forward passes in flight keep of them.
int64_t leastAllocated(const ModelShape &shape,
                       const Configuration &configuration,
                       const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_BOUNDS_H
