//===- layout.h - Which rank holds what -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything per rank follows from the levels of a layer's strategy: a rank's
// coordinate on a level is (local rank / stride) % degree.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_LAYOUT_H
#define GRT_CORE_LAYOUT_H

#include "comm/communicator.h"
#include "core/manifest.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace grt {

/// Coordinate on an axis, 0 if the strategy lacks it.
int64_t axisIndex(const Layer &layer, int localRank, grt_axis axis);

/// Global ranks that differ from this one on the axis only, by coordinate.
std::vector<int> axisRanks(const Role &role, const Layer &layer, int localRank,
                           grt_axis axis);

/// A group of ranks, and the streams that it is used on: TP on COMPUTE,
/// gathers of parameters on GATHER, sums of gradients on GRADIENT.
struct StreamGroup {
  std::vector<int> ranks;
  uint32_t streams = 0; ///< 1 << GRT_STREAM_COMPUTE and others
};

/// All groups of the program's layers with more than one rank, each once, in
/// rounds of groups that share no rank.
std::vector<std::vector<StreamGroup>> groupRounds(const Manifest &manifest);

/// The streams of exchanges: those between stages are on TRANSFER, those inside
/// of a stage, and of tied parameters, on COMPUTE.
uint32_t exchangeStreams(const Manifest &manifest);

/// The first sample of the batch that a rank's layer has of a micro-batch:
/// `first` of micro-batch 0, and `stride` more of each one behind it.
struct SampleRuns {
  int64_t first = 0, stride = 0;
};
SampleRuns samplesOf(const Manifest &manifest, const Layer &layer,
                     int localRank);

/// Number of the block of samples that the rank holds: mixed radix of its DP
/// and SDP coordinates, outermost level major.
int64_t sampleBlock(const Layer &layer, int localRank);

/// A run of consecutive elements of a parameter that are also consecutive in
/// the PARAMETER and GRADIENT regions of a rank's layer.
struct TensorRun {
  int64_t global; ///< element of the parameter, Hugging Face layout
  int64_t held;   ///< element of the region
  int64_t count;
  /// The rank has the optimizer state of these elements and the sum of their
  /// gradients; else it has a copy of what another rank updates.
  bool owned = true;
};

/// Where element 0 of the PARAMETER region would have its state in arrays of
/// the elements that the rank owns: minus the first of them.
int64_t stateShift(const Layer &layer, int localRank);

/// Calls `visit` for every run that the rank holds; padding is in none.
void forEachRun(const Layer &layer, const LayerTensor &tensor, int localRank,
                const std::function<void(const TensorRun &)> &visit);

/// Runs of a tensor that a rank holds one behind the other, all of them owned
/// or none: those of a matrix that is cut by columns are short, and what moves
/// memory moves them together. A matrix of many rows is several stretches, so
/// that nothing is taken from the heap while a rank's memory is counted.
struct TensorStretch {
  static constexpr size_t mostRuns = 128;
  std::span<const TensorRun> runs;

  int64_t held() const { return runs.front().held; }
  int64_t count() const {
    return runs.back().held + runs.back().count - held();
  }
  bool owned() const { return runs.front().owned; }
  /// Calls `visit(part, at)` for the parts of runs among `count` elements from
  /// the `first` on, counted from held(); `at` is counted from `first`.
  template <typename Visit>
  void forParts(int64_t first, int64_t count, Visit visit) const {
    auto run = std::upper_bound(
        runs.begin(), runs.end(), held() + first,
        [](int64_t at, const TensorRun &each) { return at < each.held; });
    const int64_t begin = held() + first, end = begin + count;
    for (--run; run != runs.end() && run->held < end; ++run) {
      const int64_t from = std::max(begin, run->held);
      const int64_t to = std::min(end, run->held + run->count);
      visit(TensorRun{run->global + from - run->held, from, to - from,
                      run->owned},
            uint64_t(from - begin));
    }
  }
};

/// Calls `visit` for every stretch of the runs that the rank holds.
void forEachStretch(const Layer &layer, const LayerTensor &tensor,
                    int localRank,
                    const std::function<void(const TensorStretch &)> &visit);

/// Consecutive ranks, those of a process.
struct LocalRanks {
  int first = 0, count = 0;
  bool contains(int rank) const {
    return rank >= first && rank < first + count;
  }
};

/// Tables of an exchange, one for each rank of this process: what others do
/// among themselves is nobody's business here, however many they are.
class LocalTables {
public:
  LocalTables() = default;
  explicit LocalTables(LocalRanks ranks)
      : ranks(ranks), tables(size_t(ranks.count)) {}
  /// Of a rank of this process.
  ExchangeTable &operator[](int rank) {
    return tables[size_t(rank - ranks.first)];
  }
  const ExchangeTable &operator[](int rank) const {
    return tables[size_t(rank - ranks.first)];
  }

  LocalRanks ranks;
  /// The most peers that any rank of any process receives from.
  size_t mostReceives = 0;

private:
  std::vector<ExchangeTable> tables;
};

/// Tables of an exchange of the manifest.
LocalTables exchangeTables(const Exchange &exchange, LocalRanks ranks);

/// Tables of the two transfers of a tie, in elements of the layers' regions:
/// `reduce` brings the borrower's gradient to the ranks
/// that update it, `broadcast` their value to the borrower. Every element that
/// a destination holds comes from one source: itself if it can, else the
/// holders take turns.
struct TieTables {
  LocalTables reduce, broadcast;
};
TieTables tieTables(const Manifest &manifest, const Tie &tie, LocalRanks ranks);

/// Whether they have a byte in common.
bool overlap(const Extent &a, const Extent &b);

/// Bytes of what is alive behind a layer, in its own layout; 0 behind the loss.
uint64_t outputBytes(const Manifest &manifest, const Role &role, size_t layer);

/// The offsets in the arena of a layer's states while its functions run: the
/// rank's parameters, and gradients and optimizer states of those that it
/// trains.
struct ResidentStates {
  Extent parameters, gradients, optimizer;
};
ResidentStates residentStates(const Manifest &manifest, const Layer &layer);

/// Where a set of tensors between two layers lies in the arena: up to the end
/// of boundary buffer 1, of packs of the second of each four, from the
/// beginning of the others. Nothing if `buffer` is negative.
Extent boundaryExtent(const Role &role, int buffer, uint64_t bytes);

/// Checks that exchanges stay inside the buffers they are used with and that
/// neighbouring layers and roles agree, and that boundary buffers that are
/// needed at one time are apart. Throws Error with exit code 2.
void checkWiring(const Manifest &manifest);

/// Checks that the places which a role names in its arena and in its home are
/// apart: regions, states of layers, and in a slot what is there at one time.
/// Throws Error with exit code 2.
void checkArena(const Manifest &manifest, const Role &role);

/// Where chunks are packs: checks, along the tasks of a role, that what is
/// there at one time is apart. The tasks have been checked one by one; `name`
/// is the schedule's. Throws Error with exit code 2.
void checkPackMemory(const grt_schedule &schedule, const Manifest &manifest,
                     const Role &role, const std::string &name);

} // namespace grt

#endif // GRT_CORE_LAYOUT_H
