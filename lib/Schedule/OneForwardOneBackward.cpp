//===- OneForwardOneBackward.cpp - 1F1B with flush ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Synchronous.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

int64_t forwardsAhead(const ScheduleShape &shape, int64_t role) {
  return std::min(shape.roles - 1 - role, shape.microBatches);
}

void buildAlternating(PartWriter &steady, const ScheduleShape &shape,
                      int64_t role, std::optional<int64_t> weightDelay) {
  int64_t microBatches = shape.microBatches;
  int64_t warmup = forwardsAhead(shape, role);
  auto backward = [&](int64_t mb) {
    if (weightDelay)
      steady.backwardInput(mb);
    else
      steady.backward(mb);
  };
  auto weightBehind = [&](int64_t mb) {
    if (weightDelay && mb >= *weightDelay)
      steady.backwardWeight(mb - *weightDelay);
  };
  for (int64_t mb = 0; mb < warmup; ++mb) {
    steady.recvActivation(mb);
    steady.forward(mb);
    steady.sendActivation(mb);
  }
  // Steady state: opposite transfers with one neighbour are one grouped
  // operation, or each side would wait for the other's receive.
  if (warmup < microBatches)
    steady.recvActivation(warmup);
  for (int64_t mb = warmup; mb < microBatches; ++mb) {
    int64_t done = mb - warmup;
    steady.forward(mb);
    steady.sendActivationRecvGradient(mb, done);
    backward(done);
    if (mb + 1 < microBatches) {
      // The neighbour is not there before its forward pass has ended.
      weightBehind(done);
      steady.sendGradientRecvActivation(done, mb + 1);
    } else {
      steady.sendGradient(done);
      weightBehind(done);
    }
  }
  for (int64_t mb = microBatches - warmup; mb < microBatches; ++mb) {
    steady.recvGradient(mb);
    backward(mb);
    // Now somebody waits for it.
    steady.sendGradient(mb);
    weightBehind(mb);
  }
  if (weightDelay)
    for (int64_t mb = std::max<int64_t>(microBatches - *weightDelay, 0);
         mb < microBatches; ++mb)
      steady.backwardWeight(mb);
}

namespace {

/// One forward, one backward (arXiv 1806.03377, with a flush at the end of a
/// step): a role runs as many forwards ahead as roles come behind it.
class OneForwardOneBackward final : public WholeStageSchedule {
public:
  StringRef name() const override { return "1f1b"; }

  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return std::min(shape.roles - chunk, shape.microBatches);
  }
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return shape.roles;
  }

private:
  void buildSteady(PartWriter &steady, const ScheduleShape &shape,
                   int64_t role) const override {
    buildAlternating(steady, shape, role, /*weightDelay=*/std::nullopt);
  }

  std::vector<RoleForm> slowest() const override {
    return {{{RoleTime::Forward, 1},
             {RoleTime::Backward, 1},
             {RoleTime::RoundNext, 1},
             {RoleTime::RoundPrevious, 1}}};
  }
};

} // namespace

std::unique_ptr<Schedule> makeOneForwardOneBackward() {
  return std::make_unique<OneForwardOneBackward>();
}

} // namespace galvatron
