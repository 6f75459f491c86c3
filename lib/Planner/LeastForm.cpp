//===- LeastForm.cpp - Forms of lower bounds of a step --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LeastTimes.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::planner {

bool LeastForm::countsBusy(const Shape &shape) {
  // A stage that is alone waits for nobody, whether its passes are split or
  // not.
  return shape.schedule->delay({}) > 0 ||
         (shape.schedule->splitsBackward() && shape.degree() > 1);
}

bool LeastForm::knows(const Schedule &schedule) {
  return schedule.name() == "1f1b" || hasPhases(schedule) ||
         schedule.delay({}) > 0 || schedule.splitsBackward();
}

bool LeastForm::hasWeights(const Shape &shape) {
  return shape.degree() > 1 && !countsBusy(shape);
}

bool LeastForm::hasWaits(const Shape &shape) {
  return hasWeights(shape) && shape.schedule->name() == "1f1b" &&
         shape.microBatches > shape.degree();
}

LeastForm LeastForm::first(CostTables &tables, const Shape &shape) {
  // A backward pass is little if there are many micro-batches.
  constexpr int64_t many = 4;
  LeastTimes least(tables, shape);
  LeastForm form;
  form.hidesSums =
      least.sumsLongerThan(0) &&
      llvm::any_of(shape.layout->backend,
                   [](const BackendTraits &b) { return b.streams; });
  if (least.sumsLongerThan(1))
    form.behindBackward =
        shape.degree() > 1 || shape.microBatches >= many ? 1 : 0.5;
  // Groups that are not alike are not told by what alike ones wait.
  form.waits = hasWaits(shape) && shape.layout->hasEqualGroups() ? 1 : 0;
  // The ends of several stages come late if sums take long.
  constexpr size_t some = 4;
  constexpr double someAbove = 6.5;
  if (hasWeights(shape)) {
    if (least.sumsLongerThan(someAbove))
      form.ends = std::min<size_t>(shape.degree(), some);
    form.updatesAtEnds = form.ends > 1 ? 0.5 : 0;
  }
  form.setWeights(shape);
  return form;
}

void LeastForm::setWeights(const Shape &shape) {
  size_t stages = shape.degree();
  weights.assign(stages, 0);
  double sum = static_cast<double>(ends * (ends + 1)) / 2;
  for (size_t s = 0; s < ends; ++s)
    weights[s] = static_cast<double>(ends - s) / sum;
  updates.clear();
  for (double weight : weights)
    updates.push_back(updatesAtEnds * weight +
                      (1 - updatesAtEnds) / static_cast<double>(stages));
}

bool LeastForm::apply(Change change, const Shape &shape) {
  size_t stages = shape.degree();
  switch (change) {
  case MoreEnds:
    if (ends == stages || !hasWeights(shape))
      return false;
    ends = std::min(2 * ends, stages);
    break;
  case FewerEnds:
    if (ends == 1)
      return false;
    ends = (ends + 1) / 2;
    break;
  case UpdatesAtEnds:
    if (updatesAtEnds == 1 || !hasWeights(shape))
      return false;
    updatesAtEnds += 0.5;
    break;
  case LessWaiting:
    if (waits == 0)
      return false;
    waits -= 0.5;
    break;
  case MoreBehind:
    if (behindBackward == 1 || !hidesSums)
      return false;
    behindBackward += 0.5;
    break;
  case LessBehind:
    if (behindBackward == 0 || !hidesSums)
      return false;
    behindBackward -= 0.5;
    break;
  case MoreWaiting:
    if (waits == 1 || !hasWaits(shape))
      return false;
    waits += 0.5;
    break;
  }
  setWeights(shape);
  return true;
}

} // namespace galvatron::planner
