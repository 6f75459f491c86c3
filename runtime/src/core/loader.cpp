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
#include "grt/axes.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace grt {

RankLoader::RankLoader(Rank &rank)
    : facts(rank.facts), memories(rank.memories), observer(rank.observer),
      inUse(rank.inUse), batch(rank.batch), calls(rank.calls),
      streams(rank.streams), ties(rank.ties), stepEnd(rank.stepEnd),
      interpreter(rank.interpreter), graphs(rank.graphs), state(facts.state),
      manifest(facts.manifest), host(facts.host), activity(facts.activity),
      role(*facts.role), self(facts.self), local(facts.local) {}

bool RankLoader::goesAhead(const RankFacts &facts) {
  // Where nothing of a step needs all ranks, none waits for them unless
  // somebody wants to know of a step at once. Over devices a step is a graph.
  const RunState &state = facts.state;
  return facts.manifest.delay > 0 ||
         (mayGoAhead(facts.manifest) && state.options.onNan == OnNan::Late &&
          !state.backend.device);
}

void Rank::load() { RankLoader(*this).load(); }

void RankLoader::load() {
  // Where there is a device, memory is taken on the rank's.
  memories.backendState = state.backend.create_rank(self, state.threadsPerRank);
  if (!memories.backendState && state.backend.device)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' does not start" + whyNot(state.backend));
  memories.arena = std::make_unique<Arena>(
      state.backend,
      grt_arena{role.arenaBytes, role.window.offset, role.window.bytes,
                role.slotStride, uint64_t(role.slotsInArena()),
                hasWholeBuffers(manifest, role, state.program.file())},
      self);
  uint64_t lossBytes =
      alignUp(uint64_t(manifest.microBatches) * manifest.lossBytes());
  uint32_t outStream = GRT_STREAM_COMPUTE;
  for (const grt_task_list &list : facts.schedule().parts)
    for (uint64_t i = 0; i < list.count; ++i)
      if (list.tasks[i].kind == GRT_TASK_SWAP) {
        streams.swaps |= list.tasks[i].stream != GRT_STREAM_COMPUTE;
        if (list.tasks[i].tiers == GRT_TO_HOST)
          outStream = list.tasks[i].stream;
      }
  if (role.homeBytes > 0)
    makeHome();
  memories.device = std::make_unique<Device>(
      state.backend, memories.backendState, activity, host.size(),
      lossBytes + alignUp(sizeof(grt_step)), state.failed);
  if (*memories.device)
    joinDevices();
  setUpSides(outStream);
  if (*memories.device)
    checkTies();
  clearMemory();

  memories.everyone = &host.group(allRanks());
  memories.layers.resize(role.layers.size());
  for (size_t i = 0; i < memories.layers.size(); ++i)
    prepareLayer(i);
  interpreter.procedures =
      Procedures(state.program.file(), size_t(facts.roleNumber), role);
  stepEnd.reserve(size_t(host.size()));
  batch.olderOffset = manifest.delay ? manifest.versionStride(role) : 0;
  prepareTies();
  prepareKernels();
  warmUp();
  initialiseWeights();
  memories.device->waitForAll();
  inUse.lookAtDevice();
  if (facts.recorder) {
    facts.recorder->attach(inUse.live, inUse.staticBytes);
    facts.recorder->attach(*memories.device);
  }
  beginAllocationCount();
}

void RankLoader::setUpSides(uint32_t outStream) {
  memories.here = {&state.backend, memories.backendState, memories.device.get(),
                   memories.communicator, memories.arena->base()};
  memories.atHome = memories.here;
  if (memories.homeDevice)
    memories.atHome = {state.homeBackend,
                       memories.homeState,
                       memories.homeDevice.get(),
                       &host,
                       nullptr,
                       true};
  if (memories.homeMemory) {
    memories.atHome.base = memories.homeMemory->base();
    memories.swaps.setUp(*memories.homeMemory, *memories.device,
                         memories.arena->base(), state.copyRate,
                         memories.atHome.isHost, outStream);
  }
  memories.updatesHere =
      !memories.homeDevice ||
      std::any_of(role.layers.begin(), role.layers.end(),
                  [](const Layer &layer) {
                    return !layer.isAway || layer.updatesOnDevice;
                  });
}

std::vector<int> RankLoader::allRanks() const {
  std::vector<int> all(size_t(host.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void RankLoader::makeHome() {
  memories.homeMemory =
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
      memories.homeMemory->pin(extent.offset, extent.bytes);
  memories.homeState =
      state.homeBackend->create_rank(self, state.threadsPerRank);
  memories.homeDevice =
      std::make_unique<Device>(*state.homeBackend, memories.homeState, activity,
                               host.size(), /*resultBytes=*/0, state.failed);
}

void RankLoader::pinHomeOfPacks() {
  // Optimizer states lie in front of slots. Where they move, or are too small
  // to part the pages of their neighbours, all is pinned.
  bool whole = role.optimizer.bytes < HomeMemory::page;
  for (const Layer &layer : role.layers)
    whole |= layer.updatesOnDevice;
  if (whole) {
    memories.homeMemory->pin(0, role.homeBytes);
  } else {
    memories.homeMemory->pin(0, role.optimizer.offset);
    memories.homeMemory->pin(role.homeSlots.offset, role.homeSlots.bytes);
  }
  if (role.homeSlots.bytes && !memories.homeMemory->isPinned(
                                  role.homeSlots.offset, role.homeSlots.bytes))
    fail(ExitMemory, "rank " + std::to_string(self) +
                         ": expected pinned memory of the host for " +
                         std::to_string(role.homeSlots.bytes) +
                         " bytes that packs recompute from, of " +
                         std::to_string(role.homeBytes) + " bytes at home " +
                         std::to_string(memories.homeMemory->pageableBytes()) +
                         " are not pinned");
}

void RankLoader::prepareTies() {
  ties.expected.resize(manifest.ties.size());
  const bool leaves = manifest.delay && !*memories.device;
  if (leaves && std::ranges::any_of(manifest.ties, [](const Tie &tie) {
        return tie.owner.role != tie.borrower.role;
      }))
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
  inUse.staticBytes = 0;
  char *base = memories.arena->base();
  auto fillOn = [](Device &of, char *memory, int byte, const Extent &extent) {
    of.fill(GRT_STREAM_COMPUTE, memory + extent.offset, byte, extent.bytes);
  };
  auto fill = [&](char *memory, int byte, const Extent &extent) {
    fillOn(*memories.device, memory, byte, extent);
  };
  if (state.poison)
    memories.device->fill(GRT_STREAM_COMPUTE, base, poisonByte,
                          role.addressBytes());
  for (const Extent &extent : {role.loss, role.step, role.data})
    fill(base, 0, extent);
  char *home = memories.homeMemory ? memories.homeMemory->base() : base;
  for (const Extent &extent : {role.parameters, role.optimizer})
    fillOn(*memories.atHome.memory, home, 0, extent);
  // The first micro-batch of a step writes gradients; poison shows if not.
  if (!state.poison || memories.homeMemory)
    fillOn(*memories.atHome.memory, home, state.poison ? poisonByte : 0,
           role.gradients);
  // Of layers that stay, beside others at home.
  if (memories.homeMemory)
    fill(base, 0, role.residentOptimizer);
  for (const Layer &layer : role.layers)
    if (memories.homeMemory && !layer.isAway)
      fill(base, 0,
           {layer.parameter,
            uint64_t(layer.heldElements()) * manifest.elementBytes()});
  // What comes there is written before it is read.
  if (!state.poison && memories.homeMemory)
    for (const Extent &extent :
         {role.residentParameters, role.residentGradients})
      fill(base, 0, extent);
  for (uint64_t i = 0; !*memories.device && i < manifest.batchesAtOnce(); ++i)
    new (base + role.step.offset +
         role.step.bytes / manifest.batchesAtOnce() * i) grt_step();
  batch.turnTo(0);
  for (const Extent &extent : {role.data, role.loss, role.step, role.workspace})
    inUse.staticBytes += extent.bytes;
  if (memories.homeMemory && !manifest.hasPacks)
    inUse.staticBytes += role.residentParameters.bytes +
                         role.residentGradients.bytes +
                         role.residentOptimizer.bytes;
  else if (!memories.homeMemory)
    inUse.staticBytes +=
        role.parameters.bytes + role.gradients.bytes + role.optimizer.bytes;
}

void RankLoader::prepareLayer(size_t number) {
  const Layer &layer = role.layers[number];
  LayerState &prepared = memories.layers[number];
  int64_t index[GRT_AXIS_COUNT], size[GRT_AXIS_COUNT];
  const Side &home = layer.isAway ? memories.atHome : memories.here;
  const Side &side = layer.updatesOnDevice ? memories.here : home;
  Group *groupsOfSide[GRT_AXIS_COUNT] = {};
  for (grt_axis axis : kAxes) {
    index[axis] = axisIndex(layer, local, axis);
    size[axis] = layer.degree(axis);
    if (size[axis] == 1)
      continue;
    const std::vector<int> ranks = axisRanks(role, layer, local, axis);
    prepared.groups[axis] = &memories.communicator->group(ranks);
    // All ranks make all groups, of the host's too if there is one beside a
    // device.
    Group *atHomes = &memories.atHome.communicator->group(ranks);
    groupsOfSide[axis] = side.isHost ? atHomes : prepared.groups[axis];
    for (const Group *group : {prepared.groups[axis], atHomes})
      activity.collectives.communicator(group, axisForms[axis].name, ranks);
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

  batch.samplesHeld.resize(role.copies.size());
  for (int copy : layer.data) {
    BatchInFlight::HeldSamples &samples = batch.samplesHeld[copy];
    BatchInFlight::HeldSamples wanted{prepared.samples, layer.samples};
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
                                    prepared.places, memories.arena->base());
  calls.bound.reserve(layer.inputs.size(), layer.data.size());
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
  char *to = memories.home(layer) + layer.parameter + uint64_t(begin) * width;
  if (!tensor.isTrained() || !stretch.owned() || !manifest.hasMasterWeights())
    return memories.access(layer).write(
        to, count, width, [&](char *memory, uint64_t first, uint64_t n) {
          fill(first, n, [&](int64_t global, uint64_t at, int64_t part) {
            initialValues(parameter, state.options.seed, global, part,
                          {{dtype, memory + at * width}});
          });
        });
  memories.access(layer).write(
      to, width,
      memories.home(layer) + manifest.masterOffset(layer) +
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
