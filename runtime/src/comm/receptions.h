//===- receptions.h - Peers that have not proved yet who they are ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Connections until their peers have shown that they know the key. They are
// bounded in number and in time, whoever makes them. Descriptors may be
// sockets, or those of a simulation.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_RECEPTIONS_H
#define GRT_COMM_RECEPTIONS_H

#include "comm/deadline.h"
#include "comm/greeting.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace grt {

/// System calls on a descriptor, none of which waits.
class Streams {
public:
  virtual ~Streams() = default;
  virtual ssize_t send(int descriptor, std::string_view bytes) = 0;
  virtual ssize_t receive(int descriptor, char *to, size_t bytes) = 0;
  virtual void close(int descriptor) = 0;
};

/// Connections that came to nothing, by why.
struct Dropped {
  uint64_t strangers = 0; ///< spoke something else, or did not know the key
  uint64_t silent = 0;    ///< did not say all in time, or went away
  uint64_t crowded = 0;   ///< were the oldest when too many were open
  /// "; dropped connections: 3 without the secret, 2 silent"; empty if none.
  std::string text() const;
};

class Receptions {
public:
  /// Handshakes that are open at once. Each is a descriptor and some hundred
  /// bytes; above that the oldest goes, which has had the longest time.
  static constexpr size_t mostOpen = 512;
  /// Time for a peer's part of a handshake: some round trips and a machine that
  /// is busy. Others do not wait for it.
  static constexpr auto patience = std::chrono::seconds(5);

  /// A peer that knows the key; whoever takes it closes the descriptor.
  struct Proven {
    int descriptor;
    std::string claim, transcript;
  };

  Receptions(Streams &streams, const Trust &trust)
      : streams(streams), trust(trust) {}
  ~Receptions();
  Receptions(const Receptions &) = delete;
  Receptions &operator=(const Receptions &) = delete;

  void admit(int descriptor, Clock::time_point now);
  /// Gives up the oldest; false if there is none.
  bool dropOldest();
  /// The next peer that has proved that it knows the key, if there is one now.
  /// All that are open get their turn before it says that there is none.
  std::optional<Proven> advance(Clock::time_point now);

  bool empty() const { return open.empty(); }
  const Dropped &dropped() const { return counts; }
  /// visit(descriptor, whether it waits to send) for each that is open.
  template <typename Visit> void forEach(Visit visit) const {
    for (const auto &one : open)
      visit(one->descriptor, !one->side.outgoing.empty());
  }

private:
  enum class State { Open, Claimed, Stranger, Gone };
  struct Reception {
    int descriptor;
    Clock::time_point end;
    ListeningSide side;
  };

  State advance(Reception &reception);

  Streams &streams;
  const Trust &trust;
  std::deque<std::unique_ptr<Reception>> open; ///< the oldest first
  std::deque<Proven> proven;
  Dropped counts;
};

} // namespace grt

#endif // GRT_COMM_RECEPTIONS_H
