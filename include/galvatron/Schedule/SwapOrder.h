//===- SwapOrder.h - Events between swaps and what runs ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_SWAPORDER_H
#define GALVATRON_SCHEDULE_SWAPORDER_H

#include "galvatron/Schedule/Verify.h"
#include "galvatron/Support/Units.h"
#include "grt/swap_order.h"

namespace galvatron {

using tasks::checkSwapOrder;
using tasks::kScheduleEvents;

/// Puts swaps on streams as grt/swap_order.h says. Errors: a role would need
/// more events than there are.
inline llvm::Error assignSwapStreams(TaskProgram &program) {
  std::string problem = tasks::assignSwapEvents(program);
  return problem.empty() ? llvm::Error::success() : makeError(problem);
}

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_SWAPORDER_H
