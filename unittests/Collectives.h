//===- Collectives.h - Sums over a footprint's collectives ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_COLLECTIVES_H
#define UNITTESTS_COLLECTIVES_H

#include "galvatron/Cost/LayerModel.h"

/// Bytes of whole buffers and calls of the collectives of tensor parallelism in
/// one pass, whatever their kinds.
struct TensorCalls {
  int64_t bytes = 0, calls = 0;
};

inline TensorCalls tensorCalls(const ::galvatron::LayerFootprint &footprint,
                               ::galvatron::CollectiveTime when) {
  TensorCalls sum;
  for (const ::galvatron::LayerCollective &work : footprint.collectives)
    if (work.among == ::galvatron::CollectiveGroup::Tensor &&
        work.when == when) {
      sum.bytes += work.bytes;
      sum.calls += work.calls;
    }
  return sum;
}

#endif // UNITTESTS_COLLECTIVES_H
