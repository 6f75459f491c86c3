//===- two_hosts_test.cpp - Runs on two hosts that meet faults ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes of this machine that take themselves for those of two hosts, each
// with the runtime's own transport, monitor and world over sockets of the
// loopback. They sum numbers in steps; then processes are killed or stopped, or
// the link between the hosts is cut: a filter on every socket that crosses it
// drops what comes, so that, as with a cable, nothing is closed. All runs go at
// the same time, since they wait for time-outs most of theirs.
//
// The verdicts themselves are simulated with thousands of processes in
// failure_detector_test.cpp.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/activity.h"
#include "comm/monitor.h"
#include "comm/tcp.h"
#include "grt/session.h"
#include "launched.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <linux/filter.h>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace grt;
using namespace grt::test;

namespace {

constexpr int processes = 6, perHost = 3;
/// The lowest processes of the hosts are 0 and this one.
constexpr int relay = perHost;
constexpr const char *hosts[] = {"alpha", "beta"};

/// Seconds without a sign of life; half of a run's, and three beats more than
/// one, so that a busy machine is no fault.
constexpr double silence = 4;
/// Seconds in which some rank must move; longer than a process may be silent.
constexpr double timeout = 6;
/// A verdict comes at most so long after silence, or after a death: two hops, a
/// look at who waits, the grace of a host. The rest is for a busy machine.
constexpr double verdictTime = 10;

int hostOf(int process) { return process / perHost; }

double secondsNow() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

//===----------------------------------------------------------------------===//
// A process of a run
//===----------------------------------------------------------------------===//

/// Set by SIGUSR1: the process hangs before its next sum.
volatile std::sig_atomic_t hangs = 0;

/// Sums with the others until the run ends; a byte to `progress` for each step.
[[noreturn]] void work(int process, uint16_t port, int progress) {
  std::signal(SIGUSR1, [](int) { hangs = 1; });
  try {
    Rendezvous at;
    at.rank = process;
    at.size = processes;
    at.address = "127.0.0.1";
    at.port = port;
    std::unique_ptr<Transport> transport = connectByTcp(at);
    MonitorOptions options;
    options.tool = "run";
    options.silence = silence;
    options.timeout = timeout;
    options.listen = at.address;
    options.host = hosts[hostOf(process)];
    options.network = options.host;
    Monitor monitor(*transport, options);
    std::vector<int> everyone(processes + 1);
    std::iota(everyone.begin(), everyone.end(), 0);
    ProcessWorld world(*transport, everyone, 0,
                       [&](const Failure &failure) { monitor.fail(failure); });
    everyone.pop_back();
    monitor.watch(&world);
    std::vector<std::unique_ptr<Activity>> activities;
    activities.push_back(std::make_unique<Activity>(process));
    Activity &activity = *activities.front();
    currentActivity = &activity;
    activity.busy = true;
    world.watch(activities);
    std::unique_ptr<Communicator> communicator =
        watchedCommunicator(world.join(process), activity);
    Group &group = communicator->group(everyone);
    try {
      for (uint64_t step = 1;; ++step) {
        activity.setStep(step);
        while (hangs)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        // Small and large: in one round and in two.
        std::vector<float> values(step % 2 ? 16 : 1 << 16, float(step));
        communicator->allReduce(group, values.data(), values.size(), GRT_F32);
        if (values.front() != float(processes) * float(step) ||
            values.back() != values.front())
          throw Error(1, "a sum is wrong");
        [[maybe_unused]] ssize_t wrote = ::write(progress, "", 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (const Aborted &) {
    }
    // Does what Processes::finish does.
    const int code = monitor.failure().value_or(Failure()).exitCode;
    monitor.waitUntilReported();
    std::fflush(nullptr);
    _exit(code);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "run: error: process %d: %s\n", process, error.what());
    std::fflush(nullptr);
    _exit(99);
  }
}

//===----------------------------------------------------------------------===//
// A run, seen from outside
//===----------------------------------------------------------------------===//

class ObservedRun {
public:
  struct Child {
    pid_t pid = -1;
    int output = -1, progress = -1;
    int steps = 0;
    std::string said;
    int code = -1;    ///< with which it ended; 128 and the signal
    double ended = 0; ///< after the fault
  };

  ObservedRun() : port(freePort()) {}
  ~ObservedRun() {
    for (Child &child : children) {
      if (child.code < 0 && child.pid > 0) {
        ::kill(child.pid, SIGKILL);
        ::waitpid(child.pid, nullptr, 0);
      }
      ::close(child.output);
      ::close(child.progress);
    }
  }
  ObservedRun(const ObservedRun &) = delete;
  ObservedRun &operator=(const ObservedRun &) = delete;

  /// It is called before this program has threads.
  void start() {
    for (int process = 0; process < processes; ++process) {
      int output[2], progress[2];
      if (::pipe2(output, O_NONBLOCK) != 0 ||
          ::pipe2(progress, O_NONBLOCK) != 0)
        throw Error(1, "cannot make a pipe");
      Child child;
      child.pid = ::fork();
      if (child.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::dup2(output[1], 2);
        work(process, port, progress[1]);
      }
      ::close(output[1]);
      ::close(progress[1]);
      child.output = output[0];
      child.progress = progress[0];
      children.push_back(child);
    }
  }

  /// Until all have made some steps; false if they do not.
  bool awaitTraining() {
    const double end = secondsNow() + 60;
    auto trains = [](const Child &child) { return child.steps >= 20; };
    while (secondsNow() < end) {
      look();
      if (std::all_of(children.begin(), children.end(), trains))
        return true;
      if (std::any_of(children.begin(), children.end(),
                      [](const Child &child) { return child.code >= 0; }))
        return false;
    }
    return false;
  }

  void send(int process, int signal) {
    ::kill(children[size_t(process)].pid, signal);
  }

  /// Until all but `stopped` have ended, or the time is over.
  void awaitEnd(const std::vector<int> &stopped, double seconds) {
    const double end = secondsNow() + seconds;
    auto isDone = [&] {
      for (int process = 0; process < processes; ++process)
        if (children[size_t(process)].code < 0 &&
            !std::count(stopped.begin(), stopped.end(), process))
          return false;
      return true;
    };
    do
      look();
    while (!isDone() && secondsNow() < end);
    look();
  }

  /// Cuts all that one host sends to the other and returns how many sockets
  /// that took. Negative if the machine forbids it.
  int cut() {
    // Sockets by their own and their peer's port; those that listen by 0.
    struct Found {
      int process, descriptor;
    };
    std::map<std::pair<uint16_t, uint16_t>, Found> sockets;
    for (int process = 0; process < processes; ++process) {
      const std::string folder =
          "/proc/" + std::to_string(children[size_t(process)].pid) + "/fd";
      const int handle =
          int(::syscall(SYS_pidfd_open, children[size_t(process)].pid, 0));
      if (handle < 0)
        return -1;
      for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        std::error_code error;
        if (std::filesystem::read_symlink(entry.path(), error)
                .string()
                .find("socket:") != 0)
          continue;
        const int descriptor = int(::syscall(
            SYS_pidfd_getfd, handle, std::stoi(entry.path().filename()), 0));
        if (descriptor < 0)
          return -1;
        sockaddr_in own{}, peer{};
        socklen_t length = sizeof(own);
        ::getsockname(descriptor, reinterpret_cast<sockaddr *>(&own), &length);
        length = sizeof(peer);
        ::getpeername(descriptor, reinterpret_cast<sockaddr *>(&peer), &length);
        sockets[{own.sin_port, peer.sin_port}] = {process, descriptor};
      }
      ::close(handle);
    }
    sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
    sock_fprog filter = {1, &nothing};
    int filtered = 0;
    bool isForbidden = false;
    for (const auto &[ports, found] : sockets) {
      // Listeners: whoever comes anew comes across.
      auto other = sockets.find({ports.second, ports.first});
      bool crosses = ports.second == 0 ||
                     (other != sockets.end() &&
                      hostOf(other->second.process) != hostOf(found.process));
      if (!crosses)
        continue;
      isForbidden |=
          ::setsockopt(found.descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                       sizeof(filter)) != 0;
      ++filtered;
    }
    for (const auto &[ports, found] : sockets)
      ::close(found.descriptor);
    return isForbidden ? -1 : filtered;
  }

  std::vector<Child> children;
  double faultAt = 0;

private:
  /// Takes what came, for a hundredth of a second.
  void look() {
    std::vector<pollfd> polled;
    for (const Child &child : children)
      if (child.code < 0)
        polled.push_back({child.output, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 10);
    for (Child &child : children) {
      // The wait comes before its output is read: that is all it says.
      int status = 0;
      const bool ended =
          child.code < 0 && ::waitpid(child.pid, &status, WNOHANG) == child.pid;
      char bytes[4096];
      for (ssize_t got; (got = ::read(child.output, bytes, sizeof(bytes))) > 0;)
        child.said.append(bytes, size_t(got));
      for (ssize_t got;
           (got = ::read(child.progress, bytes, sizeof(bytes))) > 0;)
        child.steps += int(got);
      if (ended) {
        child.code =
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        child.ended = secondsNow() - faultAt;
      }
    }
  }

  const uint16_t port;
};

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

struct Fault {
  const char *name;
  int signal;                 ///< 0: the link is cut
  std::vector<int> processes; ///< that get it
  std::vector<int> speakers;  ///< who says what happened
  const char *cause;          ///< how that begins
};

constexpr const char *died = " ended without a word",
                     *silent = " gave no sign of life for 4 s",
                     *hung = " makes no progress for 6 s";

const std::vector<Fault> &faults() {
  static const std::vector<Fault> all = {
      {"AKilledProcess", SIGKILL, {4}, {0}, "process 4"},
      {"AKilledProcessBesideProcess0", SIGKILL, {2}, {0}, "process 2"},
      {"AKilledRelayIsNotItsHost", SIGKILL, {relay}, {0}, "process 3"},
      // Each host speaks for itself, and those beside process 0 have nobody
      // else.
      {"AKilledProcess0", SIGKILL, {0}, {1, 2, relay}, "process 0"},
      {"AHostWhoseProcessesDie",
       SIGKILL,
       {3, 4, 5},
       {0},
       "host 'beta' (processes 3 to 5)"},
      {"AStoppedProcess", SIGSTOP, {5}, {0}, "process 5"},
      {"AStoppedRelayIsNotItsHost", SIGSTOP, {relay}, {0}, "process 3"},
      {"AHostThatStandsStill",
       SIGSTOP,
       {3, 4, 5},
       {0},
       "host 'beta' (processes 3 to 5)"},
      {"AProcessThatHangs", SIGUSR1, {4}, {0}, "rank 4"},
      {"ACutLink", 0, {}, {0, relay}, "host 'beta' (processes 3 to 5)"},
  };
  return all;
}

/// All runs, from the first test on.
class TwoHosts : public ::testing::TestWithParam<size_t> {
protected:
  struct Outcome {
    std::unique_ptr<ObservedRun> run = std::make_unique<ObservedRun>();
    std::string problem; ///< why it says nothing
    bool skipped = false;
    std::vector<int> codesOnceContinued; ///< of stopped processes
    std::future<void> ended;
  };

  static void SetUpTestSuite() {
    outcomes = std::make_unique<std::vector<Outcome>>(faults().size());
    // Those that are filtered out do not run.
    for (size_t i = 0; i < faults().size(); ++i)
      if (isWanted(i))
        (*outcomes)[i].run->start();
    for (size_t i = 0; i < faults().size(); ++i)
      if (isWanted(i))
        (*outcomes)[i].ended = std::async(
            std::launch::async, [i] { disturb(faults()[i], (*outcomes)[i]); });
  }
  static void TearDownTestSuite() { outcomes.reset(); }

  static bool isWanted(size_t fault) {
    const auto &suites = *::testing::UnitTest::GetInstance();
    for (int s = 0; s < suites.total_test_suite_count(); ++s) {
      const ::testing::TestSuite &suite = *suites.GetTestSuite(s);
      for (int t = 0; t < suite.total_test_count(); ++t) {
        const ::testing::TestInfo &test = *suite.GetTestInfo(t);
        if (test.value_param() &&
            std::string(test.name()).ends_with(faults()[fault].name))
          return test.should_run();
      }
    }
    return true;
  }

  static void disturb(const Fault &fault, Outcome &outcome) {
    ObservedRun &run = *outcome.run;
    if (!run.awaitTraining()) {
      outcome.problem = "the run did not begin:";
      for (const ObservedRun::Child &child : run.children)
        outcome.problem +=
            " [" + std::to_string(child.code) + "] " + child.said;
      return;
    }
    run.faultAt = secondsNow();
    if (fault.signal == 0) {
      const int sockets = run.cut();
      outcome.skipped = sockets < 0;
      if (outcome.skipped)
        return;
      // The monitor's connection, and some of the transport's, each with two
      // ends.
      if (sockets < 4)
        outcome.problem = "only " + std::to_string(sockets) + " sockets cross";
    }
    // A host dies at once: none of it sees another die before it.
    if (fault.processes.size() > 1)
      for (int process : fault.processes)
        run.send(process, SIGSTOP);
    for (int process : fault.processes)
      run.send(process, fault.signal);
    run.awaitEnd(fault.signal == SIGSTOP ? fault.processes : std::vector<int>(),
                 timeout + silence + verdictTime + 5);
    if (fault.signal != SIGSTOP)
      return;
    for (int process : fault.processes)
      run.send(process, SIGCONT);
    run.awaitEnd({}, silence + verdictTime + 5);
    for (int process : fault.processes)
      outcome.codesOnceContinued.push_back(run.children[size_t(process)].code);
  }

  static std::unique_ptr<std::vector<Outcome>> outcomes;
};
std::unique_ptr<std::vector<TwoHosts::Outcome>> TwoHosts::outcomes;

TEST_P(TwoHosts, EndInTimeWithTheFirstCause) {
  const Fault &fault = faults()[GetParam()];
  Outcome &outcome = (*outcomes)[GetParam()];
  outcome.ended.get();
  if (outcome.skipped)
    GTEST_SKIP() << "the machine forbids filters on sockets of others";
  ASSERT_EQ(outcome.problem, "");
  const bool isHung = fault.signal == SIGUSR1;
  const bool isSilent = fault.signal != SIGKILL && !isHung;
  auto has = [](const std::vector<int> &all, int one) {
    return std::count(all.begin(), all.end(), one) > 0;
  };
  for (int process = 0; process < processes; ++process) {
    SCOPED_TRACE(process);
    const ObservedRun::Child &child = outcome.run->children[size_t(process)];
    if (has(fault.processes, process)) {
      EXPECT_EQ(child.said, "");
      if (isHung)
        EXPECT_EQ(child.code, ExitPeerLost);
      continue;
    }
    EXPECT_EQ(child.code, ExitPeerLost) << child.said;
    EXPECT_LT(child.ended,
              verdictTime + (isSilent ? silence : 0) + (isHung ? timeout : 0));
    // The loss is not seen before its time, but for beats that came late before
    // the fault.
    if (isSilent)
      EXPECT_GT(child.ended, silence / 4);
    if (!has(fault.speakers, process)) {
      EXPECT_EQ(child.said, "");
      continue;
    }
    // The other side of the cut lost process 0.
    const bool isAcross = fault.signal == 0 && hostOf(process) != 0;
    const std::string cause =
        std::string("run: error: ") + (isAcross ? "process 0" : fault.cause);
    EXPECT_EQ(child.said.find(cause), 0u) << child.said;
    EXPECT_NE(child.said.find(isHung     ? hung
                              : isSilent ? silent
                                         : died),
              std::string::npos)
        << child.said;
    EXPECT_EQ(std::count(child.said.begin(), child.said.end(), '\n'), 1)
        << child.said;
    // Process 0 knows of all: somebody waits for the one that is gone.
    if (process == 0 && isSilent && fault.processes.size() == 1)
      EXPECT_NE(child.said.find("; rank " + std::to_string(fault.processes[0]) +
                                " does not answer, and ranks "),
                std::string::npos)
          << child.said;
    if (process == 0 && isHung) {
      EXPECT_NE(child.said.find("; rank 4 never enqueued all-reduce "),
                std::string::npos)
          << child.said;
      EXPECT_NE(child.said.find(" of 'group' (ranks 0 to 5)\n"),
                std::string::npos)
          << child.said;
    } else if (process == 0 && fault.processes.size() == 1 &&
               // Those that wait may tell it before they lose the one that
               // died.
               child.said.find("; rank " + std::to_string(fault.processes[0]) +
                               " does not answer, and ranks ") ==
                   std::string::npos) {
      EXPECT_NE(child.said.find(" was last seen in step "), std::string::npos)
          << child.said;
      EXPECT_NE(child.said.find(" waits for it: step "), std::string::npos)
          << child.said;
    }
  }
  // A process that wakes up hears that the run is over, and ends.
  for (int code : outcome.codesOnceContinued)
    EXPECT_EQ(code, ExitPeerLost);
}

INSTANTIATE_TEST_SUITE_P(Faults, TwoHosts,
                         testing::Range(size_t(0), faults().size()),
                         [](const auto &info) {
                           return std::string(faults()[info.param].name);
                         });

} // namespace
