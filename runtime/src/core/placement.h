//===- placement.h - Which device a process takes ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PLACEMENT_H
#define GRT_CORE_PLACEMENT_H

#include "grt/backend.h"
#include "grt/launcher.h"

#include <optional>
#include <span>
#include <string>

namespace grt {

/// Which of `count` devices, all that it may use, a process takes: the only
/// one, as launchers give to each of several processes one of its own; else the
/// one of its number on its machine; without a launcher, or where that does not
/// say this number, the first. Throws Error (2) where the number is not below
/// `count`, unless processes may share devices, which then go round them.
int chooseDevice(const Launch &launch, int count, bool share);

/// Chooses this process's device, where the backend has several to choose from
/// and GRT_CUDA_DEVICE has not chosen: `device`, or what chooseDevice() says.
/// Throws Error.
void placeProcess(const grt_backend &backend, bool share,
                  std::optional<int> device = std::nullopt);

/// The number of devices that this process may use, without taking any memory
/// of them; 0 in backends whose ranks are on the host. Throws Error.
int deviceCount(const grt_backend &backend);

/// What all ranks tell of theirs, as text that ends in zeros.
struct RankPlace {
  char device[96] = "";
  char host[64] = "";
};
/// This process's.
RankPlace ownPlace(const grt_backend &backend);

/// The message about the first ranks that are on one device; empty if each has
/// its own.
std::string sharedDevice(std::span<const RankPlace> places);

} // namespace grt

#endif // GRT_CORE_PLACEMENT_H
