//===- ReshardPlan.h - Moving a boundary between two strategies -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one function that says which samples of a boundary tensor travel between
// which ranks when two neighbouring layers have different strategies, inside a
// stage and across a stage cut (Slice-Gather of arXiv 2307.02031, Sec. VI). The
// cost model prices its transfers, the compiler emits them.
//
// A boundary tensor is cut along samples only: a rank holds the block
// Strategy::sampleLayout of the micro-batch, in full; ranks that differ in the
// TP coordinate hold the same. Its gradient is laid out in the same way, so the
// backward direction is reshardPlan(to, from, toDevices, fromDevices, samples).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_RESHARDPLAN_H
#define GALVATRON_STRATEGY_RESHARDPLAN_H

#include "galvatron/Strategy/Strategy.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <vector>

namespace galvatron {

/// `units` samples, from sample `srcUnit` of the source rank's local buffer to
/// sample `dstUnit` of the destination rank's. Ranks are global.
struct ReshardTransfer {
  int64_t srcRank;
  int64_t dstRank;
  int64_t srcUnit;
  int64_t dstUnit;
  int64_t units;

  bool isLocal() const { return srcRank == dstRank; }
  bool operator==(const ReshardTransfer &other) const = default;
};

struct ReshardPlan {
  /// Samples of one micro-batch over all ranks.
  int64_t samples = 0;
  /// Local samples before and after.
  int64_t fromUnits = 0;
  int64_t toUnits = 0;
  /// The transfers by destination rank (in toDevices' order), then by
  /// destination unit. Holds local copies too; empty if every rank keeps what
  /// it has.
  std::vector<ReshardTransfer> transfers;
};

/// The plan for one micro-batch of `samples` samples. `samples` must be a
/// multiple of both strategies' sampleShards(); device lists hold the global
/// rank of every local rank, and are either equal (inside a stage) or disjoint
/// (a stage cut). What a rank already holds is a local copy. Otherwise a
/// receiver fetches a block from one of its owners: the one that has sent least
/// so far, then the nearest in rank number, then the lowest.
ReshardPlan reshardPlan(const Strategy &from, const Strategy &to,
                        llvm::ArrayRef<int64_t> fromDevices,
                        llvm::ArrayRef<int64_t> toDevices, int64_t samples);

/// The transfers of that plan one by one, in its order, with none of them kept:
/// on a stage of many thousand devices there are millions. Only those to the
/// first `receivers` ranks, which must be all, or a multiple of both layouts'
/// periods where both strategies have equally many ranks.
void forEachTransfer(const Strategy &from, const Strategy &to,
                     llvm::ArrayRef<int64_t> fromDevices,
                     llvm::ArrayRef<int64_t> toDevices, int64_t samples,
                     size_t receivers,
                     llvm::function_ref<void(const ReshardTransfer &)> visit);

/// The plan for what one chunk transfers to the next, which also between chunks
/// of one stage goes to another place: what every rank keeps is a copy.
ReshardPlan chunkTransferPlan(const Strategy &from, const Strategy &to,
                              llvm::ArrayRef<int64_t> fromDevices,
                              llvm::ArrayRef<int64_t> toDevices,
                              int64_t samples);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_RESHARDPLAN_H
