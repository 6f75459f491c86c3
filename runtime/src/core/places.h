//===- places.h - Where the states and values of a layer lie --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tables that are made once, when a rank is loaded, so that what runs does not
// ask how a program keeps its states: in the arena or at home, whole or cut,
// updated by the device or by the host.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PLACES_H
#define GRT_CORE_PLACES_H

#include "comm/collective_log.h"
#include "comm/communicator.h"
#include "core/device.h"
#include "core/layout.h"
#include "core/trace.h"

#include <array>
#include <vector>

namespace grt {

/// A memory with those who work on it.
struct Side {
  const grt_backend *backend = nullptr;
  void *state = nullptr;
  Device *memory = nullptr;
  Communicator *communicator = nullptr;
  char *base = nullptr;
  /// The host beside a device, whose kernels have a step block of their own.
  bool isHost = false;
};

/// A collective over states of a layer that the program does not call.
struct StateCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  Group *group = nullptr;
  char *from = nullptr, *to = nullptr;
  uint64_t elements = 0; ///< of all-reduce; else of one rank's part
  grt_dtype dtype = GRT_F32;

  uint64_t bytes() const { return elements * dtypeBytes(dtype); }
};

/// Where what is done once a step with a layer finds its states, and what ranks
/// do together then.
struct StepPlaces {
  const Side *home = nullptr; ///< has the states between steps
  const Side *side = nullptr; ///< does it
  char *parameters = nullptr, *gradients = nullptr, *optimizer = nullptr;
  /// Bytes of what the rank holds, and from it to what it updates.
  uint64_t parameterBytes = 0, gradientBytes = 0;
  std::vector<StateCollective> sums;    ///< of gradients, behind backward
  std::vector<StateCollective> gathers; ///< of parameters, behind the update
  ResidentStates resident;
};

/// Where a region of a function lies.
struct BoundRegion {
  char *base = nullptr; ///< of slot 0
  uint64_t bytes = 0;
  uint64_t perSlot = 0; ///< from a slot to the next one
};
using Binding = std::array<BoundRegion, GRT_REGION_COUNT>;

/// The twelve regions of a layer's functions, by phase; LayerPhase::Norm has
/// those of LayerPhase::Update. The micro-batch's loss and data, and the
/// version of the parameters, are what a task adds.
class LayerBindings {
public:
  LayerBindings() = default;
  /// `places` are the layer's, `arena` the rank's.
  LayerBindings(const Manifest &manifest, const Role &role, size_t layer,
                int localRank, const StepPlaces &places, char *arena);

  const Binding &operator[](LayerPhase phase) const {
    return rows[size_t(phase == LayerPhase::Norm ? LayerPhase::Update : phase)];
  }

private:
  class Builder;
  std::array<Binding, size_t(LayerPhase::Norm)> rows;
};

/// The state of a layer on a rank, once it is loaded.
struct LayerState {
  grt_coordinates coordinates;
  int64_t block = 0;
  SampleRuns samples;
  /// Of those on the TP axis, which have the same samples.
  bool isFirst = true;
  /// Of those with the same samples one counts what they all have: their sums
  /// of losses.
  bool countsLoss() const { return isFirst && coordinates.block_index == 0; }
  Group *groups[std::size(kAxes)] = {}; ///< by axis; null: alone
  uint64_t outputBytes = 0;
  StepPlaces places;
  LayerBindings bindings;
};

/// Places of a layer on a rank whose states are at `home` and updated by
/// `side`; of groups of the side's communicator those by axis.
StepPlaces stepPlaces(const Manifest &manifest, const Role &role, size_t layer,
                      int localRank, const Side &home, const Side &side,
                      Group *const groups[]);

} // namespace grt

#endif // GRT_CORE_PLACES_H
