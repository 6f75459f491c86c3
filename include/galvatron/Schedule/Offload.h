//===- Offload.h - States with their home on the host -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_OFFLOAD_H
#define GALVATRON_SCHEDULE_OFFLOAD_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>

namespace galvatron {

/// Which states have their home in the host's memory instead of the devices'.
enum class Offload : uint8_t {
  Off,
  /// Optimizer states; parameters and gradients of all layers are on the
  /// devices for a step's passes.
  Optimizer,
  /// All of them; of a stage's chunks the one that runs is on its devices.
  All
};
/// "off", "optimizer", "all".
llvm::StringRef offloadName(Offload offload);
/// Reads a name; the error lists them.
llvm::Expected<Offload> parseOffload(llvm::StringRef text);
/// Chunks of a stage that are on its devices at once; 0: everything is.
int64_t residentChunks(Offload offload, int64_t chunks);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_OFFLOAD_H
