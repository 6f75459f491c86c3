//===- handshake.cpp - Connections between those that share a key ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/handshake.h"
#include "base/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace grt {
namespace {

/// Accepted in a row before those that are open get their turn.
constexpr int mostAccepted = 64;

/// Sockets as Receptions uses them.
class SocketStreams : public Streams {
public:
  ssize_t send(int descriptor, std::string_view bytes) override {
    return ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ssize_t receive(int descriptor, char *to, size_t bytes) override {
    return ::recv(descriptor, to, bytes, 0);
  }
  void close(int descriptor) override { ::close(descriptor); }
};
SocketStreams socketStreams;

std::string claimOf(int32_t number) {
  return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
}

} // namespace

bool Guest::isThere() const {
  char byte;
  ssize_t got = ::recv(socket.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool answer(const Trust &trust, const Guest &guest, bool refused,
            std::string_view text, Deadline deadline) {
  return sendAll(guest.socket,
                 answerBytes(trust, guest.transcript, refused, text), deadline);
}

//===----------------------------------------------------------------------===//
// The side that listens
//===----------------------------------------------------------------------===//

Listener::Listener(const std::vector<Endpoint> &at, Trust trust)
    : shared(std::move(trust)), receptions(socketStreams, shared) {
  std::string missing;
  for (const Endpoint &endpoint : at) {
    int problem = 0;
    Socket socket = listenAt(endpoint, problem);
    if (!socket && (problem == EADDRNOTAVAIL || problem == EAFNOSUPPORT)) {
      missing += (missing.empty() ? "" : ", ") + endpoint.text();
      continue;
    }
    if (!socket)
      fail("cannot listen at " + endpoint.text() + ": " + strerror(problem));
    Endpoint taken = localEndpoint(socket);
    listening.push_back(std::move(socket));
    std::vector<Endpoint> found = {taken};
    if (endpoint.isAny())
      found = machineEndpoints(taken.port);
    for (const Endpoint &each : found)
      if (reachable.size() < mostEndpoints)
        reachable.push_back(each);
  }
  if (listening.empty())
    invalid("cannot listen at " + missing + ": no address of this machine");
}

Listener::~Listener() = default;

void Listener::acceptSome(const Socket &socket) {
  for (int i = 0; i < mostAccepted; ++i) {
    Socket accepted(::accept4(socket.descriptor(), nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      if (errno == ECONNABORTED || errno == EINTR)
        continue;
      // The oldest handshake gives up its descriptor if there are no others.
      if ((errno == EMFILE || errno == ENFILE) && receptions.dropOldest())
        continue;
      // The loop over what is open must not spin on what cannot be opened.
      if (errno != EAGAIN)
        usleep(10000);
      return;
    }
    receptions.admit(accepted.release(), Clock::now());
  }
}

std::optional<Guest> Listener::advance() {
  std::optional<Receptions::Proven> proven = receptions.advance(Clock::now());
  if (!proven)
    return std::nullopt;
  return Guest{Socket(proven->descriptor), std::move(proven->claim),
               std::move(proven->transcript)};
}

void Listener::addPolled(std::vector<pollfd> &polled) const {
  for (const Socket &socket : listening)
    polled.push_back({socket.descriptor(), POLLIN, 0});
  receptions.forEach([&](int descriptor, bool sends) {
    polled.push_back({descriptor, short(sends ? POLLOUT : POLLIN), 0});
  });
}

void Listener::accept(std::span<const pollfd> polled) {
  for (size_t i = 0; i < listening.size(); ++i)
    if (polled[i].revents)
      acceptSome(listening[i]);
}

std::optional<Guest> Listener::next(Deadline deadline) {
  std::vector<pollfd> polled;
  while (true) {
    if (std::optional<Guest> guest = advance())
      return guest;
    int left = millisecondsLeft(deadline);
    if (left == 0)
      return std::nullopt;
    polled.clear();
    addPolled(polled);
    // poll() returns some times a second, for handshakes that are late.
    ::poll(polled.data(), polled.size(), std::min(left, 200));
    accept(polled);
  }
}

//===----------------------------------------------------------------------===//
// The side that connects
//===----------------------------------------------------------------------===//

Attempt introduce(const Trust &trust, const Socket &socket,
                  std::string_view claim, size_t longest, Deadline deadline,
                  std::string &text, std::string &problem) {
  ConnectingSide side(trust, claim, longest);
  Deadline soon = std::min(deadline, Clock::now() + Receptions::patience);
  std::string bytes;
  while (sendAll(socket, std::exchange(side.outgoing, {}), soon)) {
    bytes.resize(side.wanted());
    if (!receiveAll(socket, bytes.data(), bytes.size(),
                    side.isChallenged() ? deadline : soon))
      break;
    switch (side.received(bytes)) {
    case ConnectingSide::State::Open:
      continue;
    case ConnectingSide::State::Answered:
      text = side.text();
      return side.isRefused() ? Attempt::Refused : Attempt::Done;
    case ConnectingSide::State::Failed:
      break;
    }
    break;
  }
  problem = side.problem();
  return Attempt::Failed;
}

//===----------------------------------------------------------------------===//
// Processes with numbers
//===----------------------------------------------------------------------===//

Contact contactOf(const Listener &listener) {
  Contact contact;
  for (const Endpoint &endpoint : listener.endpoints())
    contact.endpoints[contact.count++] = endpoint;
  return contact;
}

std::string encode(const std::vector<Contact> &contacts) {
  std::string bytes;
  for (const Contact &contact : contacts) {
    bytes += char(contact.count);
    bytes.append(reinterpret_cast<const char *>(contact.endpoints),
                 contact.count * sizeof(Endpoint));
  }
  return bytes;
}

std::optional<std::vector<Contact>> decodeContacts(std::string_view bytes,
                                                   size_t count) {
  std::vector<Contact> contacts(count);
  for (Contact &contact : contacts) {
    if (bytes.empty())
      return std::nullopt;
    contact.count = uint8_t(bytes[0]);
    size_t length = contact.count * sizeof(Endpoint);
    if (contact.count > Listener::mostEndpoints || bytes.size() - 1 < length)
      return std::nullopt;
    std::memcpy(static_cast<void *>(contact.endpoints), bytes.data() + 1,
                length);
    bytes.remove_prefix(1 + length);
  }
  return bytes.empty() ? std::optional(std::move(contacts)) : std::nullopt;
}

std::optional<int> numberOf(const Guest &guest) {
  int32_t number = 0;
  if (guest.claim.size() != sizeof(number))
    return std::nullopt;
  std::memcpy(&number, guest.claim.data(), sizeof(number));
  return number;
}

void takeNumbered(Listener &listener, const std::vector<int> &numbers,
                  double seconds,
                  const std::function<void(int, Connection)> &taken) {
  Deadline deadline = after(seconds);
  std::set<int> missing(numbers.begin(), numbers.end());
  while (!missing.empty()) {
    std::optional<Guest> guest = listener.next(deadline);
    if (!guest)
      fail(ExitPeerLost, str(missing.size()) + " of " + str(numbers.size()) +
                             " processes did not connect within " +
                             secondsText(seconds) + listener.dropped().text());
    std::optional<int> number = numberOf(*guest);
    if (!number || !missing.count(*number) ||
        !answer(listener.trust(), *guest, /*refused=*/false, {},
                Clock::now() + Receptions::patience))
      continue;
    missing.erase(*number);
    taken(*number, Connection(std::move(guest->socket)));
  }
}

std::optional<Connection> tryNumbered(const Contact &contact,
                                      const Trust &trust, int number,
                                      Deadline deadline, std::string &tried) {
  tried.clear();
  for (uint32_t i = 0; i < contact.count && i < Listener::mostEndpoints; ++i) {
    const Endpoint &endpoint = contact.endpoints[i];
    std::string problem, text;
    Socket socket = connectTo(
        endpoint, std::min(deadline, Clock::now() + Receptions::patience),
        problem);
    if (socket &&
        introduce(trust, socket, claimOf(number), 0,
                  std::min(deadline, Clock::now() + Receptions::patience), text,
                  problem) == Attempt::Done)
      return Connection(std::move(socket));
    tried +=
        (tried.empty() ? "" : ", ") + endpoint.text() + " (" + problem + ")";
  }
  return std::nullopt;
}

Connection connectNumbered(const Contact &contact, const Trust &trust,
                           int number, double seconds,
                           const std::string &name) {
  Deadline deadline = after(seconds);
  std::string tried;
  while (true) {
    if (std::optional<Connection> made =
            tryNumbered(contact, trust, number, deadline, tried))
      return std::move(*made);
    if (millisecondsLeft(deadline) == 0)
      fail(ExitPeerLost, "cannot reach " + name + " at any of " + tried);
    usleep(50000);
  }
}

} // namespace grt
