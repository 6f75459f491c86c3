//===- Knee.h - A batch that is large enough --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Throughput grows with the batch, ever more slowly, while each step teaches no
// more for it. Of a sweep the fastest batch is seldom the one to train with.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_KNEE_H
#define GALVATRON_PLANNER_KNEE_H

#include "galvatron/Planner/Planner.h"

namespace galvatron {

/// A smaller batch than a plan's with almost its throughput.
struct Knee {
  int64_t batch = 0;
  double samplesPerSecond = 0;
  double percent = 0; ///< of the plan's throughput

  llvm::json::Value toJson() const;
  /// "batch 256 has 95.3% of the throughput of 1584 (--batch=256)".
  std::string str(const Plan &chosen) const;
};

/// The smallest batch found, among halves and powers of two and then between,
/// whose best plan has at least `kKneePercent` of the throughput of the plan
/// that a sweep chose. Nothing if there is none, or if time is up before it is
/// known.
std::optional<Knee> findKnee(LayerModel &model, const Cluster &cluster,
                             const PlannerOptions &options, const Plan &chosen);

/// The least percent of the throughput that a smaller batch must keep.
inline constexpr double kKneePercent = 95;

} // namespace galvatron

#endif // GALVATRON_PLANNER_KNEE_H
