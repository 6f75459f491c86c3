//===- SharedHomes.h - Chunks that share homes ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pipeline whose stages have several chunks of layers each: chunk c of the
// model is on home h(c), and one home has chunks that lie far apart. What is
// chosen are the layers of every chunk, contiguous and at least one, and an
// option of every layer. The least of
//
//     max_r T_r      subject to    M_h <= E_h for every home h
//
// is bounded from below, where T_r, a row, and M_h are sums over layers:
//
//     T_r = sum_c sum_(l in c) (F_r(c) f_l + B_r(c) b_l + I_r(c) i_l
//                                   + S_r(c) g_l + L_r(c) e_l)
//           + sum_(cuts c) (O_r(c) o_c(l) + R_r(c) r_c(l))
//     M_h = sum_(c on h) sum_(l in c) state_l
//           + (sum_(c on h) slots_c) max_(c on h) sum_(l in c) kept_l
//
// where f_l and b_l are one of two pairs of times, as the row says, and with
// o_c(l) and r_c(l) what the cut behind chunk c takes if its last layer is
// l: all slots of a home have the size of its largest chunk. Let M_d be M_h
// with the chunk d of h in place of the largest. For any weights w >= 0 of the
// rows with the sum 1 and any prices p >= 0, the least of sum_r w_r T_r + sum_d
// p_d (M_d - E_h(d)) is no more than the least of the problem, since a mean is
// no more than the largest, M_d no more than M_h, and what fits pays no
// positive price. Under prices the layers are a chain again and no two of its
// options depend on each other, so that this least is found in O(chunks x
// layers). Weights and prices are improved by means of
// subgradients. docs/search.md, "Chunks".
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_SHAREDHOMES_H
#define GALVATRON_SEARCH_SHAREDHOMES_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace galvatron {

/// Seconds and bytes of a layer.
struct HomesOption {
  double forward = 0, backward = 0; ///< of a micro-batch: f, b
  double sums = 0;                  ///< of gradients, once a step: g
  double end = 0;                   ///< behind them: e
  int64_t state = 0;
  int64_t kept = 0; ///< of a slot
  /// Of a micro-batch in rows of the second kind, which count other work: f',
  /// b'.
  double otherForward = 0, otherBackward = 0;
  /// The part of `backward` that the chunk before waits for: i.
  double input = 0;
};

struct HomesChunk {
  size_t home = 0;
  size_t place = 0; ///< chunks of one place have the same options
  int64_t slots = 1;
};

/// The factors of a row: how often what a chunk, or the cut behind it, takes
/// counts.
struct HomesRow {
  /// The factors by chunk: F, B, S, L.
  std::vector<double> forward, backward, sums, end;
  std::vector<double> out, back; ///< by cut: O, R
  /// It is of the second kind: f' and b' stand in place of f and b.
  bool isOther = false;
  std::vector<double> input; ///< by chunk: I; empty: none counts

  /// Returns true if something takes off from the row: more layers may make it
  /// shorter.
  bool takesOff() const {
    auto isNegative = [](double factor) { return factor < 0; };
    return llvm::any_of(forward, isNegative) ||
           llvm::any_of(backward, isNegative) ||
           llvm::any_of(sums, isNegative) || llvm::any_of(end, isNegative);
  }
  double inputOf(size_t chunk) const {
    return input.empty() ? 0 : input[chunk];
  }
  /// Seconds that a layer of a chunk adds to the row with an option.
  double seconds(size_t chunk, const HomesOption &option) const {
    return forward[chunk] * (isOther ? option.otherForward : option.forward) +
           backward[chunk] *
               (isOther ? option.otherBackward : option.backward) +
           inputOf(chunk) * option.input + sums[chunk] * option.sums +
           end[chunk] * option.end;
  }
};

struct HomesProblem {
  std::vector<std::vector<HomesOption>> optionSets;
  std::vector<std::vector<size_t>> layers; ///< [place][layer]: option set
  std::vector<HomesChunk> chunks;          ///< in the order of the model
  std::vector<int64_t> memory;             ///< E by home, bytes
  std::vector<HomesRow> rows;
  /// [cut][layer before it]: seconds of a message and of its gradient.
  std::vector<std::vector<double>> out, back;
  /// Layers per chunk if they are given, else empty.
  std::vector<int64_t> partition;

  size_t layerCount() const { return layers.empty() ? 0 : layers[0].size(); }
  /// Sizes, indices and signs.
  llvm::Error check() const;
};

struct HomesSolution {
  std::vector<int64_t> partition; ///< layers per chunk
  std::vector<uint32_t> choice;   ///< by layer: index into its option set
  double longest = std::numeric_limits<double>::infinity(); ///< max T_r
  /// The largest part of a home's memory that is needed; at most 1: it fits.
  double fullness = std::numeric_limits<double>::infinity();
};

/// The formulas above, of a partition and choices.
HomesSolution evaluateHomes(const HomesProblem &problem,
                            std::vector<int64_t> partition,
                            std::vector<uint32_t> choice);

/// A branch and bound over where chunks end. A node is a problem whose cuts
/// have windows. Its bound averages plans with different cuts, so the node is
/// divided at the cut that varies most.
class HomesSearch {
public:
  /// Improves the bound of the whole problem, which has passed check() and
  /// outlives the search, in so many rounds from each of two starts, or
  /// until it is above `limit`.
  HomesSearch(const HomesProblem &problem, double limit, unsigned rounds);
  HomesSearch(HomesSearch &&) noexcept;
  HomesSearch &operator=(HomesSearch &&) noexcept;
  ~HomesSearch();

  /// A lower bound of all solutions that fit, seconds. It is never above the
  /// limit that was given: slower solutions are not looked at.
  double least() const;
  /// Different solutions that weights and prices led to: those that fit first,
  /// then those that almost do; the fastest of each first.
  std::vector<HomesSolution> solutions() const;
  /// Divides the node with the least bound. False if that is no less than
  /// `limit`, or no cut of it is open.
  bool branch(double limit);
  /// The rounds so far, of all nodes.
  uint64_t rounds() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace galvatron

#endif // GALVATRON_SEARCH_SHAREDHOMES_H
