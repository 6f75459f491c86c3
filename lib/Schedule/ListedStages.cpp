//===- ListedStages.cpp - Whole stages, listed for their times ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ListedStages.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

std::shared_ptr<const ListedOrder>
ListedStages::orderOf(const ScheduleShape &shape) const {
  if (shape.passTimes.empty())
    return nullptr;
  auto make =
      [&](ArrayRef<PassTimes> times) -> std::shared_ptr<const ListedOrder> {
    ScheduleShape alike{shape.roles, shape.microBatches};
    TaskProgram program = emptyProgram(*this, alike, {});
    for (int64_t role = 0; role < shape.roles; ++role)
      WholeStageSchedule::buildPasses(program, alike, role);
    int64_t least = steadyLength(program, times);
    std::shared_ptr<const ListedOrder> best;
    auto line = ListedShape::inLine(shape.roles, shape.microBatches,
                                    slots(shape, /*chunk=*/0),
                                    !program.separatesMessages);
    listOrders(line, times, least, [&](ListedSteps steps) {
      auto order = std::make_shared<const ListedOrder>(std::move(steps), line);
      for (int64_t role = 0; role < shape.roles; ++role) {
        program.roles[role].part(SchedulePart::Steady).clear();
        order->build(program, role, SchedulePart::Steady);
      }
      int64_t length = steadyLength(program, times);
      if (length < least) {
        least = length;
        best = std::move(order);
      }
      return least;
    });
    return best;
  };
  return orders.get(shape, make);
}

void ListedStages::buildPasses(TaskProgram &program, const ScheduleShape &shape,
                               int64_t role) const {
  std::shared_ptr<const ListedOrder> order = orderOf(shape);
  if (!order)
    return WholeStageSchedule::buildPasses(program, shape, role);
  order->build(program, role, SchedulePart::Steady);
  buildEvaluate(program, role);
}

TimeForm ListedStages::upper(const ScheduleShape &shape) const {
  std::shared_ptr<const ListedOrder> order = orderOf(shape);
  return order ? order->upper() : upperAlike(shape);
}

void ListedStages::appendEnds(TimeForm &form, const RoleForm &sum,
                              TimeMaximum own, TimeMaximum chain) {
  chain.chained = true;
  chain.first = {
      {RoleTime::WeightPart, 1}, {RoleTime::Tail, 1}, {RoleTime::Norm, 1}};
  chain.between = {{RoleTime::GradientIn, 1}, {RoleTime::InputPart, 1}};
  for (TimeMaximum *end : {&own, &chain}) {
    TimeBound bound;
    bound.sum = sum;
    bound.maxima.push_back({1, std::move(*end)});
    bound.maxima.push_back({1, largestOf({{RoleTime::Update, 1}})});
    form.push_back(std::move(bound));
  }
}

/// The bound does not depend on the order taken, so that it holds of a plan
/// before its passes are listed.
TimeForm ListedStages::lower(const ScheduleShape &shape) const {
  return shape.passTimes.empty() ? lowerAlike(shape) : lowerOfAny(shape);
}

TimeForm ListedStages::lowerOfAny(const ScheduleShape &shape) const {
  auto all = static_cast<double>(shape.microBatches);
  auto beyond = all - static_cast<double>(std::min(slots(shape, /*chunk=*/0),
                                                   shape.microBatches));
  // A role begins with the first micro-batch and is never idle, or it is while
  // that one is away: all it can do then is to run ahead.
  TimeMaximum busy, waits;
  busy.before = {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}};
  busy.at = {{{RoleTime::Forward, all},
              {RoleTime::InputPart, all},
              {RoleTime::ActivationOut, all},
              {RoleTime::GradientOut, all - 1}}};
  waits.after = {{RoleTime::InputPart, 1}, {RoleTime::GradientIn, 1}};
  waits.at = {{{RoleTime::Forward, beyond},
               {RoleTime::InputPart, all - 1},
               {RoleTime::ActivationOut, beyond},
               {RoleTime::GradientOut, all - 1}}};
  TimeForm form;
  auto addEnds = [&](const TimeMaximum &inputs, const RoleForm &sum) {
    // A role ends behind all its weight parts ...
    TimeMaximum own = inputs;
    own.at.front().add(RoleTime::WeightPart, all);
    own.at.front().add(RoleTime::Tail, 1);
    own.at.front().add(RoleTime::Norm, 1);
    // ... and the gradient of the last micro-batch, in front of which a role
    // has run all weight parts but those it has slots for, goes through all
    // before.
    TimeMaximum chain = inputs;
    chain.at.front().add(RoleTime::WeightPart, beyond);
    appendEnds(form, sum, std::move(own), std::move(chain));
  };
  addEnds(busy, {});
  addEnds(waits, {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}});
  return form;
}

} // namespace galvatron
