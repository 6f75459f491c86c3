//===- host_memory.cpp - Memory that this process may still take ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/host_memory.h"
#include "base/error.h"
#include "base/text.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/stat.h>

namespace grt {
namespace {

/// The number behind `key` in lines of "key number"; none if it is not there.
std::optional<uint64_t> lineOf(const std::string &path,
                               const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    uint64_t value = 0;
    if (words >> word && word == key && words >> value)
      return value;
  }
  return std::nullopt;
}

/// The number that a file consists of; none for "max" and missing files.
std::optional<uint64_t> numberIn(const std::string &path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value)
    return value;
  return std::nullopt;
}

/// Below 2^52, so that a double holds it, and not 0.
uint64_t scopeOf(const std::string &text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return (hash >> 12) | 1;
}

std::string bootOf(const MemoryPaths &paths) {
  std::ifstream file(paths.bootId);
  std::string boot;
  file >> boot;
  return boot;
}

/// How one version of the interface names its files.
struct Files {
  const char *limit, *usage, *inactive, *active;
};
constexpr Files version2 = {"memory.max", "memory.current", "inactive_file",
                            "active_file"};
constexpr Files version1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file", "total_active_file"};

/// What the limit of one group leaves.
std::optional<uint64_t> leftIn(const std::string &folder, const Files &files) {
  std::optional<uint64_t> limit = numberIn(folder + "/" + files.limit);
  std::optional<uint64_t> usage = numberIn(folder + "/" + files.usage);
  // Version 1 says "no limit" as a number next to 2^63.
  if (!limit || !usage || *limit >= uint64_t(1) << 60)
    return std::nullopt;
  std::string statistics = folder + "/memory.stat";
  uint64_t cache = lineOf(statistics, files.inactive).value_or(0) +
                   lineOf(statistics, files.active).value_or(0);
  uint64_t taken = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, taken);
}

} // namespace

std::optional<MemoryBound> machineMemory(const MemoryPaths &paths) {
  std::optional<uint64_t> kibibytes = lineOf(paths.meminfo, "MemAvailable:");
  if (!kibibytes)
    return std::nullopt;
  return MemoryBound{*kibibytes * 1024, "MemAvailable of " + paths.meminfo,
                     scopeOf(bootOf(paths))};
}

std::optional<MemoryBound> groupMemory(const MemoryPaths &paths) {
  std::optional<MemoryBound> tightest;
  auto look = [&](const std::string &folder, const Files &files) {
    std::optional<uint64_t> left = leftIn(folder, files);
    struct stat status{};
    if (!left || (tightest && *left >= tightest->bytes) ||
        stat(folder.c_str(), &status) != 0)
      return;
    tightest = {*left, std::string(files.limit) + " of " + folder,
                scopeOf(bootOf(paths) + std::to_string(status.st_dev) + ":" +
                        std::to_string(status.st_ino))};
  };
  std::ifstream groups(paths.groups);
  for (std::string line; std::getline(groups, line);) {
    // "0::/user.slice/run" or "9:memory,hugetlb:/docker/1f".
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    bool isVersion2 = controllers == ",,";
    if (!isVersion2 && controllers.find(",memory,") == std::string::npos)
      continue;
    const Files &files = isVersion2 ? version2 : version1;
    std::string root = paths.mount + (isVersion2 ? "" : "/memory");
    std::string path = line.substr(second + 1);
    // Up to the root: in a container the mount begins at the own group, and the
    // path may name what lies outside of it.
    while (!path.empty()) {
      look(root + path, files);
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
    look(root, files);
  }
  return tightest;
}

void checkHostMemory(const std::vector<RankNeed> &ranks,
                     const std::optional<MemoryBound> &machine,
                     const std::optional<MemoryBound> &group) {
  auto check = [&](const std::optional<MemoryBound> &bound,
                   uint64_t RankNeed::*scope, const char *where) {
    if (!bound)
      return;
    uint64_t bytes = 0, count = 0;
    for (const RankNeed &rank : ranks)
      if (rank.*scope == bound->scope) {
        bytes += rank.bytes;
        ++count;
      }
    if (bytes > bound->bytes)
      fail(ExitMemory,
           "the arenas of the " + std::to_string(count) +
               (count == 1 ? " rank " : " ranks ") + where + " need " +
               bytesText(bytes) + ", " + bytesText(bound->bytes) +
               " are available (" + bound->source +
               "); run fewer ranks here, or compile for less --memory");
  };
  check(group, &RankNeed::groupScope, "in this control group");
  check(machine, &RankNeed::machineScope, "on this machine");
}

} // namespace grt
