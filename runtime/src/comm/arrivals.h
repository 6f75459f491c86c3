//===- arrivals.h - Who has come to process 0 -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What process 0 makes of those that come to the rendezvous, and what they make
// of its answer, without sockets or a clock.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_ARRIVALS_H
#define GRT_COMM_ARRIVALS_H

#include "comm/deadline.h"
#include "comm/rendezvous.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// The processes that another one connects to as soon as all have met.
std::vector<int> lowerNeighbours(int rank, int size);

/// Asks after and answers processes that have come, by their numbers here.
class ArrivalsEnvironment {
public:
  virtual ~ArrivalsEnvironment() = default;
  /// True if it still waits for its answer, as far as is known.
  virtual bool isThere(int guest) = 0;
  /// Answers it and lets it go.
  virtual void answer(int guest, bool refused, const std::string &text) = 0;
};

/// Process 0's side. Whoever comes, the others go on.
class Arrivals {
public:
  /// `at` and `around` outlive it.
  Arrivals(const Rendezvous &at, ArrivalsEnvironment &around,
           Clock::time_point now);

  /// Takes in a process that has shown that it knows the secret, or tells it
  /// why not.
  void take(int guest, std::string_view claim);

  enum class State {
    Waiting,
    Complete, ///< all have come, or enough for size() processes
    Late,     ///< somebody has not come in time
  };
  /// Returns the state of the rendezvous; called after every take(), and at
  /// wakeAt().
  State look(Clock::time_point now);
  /// The next moment at which look() may find another state although nobody has
  /// come: the end of the grace period if the run may shrink, else the
  /// deadline. A moment that was too early for the last look() stays due,
  /// however much time has passed since.
  Clock::time_point wakeAt() const;
  /// Size of the run, once the state is Complete: Rendezvous::size or one of
  /// Rendezvous::smaller.
  int size() const { return chosenSize; }

  /// Tells all that came who did not; the same text, with `more` at its end.
  std::string refuseAll(const std::string &more);
  /// Begins the run with those that came first in the order of their numbers
  /// and process 0, which listens at `own`; tells each its number and where its
  /// lowerNeighbours() are. Returns Membership::contacts of process 0.
  std::map<int, Contact> begin(const std::string &session, const Contact &own);

private:
  void refuse(int guest, char kind, const std::string &why);
  void note(int guest, const std::string &why);
  bool mayBeFewer() const;
  bool dropThoseGone();

  const Rendezvous &at;
  ArrivalsEnvironment &around;
  const uint64_t run;
  const Clock::time_point deadline, grace;
  Clock::time_point lastLook = Clock::time_point::min();
  uint64_t restart;
  int chosenSize;
  std::vector<std::optional<int>> guests; ///< by rank
  std::vector<Contact> contacts;          ///< by rank
  int came = 1; ///< process 0 and those in `guests`, which may have gone again
  std::string notes;
};

/// The bytes by which a new session of a run is told from others.
std::string newSession();
/// The key of its connections.
std::string sessionKey(const Rendezvous &at, std::string_view session);

/// The side of a process that comes.
class Newcomer {
public:
  /// `at` outlives it.
  explicit Newcomer(const Rendezvous &at);

  /// The process's claim, for process 0; it listens at `own`.
  std::string claim(const Contact &own);
  /// Size of the longest answer that process 0 gives, in bytes.
  size_t longestAnswer() const;
  /// Reads process 0's answer: returns a membership, without its listener; or
  /// nothing and the reason in `problem` if another attempt may succeed. Throws
  /// Error if none may. A process that has missed restarts takes their number.
  std::optional<Membership> hear(bool refused, const std::string &text,
                                 std::string &problem);

private:
  const Rendezvous &at;
  uint64_t restart;
  Contact contact;
};

/// "alpha:29500", "[fd00::1]:29500": where a rendezvous is.
std::string placeOf(const Rendezvous &at);

} // namespace grt

#endif // GRT_COMM_ARRIVALS_H
