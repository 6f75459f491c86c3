//===- abi.cpp - The entry points that programs import --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled code knows no exceptions: they are kept in the rank, the function
// returns a status, and the executor throws them again.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

#include <exception>

namespace {

template <typename Body> int32_t keeping(grt_context *context, Body body) {
  try {
    body(*context->rank);
    return 0;
  } catch (...) {
    context->rank->keep(std::current_exception());
    return 1;
  }
}

} // namespace

extern "C" {

int32_t grt_launch(grt_context *context, const grt_kernel_op *op) {
  return keeping(context, [&](grt::Rank &rank) { rank.launch(*op); });
}

int32_t grt_communicate(grt_context *context, const grt_collective_op *op) {
  return keeping(context, [&](grt::Rank &rank) { rank.communicate(*op); });
}

int32_t grt_order(grt_context *context, const grt_event_op *op) {
  return keeping(context, [&](grt::Rank &rank) { rank.order(*op); });
}

int32_t grt_begin(grt_context *context, const grt_buffer *buffer) {
  return keeping(context, [&](grt::Rank &rank) { rank.beginLife(*buffer); });
}

int32_t grt_end(grt_context *context, const grt_buffer *buffer) {
  return keeping(context, [&](grt::Rank &rank) { rank.endLife(*buffer); });
}

} // extern "C"
