//===- host_tree.cpp - Processes by the machine that they share -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/host_tree.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>
#include <unordered_map>

namespace grt {

std::string networkIdentity() {
  char boot[37] = "", space[64] = "";
  std::ifstream("/proc/sys/kernel/random/boot_id").read(boot, 36);
  ssize_t length = ::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  return *boot && length > 0 ? std::string(boot) + " " + space : "";
}

HostTree::HostTree(const std::vector<std::string> &networks)
    : relays(networks.size()), members(networks.size()) {
  std::unordered_map<std::string, int> lowest;
  for (size_t i = 0; i < networks.size(); ++i) {
    int process = int(i);
    relays[i] = networks[i].empty()
                    ? process
                    : lowest.try_emplace(networks[i], process).first->second;
    members[size_t(relays[i])].push_back(process);
  }
}

int HostTree::parent(int process) const {
  if (process == 0)
    return -1;
  return isRelay(process) ? 0 : relayOf(process);
}

std::vector<int> HostTree::children(int process) const {
  std::vector<int> found;
  if (isRelay(process))
    found.assign(hostOf(process).begin() + 1, hostOf(process).end());
  if (process == 0) {
    for (int other = 1; other < size(); ++other)
      if (isRelay(other))
        found.push_back(other);
    std::sort(found.begin(), found.end());
  }
  return found;
}

} // namespace grt
