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
    : state(state), manifest(state.manifest), communicator(communicator),
      activity(activity), recorder(recorder), self(communicator.rank()) {
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
  if (backendState)
    state.backend.destroy_rank(backendState);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

void Rank::load() {
  const Role &role = *roleData;
  arena = std::make_unique<Arena>(state.backend,
                                  grt_arena{role.arenaBytes, role.window.offset,
                                            role.window.bytes, role.slotStride,
                                            uint64_t(role.slotCount)},
                                  self);
  backendState = state.backend.create_rank(self, state.threadsPerRank);
  if (state.poison)
    poison(arena->base(), role.addressBytes());
  for (const Extent &extent :
       {role.parameters, role.optimizer, role.loss, role.step, role.data})
    std::memset(arena->base() + extent.offset, 0, extent.bytes);
  // The first micro-batch of a step writes gradients; poison shows if not.
  if (!state.poison)
    std::memset(arena->base() + role.gradients.offset, 0, role.gradients.bytes);
  step = new (arena->base() + role.step.offset) grt_step();
  for (const Extent &extent : {role.parameters, role.gradients, role.optimizer,
                               role.data, role.loss, role.step})
    staticBytes += extent.bytes;

  std::vector<int> all(size_t(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  everyone = &communicator.group(all);
  layers.resize(role.layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    prepareLayer(i);
  gathered.resize(size_t(communicator.size()) * 2);
  initialiseWeights();
  prepareKernels();
  if (recorder)
    recorder->attach(live, staticBytes);
  beginAllocationCount();
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
          &communicator.group(axisRanks(role, layer, local, axis));
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
        initialValues(parameter, state.options.seed, run.global, run.count,
                      manifest.dtype,
                      arena->base() + layer.parameter +
                          uint64_t(run.held) * manifest.elementBytes());
        if (tensor.group == 0 && manifest.hasMasterWeights())
          initialValues(parameter, state.options.seed, run.global, run.count,
                        manifest.accumulatorType(),
                        arena->base() + manifest.masterOffset(layer) +
                            uint64_t(run.held) * manifest.accumulatorBytes());
      });
    }
}

uint64_t Rank::measuredPeakBytes() const {
  return staticBytes + live.peakBytes() + outsideBytes;
}

const int32_t *Rank::labels(int64_t microBatch) const {
  if (!labelBytes)
    return nullptr;
  return reinterpret_cast<const int32_t *>(
      arena->base() + roleData->data.offset + labelOffset +
      uint64_t(microBatch) * (labelBytes / uint64_t(manifest.microBatches)));
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
      std::memcpy(to + size_t(m) * bytes, from.data() + sample * length, bytes);
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
  updateLeftOut = false;
  activity.setStep(state.step);
  fillData();
}

void Rank::train() {
  if (recorder)
    recorder->beginStep(state.step);
  beginStep();
  runPart(GRT_PART_STEADY, false);
  runPart(GRT_PART_STEP_END, false);
  if (recorder)
    recorder->endStep();
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::evaluate(bool firstMicroBatchOnly) {
  beginStep();
  runPart(GRT_PART_EVALUATE, firstMicroBatchOnly);
  gatherResults(0);
  outsideBytes = std::max(outsideBytes, allocationPeakBytes());
}

void Rank::addOverRanks(std::span<double> values) {
  communicator.allReduce(*everyone, values.data(), values.size(), GRT_F64);
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
    return backward(task.micro_batch, task.slot);
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
  if (tracks() && extent.bytes)
    live.begin(extent.offset, extent.bytes);
}

void Rank::end(const Extent &extent) {
  if (tracks() && extent.bytes &&
      !live.end(extent.offset, extent.bytes,
                state.poison ? arena->base() : nullptr))
    failHere("a boundary buffer of " + str(extent.bytes) +
             " bytes ends that never began");
}

void Rank::bind(size_t number, uint32_t microBatch, uint32_t slot,
                Phase phase) {
  const Role &role = *roleData;
  const Layer &layer = role.layers[number];
  LayerState &prepared = layers[number];
  running = &prepared;
  runningLayer = &layer;
  activity.setLayer(&layer);
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
  int32_t status = state.program.table().functions[function](&context);
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
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    Extent output =
        layer.output == OutputKind::Boundary
            ? boundaryExtent(layer.outputBuffer, layers[i].outputBytes)
            : Extent{};
    if (layer.output == OutputKind::Slot)
      output = inputExtent(i + 1, slot);
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
  // Without a backward pass nothing ends what forward keeps for it.
  if (!tracks())
    live.rewind(mark);
}

void Rank::backward(uint32_t microBatch, uint32_t slot) {
  accumulate = backwardSeen;
  for (size_t i = layers.size(); i-- > 0;) {
    const Layer &layer = roleData->layers[i];
    if (layer.recompute >= 0) {
      bind(i, microBatch, slot, Phase::Recompute);
      call(layer.recompute, layer, Phase::Recompute);
    }
    Extent gradOut = boundaryExtent(layer.gradOut, layer.inputBytes);
    begin(gradOut);
    bind(i, microBatch, slot, Phase::Backward);
    call(layer.backward, layer, Phase::Backward);
    end(boundaryExtent(layer.gradIn, layers[i].outputBytes));
    end(inputExtent(i, slot));
    if (layer.backwardReshard >= 0) {
      const Layer &previous = roleData->layers[i - 1];
      Extent gradIn =
          boundaryExtent(previous.gradIn, layers[i - 1].outputBytes);
      begin(gradIn);
      reshard(layer.backwardReshard, arena->base() + gradOut.offset,
              arena->base() + gradIn.offset);
      end(gradOut);
    }
  }
  backwardSeen = true;
}

void Rank::reshard(int exchange, const void *source, void *destination) {
  ExchangeCall call;
  call.table = &state.exchanges[exchange][self];
  call.source = source;
  call.destination = destination;
  call.bytesPerUnit = manifest.exchanges[exchange].bytesPerUnit;
  communicator.exchange({&call, 1});
}

void Rank::transfer(const grt_task &task) {
  const Role &role = *roleData;
  const Layer &first = role.layers.front(), &last = role.layers.back();
  Extent output = boundaryExtent(last.outputBuffer, layers.back().outputBytes);
  Extent gradIn = boundaryExtent(last.gradIn, layers.back().outputBytes);
  Extent gradOut = boundaryExtent(first.gradOut, first.inputBytes);
  Extent input = inputExtent(0, task.slot);

  ExchangeCall calls[4];
  size_t count = 0;
  auto add = [&](int exchange, const Extent &source,
                 const Extent &destination) {
    calls[count++] = {&state.exchanges[exchange][self],
                      arena->base() + source.offset,
                      arena->base() + destination.offset,
                      manifest.exchanges[exchange].bytesPerUnit};
  };
  if (task.flags & GRT_RECV_ACTIVATION)
    begin(input);
  if (task.flags & GRT_RECV_GRADIENT)
    begin(gradIn);
  if (task.flags & GRT_SEND_ACTIVATION)
    add(role.sendActivation, output, {});
  if (task.flags & GRT_SEND_GRADIENT)
    add(role.sendGradient, gradOut, {});
  if (task.flags & GRT_RECV_ACTIVATION)
    add(role.recvActivation, {}, input);
  if (task.flags & GRT_RECV_GRADIENT)
    add(role.recvGradient, {}, gradIn);
  communicator.exchange({calls, count});
  if (task.flags & GRT_SEND_ACTIVATION)
    end(output);
  if (task.flags & GRT_SEND_GRADIENT)
    end(gradOut);
}

void Rank::synchroniseGradients() {
  for (size_t i = layers.size(); i-- > 0;) {
    const Layer &layer = roleData->layers[i];
    uint64_t held =
        uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
    activity.setLayer(&layer);
    if (recorder)
      recorder->layer = int32_t(i);
    if (layers[i].groups[GRT_AXIS_DP])
      communicator.allReduce(*layers[i].groups[GRT_AXIS_DP],
                             arena->base() + layer.gradient, held,
                             manifest.accumulatorType());
  }
}

void Rank::tie(bool reduce) {
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
    communicator.exchange({&call, 1});
  }
}

void Rank::norm() {
  step->local_norm_squared = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (layer.norm < 0)
      continue;
    bind(i, 0, 0, Phase::Update);
    call(layer.norm, layer, Phase::Norm);
  }
  gatherResults(step->local_norm_squared);
  // The same numbers on all ranks, so the same decision.
  updateLeftOut = !std::isfinite(lossSum) || !std::isfinite(gradientNorm);
  step->clip_factor = 1;
  if (manifest.clip)
    step->clip_factor =
        std::min(1.0, state.hyperparameters.clipNorm / (gradientNorm + 1e-6));
}

void Rank::gatherResults(double normSquared) {
  double mine[2] = {normSquared, 0};
  const Layer &last = roleData->layers.back();
  if (last.output == OutputKind::Loss &&
      layers.back().coordinates.tp_index == 0) {
    const double *losses =
        reinterpret_cast<const double *>(arena->base() + roleData->loss.offset);
    for (int64_t m = 0; m < manifest.microBatches; ++m)
      mine[1] += losses[m];
  }
  communicator.gather(mine, gathered);
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
    patchedInts.assign(op.ints, op.ints + op.int_count);
    for (size_t i = 5; i < patchedInts.size(); i += 3)
      patchedInts[i] = 1;
    patched.ints = patchedInts.data();
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
    grt_call call{&patched, buffers,    &running->coordinates,
                  step,     accumulate, backendState};
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
  activity.begin("collective", name);
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
      std::memcpy(out, in, op.in.bytes);
    if (group)
      communicator.allReduce(*group, out, count, dtype);
    return;
  case GRT_ALL_GATHER:
    expect(op.in.bytes * members, op.out.bytes);
    if (group)
      communicator.allGather(*group, in, out, op.in.bytes);
    else if (in != out)
      std::memcpy(out, in, op.in.bytes);
    return;
  case GRT_REDUCE_SCATTER:
    expect(op.in.bytes, op.out.bytes * members);
    if (!group)
      group = &communicator.group({self});
    communicator.reduceScatter(*group, in, out, count, dtype, add);
    return;
  default:
    failHere(std::string("'") + name + "' is an unknown collective");
  }
}

void Rank::beginLife(const grt_buffer &buffer) {
  if (preparing) {
    ++marks;
    return;
  }
  char *address = resolve(buffer, "begin", 0);
  if (buffer.bytes)
    live.begin(uint64_t(address - arena->base()), buffer.bytes);
}

void Rank::endLife(const grt_buffer &buffer) {
  if (preparing)
    return;
  char *address = resolve(buffer, "end", 0);
  if (buffer.bytes && !live.end(uint64_t(address - arena->base()), buffer.bytes,
                                state.poison ? arena->base() : nullptr))
    failHere("a buffer of " + str(buffer.bytes) + " bytes at " +
             str(buffer.offset) + " of region " + regionName(buffer.region) +
             " ends that never began");
}

} // namespace grt
