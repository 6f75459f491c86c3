//===- handoffs.cpp - Memory that transfers and functions share -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/handoffs.h"

#include "core/layout.h"

#include <utility>

namespace grt {

void Handoffs::setUp(Device &on, size_t slotCount, size_t buffers,
                     uint32_t firstEvent, uint32_t pairs) {
  device = &on;
  slots = slotCount;
  all.resize(slotCount + buffers);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].transferEvent = firstEvent + 2 * uint32_t(i % pairs);
    all[i].computeEvent = all[i].transferEvent + 1;
  }
}

void Handoffs::beforeFunction(size_t number) {
  if (!device)
    return;
  Handoff &handoff = all[number];
  handoff.touched = true;
  if (std::exchange(handoff.transferred, false))
    device->wait(GRT_STREAM_COMPUTE, handoff.transferEvent);
}

void Handoffs::beforeBuffer(int buffer, const Extent &part) {
  if (!device)
    return;
  // What is still sent from the other end of the region may reach as far.
  if (buffer < endsOfRegion) {
    Handoff &other = all[ofBuffer(1 - buffer)];
    if (overlap(part, other.extent) && std::exchange(other.transferred, false))
      device->wait(GRT_STREAM_COMPUTE, other.transferEvent);
  }
  beforeFunction(ofBuffer(buffer));
}

void Handoffs::afterFunctions() {
  for (Handoff &handoff : all)
    if (std::exchange(handoff.touched, false)) {
      device->record(GRT_STREAM_COMPUTE, handoff.computeEvent);
      handoff.computed = true;
    }
}

void Handoffs::beforeTransfer(size_t number, const Extent &extent) {
  if (!device)
    return;
  // Functions may have used what a boundary buffer covers from its other end.
  size_t first = number, last = number;
  if (number >= ofBuffer(0) && number < ofBuffer(endsOfRegion)) {
    first = ofBuffer(0);
    last = ofBuffer(endsOfRegion - 1);
  }
  for (size_t i = first; i <= last; ++i)
    if (std::exchange(all[i].computed, false))
      device->wait(GRT_STREAM_TRANSFER, all[i].computeEvent);
  all[number].extent = extent;
}

void Handoffs::afterTransfer(size_t number) {
  if (!device)
    return;
  device->record(GRT_STREAM_TRANSFER, all[number].transferEvent);
  all[number].transferred = true;
}

void Handoffs::joined() {
  for (Handoff &handoff : all)
    handoff.transferred = false;
}

void Handoffs::forget() {
  for (Handoff &handoff : all)
    handoff.computed = handoff.transferred = false;
}

} // namespace grt
