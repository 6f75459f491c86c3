//===- session_commands.cpp - What a session asks of its ranks ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank has a thread that does one command after the other. Most commands
// are waited for, by all that the session does next. Steps of a schedule that
// never drains are not: their ranks end a batch one after the other, and those
// that are through go on with the next while others are at work on the last.
//
//===----------------------------------------------------------------------===//

#include "base/signal_stack.h"
#include "core/watchdog.h"
#include "session/session_implementation.h"

#include <algorithm>
#include <chrono>
#include <system_error>

namespace grt {

Session::Implementation::~Implementation() { stop(); }

void Session::Implementation::end() {
  std::unique_lock<std::mutex> lock(mutex);
  if (!abandoned && !marksHang)
    settle(lock);
}

void Session::Implementation::stop() {
  world.watch({});
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void Session::Implementation::lookAtMarks() {
  if (!state.backend.device || !state.backend.device->query || marksHang)
    return;
  auto look = [this] {
    for (const std::unique_ptr<Rank> &rank : ranks)
      rank->lookAtMarks();
  };
  // Libraries of devices may hold a lock for as long as the device hangs.
  struct Looked {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  auto looked = std::make_shared<Looked>();
  try {
    std::thread([look, looked] {
      look();
      std::lock_guard<std::mutex> lock(looked->mutex);
      looked->done = true;
      looked->changed.notify_all();
    }).detach();
  } catch (const std::system_error &) {
    return;
  }
  std::unique_lock<std::mutex> lock(looked->mutex);
  marksHang = !looked->changed.wait_for(lock, std::chrono::seconds(1),
                                        [&] { return looked->done; });
}

std::vector<RankFlight> Session::Implementation::flights() const {
  std::vector<RankFlight> flights;
  for (const std::unique_ptr<Rank> &rank : ranks)
    flights.push_back(rank->flight());
  return flights;
}

std::string Session::Implementation::compareCalls() {
  lookAtMarks();
  return findingsText(
      compared(flights(), isAlone() ? Absent::Silent : Absent::Unknown));
}

std::string Session::Implementation::takeFlight(std::string reason) {
  std::lock_guard<std::mutex> once(flightMutex);
  if (std::exchange(flightTaken, true) || state.options.flightFile.empty())
    return "";
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (error)
      reason = error->what();
  }
  lookAtMarks();
  return flightText(reason, flights(),
                    isAlone() ? Absent::Silent : Absent::Unknown);
}

void Session::Implementation::writeFlight(std::string text) {
  if (text.empty())
    return;
  std::lock_guard<std::mutex> lock(flightMutex);
  flightFile.write(state.options.flightFile, std::move(text));
}

void Session::Implementation::awaitFlight() {
  FlightFile file;
  {
    std::lock_guard<std::mutex> lock(flightMutex);
    file = flightFile;
  }
  file.await(std::chrono::seconds(1));
}

void Session::Implementation::record(int exitCode, const std::string &message) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!error)
      error = std::make_unique<Error>(exitCode, message);
  }
  // Taken before anything is ended, as it would look different then. Others are
  // told meanwhile; devices are ended behind it, as what they run may hang.
  writeFlight(takeFlight(message));
  state.failed = true;
  world.abort({exitCode, message});
  awaitFlight();
  abortDevices();
}

void Session::Implementation::abortDevices() {
  for (const std::unique_ptr<Rank> &rank : ranks)
    rank->abortDevice();
}

void Session::Implementation::lookAtDevices() {
  std::string problem;
  if (std::optional<Failure> elsewhere = world.failure()) {
    writeFlight(takeFlight(elsewhere->message));
    state.failed = true;
    awaitFlight();
    abortDevices();
  }
  for (const std::unique_ptr<Rank> &rank : ranks)
    if (rank->hasFailed(problem))
      return record(ExitFailed, problem);
}

void Session::Implementation::serve(int number) {
  Rank *rank = ranks[number].get();
  Activity &activity = *activities[number];
  SignalStack stack;
  currentActivity = &activity;
  rank->whenLossIsKnown([this, number](const LossSums &loss) {
    std::lock_guard<std::mutex> lock(mutex);
    lossesKnown[number] = {ended[number] + 1, loss};
    done.notify_one();
  });
  while (true) {
    const std::function<void(Rank &)> *body = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex);
      wake.wait(lock, [&] { return stopping || ended[number] != asked(); });
      if (ended[number] == asked())
        break;
      // Others may be added meanwhile; that moves none of those that are there.
      if (!error)
        body = &commands[ended[number] - allEnded];
    }
    try {
      if (body)
        (*body)(*rank);
    } catch (const Aborted &) {
      // The rank that failed has said why.
    } catch (const Error &problem) {
      record(problem.exitCode(), problem.what());
    } catch (const std::exception &problem) {
      bool memory = dynamic_cast<const std::bad_alloc *>(&problem);
      record(memory ? ExitMemory : ExitFailed,
             "rank " + std::to_string(rank->globalRank()) + ", " +
                 activity.describe() + ": " +
                 (memory ? "out of host memory" : problem.what()));
    }
    RankMemory memory = rank->memoryUse();
    std::lock_guard<std::mutex> lock(mutex);
    memories[number] = memory;
    // Unless it was told before.
    if (lossesKnown[number].first <= ended[number])
      lossesKnown[number] = {ended[number] + 1, rank->results().ownLoss};
    activity.busy = ++ended[number] != asked();
    while (allEnded < *std::min_element(ended.begin(), ended.end())) {
      commands.pop_front();
      ++allEnded;
    }
    done.notify_one();
  }
  // A backend's state belongs to the thread that made it.
  ranks[number].reset();
}

void Session::Implementation::throwError() {
  if (error && std::exchange(errorTold, true))
    throw Error(error->exitCode(),
                "the session has failed before: " + std::string(error->what()));
  if (error)
    throw Error(*error);
}

void Session::Implementation::checkUsable() {
  std::lock_guard<std::mutex> lock(mutex);
  throwError();
}

void Session::Implementation::ask(std::function<void(Rank &)> body,
                                  bool mayStand) {
  commands.push_back(std::move(body));
  for (const std::unique_ptr<Activity> &activity : activities)
    activity->busy = !mayStand;
  wake.notify_all();
}

void Session::Implementation::settle(std::unique_lock<std::mutex> &lock,
                                     bool mayStand) {
  wait(lock, [&] { return commands.empty(); }, mayStand);
  std::optional<Failure> elsewhere = world.failure();
  if (elsewhere && !error)
    error = std::make_unique<Error>(elsewhere->exitCode, elsewhere->message);
  if (error && elsewhere) {
    lock.unlock();
    writeFlight(takeFlight(elsewhere->message));
    awaitFlight();
    lock.lock();
  }
}

void Session::Implementation::runAll(std::function<void(Rank &)> body,
                                     bool mayStand) {
  std::unique_lock<std::mutex> lock(mutex);
  settle(lock);
  throwError();
  ask(
      [body = std::move(body)](Rank &rank) {
        rank.settle();
        body(rank);
      },
      mayStand);
  settle(lock, mayStand);
  throwError();
}

void Session::Implementation::runPass(const std::function<void(Rank &)> &body) {
  runAll([&, pass = std::make_shared<const PassInput>(set)](Rank &rank) {
    rank.take(pass);
    body(rank);
  });
}

LossSums Session::Implementation::runStepAhead() {
  std::unique_lock<std::mutex> lock(mutex);
  // Who is at the end of one batch needs others not to be far behind.
  wait(lock, [&] { return commands.size() < 2; });
  if (!error)
    ask([pass = std::make_shared<const PassInput>(set)](Rank &rank) {
      rank.take(pass);
      rank.train();
    });
  const uint64_t number = asked();
  size_t knows = 0; // a rank that has heard all losses
  auto hasLosses = [&] {
    if (isAlone()) {
      for (size_t i = 0; i < ranks.size(); ++i)
        if (ranks[i]->hasLoss() && lossesKnown[i].first < number)
          return false;
      return true;
    }
    for (knows = 0; knows < ranks.size(); ++knows)
      if (ended[knows] >= number)
        return true;
    return false;
  };
  wait(lock, hasLosses);
  if (error || world.failure())
    settle(lock);
  throwError();
  if (!isAlone()) {
    requestsHeard = ranks[knows]->results().requestsHeard;
    return ranks[knows]->results().lossSum;
  }
  LossSums sum;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i]->hasLoss())
      sum += lossesKnown[i].second;
  return sum;
}

void Session::Implementation::wait(std::unique_lock<std::mutex> &lock,
                                   const std::function<bool()> &finished,
                                   bool mayStand) {
  double seconds = mayStand ? 0 : state.options.timeoutSeconds;
  bool hasDevice = state.backend.device;
  if (seconds <= 0 && !hasDevice)
    return done.wait(lock, finished);
  std::optional<Watchdog> watchdog;
  if (seconds > 0)
    watchdog.emplace(activities, seconds);
  std::optional<std::string> problem;
  // Of ranks that stand still others may want to know how far devices are.
  constexpr auto standing = std::chrono::seconds(2);
  uint64_t progress = 0;
  auto moved = Watchdog::Clock::now();
  auto interval =
      watchdog ? watchdog->interval() : std::chrono::milliseconds(100);
  while (!problem && !done.wait_for(lock, interval, finished)) {
    if (hasDevice) {
      lock.unlock();
      lookAtDevices();
      uint64_t now = 0;
      for (const std::unique_ptr<Activity> &activity : activities)
        now += activity->progress.load(std::memory_order_relaxed);
      if (std::exchange(progress, now) != now)
        moved = Watchdog::Clock::now();
      else if (!isAlone() && Watchdog::Clock::now() - moved > standing)
        lookAtMarks();
      lock.lock();
    }
    if (watchdog)
      problem = watchdog->look(Watchdog::Clock::now());
  }
  if (!problem)
    return;
  lock.unlock();
  *problem += compareCalls();
  record(ExitPeerLost, *problem);
  lock.lock();
  std::chrono::duration<double> grace(std::clamp(seconds, 0.5, 5.0));
  if (done.wait_for(lock, grace, [&] { return commands.empty(); }))
    return;
  abandoned = true;
}

} // namespace grt
