//===- rendezvous.cpp - Processes meet at an address ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/rendezvous.h"
#include "comm/secret.h"
#include "comm/tree.h"
#include "core/error.h"
#include "core/init.h"
#include "core/random.h"
#include "grt/processes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <unistd.h>

namespace grt {
namespace {

/// What a process claims to be. Its size is part of the protocol.
struct Claim {
  uint64_t run = 0, restart = 0;
  int32_t rank = 0, size = 0;
  Contact contact;
};
static_assert(std::is_trivially_copyable_v<Claim>);

/// What process 0 tells everyone, before the contacts: what makes the key of
/// this attempt, and the numbers of the process and of all.
constexpr size_t sessionBytes = 32;
struct Place {
  int32_t rank = 0, size = 0;
};
constexpr size_t headBytes = sessionBytes + sizeof(Place);

/// How a refusal begins: the process does not belong to this run; process 0 is
/// left over from an earlier attempt; some process has not come; the process
/// has missed restarts (their number follows, before a blank); the run goes on
/// with fewer.
constexpr char never = 'n', notYet = 'y', alone = 'a', behind = 'b',
               spare = 's';
constexpr size_t longestReason = 4096;

constexpr auto connectTime = std::chrono::seconds(5);

std::string place(const Rendezvous &at) {
  bool wide =
      at.address.find(':') != std::string::npos && at.address.front() != '[';
  return (wide ? "[" + at.address + "]" : at.address) + ":" + str(at.port);
}

/// The processes that another one connects to as soon as all have met.
std::vector<int> lowerNeighbours(int rank, int size) {
  std::vector<int> ranks = treeNeighbours(rank, size);
  std::erase_if(ranks, [&](int other) { return other > rank; });
  return ranks;
}

std::string sessionKey(const Rendezvous &at, std::string_view session) {
  return authenticationCode(at.secret, "session " + std::string(session));
}

/// Refuses to meet where strangers could come too.
void checkTrust(const Rendezvous &at, const std::vector<Endpoint> &endpoints) {
  if (!at.secret.empty())
    return;
  for (const Endpoint &endpoint : endpoints)
    if (!endpoint.isLoopback())
      invalid("process " + str(at.rank) + " would meet the others at " +
              (endpoint.isAny() ? "every address of this machine"
                                : endpoint.text()) +
              ", where other machines can come too, without a secret: make one "
              "with (umask 077; head -c 32 /dev/urandom | base64 > secret), "
              "and give it to every process by --launch-secret=secret or "
              "GALVATRON_LAUNCH_SECRET");
}

//===----------------------------------------------------------------------===//
// Process 0
//===----------------------------------------------------------------------===//

std::vector<Endpoint> ownEndpoints(const Rendezvous &at) {
  if (!at.listen.empty())
    return listenEndpoints(at.listen, at.port);
  std::string problem;
  std::vector<Endpoint> endpoints = resolve(at.address, at.port, problem);
  if (endpoints.empty())
    fail("process 0 cannot listen at '" + at.address + "': " + problem);
  return endpoints;
}

std::unique_ptr<Listener> listenForAll(const Rendezvous &at,
                                       const std::vector<Endpoint> &endpoints) {
  try {
    return std::make_unique<Listener>(endpoints,
                                      Trust{at.secret, "rendezvous"});
  } catch (const Error &error) {
    std::string text = std::string("process 0 ") + error.what();
    if (error.exitCode() == 2)
      text += "; --listen=ADDRESS (or GRT_LISTEN) names one that MASTER_ADDR "
              "stands for";
    else if (text.find("in use") != std::string::npos)
      text += "; another program has it: choose another MASTER_PORT, or "
              "GRT_RENDEZVOUS_PORT for all processes";
    throw Error(error.exitCode(), text);
  }
}

/// The processes that have come to process 0.
class Arrivals {
public:
  Arrivals(const Rendezvous &at, Listener &listener, uint64_t run)
      : at(at), listener(listener), run(run), restart(at.restart),
        guests(size_t(at.size)), contacts(size_t(at.size)) {}

  void put(const Contact &own) { contacts[0] = own; }

  /// Takes a guest in, or tells it why not; whoever comes, the others go on.
  void take(Guest guest) {
    Claim claim;
    if (guest.claim.size() != sizeof(claim))
      return;
    std::memcpy(static_cast<void *>(&claim), guest.claim.data(), sizeof(claim));
    if (claim.contact.count > Listener::mostEndpoints)
      return;
    std::string who = "the process with RANK=" + str(claim.rank);
    if (claim.run != run)
      return refuse(guest, never,
                    "another run meets at " + place(at) +
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
    std::optional<Guest> &held = guests[size_t(claim.rank)];
    if (held && held->isThere())
      return note(guest, "two processes have RANK=" + str(claim.rank));
    held = std::move(guest);
    contacts[size_t(claim.rank)] = claim.contact;
  }

  /// Ranks that have not come, or have gone again.
  std::vector<int> missing() {
    std::vector<int> ranks;
    for (int rank = 1; rank < at.size; ++rank) {
      std::optional<Guest> &held = guests[size_t(rank)];
      if (held && !held->isThere())
        held.reset();
      if (!held)
        ranks.push_back(rank);
    }
    return ranks;
  }

  void refuseAll(const std::string &text) {
    for (const std::optional<Guest> &guest : guests)
      if (guest)
        answer(listener.trust(), *guest, /*refused=*/true, text,
               Clock::now() + connectTime);
  }

  /// Begins the run with `size` processes: those that came first in the order
  /// of their numbers, and this one. Returns Membership::contacts.
  std::vector<Contact> begin(int size, const std::string &session) {
    std::vector<int> ranks = {0};
    for (int rank = 1; rank < at.size; ++rank)
      if (guests[size_t(rank)])
        ranks.push_back(rank);
    std::vector<Contact> chosen;
    for (int i = 0; i < size; ++i)
      chosen.push_back(contacts[size_t(ranks[size_t(i)])]);
    for (size_t i = 1; i < ranks.size(); ++i) {
      bool belongs = int(i) < size;
      std::vector<Contact> told;
      if (belongs)
        for (int neighbour : lowerNeighbours(int(i), size))
          told.push_back(chosen[size_t(neighbour)]);
      Place place{int32_t(i), size};
      std::string text =
          belongs
              ? session +
                    std::string(reinterpret_cast<const char *>(&place),
                                sizeof(place)) +
                    encode(told)
              : spare + str(ranks.size()) + " of " + str(at.size) +
                    " processes came, and the run goes on with " + str(size);
      answer(listener.trust(), *guests[size_t(ranks[i])], !belongs, text,
             Clock::now() + connectTime);
    }
    for (size_t i = 1; i < chosen.size(); ++i)
      chosen[i] = {};
    return chosen;
  }
  /// Those that were told why not, for a message.
  const std::string &turnedAway() const { return notes; }

private:
  void refuse(const Guest &guest, char kind, const std::string &why) {
    answer(listener.trust(), guest, /*refused=*/true, kind + why,
           Clock::now() + connectTime);
  }
  /// Refuses, and remembers why for when some do not come.
  void note(const Guest &guest, const std::string &why) {
    refuse(guest, never, why);
    if (notes.find(why) == std::string::npos && notes.size() < 500)
      notes += "; " + why;
  }

  const Rendezvous &at;
  Listener &listener;
  const uint64_t run;
  uint64_t restart;
  std::vector<std::optional<Guest>> guests;
  std::vector<Contact> contacts;
  std::string notes;
};

Membership gather(const Rendezvous &at, const Claim &own, Deadline deadline) {
  std::vector<Endpoint> endpoints = ownEndpoints(at);
  checkTrust(at, endpoints);
  std::unique_ptr<Listener> listener = listenForAll(at, endpoints);
  Arrivals arrivals(at, *listener, own.run);
  Deadline grace = std::min(deadline, after(at.graceSeconds));
  int size = at.size;
  for (std::vector<int> missing = arrivals.missing(); !missing.empty();
       missing = arrivals.missing()) {
    int came = at.size - int(missing.size());
    bool isLate = millisecondsLeft(deadline) == 0;
    if (!at.smaller.empty() && millisecondsLeft(grace) == 0) {
      size = 0;
      for (int smaller : at.smaller)
        if (smaller <= came)
          size = std::max(size, smaller);
      if (size)
        break;
      size = at.size;
    }
    if (!isLate) {
      bool inGrace = !at.smaller.empty() && millisecondsLeft(grace) > 0;
      if (std::optional<Guest> guest =
              listener->next(inGrace ? grace : deadline))
        arrivals.take(std::move(*guest));
      continue;
    }
    std::string ranks;
    for (int rank : missing)
      ranks += (ranks.empty() ? "" : ", ") + str(rank);
    std::string why = str(missing.size()) + " of " + str(at.size) +
                      " processes did not come to " + place(at) + " within " +
                      secondsText(at.seconds) + ": missing RANK " + ranks +
                      arrivals.turnedAway() + listener->dropped().text();
    arrivals.refuseAll(alone + why.substr(0, longestReason - 1));
    fail(ExitPeerLost, why);
  }

  Membership membership;
  std::vector<Endpoint> places;
  for (Endpoint endpoint : listener->endpoints()) {
    endpoint.port = 0;
    places.push_back(endpoint);
    std::string text = endpoint.text();
    text = text.substr(0, text.rfind(':'));
    membership.places += (membership.places.empty() ? "" : ",") + text;
  }
  membership.listener = std::make_unique<Listener>(places);
  arrivals.put(contactOf(*membership.listener));
  std::string session = randomBytes(sessionBytes);
  membership.key = sessionKey(at, session);
  membership.size = size;
  membership.contacts = arrivals.begin(size, session);
  return membership;
}

//===----------------------------------------------------------------------===//
// Everyone else
//===----------------------------------------------------------------------===//

/// One attempt at one address; nothing and the reason in `problem` if another
/// may succeed. An attempt that has missed restarts takes their number.
std::optional<Membership> tryMeet(const Rendezvous &at, Claim &own,
                                  const Endpoint &to, Deadline deadline,
                                  bool &connected, std::string &problem) {
  Socket socket =
      connectTo(to, std::min(deadline, Clock::now() + connectTime), problem);
  connected = bool(socket);
  if (!socket)
    return std::nullopt;
  Membership membership;
  Endpoint here = localEndpoint(socket);
  here.port = 0;
  std::vector<Endpoint> listen = {here};
  if (!at.listen.empty())
    listen = listenEndpoints(at.listen, 0);
  checkTrust(at, listen);
  membership.listener = std::make_unique<Listener>(listen);
  own.contact = contactOf(*membership.listener);
  size_t most = headBytes + size_t(at.size) * (1 + sizeof(Contact));
  std::string claim(reinterpret_cast<const char *>(&own), sizeof(own)), text;
  // Process 0 answers when all have come, or at its own deadline.
  switch (introduce({at.secret, "rendezvous"}, socket, claim,
                    std::max(longestReason, most), deadline + connectTime, text,
                    problem)) {
  case Attempt::Failed:
    return std::nullopt;
  case Attempt::Refused: {
    char kind = text.empty() ? never : text[0];
    problem = text.empty() ? "process 0 refuses" : text.substr(1);
    if (kind == behind) {
      char *rest = nullptr;
      uint64_t restart = std::strtoull(problem.c_str(), &rest, 10);
      problem = *rest ? rest + 1 : "";
      if (at.catchesUp && restart > own.restart) {
        own.restart = restart;
        return std::nullopt;
      }
    }
    if (kind == spare)
      throw Error(exitSpare, problem);
    if (kind != notYet)
      fail(kind == alone ? ExitPeerLost : ExitInvalid, problem);
    return std::nullopt;
  }
  case Attempt::Done:
    break;
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
  membership.key = sessionKey(at, text.substr(0, sessionBytes));
  membership.rank = given.rank;
  membership.size = given.size;
  membership.contacts.resize(size_t(given.size));
  for (size_t i = 0; i < neighbours.size(); ++i)
    membership.contacts[size_t(neighbours[i])] = (*contacts)[i];
  membership.contacts[size_t(given.rank)] = own.contact;
  return membership;
}

Membership comeTo(const Rendezvous &at, Claim own, Deadline deadline) {
  // What is said at the end: what went wrong last at the first address, and
  // what whoever listened there made of it, if somebody did.
  std::string last, heard;
  while (true) {
    // The name may not be known yet where machines start together.
    std::vector<Endpoint> endpoints = resolve(at.address, at.port, last);
    checkTrust(at, endpoints);
    for (const Endpoint &endpoint : endpoints) {
      bool connected = false;
      std::string problem;
      if (std::optional<Membership> membership =
              tryMeet(at, own, endpoint, deadline, connected, problem))
        return std::move(*membership);
      if (connected)
        heard = problem;
      if (endpoint == endpoints.front())
        last = problem;
    }
    if (millisecondsLeft(deadline) == 0)
      fail(ExitPeerLost,
           "process " + str(at.rank) + " did not meet process 0 at " +
               place(at) + " within " + secondsText(at.seconds) + ": " + last +
               (heard.empty() || heard == last ? "" : "; before: " + heard));
    usleep(100000);
  }
}

const char *variable(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

/// A whole number in [least, most].
int number(const char *name, int least, int most) {
  const char *text = variable(name);
  char *end = nullptr;
  long value = text ? std::strtol(text, &end, 10) : 0;
  if (!text || *end || value < least || value > most)
    invalid(std::string(name) + ": expected a whole number from " +
            std::to_string(least) + " to " + std::to_string(most) + ", found " +
            (text ? "'" + std::string(text) + "'" : "nothing"));
  return int(value);
}

} // namespace

std::optional<Rendezvous> rendezvousOfEnvironment() {
  if (!variable("MASTER_ADDR") || !variable("WORLD_SIZE"))
    return std::nullopt;
  Rendezvous at;
  at.size = number("WORLD_SIZE", 1, 1 << 16);
  at.rank = number("RANK", 0, at.size - 1);
  at.address = variable("MASTER_ADDR");
  if (const char *run = variable("TORCHELASTIC_RUN_ID"))
    at.run = run;
  if (variable("GRT_RENDEZVOUS_PORT")) {
    at.port = uint16_t(number("GRT_RENDEZVOUS_PORT", 1, 65535));
  } else {
    // torchrun's agent may listen at the port itself.
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    bool taken = agent && std::string(agent) == "True";
    at.port = uint16_t(number("MASTER_PORT", 1, 65535 - taken) + taken);
  }
  if (variable("GRT_RENDEZVOUS_SECONDS"))
    at.seconds = number("GRT_RENDEZVOUS_SECONDS", 1, 86400);
  if (variable("TORCHELASTIC_RESTART_COUNT"))
    at.restart = uint64_t(number("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30));
  if (variable("GRT_ELASTIC_SECONDS"))
    at.graceSeconds = number("GRT_ELASTIC_SECONDS", 0, 86400);
  if (const char *places = variable("GRT_LISTEN"))
    at.listen = places;
  return at;
}

std::string meshPurpose(int rank) { return "process " + str(rank); }

Membership joinRun(const Rendezvous &at) {
  Claim claim;
  claim.run = hashName(at.run);
  claim.restart = at.restart;
  claim.rank = at.rank;
  claim.size = at.size;
  Membership membership;
  if (at.size == 1)
    membership.contacts.resize(1);
  else if (at.rank == 0)
    membership = gather(at, claim, after(at.seconds));
  else
    membership = comeTo(at, claim, after(at.seconds));
  if (membership.listener)
    membership.listener->setTrust(
        {membership.key, meshPurpose(membership.rank)});
  return membership;
}

} // namespace grt
