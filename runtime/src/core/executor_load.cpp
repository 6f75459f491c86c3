//===- executor_load.cpp - Making a rank ready ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/allocation.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/init.h"
#include "core/workers.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <bit>
#include <new>
#include <numeric>
#include <utility>

namespace grt {

void Rank::load() {
  const Role &role = *roleData;
  // Where there is a device, memory is taken on the rank's.
  backendState = state.backend.create_rank(self, state.threadsPerRank);
  if (!backendState && state.backend.device)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' does not start" + whyNot(state.backend));
  arena = std::make_unique<Arena>(state.backend,
                                  grt_arena{role.arenaBytes, role.window.offset,
                                            role.window.bytes, role.slotStride,
                                            uint64_t(role.slotsInArena())},
                                  self);
  uint64_t lossBytes =
      alignUp(uint64_t(manifest.microBatches) * sizeof(double));
  uint32_t outStream = GRT_STREAM_COMPUTE;
  for (const grt_task_list &list : schedule().parts)
    for (uint64_t i = 0; i < list.count; ++i)
      if (list.tasks[i].kind == GRT_TASK_SWAP) {
        swapsOnStreams |= list.tasks[i].stream != GRT_STREAM_COMPUTE;
        if (list.tasks[i].tiers == GRT_TO_HOST)
          outStream = list.tasks[i].stream;
      }
  if (role.homeBytes > 0)
    makeHome();
  device = std::make_unique<Device>(
      state.backend, backendState, activity, host.size(),
      lossBytes + alignUp(sizeof(grt_step)), state.failed);
  if (*device)
    joinDevices();
  setUpSides(outStream);
  if (*device)
    checkTies();
  clearMemory();

  everyone = &host.group(allRanks());
  layers.resize(role.layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    prepareLayer(i);
  procedures = Procedures(manifest, role, layers, schedule());
  gathered.resize(size_t(host.size()) * 2);
  olderOffset = manifest.delay ? manifest.versionStride(role) : 0;
  prepareTies();
  for (const Role &each : manifest.roles)
    if (each.layers.back().output == OutputKind::Loss)
      withLoss = each.devices;
  prepareKernels();
  warmUp();
  initialiseWeights();
  device->waitForAll();
  lookAtDeviceMemory();
  if (recorder) {
    recorder->attach(live, staticBytes);
    recorder->attach(*device);
  }
  beginAllocationCount();
}

void Rank::setUpSides(uint32_t outStream) {
  here = {&state.backend, backendState, device.get(), communicator,
          arena->base()};
  atHome = here;
  if (homeDevice)
    atHome = {state.homeBackend, homeState, homeDevice.get(), &host,
              nullptr,           true};
  if (homeMemory) {
    atHome.base = homeMemory->base();
    swaps.setUp(*homeMemory, *device, arena->base(), state.copyRate,
                atHome.isHost, outStream);
  }
  updatesHere = !homeDevice ||
                std::any_of(roleData->layers.begin(), roleData->layers.end(),
                            [](const Layer &layer) {
                              return !layer.isAway || layer.updatesOnDevice;
                            });
}

std::vector<int> Rank::allRanks() const {
  std::vector<int> all(size_t(host.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void Rank::makeHome() {
  const Role &role = *roleData;
  homeMemory =
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
      homeMemory->pin(extent.offset, extent.bytes);
  homeState = state.homeBackend->create_rank(self, state.threadsPerRank);
  homeDevice =
      std::make_unique<Device>(*state.homeBackend, homeState, activity,
                               host.size(), /*resultBytes=*/0, state.failed);
}

void Rank::pinHomeOfPacks() {
  const Role &role = *roleData;
  // Optimizer states lie in front of slots. Where they move, or are too small
  // to part the pages of their neighbours, all is pinned.
  bool whole = role.optimizer.bytes < HomeMemory::page;
  for (const Layer &layer : role.layers)
    whole |= layer.updatesOnDevice;
  if (whole) {
    homeMemory->pin(0, role.homeBytes);
  } else {
    homeMemory->pin(0, role.optimizer.offset);
    homeMemory->pin(role.homeSlots.offset, role.homeSlots.bytes);
  }
  if (role.homeSlots.bytes &&
      !homeMemory->isPinned(role.homeSlots.offset, role.homeSlots.bytes))
    fail(ExitMemory, "rank " + std::to_string(self) +
                         ": expected pinned memory of the host for " +
                         std::to_string(role.homeSlots.bytes) +
                         " bytes that packs recompute from, of " +
                         std::to_string(role.homeBytes) + " bytes at home " +
                         std::to_string(homeMemory->pageableBytes()) +
                         " are not pinned");
}

void Rank::prepareTies() {
  bool leavesAnywhere = false;
  for (size_t i = 0; i < manifest.ties.size(); ++i) {
    const Tie &tie = manifest.ties[i];
    const TieEnd &borrower = tie.borrower;
    OwnTie own{i};
    own.owns = tie.owner.role == roleNumber;
    own.borrows = borrower.role == roleNumber;
    own.isLeft = manifest.delay && !*device && tie.owner.role != borrower.role;
    own.reduces = !manifest.roles[size_t(borrower.role)]
                       .layers[size_t(borrower.layer)]
                       .forwardOnly;
    leavesAnywhere |= own.isLeft;
    if (!own.owns && !own.borrows)
      continue;
    const TieEnd &end = own.owns ? tie.owner : borrower;
    own.side = layers[size_t(end.layer)].places.home;
    ownTies.push_back(own);
  }
  if (leavesAnywhere)
    host.reserveBoxes(manifest.ties.size());
}

void Rank::checkTies() const {
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

void Rank::lookAtDeviceMemory() {
  if (*device && (*device)->peak_bytes)
    deviceBytesSeen =
        std::max(deviceBytesSeen, (*device)->peak_bytes(backendState));
}

void Rank::clearMemory() {
  const Role &role = *roleData;
  staticBytes = 0;
  char *base = arena->base();
  auto fillOn = [](Device &of, char *memory, int byte, const Extent &extent) {
    of.fill(GRT_STREAM_COMPUTE, memory + extent.offset, byte, extent.bytes);
  };
  auto fill = [&](char *memory, int byte, const Extent &extent) {
    fillOn(*device, memory, byte, extent);
  };
  if (state.poison)
    device->fill(GRT_STREAM_COMPUTE, base, poisonByte, role.addressBytes());
  for (const Extent &extent : {role.loss, role.step, role.data})
    fill(base, 0, extent);
  char *home = homeMemory ? homeMemory->base() : base;
  for (const Extent &extent : {role.parameters, role.optimizer})
    fillOn(*atHome.memory, home, 0, extent);
  // The first micro-batch of a step writes gradients; poison shows if not.
  if (!state.poison || homeMemory)
    fillOn(*atHome.memory, home, state.poison ? poisonByte : 0, role.gradients);
  // Of layers that stay, beside others at home.
  if (homeMemory)
    fill(base, 0, role.residentOptimizer);
  for (const Layer &layer : role.layers)
    if (homeMemory && !layer.isAway)
      fill(base, 0,
           {layer.parameter, uint64_t(layer.groups[0].shardElements +
                                      layer.groups[1].shardElements) *
                                 manifest.elementBytes()});
  // What comes there is written before it is read.
  if (!state.poison && homeMemory)
    for (const Extent &extent :
         {role.residentParameters, role.residentGradients})
      fill(base, 0, extent);
  for (uint64_t i = 0; !*device && i < manifest.batchesAtOnce(); ++i)
    new (base + role.step.offset +
         role.step.bytes / manifest.batchesAtOnce() * i) grt_step();
  turnTo(0);
  for (const Extent &extent : {role.data, role.loss, role.step, role.workspace})
    staticBytes += extent.bytes;
  if (homeMemory && !manifest.hasPacks)
    staticBytes += role.residentParameters.bytes +
                   role.residentGradients.bytes + role.residentOptimizer.bytes;
  else if (!homeMemory)
    staticBytes +=
        role.parameters.bytes + role.gradients.bytes + role.optimizer.bytes;
}

void Rank::prepareKernels() {
  // Ranges that are live at once: what forward functions keep in each slot, the
  // temporaries of one function, and the buffers between layers.
  size_t kept = 0, temporary = 0;
  preparing = true;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    for (auto [function, phase] : {std::pair(layer.forward, Phase::Forward),
                                   {layer.recompute, Phase::Recompute},
                                   {layer.backward, Phase::Backward},
                                   {layer.weight, Phase::Weight},
                                   {layer.norm, Phase::Norm},
                                   {layer.update, Phase::Update}}) {
      if (function < 0 || (layer.forwardOnly && phase == Phase::Backward))
        continue;
      livesBegun = 0;
      // Whether buffers are inside their regions is the same in every step.
      bind(i, /*microBatch=*/0, /*slot=*/0, phase);
      call(function, layer, phase);
      temporary = std::max(temporary, livesBegun);
      // Input parts keep more for weight parts.
      if (function == layer.forward ||
          (function == layer.backward && layer.weight >= 0))
        kept += livesBegun + 1;
    }
  }
  running = nullptr;
  runningLayer = nullptr;
  activity.setLayer(nullptr);
  preparing = false;
  // Two layers' gathered parameters, inputs and boundary buffers besides, and
  // of packs what is resident of them and messages that wait.
  live.reserve(kept * size_t(roleData->slotCount) + 2 * temporary + 10 +
               (manifest.hasPacks
                    ? 3 * layers.size() + size_t(roleData->waitingPlaces)
                    : 0));
  if (roleData->slotsAtHome)
    swaps.lives.resize(size_t(roleData->slotCount));
  for (std::vector<Extent> &lives : swaps.lives)
    lives.reserve(kept);
}

void Rank::prepareLayer(size_t number) {
  const Role &role = *roleData;
  const Layer &layer = role.layers[number];
  LayerState &prepared = layers[number];
  const grt_axis axes[] = {GRT_AXIS_DP, GRT_AXIS_SDP, GRT_AXIS_TP};
  int64_t index[3], size[3];
  const Side &home = layer.isAway ? atHome : here;
  const Side &side = layer.updatesOnDevice ? here : home;
  Group *groupsOfSide[3] = {};
  for (grt_axis axis : axes) {
    index[axis] = axisIndex(layer, local, axis);
    size[axis] = layer.degree(axis);
    if (size[axis] == 1)
      continue;
    const std::vector<int> ranks = axisRanks(role, layer, local, axis);
    prepared.groups[axis] = &communicator->group(ranks);
    // All ranks make all groups, of the host's too if there is one beside a
    // device.
    Group *atHomes = &atHome.communicator->group(ranks);
    groupsOfSide[axis] = side.isHost ? atHomes : prepared.groups[axis];
    static const char *const names[] = {"dp", "sdp", "tp"};
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
  prepared.coordinates = {index[GRT_AXIS_DP],  size[GRT_AXIS_DP],
                          index[GRT_AXIS_SDP], size[GRT_AXIS_SDP],
                          index[GRT_AXIS_TP],  size[GRT_AXIS_TP],
                          layer.dropoutKey,    0,
                          layer.samples};

  samplesHeld.resize(role.copies.size());
  for (int copy : layer.data) {
    HeldSamples &samples = samplesHeld[copy];
    HeldSamples wanted{prepared.samples, layer.samples};
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
                                    prepared.places, arena->base());
  bound.reserve(layer.inputs.size(), layer.data.size());
}

void Rank::addSamplesRead(SamplesRead &samples) const {
  for (size_t i = 0; i < samplesHeld.size(); ++i) {
    const DataCopy &copy = roleData->copies[i];
    const auto &[runs, count] = samplesHeld[i];
    for (int64_t m = 0; m < manifest.microBatchesOf(copy.ofForwardPacks); ++m)
      samples[copy.datum].push_back({runs.first + m * runs.stride, count});
  }
}

void Rank::initialiseWeights() {
  Workers workers(state.threadsPerRank);
  for (const Layer &layer : roleData->layers)
    for (const LayerTensor &tensor : layer.tensors)
      forEachStretch(layer, tensor, local, [&](const TensorStretch &stretch) {
        initialiseStretch(workers, layer, tensor, stretch);
      });
}

void Rank::initialiseStretch(Workers &workers, const Layer &layer,
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
  char *to = home(layer) + layer.parameter + uint64_t(begin) * width;
  if (tensor.group != 0 || !stretch.owned() || !manifest.hasMasterWeights())
    return access(layer).write(
        to, count, width, [&](char *memory, uint64_t first, uint64_t n) {
          fill(first, n, [&](int64_t global, uint64_t at, int64_t part) {
            initialValues(parameter, state.options.seed, global, part,
                          {{dtype, memory + at * width}});
          });
        });
  access(layer).write(
      to, width,
      home(layer) + manifest.masterOffset(layer) +
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

RankMemory Rank::memoryUse() const {
  // Beside a device's arena the heap is other memory. (Before a program is
  // loaded there is neither.)
  const bool onDevice = device && *device;
  return {self,
          roleData->arenaBytes,
          staticBytes + live.peakBytes() + (onDevice ? 0 : outsideBytes),
          outsideBytes,
          deviceBytesSeen,
          roleData->homeBytes,
          homeMemory ? homeMemory->pageableBytes() : 0};
}

bool Rank::readLabels(int64_t microBatch, std::span<int32_t> labels) const {
  for (const DataCopy &copy : roleData->copies)
    if (manifest.data[copy.datum].counted && !copy.ofForwardPacks) {
      Extent from = microBatchExtent(copy, uint64_t(microBatch));
      device->download(labels.data(), arena->base() + from.offset,
                       labels.size_bytes());
      return true;
    }
  return false;
}

void Rank::leaveMark(uint32_t stream) { leaveMark(stream, activity.begun()); }

void Rank::leaveMark(uint32_t stream, uint64_t number) {
  if (!*device || graphs.capturing || preparing || !(*device)->query ||
      !marks.kept)
    return;
  uint32_t event = marks.first + marks.left++ % marks.kept;
  activity.forgetMark(event);
  device->record(stream, event);
  activity.mark(stream, event, number);
}

RankFlight Rank::flight() const { return {&activity, schedule().transfers}; }

void Rank::lookAtMarks() const {
  if (!state.backend.device || !state.backend.device->query)
    return;
  activity.lookAtMarks([this](uint32_t event) {
    char text[256] = "";
    int32_t done = 0;
    return backendState &&
           state.backend.device->query(backendState, event, &done, text,
                                       sizeof(text)) == 0 &&
           done;
  });
}

bool Rank::hasFailed(std::string &message) const {
  char text[1024] = "";
  const DeviceCommunicator *mine = devices.load();
  if (!mine || !mine->hasFailed(text, sizeof(text)))
    return false;
  text[sizeof(text) - 1] = 0;
  message =
      "rank " + std::to_string(self) + ", " + activity.describe() + ": " + text;
  return true;
}

void Rank::abortDevice() const {
  if (const DeviceCommunicator *mine = devices.load())
    mine->abortDevice();
}

std::string Rank::collectivesLibrary() const {
  const DeviceCommunicator *mine = devices.load();
  return mine ? mine->library() : "";
}

bool Rank::isFirstOfLastLayer() const {
  const LayerState &last = layers.back();
  return roleData->layers.back().output == OutputKind::Loss &&
         last.block == 0 && last.isFirst;
}

} // namespace grt
