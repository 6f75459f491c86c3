//===- recording.h - A backend that checks how programs use a device ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model of a device with streams and events, around the kernels of a backend
// without one. A run on it is right on every device that keeps the contract of
// grt/backend.h, or it fails with the names of the operations at fault:
//
// 1. two operations use the same bytes, one of them writes, and no chain of
//    events, collectives, messages and waits of the host puts one before the
//    other;
// 2. an operation touches bytes outside the plan's memory, or, in a training
//    step, not within one buffer that is alive;
// 3. two ranks come to what both take part in, over all their streams, in
//    different orders;
// 4. a stream waits for an event that was never recorded, or what a function or
//    a step put on a stream is not waited for at its end;
// 5. a copy names memory of the host that is not pinned, or the host goes to
//    the device's memory (this one is a fatal signal).
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_RECORDING_RECORDING_H
#define GRT_BACKENDS_RECORDING_RECORDING_H

#include "grt/backend.h"

namespace grt::recording {

/// The table, with the kernels of `base`: one per process.
const grt_backend *backendAround(const grt_backend *base);

/// Which of all orders that streams leave open the next worlds run in.
void setSeed(uint64_t seed);

} // namespace grt::recording

#endif // GRT_BACKENDS_RECORDING_RECORDING_H
