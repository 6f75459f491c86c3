//===- observer.cpp - What others see of a rank ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/observer.h"
#include "base/error.h"
#include "core/program_text.h"

namespace grt {

void Observer::notePlace(const char *what) const {
  if (!memories.device->isChecked())
    return;
  std::string text = "step " + std::to_string(step);
  if (running)
    text += ", layer '" + running->name + "'";
  memories.device->note(GRT_NOTE_PLACE, nullptr, 0,
                        (text + ", " + what).c_str());
}

void Observer::failHere(const std::string &what) const {
  fail("rank " + std::to_string(facts.self) +
       (step ? ", step " + str(step) : "") +
       (running ? ", layer '" + running->name + "'" : "") + ": " + what);
}

void Observer::failCall(const grt_kernel_op &op, const char *message) const {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  failHere(std::string(kernelName(op.kernel)) + " '" + name + "': " + message);
}

void Observer::leaveMark(uint32_t stream, uint64_t operation) {
  Device &device = *memories.device;
  if (!device || capturing || !device->query || !marks.kept)
    return;
  uint32_t event = marks.first + marks.left++ % marks.kept;
  facts.activity.forgetMark(event);
  device.record(stream, event);
  facts.activity.mark(stream, event, operation);
}

void Observer::lookAtMarks() const {
  const grt_device *table = facts.state.backend.device;
  if (!table || !table->query)
    return;
  facts.activity.lookAtMarks([&](uint32_t event) {
    char text[256] = "";
    int32_t done = 0;
    return memories.backendState &&
           table->query(memories.backendState, event, &done, text,
                        sizeof(text)) == 0 &&
           done;
  });
}

} // namespace grt
