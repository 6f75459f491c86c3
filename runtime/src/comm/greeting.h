//===- greeting.h - The handshake as bytes --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sides of the handshake that handshake.h describes, without sockets or a
// clock: what comes is handed in, and what is to be sent is read off.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_GREETING_H
#define GRT_COMM_GREETING_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace grt {

/// Key and purpose that both sides know of a connection before they make it. An
/// empty key is one that everybody knows.
struct Trust {
  std::string key, purpose;
};

/// Outcome of an attempt to connect.
enum class Attempt {
  Done,    ///< the answer's text is there
  Refused, ///< by a listener that knows the key; the text is the reason
  Failed,  ///< `problem` says why; another attempt may succeed
};

/// Reason of an attempt that failed because the other side said nothing, or
/// nothing that can be told.
inline constexpr const char *saidNothing =
    "what listens there is not a process of this run, or it ended";

/// The bytes of an answer to a peer that has proved that it knows the key.
std::string answerBytes(const Trust &trust, const std::string &transcript,
                        bool refused, std::string_view text);

/// The side that listens, until its peer has proved that it knows the key.
class ListeningSide {
public:
  enum class State { Open, Claimed, Stranger };

  /// `trust` outlives it.
  explicit ListeningSide(const Trust &trust);

  /// Bytes to be sent before anything else is read.
  std::string outgoing;
  /// The number of bytes that may be read next.
  size_t wanted() const { return expected - incoming.size(); }
  /// Takes at most `wanted()` bytes that have come; returns the new state.
  State received(std::string_view bytes);
  /// True if the peer has sent the opening of a process of a run: one that goes
  /// after the challenge has another key.
  bool isOpened() const { return opened; }

  // Once its state is Claimed.
  const std::string &claim() const { return claimed; }
  const std::string &transcript() const { return heard; }

private:
  const Trust &trust;
  bool opened = false;
  size_t expected;
  uint32_t claimBytes = 0;
  std::string incoming, nonces, claimed, heard;
};

/// The side that connects.
class ConnectingSide {
public:
  enum class State { Open, Answered, Failed };

  /// `trust` outlives it. An answer longer than `longest` is none.
  ConnectingSide(const Trust &trust, std::string_view claim, size_t longest);

  std::string outgoing; ///< as above
  size_t wanted() const { return expected - incoming.size(); }
  State received(std::string_view bytes);
  /// True if the answer comes next, for which the other side may take its time.
  bool isChallenged() const { return challenged; }

  // Once its state is Answered.
  bool isRefused() const { return refused; }
  const std::string &text() const { return answer; }
  /// Reason why it has failed, or would fail if nothing more came.
  const std::string &problem() const { return why; }

private:
  const Trust &trust;
  const std::string claim, nonce;
  const size_t longest;
  bool challenged = false, headed = false, refused = false;
  size_t expected, answerLength = 0;
  std::string incoming, transcript, answer, why;
};

} // namespace grt

#endif // GRT_COMM_GREETING_H
