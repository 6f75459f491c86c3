//===- arrivals.cpp - Who has come to process 0 ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/arrivals.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "comm/secret.h"
#include "comm/tree.h"
#include "grt/processes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace grt {
namespace {

/// The run, restart and rank that a process claims to have, and its contact.
/// Its size is part of the protocol.
struct Claim {
  uint64_t run = 0, restart = 0;
  int32_t rank = 0, size = 0;
  Contact contact;
};
static_assert(std::is_trivially_copyable_v<Claim>);

/// Head of process 0's answer, before the contacts: the session, from which the
/// key of this attempt is made, and the rank of the process and the run's size.
constexpr size_t sessionBytes = 32;
struct Place {
  int32_t rank = 0, size = 0;
};
constexpr size_t headBytes = sessionBytes + sizeof(Place);

/// First character of a refusal, its kind: the process does not belong to this
/// run; process 0 is left over from an earlier attempt; some process has not
/// come; the process has missed restarts (their number follows, before a
/// blank); another run meets at this place; the run goes on with fewer.
constexpr char never = 'n', notYet = 'y', alone = 'a', behind = 'b',
               other = 'o', spare = 's';
constexpr size_t longestReason = 4096;
/// Ranks that are missing are named up to here; more would hide the reasons.
constexpr size_t mostRanks = 1000;
constexpr size_t longestNotes = 500;

} // namespace

std::string placeOf(const Rendezvous &at) {
  bool wide =
      at.address.find(':') != std::string::npos && at.address.front() != '[';
  return (wide ? "[" + at.address + "]" : at.address) + ":" + str(at.port);
}

std::vector<int> lowerNeighbours(int rank, int size) {
  std::vector<int> ranks = treeNeighbours(rank, size);
  std::erase_if(ranks, [&](int other) { return other > rank; });
  return ranks;
}

std::string newSession() { return randomBytes(sessionBytes); }

std::string sessionKey(const Rendezvous &at, std::string_view session) {
  return authenticationCode(at.secret, "session " + std::string(session));
}

//===----------------------------------------------------------------------===//
// Process 0
//===----------------------------------------------------------------------===//

Arrivals::Arrivals(const Rendezvous &at, ArrivalsEnvironment &around,
                   Clock::time_point now)
    : at(at), around(around), run(hashName(at.run)),
      deadline(now + std::chrono::milliseconds(int64_t(at.seconds * 1e3))),
      grace(std::min(deadline, now + std::chrono::milliseconds(
                                         int64_t(at.graceSeconds * 1e3)))),
      restart(at.restart), chosenSize(at.size), guests(size_t(at.size)),
      contacts(size_t(at.size)) {}

void Arrivals::take(int guest, std::string_view text) {
  Claim claim;
  if (text.size() == sizeof(claim))
    std::memcpy(static_cast<void *>(&claim), text.data(), sizeof(claim));
  if (text.size() != sizeof(claim) ||
      claim.contact.count > Listener::mostEndpoints)
    return refuse(guest, never, "the claim is of another protocol");
  std::string who = "the process with RANK=" + str(claim.rank);
  if (claim.run != run)
    return refuse(guest, other,
                  "another run meets at " + placeOf(at) +
                      ": choose another MASTER_PORT");
  if (at.catchesUp)
    restart = std::max(restart, claim.restart);
  if (claim.restart != restart)
    return refuse(guest, claim.restart > restart ? notYet : behind,
                  (claim.restart > restart ? "" : str(restart) + " ") + who +
                      " is of restart " + str(claim.restart) +
                      ", process 0 of restart " + str(restart));
  if (claim.size != at.size || claim.rank < 1 || claim.rank >= at.size)
    return note(guest, who + " has WORLD_SIZE=" + str(claim.size) +
                           ", process 0 has " + str(at.size));
  std::optional<int> &held = guests[size_t(claim.rank)];
  if (held && around.isThere(*held))
    return note(guest, "two processes have RANK=" + str(claim.rank));
  came += !held;
  held = guest;
  contacts[size_t(claim.rank)] = claim.contact;
}

/// True if the run may shrink: never on the first attempt, where late processes
/// may still be starting.
bool Arrivals::mayBeFewer() const { return !at.smaller.empty() && restart > 0; }

/// Looks at all that have come, which takes a system call each: only when that
/// decides something.
bool Arrivals::dropThoseGone() {
  const int before = came;
  for (std::optional<int> &held : guests)
    if (held && !around.isThere(*held)) {
      held.reset();
      --came;
    }
  return came < before;
}

Arrivals::State Arrivals::look(Clock::time_point now) {
  lastLook = now;
  const bool isLate = now >= deadline;
  const bool chooses = mayBeFewer() && now >= grace;
  if ((came == at.size || chooses || isLate))
    dropThoseGone();
  if (came == at.size)
    return State::Complete;
  if (chooses) {
    int most = 0;
    for (int smaller : at.smaller)
      if (smaller <= came)
        most = std::max(most, smaller);
    if (most) {
      chosenSize = most;
      return State::Complete;
    }
  }
  return isLate ? State::Late : State::Waiting;
}

Clock::time_point Arrivals::wakeAt() const {
  return mayBeFewer() && lastLook < grace ? grace : deadline;
}

std::string Arrivals::refuseAll(const std::string &more) {
  std::string ranks;
  size_t missing = 0;
  for (int rank = 1; rank < at.size; ++rank)
    if (!guests[size_t(rank)]) {
      ++missing;
      if (ranks.size() < mostRanks)
        ranks += (ranks.empty() ? "" : ", ") + str(rank);
      else if (!ranks.ends_with(", ..."))
        ranks += ", ...";
    }
  std::string why = str(missing) + " of " + str(at.size) +
                    " processes did not come to " + placeOf(at) + " within " +
                    secondsText(at.seconds) + ": missing RANK " + ranks +
                    notes + more;
  for (std::optional<int> &guest : guests)
    if (guest)
      around.answer(*std::exchange(guest, std::nullopt), /*refused=*/true,
                    alone + why.substr(0, longestReason - 1));
  return why;
}

std::map<int, Contact> Arrivals::begin(const std::string &session,
                                       const Contact &own) {
  contacts[0] = own;
  std::vector<int> ranks = {0};
  for (int rank = 1; rank < at.size; ++rank)
    if (guests[size_t(rank)])
      ranks.push_back(rank);
  std::vector<Contact> chosen;
  for (int i = 0; i < chosenSize; ++i)
    chosen.push_back(contacts[size_t(ranks[size_t(i)])]);
  for (size_t i = 1; i < ranks.size(); ++i) {
    bool belongs = int(i) < chosenSize;
    std::vector<Contact> told;
    if (belongs)
      for (int neighbour : lowerNeighbours(int(i), chosenSize))
        told.push_back(chosen[size_t(neighbour)]);
    Place place{int32_t(i), chosenSize};
    std::string text =
        belongs ? session +
                      std::string(reinterpret_cast<const char *>(&place),
                                  sizeof(place)) +
                      encode(told)
                : spare + str(ranks.size()) + " of " + str(at.size) +
                      " processes came, and the run goes on with " +
                      str(chosenSize);
    around.answer(*std::exchange(guests[size_t(ranks[i])], std::nullopt),
                  !belongs, text);
  }
  return {{0, own}};
}

void Arrivals::refuse(int guest, char kind, const std::string &why) {
  around.answer(guest, /*refused=*/true, kind + why);
}

/// Refuses, and remembers why for when some do not come.
void Arrivals::note(int guest, const std::string &why) {
  refuse(guest, never, why);
  if (notes.find(why) == std::string::npos && notes.size() < longestNotes)
    notes += "; " + why;
}

//===----------------------------------------------------------------------===//
// Everyone else
//===----------------------------------------------------------------------===//

Newcomer::Newcomer(const Rendezvous &at) : at(at), restart(at.restart) {}

std::string Newcomer::claim(const Contact &own) {
  contact = own;
  Claim claim;
  claim.run = hashName(at.run);
  claim.restart = restart;
  claim.rank = at.rank;
  claim.size = at.size;
  claim.contact = own;
  return std::string(reinterpret_cast<const char *>(&claim), sizeof(claim));
}

size_t Newcomer::longestAnswer() const {
  return std::max(longestReason,
                  headBytes + size_t(at.size) * (1 + sizeof(Contact)));
}

std::optional<Membership> Newcomer::hear(bool refused, const std::string &text,
                                         std::string &problem) {
  if (refused) {
    char kind = text.empty() ? never : text[0];
    problem = text.empty() ? "process 0 refuses" : text.substr(1);
    if (kind == behind) {
      char *rest = nullptr;
      uint64_t theirs = std::strtoull(problem.c_str(), &rest, 10);
      problem = *rest ? rest + 1 : "";
      if (at.catchesUp && theirs > restart) {
        restart = theirs;
        return std::nullopt;
      }
    }
    if (kind == spare)
      throw Error(exitSpare, problem);
    // Process 0 of this run is at one of the other ports.
    if (kind == other && !at.otherPorts.empty())
      return std::nullopt;
    if (kind != notYet)
      fail(kind == alone ? ExitPeerLost : ExitInvalid, problem);
    return std::nullopt;
  }
  std::optional<std::vector<Contact>> contacts;
  Place given;
  if (text.size() > headBytes)
    std::memcpy(&given, text.data() + sessionBytes, sizeof(given));
  std::vector<int> neighbours;
  if (given.rank > 0 && given.rank < given.size && given.size <= at.size) {
    neighbours = lowerNeighbours(given.rank, given.size);
    contacts = decodeContacts(std::string_view(text).substr(headBytes),
                              neighbours.size());
  }
  if (!contacts) {
    problem = "process 0 answered with " + str(text.size()) + " bytes";
    return std::nullopt;
  }
  Membership membership;
  membership.key = sessionKey(at, text.substr(0, sessionBytes));
  membership.rank = given.rank;
  membership.size = given.size;
  for (size_t i = 0; i < neighbours.size(); ++i)
    membership.contacts[neighbours[i]] = (*contacts)[i];
  membership.contacts[given.rank] = contact;
  return membership;
}

} // namespace grt
