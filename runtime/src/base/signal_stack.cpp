//===- signal_stack.cpp - Where a thread handles signals ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/signal_stack.h"

#include <algorithm>
#include <csignal>
#include <sys/mman.h>
#include <unistd.h>

namespace grt {

SignalStack::SignalStack() {
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE))
    return;
  // The kernel's part of a frame grows with the vector registers.
  bytes = 32 << 10;
#ifdef _SC_MINSIGSTKSZ
  bytes += size_t(std::max(0L, sysconf(_SC_MINSIGSTKSZ)));
#endif
  // Not from the heap: what a rank takes there is counted.
  void *taken = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (taken == MAP_FAILED)
    return;
  stack_t own{};
  own.ss_sp = taken;
  own.ss_size = bytes;
  if (sigaltstack(&own, nullptr) == 0)
    memory = taken;
  else
    munmap(taken, bytes);
}

SignalStack::~SignalStack() {
  if (!memory)
    return;
  stack_t now{};
  // Whoever has set another since then keeps it.
  if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  munmap(memory, bytes);
}

} // namespace grt
