//===- failure_detector.h - Who is alive, who stands still, who failed ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of one process in watching all of them, without sockets, threads or
// a clock: it is told what happens and when, and says what is to be done.
//
// Every second a process reports to its relay (host_tree.h), and the relay for
// all of its host to process 0, with the time since each was heard of. Process
// 0 judges: the first failure stands, is printed and goes back the same way. A
// process whose relay is gone, or silent for half of what is allowed, calls
// process 0 itself, which is how process 0 tells a relay that died from a host
// that did. Where process 0 is gone, each host speaks for itself.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_FAILURE_DETECTOR_H
#define GRT_COMM_FAILURE_DETECTOR_H

#include "comm/heartbeat.h"
#include "comm/host_tree.h"
#include "comm/sockets.h"
#include "comm/world.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

struct DetectorOptions {
  double timeout = 0;  ///< seconds in which some rank must move; 0: no limit
  double silence = 8;  ///< seconds without a sign of life from a process
  double patience = 3; ///< seconds to end in after a failure
};

/// Kind of a message between watched processes.
enum class WatchKind : uint32_t {
  Beat,    ///< reports of the sender's process, or of all of its host
  Ask,     ///< towards the ranks: a beat at once, please
  Failed,  ///< towards process 0: exit code and message
  Stop,    ///< from process 0: the same
  Leaving, ///< the connection will close, and that is no failure
};

/// Actions of a detector on the world around it.
class DetectorEnvironment {
public:
  virtual ~DetectorEnvironment() = default;
  /// Sends a message to a process that there is a connection with.
  virtual void send(int process, WatchKind kind, std::string_view text) = 0;
  /// Connects to process 0, in the background; `connected` follows, or nothing.
  virtual void callRoot() = 0;
  /// The ranks of this process: the first, and what each does.
  virtual void describe(int &firstRank, std::vector<RankReport> &ranks) = 0;
  /// "pid 901 on 'alpha'", and the name of its machine.
  virtual std::string whereIs(int process) const = 0;
  virtual std::string hostName(int process) const = 0;
  /// A failure of the run is known: the ranks here are to end.
  virtual void wakeRanks(const Failure &failure) = 0;
  /// Prints it.
  virtual void speak(const std::string &message) = 0;
  /// Called once all that is to be told of a failure has been told.
  virtual void allTold() = 0;
  /// Ends this process.
  virtual void end(int exitCode) = 0;
};

/// Times are seconds of one clock of this process. Not thread-safe.
class FailureDetector {
public:
  /// The connections of the tree are there.
  FailureDetector(const HostTree &tree, int self,
                  const DetectorOptions &options,
                  DetectorEnvironment &environment, double now);

  /// A connection beside the tree's, between process 0 and one that called it.
  void connected(int process, double now);
  /// A connection is closed by the other side.
  void closed(int process, double now);
  void received(int from, const Message &message, double now);
  /// Reports that this process has failed.
  void fail(const Failure &found, double now);
  /// Reports that this process was told to end, as launchers do after they lost
  /// another one.
  void terminated(double now);
  /// Sends the next beat at once, as the ranks of this process have changed.
  void beatSoon() { lastBeat = never; }
  /// The run is over for this process.
  void leave();
  /// Judges the other processes and sends what is due. Called after everything
  /// that has come was handed in, and again within untilTick() seconds.
  void tick(double now);
  double untilTick() const;

  const std::optional<Failure> &failure() const { return found; }

private:
  static constexpr double never = -1e300;

  /// A process as far as it is known here.
  struct Known {
    ProcessReport::State state = ProcessReport::Alive;
    double heard = 0;
    int firstRank = 0;
    std::vector<RankReport> ranks;
  };
  struct Link {
    bool open = true;
    double heard = 0;
  };
  struct Span {
    int first, count;
    bool has(int rank) const { return rank >= first && rank < first + count; }
  };

  /// Origin of a failure: this process's ranks, its judgement of others, or
  /// process 0.
  enum class Source { Own, Judged, Told };

  bool isRoot() const { return self == 0; }
  bool isOpen(int process) const;
  int upwards() const;
  void merge(int from, const std::string &text, double now);
  void leaves(int process);
  void forgiveStandstill(double now);
  void beat(double now);
  void ask(double now);
  void lose(std::vector<int> processes, std::string how, double now);
  void judgeOrphans(double now);
  void judgeSilence(double now);
  void judgeParent(double now);
  void judgeProgress(double now);
  void explainLost(double now);
  void report(const Failure &failure, Source source, double now);
  bool isLate(int process, double now) const;
  std::string silent() const;
  std::string nameOf(const std::vector<int> &processes) const;
  std::string waiters(const std::vector<Span> &lost) const;
  std::string calls(double now) const;
  template <typename Visit> void forEachRank(Visit visit) const;

  const HostTree &tree;
  const int self;
  const DetectorOptions options;
  DetectorEnvironment &around;
  const int parent;
  const std::vector<int> children;

  std::map<int, Link> links;
  /// Processes that this one watches: at process 0 all others, at a relay its
  /// host's and process 0, elsewhere those there are connections with.
  std::map<int, Known> known;
  Known own;

  std::optional<Failure> found;
  double foundAt = 0;
  bool told = false;      ///< the failure went to all that are to know
  bool ownFailed = false; ///< found is this process's own

  /// Processes that are gone, until it is known who waits for them.
  std::vector<int> missing;
  std::string missingHow;
  double missedAt = 0, askedAt = never;
  /// Relays whose connection closed, and when; at process 0 only.
  std::map<int, double> orphaned;

  bool parentLost = false, called = false;
  double parentLostAt = 0;
  double lastBeat = never, answerAt = -never, termAt = never;
  double lossAt = -never; ///< when it was first known that one may be gone
  double judgedAt = never, lastTick = never;
  double lastMove = 0;
  uint64_t lastProgress = 0;
};

} // namespace grt

#endif // GRT_COMM_FAILURE_DETECTOR_H
