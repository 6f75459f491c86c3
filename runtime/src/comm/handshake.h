//===- handshake.h - Connections between those that share a key -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sides prove that they know the key before either says anything else.
// With HMAC(text) for HMAC-SHA256 under the key and | for texts that follow
// each other, each after its length:
//
//   connects                                    listens
//     opening: magic, N                   ->
//                                         <-    challenge: M,
//                                                 HMAC("listener" | P | N | M)
//     claim: length, C,
//       HMAC("connector" | P | N | M | C) ->
//                                         <-    answer: refused, length, A,
//                                                 HMAC("answer" | P | N | M | C
//                                                 |
//                                                      refused | A)
//
// N and M are 32 random bytes, new for every connection, so that what was heard
// once proves nothing a second time; the roles keep a proof from being sent
// back to where it came from; P says what the connection is for. C and A are
// the caller's: who connects, and what it is told. What follows is neither
// encrypted nor authenticated: the key decides who takes part, not who can
// listen.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_HANDSHAKE_H
#define GRT_COMM_HANDSHAKE_H

#include "comm/receptions.h"
#include "comm/sockets.h"

#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

namespace grt {

/// A peer that has shown that it knows the key, and waits for an answer.
struct Guest {
  Socket socket;
  std::string claim;
  std::string transcript; ///< P, N, M and C, which the answer's code covers

  /// True if the peer still waits, as far as is known.
  bool isThere() const;
};

/// Answers a guest; false if it is gone. `refused` comes with the reason.
bool answer(const Trust &trust, const Guest &guest, bool refused,
            std::string_view text, Deadline deadline);

/// Takes connections at some endpoints, in one loop over all that are open:
/// peers that are silent, slow, false or many delay the others only by what it
/// takes to read a few bytes of each.
class Listener {
public:
  /// Port 0 takes free ports. Throws Error: 1 where an address is in use, 2
  /// where this machine has none of the addresses.
  explicit Listener(const std::vector<Endpoint> &at, Trust trust = {});
  ~Listener();
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;

  /// Endpoints where others find it: at most `mostEndpoints`, with the ports
  /// that were taken.
  const std::vector<Endpoint> &endpoints() const { return reachable; }
  /// The next peer that knows the key; nothing at the deadline.
  std::optional<Guest> next(Deadline deadline);

  // These three serve a loop that waits for other descriptors, too.

  /// Appends what poll() is to wait for, for `lateMilliseconds()` at most.
  void addPolled(std::vector<pollfd> &polled) const;
  int lateMilliseconds() const { return receptions.empty() ? -1 : 200; }
  /// Accepts connections, after that; `polled` begins with what was appended.
  void accept(std::span<const pollfd> polled);
  /// The next peer that has shown that it knows the key, if there is one now.
  std::optional<Guest> advance();

  const Dropped &dropped() const { return receptions.dropped(); }
  const Trust &trust() const { return shared; }
  /// Sets the trust, before the first `next`: connections made until then wait.
  void setTrust(Trust trust) { shared = std::move(trust); }

  static constexpr size_t mostEndpoints = 16;

private:
  void acceptSome(const Socket &socket);

  Trust shared;
  std::vector<Socket> listening;
  std::vector<Endpoint> reachable;
  Receptions receptions;
};

/// Makes the handshake on a new connection, as the side that connects. The
/// challenge must come soon, the answer until `deadline`; an answer longer than
/// `longest` is none.
Attempt introduce(const Trust &trust, const Socket &socket,
                  std::string_view claim, size_t longest, Deadline deadline,
                  std::string &text, std::string &problem);

/// Endpoints of a listener, to be sent to others as plain bytes.
struct Contact {
  uint32_t count = 0;
  Endpoint endpoints[Listener::mostEndpoints];
};
Contact contactOf(const Listener &listener);
/// Contacts as bytes, as many as they have endpoints for, and back; nothing for
/// bytes that are not `count` contacts.
std::string encode(const std::vector<Contact> &contacts);
std::optional<std::vector<Contact>> decodeContacts(std::string_view bytes,
                                                   size_t count);

/// Attempts once to connect to such a listener as process `number`, at each of
/// its addresses. Returns nothing, and what became of them in `tried`, if none
/// answered.
std::optional<Connection> tryNumbered(const Contact &contact,
                                      const Trust &trust, int number,
                                      Deadline deadline, std::string &tried);
/// The number that a guest of `tryNumbered` claims; nothing for another claim.
std::optional<int> numberOf(const Guest &guest);

/// Takes one connection of each of the processes `numbers`, which claim them;
/// `taken(number, connection)`. Peers with other numbers are dropped. Throws
/// Error if some do not come in time.
void takeNumbered(Listener &listener, const std::vector<int> &numbers,
                  double seconds,
                  const std::function<void(int, Connection)> &taken);

/// Connects as process `number`, in as many attempts as there is time for;
/// `name` is whose listener it is. Throws Error.
Connection connectNumbered(const Contact &contact, const Trust &trust,
                           int number, double seconds, const std::string &name);

} // namespace grt

#endif // GRT_COMM_HANDSHAKE_H
