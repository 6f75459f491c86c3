//===- layers.h - Measures the layers of a model ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Harmony's planner reads of a model (docs/harmony.md): of every layer, by
// micro-batch size, the times and the memory of its forward and of its backward
// pass. Programs of one rank are compiled with a batch of that size in one
// micro-batch; they say what their layers need, and are run for the times.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_LAYERS_H
#define GALVATRON_PROFILE_LAYERS_H

#include "options.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace grt::profile {

/// Bytes of one layer at one micro-batch size.
struct LayerNeed {
  std::string name;
  int64_t weights = 0, optimizer = 0;
  /// Bytes that come to the layer for a micro-batch: all tensors alive in front
  /// of it, or for the first layer the data that it reads.
  int64_t input = 0;
  /// Bytes that the layer running alone takes of a device. Forward has
  /// parameters, boundaries, data, and all that it keeps and needs in between;
  /// backward recomputes, so it has that too, and gradients of parameters and
  /// boundaries.
  int64_t forward = 0, backward = 0;

  int64_t peak(bool isBackward) const {
    return isBackward ? backward : forward;
  }
};

/// Returns the needs of the layers, by layer, of a program of one rank in one
/// micro-batch, without recomputation.
std::vector<LayerNeed> needsOf(const Program &program);

/// Tries micro-batch sizes as Harmony does: doubling from 1 until one does not
/// fit, then half the last one on top, a quarter, and so on, keeping what fits.
/// Returns those that fit, ascending, of which the last is the largest one that
/// fits, at most `largest`; none if 1 does not. `fits` must not fit again
/// behind a size that does not.
std::vector<int64_t> sizesThatFit(int64_t largest,
                                  const std::function<bool(int64_t)> &fits);

/// All that was measured at one micro-batch size.
struct SizeMeasurement {
  std::vector<LayerNeed> needs;
  std::vector<LayerSeconds> seconds;
};

struct LayerProfile {
  std::string model, note;
  std::map<int64_t, SizeMeasurement> measured; ///< by micro-batch size
  std::array<std::vector<int64_t>, 2> sizes;   ///< of forward and of backward
  double othersBusy = 0; ///< cores, before anything was measured
};

/// The file that galvatron-solve reads.
std::string toHarmonyJson(const LayerProfile &profile);

/// The status that a measurement ended with, and what it had come to until
/// then.
struct LayersEnd {
  bool interrupted = false;
  LayerProfile profile;
};

/// Measures `options.layers`. Once `ended` says so the measurement ends where
/// it is. Throws Error: a model that galvatron-compile refuses (its whole
/// message, its exit code), a layer that does not fit `options.memory` at size
/// 1, and a model that does not fit this machine.
LayersEnd measureLayers(const Options &options,
                        const std::function<bool()> &ended);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_LAYERS_H
