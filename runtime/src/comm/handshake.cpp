//===- handshake.cpp - Connections between those that share a key ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/handshake.h"
#include "comm/secret.h"
#include "core/error.h"
#include "core/random.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace grt {
namespace {

constexpr std::string_view magic = "GRTHELO2";
constexpr size_t nonceBytes = 32;
constexpr size_t openingBytes = magic.size() + nonceBytes;
constexpr size_t challengeBytes = nonceBytes + codeBytes;
/// Taken from a peer before it has proved anything.
constexpr uint32_t longestClaim = 1024;

/// For a peer's part of a handshake: some round trips and a machine that is
/// busy. Others do not wait for it.
constexpr auto patience = std::chrono::seconds(5);
/// Handshakes that are open at once. Each is a descriptor and some hundred
/// bytes; above that the oldest goes, which has had the longest time.
constexpr size_t mostReceptions = 512;

/// Accepted in a row before those that are open get their turn.
constexpr int mostAccepted = 64;

/// What an answer begins with.
struct AnswerHead {
  uint32_t refused;
  uint32_t bytes;
};

template <typename Number> std::string bytesOf(Number number) {
  return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
}

/// Texts that follow each other, each after its length.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (std::string_view part : parts) {
    all += bytesOf(uint64_t(part.size()));
    all += part;
  }
  return all;
}

std::string prove(const Trust &trust, std::string_view role,
                  std::string_view transcript) {
  return authenticationCode(trust.key, joined({role, transcript}));
}

std::string answerText(const std::string &transcript, bool refused,
                       std::string_view text) {
  return joined({transcript, refused ? "refused" : "taken", text});
}

} // namespace

bool Guest::isThere() const {
  char byte;
  ssize_t got = ::recv(socket.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool answer(const Trust &trust, const Guest &guest, bool refused,
            std::string_view text, Deadline deadline) {
  AnswerHead head{refused, uint32_t(text.size())};
  std::string all = bytesOf(head);
  all += text;
  all += prove(trust, "answer", answerText(guest.transcript, refused, text));
  return sendAll(guest.socket, all, deadline);
}

std::string Dropped::text() const {
  std::string all;
  for (auto [count, what] : {std::pair(strangers, "without the secret"),
                             {silent, "silent"},
                             {crowded, "for lack of room"}})
    if (count)
      all += (all.empty() ? "; dropped connections: " : ", ") + str(count) +
             " " + what;
  return all;
}

//===----------------------------------------------------------------------===//
// The side that listens
//===----------------------------------------------------------------------===//

/// A connection until its peer has proved that it knows the key. Never blocks.
class Listener::Reception {
public:
  enum class State { Open, Claimed, Stranger, Gone };

  Reception(Socket socket, const Trust &trust)
      : socket(std::move(socket)), trust(trust) {}

  const Socket &connection() const { return socket; }
  bool isLate() const { return Clock::now() > end; }
  short events() const { return outgoing.empty() ? POLLIN : POLLOUT; }

  /// Does what can be done now.
  State advance() {
    while (true) {
      if (!outgoing.empty()) {
        ssize_t sent = ::send(socket.descriptor(), outgoing.data(),
                              outgoing.size(), MSG_NOSIGNAL);
        if (sent < 0)
          return stateOfError();
        outgoing.erase(0, size_t(sent));
        continue;
      }
      if (incoming.size() < wanted) {
        size_t had = incoming.size();
        incoming.resize(wanted);
        ssize_t got =
            ::recv(socket.descriptor(), incoming.data() + had, wanted - had, 0);
        incoming.resize(had + (got > 0 ? size_t(got) : 0));
        // Who goes after the challenge has another key than this side.
        if (got == 0)
          return opened ? State::Stranger : State::Gone;
        if (got < 0)
          return stateOfError();
        if (incoming.size() < wanted) {
          // A prefix that is wrong is no peer, whatever follows.
          if (!isOpening(incoming))
            return State::Stranger;
          continue;
        }
      }
      if (State state = takePart(); state != State::Open || finished)
        return state;
    }
  }

  Guest guest() {
    return {std::move(socket), std::move(claim), std::move(transcript)};
  }

private:
  static State stateOfError() {
    return errno == EAGAIN || errno == EINTR ? State::Open : State::Gone;
  }
  bool isOpening(std::string_view text) const {
    size_t common = std::min(text.size(), magic.size());
    return opened || text.substr(0, common) == magic.substr(0, common);
  }

  /// `wanted` bytes are there.
  State takePart() {
    if (!opened) {
      if (!isOpening(incoming))
        return State::Stranger;
      opened = true;
      nonces = joined({trust.purpose, incoming.substr(magic.size())});
      std::string own = randomBytes(nonceBytes);
      nonces += joined({own});
      outgoing = own + prove(trust, "listener", nonces);
      incoming.clear();
      wanted = sizeof(uint32_t);
      return State::Open;
    }
    if (wanted == sizeof(uint32_t)) {
      std::memcpy(&claimBytes, incoming.data(), sizeof(claimBytes));
      if (claimBytes > longestClaim)
        return State::Stranger;
      wanted += claimBytes + codeBytes;
      return State::Open;
    }
    claim = incoming.substr(sizeof(uint32_t), claimBytes);
    transcript = nonces + joined({claim});
    finished = true;
    return sameCode(incoming.substr(sizeof(uint32_t) + claimBytes),
                    prove(trust, "connector", transcript))
               ? State::Claimed
               : State::Stranger;
  }

  Socket socket;
  const Trust &trust;
  const Deadline end = Clock::now() + patience;
  bool opened = false, finished = false;
  size_t wanted = openingBytes;
  uint32_t claimBytes = 0;
  std::string incoming, outgoing, nonces, claim, transcript;
};

Listener::Listener(const std::vector<Endpoint> &at, Trust trust)
    : shared(std::move(trust)) {
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
    sockets.push_back(std::move(socket));
    std::vector<Endpoint> found = {taken};
    if (endpoint.isAny())
      found = machineEndpoints(taken.port);
    for (const Endpoint &each : found)
      if (reachable.size() < mostEndpoints)
        reachable.push_back(each);
  }
  if (sockets.empty())
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
      // Without descriptors the oldest handshake gives up its own.
      if ((errno == EMFILE || errno == ENFILE) && !receptions.empty()) {
        receptions.pop_front();
        ++counts.crowded;
        continue;
      }
      // The loop over what is open must not spin on what cannot be opened.
      if (errno != EAGAIN)
        usleep(10000);
      return;
    }
    if (receptions.size() == mostReceptions) {
      receptions.pop_front();
      ++counts.crowded;
    }
    receptions.push_back(
        std::make_unique<Reception>(std::move(accepted), shared));
  }
}

std::optional<Guest> Listener::advance() {
  for (size_t i = 0; i < receptions.size();) {
    Reception &reception = *receptions[i];
    Reception::State state = reception.advance();
    if (state == Reception::State::Open && reception.isLate())
      state = Reception::State::Gone;
    if (state == Reception::State::Open) {
      ++i;
      continue;
    }
    std::unique_ptr<Reception> ended = std::move(receptions[i]);
    receptions.erase(receptions.begin() + ptrdiff_t(i));
    if (state == Reception::State::Claimed)
      return ended->guest();
    ++(state == Reception::State::Stranger ? counts.strangers : counts.silent);
  }
  return std::nullopt;
}

void Listener::addPolled(std::vector<pollfd> &polled) const {
  for (const Socket &socket : sockets)
    polled.push_back({socket.descriptor(), POLLIN, 0});
  for (const auto &reception : receptions)
    polled.push_back(
        {reception->connection().descriptor(), reception->events(), 0});
}

void Listener::accept(std::span<const pollfd> polled) {
  for (size_t i = 0; i < sockets.size(); ++i)
    if (polled[i].revents)
      acceptSome(sockets[i]);
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
    // Some wake-ups a second, for those that are late.
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
  problem = "what listens there is not a process of this run, or it ended";
  Deadline soon = std::min(deadline, Clock::now() + patience);
  std::string own = randomBytes(nonceBytes);
  std::string challenge(challengeBytes, 0);
  if (!sendAll(socket, std::string(magic) + own, soon) ||
      !receiveAll(socket, challenge.data(), challenge.size(), soon))
    return Attempt::Failed;
  std::string nonces =
      joined({trust.purpose, own, challenge.substr(0, nonceBytes)});
  if (!sameCode(challenge.substr(nonceBytes),
                prove(trust, "listener", nonces))) {
    problem = trust.key.empty()
                  ? "what listens there knows a secret, this process none"
                  : "what listens there does not know the secret of this run";
    return Attempt::Failed;
  }
  std::string transcript = nonces + joined({claim});
  AnswerHead head{};
  std::string code(codeBytes, 0);
  bool heard = sendAll(socket,
                       bytesOf(uint32_t(claim.size())) + std::string(claim) +
                           prove(trust, "connector", transcript),
                       soon) &&
               receiveAll(socket, &head, sizeof(head), deadline) &&
               head.bytes <= longest;
  if (heard) {
    text.resize(head.bytes);
    heard = receiveAll(socket, text.data(), text.size(), deadline) &&
            receiveAll(socket, code.data(), code.size(), deadline) &&
            sameCode(code, prove(trust, "answer",
                                 answerText(transcript, head.refused, text)));
  }
  if (!heard)
    return Attempt::Failed;
  return head.refused ? Attempt::Refused : Attempt::Done;
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
                Clock::now() + patience))
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
        endpoint, std::min(deadline, Clock::now() + patience), problem);
    if (socket && introduce(trust, socket, bytesOf(int32_t(number)), 0,
                            std::min(deadline, Clock::now() + patience), text,
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
