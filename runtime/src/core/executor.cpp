//===- executor.cpp - One rank of a running program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "core/allocation.h"
#include "core/error.h"

#include <algorithm>
#include <utility>

namespace grt {

Rank::Rank(RunState &state, Communicator &communicator, Activity &activity,
           Recorder *recorder)
    : state(state), manifest(state.manifest), host(communicator),
      communicator(&communicator), activity(activity), recorder(recorder),
      self(communicator.rank()) {
  swapped.rank = self;
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const std::vector<int> &devices = manifest.roles[r].devices;
    auto it = std::find(devices.begin(), devices.end(), self);
    if (it != devices.end()) {
      roleNumber = int(r);
      local = int(it - devices.begin());
    }
  }
  roleData = &manifest.roles[roleNumber];
  for (const Chunk &chunk : roleData->chunks)
    chunks.push_back({&chunk});
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
  const int64_t first = int64_t(part) * manifest.batch;
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
  batchPlace = (batchesSince + generation) % manifest.batchesAtOnce();
  bool late =
      manifest.delay && input->mode == GRT_MODE_TRAIN && generation == 0;
  weightsOffset = late ? manifest.versionStride(*roleData) : 0;
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
  part = 0;
  earlierLosses = 0;
  batchesSince = 0;
  live.rewind(0);
  packHere = nullptr;
  for (ChunkState &chunk : chunks)
    chunk.beginStep();
  updateLeftOut = false;
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
  stepKind = StepKind::Calls;
  if (recorder && recorder->isActive())
    stepKind = StepKind::Recorded;
  if (!manifest.delay)
    beginStep();
  if (manifest.delay) {
    trainLate();
  } else if (stepsByGraphs()) {
    stepKind = StepKind::Graphs;
    trainByGraphs();
  } else {
    leaveGraphs();
    runSteadyParts();
    runPart(GRT_PART_STEP_END, false);
    joinStreams();
    warm = true;
    if (state.ahead()) {
      fetchResults(/*withNorm=*/false);
      gatherResults();
    }
  }
  if (recorder)
    recorder->endStep();
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::evaluate(bool firstMicroBatchOnly) {
  hitsSeen = 0;
  beginStep();
  leaveGraphs();
  runPart(GRT_PART_EVALUATE, firstMicroBatchOnly);
  joinStreams();
  fetchResults(/*withNorm=*/false);
  gatherResults();
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
    if (leavesSums && (task.kind == GRT_TASK_BACKWARD ||
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
      fetchResults(/*withNorm=*/false);
      addLosses();
      lossIsKnown(ownLoss);
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
      task.kind <= GRT_TASK_TIE_BROADCAST) {
    weightsOffset = 0;
    bool ofDevice = (task.kind == GRT_TASK_SYNC_GRADIENTS ||
                     task.kind == GRT_TASK_UPDATE) &&
                    updatesOnDevice(*chunkOf(task.chunk).chunk);
    if (!ofDevice)
      reachHome();
  }
  if (task.kind == GRT_TASK_TIE_BROADCAST && !endsStep)
    return takeTiedValues();
  if (task.kind == GRT_TASK_SWAP)
    return swap(task);
  switch (task.kind) {
  case GRT_TASK_FORWARD: {
    const ChunkState &chunk = chunkOf(task.chunk);
    return forward(chunk, task, slotOf(*chunk.chunk, task.slot));
  }
  case GRT_TASK_BACKWARD:
  case GRT_TASK_BACKWARD_INPUT: {
    ChunkState &chunk = chunkOf(task.chunk);
    return backward(chunk, task, slotOf(*chunk.chunk, task.slot));
  }
  case GRT_TASK_BACKWARD_WEIGHT: {
    ChunkState &chunk = chunkOf(task.chunk);
    return backwardWeight(chunk, task, slotOf(*chunk.chunk, task.slot));
  }
  case GRT_TASK_TRANSFER:
    return transfer(task, parts);
  case GRT_TASK_SYNC_GRADIENTS:
    return synchroniseGradients(chunkOf(task.chunk));
  case GRT_TASK_TIE_REDUCE:
    return tie(/*reduce=*/true);
  case GRT_TASK_NORM:
    return norm();
  case GRT_TASK_UPDATE:
    return updateLeftOut ? void() : update(*chunkOf(task.chunk).chunk);
  default:
    return tie(/*reduce=*/false);
  }
}

Extent Rank::inputExtent(size_t number, uint32_t slot) const {
  const Layer &layer = roleData->layers[number];
  return {roleData->keptOffset(layer, slot), layer.inputBytes};
}

Extent Rank::boundaryExtent(int buffer, uint64_t bytes) const {
  return grt::boundaryExtent(*roleData, buffer, bytes);
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

void Rank::beforeFunction(size_t number) {
  if (!*device)
    return;
  Handoff &handoff = handoffs[number];
  handoff.touched = true;
  if (std::exchange(handoff.transferred, false))
    device->wait(GRT_STREAM_COMPUTE, handoff.transferEvent);
}

void Rank::beforeBoundary(int buffer, const Extent &extent) {
  if (buffer < 0 || !*device)
    return;
  // What is still sent from the other end of the region may reach as far.
  if (buffer < endsOfRegion) {
    Handoff &other = handoffs[handoffOfBuffer(1 - buffer)];
    bool meets = extent.offset < other.extent.offset + other.extent.bytes &&
                 other.extent.offset < extent.offset + extent.bytes;
    if (meets && std::exchange(other.transferred, false))
      device->wait(GRT_STREAM_COMPUTE, other.transferEvent);
  }
  beforeFunction(handoffOfBuffer(buffer));
}

void Rank::afterFunctions() {
  for (Handoff &handoff : handoffs)
    if (std::exchange(handoff.touched, false)) {
      device->record(GRT_STREAM_COMPUTE, handoff.computeEvent);
      handoff.computed = true;
    }
}

void Rank::beforeTransfer(size_t number, const Extent &extent) {
  if (!*device)
    return;
  // Functions may have used what a boundary buffer covers from its other end.
  size_t first = number, last = number;
  if (number >= handoffOfBuffer(0) && number < handoffOfBuffer(endsOfRegion)) {
    first = handoffOfBuffer(0);
    last = handoffOfBuffer(endsOfRegion - 1);
  }
  for (size_t i = first; i <= last; ++i)
    if (std::exchange(handoffs[i].computed, false))
      device->wait(GRT_STREAM_TRANSFER, handoffs[i].computeEvent);
  handoffs[number].extent = extent;
}

void Rank::afterTransfer(size_t number) {
  if (!*device)
    return;
  device->record(GRT_STREAM_TRANSFER, handoffs[number].transferEvent);
  handoffs[number].transferred = true;
}

void Rank::joinStreams() {
  device->order(GRT_STREAM_GRADIENT, GRT_STREAM_COMPUTE);
  device->order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  if (swapsOnStreams)
    for (uint32_t stream : {GRT_STREAM_IN, GRT_STREAM_OUT})
      device->order(stream, GRT_STREAM_COMPUTE);
  reducing = false;
  for (Handoff &handoff : handoffs)
    handoff.transferred = false;
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
      int64_t(part) * manifest.batch + prepared.samples.first +
      int64_t(microBatch) * prepared.samples.stride;

  char *base = arena->base();
  auto set = [&](grt_region region, uint64_t offset, uint64_t bytes) {
    regions[region] = {base + offset, bytes};
  };
  auto setHome = [&](grt_region region, uint64_t offset, uint64_t bytes) {
    regions[region] = {home(layer) + offset, bytes};
  };
  std::fill(std::begin(regions), std::end(regions), Region{});
  dataRegions.clear();
  uint64_t held =
      uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
  const uint64_t width = manifest.elementBytes();
  const uint64_t wide = manifest.accumulatorBytes();
  if (phase == Phase::Update) {
    // Updates and norms are of what the rank owns, be the others here or not,
    // and done at home, or in the arena while the states are there.
    uint64_t first = 0;
    if (layer.cutsStateOnly) {
      first = uint64_t(-stateShift(layer, local));
      held = uint64_t(layer.ownedElements());
    }
    const uint64_t state = manifest.optimizerBytes(layer);
    if (layer.updatesOnDevice) {
      set(GRT_REGION_PARAMETER, layer.residentParameter + first * width,
          held * width);
      set(GRT_REGION_GRADIENT, layer.residentGradient + first * wide,
          held * wide);
      set(GRT_REGION_OPTIMIZER, layer.residentOptimizer, state);
    } else {
      setHome(GRT_REGION_PARAMETER, layer.parameter + first * width,
              held * width);
      setHome(GRT_REGION_GRADIENT, layer.gradient + first * wide, held * wide);
      setHome(GRT_REGION_OPTIMIZER, layer.optimizer, state);
    }
  } else {
    set(GRT_REGION_PARAMETER, layer.residentParameter + weightsOffset,
        held * width);
    set(GRT_REGION_GRADIENT, layer.residentGradient, held * wide);
  }

  uint64_t slotBase = role.slots.offset + slot * role.slotStride;
  uint64_t kept = role.keptOffset(layer, slot);
  uint64_t transient = slotBase + layer.transient;
  uint64_t recomputed = alignUp(layer.recomputeStashBytes);
  bool stashIsTransient = layer.recompute >= 0 && (phase == Phase::Recompute ||
                                                   phase == Phase::Backward);
  if (stashIsTransient) {
    set(GRT_REGION_STASH, transient, layer.recomputeStashBytes);
    set(GRT_REGION_TRANSIENT, transient + recomputed, layer.transientBytes);
  } else if (layer.forwardOnly) {
    // Nobody needs what it keeps.
    uint64_t stash = alignUp(layer.stashBytes);
    set(GRT_REGION_STASH, slotBase + layer.forwardTransient, layer.stashBytes);
    set(GRT_REGION_TRANSIENT, slotBase + layer.forwardTransient + stash,
        layer.forwardTransientBytes);
  } else if (phase == Phase::Forward) {
    set(GRT_REGION_STASH, kept + alignUp(layer.inputBytes), layer.stashBytes);
    set(GRT_REGION_TRANSIENT, slotBase + layer.forwardTransient,
        layer.forwardTransientBytes);
  } else {
    set(GRT_REGION_STASH, kept + alignUp(layer.inputBytes), layer.stashBytes);
    set(GRT_REGION_TRANSIENT, transient, recomputed + layer.transientBytes);
  }
  if (phase == Phase::Update)
    return;
  const Gathered &full = gatheredOf(number, phase);
  set(GRT_REGION_GATHERED, slotBase + full.offset, full.bytes);

  set(GRT_REGION_INPUT, kept, layer.inputBytes);
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    pieces[i].input = base + slotBase + layer.inputs[i].slot;
  for (int number : layer.data) {
    const DataCopy &copy = role.copies[number];
    dataRegions.push_back(
        {base + microBatchExtent(copy, microBatch).offset,
         uint64_t(layer.samples) * manifest.data[copy.datum].bytesPerSample});
  }
  if (layer.output == OutputKind::Loss)
    set(GRT_REGION_LOSS, role.loss.offset + microBatch * sizeof(double),
        sizeof(double));
  if (layer.output == OutputKind::Slot) {
    Extent next = inputExtent(number + 1, slot);
    set(GRT_REGION_OUTPUT, next.offset, next.bytes);
  } else if (layer.output == OutputKind::Boundary && phase == Phase::Forward) {
    Extent buffer = boundaryExtent(layer.outputBuffer, prepared.outputBytes);
    set(GRT_REGION_OUTPUT, buffer.offset, buffer.bytes);
  }
  if (phase != Phase::Backward)
    return;
  Extent gradIn = boundaryExtent(layer.gradIn, prepared.outputBytes);
  Extent gradOut = boundaryExtent(layer.gradOut, layer.frontBytes);
  set(GRT_REGION_GRAD_IN, gradIn.offset, gradIn.bytes);
  set(GRT_REGION_GRAD_OUT, gradOut.offset, gradOut.bytes);
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    pieces[i].gradient = base + gradOut.offset + layer.inputs[i].front;
}

void Rank::call(int function, const Layer &layer, Phase phase) {
  TraceSpan span(recorder, int32_t(&layer - roleData->layers.data()), phase);
  side =
      phase == Phase::Norm || phase == Phase::Update ? &sideOf(layer) : &here;
  if (!preparing)
    device->note(GRT_NOTE_FUNCTION_BEGIN);
  for (const gvx::Call &call : state.program.file().calls(size_t(function)))
    run(call);
  if (!preparing)
    device->note(GRT_NOTE_FUNCTION_END);
  if (std::exchange(side, &here) == &here || !hostIsHome())
    leaveMark(GRT_STREAM_COMPUTE);
}

void Rank::forward(const ChunkState &at, const grt_task &task, uint32_t slot) {
  const Chunk &chunk = *at.chunk;
  size_t mark = live.mark();
  if (manifest.hasPacks && chunk.recvActivation >= 0)
    takeWaiting(chunk, task.slot, inputExtent(chunk.firstLayer, slot));
  startGather(chunk.firstLayer, slot, Phase::Forward);
  beforeFunction(slot);
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = roleData->layers[i];
    beforeLayer(chunk, i, slot, Phase::Forward);
    Extent output =
        layer.output == OutputKind::Boundary
            ? boundaryExtent(layer.outputBuffer, layers[i].outputBytes)
            : Extent{};
    if (layer.output == OutputKind::Slot)
      output = inputExtent(i + 1, slot);
    if (layer.output == OutputKind::Boundary)
      beforeBoundary(layer.outputBuffer, output);
    begin(output);
    size_t before = live.mark();
    bind(i, task.micro_batch, slot, Phase::Forward);
    call(layer.forward, layer, Phase::Forward);
    endGather(i, slot, Phase::Forward);
    if (inspecting)
      inspectLayer(i);
    if (layer.forwardOnly)
      live.rewind(before);
    // What passes the layer leaves with its output.
    if (layer.output == OutputKind::Boundary)
      for (const PassingTensor &tensor : layer.passes)
        device->copy(GRT_STREAM_COMPUTE,
                     arena->base() + output.offset + tensor.behind,
                     arena->base() + roleData->slots.offset +
                         slot * roleData->slotStride + tensor.slot,
                     tensor.bytes);
    if (layer.forwardReshard >= 0) {
      Extent next = inputExtent(i + 1, slot);
      begin(next);
      reshard(layer.forwardReshard, arena->base() + output.offset,
              arena->base() + next.offset);
      end(output);
    }
    // Nobody waits for the output of a pack that recomputes.
    if (manifest.hasPacks && layer.output == OutputKind::Boundary &&
        chunk.sendActivation < 0 && !manifest.sendsHome(chunk))
      end(output);
  }
  // Inputs of a layer may be what one in front of it holds.
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    if (roleData->layers[i].forwardOnly && !isStash(chunk, i))
      end(inputExtent(i, slot));
  afterFunctions();
  // Without a backward pass nothing ends what forward keeps for it.
  if (!tracks())
    live.rewind(mark);
}

void Rank::backward(ChunkState &at, const grt_task &task, uint32_t slot) {
  const Chunk &chunk = *at.chunk;
  bool isWhole = task.kind == GRT_TASK_BACKWARD;
  accumulate = at.backwardSeen;
  if (manifest.hasPacks && chunk.recvGradient >= 0) {
    size_t last = chunk.endLayer() - 1;
    takeWaiting(chunk, task.slot,
                boundaryExtent(roleData->layers[last].gradIn,
                               layers[last].outputBytes));
  }
  if (manifest.hasPacks && !at.backwardSeen)
    forResident(chunk, Resident::Gradients,
                [&](const Extent &extent) { begin(extent); });
  startGather(chunk.endLayer() - 1, slot, Phase::Backward);
  beforeFunction(slot);
  for (size_t i = chunk.endLayer(); i-- > chunk.firstLayer;) {
    const Layer &layer = roleData->layers[i];
    beforeLayer(chunk, i, slot, Phase::Backward);
    if (layer.awaitsSums.backward)
      awaitSums(GRT_STREAM_COMPUTE);
    if (layer.recompute >= 0) {
      bind(i, task.micro_batch, slot, Phase::Recompute);
      call(layer.recompute, layer, Phase::Recompute);
    }
    Extent gradOut = boundaryExtent(layer.gradOut, layer.frontBytes);
    Extent gradOfOutput = boundaryExtent(layer.gradIn, layers[i].outputBytes);
    beforeBoundary(layer.gradIn, gradOfOutput);
    beforeBoundary(layer.gradOut, gradOut);
    begin(gradOut);
    bind(i, task.micro_batch, slot, Phase::Backward);
    call(layer.backward, layer, Phase::Backward);
    passGradients(layer, gradOfOutput, gradOut);
    endGather(i, slot, Phase::Backward);
    end(gradOfOutput);
    // Weight parts read inputs, their own layer's or one that it holds.
    if (isWhole)
      end(inputExtent(i, slot));
    if (layer.backwardReshard >= 0) {
      const Layer &previous = roleData->layers[i - 1];
      Extent gradIn =
          boundaryExtent(previous.gradIn, layers[i - 1].outputBytes);
      beforeBoundary(previous.gradIn, gradIn);
      begin(gradIn);
      if (layer.awaitsSums.reshard)
        awaitSums(GRT_STREAM_COMPUTE);
      reshard(layer.backwardReshard, arena->base() + gradOut.offset,
              arena->base() + gradIn.offset);
      end(gradOut);
    }
    // Behind the reshard, which it need not run beside then.
    if (task.flags & GRT_SYNC_BEHIND)
      reduceGradients(i);
  }
  afterFunctions();
  at.backwardSeen = true;
  at.reduced = task.flags & GRT_SYNC_BEHIND;
}

void Rank::backwardWeight(ChunkState &at, const grt_task &task, uint32_t slot) {
  const Chunk &chunk = *at.chunk;
  accumulate = at.weightSeen;
  beforeFunction(slot);
  for (size_t i = chunk.endLayer(); i-- > chunk.firstLayer;) {
    const Layer &layer = roleData->layers[i];
    if (layer.awaitsSums.backward)
      awaitSums(GRT_STREAM_COMPUTE);
    if (layer.weight >= 0) {
      bind(i, task.micro_batch, slot, Phase::Weight);
      call(layer.weight, layer, Phase::Weight);
    }
    if (task.flags & GRT_SYNC_BEHIND)
      reduceGradients(i);
  }
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    end(inputExtent(i, slot));
  afterFunctions();
  at.weightSeen = true;
  at.reduced = task.flags & GRT_SYNC_BEHIND;
}

void Rank::passGradients(const Layer &layer, const Extent &behind,
                         const Extent &front) {
  for (const PassingTensor &tensor : layer.passes) {
    char *from = arena->base() + behind.offset + tensor.behind;
    char *to = arena->base() + front.offset + tensor.front;
    if (!tensor.used) {
      device->copy(GRT_STREAM_COMPUTE, to, from, tensor.bytes);
      continue;
    }
    // The layer's own part is there already.
    const grt_buffer buffer{0, uint32_t(manifest.dtype), 0, tensor.bytes};
    const grt_buffer buffers[] = {buffer, buffer, buffer};
    const int64_t elements = int64_t(tensor.bytes / manifest.elementBytes());
    const grt_kernel_op op{
        GRT_KERNEL_ADD, 3,         1,       0,
        buffers,        &elements, nullptr, "gradient of a tensor that passes"};
    void *addresses[] = {to, from, to};
    const grt_call call{&op,        addresses,  &running->coordinates,
                        deviceStep, accumulate, backendState};
    char message[256] = "";
    if (state.backend.kernels[GRT_KERNEL_ADD](&call, message,
                                              sizeof(message)) != 0)
      failHere(std::string("add '") + op.name + "': " + message);
  }
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

void Rank::transfer(const grt_task &task, unsigned parts) {
  if (manifest.hasPacks)
    return transferPacks(task, parts);
  const Role &role = *roleData;
  struct Part {
    int exchange;
    Extent extent;
    size_t handoff;
    bool sends;
    uint8_t value = 0;
    int cut = 0;     ///< the chunk in front of it
    size_t call = 0; ///< that moves it
  };
  // What one part moves, where it lies, and what else meets there.
  auto describe = [&](const grt_transfer_part &part) -> Part {
    const Chunk &chunk = *chunkOf(part.chunk).chunk;
    size_t front = chunk.firstLayer, back = chunk.endLayer() - 1;
    const Layer &first = role.layers[front], &last = role.layers[back];
    bool sends = part.direction == GRT_SEND;
    auto inBuffer = [&](int exchange, int buffer, uint64_t bytes) -> Part {
      return {exchange, boundaryExtent(buffer, bytes), handoffOfBuffer(buffer),
              sends};
    };
    if (part.value == GRT_GRADIENT)
      return sends
                 ? inBuffer(chunk.sendGradient, first.gradOut, first.frontBytes)
                 : inBuffer(chunk.recvGradient, last.gradIn,
                            layers[back].outputBytes);
    if (sends)
      return inBuffer(chunk.sendActivation, last.outputBuffer,
                      layers[back].outputBytes);
    uint32_t slot = slotOf(chunk, part.slot);
    return {chunk.recvActivation, inputExtent(front, slot), slot, sends};
  };
  Part moved[GRT_TRANSFER_PARTS];
  ExchangeCall calls[GRT_TRANSFER_PARTS];
  size_t count = 0;
  for (unsigned p = 0; p < task.count; ++p)
    if (parts & 1u << p) {
      const grt_transfer_part &part = partsOf(task)[p];
      moved[count] = describe(part);
      moved[count].value = part.value;
      moved[count++].cut = std::min(part.chunk, part.peer_chunk);
    }
  for (size_t i = 0; i < count; ++i)
    if (!moved[i].sends)
      begin(moved[i].extent);
  size_t callCount = 0;
  for (size_t i = 0; i < count; ++i) {
    char *memory = arena->base() + moved[i].extent.offset;
    // Between two chunks of one role a call has both ends.
    size_t other = 0;
    while (other < i && (moved[other].value != moved[i].value ||
                         moved[other].cut != moved[i].cut))
      ++other;
    moved[i].call = other < i ? moved[other].call : callCount++;
    ExchangeCall &call = calls[moved[i].call];
    if (other == i) {
      call.table = &state.exchanges[moved[i].exchange][self];
      call.source = call.destination = arena->base();
      call.bytesPerUnit = manifest.exchanges[moved[i].exchange].tableUnit();
    }
    if (moved[i].sends)
      call.source = memory;
    else
      call.destination = memory;
    beforeTransfer(moved[i].handoff, moved[i].extent);
  }
  notePlace("transfer");
  communicator->onStream(GRT_STREAM_TRANSFER);
  communicator->exchange({calls, callCount});
  communicator->onStream(GRT_STREAM_COMPUTE);
  leaveMark(GRT_STREAM_TRANSFER);
  for (size_t i = 0; i < count; ++i)
    afterTransfer(moved[i].handoff);
  for (size_t i = 0; i < count; ++i)
    if (moved[i].sends)
      end(moved[i].extent, /*sent=*/true);
}

} // namespace grt
