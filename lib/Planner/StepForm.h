//===- StepForm.h - The formulas of a step that are searched ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Eq. 9 describes steps that drain, of whole backward passes. Schedules with
// steps of another kind have formulas of their own; docs/search.md, "Formulas
// of other schedules", says where they come from. With N a stage's time for a
// micro-batch, F its part that is forward, E what follows the last one (sums of
// gradients and the update), of P stages and m micro-batches:
//
// - Drain, Eq. 9 and the executed objective: (m - 1) max N + sum (N + E / P).
// - Filled, where weight parts fill what waits:
//   m max N + sum ((P - 1) / P F + E / P).
// - Steady, where no stage waits for another: max (m N + E).
// - Lockstep, where neighbours go in lockstep: sum (m N + E / P).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_STEPFORM_H
#define GALVATRON_LIB_PLANNER_STEPFORM_H

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Units.h"

#include <algorithm>

namespace galvatron::planner {

enum class StepForm : uint8_t { Drain, Filled, Steady, Lockstep };

/// The form of steps of whole stages.
inline StepForm stepFormOf(const Schedule &schedule, int64_t stages,
                           int64_t microBatches, Objective objective) {
  if (objective == Objective::Paper)
    return StepForm::Drain;
  if (schedule.delay({}) > 0)
    return microBatches + 1 < stages ? StepForm::Lockstep : StepForm::Steady;
  if (schedule.splitsBackward() && stages > 1)
    return StepForm::Filled;
  return StepForm::Drain;
}

/// True if messages of every micro-batch are summed, of both ends of each.
inline bool countsAllMessages(StepForm form) {
  return form == StepForm::Steady || form == StepForm::Lockstep;
}

/// The number of messages, by cut between neighbouring stages, that meet at a
/// node's uplink if those of all cuts go at once, as they do where stages keep
/// the same pace; 1 inside a node, and where links are given one by one.
std::vector<int64_t>
messagesAtUplinks(const Cluster &cluster,
                  llvm::ArrayRef<std::vector<int64_t>> stages);

/// One layer's times, rounded.
struct FormTimes {
  Picoseconds nosync = 0, forward = 0;
  /// E / P as Eq. 9 counts it, the layer's part of what a step costs besides
  /// its micro-batches. Under the executed objective stages sum gradients side
  /// by side, as they update: all that has to be done counts with the mean over
  /// the stages.
  Picoseconds ends = 0;
  /// E: norms are of steps that all stages end together, so they are not among
  /// it.
  Picoseconds wholeEnd = 0;

  static FormTimes of(const LayerTime &time, const LayerTimeParts &parts,
                      int64_t stages, Objective objective);

  /// The time that the layer adds to the sum over the layers, or to its stage's
  /// time.
  Picoseconds summed(StepForm form, int64_t stages,
                     int64_t microBatches) const {
    switch (form) {
    case StepForm::Drain:
      return nosync + ends;
    case StepForm::Filled:
      return forward / stages * (stages - 1) + ends;
    case StepForm::Steady:
      return ofAll(microBatches) + wholeEnd;
    case StepForm::Lockstep:
      return ofAll(microBatches) + wholeEnd / stages;
    }
    return kNoBound;
  }

private:
  Picoseconds ofAll(int64_t microBatches) const {
    return static_cast<Picoseconds>(std::min<__int128>(
        static_cast<__int128>(microBatches) * nosync, kNoBound / 2));
  }
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_STEPFORM_H
