//===- LayerPacking.h - Layers into packs that fit --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts a sequence of layers into packs, each of which runs on one device with
// nothing of the others there (Harmony, arXiv 2202.01306, Algorithm 2 and the
// variants of its public code). The heuristics below are the published ones;
// which packs are best is NP-hard already for two devices.
//
// Memory of a pack: the sum over its layers of what they need besides their
// input, and the input of its first layer.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BASELINES_LAYERPACKING_H
#define GALVATRON_BASELINES_LAYERPACKING_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

/// First layers, ascending, the first of them 0.
using LayerPacks = std::vector<int64_t>;

/// The problem of cutting a row of layers into packs. No number is negative.
struct PackingProblem {
  std::vector<int64_t> time;   ///< by layer, any unit
  std::vector<int64_t> memory; ///< by layer, besides its input; bytes
  std::vector<int64_t> input;  ///< by layer; bytes
  int64_t capacity = 0;        ///< bytes

  size_t layers() const { return time.size(); }
  /// Bytes of the pack of the layers from `begin` to before `end`.
  int64_t packMemory(int64_t begin, int64_t end) const;
};

enum class PackingMethod : uint8_t {
  BalancedTime,   ///< Algorithm 2: the fewest packs of about equal time
  BalancedMemory, ///< the same with equal memory
  GreedyForward,  ///< packs filled from the first layer on
  GreedyBackward, ///< packs filled from the last layer on
  SingleLayers,   ///< every layer a pack
  Reuse           ///< packs given from outside, if they fit
};

/// "balanced-time", "balanced-memory", "greedy", "greedy-reverse",
/// "single-layers", "reuse".
llvm::StringRef packingName(PackingMethod method);
std::optional<PackingMethod> parsePacking(llvm::StringRef name);
std::vector<std::string> packingNames();

/// The packs of `method`, which must not be Reuse; nothing if it finds none
/// that fit.
std::optional<LayerPacks> packLayers(const PackingProblem &problem,
                                     PackingMethod method);

/// Whether every pack needs less than the capacity, the condition under which
/// forward may use the packs of backward.
bool packsFitBelow(const PackingProblem &problem,
                   llvm::ArrayRef<int64_t> packs);

} // namespace galvatron

#endif // GALVATRON_BASELINES_LAYERPACKING_H
