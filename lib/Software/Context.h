//===- Context.h - Positions cut among ranks --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Context parallelism as other software has it. A rank's part of a sample is a
// sample of its own for all layers but attention, which every key passes, so
// that the planner prices replicas; what keys and values take on their way is
// added here.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_CONTEXT_H
#define GALVATRON_LIB_SOFTWARE_CONTEXT_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Software/Configuration.h"
#include "galvatron/Software/Execution.h"

namespace galvatron {

/// The shape with the tokens that one rank has of a sample.
ModelShape partOfSample(const ModelShape &shape,
                        const Configuration &configuration);

/// The link of ranks that have parts of the same samples: they stand beside
/// each other, around tensor parallelism. Of one rank there is none.
GroupLink contextLink(const Configuration &configuration,
                      const Cluster &cluster);

/// Seconds that a block's passes of one micro-batch are longer because keys and
/// values, and their gradients, pass all ranks of a sample.
struct ContextSeconds {
  double forward = 0, backward = 0;
};
/// The seconds by which passes are longer: in a ring a shift runs beside the
/// attention of the part before; where they are gathered, or exchanged for
/// heads, nothing does. `cluster`: as the software meets it, `link`: the
/// contextLink() there.
ContextSeconds contextSeconds(const ModelShape &shape,
                              const Configuration &configuration,
                              const Execution &execution,
                              const Cluster &cluster, const GroupLink &link,
                              llvm::StringRef dtype);
/// Milliseconds that a step is longer.
double contextMs(const ContextSeconds &ofBlock,
                 const Configuration &configuration);

/// Bytes that a rank has while it computes the attention of a layer besides
/// what is kept: keys, values and their gradients of others, or what it sent of
/// its own.
int64_t contextBytes(const ModelShape &shape,
                     const Configuration &configuration,
                     const Execution &execution);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_CONTEXT_H
