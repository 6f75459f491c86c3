//===- host_memory.h - Memory that this process may still take ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Available memory, as Linux estimates it for the machine and as the limits of
// control groups leave it. The kernel ends a process that takes more without a
// word, so arenas are compared with it before they are made.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_HOST_MEMORY_H
#define GRT_CORE_HOST_MEMORY_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace grt {

/// Where the system says it.
struct MemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string bootId = "/proc/sys/kernel/random/boot_id";
  std::string mount = "/sys/fs/cgroup";
};

/// One bound of what may be taken. Processes for which `scope` is equal share
/// the bytes.
struct MemoryBound {
  uint64_t bytes = 0;
  std::string source; ///< "MemAvailable of /proc/meminfo"
  uint64_t scope = 0; ///< below 2^52
};

/// MemAvailable of the machine, whose scope is the running kernel.
std::optional<MemoryBound> machineMemory(const MemoryPaths &paths = {});

/// The tightest limit of the process's control group and those above it, in
/// version 2 or 1 of the interface: limit minus usage, with the file cache that
/// the kernel would give up first. Its scope is the group's folder. None
/// without a limit.
std::optional<MemoryBound> groupMemory(const MemoryPaths &paths = {});

/// A rank as every process sees it.
struct RankNeed {
  uint64_t bytes = 0;        ///< of host memory, still to be taken
  uint64_t machineScope = 0; ///< of its process's bounds; 0: none
  uint64_t groupScope = 0;
};

/// Throws Error with ExitMemory if the ranks that share a bound need more than
/// it leaves.
void checkHostMemory(const std::vector<RankNeed> &ranks,
                     const std::optional<MemoryBound> &machine,
                     const std::optional<MemoryBound> &group);

} // namespace grt

#endif // GRT_CORE_HOST_MEMORY_H
