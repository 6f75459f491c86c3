//===- receptions.cpp - Peers that have not proved yet who they are -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/receptions.h"
#include "base/error.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace grt {

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

Receptions::~Receptions() {
  for (const auto &reception : open)
    streams.close(reception->descriptor);
  for (const Proven &one : proven)
    streams.close(one.descriptor);
}

void Receptions::admit(int descriptor, Clock::time_point now) {
  if (open.size() == mostOpen)
    dropOldest();
  open.push_back(std::unique_ptr<Reception>(
      new Reception{descriptor, now + patience, ListeningSide(trust)}));
}

bool Receptions::dropOldest() {
  if (open.empty())
    return false;
  streams.close(open.front()->descriptor);
  open.pop_front();
  ++counts.crowded;
  return true;
}

std::optional<Receptions::Proven> Receptions::advance(Clock::time_point now) {
  if (proven.empty()) {
    // A single pass looks at all, so that many at once cost each one call or
    // two.
    auto ends = [&](std::unique_ptr<Reception> &reception) {
      State state = advance(*reception);
      if (state == State::Open && now <= reception->end)
        return false;
      if (state == State::Claimed) {
        proven.push_back({reception->descriptor, reception->side.claim(),
                          reception->side.transcript()});
        return true;
      }
      ++(state == State::Stranger ? counts.strangers : counts.silent);
      streams.close(reception->descriptor);
      return true;
    };
    open.erase(std::remove_if(open.begin(), open.end(), ends), open.end());
  }
  if (proven.empty())
    return std::nullopt;
  Proven next = std::move(proven.front());
  proven.pop_front();
  return next;
}

/// Does what can be done now.
Receptions::State Receptions::advance(Reception &reception) {
  auto stateOfError = [] {
    return errno == EAGAIN || errno == EINTR ? State::Open : State::Gone;
  };
  ListeningSide &side = reception.side;
  char buffer[2048];
  while (true) {
    if (!side.outgoing.empty()) {
      ssize_t sent = streams.send(reception.descriptor, side.outgoing);
      if (sent < 0)
        return stateOfError();
      side.outgoing.erase(0, size_t(sent));
      continue;
    }
    ssize_t got = streams.receive(reception.descriptor, buffer,
                                  std::min(side.wanted(), sizeof(buffer)));
    if (got == 0)
      return side.isOpened() ? State::Stranger : State::Gone;
    if (got < 0)
      return stateOfError();
    switch (side.received({buffer, size_t(got)})) {
    case ListeningSide::State::Open:
      continue;
    case ListeningSide::State::Claimed:
      return State::Claimed;
    case ListeningSide::State::Stranger:
      return State::Stranger;
    }
  }
}

} // namespace grt
