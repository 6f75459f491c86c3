//===- fuzz_cluster.cpp - Cluster files -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  llvm::Expected<galvatron::Cluster> cluster =
      galvatron::Cluster::parse(text, "fuzzed");
  if (!cluster) {
    if (llvm::toString(cluster.takeError()).empty())
      std::abort();
    return 0;
  }
  if (cluster->deviceCount() < 1)
    std::abort();
  return 0;
}
