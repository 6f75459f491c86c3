//===- ListedOrder.h - Tasks of steps that are listed -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The use that a schedule makes of listed passes and messages (ListedPasses.h):
// tasks of its roles, and bounds of the time of a step.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SCHEDULE_LISTEDORDER_H
#define GALVATRON_LIB_SCHEDULE_LISTEDORDER_H

#include "ListedPasses.h"

#include "galvatron/Schedule/Schedule.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace galvatron {

/// Steps in order, and those that concern a role.
class ListedOrder {
public:
  ListedOrder(ListedSteps all, const ListedShape &shape);

  /// Appends the tasks of a role to one of its parts.
  void build(TaskProgram &program, int64_t role, SchedulePart part) const;
  /// The upper form of the time of a step.
  TimeForm upper() const;

private:
  ListedShape shape;
  ListedSteps steps;
  std::vector<std::vector<uint32_t>> ofRole;
};

/// Orders that were made, as every role asks for the one of its shape, and so
/// do the forms of its time.
class ListedOrders {
public:
  /// `make` is given the times of the shape's chunks. It may make none.
  template <typename Make>
  std::shared_ptr<const ListedOrder> get(const ScheduleShape &shape,
                                         Make make) {
    std::vector<PassTimes> times = shape.passTimes;
    times.resize(shape.allChunks());
    std::lock_guard<std::mutex> lock(mutex);
    Key key{shape.roles, shape.microBatches, times};
    auto known = orders.find(key);
    if (known != orders.end())
      return known->second;
    if (orders.size() == kMost)
      orders.clear();
    return orders[key] = make(llvm::ArrayRef<PassTimes>(times));
  }

private:
  static constexpr size_t kMost = 64;
  using Key = std::tuple<int64_t, int64_t, std::vector<PassTimes>>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const ListedOrder>> orders;
};

/// Time until all roles of a program, of one chunk each, have run their passes,
/// which they must be able to. Messages of one task go at once, but those that
/// a role sends one after the other, and those that it receives. `times` by
/// chunk.
int64_t steadyLength(const TaskProgram &program,
                     llvm::ArrayRef<PassTimes> times);

} // namespace galvatron

#endif // GALVATRON_LIB_SCHEDULE_LISTEDORDER_H
