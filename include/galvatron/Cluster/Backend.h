//===- Backend.h - What the compiler knows of a backend ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backend is a property of the device type, and a name. What differs between
// backends for search, plan and code stands here, once.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CLUSTER_BACKEND_H
#define GALVATRON_CLUSTER_BACKEND_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace galvatron {

struct BackendTraits {
  /// Kernels and collectives are queued on streams (grt_stream) between which
  /// only events order anything.
  bool streams = false;
  /// Memory is mapped in multiples of this many bytes: pages on CPUs.
  int64_t mappingGranule = 4096;
  /// Products do element-wise work on their results, and sum the rows of their
  /// operands, for less than a pass over memory.
  bool productEpilogues = false;
  /// Memory that its libraries take in the arena of every rank.
  int64_t workspaceBytes = 0;
  /// Its communication library registers whole pieces of mapped memory, so that
  /// a buffer over the end of one is copied instead.
  bool registersBuffers = false;
  /// Messages and collectives of one device share what it can send: together
  /// they take as long as one after the other. Kernels of NCCL that run beside
  /// each other share the same links; that they gain anything was never
  /// measured.
  bool oneQueue = false;
};

/// The traits of "cpu" or "cuda". The empty name, which stands for devices of
/// several backends (they can be planned for, not compiled for), gives the
/// larger of every number.
BackendTraits backendTraits(llvm::StringRef backend);

} // namespace galvatron

#endif // GALVATRON_CLUSTER_BACKEND_H
