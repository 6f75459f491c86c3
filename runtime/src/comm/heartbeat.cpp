//===- heartbeat.cpp - What processes say of their ranks ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/heartbeat.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace grt {
namespace {

template <typename T> void put(std::string &to, T value) {
  to.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

/// Takes values from the front of bytes until there are too few.
class Reading {
public:
  explicit Reading(std::string_view bytes) : left(bytes) {}

  template <typename T> T take() {
    T value{};
    if (std::string_view bytes = take(sizeof(T)); bytes.size() == sizeof(T))
      std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string_view take(size_t bytes) {
    if (bytes > left.size()) {
      tooShort = true;
      left = {};
      return {};
    }
    std::string_view taken = left.substr(0, bytes);
    left.remove_prefix(bytes);
    return taken;
  }
  bool isDone() const { return left.empty(); }
  bool isShort() const { return tooShort; }

private:
  std::string_view left;
  bool tooShort = false;
};

/// Limits of a rank's report. A rank with more communicators, or longer lists,
/// sends none of its communicators, as missing ranks could not be told from
/// what was left out; of the calls, a few from the last ended one on are sent.
constexpr size_t mostCommunicators = 64, mostRuns = 16, mostCalls = 4;
constexpr size_t mostName = 32;
constexpr int64_t mostMembers = 1 << 20;

void putNumber(std::string &to, uint64_t value) {
  for (; value >= 128; value >>= 7)
    put(to, uint8_t(value | 128));
  put(to, uint8_t(value));
}

uint64_t takeNumber(Reading &from) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = from.take<uint8_t>();
    value |= uint64_t(byte & 127) << shift;
    if (byte < 128)
      break;
  }
  return value;
}

/// The calls that are not done and come first: those that a run hangs in.
std::vector<CollectiveCall> firstCalls(const CommunicatorState &state) {
  std::vector<CollectiveCall> calls;
  for (const CollectiveCall &call : state.calls)
    if (call.number >= state.done && calls.size() < mostCalls)
      calls.push_back(call);
  return calls;
}

void putCommunicators(std::string &to, const RankReport &rank) {
  std::string bytes;
  bool fits = rank.known && rank.communicators.size() <= mostCommunicators;
  put(bytes, uint8_t(rank.host));
  put(bytes, uint8_t(rank.communicators.size()));
  for (const CommunicatorState &state : rank.communicators) {
    const std::vector<RankList::Run> &runs = state.members.runs;
    const std::vector<CollectiveCall> calls = firstCalls(state);
    fits &= runs.size() <= mostRuns && state.name.size() <= mostName;
    put(bytes, uint8_t(state.name.size()));
    bytes += state.name;
    put(bytes, uint8_t(runs.size()));
    for (const RankList::Run &run : runs) {
      put(bytes, int32_t(run.first));
      put(bytes, int32_t(run.stride));
      putNumber(bytes, run.count);
    }
    putNumber(bytes, state.enqueued);
    putNumber(bytes, state.started);
    putNumber(bytes, state.done);
    put(bytes, uint8_t(calls.size()));
    for (const CollectiveCall &call : calls) {
      putNumber(bytes, call.number);
      putNumber(bytes, call.order);
      put(bytes, uint8_t(call.kind));
      put(bytes, uint8_t(call.stream | call.inGraph << 7));
      putNumber(bytes, call.bytes);
    }
  }
  put(to, uint8_t(fits));
  if (fits)
    to += bytes;
}

/// False for bytes that are none.
bool takeCommunicators(Reading &from, RankReport &rank) {
  const uint8_t known = from.take<uint8_t>();
  if (from.isShort() || known > 1)
    return false;
  if (!known)
    return true;
  rank.known = true;
  const uint8_t host = from.take<uint8_t>();
  const size_t count = from.take<uint8_t>();
  if (host > RankCollectives::ForRanks || count > mostCommunicators)
    return false;
  rank.host = RankCollectives::Host(host);
  for (size_t i = 0; i < count; ++i) {
    CommunicatorState state;
    state.name = from.take(std::min<size_t>(from.take<uint8_t>(), mostName));
    const size_t runs = from.take<uint8_t>();
    int64_t members = 0;
    for (size_t r = 0; r < runs && !from.isShort(); ++r) {
      RankList::Run run{from.take<int32_t>(), from.take<int32_t>(),
                        takeNumber(from)};
      // The count is limited, as the comparison has to spell the ranks out.
      const int64_t count =
          int64_t(std::min<uint64_t>(run.count, mostMembers + 1));
      members += count;
      if (members > mostMembers || count == 0 ||
          std::abs(int64_t(run.first)) > mostMembers ||
          std::abs(int64_t(run.stride)) > mostMembers / count)
        return false;
      state.members.runs.push_back(run);
    }
    state.enqueued = takeNumber(from);
    state.started = takeNumber(from);
    state.done = takeNumber(from);
    const size_t calls = from.take<uint8_t>();
    for (size_t c = 0; c < calls && !from.isShort(); ++c) {
      CollectiveCall call;
      call.number = takeNumber(from);
      call.order = takeNumber(from);
      const uint8_t kind = from.take<uint8_t>(), stream = from.take<uint8_t>();
      call.bytes = takeNumber(from);
      if (kind >= collectiveKinds)
        return false;
      call.kind = CollectiveKind(kind);
      call.stream = stream & 127;
      call.inGraph = stream & 128;
      state.calls.push_back(call);
    }
    if (from.isShort())
      return false;
    rank.communicators.push_back(std::move(state));
  }
  return !from.isShort();
}

} // namespace

std::string encode(const std::vector<ProcessReport> &reports) {
  std::string bytes;
  for (const ProcessReport &report : reports) {
    put(bytes, int32_t(report.process));
    put(bytes, uint8_t(report.state));
    // Milliseconds; nobody asks for more than the 65 s that these can say.
    put(bytes, uint16_t(std::clamp(report.age * 1e3, 0.0, 65535.0)));
    put(bytes, int32_t(report.firstRank));
    put(bytes, uint16_t(report.ranks.size()));
    for (const RankReport &rank : report.ranks) {
      size_t peers = std::min(rank.peers.size(), RankReport::mostPeers);
      size_t length = std::min(rank.doing.size(), RankReport::mostText);
      put(bytes, rank.progress);
      put(bytes, uint8_t(rank.busy | rank.waiting << 1));
      put(bytes, uint8_t(peers));
      put(bytes, uint16_t(length));
      for (size_t i = 0; i < peers; ++i)
        put(bytes, int32_t(rank.peers[i]));
      bytes.append(rank.doing, 0, length);
      putCommunicators(bytes, rank);
    }
  }
  return bytes;
}

std::optional<std::vector<ProcessReport>>
decodeReports(std::string_view bytes) {
  std::vector<ProcessReport> reports;
  Reading reading(bytes);
  while (!reading.isDone()) {
    ProcessReport report;
    report.process = reading.take<int32_t>();
    uint8_t state = reading.take<uint8_t>();
    report.age = reading.take<uint16_t>() * 1e-3;
    report.firstRank = reading.take<int32_t>();
    size_t count = reading.take<uint16_t>();
    if (reading.isShort() || state > ProcessReport::Lost)
      return std::nullopt;
    report.state = ProcessReport::State(state);
    for (size_t i = 0; i < count; ++i) {
      RankReport rank;
      rank.progress = reading.take<uint64_t>();
      uint8_t flags = reading.take<uint8_t>();
      size_t peers = reading.take<uint8_t>();
      size_t length = reading.take<uint16_t>();
      if (reading.isShort() || flags > 3 || peers > RankReport::mostPeers ||
          length > RankReport::mostText)
        return std::nullopt;
      rank.busy = flags & 1;
      rank.waiting = flags & 2;
      for (size_t p = 0; p < peers; ++p)
        rank.peers.push_back(reading.take<int32_t>());
      rank.doing = reading.take(length);
      if (!takeCommunicators(reading, rank) || reading.isShort())
        return std::nullopt;
      report.ranks.push_back(std::move(rank));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

} // namespace grt
