//===- exchange_streams.cpp - Exchanges between processes -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/exchange_streams.h"
#include "comm/backoff.h"
#include "comm/sum.h"

#include <cstring>

namespace grt {

uint64_t packetBytes(int ranks) {
  constexpr uint64_t most = 64 << 10, least = 4 << 10, wanted = 1 << 20;
  return std::clamp(wanted / (2 * uint64_t(ranks)) & ~uint64_t(63), least,
                    most);
}

ExchangeStreams::ExchangeStreams(ProcessWorld::Shared &shared, int self,
                                 std::span<char> scratch)
    : shared(shared), transport(shared.transport), self(self), scratch(scratch),
      packet(std::min<uint64_t>(packetBytes(shared.size()),
                                transport.largestMessage() & ~size_t(63))) {
  // Nothing is taken from the heap while the ranks run.
  streams.reserve(2 * size_t(shared.size()));
}

void ExchangeStreams::run(std::span<const ExchangeCall> calls) {
  streams.clear();
  for (const ExchangeCall &call : calls) {
    for (const ExchangePeer &side : call.table->sends)
      if (side.peer != self)
        addStream(call, side, /*sends=*/true);
    for (const ExchangePeer &side : call.table->receives)
      addStream(call, side, /*sends=*/false);
  }
  try {
    runAll();
  } catch (...) {
    for (Stream &stream : streams)
      transport.cancel({&stream.request, 1});
    throw;
  }
}

void ExchangeStreams::addStream(const ExchangeCall &call,
                                const ExchangePeer &side, bool sends) {
  Stream stream;
  stream.call = &call;
  stream.side = &side;
  stream.sends = sends;
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i].call != &call && streams[i].sends == sends &&
        streams[i].side->peer == side.peer)
      stream.before = int(i);
  stream.buffer = scratch.data() + streams.size() * packet;
  if ((streams.size() + 1) * packet > scratch.size())
    fail("rank " + std::to_string(self) +
         ": an exchange has more than one transfer to or from a rank");
  streams.push_back(stream);
}

void ExchangeStreams::runAll() {
  Backoff backoff;
  while (true) {
    bool moved = false;
    const Stream *waiting = nullptr;
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream &stream = streams[i];
      if (stream.done)
        continue;
      // Arriving data is added in the order of the peers, so a stream waits
      // for the one before it.
      bool blocked = !stream.sends && stream.call->add && i > 0 &&
                     streams[i - 1].call == stream.call &&
                     !streams[i - 1].sends && !streams[i - 1].done;
      blocked |= stream.before >= 0 && !streams[size_t(stream.before)].done;
      if (!blocked)
        moved |= advance(stream);
      if (!stream.done && !waiting)
        waiting = &stream;
    }
    if (!waiting)
      return;
    shared.checkAborted();
    if (moved) {
      backoff.reset();
      continue;
    }
    if (backoff.sleeps())
      backoff.note(waiting->side->peer);
    backoff.pause();
  }
}

bool ExchangeStreams::advance(Stream &stream) {
  int peer = stream.side->peer;
  if (peer == self) {
    takeRows(*stream.call, *stream.side,
             static_cast<const char *>(stream.call->source));
    stream.done = true;
    return true;
  }
  if (shared.isLocal(peer))
    return stream.sends ? offer(stream) : take(stream);
  if (stream.posted) {
    if (!transport.test({&stream.request, 1}))
      return false;
    stream.posted = false;
    if (!stream.sends && stream.packedBytes)
      unpack(stream);
    stream.done = stream.row == stream.side->rows.size();
    return true;
  }
  post(stream);
  return true;
}

bool ExchangeStreams::offer(Stream &stream) {
  Mailbox &box = shared.local.mailbox(self, stream.side->peer);
  if (box.state.load() != Mailbox::empty)
    return false;
  if (stream.posted) {
    stream.done = true;
  } else {
    box.base = static_cast<const char *>(stream.call->source);
    box.state.store(Mailbox::posted);
    stream.posted = true;
  }
  return true;
}

bool ExchangeStreams::take(Stream &stream) {
  Mailbox &box = shared.local.mailbox(stream.side->peer, self);
  if (box.state.load() != Mailbox::posted)
    return false;
  takeRows(*stream.call, *stream.side, box.base);
  box.state.store(Mailbox::empty);
  stream.done = true;
  return true;
}

void ExchangeStreams::post(Stream &stream) {
  int peer = stream.side->peer;
  stream.posted = true;
  stream.packedBytes = 0;
  uint64_t left = stream.rowBytes(stream.row) - stream.offset;
  if (!stream.call->add && left >= packet) {
    uint64_t bytes = std::min<uint64_t>(left, transport.largestMessage());
    char *data = stream.place(stream.row) + stream.offset;
    start(stream, peer, data, bytes);
    forward(stream, bytes);
    return;
  }
  stream.packedRow = stream.row;
  stream.packedOffset = stream.offset;
  forEachPacked(stream, [&](char *place, char *packed, uint64_t bytes) {
    if (stream.sends)
      std::memcpy(packed, place, bytes);
    stream.packedBytes += bytes;
  });
  start(stream, peer, stream.buffer, stream.packedBytes);
}

void ExchangeStreams::start(Stream &stream, int peer, char *data,
                            uint64_t bytes) {
  shared.checkAborted();
  int process = shared.owner[size_t(peer)];
  stream.request =
      stream.sends
          ? transport.send(process, shared.tag(self, peer), data, bytes)
          : transport.receive(process, shared.tag(peer, self), data, bytes);
}

void ExchangeStreams::forward(Stream &stream, uint64_t bytes) {
  stream.offset += bytes;
  if (stream.offset == stream.rowBytes(stream.row)) {
    ++stream.row;
    stream.offset = 0;
  }
}

template <typename Visit>
void ExchangeStreams::forEachPacked(Stream &stream, Visit visit) {
  uint64_t filled = 0;
  while (stream.row < stream.side->rows.size()) {
    uint64_t left = stream.rowBytes(stream.row) - stream.offset;
    uint64_t room = packet - filled;
    bool whole = !stream.call->add;
    if (room == 0 || (whole && (left >= packet || left > room)))
      return;
    uint64_t bytes = std::min(left, room);
    visit(stream.place(stream.row) + stream.offset, stream.buffer + filled,
          bytes);
    filled += bytes;
    forward(stream, bytes);
  }
}

void ExchangeStreams::unpack(Stream &stream) {
  stream.row = stream.packedRow;
  stream.offset = stream.packedOffset;
  forEachPacked(stream, [&](char *place, char *packed, uint64_t bytes) {
    if (!stream.call->add) {
      std::memcpy(place, packed, bytes);
      return;
    }
    dispatchSum(stream.call->dtype, [&](auto element) {
      addInto<decltype(element)>(place, packed, bytes);
    });
  });
}

} // namespace grt
