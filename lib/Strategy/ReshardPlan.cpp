//===- ReshardPlan.cpp - Moving a boundary between two strategies ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/ReshardPlan.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <cassert>
#include <cstdlib>

using namespace llvm;

namespace galvatron {

StringRef reshardKindName(ReshardKind kind) {
  switch (kind) {
  case ReshardKind::None:
    return "none";
  case ReshardKind::Slice:
    return "slice";
  case ReshardKind::AllGather:
    return "all-gather";
  case ReshardKind::Permute:
    return "permute";
  case ReshardKind::AllToAll:
    return "all-to-all";
  case ReshardKind::Send:
    return "send";
  }
  llvm_unreachable("all kinds are handled");
}

namespace {

int64_t maxPerRank(ArrayRef<ReshardTransfer> transfers, bool bySource) {
  DenseMap<int64_t, int64_t> units;
  int64_t most = 0;
  for (const ReshardTransfer &transfer : transfers)
    if (!transfer.isLocal())
      most = std::max(most,
                      units[bySource ? transfer.srcRank : transfer.dstRank] +=
                      transfer.units);
  return most;
}

/// True if every rank's new samples are among (or contain) its old ones.
bool everyRankNests(ArrayRef<int64_t> from, ArrayRef<int64_t> to,
                    int64_t fromUnits, int64_t toUnits, bool toInsideFrom) {
  for (size_t rank = 0; rank < from.size(); ++rank) {
    int64_t fromBegin = from[rank] * fromUnits, toBegin = to[rank] * toUnits;
    bool nested = toInsideFrom ? toBegin >= fromBegin &&
                                     toBegin + toUnits <= fromBegin + fromUnits
                               : fromBegin >= toBegin &&
                                     fromBegin + fromUnits <= toBegin + toUnits;
    if (!nested)
      return false;
  }
  return true;
}

} // namespace

int64_t ReshardPlan::totalUnits() const {
  int64_t sum = 0;
  for (const ReshardTransfer &transfer : transfers)
    if (!transfer.isLocal())
      sum += transfer.units;
  return sum;
}

int64_t ReshardPlan::maxSentUnits() const {
  return maxPerRank(transfers, /*bySource=*/true);
}

int64_t ReshardPlan::maxReceivedUnits() const {
  return maxPerRank(transfers, /*bySource=*/false);
}

ReshardPlan reshardPlan(const Strategy &from, const Strategy &to,
                        ArrayRef<int64_t> fromDevices,
                        ArrayRef<int64_t> toDevices, int64_t samples) {
  assert(from.devices() == static_cast<int64_t>(fromDevices.size()) &&
         to.devices() == static_cast<int64_t>(toDevices.size()) &&
         "a strategy fills its devices");
  assert(samples > 0 && samples % from.sampleShards() == 0 &&
         samples % to.sampleShards() == 0 && "blocks are equal");
  ReshardPlan plan;
  plan.samples = samples;
  plan.fromUnits = samples / from.sampleShards();
  plan.toUnits = samples / to.sampleShards();
  std::vector<int64_t> fromLayout = from.sampleLayout();
  std::vector<int64_t> toLayout = to.sampleLayout();

  bool sameDevices = fromDevices == toDevices;
  if (!sameDevices)
    plan.kind = ReshardKind::Send;
  else if (fromLayout == toLayout)
    return plan;
  else if (everyRankNests(fromLayout, toLayout, plan.fromUnits, plan.toUnits,
                          /*toInsideFrom=*/true))
    plan.kind = ReshardKind::Slice;
  else if (everyRankNests(fromLayout, toLayout, plan.fromUnits, plan.toUnits,
                          /*toInsideFrom=*/false))
    plan.kind = ReshardKind::AllGather;
  else if (plan.fromUnits == plan.toUnits)
    plan.kind = ReshardKind::Permute;
  else
    plan.kind = ReshardKind::AllToAll;

  // Local source ranks that own each block.
  std::vector<SmallVector<size_t, 8>> owners(from.sampleShards());
  for (size_t rank = 0; rank < fromLayout.size(); ++rank)
    owners[fromLayout[rank]].push_back(rank);

  std::vector<int64_t> sent(fromDevices.size(), 0);
  for (size_t dst = 0; dst < toDevices.size(); ++dst) {
    int64_t begin = toLayout[dst] * plan.toUnits, end = begin + plan.toUnits;
    for (int64_t at = begin; at < end;) {
      int64_t block = at / plan.fromUnits;
      int64_t until = std::min(end, (block + 1) * plan.fromUnits);
      size_t source = owners[block].front();
      if (sameDevices && fromLayout[dst] == block) {
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

ReshardPlan handOnPlan(const Strategy &from, const Strategy &to,
                       ArrayRef<int64_t> fromDevices,
                       ArrayRef<int64_t> toDevices, int64_t samples) {
  ReshardPlan plan = reshardPlan(from, to, fromDevices, toDevices, samples);
  if (plan.kind == ReshardKind::None)
    for (int64_t device : fromDevices)
      plan.transfers.push_back({device, device, 0, 0, plan.fromUnits});
  return plan;
}

} // namespace galvatron
