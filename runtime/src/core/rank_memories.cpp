//===- rank_memories.cpp - What a rank holds ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/rank_memories.h"

#include <algorithm>
#include <exception>

namespace grt {

RankFacts::RankFacts(RunState &state, Communicator &communicator,
                     Activity &activity, Recorder *recorder)
    : state(state), manifest(state.manifest), host(communicator),
      activity(activity), recorder(recorder), self(communicator.rank()) {
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const std::vector<int> &devices = manifest.roles[r].devices;
    auto it = std::find(devices.begin(), devices.end(), self);
    if (it != devices.end()) {
      roleNumber = int(r);
      local = int(it - devices.begin());
    }
  }
  role = &manifest.roles[size_t(roleNumber)];
}

RankMemories::RankMemories(const RankFacts &facts)
    : facts(facts), communicator(&facts.host) {
  swaps.figures.rank = facts.self;
}

RankMemories::~RankMemories() {
  try {
    if (device && *device && !facts.state.failed)
      device->waitForAll();
  } catch (const std::exception &) {
    // Nobody can be told any more; Session::finish would have said it.
  }
  devices = nullptr;
  aroundDevices.reset();
  if (device && homeMemory)
    device->note(GRT_NOTE_HOME, homeMemory->base());
  // It waits for what is left on its streams, and ends a graph that is being
  // made: only then may go what both name.
  if (backendState)
    facts.state.backend.destroy_rank(backendState);
  homeMemory.reset();
  device.reset();
  homeDevice.reset();
  arena.reset();
  if (homeState)
    facts.state.homeBackend->destroy_rank(homeState);
}

bool RankMemories::hasLoss() const {
  return facts.role->layers.back().output == OutputKind::Loss &&
         layers.back().countsLoss();
}

bool RankMemories::hasFailed(std::string &message) const {
  char text[1024] = "";
  const DeviceCommunicator *mine = devices.load();
  if (!mine || !mine->hasFailed(text, sizeof(text)))
    return false;
  text[sizeof(text) - 1] = 0;
  message = "rank " + std::to_string(facts.self) + ", " +
            facts.activity.describe() + ": " + text;
  return true;
}

void RankMemories::abortDevice() const {
  if (const DeviceCommunicator *mine = devices.load())
    mine->abortDevice();
}

std::string RankMemories::collectivesLibrary() const {
  const DeviceCommunicator *mine = devices.load();
  return mine ? mine->library() : "";
}

} // namespace grt
