//===- children.cpp - Processes that this one starts and waits for --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "children.h"

#include "grt/session.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <map>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace grt;

namespace {

constexpr std::initializer_list<int> endings = {SIGINT, SIGTERM, SIGHUP};
/// The run goes on behind these.
constexpr std::initializer_list<int> wishes = {SIGUSR1, SIGUSR2};

/// Handlers read them; 0: a free place.
std::array<std::atomic<pid_t>, mostChildren> children;
std::atomic<int> asked = 0;

void passOn(int signal) {
  bool isWish = false;
  for (int wish : wishes)
    isWish |= signal == wish;
  if (!isWish)
    asked = signal;
  int error = errno;
  signalChildren(signal);
  errno = error;
}

void block(std::initializer_list<int> signals, int how) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : signals)
    sigaddset(&set, number);
  sigprocmask(how, &set, nullptr);
}

template <class Function> void forAllPassed(Function function) {
  for (int number : endings) {
    struct sigaction before{};
    if (sigaction(number, nullptr, &before) == 0 &&
        before.sa_handler != SIG_IGN)
      function(number);
  }
  for (int number : wishes)
    function(number);
}

/// The environment as `NAME=value`, with `variables` set.
std::vector<std::string> environmentWith(const Variables &variables) {
  std::map<std::string, std::string> all;
  for (char **entry = environ; *entry; ++entry) {
    std::string text = *entry;
    all[text.substr(0, text.find('='))] = text;
  }
  for (const auto &[name, value] : variables)
    all[name] = name + "=" + value;
  std::vector<std::string> result;
  for (auto &[name, text] : all)
    result.push_back(std::move(text));
  return result;
}

/// Runs in the child, and so neither allocates nor locks.
[[noreturn]] void becomeChild(pid_t parent, char *const *arguments,
                              char *const *environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(128 + SIGTERM);
  forAllPassed([](int number) { std::signal(number, SIG_DFL); });
  // The others stay blocked until the run takes them itself: before, they would
  // end it.
  block(endings, SIG_UNBLOCK);
  execve("/proc/self/exe", arguments, environment);
  std::fprintf(stderr, "galvatron-run: error: cannot start itself: %s\n",
               strerror(errno));
  _exit(ExitFailed);
}

void forget(pid_t child) {
  for (auto &place : children)
    if (place == child)
      place = 0;
}

ChildEnd endOf(int status) {
  return WIFSIGNALED(status) ? ChildEnd{ExitFailed, WTERMSIG(status)}
                             : ChildEnd{WEXITSTATUS(status), 0};
}

} // namespace

void passSignalsOn() {
  struct sigaction action{};
  action.sa_handler = passOn;
  action.sa_flags = 0; // waits return
  forAllPassed([&](int number) { sigaction(number, &action, nullptr); });
  unblockWishes();
}

void unblockWishes() { block(wishes, SIG_UNBLOCK); }

int askedToEnd() { return asked; }

void signalChildren(int signal) {
  for (auto &place : children)
    if (pid_t process = place)
      ::kill(process, signal);
}

pid_t startChild(const std::vector<char *> &arguments,
                 const Variables &variables) {
  std::vector<std::string> texts = environmentWith(variables);
  std::vector<char *> environment;
  for (std::string &text : texts)
    environment.push_back(text.data());
  environment.push_back(nullptr);
  std::fflush(nullptr);
  std::atomic<pid_t> *place = nullptr;
  for (auto &free : children)
    if (!place && !free)
      place = &free;
  pid_t parent = getpid();
  // A signal that comes before the child has its place would miss it.
  block(endings, SIG_BLOCK);
  block(wishes, SIG_BLOCK);
  errno = EAGAIN;
  pid_t process = place ? fork() : -1;
  if (process < 0)
    std::fprintf(stderr, "galvatron-run: error: cannot start a process: %s\n",
                 strerror(errno));
  if (process == 0)
    becomeChild(parent, arguments.data(), environment.data());
  if (process > 0)
    *place = process;
  block(endings, SIG_UNBLOCK);
  block(wishes, SIG_UNBLOCK);
  if (process < 0)
    return -1;
  // A signal that came in between is not lost.
  if (int signal = asked)
    ::kill(process, signal);
  return process;
}

ChildEnd waitForChild(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  forget(child);
  return endOf(status);
}

pid_t waitForAnyChild(double seconds, ChildEnd &end) {
  constexpr long step = 10'000'000; // nanoseconds
  for (double waited = 0;; waited += 1e-9 * double(step)) {
    int status = 0;
    pid_t child = waitpid(-1, &status, WNOHANG);
    if (child > 0) {
      forget(child);
      end = endOf(status);
      return child;
    }
    if (waited >= seconds)
      return 0;
    timespec pause{0, step};
    nanosleep(&pause, nullptr);
  }
}

void waitForChildren(int left, bool failed, const Patience &patience,
                     const std::function<bool(const ChildEnd &)> &isBad,
                     const std::function<void(pid_t, const ChildEnd &)> &note) {
  bool oneEnded = failed, asksThem = failed;
  while (left > 0) {
    ChildEnd end;
    double seconds = asksThem   ? patience.toSave
                     : oneEnded ? patience.toEnd
                                : 3600;
    if (pid_t child = waitForAnyChild(seconds, end)) {
      --left;
      note(child, end);
      oneEnded |= isBad(end);
    } else if (oneEnded) {
      signalChildren(asksThem ? SIGKILL : SIGTERM);
      asksThem = true;
    }
  }
}
