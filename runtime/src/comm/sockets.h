//===- sockets.h - Connections for the monitor ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// TCP over IPv4. A listener lives only while the processes of one run connect,
// and takes those that know its token.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_SOCKETS_H
#define GRT_COMM_SOCKETS_H

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

struct Message {
  uint32_t kind;
  std::string text;
};

/// A connected socket that carries messages; never blocks.
class Connection {
public:
  Connection() = default;
  explicit Connection(int descriptor) : socket(descriptor) {}
  ~Connection() { close(); }
  Connection(Connection &&other) noexcept { *this = std::move(other); }
  Connection &operator=(Connection &&other) noexcept;

  int descriptor() const { return socket; }
  /// What does not go at once goes with the next; a peer that takes nothing for
  /// long is found by its silence.
  void send(uint32_t kind, std::string_view text);
  /// Appends what has come in whole. False: the other side is gone.
  bool read(std::vector<Message> &messages);
  void close();

private:
  bool flush();

  int socket = -1;
  std::string incoming, outgoing;
};

/// Where the listener of process 0 is; plain bytes, broadcast at the start.
struct Contact {
  unsigned char token[16];
  uint16_t port;
  uint16_t count;
  uint32_t addresses[16]; ///< network order; the loopback first
};

class Listener {
public:
  /// Throws Error.
  Listener();
  ~Listener();
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;

  const Contact &contact() const { return where; }
  /// Takes `count` connections of processes that know the token, within 30 s;
  /// `taken(number, connection)`. Throws Error.
  void accept(int count, const std::function<void(int, Connection)> &taken);

private:
  int socket = -1;
  Contact where{};
};

/// Connects process `number` to the listener. Throws Error.
Connection connectTo(const Contact &contact, int number);

} // namespace grt

#endif // GRT_COMM_SOCKETS_H
