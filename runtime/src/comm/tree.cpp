//===- tree.cpp - What all processes tell each other ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/tree.h"

#include <algorithm>
#include <cstring>

namespace grt {

std::vector<int> treeNeighbours(int self, int count) {
  std::vector<int> neighbours;
  // 64 bits: twice a large number of processes is more than an int has.
  for (int64_t away = 1; away < count; away *= 2)
    for (int64_t other : {self + away, self - away + count})
      neighbours.push_back(int(other % count));
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()),
                   neighbours.end());
  return neighbours;
}

void gatherFromAll(const HostMessages &messages, const void *in, void *out,
                   size_t bytes) {
  Transport &transport = messages.transport;
  const int self = transport.process(), count = transport.processes();
  // Block i is that of process self + i.
  std::vector<char> blocks(size_t(count) * bytes);
  if (bytes)
    std::memcpy(blocks.data(), in, bytes);
  const size_t most = transport.largestMessage();
  std::vector<Transport::Request> requests;
  for (int have = 1; have < count; have *= 2) {
    const int from = int((int64_t(self) + have) % count);
    const int to = int((int64_t(self) + count - have) % count);
    const size_t moved = size_t(std::min(have, count - have)) * bytes;
    requests.clear();
    for (size_t at = 0; at < moved; at += most) {
      size_t part = std::min(most, moved - at);
      requests.push_back(transport.receive(
          from, messages.tag, blocks.data() + size_t(have) * bytes + at, part));
      requests.push_back(
          transport.send(to, messages.tag, blocks.data() + at, part));
    }
    messages.wait(requests);
  }
  for (int i = 0; i < count && bytes; ++i)
    std::memcpy(static_cast<char *>(out) +
                    size_t((int64_t(self) + i) % count) * bytes,
                blocks.data() + size_t(i) * bytes, bytes);
}

void broadcastToAll(const HostMessages &messages, void *data, size_t bytes,
                    int root) {
  Transport &transport = messages.transport;
  const int count = transport.processes();
  // Numbers relative to the root; neighbours stay neighbours.
  const int self = int((int64_t(transport.process()) - root + count) % count);
  auto absolute = [&](int relative) {
    return int((int64_t(relative) + root) % count);
  };
  TreePlace place = treePlace(self, count);
  std::vector<Transport::Request> requests;
  auto forParts = [&](auto visit) {
    const size_t most = transport.largestMessage();
    for (size_t at = 0; at < bytes; at += most)
      visit(static_cast<char *>(data) + at, std::min(most, bytes - at));
  };
  if (place.parent >= 0) {
    forParts([&](char *part, size_t length) {
      requests.push_back(transport.receive(absolute(place.parent), messages.tag,
                                           part, length));
    });
    messages.wait(requests);
    requests.clear();
  }
  for (int child : place.children)
    forParts([&](char *part, size_t length) {
      requests.push_back(
          transport.send(absolute(child), messages.tag, part, length));
    });
  messages.wait(requests);
}

void meetAll(const HostMessages &messages) {
  Transport &transport = messages.transport;
  const int self = transport.process(), count = transport.processes();
  char sent = 0, heard = 0;
  // After round k a process knows of the 2^(k+1) - 1 after it (Hensgen et al.,
  // Int. J. Parallel Programming 17(1), 1988).
  for (int64_t away = 1; away < count; away *= 2)
    messages.wait({transport.send(int((self - away + count) % count),
                                  messages.tag, &sent, 1),
                   transport.receive(int((self + away) % count), messages.tag,
                                     &heard, 1)});
}

TreePlace treePlace(int self, int count) {
  TreePlace place;
  for (int64_t away = 1; away < count; away *= 2) {
    if (self & away) {
      place.parent = int(self - away);
      break;
    }
    if (self + away < count)
      place.children.push_back(int(self + away));
  }
  return place;
}

} // namespace grt
