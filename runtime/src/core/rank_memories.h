//===- rank_memories.h - What a rank holds --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of a rank and those who work on it: its arena, the home of its
// states, the device or the host, and tables of where its layers lie.
// RankLoader fills it, then nothing of it changes but the bytes.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_RANK_MEMORIES_H
#define GRT_CORE_RANK_MEMORIES_H

#include "core/arena.h"
#include "core/device_communicator.h"
#include "core/home_swaps.h"
#include "core/places.h"
#include "core/run_state.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace grt {

class RankMemories {
public:
  explicit RankMemories(const RankFacts &facts);
  /// Ends what is under way on the device, in the order that backends ask for.
  ~RankMemories();
  RankMemories(const RankMemories &) = delete;
  RankMemories &operator=(const RankMemories &) = delete;

  const Layer &layer(size_t number) const { return facts.role->layers[number]; }
  const StepPlaces &placesOf(const Layer &layer) const {
    return layers[size_t(&layer - facts.role->layers.data())].places;
  }
  /// Where states have their home; if that is a device's memory, the host goes
  /// there through `access` only.
  char *home(const Layer &layer) const { return placesOf(layer).home->base; }
  Device &access(const Layer &layer) const {
    return *placesOf(layer).home->memory;
  }
  /// Who runs functions of a layer in a phase.
  const Side *sideOf(const Layer &layer, LayerPhase phase) const {
    return phase == LayerPhase::Norm || phase == LayerPhase::Update
               ? placesOf(layer).side
               : &here;
  }
  /// Whether losses are computed here, so that the loss of a step is known as
  /// soon as all such ranks have done it.
  bool hasLoss() const;
  /// Tells a checking backend what the host itself uses.
  void noteUseBy(const Side &who, const void *address, uint64_t bytes,
                 const char *name) const {
    if (who.isHost)
      device->note(GRT_NOTE_AT_HOME, address, bytes, name);
  }
  // From any thread, and nothing without a device:
  /// whether something of this rank's has failed in the background,
  bool hasFailed(std::string &message) const;
  /// and the end of what is under way.
  void abortDevice() const;
  /// What carries the device's collectives, with its version.
  std::string collectivesLibrary() const;

  const RankFacts &facts;
  void *backendState = nullptr;
  std::unique_ptr<Arena> arena;
  /// No memory where the arena is the states' home.
  std::unique_ptr<HomeMemory> homeMemory;
  /// Where there is a device and the host does what is done at home.
  void *homeState = nullptr;
  std::unique_ptr<Device> homeDevice;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> aroundDevices;
  std::atomic<DeviceCommunicator *> devices = nullptr;
  /// For what is in arenas: the host's, or around `devices`.
  Communicator *communicator;
  Group *everyone = nullptr;
  /// The device on the arena; on states at home the same, or the host with
  /// kernels of its own.
  Side here, atHome;
  /// Some layer's update is not done at home beside a device.
  bool updatesHere = true;
  HomeSwaps swaps;
  std::vector<LayerState> layers;
};

} // namespace grt

#endif // GRT_CORE_RANK_MEMORIES_H
