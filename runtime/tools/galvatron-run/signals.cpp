//===- signals.cpp - Ending a run from outside ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "signals.h"

#include <atomic>
#include <csignal>
#include <ctime>
#include <initializer_list>

namespace {

/// A handler may run on any thread; without a lock it may write these.
using Flag = std::atomic<int>;
static_assert(Flag::is_always_lock_free);
Flag caught = 0, checkpointWanted = 0, traceWanted = 0;

/// When `caught` came, in seconds: set before it, so never read unset.
Flag caughtAt = 0;

/// The exit code that timeout(1) ends with, too.
constexpr int timeIsUp = 124;

/// timeout(1) signals its child and then its process group, launchers do much
/// the same: what follows within these seconds is the same request.
constexpr int sameRequestSeconds = 1;

int secondsNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int(now.tv_sec);
}

void noteEnding(int number) {
  if (caught != number) {
    caughtAt = secondsNow();
    caught = number;
    return;
  }
  if (secondsNow() - caughtAt <= sameRequestSeconds)
    return;
  // Raised again with its default, it ends the process as this returns.
  std::signal(number, SIG_DFL);
  std::raise(number);
}

} // namespace

Ending endingOf(uint32_t requests) {
  if (requests & EndBySigint)
    return {"SIGINT", 128 + SIGINT};
  if (requests & EndBySigterm)
    return {"SIGTERM", 128 + SIGTERM};
  if (requests & EndBySighup)
    return {"SIGHUP", 128 + SIGHUP};
  if (requests & EndByPipe)
    return {"SIGPIPE", 128 + SIGPIPE};
  return {"max-seconds", timeIsUp};
}

void catchWishes() {
  struct sigaction action{};
  action.sa_flags = SA_RESTART;
  action.sa_handler = [](int) { checkpointWanted = 1; };
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = [](int) { traceWanted = 1; };
  sigaction(SIGUSR2, &action, nullptr);
}

void makeWritesFail() {
  for (int number : {SIGPIPE, SIGXFSZ})
    std::signal(number, SIG_IGN);
}

void catchSignals() {
  struct sigaction action{}, before{};
  action.sa_handler = noteEnding;
  action.sa_flags = SA_RESTART; // calls that it interrupts go on
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    if (number != SIGHUP || (sigaction(number, nullptr, &before) == 0 &&
                             before.sa_handler != SIG_IGN))
      sigaction(number, &action, nullptr);
}

uint32_t takeRequests() {
  const int ending = caught;
  uint32_t requests = ending == SIGINT    ? EndBySigint
                      : ending == SIGTERM ? EndBySigterm
                      : ending == SIGHUP  ? EndBySighup
                                          : Request(0);
  if (checkpointWanted.exchange(0))
    requests |= CheckpointNow;
  if (traceWanted.exchange(0))
    requests |= TraceNow;
  return requests;
}
