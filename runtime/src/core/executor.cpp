//===- executor.cpp - One rank of a running program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "base/allocation.h"
#include "base/error.h"

#include <algorithm>
#include <utility>

namespace grt {

Rank::Rank(RunState &state, Communicator &communicator, Activity &activity,
           Recorder *recorder)
    : state(state), manifest(state.manifest), host(communicator),
      communicator(&communicator), activity(activity), recorder(recorder),
      self(communicator.rank()),
      updateCalls(state.rules, state.options.decayAll) {
  swaps.figures.rank = self;
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const std::vector<int> &devices = manifest.roles[r].devices;
    auto it = std::find(devices.begin(), devices.end(), self);
    if (it != devices.end()) {
      roleNumber = int(r);
      local = int(it - devices.begin());
    }
  }
  roleData = &manifest.roles[roleNumber];
  for (const Chunk &chunk : roleData->chunks) {
    ChunkState &at = chunks.emplace_back();
    at.chunk = &chunk;
    at.number = chunks.size() - 1;
    at.partsOfSlot = uint64_t(manifest.perSlot(chunk.forwardOnly));
    if (roleData->slotsInArena() > 1) {
      at.firstSlot = chunk.firstSlot;
      at.slots = chunk.slots;
    }
  }
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
  if (device && homeMemory)
    device->note(GRT_NOTE_HOME, homeMemory->base());
  // It waits for what is left on its streams, and ends a graph that is being
  // made: only then may go what both name.
  if (backendState)
    state.backend.destroy_rank(backendState);
  homeMemory.reset();
  device.reset();
  homeDevice.reset();
  arena.reset();
  if (homeState)
    state.homeBackend->destroy_rank(homeState);
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

void Rank::fillData(unsigned generation, const GlobalBatch &batch) {
  turnTo(generation);
  const int64_t first = int64_t(progress.part) * manifest.batch;
  for (size_t i = 0; i < samplesHeld.size(); ++i) {
    const DataCopy &copy = roleData->copies[i];
    uint64_t sampleBytes = manifest.data[copy.datum].bytesPerSample;
    const int64_t count = manifest.microBatchesOf(copy.ofForwardPacks);
    const SampleRuns &runs = samplesHeld[i].runs;
    for (int64_t m = 0; m < count; ++m) {
      Extent to = microBatchExtent(copy, uint64_t(m));
      uint64_t sample = uint64_t(first + runs.first + m * runs.stride);
      device->upload(arena->base() + to.offset,
                     batch.values[copy.datum].data() + sample * sampleBytes,
                     uint64_t(samplesHeld[i].count) * sampleBytes);
    }
  }
}

void Rank::turnTo(unsigned generation) {
  progress.place = (progress.since + generation) % manifest.batchesAtOnce();
  // What is left of a batch uses the parameters that it was begun with.
  progress.weights =
      input->mode == GRT_MODE_TRAIN && generation == 0 ? olderOffset : 0;
  deviceStep = reinterpret_cast<grt_step *>(
      arena->base() + roleData->step.offset + batchOffset(roleData->step));
  step = *device ? &hostStep : deviceStep;
}

void Rank::fillStep(unsigned generation, uint64_t number,
                    uint64_t countedValues) {
  turnTo(generation);
  const Hyperparameters &h = input->hyperparameters;
  step->step = number;
  step->seed = state.options.seed;
  step->mode = input->mode;
  step->update_left_out = 0;
  step->learning_rate = h.learningRate;
  step->beta1 = h.beta1;
  step->beta2 = h.beta2;
  step->eps = h.eps;
  step->weight_decay = h.weightDecay;
  step->momentum = h.momentum;
  step->clip_factor = 1;
  step->inverse_tokens = countedValues ? 1.0 / double(countedValues) : 0.0;
  step->local_norm_squared = step->local_loss = 0;
  step->clip_norm = h.clipNorm;
  step->skip_norm = h.skipNorm;
  if (*device)
    device->upload(reinterpret_cast<char *>(deviceStep), step,
                   sizeof(grt_step));
}

void Rank::beginStep() {
  progress.part = 0;
  progress.earlierLosses = {};
  progress.since = 0;
  live.rewind(0);
  packHere = nullptr;
  for (ChunkState &chunk : chunks)
    chunk.beginStep();
  results.updateLeftOut = false;
  activity.setStep(input->step);
  device->note(GRT_NOTE_FORGET, nullptr, tracks());
  runningLayer = nullptr;
  notePlace("batch and step block");
  fillStep(0, input->step, input->batch->countedValues);
  fillData(0, *input->batch);
}

void Rank::train() {
  if (recorder) {
    recorder->setRecording(input->recorded);
    recorder->beginStep(input->step);
  }
  device->measureWaits(input->measuresWaits);
  results.stepKind = StepKind::Calls;
  if (recorder && recorder->isActive())
    results.stepKind = StepKind::Recorded;
  if (manifest.delay)
    trainLate();
  else
    trainBatch();
  if (recorder)
    recorder->endStep();
  device->measureWaits(false);
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

double Rank::takeWaits() {
  const double ofHost = activity.takeWaited();
  if (!device->hasClock())
    return ofHost;
  device->waitForAll();
  return device->takeWaits();
}

void Rank::trainBatch() {
  beginStep();
  if (stepsByGraphs()) {
    results.stepKind = StepKind::Graphs;
    return trainByGraphs();
  }
  leaveGraphs();
  runSteadyParts();
  runPart(GRT_PART_STEP_END, false);
  joinStreams();
  warm = true;
  if (state.ahead()) {
    stepEnd.fetch(/*withNorm=*/false);
    stepEnd.gather();
  }
}

void Rank::evaluate(bool firstMicroBatchOnly) {
  inspection.hits = 0;
  beginStep();
  leaveGraphs();
  runPart(GRT_PART_EVALUATE, firstMicroBatchOnly);
  joinStreams();
  stepEnd.fetch(/*withNorm=*/false);
  stepEnd.gather();
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::finish() {
  device->waitForAll();
  lookAtDeviceMemory();
}

void Rank::finishRecording() {
  device->waitForAll();
  if (recorder)
    recorder->fetchDeviceTimes();
}

void Rank::addOverRanks(std::span<double> values) {
  host.allReduce(*everyone, values.data(), values.size(), GRT_F64);
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::runPart(grt_part part, bool firstMicroBatchOnly) {
  const grt_task_list &list = schedule().parts[part];
  for (uint64_t i = 0; i < list.count; ++i) {
    grt_task task = list.tasks[i];
    if (firstMicroBatchOnly &&
        (task.kind == GRT_TASK_FORWARD ||
         (task.kind == GRT_TASK_SWAP &&
          task.classes == GRT_SWAP_ACTIVATIONS)) &&
        !hasFirstSample(chunkOf(task.chunk).chunk->forwardOnly,
                        task.micro_batch)) {
      // Others may come behind it by what it waits for.
      beginOrder(task);
      endOrder(task);
      continue;
    }
    // A batch of several parts sums its gradients over ranks once, at its end.
    if (progress.leavesSums && (task.kind == GRT_TASK_BACKWARD ||
                                task.kind == GRT_TASK_BACKWARD_WEIGHT))
      task.flags &= uint8_t(~GRT_SYNC_BEHIND);
    // Both sides of a transfer name the micro-batch, so they agree.
    unsigned parts = 0;
    for (unsigned p = 0; task.kind == GRT_TASK_TRANSFER && p < task.count; ++p)
      if (!firstMicroBatchOnly ||
          hasFirstSample(/*forwardOnly=*/true, partsOf(task)[p].micro_batch))
        parts |= 1u << p;
    activity.setTask(&list.tasks[i]);
    runTask(task, parts, part == GRT_PART_STEP_END);
    bool lastLoss = task.kind == GRT_TASK_FORWARD && task.generation == 0 &&
                    int64_t(task.micro_batch) + 1 == manifest.microBatches &&
                    part != GRT_PART_EVALUATE && !*device && input->parts == 1;
    if (lastLoss && lossIsKnown && state.ahead() && hasLoss() &&
        chunkOf(task.chunk).chunk == &roleData->chunks.back()) {
      stepEnd.fetch(/*withNorm=*/false);
      stepEnd.addLosses();
      lossIsKnown(results.ownLoss);
    }
  }
}

void Rank::runTasks(grt_part part, size_t from, size_t to) {
  const grt_task_list &list = schedule().parts[part];
  for (size_t i = from; i < to; ++i) {
    activity.setTask(&list.tasks[i]);
    runTask(list.tasks[i], ~0u, part == GRT_PART_STEP_END);
  }
}

Rank::ChunkState &Rank::chunkOf(uint16_t number) {
  // A role has few.
  for (ChunkState &chunk : chunks)
    if (chunk.chunk->number == number)
      return chunk;
  failHere("chunk " + std::to_string(number) + " is not the role's");
}

void Rank::runTask(const grt_task &task, unsigned parts, bool endsStep) {
  beginOrder(task);
  execute(task, parts, endsStep);
  endOrder(task);
}

void Rank::execute(const grt_task &task, unsigned parts, bool endsStep) {
  activity.setLayer(nullptr);
  TraceSpan span(recorder, task);
  // Updates and sums of gradients are of the newest weights.
  turnTo(task.generation);
  if (task.kind >= GRT_TASK_SYNC_GRADIENTS &&
      task.kind <= GRT_TASK_TIE_BROADCAST)
    progress.weights = 0;
  if (task.kind == GRT_TASK_TIE_BROADCAST && !endsStep)
    return ties.takeValues();
  if (task.kind == GRT_TASK_SWAP)
    return swap(task);
  switch (task.kind) {
  case GRT_TASK_FORWARD:
  case GRT_TASK_BACKWARD:
  case GRT_TASK_BACKWARD_INPUT:
  case GRT_TASK_BACKWARD_WEIGHT:
    return runPass(chunkOf(task.chunk), task);
  case GRT_TASK_TRANSFER:
    return transfer(task, parts);
  case GRT_TASK_SYNC_GRADIENTS:
    return synchroniseGradients(chunkOf(task.chunk));
  case GRT_TASK_TIE_REDUCE:
    return ties.run(/*reduce=*/true);
  case GRT_TASK_NORM:
    return stepEnd.norm();
  case GRT_TASK_UPDATE:
    return results.updateLeftOut ? void() : update(chunkOf(task.chunk));
  default:
    return ties.run(/*reduce=*/false);
  }
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
    failHere("a boundary buffer of " + std::to_string(extent.bytes) +
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
  std::string text = "step " + std::to_string(input->step);
  if (runningLayer)
    text += ", layer '" + runningLayer->name + "'";
  device->note(GRT_NOTE_PLACE, nullptr, 0, (text + ", " + what).c_str());
}

void Rank::joinStreams() {
  device->order(GRT_STREAM_GRADIENT, GRT_STREAM_COMPUTE);
  device->order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  if (swapsOnStreams)
    for (uint32_t stream : {GRT_STREAM_IN, GRT_STREAM_OUT})
      device->order(stream, GRT_STREAM_COMPUTE);
  progress.reduces = false;
  handoffs.joined();
  device->note(GRT_NOTE_JOINED);
}

void Rank::bind(size_t number, uint32_t microBatch, uint32_t slot,
                Phase phase) {
  const Layer &layer = roleData->layers[number];
  LayerState &prepared = layers[number];
  running = &prepared;
  runningLayer = &layer;
  activity.setLayer(layer.name.c_str());
  notePlace("functions");
  prepared.coordinates.first_sample =
      int64_t(progress.part) * manifest.batch + prepared.samples.first +
      int64_t(microBatch) * prepared.samples.stride;

  bound.bind(layer, prepared.bindings[phase], slot);
  if (phase == Phase::Update || phase == Phase::Norm)
    return;
  char *base = arena->base();
  bound.move(GRT_REGION_PARAMETER, progress.weights);
  bound.move(GRT_REGION_LOSS, microBatch * manifest.lossBytes());
  for (int number : layer.data) {
    const DataCopy &copy = roleData->copies[number];
    bound.addData(base + microBatchExtent(copy, microBatch).offset,
                  uint64_t(layer.samples) *
                      manifest.data[copy.datum].bytesPerSample);
  }
  const Extent gradOut =
      boundaryExtent(*roleData, layer.gradOut, layer.frontBytes);
  char *inSlot = base + roleData->slots.offset + slot * roleData->slotStride;
  for (const InputTensor &input : layer.inputs)
    bound.addPiece(inSlot + input.slot, base + gradOut.offset + input.front);
}

void Rank::call(int function, const Layer &layer, Phase phase) {
  TraceSpan span(recorder, int32_t(&layer - roleData->layers.data()), phase);
  side = sideOf(layer, phase);
  device->note(GRT_NOTE_FUNCTION_BEGIN);
  for (const gvx::Call &call : state.program.file().calls(size_t(function)))
    run(call);
  device->note(GRT_NOTE_FUNCTION_END);
  if (!std::exchange(side, &here)->isHost)
    leaveMark(GRT_STREAM_COMPUTE);
}

void Rank::reshard(int exchange, const void *source, void *destination) {
  ExchangeCall call;
  call.table = &state.exchanges[exchange][self];
  call.source = source;
  call.destination = destination;
  call.bytesPerUnit = manifest.exchanges[exchange].tableUnit();
  notePlace("reshard");
  communicator->exchange({&call, 1});
}

} // namespace grt
