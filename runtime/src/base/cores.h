//===- cores.h - Cores that this process may use --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_CORES_H
#define GRT_BASE_CORES_H

#include <algorithm>
#include <sched.h>
#include <thread>

namespace grt {

inline int availableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
    return CPU_COUNT(&set);
  return std::max(1, int(std::thread::hardware_concurrency()));
}

} // namespace grt

#endif // GRT_BASE_CORES_H
