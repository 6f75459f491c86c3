//===- rank_threads.cpp - What a session asks of its ranks ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "session/rank_threads.h"
#include "base/signal_stack.h"
#include "core/watchdog.h"

#include <algorithm>
#include <chrono>

namespace grt {

RankThreads::RankThreads(RunState &state, World &world, ProcessRanks &local,
                         FlightRecord &flight)
    : state(state), world(world), local(local), flight(flight) {
  const size_t count = local.ranks.size();
  world.watch(local.activities);
  ended.resize(count);
  lossesKnown.resize(count);
  memory.resize(count);
  try {
    for (size_t rank = 0; rank < count; ++rank)
      threads.emplace_back([this, rank] { serve(rank); });
  } catch (const std::exception &problem) {
    stop();
    fail("cannot start " + std::to_string(count) +
         " rank threads: " + problem.what());
  }
}

RankThreads::~RankThreads() { stop(); }

bool RankThreads::end() {
  std::unique_lock<std::mutex> lock(mutex);
  if (!abandoned && !flight.isStuck())
    settle(lock);
  return !abandoned && !flight.isStuck();
}

void RankThreads::stop() {
  world.watch({});
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void RankThreads::writeFlight(const std::string &message) {
  flight.write([&] {
    std::lock_guard<std::mutex> lock(mutex);
    return error ? std::string(error->what()) : message;
  });
}

void RankThreads::record(int exitCode, const std::string &message) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!error)
      error = std::make_unique<Error>(exitCode, message);
  }
  // Taken before anything is ended, as it would look different then. Others are
  // told meanwhile; devices are ended behind it, as what they run may hang.
  writeFlight(message);
  state.failed = true;
  world.abort({exitCode, message});
  flight.await();
  abortDevices();
}

void RankThreads::abortDevices() {
  for (const std::unique_ptr<Rank> &rank : local.ranks)
    rank->abortDevice();
}

void RankThreads::lookAtDevices() {
  std::string problem;
  if (std::optional<Failure> elsewhere = world.failure()) {
    writeFlight(elsewhere->message);
    state.failed = true;
    flight.await();
    abortDevices();
  }
  for (const std::unique_ptr<Rank> &rank : local.ranks)
    if (rank->hasFailed(problem))
      return record(ExitFailed, problem);
}

void RankThreads::serveOne(Rank &rank, const Activity &activity,
                           const Body *body) {
  try {
    if (body)
      (*body)(rank);
  } catch (const Aborted &) {
    // The rank that failed has said why.
  } catch (const Error &problem) {
    record(problem.exitCode(), problem.what());
  } catch (const std::exception &problem) {
    bool memory = dynamic_cast<const std::bad_alloc *>(&problem);
    record(memory ? ExitMemory : ExitFailed,
           "rank " + std::to_string(rank.globalRank()) + ", " +
               activity.describe() + ": " +
               (memory ? "out of host memory" : problem.what()));
  }
}

void RankThreads::serve(size_t number) {
  Rank &rank = *local.ranks[number];
  Activity &activity = *local.activities[number];
  SignalStack stack;
  currentActivity = &activity;
  rank.whenLossIsKnown([this, number](const LossSums &loss) {
    std::lock_guard<std::mutex> lock(mutex);
    lossesKnown[number] = {ended[number] + 1, loss};
    done.notify_one();
  });
  while (true) {
    const Body *body = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex);
      wake.wait(lock, [&] { return stopping || ended[number] != asked(); });
      if (ended[number] == asked())
        break;
      // Others may be added meanwhile; that moves none of those that are there.
      if (!error)
        body = &commands[ended[number] - allEnded];
    }
    serveOne(rank, activity, body);
    RankMemory used = rank.memoryUse();
    std::lock_guard<std::mutex> lock(mutex);
    memory[number] = used;
    // Unless it was told before.
    if (lossesKnown[number].first <= ended[number])
      lossesKnown[number] = {ended[number] + 1, rank.results().ownLoss};
    activity.busy = ++ended[number] != asked();
    while (allEnded < *std::min_element(ended.begin(), ended.end())) {
      commands.pop_front();
      ++allEnded;
    }
    done.notify_one();
  }
  // A backend's state belongs to the thread that made it.
  local.ranks[number].reset();
}

void RankThreads::throwError() {
  if (error && std::exchange(errorTold, true))
    throw Error(error->exitCode(),
                "the session has failed before: " + std::string(error->what()));
  if (error)
    throw Error(*error);
}

bool RankThreads::usable() {
  std::lock_guard<std::mutex> lock(mutex);
  return !error && !abandoned;
}

std::vector<RankMemory> RankThreads::memories() {
  std::lock_guard<std::mutex> lock(mutex);
  return memory;
}

void RankThreads::checkUsable() {
  std::lock_guard<std::mutex> lock(mutex);
  throwError();
}

void RankThreads::ask(Body body, bool mayStand) {
  commands.push_back(std::move(body));
  for (const std::unique_ptr<Activity> &activity : local.activities)
    activity->busy = !mayStand;
  wake.notify_all();
}

void RankThreads::settle(std::unique_lock<std::mutex> &lock, bool mayStand) {
  wait(lock, [&] { return commands.empty(); }, mayStand);
  std::optional<Failure> elsewhere = world.failure();
  if (elsewhere && !error)
    error = std::make_unique<Error>(elsewhere->exitCode, elsewhere->message);
  if (error && elsewhere) {
    lock.unlock();
    writeFlight(elsewhere->message);
    flight.await();
    lock.lock();
  }
}

void RankThreads::run(Body body, bool mayStand) {
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

LossSums RankThreads::runStepAhead(std::shared_ptr<const PassInput> pass,
                                   uint32_t &requestsHeard) {
  std::unique_lock<std::mutex> lock(mutex);
  // Who is at the end of one batch needs others not to be far behind.
  wait(lock, [&] { return commands.size() < 2; });
  if (!error)
    ask([pass = std::move(pass)](Rank &rank) {
      rank.take(pass);
      rank.train();
    });
  const uint64_t number = asked();
  size_t knows = 0; // a rank that has heard all losses
  auto hasLosses = [&] {
    if (isAlone()) {
      for (size_t i = 0; i < local.ranks.size(); ++i)
        if (local.ranks[i]->hasLoss() && lossesKnown[i].first < number)
          return false;
      return true;
    }
    for (knows = 0; knows < local.ranks.size(); ++knows)
      if (ended[knows] >= number)
        return true;
    return false;
  };
  wait(lock, hasLosses);
  if (error || world.failure())
    settle(lock);
  throwError();
  if (!isAlone()) {
    requestsHeard = local.ranks[knows]->results().requestsHeard;
    return local.ranks[knows]->results().lossSum;
  }
  LossSums sum;
  for (size_t i = 0; i < local.ranks.size(); ++i)
    if (local.ranks[i]->hasLoss())
      sum += lossesKnown[i].second;
  return sum;
}

void RankThreads::wait(std::unique_lock<std::mutex> &lock,
                       const std::function<bool()> &finished, bool mayStand) {
  double seconds = mayStand ? 0 : state.options.timeoutSeconds;
  bool hasDevice = state.backend.device;
  if (seconds <= 0 && !hasDevice)
    return done.wait(lock, finished);
  std::optional<Watchdog> watchdog;
  if (seconds > 0)
    watchdog.emplace(local.activities, seconds);
  std::optional<std::string> problem;
  // Of local.ranks that stand still others may want to know how far devices
  // are.
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
      for (const std::unique_ptr<Activity> &activity : local.activities)
        now += activity->progress.load(std::memory_order_relaxed);
      if (std::exchange(progress, now) != now)
        moved = Watchdog::Clock::now();
      else if (!isAlone() && Watchdog::Clock::now() - moved > standing)
        flight.lookAtMarks();
      lock.lock();
    }
    if (watchdog)
      problem = watchdog->look(Watchdog::Clock::now());
  }
  if (!problem)
    return;
  lock.unlock();
  *problem += flight.compareCalls();
  record(ExitPeerLost, *problem);
  lock.lock();
  std::chrono::duration<double> grace(std::clamp(seconds, 0.5, 5.0));
  if (done.wait_for(lock, grace, [&] { return commands.empty(); }))
    return;
  abandoned = true;
}

} // namespace grt
