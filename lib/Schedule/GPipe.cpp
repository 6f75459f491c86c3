//===- GPipe.cpp - All forwards, then all backwards -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

using namespace llvm;

namespace galvatron {
namespace {

/// GPipe (arXiv 1811.06965): micro-batches ascend in both directions.
class GPipe final : public WholeStageSchedule {
public:
  StringRef name() const override { return "gpipe"; }

  int64_t slots(const ScheduleShape &shape, int64_t /*chunk*/) const override {
    return shape.microBatches;
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape & /*shape*/) const override {
    return std::nullopt;
  }

private:
  void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                   int64_t /*role*/) const override {
    for (int64_t mb = 0; mb < shape.microBatches; ++mb) {
      steady.recvActivation(mb);
      steady.forward(mb);
      steady.sendActivation(mb);
    }
    for (int64_t mb = 0; mb < shape.microBatches; ++mb) {
      steady.recvGradient(mb);
      steady.backward(mb);
      steady.sendGradient(mb);
    }
  }

  std::vector<RoleForm> slowest() const override {
    return {{{RoleTime::Forward, 1},
             {RoleTime::ActivationOut, 1},
             {RoleTime::ActivationIn, 1}},
            {{RoleTime::Backward, 1},
             {RoleTime::GradientIn, 1},
             {RoleTime::GradientOut, 1}}};
  }

  /// Its forwards up to the last role, and its backwards from there.
  std::vector<TimeBound> moreEnds(const ScheduleShape &shape) const override {
    TimeBound phases;
    phases.sum = {{RoleTime::Forward, 1},
                  {RoleTime::Backward, 1},
                  {RoleTime::ActivationOut, 1},
                  {RoleTime::GradientIn, 1}};
    auto others = static_cast<double>(shape.microBatches - 1);
    for (RoleTime phase : {RoleTime::Forward, RoleTime::Backward}) {
      TimeMaximum slowest;
      slowest.at = {{{phase, 1}}};
      phases.maxima.push_back({others, slowest});
    }
    return {phases};
  }
};

} // namespace

std::unique_ptr<Schedule> makeAllForwardsFirst() {
  return std::make_unique<GPipe>();
}

} // namespace galvatron
