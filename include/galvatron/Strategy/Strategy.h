//===- Strategy.h - How one layer is spread over a stage --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A strategy is an ordered list of levels, outermost first, each a paradigm and
// a degree, and how much of the layer backward computes again: nothing, all
// (the checkpoint bit of arXiv 2307.02031, Sec. III-B), or what one of the
// layer's points leaves out (KeptValues.h). The innermost
// level sits on neighbouring ranks. A paradigm occurs at most once, every
// degree is at least 2, and the product of the degrees is the number of devices
// of the stage; no level at all is `single`. Which paradigms may stand beside
// each other their descriptors say (Paradigm.h): `zdp` stands in the place of
// `dp` and beside neither it nor `sdp`, since what it cuts they hold whole, or
// have cut.
//
// Behind these stands what of the layer has its home in the host's memory
// instead of the devices' (LayerHome): neither what a rank holds while it
// computes nor how it computes depends on it.
//
// Ranks here are local: positions 0..devices()-1 in the stage's device list.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_STRATEGY_H
#define GALVATRON_STRATEGY_STRATEGY_H

#include "galvatron/Strategy/Paradigm.h"
#include "galvatron/Strategy/SampleLayout.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

struct Level {
  Paradigm paradigm;
  int64_t degree;

  bool operator==(const Level &other) const {
    return paradigm == other.paradigm && degree == other.degree;
  }
  std::strong_ordering operator<=>(const Level &other) const {
    if (degree != other.degree)
      return degree <=> other.degree;
    return paradigm == other.paradigm  ? std::strong_ordering::equal
           : paradigm < other.paradigm ? std::strong_ordering::less
                                       : std::strong_ordering::greater;
  }
  friend llvm::hash_code hash_value(const Level &level) {
    return llvm::hash_combine(level.paradigm, level.degree);
  }
};

/// The part of a strategy that the local functions of a layer, and its flat
/// storage, depend on besides the number of local samples: neither the order of
/// the other levels matters nor the data-parallel degree.
struct LayerPartition {
  /// Levels whose ranks work inside the functions, outermost first. A dimension
  /// that several of them split is split by the outermost first.
  llvm::SmallVector<Level, 2> axes;
  int64_t parameterShards = 1; ///< ranks among which parameters are sharded
  int64_t optimizerShards =
      1; ///< ranks that divide the update of what each holds

  bool operator==(const LayerPartition &other) const = default;
  std::strong_ordering operator<=>(const LayerPartition &other) const {
    // Quick: it is part of the keys of caches that are asked for every price.
    if (auto order = parameterShards <=> other.parameterShards; order != 0)
      return order;
    if (auto order = optimizerShards <=> other.optimizerShards; order != 0)
      return order;
    return std::lexicographical_compare_three_way(
        axes.begin(), axes.end(), other.axes.begin(), other.axes.end());
  }
};

/// The parts of one layer whose home is the host, where the plan leaves that to
/// every layer (Offload::States::Layers).
struct LayerHome {
  /// Optimizer state, and with it parameters and gradients: these come to the
  /// device for the passes of a step.
  bool states = false;
  /// Stashes: what forward passes keep for backward.
  bool activations = false;

  bool operator==(const LayerHome &other) const = default;
  explicit operator bool() const { return states || activations; }
};

class Strategy {
public:
  /// `single`, on one device.
  Strategy() = default;

  /// Checks the rules above; the error names the level that breaks one.
  static llvm::Expected<Strategy> get(llvm::ArrayRef<Level> levels,
                                      bool checkpoint);

  /// Points are numbered from 1 on, from little to much recomputed.
  static constexpr int64_t kMostPoints = 9;

  /// Reads "dp2.tp4", "sdp8", "tp2.sdp4.ckpt", "single", "single.ckpt",
  /// "tp4.ckpt2", "dp2.ckpt.opt-host", "single.opt-host.act-host".
  static llvm::Expected<Strategy> parse(llvm::StringRef text);

  /// The notation that `parse` reads.
  std::string str() const;

  llvm::ArrayRef<Level> levels() const { return levelList; }
  /// True if the layer keeps its input alone and has a recompute function.
  bool checkpoint() const { return recomputation == kAllRecomputed; }
  Strategy withCheckpoint(bool checkpoint) const;
  /// The point of the layer that says which values are kept; 0 if all are, or
  /// none.
  int64_t point() const { return checkpoint() ? 0 : recomputation; }
  /// This strategy with a point from 0 to kMostPoints, and not checkpointed.
  Strategy withPoint(int64_t point) const;
  LayerHome home() const { return hostHome; }
  Strategy withHome(LayerHome home) const;
  /// The strategy with everything on the devices, as functions are compiled
  /// for.
  Strategy onDevices() const { return withHome({}); }

  /// Product of all degrees.
  int64_t devices() const;
  /// Degree of a paradigm, 1 if it has no level.
  int64_t degree(Paradigm paradigm) const;
  /// Product of the degrees of the levels in `among`: the size of their groups.
  int64_t degree(ParadigmSet among) const;
  /// Distance, in local ranks, between neighbours on level number `level`: the
  /// product of the degrees of the levels further in.
  int64_t stride(size_t level) const;
  /// Distance between neighbours on the level of a paradigm; 1 if it has none
  /// (its groups are single ranks then).
  int64_t stride(Paradigm paradigm) const;

  /// Coordinate of a local rank on the paradigm's level, 0 if it has none.
  int64_t coordinate(int64_t localRank, Paradigm paradigm) const;
  /// Number of a local rank in its group of the levels in `among`.
  int64_t coordinate(int64_t localRank, ParadigmSet among) const;
  /// The local ranks that differ from `localRank` only in the coordinates of
  /// the levels in `among`, ascending; {localRank} if there is no such level.
  /// Levels need not be neighbours: of dp2.tp2.sdp2, {dp, sdp} are ranks 0, 1,
  /// 4 and 5.
  llvm::SmallVector<int64_t, 8> group(int64_t localRank,
                                      ParadigmSet among) const;
  /// Returns all groups of these levels; none if there is no such level.
  std::vector<llvm::SmallVector<int64_t, 8>> groups(ParadigmSet among) const;
  /// True if the strategy has a level in `among`.
  bool hasLevel(ParadigmSet among) const;

  /// Levels whose ranks work inside the layer's functions, outermost first.
  llvm::SmallVector<Level, 2> axes() const;
  /// The paradigm of the level on an axis; none if no level is.
  Paradigm on(LayerAxis axis) const;
  /// The levels whose ranks communicate inside the layer's functions.
  ParadigmSet insideFunctions() const;
  /// The levels over whose product parameters are sharded.
  ParadigmSet parameterSharding() const;
  /// The levels over whose product optimizer states are sharded, alone or with
  /// the parameters.
  ParadigmSet optimizerSharding() const;
  /// The levels over whose product gradients are summed once a step.
  ParadigmSet gradientSumLevels() const;
  /// True if gradients are summed once a step, not once a micro-batch.
  bool sumsOnce() const { return !gradientSumLevels().empty(); }
  /// Ranks that hold the same parameters and update a part of them each
  /// (ZeRO-1, Megatron's distributed optimizer).
  int64_t optimizerShards() const;
  LayerPartition partition() const;

  /// Number of blocks a micro-batch is cut into.
  int64_t sampleShards() const;
  /// Which samples every local rank has. Two strategies with equal layouts need
  /// no reshard between them.
  SampleLayout sampleLayout() const;
  /// True if a micro-batch of so many samples divides into blocks.
  bool divides(int64_t microBatch) const {
    return microBatch % sampleShards() == 0;
  }
  /// The samples of a micro-batch that every rank has. Fails if its blocks
  /// would differ in size, with a message that begins with "strategy '...'".
  llvm::Expected<int64_t> localSamples(int64_t microBatch) const;

  bool operator==(const Strategy &other) const {
    return levelList == other.levelList &&
           recomputation == other.recomputation && hostHome == other.hostHome;
  }
  bool operator!=(const Strategy &other) const { return !(*this == other); }
  /// The order of the decision trees: what is on the devices first, plain
  /// before points before checkpointed, fewer levels first, then level by level
  /// in the order of the paradigms (DP < SDP < TP < ZDP < what was added),
  /// larger degrees first.
  bool operator<(const Strategy &other) const;

private:
  llvm::SmallVector<Level, 3> levelList;
  static constexpr uint8_t kAllRecomputed = 255;
  uint8_t recomputation = 0; ///< a point, or kAllRecomputed
  LayerHome hostHome;
};

} // namespace galvatron

#endif // GALVATRON_STRATEGY_STRATEGY_H
