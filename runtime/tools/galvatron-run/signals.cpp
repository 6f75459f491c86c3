//===- signals.cpp - Ending a run from outside ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "signals.h"

#include <csignal>
#include <initializer_list>

namespace {

volatile std::sig_atomic_t caught = 0;

void note(int number) { caught = number; }

} // namespace

void catchSignals() {
  struct sigaction action{};
  action.sa_handler = note;
  // The default comes back after the first; calls that it interrupts go on.
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART;
  for (int number : {SIGINT, SIGTERM})
    sigaction(number, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

const char *endRequested() {
  return caught == SIGINT ? "SIGINT" : caught == SIGTERM ? "SIGTERM" : nullptr;
}
