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
  return missing;
}

void setLibraryVariables() {
  for (const LibraryVariable &variable : missingLibraryVariables())
    setenv(variable.name, variable.value, /*overwrite=*/0);
}

} // namespace grt
