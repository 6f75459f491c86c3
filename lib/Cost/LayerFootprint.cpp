//===- LayerFootprint.cpp - Collectives of a layer ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerModel.h"

#include <cassert>

using namespace llvm;

namespace galvatron {

void LayerFootprint::addCollective(const LayerCollective &added) {
  if (added.bytes == 0 || added.calls == 0)
    return;
  for (LayerCollective &known : collectives)
    // Buffers of one size: bytes / calls are equal.
    if (known.among == added.among && known.kind == added.kind &&
        known.when == added.when && known.bytes % known.calls == 0 &&
        added.bytes % added.calls == 0 &&
        known.bytes / known.calls == added.bytes / added.calls) {
      known.bytes += added.bytes;
      known.calls += added.calls;
      return;
    }
  collectives.push_back(added);
}

int64_t LayerFootprint::bytesOf(CollectiveGroup among, Collective kind,
                                CollectiveTime when) const {
  int64_t bytes = 0;
  for (const LayerCollective &work : collectives)
    if (work.among == among && work.kind == kind && work.when == when)
      bytes += work.bytes;
  return bytes;
}

} // namespace galvatron
