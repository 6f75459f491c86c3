//===- sockets.h - Addresses, sockets, and messages over them -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// TCP over IPv4 and IPv6. All sockets are non-blocking. Who may connect is
// decided by handshake.h.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_SOCKETS_H
#define GRT_COMM_SOCKETS_H

#include "comm/deadline.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct sockaddr;
struct sockaddr_storage;

namespace grt {

/// An owned descriptor.
class Socket {
public:
  explicit Socket(int descriptor = -1) : number(descriptor) {}
  ~Socket();
  Socket(Socket &&other) noexcept : number(other.release()) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }

  int descriptor() const { return number; }
  explicit operator bool() const { return number >= 0; }
  int release() { return std::exchange(number, -1); }

private:
  int number;
};

/// An address and a port, as plain bytes that can be sent: IPv6, or IPv4 mapped
/// into it (::ffff:a.b.c.d). All zeros: every address of the machine.
struct Endpoint {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0; ///< of the machine's byte order
  bool operator==(const Endpoint &) const = default;

  static Endpoint of(const sockaddr *address);
  /// Fills `storage` and returns its length.
  uint32_t toAddress(sockaddr_storage &storage) const;
  bool isAny() const;
  bool isMappedIpv4() const;
  /// 127.0.0.0/8 and ::1: no other machine reaches it.
  bool isLoopback() const;
  /// "10.0.0.1:29500", "[fd00::1]:29500".
  std::string text() const;
};

/// The addresses of a name, with `port`; none and the reason in `problem` if it
/// has none now.
std::vector<Endpoint> resolve(const std::string &name, uint16_t port,
                              std::string &problem);

/// Endpoints that `--listen` names, separated by commas: addresses, names of
/// hosts or of network interfaces, "any". Throws Error (2) for what this
/// machine lacks.
std::vector<Endpoint> listenEndpoints(const std::string &places, uint16_t port);

/// The addresses of this machine's interfaces, the loopback's first; those that
/// mean something on one link only are left out.
std::vector<Endpoint> machineEndpoints(uint16_t port);

/// A socket that listens; port 0 takes a free one. Without one `problem` is its
/// errno.
Socket listenAt(const Endpoint &at, int &problem);
/// A connection; none and the reason in `problem` if there is none in time.
Socket connectTo(const Endpoint &to, Deadline deadline, std::string &problem);
/// The address of this side.
Endpoint localEndpoint(const Socket &socket);

/// Lets this process have so many connections at once beside what it has open
/// anyway: raises its limit of descriptors, above what shells allow by default.
/// Throws Error (2) where the hard limit is too low; `when` they are needed.
void allowConnections(size_t count, const std::string &when);

/// Moves all bytes, or returns false at the deadline or if the other side is
/// gone.
bool sendAll(const Socket &socket, std::string_view bytes, Deadline deadline);
bool receiveAll(const Socket &socket, void *to, size_t bytes,
                Deadline deadline);

struct Message {
  uint32_t kind;
  std::string text;
};

/// A connected socket that carries messages; never blocks.
class Connection {
public:
  Connection() = default;
  explicit Connection(Socket socket);

  int descriptor() const { return socket.descriptor(); }
  /// Sends a message; bytes that cannot be written at once go with the next. A
  /// peer that takes nothing for long is found by its silence.
  void send(uint32_t kind, std::string_view text);
  /// Appends what has come in whole. False: the other side is gone.
  bool read(std::vector<Message> &messages);
  void close() { socket = Socket(); }

private:
  bool flush();

  Socket socket;
  std::string incoming, outgoing;
};

} // namespace grt

#endif // GRT_COMM_SOCKETS_H
