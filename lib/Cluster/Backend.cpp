//===- Backend.cpp - What the compiler knows of a backend -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "grt/cuda_bounds.h"

namespace galvatron {

BackendTraits backendTraits(llvm::StringRef backend) {
  BackendTraits traits;
  if (backend == "cpu")
    return traits;
  traits.streams = true;
  traits.productEpilogues = true;
  traits.registersBuffers = true;
  traits.oneQueue = true;
  traits.mappingGranule = int64_t(GRT_CUDA_GRANULE);
  traits.workspaceBytes = int64_t(GRT_CUDA_WORKSPACE);
  return traits;
}

} // namespace galvatron
