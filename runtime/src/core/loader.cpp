//===- loader.cpp - Making a rank ready -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/loader.h"
#include "base/allocation.h"
#include "base/error.h"
#include "core/init.h"
#include "core/whole_buffers.h"
#include "core/workers.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace grt {

RankLoader::RankLoader(Rank &rank)
    : rank(rank), state(rank.state), manifest(rank.manifest), host(rank.host),
      activity(rank.activity), role(*rank.roleData), self(rank.self),
      local(rank.local) {}

void Rank::load() { RankLoader(*this).load(); }

void RankLoader::load() {
  // Where there is a device, memory is taken on the rank's.
  rank.backendState = state.backend.create_rank(self, state.threadsPerRank);
  if (!rank.backendState && state.backend.device)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' does not start" + whyNot(state.backend));
  rank.arena = std::make_unique<Arena>(
      state.backend,
      grt_arena{role.arenaBytes, role.window.offset, role.window.bytes,
                role.slotStride, uint64_t(role.slotsInArena()),
                hasWholeBuffers(manifest, role, state.program.file())},
      self);
  uint64_t lossBytes =
      alignUp(uint64_t(manifest.microBatches) * manifest.lossBytes());
  uint32_t outStream = GRT_STREAM_COMPUTE;
  for (const grt_task_list &list : rank.schedule().parts)
    for (uint64_t i = 0; i < list.count; ++i)
      if (list.tasks[i].kind == GRT_TASK_SWAP) {
        rank.swapsOnStreams |= list.tasks[i].stream != GRT_STREAM_COMPUTE;
        if (list.tasks[i].tiers == GRT_TO_HOST)
          outStream = list.tasks[i].stream;
      }
  if (role.homeBytes > 0)
    makeHome();
  rank.device = std::make_unique<Device>(
      state.backend, rank.backendState, activity, host.size(),
      lossBytes + alignUp(sizeof(grt_step)), state.failed);
  if (*rank.device)
    joinDevices();
  setUpSides(outStream);
  if (*rank.device)
    checkTies();
  clearMemory();

  rank.everyone = &host.group(allRanks());
  rank.layers.resize(role.layers.size());
  for (size_t i = 0; i < rank.layers.size(); ++i)
    prepareLayer(i);
  rank.procedures =
      Procedures(state.program.file(), size_t(rank.roleNumber), role);
  rank.stepEnd.gathered.resize(size_t(host.size()));
  rank.stepEnd.decidedBy.resize(size_t(host.size()));
  rank.olderOffset = manifest.delay ? manifest.versionStride(role) : 0;
  prepareTies();
  for (const Role &each : manifest.roles)
    if (each.layers.back().output == OutputKind::Loss)
      rank.stepEnd.withLoss = each.devices;
  prepareKernels();
  warmUp();
  initialiseWeights();
  rank.device->waitForAll();
  rank.lookAtDeviceMemory();
  if (rank.recorder) {
    rank.recorder->attach(rank.live, rank.staticBytes);
    rank.recorder->attach(*rank.device);
  }
  beginAllocationCount();
}

void RankLoader::setUpSides(uint32_t outStream) {
  rank.here = {&state.backend, rank.backendState, rank.device.get(),
               rank.communicator, rank.arena->base()};
  rank.atHome = rank.here;
  if (rank.homeDevice)
    rank.atHome = {state.homeBackend,
                   rank.homeState,
                   rank.homeDevice.get(),
                   &host,
                   nullptr,
                   true};
  if (rank.homeMemory) {
    rank.atHome.base = rank.homeMemory->base();
    rank.swaps.setUp(*rank.homeMemory, *rank.device, rank.arena->base(),
                     state.copyRate, rank.atHome.isHost, outStream);
  }
  rank.updatesHere =
      !rank.homeDevice || std::any_of(role.layers.begin(), role.layers.end(),
                                      [](const Layer &layer) {
                                        return !layer.isAway ||
                                               layer.updatesOnDevice;
                                      });
}

std::vector<int> RankLoader::allRanks() const {
  std::vector<int> all(size_t(host.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void RankLoader::makeHome() {
  rank.homeMemory =
      std::make_unique<HomeMemory>(state.backend, role.homeBytes, self);
  if (!state.backend.device)
    return;
  if (role.awaySlot.bytes)
    invalid(std::string("activations of some layers have their home on the "
                        "host, which backend '") +
            state.backend.name + "' has for all or none: expected 'cpu'");
  // What moves; optimizer states stay, unless packs are updated on the device.
  if (manifest.hasPacks)
    pinHomeOfPacks();
  else
    for (const Extent &extent :
         {role.parameters, role.gradients, role.homeSlots})
      rank.homeMemory->pin(extent.offset, extent.bytes);
  rank.homeState = state.homeBackend->create_rank(self, state.threadsPerRank);
  rank.homeDevice =
      std::make_unique<Device>(*state.homeBackend, rank.homeState, activity,
                               host.size(), /*resultBytes=*/0, state.failed);
}

void RankLoader::pinHomeOfPacks() {
  // Optimizer states lie in front of slots. Where they move, or are too small
  // to part the pages of their neighbours, all is pinned.
  bool whole = role.optimizer.bytes < HomeMemory::page;
  for (const Layer &layer : role.layers)
    whole |= layer.updatesOnDevice;
  if (whole) {
    rank.homeMemory->pin(0, role.homeBytes);
  } else {
    rank.homeMemory->pin(0, role.optimizer.offset);
    rank.homeMemory->pin(role.homeSlots.offset, role.homeSlots.bytes);
  }
  if (role.homeSlots.bytes &&
      !rank.homeMemory->isPinned(role.homeSlots.offset, role.homeSlots.bytes))
    fail(ExitMemory, "rank " + std::to_string(self) +
                         ": expected pinned memory of the host for " +
                         std::to_string(role.homeSlots.bytes) +
                         " bytes that packs recompute from, of " +
                         std::to_string(role.homeBytes) + " bytes at home " +
                         std::to_string(rank.homeMemory->pageableBytes()) +
                         " are not pinned");
}

void RankLoader::prepareTies() {
  bool leavesAnywhere = false;
  for (size_t i = 0; i < manifest.ties.size(); ++i) {
    const Tie &tie = manifest.ties[i];
    const TieEnd &borrower = tie.borrower;
    Ties::Own own{i};
    own.owns = tie.owner.role == rank.roleNumber;
    own.borrows = borrower.role == rank.roleNumber;
    own.isLeft =
        manifest.delay && !*rank.device && tie.owner.role != borrower.role;
    own.reduces = !manifest.roles[size_t(borrower.role)]
                       .layers[size_t(borrower.layer)]
                       .forwardOnly;
    leavesAnywhere |= own.isLeft;
    if (!own.owns && !own.borrows)
      continue;
    const TieEnd &end = own.owns ? tie.owner : borrower;
    own.side = rank.layers[size_t(end.layer)].places.home;
    rank.ties.own.push_back(own);
  }
  if (leavesAnywhere)
    host.reserveBoxes(manifest.ties.size());
}

void RankLoader::checkTies() const {
  auto isAway = [&](const TieEnd &end) {
    return manifest.roles[size_t(end.role)].layers[size_t(end.layer)].isAway;
  };
  for (const Tie &tie : manifest.ties)
    if (isAway(tie.owner) != isAway(tie.borrower))
      invalid("tied parameter '" +
              manifest.parameters[size_t(tie.parameter)].name +
              "' has its home on the host in one of two layers, whose "
              "gradients the host and a device cannot sum: expected both of "
              "them there, or neither");
}

void RankLoader::clearMemory() {
  rank.staticBytes = 0;
  char *base = rank.arena->base();
  auto fillOn = [](Device &of, char *memory, int byte, const Extent &extent) {
    of.fill(GRT_STREAM_COMPUTE, memory + extent.offset, byte, extent.bytes);
  };
  auto fill = [&](char *memory, int byte, const Extent &extent) {
    fillOn(*rank.device, memory, byte, extent);
  };
  if (state.poison)
    rank.device->fill(GRT_STREAM_COMPUTE, base, poisonByte,
                      role.addressBytes());
  for (const Extent &extent : {role.loss, role.step, role.data})
    fill(base, 0, extent);
  char *home = rank.homeMemory ? rank.homeMemory->base() : base;
  for (const Extent &extent : {role.parameters, role.optimizer})
    fillOn(*rank.atHome.memory, home, 0, extent);
  // The first micro-batch of a step writes gradients; poison shows if not.
  if (!state.poison || rank.homeMemory)
    fillOn(*rank.atHome.memory, home, state.poison ? poisonByte : 0,
           role.gradients);
  // Of layers that stay, beside others at home.
  if (rank.homeMemory)
    fill(base, 0, role.residentOptimizer);
  for (const Layer &layer : role.layers)
    if (rank.homeMemory && !layer.isAway)
      fill(base, 0,
           {layer.parameter,
            uint64_t(layer.heldElements()) * manifest.elementBytes()});
  // What comes there is written before it is read.
  if (!state.poison && rank.homeMemory)
    for (const Extent &extent :
         {role.residentParameters, role.residentGradients})
      fill(base, 0, extent);
  for (uint64_t i = 0; !*rank.device && i < manifest.batchesAtOnce(); ++i)
    new (base + role.step.offset +
         role.step.bytes / manifest.batchesAtOnce() * i) grt_step();
  rank.turnTo(0);
  for (const Extent &extent : {role.data, role.loss, role.step, role.workspace})
    rank.staticBytes += extent.bytes;
  if (rank.homeMemory && !manifest.hasPacks)
    rank.staticBytes += role.residentParameters.bytes +
                        role.residentGradients.bytes +
                        role.residentOptimizer.bytes;
  else if (!rank.homeMemory)
    rank.staticBytes +=
        role.parameters.bytes + role.gradients.bytes + role.optimizer.bytes;
}

void RankLoader::prepareLayer(size_t number) {
  const Layer &layer = role.layers[number];
  LayerState &prepared = rank.layers[number];
  int64_t index[std::size(kAxes)], size[std::size(kAxes)];
  const Side &home = layer.isAway ? rank.atHome : rank.here;
  const Side &side = layer.updatesOnDevice ? rank.here : home;
  Group *groupsOfSide[std::size(kAxes)] = {};
  for (grt_axis axis : kAxes) {
    index[axis] = axisIndex(layer, local, axis);
    size[axis] = layer.degree(axis);
    if (size[axis] == 1)
      continue;
    const std::vector<int> ranks = axisRanks(role, layer, local, axis);
    prepared.groups[axis] = &rank.communicator->group(ranks);
    // All ranks make all groups, of the host's too if there is one beside a
    // device.
    Group *atHomes = &rank.atHome.communicator->group(ranks);
    groupsOfSide[axis] = side.isHost ? atHomes : prepared.groups[axis];
    static const char *const names[] = {"dp", "sdp", "tp", "cp"};
    for (const Group *group : {prepared.groups[axis], atHomes})
      activity.collectives.communicator(group, names[axis], ranks);
  }
  prepared.block = sampleBlock(layer, local);
  prepared.samples = samplesOf(manifest, layer, local);
  prepared.isFirst = index[GRT_AXIS_TP] == 0;
  if (layer.replicated) {
    index[GRT_AXIS_TP] = 0;
    size[GRT_AXIS_TP] = 1;
  }
  const grt_axis blocks = size[GRT_AXIS_CP] > 1 ? GRT_AXIS_CP : GRT_AXIS_TP;
  prepared.coordinates = {index[GRT_AXIS_DP],  size[GRT_AXIS_DP],
                          index[GRT_AXIS_SDP], size[GRT_AXIS_SDP],
                          index[GRT_AXIS_TP],  size[GRT_AXIS_TP],
                          layer.dropoutKey,    0,
                          layer.samples,       index[blocks],
                          size[blocks]};

  rank.samplesHeld.resize(role.copies.size());
  for (int copy : layer.data) {
    Rank::HeldSamples &samples = rank.samplesHeld[copy];
    Rank::HeldSamples wanted{prepared.samples, layer.samples};
    if (samples.count && (samples.runs.first != wanted.runs.first ||
                          samples.count != wanted.count))
      fail("rank " + std::to_string(self) + ", layer '" + layer.name +
           "': reads samples of '" +
           manifest.data[role.copies[copy].datum].name +
           "' that its copy does not have");
    samples = wanted;
  }

  prepared.outputBytes = outputBytes(manifest, role, number);
  prepared.places =
      stepPlaces(manifest, role, number, local, home, side, groupsOfSide);
  prepared.bindings = LayerBindings(manifest, role, number, local,
                                    prepared.places, rank.arena->base());
  rank.bound.reserve(layer.inputs.size(), layer.data.size());
}

void RankLoader::initialiseWeights() {
  Workers workers(state.threadsPerRank);
  for (const Layer &layer : role.layers)
    for (const LayerTensor &tensor : layer.tensors)
      forEachStretch(layer, tensor, local, [&](const TensorStretch &stretch) {
        initialiseStretch(workers, layer, tensor, stretch);
      });
}

void RankLoader::initialiseStretch(Workers &workers, const Layer &layer,
                                   const LayerTensor &tensor,
                                   const TensorStretch &stretch) {
  const Parameter &parameter = manifest.parameters[tensor.parameter];
  const int64_t begin = stretch.held();
  activity.advance();
  auto fill = [&](uint64_t first, uint64_t count, auto store) {
    workers.share(int64_t(count), 4096, [&](int64_t from, int64_t to) {
      stretch.forParts(int64_t(first) + from, to - from,
                       [&](const TensorRun &part, uint64_t at) {
                         store(part.global, uint64_t(from) + at, part.count);
                       });
    });
  };
  const uint64_t count = uint64_t(stretch.count());
  const grt_dtype dtype = manifest.dtype, wide = manifest.accumulatorType();
  const uint64_t width = dtypeBytes(dtype), wideWidth = dtypeBytes(wide);
  char *to = rank.home(layer) + layer.parameter + uint64_t(begin) * width;
  if (!tensor.isTrained() || !stretch.owned() || !manifest.hasMasterWeights())
    return rank.access(layer).write(
        to, count, width, [&](char *memory, uint64_t first, uint64_t n) {
          fill(first, n, [&](int64_t global, uint64_t at, int64_t part) {
            initialValues(parameter, state.options.seed, global, part,
                          {{dtype, memory + at * width}});
          });
        });
  rank.access(layer).write(
      to, width,
      rank.home(layer) + manifest.masterOffset(layer) +
          uint64_t(begin + stateShift(layer, local)) * wideWidth,
      wideWidth, count,
      [&](char *memory, char *master, uint64_t first, uint64_t n) {
        fill(first, n, [&](int64_t global, uint64_t at, int64_t part) {
          initialValues(
              parameter, state.options.seed, global, part,
              {{dtype, memory + at * width}, {wide, master + at * wideWidth}});
        });
      });
}

} // namespace grt
