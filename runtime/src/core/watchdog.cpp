//===- watchdog.cpp - Noticing ranks that are stuck -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/watchdog.h"
#include "base/signal_stack.h"
#include "grt/session.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <sys/resource.h>
#include <unistd.h>

namespace grt {
namespace {

/// Ranks that a message describes; more would hide the first ones.
constexpr size_t mostDescribed = 8;

std::string secondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

} // namespace

Watchdog::Watchdog(std::span<const std::unique_ptr<Activity>> ranks,
                   double seconds)
    : ranks(ranks), seconds(seconds), seen(ranks.size()) {
  restart(Clock::now());
}

void Watchdog::restart(Clock::time_point now) {
  for (size_t i = 0; i < ranks.size(); ++i)
    seen[i] = {ranks[i]->progress.load(std::memory_order_relaxed), now};
}

std::chrono::milliseconds Watchdog::interval() const {
  return std::chrono::milliseconds(
      std::clamp(int64_t(seconds * 1e3 / 8), int64_t(1), int64_t(250)));
}

std::string Watchdog::waiters(int culprit) const {
  std::string text;
  size_t described = 0;
  for (const std::unique_ptr<Activity> &rank : ranks)
    if (rank->busy && rank->isWaiting() && rank->waitsFor(culprit) &&
        described++ < mostDescribed)
      text += "; rank " + std::to_string(rank->rank) +
              " waits for it: " + rank->describe();
  return text;
}

std::optional<std::string> Watchdog::look(Clock::time_point now) {
  const Activity *stuck = nullptr;
  std::string waiting;
  size_t busy = 0, described = 0;
  bool allWait = true;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Activity &rank = *ranks[i];
    uint64_t progress = rank.progress.load(std::memory_order_relaxed);
    if (progress != seen[i].progress)
      seen[i] = {progress, now};
    if (!rank.busy)
      continue;
    ++busy;
    bool late =
        std::chrono::duration<double>(now - seen[i].since).count() >= seconds;
    if (late && !rank.isWaiting() && !stuck)
      stuck = &rank;
    allWait &= late && rank.isWaiting();
    if (described++ < mostDescribed)
      waiting += "; rank " + std::to_string(rank.rank) + ": " + rank.describe();
  }
  std::string time = " for " + secondsText(seconds);
  if (stuck)
    return "rank " + std::to_string(stuck->rank) + " makes no progress" + time +
           ": " + stuck->describe() + waiters(stuck->rank);
  if (busy && allWait)
    return "no rank makes progress" + time + waiting;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Fatal signals (not under sanitizers, which report more)
//===----------------------------------------------------------------------===//

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

char messagePrefix[64];
bool dumpsCore = false;

const char *signalName(int number) {
  switch (number) {
  case SIGSEGV:
    return "SIGSEGV (invalid memory access)";
  case SIGBUS:
    return "SIGBUS (memory or a mapped file is gone)";
  case SIGFPE:
    return "SIGFPE (arithmetic error)";
  case SIGILL:
    return "SIGILL (the CPU lacks an instruction)";
  default:
    return "SIGABRT (aborted)";
  }
}

void die(int number) {
  // Only calls that are allowed in a handler.
  auto say = [](const char *text) {
    [[maybe_unused]] ssize_t wrote = write(2, text, std::strlen(text));
  };
  say(messagePrefix);
  if (const Activity *activity = currentActivity) {
    char text[512], digits[16];
    int value = activity->rank, at = int(sizeof(digits)) - 1;
    digits[at] = 0;
    do
      digits[--at] = char('0' + value % 10);
    while (value /= 10);
    activity->describeInto(text, sizeof(text));
    say("rank ");
    say(digits + at);
    say(", ");
    say(text);
    say(": ");
  }
  say("ended by ");
  say(signalName(number));
  say("\n");
  // The handler was reset when it was called.
  if (dumpsCore)
    raise(number);
  else
    _exit(ExitFailed);
}

} // namespace

void reportFatalSignals(const char *prefix, bool coreDumps) {
  dumpsCore = coreDumps;
  struct rlimit cores{};
  if (coreDumps && getrlimit(RLIMIT_CORE, &cores) == 0) {
    cores.rlim_cur = cores.rlim_max;
    setrlimit(RLIMIT_CORE, &cores);
  }
  std::strncpy(messagePrefix, prefix, sizeof(messagePrefix) - 1);
  struct sigaction action{};
  action.sa_handler = die;
  // A fault inside the handler ends the process the plain way.
  action.sa_flags = int(SA_RESETHAND | SA_ONSTACK);
  // Of the calling thread; the others that the library starts have theirs.
  static thread_local SignalStack stack;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigaction(number, &action, nullptr);
}

#else

void reportFatalSignals(const char *, bool) {}

#endif

} // namespace grt
