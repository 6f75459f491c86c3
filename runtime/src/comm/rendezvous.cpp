//===- rendezvous.cpp - Processes meet at an address ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/rendezvous.h"
#include "base/error.h"
#include "comm/arrivals.h"
#include "comm/launch.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <unistd.h>
#include <unordered_map>

namespace grt {
namespace {

constexpr auto connectTime = std::chrono::seconds(5);
/// Time to connect to a port that process 0 need not have.
constexpr auto otherConnectTime = std::chrono::seconds(1);

/// The addresses of a listener, without its ports, separated by commas.
std::string placesOf(const Listener &listener) {
  std::string places;
  for (const Endpoint &endpoint : listener.endpoints()) {
    const std::string text = endpoint.text();
    places += (places.empty() ? "" : ",") + text.substr(0, text.rfind(':'));
  }
  return places;
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

bool isInUse(const std::string &problem) {
  return problem.find("in use") != std::string::npos;
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
    else if (isInUse(text))
      text += "; another program has it: choose another MASTER_PORT, or "
              "GRT_RENDEZVOUS_PORT for all processes";
    throw Error(error.exitCode(), text);
  }
}

/// Sockets of those that have come.
class Guests : public ArrivalsEnvironment {
public:
  explicit Guests(const Trust &trust) : trust(trust) {}

  int add(Guest guest) {
    guests.emplace(++last, std::move(guest));
    return last;
  }
  bool isThere(int guest) override {
    auto at = guests.find(guest);
    if (at != guests.end() && at->second.isThere())
      return true;
    if (at != guests.end())
      guests.erase(at);
    return false;
  }
  void answer(int guest, bool refused, const std::string &text) override {
    auto at = guests.find(guest);
    if (at == guests.end())
      return;
    grt::answer(trust, at->second, refused, text, Clock::now() + connectTime);
    guests.erase(at);
  }

private:
  const Trust &trust;
  std::unordered_map<int, Guest> guests;
  int last = 0;
};

/// Listens at the first port that no other program has, which becomes `port`.
std::unique_ptr<Listener> listenForAll(Rendezvous &at) {
  for (size_t left = at.otherPorts.size();; --left) {
    const std::vector<Endpoint> endpoints = ownEndpoints(at);
    checkTrust(at, endpoints);
    try {
      return listenForAll(at, endpoints);
    } catch (const Error &error) {
      if (!left || !isInUse(error.what()))
        throw;
      at.port = at.otherPorts[at.otherPorts.size() - left];
    }
  }
}

Membership gather(Rendezvous at) {
  // Arriving processes keep their connections until all have come.
  allowConnections(size_t(at.size), "while the others come");
  std::unique_ptr<Listener> listener = listenForAll(at);
  Guests guests(listener->trust());
  Arrivals arrivals(at, guests, Clock::now());
  for (Arrivals::State state;
       (state = arrivals.look(Clock::now())) != Arrivals::State::Complete;) {
    if (state == Arrivals::State::Late)
      fail(ExitPeerLost, arrivals.refuseAll(listener->dropped().text()));
    if (std::optional<Guest> guest = listener->next(arrivals.wakeAt())) {
      std::string claim = guest->claim;
      arrivals.take(guests.add(std::move(*guest)), claim);
    }
  }

  Membership membership;
  std::vector<Endpoint> places;
  for (Endpoint endpoint : listener->endpoints()) {
    endpoint.port = 0;
    places.push_back(endpoint);
  }
  membership.places = placesOf(*listener);
  membership.listener = std::make_unique<Listener>(places);
  const std::string session = newSession();
  membership.key = sessionKey(at, session);
  membership.size = arrivals.size();
  membership.contacts =
      arrivals.begin(session, contactOf(*membership.listener));
  return membership;
}

//===----------------------------------------------------------------------===//
// Everyone else
//===----------------------------------------------------------------------===//

/// Tries to join once at one address; returns nothing and the reason in
/// `problem` if another attempt may succeed.
std::optional<Membership> tryMeet(const Rendezvous &at, Newcomer &newcomer,
                                  const Endpoint &to, Deadline deadline,
                                  bool &connected, std::string &problem) {
  const auto time = to.port == at.port ? Clock::duration(connectTime)
                                       : Clock::duration(otherConnectTime);
  Socket socket =
      connectTo(to, std::min(deadline, Clock::now() + time), problem);
  connected = bool(socket);
  if (!socket)
    return std::nullopt;
  Endpoint here = localEndpoint(socket);
  here.port = 0;
  std::vector<Endpoint> listen = {here};
  if (!at.listen.empty())
    listen = listenEndpoints(at.listen, 0);
  checkTrust(at, listen);
  auto listener = std::make_unique<Listener>(listen);
  std::string text;
  // Process 0 answers when all have come, or at its own deadline.
  Attempt attempt = introduce(
      {at.secret, "rendezvous"}, socket, newcomer.claim(contactOf(*listener)),
      newcomer.longestAnswer(), deadline + connectTime, text, problem);
  if (attempt == Attempt::Failed)
    return std::nullopt;
  std::optional<Membership> membership =
      newcomer.hear(attempt == Attempt::Refused, text, problem);
  if (membership) {
    membership->places = placesOf(*listener);
    membership->listener = std::move(listener);
  }
  return membership;
}

Membership comeTo(const Rendezvous &at, Deadline deadline) {
  Newcomer newcomer(at);
  // The message at the end names what went wrong last at the first address, and
  // the last answer of a listener there, if there was one.
  std::string last, heard;
  while (true) {
    // The name may not be known yet where machines start together.
    std::vector<Endpoint> endpoints = resolve(at.address, at.port, last);
    checkTrust(at, endpoints);
    for (const size_t own = endpoints.size(); uint16_t port : at.otherPorts)
      for (size_t i = 0; i < own; ++i) {
        endpoints.push_back(endpoints[i]);
        endpoints.back().port = port;
      }
    for (const Endpoint &endpoint : endpoints) {
      bool connected = false;
      std::string problem;
      if (std::optional<Membership> membership =
              tryMeet(at, newcomer, endpoint, deadline, connected, problem))
        return std::move(*membership);
      // A listener that only ended does not replace its earlier answer.
      if (connected && (heard.empty() || problem != saidNothing))
        heard = problem;
      if (endpoint == endpoints.front())
        last = problem;
    }
    if (millisecondsLeft(deadline) == 0)
      fail(ExitPeerLost,
           "process " + str(at.rank) + " did not meet process 0 at " +
               placeOf(at) + " within " + secondsText(at.seconds) + ": " +
               last +
               (heard.empty() || heard == last ? "" : "; before: " + heard));
    usleep(100000);
  }
}

const char *variable(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

int number(const char *name, int least, int most) {
  return wholeNumber(name, variable(name), least, most);
}

} // namespace

std::optional<Rendezvous> rendezvousOfEnvironment() {
  const Launch launch = launchOfEnvironment();
  if (!launch.joinsByTcp())
    return std::nullopt;
  Rendezvous at;
  at.size = launch.size->value;
  at.rank = launch.number();
  at.address = launch.address;
  if (const char *run = variable("TORCHELASTIC_RUN_ID"))
    at.run = run;
  if (const char *ports = variable("GRT_RENDEZVOUS_PORT")) {
    std::istringstream list(std::string(ports) + ","); // ends the last one
    for (std::string port; std::getline(list, port, ',');)
      at.otherPorts.push_back(
          uint16_t(wholeNumber("GRT_RENDEZVOUS_PORT", port.c_str(), 1, 65535)));
    at.port = at.otherPorts.front();
    at.otherPorts.erase(at.otherPorts.begin());
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
  Membership membership;
  if (at.size == 1)
    membership.contacts[0] = {};
  else if (at.rank == 0)
    membership = gather(at);
  else
    membership = comeTo(at, after(at.seconds));
  if (membership.listener)
    membership.listener->setTrust(
        {membership.key, meshPurpose(membership.rank)});
  return membership;
}

} // namespace grt
