//===- futex.h - Sleeping until a word changes ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks share few cores, so a waiting rank sleeps at once, or where each has a
// core of its own after about the time that being woken takes. Every word that
// ranks wait on has an abort bit: setting it changes the word, so no sleeper
// can miss it, whatever it was waiting for.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_FUTEX_H
#define GRT_COMM_FUTEX_H

#include "base/error.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace grt {

class WaitWord {
public:
  static constexpr uint32_t abortBit = 1u << 31;

  /// The value, or throws Aborted.
  uint32_t load() const {
    uint32_t value = word.load(std::memory_order_acquire);
    if (value & abortBit)
      throw Aborted();
    return value;
  }

  /// Looks for some 20 us whether the value changes.
  void spinWhile(uint32_t value) const {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(20);
    while (load() == value && Clock::now() < end)
      relax();
  }
  /// Sleeps until the value is no longer `value`.
  void waitWhile(uint32_t value) const {
    while (load() == value)
      syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr,
              0);
  }
  /// Sleeps until the value is `value`.
  void waitFor(uint32_t value) const {
    for (uint32_t now = load(); now != value; now = load())
      syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, now, nullptr, nullptr,
              0);
  }

  /// Changes the value and wakes all who wait; throws Aborted if aborted.
  void store(uint32_t value) {
    uint32_t now = word.load(std::memory_order_relaxed);
    do {
      if (now & abortBit)
        throw Aborted();
    } while (!word.compare_exchange_weak(now, value, std::memory_order_release,
                                         std::memory_order_relaxed));
    wake();
  }

  void abort() {
    word.fetch_or(abortBit, std::memory_order_release);
    wake();
  }

private:
  /// Leaves the core's units to its other thread, where it has one.
  static void relax() {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }
  uint32_t *address() const {
    return reinterpret_cast<uint32_t *>(
        const_cast<std::atomic<uint32_t> *>(&word));
  }
  void wake() {
    syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr,
            nullptr, 0);
  }

  std::atomic<uint32_t> word{0};
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
};

} // namespace grt

#endif // GRT_COMM_FUTEX_H
