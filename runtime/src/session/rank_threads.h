//===- rank_threads.h - What a session asks of its ranks ------------------===//
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

#ifndef GRT_SESSION_RANK_THREADS_H
#define GRT_SESSION_RANK_THREADS_H

#include "base/error.h"
#include "session/flight_record.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace grt {

class RankThreads {
public:
  using Body = std::function<void(Rank &)>;

  /// Starts them. Throws Error.
  RankThreads(RunState &state, World &world, ProcessRanks &local,
              FlightRecord &flight);
  /// Ends them; all commands have been done.
  ~RankThreads();
  RankThreads(const RankThreads &) = delete;
  RankThreads &operator=(const RankThreads &) = delete;

  /// Runs `body` on every rank's thread and waits until all commands have
  /// ended. The first error of any rank wakes all others and is thrown here. Of
  /// a command that may wait for storage (`mayStand`) nobody expects progress.
  void run(Body body, bool mayStand = false);
  /// Begins a step and returns the sums of its losses as soon as they are
  /// known, and what was asked for anywhere, if that was heard; other ranks may
  /// go on with it. Where Rank::goesAhead.
  LossSums runStepAhead(std::shared_ptr<const PassInput> pass,
                        uint32_t &requestsHeard);
  /// Throws if a rank has failed before: another may still be at work.
  void checkUsable();
  bool usable();
  /// Waits until all commands have ended, before the session does. False where
  /// something did not come back, which still uses the ranks and this object.
  bool end();
  /// Of the ranks, behind the last of their commands.
  std::vector<RankMemory> memories();

private:
  bool isAlone() const { return world.localCount() == world.size(); }
  void serve(size_t rank);
  /// Runs a command, if there is one, and notes its error.
  void serveOne(Rank &rank, const Activity &activity, const Body *body);
  void stop();
  void record(int exitCode, const std::string &message);
  void writeFlight(const std::string &message);
  void abortDevices();
  /// What a device was asked to do may fail, or wait for a process that is
  /// gone, while the rank's thread waits for it.
  void lookAtDevices();
  // What follows is called with `mutex` held by `lock`.
  /// Throws the error, if there is one; the second time it says so.
  void throwError();
  /// One more command for every rank.
  void ask(Body body, bool mayStand = false);
  /// How many commands there have been, ended or not.
  uint64_t asked() const { return allEnded + commands.size(); }
  /// Waits until all commands have ended, and hears of failures elsewhere.
  void settle(std::unique_lock<std::mutex> &lock, bool mayStand = false);
  /// Waits. If the watchdog finds a rank stuck, the others get some seconds to
  /// end, then it is abandoned.
  void wait(std::unique_lock<std::mutex> &lock,
            const std::function<bool()> &finished, bool mayStand = false);

  RunState &state;
  World &world;
  ProcessRanks &local;
  FlightRecord &flight;
  std::mutex mutex;
  std::condition_variable wake, done;
  /// Those that some rank has not ended. Kept here, as a rank that is stuck may
  /// use its own for ever.
  std::deque<Body> commands;
  std::vector<uint64_t> ended; ///< how many commands, by local rank
  /// By local rank: behind how many commands its loss is `second`.
  std::vector<std::pair<uint64_t, LossSums>> lossesKnown;
  std::vector<RankMemory> memory; ///< behind the last of them
  uint64_t allEnded = 0;
  bool stopping = false;
  /// A rank did not come back; its thread still uses this object.
  bool abandoned = false;
  std::unique_ptr<Error> error;
  bool errorTold = false;
  std::vector<std::thread> threads;
};

} // namespace grt

#endif // GRT_SESSION_RANK_THREADS_H
