//===- activity.h - What a rank is doing ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank notes what it does and whom it waits for, with relaxed stores only; a
// watchdog on another thread, or the handler of a fatal signal, reads it when
// something went wrong. What is read may mix two neighbouring moments; strings
// and layers outlive the rank's work, so it is never invalid.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_ACTIVITY_H
#define GRT_COMM_ACTIVITY_H

#include "comm/collective_log.h"
#include "comm/communicator.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace grt {

class Activity {
public:
  explicit Activity(int rank) : rank(rank) {}

  const int rank;
  /// Grows with everything the rank does.
  std::atomic<uint64_t> progress{0};
  /// True while the rank runs a command of the session.
  std::atomic<bool> busy{false};

  void setStep(uint64_t number) { store(step, number); }
  /// Its name, or null.
  void setLayer(const char *running) { store(layer, running); }
  /// Sets the task of the program's table that the rank is at.
  void setTask(const grt_task *running) { store(task, running); }
  /// Sets the stream, a grt_stream, that the operations to follow are put on.
  void setStream(uint32_t number) { store(stream, number); }
  /// The rank begins an operation (a static string); `name` is the program's,
  /// or null.
  void begin(const char *what, const char *called) {
    store(name, called);
    store(operation, what);
    fly(what, called);
    advance();
  }
  void end() {
    store(operation, static_cast<const char *>(nullptr));
    store(name, static_cast<const char *>(nullptr));
    land();
    advance();
  }
  void advance() {
    progress.store(progress.load(std::memory_order_relaxed) + 1,
                   std::memory_order_relaxed);
  }

  /// The kind of thing that a wait is for.
  enum class WaitKind : uint8_t {
    Ranks,      ///< that it names
    Collective, ///< noted in `collectives`
    Device,     ///< to do all that it was given
  };
  void beginWait(const char *what, WaitKind kind = WaitKind::Ranks);
  void addPeer(int peer);
  /// Narrows the noted peers to the only one that has not come yet.
  void narrowWait(int peer);
  void endWait();
  /// Seconds spent in waits since the last call; on the rank's thread.
  double takeWaited() { return std::exchange(waited, 0.0); }
  bool isWaiting() const { return waiting.load(std::memory_order_relaxed); }
  bool waitsFor(int peer) const;
  /// The ranks that this rank waits for; empty if it does not wait.
  std::vector<int> awaited() const;

  /// The rank has put an event on a stream behind everything that it put there
  /// before: all operations up to `number`.
  void mark(uint32_t onStream, uint32_t event, uint64_t number);
  /// The event, of the `mostMarks` in a row, is about to be another mark's.
  void forgetMark(uint32_t event);
  /// The number of operations that the rank has begun; on its thread.
  uint64_t begun() const { return operations; }
  /// Asks which marks the device has passed, of a rank that has one. `isDone`
  /// says it of an event. From any thread, one at a time.
  void lookAtMarks(const std::function<bool(uint32_t event)> &isDone);
  /// True if the device has done an operation that was put on a stream, as far
  /// as lookAtMarks() has seen; always true without a device.
  bool deviceDid(uint32_t onStream, uint64_t number) const;

  /// The rank's calls of collectives, by communicator.
  CollectiveLog collectives;
  /// The rank's calls in the form that compareCollectives() takes; from any
  /// thread.
  RankCollectives calledCollectives() const;

  /// The last operations, oldest first, for when a run has failed: see
  /// flight.h. From any thread, while the rank may be at work.
  struct Operation {
    uint64_t number; ///< of all of the rank's, from 1
    uint64_t step;
    const char *layer; ///< null: of none
    const grt_task *task;
    const char *what, *name;
    uint32_t stream;
    bool left; ///< the rank has gone on from it
  };
  struct Mark {
    uint64_t number; ///< of the last operation before it
    uint32_t stream, event;
  };
  std::vector<Operation> lastOperations() const;
  /// Returns the marks that stand, in no particular order.
  std::vector<Mark> marks() const;
  static constexpr uint32_t mostMarks = 256;

  /// "step 3, layer 'h.1', all-reduce 'h.attn.c_proj', waiting for rank 2".
  std::string describe() const;
  /// Writes the text of describe() into a buffer, without doing anything that a
  /// signal handler must not do.
  void describeInto(char *text, size_t bytes) const;

private:
  static constexpr int mostPeers = 16;

  template <typename T, typename V>
  static void store(std::atomic<T> &to, V value) {
    to.store(value, std::memory_order_relaxed);
  }

  std::atomic<uint64_t> step{0};
  std::atomic<const char *> layer{nullptr}, operation{nullptr}, name{nullptr};
  std::atomic<bool> waiting{false};
  std::atomic<WaitKind> waitKind{WaitKind::Ranks};
  std::atomic<int> peerCount{0};
  std::atomic<int> peers[mostPeers] = {};

  /// A ring. An entry that is being written has the number 0.
  struct Entry {
    std::atomic<uint64_t> number{0}, step{0};
    std::atomic<const char *> layer{nullptr};
    std::atomic<const grt_task *> task{nullptr};
    std::atomic<const char *> what{nullptr}, name{nullptr};
    std::atomic<uint32_t> stream{0};
    std::atomic<bool> left{false};
  };
  struct MarkEntry {
    std::atomic<uint64_t> number{0};
    std::atomic<uint32_t> stream{0}, event{0};
  };
  static constexpr size_t mostOperations = 256;

  void fly(const char *what, const char *called);
  void land();

  std::atomic<const grt_task *> task{nullptr};
  std::atomic<uint32_t> stream{0};
  uint64_t operations = 0; ///< of the rank's thread
  bool flying = false;
  std::chrono::steady_clock::time_point waitBegan;
  double waited = 0;
  std::unique_ptr<Entry[]> ring = std::make_unique<Entry[]>(mostOperations);
  std::unique_ptr<MarkEntry[]> markRing =
      std::make_unique<MarkEntry[]>(mostMarks);
  std::atomic<bool> hasMarks{false};
  std::array<std::atomic<uint64_t>, GRT_STREAM_COUNT> passed{};
};

/// The activity of the rank whose thread this is, or null.
extern thread_local Activity *currentActivity;

/// A communicator that notes waits and collectives in `activity`. Those of a
/// device end later than their calls; `leaveMark(stream, number)` is called in
/// front of each and behind it, for Activity::mark.
using LeaveMark = std::function<void(uint32_t stream, uint64_t number)>;
std::unique_ptr<Communicator>
watchedCommunicator(std::unique_ptr<Communicator> communicator,
                    Activity &activity, LeaveMark leaveMark = {});

} // namespace grt

#endif // GRT_COMM_ACTIVITY_H
