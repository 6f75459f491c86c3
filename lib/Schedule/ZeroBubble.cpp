//===- ZeroBubble.cpp - 1F1B with backward passes in two parts ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ZB-H1 of "Zero Bubble Pipeline Parallelism" (Qi et al., ICLR 2024). Only the
// gradient of a stage's input is waited for by others: gradients of parameters
// can be made whenever there is time for it, as long as what they need is kept.
// Forward passes, input parts and messages come in the order of 1F1B. Role s
// runs a weight part behind the input part that is s micro-batches later, and
// those that are left at the end.
//
// Role s of P is min(P - 1 - s, m) forward passes ahead and s weight parts
// behind, so all roles hold min(P, m) micro-batches, as many as the first role
// of 1F1B. Where each of the three parts takes one tick a role stands still for
// P - 1 ticks of a step, under 1F1B for 3 (P - 1).
//
// Messages are those of 1F1B in their order, and weight parts wait for nobody:
// so what is proven of 1F1B holds. In front of a message there are never more
// weight parts than if each came with its input part, so every message is there
// as early as under 1F1B, and a role ends later than there by no more than the
// weight parts behind its last message.
//
// For times that are not alike passes are listed (ListedStages.h).
//
//===----------------------------------------------------------------------===//

#include "ListedStages.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {
namespace {

class ZeroBubble final : public ListedStages {
public:
  StringRef name() const override { return "zb-h1"; }

  int64_t slots(const ScheduleShape &shape, int64_t /*chunk*/) const override {
    return std::min(shape.roles, shape.microBatches);
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return shape.roles;
  }

private:
  TimeForm upperAlike(const ScheduleShape &shape) const override {
    TimeForm form = WholeStageSchedule::upper(shape);
    // The latest of the ends of all roles, weight parts behind the last message
    // too.
    for (auto &[weight, term] : form.front().maxima) {
      if (term.at.front()[RoleTime::Tail] == 0)
        continue;
      term.at.assign(shape.roles, term.at.front());
      for (int64_t role = 1; role < shape.roles; ++role)
        term.at[role].add(
            RoleTime::WeightPart,
            static_cast<double>(std::min(role + 1, shape.microBatches)));
    }
    return form;
  }

  TimeForm lowerAlike(const ScheduleShape &shape) const override;
  void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                   int64_t role) const override {
    buildAlternating(steady, shape, role, /*weightDelay=*/role);
  }

  std::vector<RoleForm> slowest() const override {
    return {{{RoleTime::Forward, 1},
             {RoleTime::Backward, 1},
             {RoleTime::RoundNext, 1},
             {RoleTime::RoundPrevious, 1}}};
  }
};

TimeForm ZeroBubble::lowerAlike(const ScheduleShape &shape) const {
  auto all = static_cast<double>(shape.microBatches);
  TimeForm form;
  // Adds what follows from when roles have run all forward passes and input
  // parts, `sum` of all roles apart.
  auto addEnds = [&](const TimeMaximum &inputs, const RoleForm &sum) {
    // A role ends behind all its weight parts ...
    TimeMaximum own = inputs;
    // ... and the gradient of the last micro-batch, in front of which a role
    // has run all weight parts but those it is behind, goes through all before.
    TimeMaximum chain = inputs;
    for (int64_t role = 0; role < shape.roles; ++role) {
      own.at[role].add(RoleTime::WeightPart, all);
      own.at[role].add(RoleTime::Tail, 1);
      own.at[role].add(RoleTime::Norm, 1);
      int64_t run = std::max<int64_t>(shape.microBatches - 1 - role, 0);
      chain.at[role].add(RoleTime::WeightPart, static_cast<double>(run));
    }
    appendEnds(form, sum, std::move(own), std::move(chain));
  };
  // A role begins with the first micro-batch and is never idle, or it is while
  // that one is away: all it can do then is to run ahead.
  TimeMaximum busy, waits;
  busy.before = {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}};
  waits.after = {{RoleTime::InputPart, 1}, {RoleTime::GradientIn, 1}};
  for (int64_t role = 0; role < shape.roles; ++role) {
    busy.at.push_back({{RoleTime::Forward, all},
                       {RoleTime::InputPart, all},
                       {RoleTime::RoundNext, all},
                       {RoleTime::RoundPrevious, all - 1}});
    double later =
        all - static_cast<double>(
                  std::min(forwardsAhead(shape, role) + 1, shape.microBatches));
    waits.at.push_back({{RoleTime::Forward, later},
                        {RoleTime::InputPart, all - 1},
                        {RoleTime::RoundNext, later},
                        {RoleTime::RoundPrevious, later}});
  }
  addEnds(busy, {});
  addEnds(waits, {{RoleTime::Forward, 1}, {RoleTime::ActivationOut, 1}});
  return form;
}

} // namespace

std::unique_ptr<Schedule> makeZeroBubble() {
  return std::make_unique<ZeroBubble>();
}

} // namespace galvatron
