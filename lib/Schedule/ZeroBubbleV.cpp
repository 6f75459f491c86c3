//===- ZeroBubbleV.cpp - Backward passes in two parts, chunks in a V ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ZB-V of "Zero Bubble Pipeline Parallelism" (Qi et al., ICLR 2024). Role r of
// P has chunks r and 2 P - 1 - r, so a micro-batch goes down the roles and up
// again, and the role that begins has the loss. Its gradient begins to come
// back where it is needed first, so that with half of the forward passes that
// ZB-H2 runs ahead, no more than 1F1B's, no role stands still between its first
// pass and its last where all passes take the same time.
//
// Passes are listed for the times they take (ListedPasses.h). Neighbours on one
// role are those at the bottom of the V: both ends of their messages are in one
// task of that role.
//
//===----------------------------------------------------------------------===//

#include "ListedOrder.h"
#include "Synchronous.h"

#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {
namespace {

class ZeroBubbleV final : public SynchronousSchedule {
public:
  StringRef name() const override { return "zb-v"; }
  bool splitsBackward() const override { return true; }
  bool listsByTimes() const override { return true; }

  Error check(const ScheduleShape &shape) const override {
    if (shape.chunks != 2)
      return makeError("schedule 'zb-v' has 2 chunks a stage, found " +
                       Twine(shape.chunks));
    if (shape.roles < 2)
      return makeError("schedule 'zb-v' needs at least 2 stages, found " +
                       Twine(shape.roles));
    return Schedule::check(shape);
  }

  int64_t home(const ScheduleShape &shape, int64_t chunk) const override {
    return vOf(shape).home(chunk);
  }
  int64_t slots(const ScheduleShape &shape, int64_t chunk) const override {
    return vOf(shape).slots(chunk);
  }
  /// The last chunk takes a single slot from this many micro-batches on, and
  /// more of them change no slots.
  std::optional<int64_t>
  slotsBoundedIn(const ScheduleShape &shape) const override {
    return 2 * shape.roles;
  }

  TimeForm upper(const ScheduleShape &shape) const override {
    return stepsOf(shape)->upper();
  }
  TimeForm lower(const ScheduleShape &shape) const override {
    return lowerOfChunks(shape, /*splitsBackward=*/true);
  }

private:
  static ListedShape vOf(const ScheduleShape &shape) {
    return ListedShape::inV(shape.roles, shape.microBatches);
  }
  std::shared_ptr<const ListedOrder> stepsOf(const ScheduleShape &shape) const;
  std::shared_ptr<const ListedOrder>
  forwardsOf(const ScheduleShape &shape) const;

  void buildPasses(TaskProgram &program, const ScheduleShape &shape,
                   int64_t role) const override;

  mutable ListedOrders listed, forwards;
};

std::shared_ptr<const ListedOrder>
ZeroBubbleV::stepsOf(const ScheduleShape &shape) const {
  return listed.get(shape, [&](ArrayRef<PassTimes> times) {
    ListedShape v = vOf(shape);
    return std::make_shared<const ListedOrder>(listPasses(v, times), v);
  });
}

std::shared_ptr<const ListedOrder>
ZeroBubbleV::forwardsOf(const ScheduleShape &shape) const {
  ScheduleShape alike = shape;
  alike.passTimes.clear();
  return forwards.get(alike, [&](ArrayRef<PassTimes>) {
    ListedShape v = vOf(shape);
    return std::make_shared<const ListedOrder>(listForwards(v), v);
  });
}

void ZeroBubbleV::buildPasses(TaskProgram &program, const ScheduleShape &shape,
                              int64_t role) const {
  stepsOf(shape)->build(program, role, SchedulePart::Steady);
  forwardsOf(shape)->build(program, role, SchedulePart::Evaluate);
}

} // namespace

std::unique_ptr<Schedule> makeZeroBubbleV() {
  return std::make_unique<ZeroBubbleV>();
}

} // namespace galvatron
