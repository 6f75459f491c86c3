//===- call_runner.cpp - Running functions of layers ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/call_runner.h"
#include "base/error.h"
#include "core/commands.h"
#include "core/program_text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace grt {

CallRunner::CallRunner(const RankFacts &facts, RankMemories &memories,
                       Observer &observer, const BatchInFlight &batch,
                       MemoryInUse &inUse, Inspector &inspector)
    : side(&memories.here), facts(facts), memories(memories),
      observer(observer), batch(batch), inUse(inUse), inspector(inspector),
      updateCalls(facts.state.rules, facts.state.options.decayAll) {}

void CallRunner::bind(size_t number, LayerPhase phase, uint32_t microBatch,
                      uint32_t slot) {
  const Layer &layer = memories.layer(number);
  LayerState &prepared = memories.layers[number];
  running = &prepared;
  observer.at(&layer);
  observer.notePlace("functions");
  prepared.coordinates.first_sample =
      batch.firstSample() + prepared.samples.first +
      int64_t(microBatch) * prepared.samples.stride;

  bound.bind(layer, prepared.bindings[phase], slot);
  if (phase == LayerPhase::Update || phase == LayerPhase::Norm)
    return;
  const Role &role = *facts.role;
  char *base = memories.arena->base();
  bound.move(GRT_REGION_PARAMETER, batch.weights);
  bound.move(GRT_REGION_LOSS, microBatch * facts.manifest.lossBytes());
  for (int number : layer.data) {
    const DataCopy &copy = role.copies[number];
    bound.addData(base + batch.microBatchExtent(copy, microBatch).offset,
                  uint64_t(layer.samples) *
                      facts.manifest.data[copy.datum].bytesPerSample);
  }
  const Extent gradOut = boundaryExtent(role, layer.gradOut, layer.frontBytes);
  char *inSlot = base + role.slots.offset + slot * role.slotStride;
  for (const InputTensor &input : layer.inputs)
    bound.addPiece(inSlot + input.slot, base + gradOut.offset + input.front);
}

void CallRunner::unbind() {
  side = &memories.here;
  running = nullptr;
  observer.at(nullptr);
}

char *CallRunner::resolve(const grt_buffer &buffer, const char *name,
                          size_t position) {
  char *address = bound.resolve(buffer);
  if (!address && !bound.has(buffer))
    observer.failHere(bound.describeOutside(buffer, name, position));
  return address;
}

void CallRunner::call(size_t number, LayerPhase phase, uint32_t microBatch,
                      uint32_t slot) {
  bind(number, phase, microBatch, slot);
  const Layer &layer = memories.layer(number);
  {
    TraceSpan span(facts.recorder, int32_t(number), phase);
    side = memories.sideOf(layer, phase);
    memories.device->note(GRT_NOTE_FUNCTION_BEGIN);
    const auto function = size_t(functionOf(layer, phase));
    for (const gvx::Call &call : facts.state.program.file().calls(function))
      run(call);
    memories.device->note(GRT_NOTE_FUNCTION_END);
    if (!std::exchange(side, &memories.here)->isHost)
      observer.leaveMark(GRT_STREAM_COMPUTE);
  }
  inspector.lookAtOutput(number, phase, bound);
}

void CallRunner::run(const gvx::Call &call) {
  if (call.when == gvx::CallWhen::TextsBegin && !batch.input->textsBegin)
    return;
  const ProgramFile &file = facts.state.program.file();
  switch (call.kind) {
  case gvx::CallKind::Launch:
    return launch(file.kernel(call.index));
  case gvx::CallKind::Communicate:
    return communicate(file.collective(call.index));
  case gvx::CallKind::Order:
    return order(file.event(call.index));
  case gvx::CallKind::BeginLife: {
    const grt_buffer &buffer = file.buffer(call.index);
    return inUse.begin(resolve(buffer, "begin", 0), buffer);
  }
  case gvx::CallKind::EndLife: {
    const grt_buffer &buffer = file.buffer(call.index);
    return inUse.end(resolve(buffer, "end", 0), buffer);
  }
  }
}

void CallRunner::launch(const grt_kernel_op &op) {
  expand(op, [&](const grt_kernel_op &each, const ParameterRule *rule) {
    if (!rule || !rule->hasScalars() || op.kernel != GRT_KERNEL_OPTIMIZER)
      return start(each, batch.stepBlock(*side));
    // Not on a device: Session refuses that.
    grt_step own = *batch.step;
    own.learning_rate *= rule->rate;
    own.weight_decay = rule->decay.value_or(own.weight_decay);
    start(each, &own);
  });
}

void CallRunner::start(const grt_kernel_op &op, grt_step *block) {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  if (facts.state.failed.load(std::memory_order_relaxed))
    throw Aborted();
  facts.activity.begin(kernelName(op.kernel), op.name);
  void *buffers[gvx::mostBuffers];
  char message[256] = "";
  for (uint32_t i = 0; i < op.buffer_count; ++i) {
    buffers[i] = resolve(op.buffers[i], name, i);
    memories.noteUseBy(*side, buffers[i], op.buffers[i].bytes, name);
  }
  grt_call call{&op,   buffers,     &running->coordinates,
                block, accumulates, side->state};
  if (side->backend->kernels[op.kernel](&call, message, sizeof(message))) {
    message[sizeof(message) - 1] = 0;
    observer.failCall(op, message);
  }
  inspector.lookAtKernel(op, *running, buffers);
  facts.activity.end();
}

void CallRunner::communicate(const grt_collective_op &op) {
  const char *name = *op.name ? op.name : "collective";
  char *in = resolve(op.in, name, 0), *out = resolve(op.out, name, 1);
  facts.activity.begin("collective", name);
  observer.notePlace(name);
  memories.communicator->onStream(grt_stream(op.stream));
  runCollective(op, running->groups[op.axis], in, out);
  memories.communicator->onStream(GRT_STREAM_COMPUTE);
}

void CallRunner::runCollective(const grt_collective_op &op, Group *group,
                               const char *in, char *out) {
  const char *name = *op.name ? op.name : "collective";
  uint64_t members = group ? uint64_t(group->size()) : 1;
  auto expect = [&](uint64_t inBytes, uint64_t outBytes) {
    if (inBytes != outBytes || op.in.dtype != op.out.dtype)
      observer.failHere(std::string("'") + name + "' has " + str(op.in.bytes) +
                        " bytes of " + dtypeName(op.in.dtype) + " in and " +
                        str(op.out.bytes) + " bytes of " +
                        dtypeName(op.out.dtype) + " out over " + str(members) +
                        " ranks");
  };
  auto dtype = grt_dtype(op.out.dtype);
  uint64_t count = op.out.bytes / dtypeBytes(op.out.dtype);
  bool add = op.acc == 1 || (op.acc == 2 && accumulates);
  switch (grt_collective(op.collective)) {
  case GRT_ALL_REDUCE:
    expect(op.in.bytes, op.out.bytes);
    if (in != out)
      memories.device->copy(op.stream, out, in, op.in.bytes);
    if (group)
      memories.communicator->allReduce(*group, out, count, dtype);
    break;
  case GRT_ALL_GATHER:
    expect(op.in.bytes * members, op.out.bytes);
    if (group)
      memories.communicator->allGather(*group, in, out, op.in.bytes);
    else if (in != out)
      memories.device->copy(op.stream, out, in, op.in.bytes);
    break;
  case GRT_REDUCE_SCATTER:
    expect(op.in.bytes, op.out.bytes * members);
    if (!group)
      group = &memories.communicator->group({facts.self});
    memories.communicator->reduceScatter(*group, in, out, count, dtype, add);
    break;
  case GRT_ALL_REDUCE_MAX:
    expect(op.in.bytes, op.out.bytes);
    if (in != out)
      memories.device->copy(op.stream, out, in, op.in.bytes);
    if (group)
      memories.communicator->allReduceMax(*group, out, count, dtype);
    break;
  case GRT_ALL_TO_ALL:
  case GRT_ALL_TO_ALL_COUNTS:
  case GRT_SHIFT:
    moveBlocks(op, group, in, out);
    break;
  case GRT_COLLECTIVE_COUNT:
    break;
  }
}

void CallRunner::moveBlocks(const grt_collective_op &op, Group *group,
                            const char *in, char *out) {
  if (!group)
    group = &memories.communicator->group({facts.self});
  const auto members = uint64_t(group->size());
  if (op.collective == GRT_ALL_TO_ALL)
    return memories.communicator->allToAll(*group, in, out,
                                           op.in.bytes / members);
  if (op.collective == GRT_SHIFT)
    return memories.communicator->shift(*group, in, out, op.in.bytes,
                                        op.distance);
  const auto place =
      std::find(group->ranks().begin(), group->ranks().end(), facts.self);
  const auto index = size_t(place - group->ranks().begin());
  // Counts are values: which call has wrong ones is said.
  try {
    memories.communicator->allToAll(
        *group, in, out,
        pairCounts.read(*memories.device, resolve(op.counts, op.name, 2), op,
                        members, index));
  } catch (const Error &error) {
    observer.failHere(std::string("'") + op.name + "': " + error.what());
  }
}

void CallRunner::order(const grt_event_op &op) {
  if (op.wait)
    memories.device->wait(op.stream, op.event);
  else
    memories.device->record(op.stream, op.event);
}

void CallRunner::reshard(int exchange, const Extent &to, const Extent &from) {
  char *base = memories.arena->base();
  ExchangeCall call;
  call.table = &facts.state.exchanges[size_t(exchange)][facts.self];
  call.source = base + from.offset;
  call.destination = base + to.offset;
  call.bytesPerUnit = facts.manifest.exchanges[size_t(exchange)].tableUnit();
  observer.notePlace("reshard");
  memories.communicator->exchange({&call, 1});
}

void CallRunner::addGradient(const Extent &to, const Extent &from) {
  const grt_buffer buffer{0, uint32_t(facts.manifest.dtype), 0, to.bytes};
  const grt_buffer buffers[] = {buffer, buffer, buffer};
  const int64_t elements = int64_t(to.bytes / facts.manifest.elementBytes());
  const grt_kernel_op op{
      GRT_KERNEL_ADD, 3,         1,       0,
      buffers,        &elements, nullptr, "gradient of a tensor that passes"};
  char *base = memories.arena->base();
  void *addresses[] = {base + to.offset, base + from.offset, base + to.offset};
  const grt_call call{&op,
                      addresses,
                      &running->coordinates,
                      batch.deviceStep,
                      accumulates,
                      memories.backendState};
  char message[256] = "";
  if (facts.state.backend.kernels[GRT_KERNEL_ADD](&call, message,
                                                  sizeof(message)) != 0)
    observer.failHere(std::string("add '") + op.name + "': " + message);
}

} // namespace grt
