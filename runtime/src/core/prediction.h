//===- prediction.h - The step as the cost model expects it ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler leaves the cost model's durations in the manifest, one set per
// layer and boundary. Here they are laid out along the tasks of all roles: a
// role runs its tasks in order, a message starts when both ends have come, the
// communication of a layer's backward overlaps its computation. It is the
// compiler's simulator (docs/simulator.md) with roles alone, for pictures
// beside what was measured.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PREDICTION_H
#define GRT_CORE_PREDICTION_H

#include "grt/abi.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace grt {

/// Names of what the functions of a layer exchange: "cp shift".
struct ExchangeNames {
  std::string forward = "tp all-reduce", backward = "tp all-reduce";
};

/// Microseconds of one layer for one micro-batch, each as if alone.
struct LayerTimes {
  double gather = 0, forward = 0, tpForward = 0;
  ExchangeNames exchanges; ///< `tpForward` and `tpBackward`
  double recompute = 0, backward = 0, tpBackward = 0;
  /// Of the latter two the weight part, which has the scatter too; only of a
  /// layer whose backward function is split.
  bool split = false;
  double weight = 0, tpWeight = 0;
  double scatter = 0, sync = 0;
  double norm = 0, update = 0; ///< once a step
  double reshardForward = 0, reshardBackward = 0;
  /// Between host and device, where the home of states is the host; `swapKept`
  /// is of a micro-batch.
  double swapParameters = 0, swapGradients = 0, swapOptimizer = 0;
  double swapKept = 0;
};

struct PredictedTimes {
  struct Chunk {
    int number = 0;
    size_t firstLayer = 0, layerCount = 0;
  };
  struct Role {
    double slowdown = 1; ///< of both sides while they overlap
    std::vector<LayerTimes> layers;
    std::vector<Chunk> chunks;
  };
  struct Cut {
    double activation = 0, gradient = 0;
  };
  struct Tie {
    int owner = 0, borrower = 0; ///< roles
    double reduce = 0, broadcast = 0;
    bool forwardOnly = false; ///< the borrower has no gradient
  };
  std::vector<Role> roles;
  std::vector<Cut> cuts; ///< between neighbouring chunks
  /// Of packs, by chunk: what a pack that recomputes is sent.
  std::vector<double> stashes;
  std::vector<Tie> ties;
};

enum class PredictedRow : uint8_t { Task, Compute, Communication };

/// Microseconds from the beginning of the step.
struct PredictedSpan {
  double begin = 0, end = 0;
  PredictedRow row = PredictedRow::Task;
  std::string what; ///< "forward", "gather", ...; unused for tasks
  grt_task task = {};
  int32_t layer = -1;
};

struct PredictedStep {
  double length = 0;
  std::vector<std::vector<PredictedSpan>> roles;
};

/// `schedules` has one entry per role. Tasks that wait for each other in a
/// circle end the layout; a program that was compiled has none.
PredictedStep layOut(const PredictedTimes &times,
                     std::span<const grt_schedule> schedules);

} // namespace grt

#endif // GRT_CORE_PREDICTION_H
