//===- handoffs.h - Memory that transfers and functions share -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A transfer of a stage and functions of its layers meet in the input of the
// first layer in a slot, and in boundary buffers. On a device both sides wait
// for each other by events.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_HANDOFFS_H
#define GRT_CORE_HANDOFFS_H

#include "core/device.h"
#include "core/manifest.h"

#include <vector>

namespace grt {

/// Numbers are those of slots, and behind them boundary buffers. Without a
/// device nothing waits.
class Handoffs {
public:
  /// Events are `pairs` pairs from `firstEvent` on. They are shared if there
  /// are more slots than pairs: a wait is then for more than is needed, never
  /// for what was put on a stream after it.
  void setUp(Device &on, size_t slotCount, size_t buffers, uint32_t firstEvent,
             uint32_t pairs);
  size_t ofBuffer(int buffer) const { return slots + size_t(buffer); }

  /// A function is about to use the memory.
  void beforeFunction(size_t number);
  /// A function is about to use a part of a boundary buffer.
  void beforeBuffer(int buffer, const Extent &part);
  /// All that the task's functions do with it has been put on COMPUTE.
  void afterFunctions();
  /// A transfer is about to use it.
  void beforeTransfer(size_t number, const Extent &extent);
  void afterTransfer(size_t number);

  /// COMPUTE has waited for all transfers.
  void joined();
  /// All streams come behind COMPUTE.
  void forget();

private:
  struct Handoff {
    uint32_t transferEvent = 0, computeEvent = 0;
    bool transferred = false; ///< COMPUTE has not waited for it
    bool computed = false;    ///< TRANSFER has not waited for it
    bool touched = false;     ///< by the running task
    Extent extent;            ///< of the last transfer
  };
  /// Boundary buffers 0 and 1 may be ends of one region.
  static constexpr int endsOfRegion = 2;

  Device *device = nullptr;
  size_t slots = 0;
  std::vector<Handoff> all;
};

} // namespace grt

#endif // GRT_CORE_HANDOFFS_H
