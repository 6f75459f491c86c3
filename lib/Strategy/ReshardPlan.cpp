//===- ReshardPlan.cpp - Moving a boundary between two strategies ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/ReshardPlan.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <cstdlib>

using namespace llvm;

namespace galvatron {

ReshardPlan reshardPlan(const Strategy &from, const Strategy &to,
                        ArrayRef<int64_t> fromDevices,
                        ArrayRef<int64_t> toDevices, int64_t samples) {
  assert(from.devices() == static_cast<int64_t>(fromDevices.size()) &&
         to.devices() == static_cast<int64_t>(toDevices.size()) &&
         "a strategy fills its devices");
  assert(samples > 0 && from.divides(samples) && to.divides(samples) &&
         "blocks are equal");
  SampleLayout before = from.sampleLayout(), after = to.sampleLayout();
  ReshardPlan plan;
  plan.samples = samples;
  plan.fromUnits = samples / before.blocks();
  plan.toUnits = samples / after.blocks();
  bool sameDevices = fromDevices == toDevices;
  if (sameDevices && before == after)
    return plan;

  // Local source ranks that own each block.
  std::vector<SmallVector<size_t, 8>> owners(before.blocks());
  for (size_t rank = 0; rank < fromDevices.size(); ++rank)
    owners[before.block(static_cast<int64_t>(rank))].push_back(rank);

  std::vector<int64_t> sent(fromDevices.size(), 0);
  for (size_t dst = 0; dst < toDevices.size(); ++dst) {
    auto rank = static_cast<int64_t>(dst);
    int64_t begin = after.block(rank) * plan.toUnits;
    int64_t end = begin + plan.toUnits;
    for (int64_t at = begin; at < end;) {
      int64_t block = at / plan.fromUnits;
      int64_t until = std::min(end, (block + 1) * plan.fromUnits);
      size_t source = owners[block].front();
      if (sameDevices && before.block(rank) == block) {
        source = dst;
      } else {
        auto worse = [&](size_t a, size_t b) {
          if (sent[a] != sent[b])
            return sent[a] > sent[b];
          int64_t near = std::llabs(fromDevices[a] - toDevices[dst]);
          int64_t nearB = std::llabs(fromDevices[b] - toDevices[dst]);
          if (near != nearB)
            return near > nearB;
          return fromDevices[a] > fromDevices[b];
        };
        for (size_t candidate : owners[block])
          if (worse(source, candidate))
            source = candidate;
        sent[source] += until - at;
      }
      plan.transfers.push_back({fromDevices[source], toDevices[dst],
                                at - block * plan.fromUnits, at - begin,
                                until - at});
      at = until;
    }
  }
  return plan;
}

ReshardPlan chunkTransferPlan(const Strategy &from, const Strategy &to,
                              ArrayRef<int64_t> fromDevices,
                              ArrayRef<int64_t> toDevices, int64_t samples) {
  ReshardPlan plan = reshardPlan(from, to, fromDevices, toDevices, samples);
  if (plan.transfers.empty())
    for (int64_t device : fromDevices)
      plan.transfers.push_back({device, device, 0, 0, plan.fromUnits});
  return plan;
}

} // namespace galvatron
