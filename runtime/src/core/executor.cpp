//===- executor.cpp - One rank of a running program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "core/allocation.h"
#include "core/error.h"
#include "core/init.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

namespace grt {
namespace {

std::string str(uint64_t value) { return std::to_string(value); }

const char *regionName(uint32_t region) {
  static const char *const names[GRT_REGION_COUNT] = {
      "parameter", "gradient", "optimizer", "stash", "transient", "input",
      "output",    "grad-in",  "grad-out",  "data",  "loss"};
  return region < GRT_REGION_COUNT ? names[region] : "unknown";
}

/// The transfers of a task that take part when only micro-batch 0 runs. Both
/// sides of a transfer name the micro-batch, so they agree.
uint8_t keptFlags(const grt_task &task, bool firstMicroBatchOnly) {
  uint8_t flags = task.flags;
  if (firstMicroBatchOnly && task.send_micro_batch != 0)
    flags &= uint8_t(~(GRT_SEND_ACTIVATION | GRT_SEND_GRADIENT));
  if (firstMicroBatchOnly && task.recv_micro_batch != 0)
    flags &= uint8_t(~(GRT_RECV_ACTIVATION | GRT_RECV_GRADIENT));
  return flags;
}

} // namespace

Rank::Rank(RunState &state, Communicator &communicator, Activity &activity,
           Recorder *recorder)
    : state(state), manifest(state.manifest), host(communicator),
      communicator(&communicator), activity(activity), recorder(recorder),
      self(communicator.rank()) {
  context.rank = this;
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const std::vector<int> &devices = manifest.roles[r].devices;
    auto it = std::find(devices.begin(), devices.end(), self);
    if (it != devices.end()) {
      roleNumber = int(r);
      local = int(it - devices.begin());
    }
  }
  roleData = &manifest.roles[roleNumber];
}

Rank::~Rank() {
  try {
    if (device && *device && !state.failed)
      device->waitForAll();
  } catch (const std::exception &) {
    // Nobody can be told any more; Session::finish would have said it.
  }
  devices = nullptr;
  aroundDevices.reset();
  device.reset();
  arena.reset();
  if (backendState)
    state.backend.destroy_rank(backendState);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

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
                                            uint64_t(role.slotCount)},
                                  self);
  uint64_t lossBytes =
      alignUp(uint64_t(manifest.microBatches) * sizeof(double));
  device = std::make_unique<Device>(state.backend, backendState, activity,
                                    host.size(), lossBytes + GRT_ALIGNMENT,
                                    state.failed);
  if (*device)
    joinDevices();
  clearMemory();

  std::vector<int> all(size_t(host.size()));
  std::iota(all.begin(), all.end(), 0);
  everyone = &host.group(all);
  layers.resize(role.layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    prepareLayer(i);
  gathered.resize(size_t(host.size()) * 2);
  initialiseWeights();
  prepareKernels();
  device->waitForAll();
  if (recorder)
    recorder->attach(live, staticBytes);
  beginAllocationCount();
}

void Rank::joinDevices() {
  const Role &role = *roleData;
  const grt_device &table = *state.backend.device;
  device->note(GRT_NOTE_DYNAMIC, arena->base(), role.addressBytes(), "arena");
  auto keep = [&](const char *name, uint64_t offset, uint64_t bytes) {
    device->note(GRT_NOTE_STATIC, arena->base() + offset, bytes, name);
  };
  for (const auto &[name, extent] : {std::pair("data", role.data),
                                     {"loss", role.loss},
                                     {"step", role.step},
                                     {"workspace", role.workspace}})
    keep(name, extent.offset, extent.bytes);
  for (const Layer &layer : role.layers) {
    uint64_t held =
        uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
    keep("parameters", layer.parameter, held * manifest.elementBytes());
    keep("gradients", layer.gradient, held * manifest.accumulatorBytes());
    keep("optimizer state", layer.optimizer, manifest.optimizerBytes(layer));
  }
  if (role.workspace.bytes && table.use_workspace)
    device->check([&](char *message, size_t bytes) {
      return table.use_workspace(backendState,
                                 arena->base() + role.workspace.offset,
                                 role.workspace.bytes, message, bytes);
    });

  // One process can do without what several need.
  const grt_device_collectives *collectives =
      state.oneProcess && table.local_collectives ? table.local_collectives
                                                  : table.collectives;
  if (!collectives && host.size() > 1)
    fail("rank " + std::to_string(self) + ": backend '" + state.backend.name +
         "' cannot connect " + std::to_string(host.size()) + " ranks" +
         (state.oneProcess ? "" : " of several processes"));
  auto joined = std::make_unique<DeviceCommunicator>(*device, state.backend,
                                                     collectives, host);
  DeviceCommunicator &mine = *joined;
  devices = &mine;
  aroundDevices = watchedCommunicator(std::move(joined), activity);
  if (recorder)
    aroundDevices = tracedCommunicator(std::move(aroundDevices), *recorder);
  communicator = aroundDevices.get();
  for (const auto &round : groupRounds(manifest)) {
    auto own = std::find_if(round.begin(), round.end(), [&](const auto &ranks) {
      return std::find(ranks.begin(), ranks.end(), self) != ranks.end();
    });
    if (own != round.end())
      mine.group(*own);
    else
      mine.withoutGroup();
  }

  size_t rows = 0, peers = 0;
  auto count = [&](const ExchangeTable &of) {
    for (const auto *sides : {&of.sends, &of.receives})
      for (const ExchangePeer &side : *sides)
        rows += side.rows.size();
  };
  for (const auto &tables : state.exchanges)
    count(tables[self]);
  // Gradients of tied parameters arrive where the first slot is, or a boundary
  // buffer, which hold nothing at the end of a step; the same room on all
  // ranks.
  uint64_t room = UINT64_MAX;
  for (const Role &other : manifest.roles)
    room = std::min(room, std::max(other.slotBytes, other.boundary[0].bytes));
  for (const TieTables &tables : state.ties) {
    count(tables.broadcast[self]);
    for (const ExchangeTable &table : tables.reduce)
      peers = std::max(peers, table.receives.size());
    // What arrives is cut once more for every round.
    for (const auto &side : tables.reduce[self].receives)
      rows += 2 * side.rows.size() + 1;
    for (const auto &side : tables.reduce[self].sends)
      rows += 2 * side.rows.size() + 1;
  }
  mine.reserveRows(rows);
  if (peers) {
    uint64_t each = room / peers / GRT_ALIGNMENT * GRT_ALIGNMENT;
    tieScratch = {role.slotBytes >= room ? role.slots.offset
                                         : role.boundary[0].offset,
                  each * peers};
    mine.useScratch(arena->base() + tieScratch.offset, each, peers);
  }

  // Events are shared if there are more slots than events: a wait is then for
  // more than is needed, never for what was put on a stream after it.
  uint32_t first = Device::firstOwnEvent + GRT_STREAM_COUNT;
  uint32_t pairs = (table.event_count - first) / 2;
  meetings.resize(size_t(role.slotCount) + 2);
  for (size_t i = 0; i < meetings.size(); ++i) {
    meetings[i].transferEvent = first + 2 * uint32_t(i % pairs);
    meetings[i].computeEvent = meetings[i].transferEvent + 1;
  }
}

void Rank::clearMemory() {
  const Role &role = *roleData;
  char *base = arena->base();
  auto clear = [&](const Extent &extent) {
    device->fill(GRT_STREAM_COMPUTE, base + extent.offset, 0, extent.bytes);
  };
  if (state.poison)
    device->fill(GRT_STREAM_COMPUTE, base, poisonByte, role.addressBytes());
  for (const Extent &extent :
       {role.parameters, role.optimizer, role.loss, role.step, role.data})
    clear(extent);
  // The first micro-batch of a step writes gradients; poison shows if not.
  if (!state.poison)
    clear(role.gradients);
  deviceStep = reinterpret_cast<grt_step *>(base + role.step.offset);
  step = *device ? &hostStep : new (deviceStep) grt_step();
  for (const Extent &extent : {role.parameters, role.gradients, role.optimizer,
                               role.data, role.loss, role.step, role.workspace})
    staticBytes += extent.bytes;
}

void Rank::prepareKernels() {
  // Ranges that are live at once: what forward functions keep in each slot, the
  // temporaries of one function, and the buffers between layers.
  size_t kept = 0, temporary = 0;
  preparing = true;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    running = &layers[i];
    runningLayer = &layer;
    for (int function : {layer.forward, layer.recompute, layer.backward,
                         layer.norm, layer.update}) {
      if (function < 0)
        continue;
      marks = 0;
      call(function, layer, Phase::Forward);
      temporary = std::max(temporary, marks);
      if (function == layer.forward)
        kept += marks + 1;
    }
  }
  running = nullptr;
  runningLayer = nullptr;
  preparing = false;
  live.reserve(kept * size_t(roleData->slotCount) + 2 * temporary + 8);
}

void Rank::prepareLayer(size_t number) {
  const Role &role = *roleData;
  const Layer &layer = role.layers[number];
  LayerState &prepared = layers[number];
  const grt_axis axes[] = {GRT_AXIS_DP, GRT_AXIS_SDP, GRT_AXIS_TP};
  int64_t index[3], size[3];
  for (grt_axis axis : axes) {
    index[axis] = axisIndex(layer, local, axis);
    size[axis] = layer.degree(axis);
    if (size[axis] > 1)
      prepared.groups[axis] =
          &communicator->group(axisRanks(role, layer, local, axis));
  }
  prepared.block = sampleBlock(layer, local);
  prepared.coordinates = {index[GRT_AXIS_DP],  size[GRT_AXIS_DP],
                          index[GRT_AXIS_SDP], size[GRT_AXIS_SDP],
                          index[GRT_AXIS_TP],  size[GRT_AXIS_TP],
                          layer.index,         0,
                          layer.samples};

  uint64_t bytes = uint64_t(layer.samples) * uint64_t(manifest.seqLen) *
                   sizeof(int32_t) * uint64_t(manifest.microBatches);
  if (layer.readsTokens)
    tokenBytes = bytes;
  if (layer.readsLabels)
    labelBytes = bytes;
  labelOffset = tokenBytes;

  if (layer.output == OutputKind::Slot)
    prepared.outputBytes = role.layers[number + 1].inputBytes;
  else if (layer.output == OutputKind::Boundary) {
    int exchange =
        layer.forwardReshard >= 0 ? layer.forwardReshard : role.sendActivation;
    prepared.outputBytes =
        uint64_t(layer.samples) * manifest.exchanges[exchange].bytesPerUnit;
  }
}

void Rank::initialiseWeights() {
  for (const Layer &layer : roleData->layers)
    for (const LayerTensor &tensor : layer.tensors) {
      const Parameter &parameter = manifest.parameters[tensor.parameter];
      forEachRun(layer, tensor, local, [&](const TensorRun &run) {
        activity.advance();
        auto fill = [&](grt_dtype dtype, uint64_t base) {
          uint64_t width = dtypeBytes(dtype);
          device->write(arena->base() + base + uint64_t(run.held) * width,
                        uint64_t(run.count), width,
                        [&](char *to, uint64_t first, uint64_t count) {
                          initialValues(parameter, state.options.seed,
                                        run.global + int64_t(first),
                                        int64_t(count), dtype, to);
                        });
        };
        fill(manifest.dtype, layer.parameter);
        if (tensor.group == 0 && manifest.hasMasterWeights())
          fill(manifest.accumulatorType(), manifest.masterOffset(layer));
      });
    }
}

uint64_t Rank::measuredPeakBytes() const {
  return staticBytes + live.peakBytes() + outsideBytes;
}

bool Rank::readLabels(int64_t microBatch, std::span<int32_t> labels) const {
  if (!labelBytes)
    return false;
  uint64_t each = labelBytes / uint64_t(manifest.microBatches);
  device->download(labels.data(),
                   arena->base() + roleData->data.offset + labelOffset +
                       uint64_t(microBatch) * each,
                   labels.size_bytes());
  return true;
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

bool Rank::isFirstOfLastLayer() const {
  const LayerState &last = layers.back();
  return roleData->layers.back().output == OutputKind::Loss &&
         last.block == 0 && last.coordinates.tp_index == 0;
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

void Rank::fillData() {
  const int64_t length = manifest.seqLen;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (!layer.readsTokens && !layer.readsLabels)
      continue;
    const std::vector<int32_t> &from =
        layer.readsTokens ? state.tokens : state.labels;
    char *to = arena->base() + roleData->data.offset +
               (layer.readsTokens ? 0 : labelOffset);
    size_t bytes = size_t(layer.samples * length) * sizeof(int32_t);
    for (int64_t m = 0; m < manifest.microBatches; ++m) {
      int64_t sample =
          m * manifest.samplesPerMicroBatch() + layers[i].block * layer.samples;
      device->upload(to + size_t(m) * bytes, from.data() + sample * length,
                     bytes);
    }
  }
}

void Rank::beginStep() {
  const Hyperparameters &h = state.hyperparameters;
  step->step = state.step;
  step->seed = state.options.seed;
  step->mode = state.mode;
  step->learning_rate = h.learningRate;
  step->beta1 = h.beta1;
  step->beta2 = h.beta2;
  step->eps = h.eps;
  step->weight_decay = h.weightDecay;
  step->momentum = h.momentum;
  step->clip_factor = 1;
  step->inverse_tokens =
      state.validTokens ? 1.0 / double(state.validTokens) : 0.0;
  step->local_norm_squared = 0;
  live.rewind(0);
  backwardSeen = false;
  reduced = false;
  updateLeftOut = false;
  activity.setStep(state.step);
  device->note(GRT_NOTE_FORGET, nullptr, tracks());
  runningLayer = nullptr;
  notePlace("batch and step block");
  if (*device)
    device->upload(reinterpret_cast<char *>(deviceStep), step,
                   sizeof(grt_step));
  fillData();
}

void Rank::train() {
  if (recorder)
    recorder->beginStep(state.step);
  beginStep();
  runPart(GRT_PART_STEADY, false);
  runPart(GRT_PART_STEP_END, false);
  joinStreams();
  if (recorder)
    recorder->endStep();
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::evaluate(bool firstMicroBatchOnly) {
  beginStep();
  runPart(GRT_PART_EVALUATE, firstMicroBatchOnly);
  joinStreams();
  gatherResults(/*withNorm=*/false);
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::finish() { device->waitForAll(); }

void Rank::addOverRanks(std::span<double> values) {
  host.allReduce(*everyone, values.data(), values.size(), GRT_F64);
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::runPart(grt_part part, bool firstMicroBatchOnly) {
  const grt_task_list &list =
      state.program.table().schedules[roleNumber].parts[part];
  for (uint64_t i = 0; i < list.count; ++i) {
    grt_task task = list.tasks[i];
    if (firstMicroBatchOnly && task.kind == GRT_TASK_FORWARD &&
        task.micro_batch != 0)
      continue;
    task.flags = keptFlags(task, firstMicroBatchOnly);
    runTask(task);
  }
}

void Rank::runTask(const grt_task &task) {
  activity.setLayer(nullptr);
  TraceSpan span(recorder, task);
  switch (task.kind) {
  case GRT_TASK_FORWARD:
    return forward(task.micro_batch, task.slot);
  case GRT_TASK_BACKWARD:
    return backward(task);
  case GRT_TASK_TRANSFER:
    return transfer(task);
  case GRT_TASK_SYNC_GRADIENTS:
    return synchroniseGradients();
  case GRT_TASK_TIE_REDUCE:
    return tie(/*reduce=*/true);
  case GRT_TASK_NORM:
    return norm();
  case GRT_TASK_UPDATE:
    return updateLeftOut ? void() : update();
  default:
    return tie(/*reduce=*/false);
  }
}

Extent Rank::inputExtent(size_t number, uint32_t slot) const {
  const Layer &layer = roleData->layers[number];
  return {roleData->slots.offset + slot * roleData->slotStride + layer.stash,
          layer.inputBytes};
}

Extent Rank::boundaryExtent(int buffer, uint64_t bytes) const {
  return buffer < 0 ? Extent{}
                    : Extent{roleData->boundary[buffer].offset, bytes};
}

void Rank::begin(const Extent &extent) {
  if (!tracks() || !extent.bytes)
    return;
  live.begin(extent.offset, extent.bytes);
  device->note(GRT_NOTE_BEGIN, arena->base() + extent.offset, extent.bytes);
}

void Rank::end(const Extent &extent, bool sent) {
  if (!tracks() || !extent.bytes)
    return;
  if (!live.end(extent.offset, extent.bytes,
                sent && *device ? LiveSet::Dead() : poisonDead()))
    failHere("a boundary buffer of " + str(extent.bytes) +
             " bytes ends that never began");
  device->note(GRT_NOTE_END, arena->base() + extent.offset, extent.bytes);
}

LiveSet::Dead Rank::poisonDead() {
  if (!state.poison)
    return {};
  return [this](uint64_t from, uint64_t to) {
    device->fill(GRT_STREAM_COMPUTE, arena->base() + from, poisonByte,
                 to - from);
  };
}

//===----------------------------------------------------------------------===//
// Order between streams; nothing without a device
//===----------------------------------------------------------------------===//

void Rank::notePlace(const char *what) {
  if (!device->isChecked())
    return;
  std::string text = "step " + str(state.step);
  if (runningLayer)
    text += ", layer '" + runningLayer->name + "'";
  device->note(GRT_NOTE_PLACE, nullptr, 0, (text + ", " + what).c_str());
}

void Rank::beforeFunction(size_t number) {
  if (!*device)
    return;
  Meeting &meeting = meetings[number];
  meeting.touched = true;
  if (std::exchange(meeting.transferred, false))
    device->wait(GRT_STREAM_COMPUTE, meeting.transferEvent);
}

void Rank::afterFunctions() {
  for (Meeting &meeting : meetings)
    if (std::exchange(meeting.touched, false)) {
      device->record(GRT_STREAM_COMPUTE, meeting.computeEvent);
      meeting.computed = true;
    }
}

void Rank::beforeTransfer(size_t number) {
  if (*device && std::exchange(meetings[number].computed, false))
    device->wait(GRT_STREAM_TRANSFER, meetings[number].computeEvent);
}

void Rank::afterTransfer(size_t number) {
  if (!*device)
    return;
  device->record(GRT_STREAM_TRANSFER, meetings[number].transferEvent);
  meetings[number].transferred = true;
}

void Rank::joinStreams() {
  device->order(GRT_STREAM_GRADIENT, GRT_STREAM_COMPUTE);
  device->order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  reducing = false;
  for (Meeting &meeting : meetings)
    meeting.transferred = false;
  device->note(GRT_NOTE_JOINED);
}

void Rank::bind(size_t number, uint32_t microBatch, uint32_t slot,
                Phase phase) {
  const Role &role = *roleData;
  const Layer &layer = role.layers[number];
  LayerState &prepared = layers[number];
  running = &prepared;
  runningLayer = &layer;
  activity.setLayer(&layer);
  notePlace("functions");
  prepared.coordinates.first_sample =
      int64_t(microBatch) * manifest.samplesPerMicroBatch() +
      prepared.block * layer.samples;

  char *base = arena->base();
  auto set = [&](grt_region region, uint64_t offset, uint64_t bytes) {
    regions[region] = {base + offset, bytes};
  };
  std::fill(std::begin(regions), std::end(regions), Region{});
  uint64_t owned = uint64_t(layer.groups[0].shardElements);
  uint64_t held = owned + uint64_t(layer.groups[1].shardElements);
  set(GRT_REGION_PARAMETER, layer.parameter, held * manifest.elementBytes());
  set(GRT_REGION_GRADIENT, layer.gradient, held * manifest.accumulatorBytes());
  set(GRT_REGION_OPTIMIZER, layer.optimizer, manifest.optimizerBytes(layer));

  uint64_t slotBase = role.slots.offset + slot * role.slotStride;
  uint64_t transient = slotBase + layer.transient;
  uint64_t recomputed = alignUp(layer.recomputeStashBytes);
  bool stashIsTransient = layer.recompute >= 0 && (phase == Phase::Recompute ||
                                                   phase == Phase::Backward);
  if (stashIsTransient) {
    set(GRT_REGION_STASH, transient, layer.recomputeStashBytes);
    set(GRT_REGION_TRANSIENT, transient + recomputed, layer.transientBytes);
  } else if (phase == Phase::Forward) {
    set(GRT_REGION_STASH, slotBase + layer.stash + alignUp(layer.inputBytes),
        layer.stashBytes);
    set(GRT_REGION_TRANSIENT, slotBase + layer.forwardTransient,
        layer.forwardTransientBytes);
  } else {
    set(GRT_REGION_STASH, slotBase + layer.stash + alignUp(layer.inputBytes),
        layer.stashBytes);
    set(GRT_REGION_TRANSIENT, transient, recomputed + layer.transientBytes);
  }
  if (phase == Phase::Update)
    return;

  set(GRT_REGION_INPUT, slotBase + layer.stash, layer.inputBytes);
  uint64_t batches = uint64_t(manifest.microBatches);
  if (layer.readsTokens) {
    set(GRT_REGION_DATA, role.data.offset + microBatch * (tokenBytes / batches),
        tokenBytes / batches);
    if (!layer.inputBytes)
      regions[GRT_REGION_INPUT] = regions[GRT_REGION_DATA];
  } else if (layer.readsLabels) {
    set(GRT_REGION_DATA,
        role.data.offset + labelOffset + microBatch * (labelBytes / batches),
        labelBytes / batches);
  }
  if (layer.output == OutputKind::Loss)
    set(GRT_REGION_LOSS, role.loss.offset + microBatch * sizeof(double),
        sizeof(double));
  if (layer.output == OutputKind::Slot) {
    Extent next = inputExtent(number + 1, slot);
    set(GRT_REGION_OUTPUT, next.offset, next.bytes);
  } else if (layer.output == OutputKind::Boundary && phase == Phase::Forward) {
    const Extent &buffer = role.boundary[layer.outputBuffer];
    set(GRT_REGION_OUTPUT, buffer.offset, buffer.bytes);
  }
  if (phase != Phase::Backward)
    return;
  if (layer.gradIn >= 0)
    set(GRT_REGION_GRAD_IN, role.boundary[layer.gradIn].offset,
        role.boundary[layer.gradIn].bytes);
  if (layer.gradOut >= 0)
    set(GRT_REGION_GRAD_OUT, role.boundary[layer.gradOut].offset,
        role.boundary[layer.gradOut].bytes);
}

void Rank::call(int function, const Layer &layer, Phase phase) {
  TraceSpan span(recorder, int32_t(&layer - roleData->layers.data()), phase);
  kept = nullptr;
  if (!preparing)
    device->note(GRT_NOTE_FUNCTION_BEGIN);
  int32_t status = state.program.table().functions[function](&context);
  if (!preparing)
    device->note(GRT_NOTE_FUNCTION_END);
  if (status == 0)
    return;
  if (kept)
    std::rethrow_exception(std::exchange(kept, nullptr));
  fail("rank " + std::to_string(self) + ", layer '" + layer.name +
       "': function '" + manifest.functions[function] + "' returned status " +
       std::to_string(status));
}

void Rank::forward(uint32_t microBatch, uint32_t slot) {
  size_t mark = live.mark();
  beforeFunction(slot);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    Extent output =
        layer.output == OutputKind::Boundary
            ? boundaryExtent(layer.outputBuffer, layers[i].outputBytes)
            : Extent{};
    if (layer.output == OutputKind::Slot)
      output = inputExtent(i + 1, slot);
    if (layer.output == OutputKind::Boundary)
      beforeFunction(meetingOfBuffer(layer.outputBuffer));
    begin(output);
    bind(i, microBatch, slot, Phase::Forward);
    call(layer.forward, layer, Phase::Forward);
    if (inspecting)
      inspectLayer(i);
    if (layer.forwardReshard >= 0) {
      Extent next = inputExtent(i + 1, slot);
      begin(next);
      reshard(layer.forwardReshard, arena->base() + output.offset,
              arena->base() + next.offset);
      end(output);
    }
  }
  afterFunctions();
  // Without a backward pass nothing ends what forward keeps for it.
  if (!tracks())
    live.rewind(mark);
}

void Rank::backward(const grt_task &task) {
  accumulate = backwardSeen;
  beforeFunction(task.slot);
  for (size_t i = layers.size(); i-- > 0;) {
    const Layer &layer = roleData->layers[i];
    if (layer.recompute >= 0) {
      bind(i, task.micro_batch, task.slot, Phase::Recompute);
      call(layer.recompute, layer, Phase::Recompute);
    }
    for (int buffer : {layer.gradIn, layer.gradOut})
      if (buffer >= 0)
        beforeFunction(meetingOfBuffer(buffer));
    Extent gradOut = boundaryExtent(layer.gradOut, layer.inputBytes);
    begin(gradOut);
    bind(i, task.micro_batch, task.slot, Phase::Backward);
    call(layer.backward, layer, Phase::Backward);
    if (task.flags & GRT_SYNC_BEHIND)
      reduceGradients(i);
    end(boundaryExtent(layer.gradIn, layers[i].outputBytes));
    end(inputExtent(i, task.slot));
    if (layer.backwardReshard >= 0) {
      const Layer &previous = roleData->layers[i - 1];
      Extent gradIn =
          boundaryExtent(previous.gradIn, layers[i - 1].outputBytes);
      beforeFunction(meetingOfBuffer(previous.gradIn));
      begin(gradIn);
      reshard(layer.backwardReshard, arena->base() + gradOut.offset,
              arena->base() + gradIn.offset);
      end(gradOut);
    }
  }
  afterFunctions();
  backwardSeen = true;
  reduced = task.flags & GRT_SYNC_BEHIND;
}

void Rank::reshard(int exchange, const void *source, void *destination) {
  ExchangeCall call;
  call.table = &state.exchanges[exchange][self];
  call.source = source;
  call.destination = destination;
  call.bytesPerUnit = manifest.exchanges[exchange].bytesPerUnit;
  notePlace("reshard");
  communicator->exchange({&call, 1});
}

void Rank::transfer(const grt_task &task) {
  const Role &role = *roleData;
  const Layer &first = role.layers.front(), &last = role.layers.back();
  Extent output = boundaryExtent(last.outputBuffer, layers.back().outputBytes);
  Extent gradIn = boundaryExtent(last.gradIn, layers.back().outputBytes);
  Extent gradOut = boundaryExtent(first.gradOut, first.inputBytes);
  Extent input = inputExtent(0, task.slot);

  ExchangeCall calls[4];
  size_t count = 0, met[4];
  auto add = [&](int exchange, const Extent &source, const Extent &destination,
                 size_t meeting) {
    met[count] = meeting;
    calls[count++] = {&state.exchanges[exchange][self],
                      arena->base() + source.offset,
                      arena->base() + destination.offset,
                      manifest.exchanges[exchange].bytesPerUnit};
    beforeTransfer(meeting);
  };
  if (task.flags & GRT_RECV_ACTIVATION)
    begin(input);
  if (task.flags & GRT_RECV_GRADIENT)
    begin(gradIn);
  if (task.flags & GRT_SEND_ACTIVATION)
    add(role.sendActivation, output, {}, meetingOfBuffer(last.outputBuffer));
  if (task.flags & GRT_SEND_GRADIENT)
    add(role.sendGradient, gradOut, {}, meetingOfBuffer(first.gradOut));
  if (task.flags & GRT_RECV_ACTIVATION)
    add(role.recvActivation, {}, input, task.slot);
  if (task.flags & GRT_RECV_GRADIENT)
    add(role.recvGradient, {}, gradIn, meetingOfBuffer(last.gradIn));
  notePlace("transfer");
  communicator->onStream(GRT_STREAM_TRANSFER);
  communicator->exchange({calls, count});
  communicator->onStream(GRT_STREAM_COMPUTE);
  for (size_t i = 0; i < count; ++i)
    afterTransfer(met[i]);
  if (task.flags & GRT_SEND_ACTIVATION)
    end(output, /*sent=*/true);
  if (task.flags & GRT_SEND_GRADIENT)
    end(gradOut, /*sent=*/true);
}

void Rank::reduceGradients(size_t number) {
  const Layer &layer = roleData->layers[number];
  Group *group = layers[number].groups[GRT_AXIS_DP];
  activity.setLayer(&layer);
  runningLayer = &layer;
  if (recorder)
    recorder->layer = int32_t(number);
  if (!group)
    return;
  uint64_t held =
      uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
  notePlace("sum of gradients");
  device->order(GRT_STREAM_COMPUTE, GRT_STREAM_GRADIENT);
  communicator->onStream(GRT_STREAM_GRADIENT);
  communicator->allReduce(*group, arena->base() + layer.gradient, held,
                          manifest.accumulatorType());
  communicator->onStream(GRT_STREAM_COMPUTE);
  reducing = true;
}

void Rank::synchroniseGradients() {
  if (!reduced)
    for (size_t i = layers.size(); i-- > 0;)
      reduceGradients(i);
  if (std::exchange(reducing, false))
    device->order(GRT_STREAM_GRADIENT, GRT_STREAM_COMPUTE);
}

void Rank::tie(bool reduce) {
  runningLayer = nullptr;
  notePlace(reduce ? "sum of tied gradients" : "copy of tied parameters");
  if (reduce && tieScratch.bytes) {
    beforeFunction(
        tieScratch.offset == roleData->slots.offset ? 0 : meetingOfBuffer(0));
    begin(tieScratch);
  }
  for (size_t i = 0; i < manifest.ties.size(); ++i) {
    const Tie &tie = manifest.ties[i];
    const TieTables &tables = state.ties[i];
    ExchangeCall call;
    call.table = reduce ? &tables.reduce[self] : &tables.broadcast[self];
    if (call.table->empty())
      continue;
    auto address = [&](const TieEnd &end) -> char * {
      if (end.role != roleNumber)
        return arena->base();
      const Layer &layer = roleData->layers[end.layer];
      return arena->base() + (reduce ? layer.gradient : layer.parameter);
    };
    call.source = address(reduce ? tie.borrower : tie.owner);
    call.destination = address(reduce ? tie.owner : tie.borrower);
    call.bytesPerUnit =
        reduce ? manifest.accumulatorBytes() : manifest.elementBytes();
    call.add = reduce;
    call.dtype = manifest.accumulatorType();
    communicator->exchange({&call, 1});
  }
  if (reduce)
    end(tieScratch);
  afterFunctions();
}

void Rank::norm() {
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (layer.norm < 0)
      continue;
    bind(i, 0, 0, Phase::Update);
    call(layer.norm, layer, Phase::Norm);
  }
  gatherResults(/*withNorm=*/true);
  // The same numbers on all ranks, so the same decision.
  updateLeftOut = !std::isfinite(lossSum) || !std::isfinite(gradientNorm);
  step->clip_factor = 1;
  if (manifest.clip)
    step->clip_factor =
        std::min(1.0, state.hyperparameters.clipNorm / (gradientNorm + 1e-6));
  // On a device this round trip through the host empties its queues: it costs
  // the latency of a copy back, a gather over the host and the launch of the
  // update, some tens of microseconds per step and more across machines. The
  // norm would have to be gathered on the device to save it.
  if (*device)
    device->upload(reinterpret_cast<char *>(&deviceStep->clip_factor),
                   &step->clip_factor, sizeof(double));
}

void Rank::gatherResults(bool withNorm) {
  const Layer &last = roleData->layers.back();
  bool hasLoss = last.output == OutputKind::Loss &&
                 layers.back().coordinates.tp_index == 0;
  const double *losses = nullptr, *squared = nullptr;
  if (hasLoss)
    losses = static_cast<const double *>(
        device->fetch(arena->base() + roleData->loss.offset,
                      uint64_t(manifest.microBatches) * sizeof(double)));
  if (withNorm)
    squared = static_cast<const double *>(
        device->fetch(&deviceStep->local_norm_squared, sizeof(double)));
  device->wait();
  double mine[2] = {squared ? *squared : 0, 0};
  for (int64_t m = 0; hasLoss && m < manifest.microBatches; ++m)
    mine[1] += losses[m];
  host.gather(mine, gathered);
  double squares = 0;
  lossSum = 0;
  for (size_t r = 0; r < gathered.size(); r += 2) {
    squares += gathered[r];
    lossSum += gathered[r + 1];
  }
  gradientNorm = std::sqrt(squares);
}

void Rank::update() {
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (layer.update < 0)
      continue;
    bind(i, 0, 0, Phase::Update);
    call(layer.update, layer, Phase::Update);
  }
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

void Rank::failHere(const std::string &what) const {
  fail("rank " + std::to_string(self) +
       (state.step && !preparing ? ", step " + str(state.step) : "") +
       (runningLayer ? ", layer '" + runningLayer->name + "'" : "") + ": " +
       what);
}

char *Rank::resolve(const grt_buffer &buffer, const char *name,
                    size_t position) {
  if (buffer.region >= GRT_REGION_COUNT)
    failHere("buffer " + str(position) + " of '" + name +
             "' is in unknown region " + str(buffer.region));
  const Region &region = regions[buffer.region];
  if (buffer.offset > region.bytes ||
      buffer.bytes > region.bytes - buffer.offset)
    failHere("buffer " + str(position) + " of '" + name + "' covers bytes " +
             str(buffer.offset) + " to " + str(buffer.offset + buffer.bytes) +
             " of region " + regionName(buffer.region) + ", which has " +
             str(region.bytes));
  return region.base + buffer.offset;
}

void Rank::launch(const grt_kernel_op &op) {
  constexpr uint32_t most = 16;
  const char *name = op.name ? op.name : kernelName(op.kernel);
  if (op.kernel >= GRT_KERNEL_COUNT || op.buffer_count > most)
    failHere(std::string("'") + name + "' is a malformed kernel call");
  grt_kernel_function kernel = state.backend.kernels[op.kernel];
  if (!kernel)
    failHere(std::string("backend '") + state.backend.name +
             "' has no kernel '" + kernelName(op.kernel) + "'");
  // Decay flags are constants of the program; decaying everything is an option
  // of the run.
  grt_kernel_op patched = op;
  if (op.kernel == GRT_KERNEL_OPTIMIZER && state.options.decayAll) {
    std::vector<int64_t> &ints = decaying[&op];
    if (ints.empty()) {
      ints.assign(op.ints, op.ints + op.int_count);
      for (size_t i = 5; i < ints.size(); i += 3)
        ints[i] = 1;
    }
    patched.ints = ints.data();
  }
  if (state.failed.load(std::memory_order_relaxed))
    throw Aborted();
  activity.begin(kernelName(op.kernel), op.name);
  void *buffers[most];
  char message[256] = "";
  int32_t status = 0;
  if (preparing) {
    if (state.backend.prepare)
      status = state.backend.prepare(backendState, &patched, message,
                                     sizeof(message));
  } else {
    for (uint32_t i = 0; i < op.buffer_count; ++i)
      buffers[i] = resolve(op.buffers[i], name, i);
    grt_call call{&patched,   buffers,    &running->coordinates,
                  deviceStep, accumulate, backendState};
    status = kernel(&call, message, sizeof(message));
  }
  if (status != 0) {
    message[sizeof(message) - 1] = 0;
    failHere(std::string(kernelName(op.kernel)) + " '" + name +
             "': " + message);
  }
  activity.end();
}

void Rank::communicate(const grt_collective_op &op) {
  if (preparing)
    return;
  const char *name = op.name ? op.name : "collective";
  if (op.axis > GRT_AXIS_TP)
    failHere(std::string("'") + name + "' runs over an unknown axis");
  if (op.stream >= GRT_STREAM_COUNT)
    failHere(std::string("'") + name + "' is on an unknown stream");
  activity.begin("collective", name);
  notePlace(name);
  communicator->onStream(grt_stream(op.stream));
  char *in = resolve(op.in, name, 0), *out = resolve(op.out, name, 1);
  Group *group = running->groups[op.axis];
  uint64_t members = group ? uint64_t(group->size()) : 1;
  auto expect = [&](uint64_t inBytes, uint64_t outBytes) {
    if (inBytes != outBytes || op.in.dtype != op.out.dtype)
      failHere(std::string("'") + name + "' has " + str(op.in.bytes) +
               " bytes of " + dtypeName(op.in.dtype) + " in and " +
               str(op.out.bytes) + " bytes of " + dtypeName(op.out.dtype) +
               " out over " + str(members) + " ranks");
  };
  auto dtype = grt_dtype(op.out.dtype);
  uint64_t count = op.out.bytes / dtypeBytes(op.out.dtype);
  bool add = op.acc == 1 || (op.acc == 2 && accumulate);
  switch (op.collective) {
  case GRT_ALL_REDUCE:
    expect(op.in.bytes, op.out.bytes);
    if (in != out)
      device->copy(op.stream, out, in, op.in.bytes);
    if (group)
      communicator->allReduce(*group, out, count, dtype);
    break;
  case GRT_ALL_GATHER:
    expect(op.in.bytes * members, op.out.bytes);
    if (group)
      communicator->allGather(*group, in, out, op.in.bytes);
    else if (in != out)
      device->copy(op.stream, out, in, op.in.bytes);
    break;
  case GRT_REDUCE_SCATTER:
    expect(op.in.bytes, op.out.bytes * members);
    if (!group)
      group = &communicator->group({self});
    communicator->reduceScatter(*group, in, out, count, dtype, add);
    break;
  default:
    failHere(std::string("'") + name + "' is an unknown collective");
  }
  communicator->onStream(GRT_STREAM_COMPUTE);
}

void Rank::order(const grt_event_op &op) {
  if (op.event >= GRT_FUNCTION_EVENTS || op.stream >= GRT_STREAM_COUNT)
    failHere("event " + str(op.event) + " on stream " + str(op.stream) +
             ": expected at most " + str(GRT_FUNCTION_EVENTS) + " events and " +
             str(GRT_STREAM_COUNT) + " streams");
  if (preparing)
    return;
  if (op.wait)
    device->wait(op.stream, op.event);
  else
    device->record(op.stream, op.event);
}

void Rank::beginLife(const grt_buffer &buffer) {
  if (preparing) {
    ++marks;
    return;
  }
  char *address = resolve(buffer, "begin", 0);
  if (!buffer.bytes)
    return;
  live.begin(uint64_t(address - arena->base()), buffer.bytes);
  device->note(GRT_NOTE_BEGIN, address, buffer.bytes);
}

void Rank::endLife(const grt_buffer &buffer) {
  if (preparing)
    return;
  char *address = resolve(buffer, "end", 0);
  if (!buffer.bytes)
    return;
  if (!live.end(uint64_t(address - arena->base()), buffer.bytes, poisonDead()))
    failHere("a buffer of " + str(buffer.bytes) + " bytes at " +
             str(buffer.offset) + " of region " + regionName(buffer.region) +
             " ends that never began");
  device->note(GRT_NOTE_END, address, buffer.bytes);
}

} // namespace grt
