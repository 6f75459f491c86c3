//===- variables.cpp - Variables that libraries read when loaded ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/variables.h"

#include <cstdlib>

namespace grt {

std::vector<LibraryVariable>
missingLibraryVariables(const Environment &environment) {
  auto isSet = [&](const char *name) {
    return (environment ? environment(name) : std::getenv(name)) != nullptr;
  };
  std::vector<LibraryVariable> missing;
  // A kernel is followed by the next one at once, or by a rank that waits for
  // others: threads that spin for long between kernels only take time from
  // other ranks, and on a shared machine from the thread that they wait for.
  // 1000 turns are about 60 us.
  if (!isSet("GOMP_SPINCOUNT") && !isSet("OMP_WAIT_POLICY"))
    missing.push_back(
        {"GOMP_SPINCOUNT", "1000", "cpu",
         "OpenMP's threads spin for milliseconds behind every kernel, which "
         "takes their cores from whatever else runs"});
  // Ranks of a graph start what is on its streams in no order that the host has
  // given; this one keeps it among communicators, which may run beside each
  // other all the same (NCCL 2.26, in graphs by drivers for CUDA 12.9).
  if (!isSet("NCCL_LAUNCH_ORDER_IMPLICIT"))
    missing.push_back(
        {"NCCL_LAUNCH_ORDER_IMPLICIT", "1", "cuda",
         "collectives of several communicators begin in an order that may "
         "differ between ranks, which then wait for each other if the GPU has "
         "no room for all"});
  return missing;
}

} // namespace grt
