//===- transport.h - Messages between processes ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a library for message passing has to offer; it stands in a plug-in, so
// that a machine without it runs everything that needs one process only. The
// collectives are ours (process_world.cpp): their order of sums is part of the
// contract.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_TRANSPORT_H
#define GRT_COMM_TRANSPORT_H

#include <cstddef>
#include <span>
#include <string>

namespace grt {

class Transport {
public:
  /// A message on its way; null: complete.
  using Request = void *;

  virtual ~Transport() = default;
  virtual int process() const = 0;   ///< number of this process
  virtual int processes() const = 0; ///< how many there are

  /// A message has at most so many bytes, 4096 or more; the same in all
  /// processes. Below what libraries count in an int, and large enough to cost
  /// nothing.
  virtual size_t largestMessage() const { return size_t(1) << 26; }
  /// A tag is from 0 to here. At least 32767, as MPI guarantees; libraries
  /// differ in what they offer beyond.
  virtual int largestTag() const = 0;

  /// Messages between two processes with equal tags arrive in the order in
  /// which they were sent. From any thread; never blocks. Throw Error. A send
  /// need not complete before its receive is posted, and its memory stays as it
  /// is until then; small ones (4096 bytes) complete as long as few of them
  /// wait.
  virtual Request send(int process, int tag, const void *data,
                       size_t bytes) = 0;
  virtual Request receive(int process, int tag, void *data, size_t bytes) = 0;
  /// True if all are complete; those that are become null.
  virtual bool test(std::span<Request> requests) = 0;
  /// Gives up what is not complete; its memory is not touched any more, unless
  /// the library cannot take it back: that is kept then (base/kept_memory.h).
  /// A large message that is on its way to a receive that is given up is lost.
  virtual void cancel(std::span<Request> requests) = 0;

  /// Collective over the processes; blocking, for the start only.
  virtual void broadcast(void *data, size_t bytes, int root) = 0;
  virtual void allGather(const void *in, void *out, size_t bytes) = 0;

  /// The orderly end, after which nothing may be called. Collective.
  virtual void finalize() = 0;

  /// "Open MPI 4.1.4"
  virtual std::string name() const = 0;

  /// Secret that only the processes of this run know; empty if the library
  /// keeps strangers out by itself, so that a key can be sent by it.
  virtual std::string sessionKey() const { return {}; }
  /// Addresses at which this process may listen for the others, as
  /// listenEndpoints takes them; empty: no rule.
  virtual std::string hubPlaces() const { return {}; }

  /// The most bytes of messages that were held at once beside the memory of
  /// those who sent and receive them, and what they can be now; 0 where the
  /// library does not tell.
  virtual size_t mostHeldBytes() const { return 0; }
  virtual size_t heldLimit() const { return 0; }
};

/// The tag of what processes tell each other apart from their ranks' messages,
/// which have those below.
inline int hostTag(const Transport &transport) {
  return transport.largestTag();
}

/// A plug-in `libgrt_<name>.so` exports `grt_transport_open`. It joins the
/// processes that its launcher started, once per process; null and a message
/// if that failed.
using OpenTransport = Transport *(int version, char *message, size_t capacity);
inline constexpr int transportVersion = 3;

} // namespace grt

#endif // GRT_COMM_TRANSPORT_H
