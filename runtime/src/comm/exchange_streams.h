//===- exchange_streams.h - Exchanges between processes -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_EXCHANGE_STREAMS_H
#define GRT_COMM_EXCHANGE_STREAMS_H

#include "comm/process_ranks.h"

#include <span>
#include <vector>

namespace grt {

/// Bytes of a packed message of an exchange; the same on all ranks. The least
/// is what every transport carries.
uint64_t packetBytes(int ranks);

/// The exchanges of a rank with ranks of this process and others: all messages
/// of the calls of one operation make progress beside each other.
class ExchangeStreams {
public:
  /// Messages are packed in `scratch`, which is the rank's.
  ExchangeStreams(ProcessWorld::Shared &shared, int self,
                  std::span<char> scratch);

  void run(std::span<const ExchangeCall> calls);

private:
  /// One direction of an exchange with one peer: a stream of messages, of which
  /// one is on its way. Rows of a packet or more travel from where they stand
  /// to where they belong; smaller ones, and all that are added, through a
  /// buffer. Both sides cut a stream in the same way.
  struct Stream {
    const ExchangeCall *call = nullptr;
    const ExchangePeer *side = nullptr;
    bool sends = false;
    bool done = false;
    /// Index of the stream of an earlier call with the same peer, which must
    /// end first; -1 if there is none.
    int before = -1;
    size_t row = 0;      ///< of the next message
    uint64_t offset = 0; ///< bytes of that row that are done
    char *buffer = nullptr;
    Transport::Request request = nullptr;
    bool posted = false;
    /// The message on its way: where it began, and its length if packed.
    size_t packedRow = 0;
    uint64_t packedOffset = 0, packedBytes = 0;

    char *place(size_t number) const {
      const char *base = sends ? static_cast<const char *>(call->source)
                               : static_cast<char *>(call->destination);
      return const_cast<char *>(base) +
             uint64_t(side->rows[number].localUnit) * call->bytesPerUnit;
    }
    uint64_t rowBytes(size_t number) const {
      return uint64_t(side->rows[number].units) * call->bytesPerUnit;
    }
  };

  void addStream(const ExchangeCall &call, const ExchangePeer &side,
                 bool sends);
  void runAll();
  /// Does what can be done without waiting; whether that was anything.
  bool advance(Stream &stream);
  bool offer(Stream &stream);
  bool take(Stream &stream);
  /// Starts the next message of a stream.
  void post(Stream &stream);
  void start(Stream &stream, int peer, char *data, uint64_t bytes);
  static void forward(Stream &stream, uint64_t bytes);
  /// Visits what fits in one packet from where the stream stands, and moves the
  /// stream behind it. Only rows that are added are cut, between elements: a
  /// packet has a whole number of them.
  template <typename Visit> void forEachPacked(Stream &stream, Visit visit);
  void unpack(Stream &stream);

  ProcessWorld::Shared &shared;
  Transport &transport;
  const int self;
  const std::span<char> scratch;
  const uint64_t packet; ///< bytes
  std::vector<Stream> streams;
};

} // namespace grt

#endif // GRT_COMM_EXCHANGE_STREAMS_H
