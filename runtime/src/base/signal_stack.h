//===- signal_stack.h - Where a thread handles signals --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_SIGNAL_STACK_H
#define GRT_BASE_SIGNAL_STACK_H

#include <cstddef>

namespace grt {

/// While one lives, handlers with SA_ONSTACK run on memory of its own on this
/// thread, so that one that says why a process ends can do so where the
/// thread's stack has overflown. A thread that has such memory keeps it. Where
/// there is no memory the thread goes without.
class SignalStack {
public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack &) = delete;
  SignalStack &operator=(const SignalStack &) = delete;

private:
  void *memory = nullptr; ///< null: nothing was changed
  size_t bytes = 0;
};

} // namespace grt

#endif // GRT_BASE_SIGNAL_STACK_H
