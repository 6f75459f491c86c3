//===- heartbeat.cpp - What processes say of their ranks ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/heartbeat.h"

#include <algorithm>
#include <cmath>
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
      if (reading.isShort())
        return std::nullopt;
      report.ranks.push_back(std::move(rank));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

} // namespace grt
