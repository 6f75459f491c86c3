//===- loader_devices.cpp - Ranks that have devices -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/capture.h"
#include "core/loader.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace grt {

void RankLoader::noteMemory() const {
  if (memories.homeMemory)
    memories.device->note(GRT_NOTE_HOME, memories.homeMemory->base(),
                          memories.homeMemory->bytes(), "home");
  memories.device->note(GRT_NOTE_DYNAMIC, memories.arena->base(),
                        role.addressBytes(), "arena");
  auto keep = [&](const char *name, uint64_t offset, uint64_t bytes) {
    memories.device->note(GRT_NOTE_STATIC, memories.arena->base() + offset,
                          bytes, name);
  };
  for (const auto &[name, extent] : {std::pair("data", role.data),
                                     {"loss", role.loss},
                                     {"step", role.step},
                                     {"workspace", role.workspace}})
    keep(name, extent.offset, extent.bytes);
  for (const Layer &layer : role.layers) {
    const uint64_t parameters =
        uint64_t(layer.heldElements()) * manifest.elementBytes();
    const uint64_t gradients =
        uint64_t(layer.trainedElements()) * manifest.accumulatorBytes();
    if (manifest.hasPacks)
      continue; // What it has there lives while its pack is there.
    if (layer.isAway) {
      // Layers of several chunks take turns.
      keep("parameters", layer.residentParameter, parameters);
      keep("gradients", layer.residentGradient, gradients);
      continue;
    }
    for (uint64_t version = 0; version < uint64_t(manifest.weightVersions);
         ++version)
      keep(version ? "older parameters" : "parameters",
           layer.parameter + version * manifest.versionStride(role),
           parameters);
    keep("gradients", layer.gradient, gradients);
    keep("optimizer state", layer.optimizer, manifest.optimizerBytes(layer));
  }
}

DeviceCommunicator &
RankLoader::connectDevices(const grt_device_collectives *collectives) {
  if (!collectives && host.size() > 1)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' cannot connect " + std::to_string(host.size()) + " ranks" +
         (state.oneProcess ? "" : " of several processes"));
  auto joined = std::make_unique<DeviceCommunicator>(
      *memories.device, state.backend, collectives, host);
  DeviceCommunicator &mine = *joined;
  memories.aroundDevices = watchedCommunicator(
      std::move(joined), activity,
      [&observer = observer](uint32_t stream, uint64_t number) {
        observer.leaveMark(stream, number);
      });
  // A failure elsewhere ends the wait for others.
  memories.devices = &mine;
  return mine;
}

void RankLoader::joinDevices() {
  const grt_device &table = *state.backend.device;
  noteMemory();
  if (role.workspace.bytes && table.use_workspace)
    memories.device->check([&](char *message, size_t bytes) {
      return table.use_workspace(memories.backendState,
                                 memories.arena->base() + role.workspace.offset,
                                 role.workspace.bytes, message, bytes);
    });
  // One process can do without what several need.
  const grt_device_collectives *collectives =
      state.oneProcess && table.local_collectives ? table.local_collectives
                                                  : table.collectives;
  DeviceCommunicator &mine = connectDevices(collectives);
  const auto rounds = groupRounds(manifest);
  const uint32_t exchanges = exchangeStreams(manifest);
  uint32_t used = exchanges;
  for (const auto &round : rounds)
    for (const StreamGroup &group : round)
      used |= group.streams;
  const auto atOnce = uint32_t(std::popcount(used));
  mine.useStreams(exchanges, exchanges, atOnce);
  mine.join();
  chooseGraphs(collectives);
  if (facts.recorder)
    memories.aroundDevices =
        tracedCommunicator(std::move(memories.aroundDevices), *facts.recorder);
  memories.communicator = memories.aroundDevices.get();
  joinGroups(mine, rounds, atOnce);
  reserveRows(mine);
  placeTied(mine);
  numberEvents();
}

void RankLoader::joinGroups(DeviceCommunicator &mine,
                            const std::vector<std::vector<StreamGroup>> &rounds,
                            uint32_t atOnce) {
  for (const auto &round : rounds) {
    auto own = std::find_if(round.begin(), round.end(), [&](const auto &group) {
      return std::find(group.ranks.begin(), group.ranks.end(), self) !=
             group.ranks.end();
    });
    uint32_t anywhere = 0;
    for (const StreamGroup &group : round)
      anywhere |= group.streams;
    mine.useStreams(own != round.end() ? own->streams : 0, anywhere, atOnce);
    if (own != round.end())
      mine.group(own->ranks);
    else
      mine.withoutGroup();
  }
  mine.useStreams(0, 0, atOnce);
  if (graphs.isOne && host.size() > 1) {
    graphs.everyone = &memories.communicator->group(allRanks());
    activity.collectives.communicator(graphs.everyone, "results", allRanks());
  }
}

void RankLoader::reserveRows(DeviceCommunicator &mine) const {
  size_t rows = 0;
  auto count = [&](const ExchangeTable &of) {
    for (const auto *sides : {&of.sends, &of.receives})
      for (const ExchangePeer &side : *sides)
        rows += side.rows.size();
  };
  for (const auto &tables : state.exchanges)
    count(tables[self]);
  for (const TieTables &tables : state.ties) {
    count(tables.broadcast[self]);
    // What arrives is cut once more for every round.
    for (const auto &side : tables.reduce[self].receives)
      rows += 2 * side.rows.size() + 1;
    for (const auto &side : tables.reduce[self].sends)
      rows += 2 * side.rows.size() + 1;
  }
  mine.reserveRows(rows);
}

void RankLoader::placeTied(DeviceCommunicator &mine) {
  // Gradients of tied parameters arrive where the first slot is, or a boundary
  // buffer, which hold nothing at the end of a step; the same room on all
  // ranks.
  // Where batches go on slots hold what the next one has begun with.
  bool slotsAreFree = !manifest.delay || manifest.roles.size() == 1;
  uint64_t room = UINT64_MAX;
  for (const Role &other : manifest.roles)
    room = std::min(room, std::max(slotsAreFree ? other.slotBytes : 0,
                                   other.boundary[0].bytes));
  // What is tied is summed at home, if all of it is there.
  bool tiedHere = !memories.homeMemory;
  for (const Tie &tie : manifest.ties)
    for (const TieEnd &end : {tie.owner, tie.borrower})
      tiedHere |= end.role == facts.roleNumber &&
                  !role.layers[size_t(end.layer)].isAway;
  size_t peers = 0;
  for (const TieTables &tables : state.ties)
    peers = std::max(peers, tables.reduce.mostReceives);
  if (peers && tiedHere) {
    uint64_t each = room / peers / GRT_ALIGNMENT * GRT_ALIGNMENT;
    ties.scratch = {slotsAreFree && role.slotBytes >= room
                        ? role.slots.offset
                        : role.boundary[0].offset,
                    each * peers};
    mine.useScratch(memories.arena->base() + ties.scratch.offset, each, peers);
  }
}

void RankLoader::numberEvents() {
  const grt_device &table = *state.backend.device;
  uint32_t first = StepEnd::resultsEvent + 1;
  observer.marks.kept = Device::marksOf(table.event_count);
  observer.marks.first = table.event_count - observer.marks.kept;
  streams.firstScheduleEvent = first;
  for (const grt_task_list &list : facts.schedule().parts)
    for (uint64_t i = 0; i < list.count; ++i)
      first =
          std::max(first, streams.firstScheduleEvent + list.tasks[i].records);
  if (first + 2 > observer.marks.first)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' has " + std::to_string(table.event_count) +
         " events, too few for the " +
         std::to_string(first - streams.firstScheduleEvent) +
         " of the schedule");
  streams.handoffs.setUp(*memories.device, size_t(role.slotCount),
                         role.boundary.size(), first,
                         (observer.marks.first - first) / 2);
}

void RankLoader::chooseGraphs(const grt_device_collectives *collectives) {
  const grt_device &table = *state.backend.device;
  // Every reason holds of all ranks or of none: they decide together.
  const StepCapture step = captureOf(manifest, state.program.file());
  graphs.whyNotOne = !state.options.graphs ? "it is not wanted"
                     : !table.begin_graph  ? "the backend has no graphs"
                     : step.graphs == 0    ? step.why
                     : host.size() > 1 && !collectives->in_graphs
                         ? "collectives '" + std::string(collectives->name) +
                               "' cannot be part of a graph"
                         : "";
  graphs.wanted = graphs.whyNotOne.empty();
  if (!graphs.wanted)
    return;
  // Ranks may be more than the plan's.
  graphs.whyNotOne = !table.decide_update ? "the host decides of the update"
                     : canGatherResults(manifest, uint64_t(host.size()))
                         ? step.why
                         : "there is no workspace to gather results in";
  graphs.isOne = graphs.whyNotOne.empty();
}

} // namespace grt
