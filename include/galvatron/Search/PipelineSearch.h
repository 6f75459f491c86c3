//===- PipelineSearch.h - Partition and strategies together -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pipeline of P stages: which layers each stage holds and which option (a
// strategy) every layer has. The solver knows nothing of models or clusters.
//
//   minimise   (m-1) * max_s N_s + sum_s C_s            (arXiv 2307.02031, Eq.
//   9) subject to M_s <= E_s and sum host + k hostKept <= H_s for every stage s
//
// C_s and N_s are the sums of the options' times with and without gradient
// synchronisation, of the transforms between neighbouring layers of the stage,
// of the activations that the stage sends on and of the gradients that it sends
// back; C of a tie owner's stage also has the tie. For k micro-batches in
// flight
//
//   M = sum state + k sum (f + e) + max_l max(0, b_l - sum_{j>l} (f_j + e_j))
//       + max(max_l g_l, max_l r_l, 2 live_end)
//
// where e, r and live follow from the layout classes on both sides of a
// boundary, see PipelineBoundary.
//
// Or, where batches follow each other without a drain (slowestAlone), minimise
// max_s C_s.
//
// docs/search.md describes the method.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_PIPELINESEARCH_H
#define GALVATRON_SEARCH_PIPELINESEARCH_H

#include "galvatron/Support/Cancellation.h"
#include "galvatron/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace galvatron {

/// A memory that no sum of bytes fills.
inline constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

struct PipelineOption {
  size_t layoutClass = 0; ///< row and column in the matrices
  size_t tieKey = 0;      ///< row or column in the tie tables
  Picoseconds time = 0;   ///< of one micro-batch with gradient sync
  Picoseconds nosync = 0; ///< without
  int64_t kept = 0;       ///< f, bytes per micro-batch in flight
  int64_t transient = 0;  ///< b, bytes
  int64_t state = 0;      ///< bytes
  int64_t boundary = 0; ///< g, bytes of what gradients of input and output take
  int64_t host = 0;     ///< bytes in the host's memory
  int64_t hostKept = 0; ///< the same per micro-batch in flight

  bool operator==(const PipelineOption &other) const = default;
};

/// Bytes of the tensors that are alive between two layers, by the layout class
/// that they are held in. Where a boundary changes the class from x to y inside
/// a stage, both copies of the gradients live at once, r = live[x] + live[y],
/// and the latter layer keeps e = passing[y] per micro-batch in flight. So does
/// the first layer of a stage. At the end of a stage, of class x, what is sent
/// on and the gradient that comes back live at once, 2 live[x]. Where nothing
/// passes (passing[x] is 0) the output may instead wait among the temporaries
/// of the stage (PipelineStage::sendsFromTransient): if that takes less, M is
/// sum S + (k - 1) sum f + max(.., sum f + live[x]) + max(g, r).
struct PipelineBoundary {
  std::vector<int64_t> live;    ///< all tensors
  std::vector<int64_t> passing; ///< those that the former layer did not make
};

struct PipelineStage {
  /// Stages of one place have the same costs (devices that no cost can tell
  /// apart).
  size_t place = 0;
  int64_t inFlight = 1; ///< k
  int64_t memory = 0;   ///< E, bytes for what the layers need
  /// H, bytes of the host for what layers have there.
  int64_t hostMemory = kAnyBytes;
  /// Its last output may wait in the transient region.
  bool sendsFromTransient = false;

  bool operator==(const PipelineStage &other) const = default;
};

/// The costs of a cut: the sender of the activation pays the one, the sender of
/// the gradient (the later stage) the other. Rows are the former layer's class.
struct PipelineCut {
  size_t activation = 0, gradient = 0; ///< indices of matrices
};

/// A parameter of two layers. The owner's stage pays, once a step.
struct PipelineTie {
  size_t owner = 0, borrower = 0; ///< layers, owner < borrower
  /// The number of a table of tieKeys x tieKeys, the owner's key major, by
  /// owner's stage * stages + borrower's stage. Pairs with the owner behind are
  /// not read.
  std::vector<size_t> table;
  /// The layers are held alike where they are on two stages: the borrower has
  /// an option whose tie costs as much as one of the owner's own key does (or
  /// the least, if it has none). Many ties are searched in no other way, since
  /// all combinations of what their borrowers may have are too many.
  bool alike = false;
};

/// Returns true if tensors of one class are copied for another; `layouts` are
/// PipelineProblem::layouts.
inline bool changesLayout(llvm::ArrayRef<size_t> layouts, size_t one,
                          size_t other) {
  return layouts.empty() ? one != other : layouts[one] != layouts[other];
}

struct PipelineProblem {
  int64_t microBatches = 1; ///< m
  /// Minimises max_s C_s. Neither m nor the options' `nosync` is read.
  bool slowestAlone = false;
  size_t classes = 1;
  /// The layout that each class holds tensors in; empty: each its own. Classes
  /// of one layout differ in the times of moves alone, and a boundary between
  /// them holds no copies.
  std::vector<size_t> layouts;
  std::vector<PipelineStage> stages;
  /// Sets of options, in order of preference among equals.
  std::vector<std::vector<PipelineOption>> optionSets;
  std::vector<std::vector<size_t>> layers; ///< [place][layer]: option set
  /// Matrices of classes x classes.
  std::vector<std::vector<Picoseconds>> matrices;
  /// [place][layer]: matrix between the layer and the next in one stage.
  std::vector<std::vector<size_t>> transforms;
  std::vector<size_t> cutPlace;               ///< by stage but the last
  std::vector<std::vector<PipelineCut>> cuts; ///< [cut place][layer before it]
  std::vector<PipelineBoundary> boundaries;
  /// The boundary behind each layer but the last, by layer. Empty: nothing
  /// anywhere.
  std::vector<size_t> boundaryBehind;
  size_t tieKeys = 1;
  std::vector<std::vector<Picoseconds>> tieTables;
  std::vector<PipelineTie> ties;
  /// All owners of ties whose layers are held alike have one key. Layers that
  /// share parameters in many groups are searched in no other way.
  bool ownersAlike = false;
  /// Layers per stage if the partition is given, else empty.
  std::vector<int64_t> partition;

  size_t layerCount() const { return layers.empty() ? 0 : layers[0].size(); }
  /// The boundary behind a layer; null at the model's end or if it is nothing.
  const PipelineBoundary *behind(size_t layer) const {
    return layer < boundaryBehind.size() ? &boundaries[boundaryBehind[layer]]
                                         : nullptr;
  }
  /// The boundary in front of a layer.
  const PipelineBoundary *front(size_t layer) const {
    return layer > 0 ? behind(layer - 1) : nullptr;
  }

  /// The least cost of every pipeline with this option, C + (m - 1) N: sum C
  /// has its C, and max N is no less than its N; or C, if the slowest stage
  /// alone counts. At most kNoBound.
  Picoseconds leastCost(const PipelineOption &option) const;
  /// A limit of leastCost() under which the options of all layers can be
  /// summed; the most there is, within a factor of 2.
  Picoseconds mostSummable() const;

  /// Sizes, indices and ranges; no sum of times or bytes can overflow.
  llvm::Error check() const;
};

struct PipelineSolution {
  Picoseconds cost = 0;
  std::vector<int64_t> partition; ///< layers per stage
  std::vector<uint32_t> choice;   ///< by layer: index into its option set
};

/// M of a stage whose layers from `begin` on have these options.
int64_t stageBytes(const PipelineProblem &problem, size_t stage, size_t begin,
                   llvm::ArrayRef<const PipelineOption *> options);

/// Bytes by which a stage whose layers from `begin` on have these options is
/// over the fuller one of its two memories; negative: it fits.
int64_t stageExcess(const PipelineProblem &problem, size_t stage, size_t begin,
                    llvm::ArrayRef<const PipelineOption *> options);

/// The formulas above, for one partition and choice.
struct PipelineValue {
  Picoseconds cost = 0;
  std::vector<Picoseconds> time, nosync; ///< C_s, N_s
  std::vector<int64_t> memory;           ///< M_s
  std::vector<int64_t> excess;           ///< stageExcess()
  bool fits = true;
};
PipelineValue evaluatePipeline(const PipelineProblem &problem,
                               const std::vector<int64_t> &partition,
                               const std::vector<uint32_t> &choice);

/// The ways to settle the stages and keys of tied layers that a search goes
/// through one by one; `most` + 1 if there are more than `most`.
size_t countTieChoices(const PipelineProblem &problem, size_t most);

/// Mistakes that the property test must be able to see. None in earnest.
enum class PipelineFault : uint8_t {
  None,
  IgnoreBackwardPeak,         ///< only the last layer's b counts
  IgnoreTransformInDominance, ///< classes compared without their transforms
  DominanceBeforeCompletion,  ///< first layers compared as if they paid R
  CutFrontTooFar,             ///< labels cut a little below the limit
  DropCutTransfer,            ///< transfers do not depend on both classes
  IgnoreBoundaryInDominance,  ///< classes compared without e and r
  ForgetEntry                 ///< the first layer of a stage keeps no e
};

/// The work that an answer took.
struct PipelineStatistics {
  uint64_t attempts = 0; ///< limits tried
  uint64_t runs = 0;     ///< label runs
  uint64_t labels = 0;   ///< labels kept
  /// Labels made and pairs of them compared; pairs of classes of an interval
  /// that bounds look at, and what can follow them.
  uint64_t steps = 0;
};

/// Lower bounds that hold for more micro-batches too, as long as the numbers in
/// flight stay: of sum C and, with more than one stage and micro-batch, of
/// max N. kNoBound if nothing fits for sure.
struct PipelineBounds {
  Picoseconds time = 0, nosync = 0;

  /// The cost of a whole pipeline, in which the slowest stage counts
  /// `bottleneck` times besides.
  Picoseconds cost(int64_t bottleneck) const {
    return std::max(time, nosync) >= kNoBound ? kNoBound
                                              : time + bottleneck * nosync;
  }
};

namespace search {
class StageClassCache;
} // namespace search

/// Tables that searches of several problems share: those of stages with the
/// same costs, slots and memory are made once. No answer depends on it. Not for
/// use by several threads.
class SharedStageClasses {
public:
  SharedStageClasses();

private:
  friend class PipelineSearch;
  std::shared_ptr<search::StageClassCache> cache;
};

class PipelineSearch {
public:
  /// The problem must outlive the search and pass check(). With `atLeast` the
  /// search begins with a lower bound that is known, in place of a first one of
  /// its own.
  explicit PipelineSearch(const PipelineProblem &problem,
                          const SharedStageClasses &shared = {},
                          std::optional<Picoseconds> atLeast = {},
                          PipelineFault fault = PipelineFault::None);
  ~PipelineSearch();

  /// A proven lower bound; kNoBound if nothing fits for sure. Grows with failed
  /// attempts.
  Picoseconds lowerBound() const;
  /// Raises the lower bound as far as bounds alone can, or above `most`;
  /// returns it.
  Picoseconds tighten(Picoseconds most = kNoBound);
  /// Raises the lower bound to what the caller knows.
  void raise(Picoseconds atLeast);
  /// The optimum if it costs at most `limit`. Nothing proves that it costs more
  /// (or that nothing fits), unless the search was stopped.
  std::optional<PipelineSolution> attempt(Picoseconds limit);
  /// Solves by attempts at growing limits, like attempt().
  std::optional<PipelineSolution> solve(Picoseconds atMost = kNoBound);

  /// Begins anew with the layers per stage given, or any if empty; what is
  /// known of single stages is kept. The problem was made without a partition.
  void restart(std::vector<int64_t> partition);
  /// Calls return soon after this is requested; null: never. They may return a
  /// solution that is not the optimum, and prove nothing any more; lowerBound()
  /// holds.
  void setCancellation(const Cancellation *cancellation);
  /// Makes calls return likewise once about so many steps were taken, all calls
  /// together: a limit that no machine's speed changes.
  void setMostSteps(uint64_t steps);
  bool stopped() const;

  const PipelineStatistics &statistics() const;

  static PipelineBounds bounds(const PipelineProblem &problem,
                               SharedStageClasses &shared);

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

/// The least excess over the memory (negative: fits) of all partitions and
/// choices, what boundaries and the host take left out of account, with the
/// stage that has it: the stage furthest from fitting when all take as little
/// as they can.
struct PipelineNeed {
  int64_t excess = 0; ///< of the solution
  /// No pipeline has less. The same if no boundary tells classes apart and
  /// hosts have room.
  int64_t bound = 0;
  size_t stage = 0;
  PipelineSolution solution; ///< cost is not set
};
PipelineNeed leastNeed(const PipelineProblem &problem);

/// A lower bound of the cost of every pipeline as if memory were endless: the
/// best partition where every layer has its least C and its least N, and every
/// move the least of all classes. kNoBound if that is above `atMost`. Takes
/// little time beside making a search; 0, which says nothing, where it would
/// not, or where the slowest stage alone counts.
Picoseconds leastWithoutMemory(const PipelineProblem &problem,
                               Picoseconds atMost);

} // namespace galvatron

#endif // GALVATRON_SEARCH_PIPELINESEARCH_H
