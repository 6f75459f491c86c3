//===- executor_commands.cpp - Running the commands of tasks --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

#include <chrono>
#include <utility>

namespace grt {

TaskFrame Rank::frameOf(const ChunkState &at, const grt_task &task) const {
  TaskFrame frame;
  frame.microBatch = task.micro_batch;
  frame.slot =
      at.slotOf(task.slot, progress.since * uint64_t(manifest.microBatches));
  frame.place = task.slot;
  frame.part = task.micro_batch % at.partsOfSlot;
  frame.isFirst = !at.backwardSeen;
  frame.sumsBehind = task.flags & GRT_SYNC_BEHIND;
  return frame;
}

void Rank::runPass(ChunkState &at, const grt_task &task) {
  const bool isForward = task.kind == GRT_TASK_FORWARD;
  bool &seen =
      task.kind == GRT_TASK_BACKWARD_WEIGHT ? at.weightSeen : at.backwardSeen;
  const size_t mark = live.mark();
  if (!isForward)
    progress.accumulates = seen;
  run(procedures.of(at.number, task.kind), frameOf(at, task));
  if (!isForward) {
    seen = true;
    at.reduced = task.flags & GRT_SYNC_BEHIND;
  } else if (!tracks()) {
    // Without a backward pass nothing ends what forward keeps for it.
    live.rewind(mark);
  }
}

bool Rank::isFor(const gvx::Command &command, const TaskFrame &frame) const {
  switch (command.when) {
  case gvx::When::First:
    return frame.isFirst;
  case gvx::When::SumsBehind:
    return frame.sumsBehind;
  case gvx::When::OncePerGroup:
    return layers[size_t(command.layer)].isFirst;
  default:
    return true;
  }
}

void Rank::run(Procedure procedure, const TaskFrame &frame) {
  size_t mark = 0;
  for (const gvx::Command &command : procedure) {
    if (!isFor(command, frame))
      continue;
    switch (command.kind) {
    case gvx::CommandKind::Mark:
      mark = live.mark();
      break;
    case gvx::CommandKind::Rewind:
      live.rewind(mark);
      break;
    case gvx::CommandKind::SwapIn:
    case gvx::CommandKind::SwapOut:
      runSwap(command, frame);
      break;
    case gvx::CommandKind::SwapSlot:
      swapSlot(command, frame);
      break;
    default:
      runCommand(command, frame);
    }
  }
}

void Rank::runCommand(const gvx::Command &command, const TaskFrame &frame) {
  const auto number = size_t(command.layer);
  const Extent to = procedures.extent(command.to, frame);
  const Extent from = procedures.extent(command.from, frame);
  switch (command.kind) {
  case gvx::CommandKind::Call:
    return runCall(command, frame);
  case gvx::CommandKind::Gather:
    return startGather(command, frame.slot);
  case gvx::CommandKind::Collect:
    return runOnStates(layers[number].places, layers[number].places.gathers,
                       GRT_STREAM_COMPUTE, "gather of updated parameters");
  case gvx::CommandKind::Sum:
    return reduceGradients(number);
  case gvx::CommandKind::AwaitSum:
    return awaitSums(grt_stream(command.stream));
  case gvx::CommandKind::AwaitHome:
    return swaps.reachHome();
  case gvx::CommandKind::Order:
    return device->order(uint32_t(command.number), command.stream);
  case gvx::CommandKind::Begin:
    return begin(to);
  case gvx::CommandKind::End:
    return end(to);
  case gvx::CommandKind::Copy:
    return device->copy(command.stream, arena->base() + to.offset,
                        arena->base() + from.offset, to.bytes);
  case gvx::CommandKind::Add:
    return addGradient(to, from);
  case gvx::CommandKind::Reshard:
    return reshard(command.number, arena->base() + from.offset,
                   arena->base() + to.offset);
  case gvx::CommandKind::UseSlot:
    return handoffs.beforeFunction(frame.slot);
  case gvx::CommandKind::UseBuffer:
    return handoffs.beforeBuffer(command.number, to);
  case gvx::CommandKind::Used:
    return handoffs.afterFunctions();
  case gvx::CommandKind::TakeTurn:
    return takeTurn(roleData->chunks[size_t(command.number)]);
  default:
    return;
  }
}

void Rank::takeTurn(const Chunk &chunk) {
  if (!tracks())
    return;
  if (packHere)
    for (size_t i = packHere->firstLayer; i < packHere->endLayer(); ++i)
      end(layers[i].places.resident.parameters);
  packHere = &chunk;
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    begin(layers[i].places.resident.parameters);
}

void Rank::runCall(const gvx::Command &command, const TaskFrame &frame) {
  const auto number = size_t(command.layer);
  const Layer &layer = roleData->layers[number];
  bind(number, frame.microBatch, frame.slot, command.phase);
  call(functionOf(layer, command.phase), layer, command.phase);
  if (inspection.ofOutputs && command.phase == Phase::Forward)
    inspectLayer(number);
}

void Rank::addGradient(const Extent &to, const Extent &from) {
  const grt_buffer buffer{0, uint32_t(manifest.dtype), 0, to.bytes};
  const grt_buffer buffers[] = {buffer, buffer, buffer};
  const int64_t elements = int64_t(to.bytes / manifest.elementBytes());
  const grt_kernel_op op{
      GRT_KERNEL_ADD, 3,         1,       0,
      buffers,        &elements, nullptr, "gradient of a tensor that passes"};
  char *base = arena->base();
  void *addresses[] = {base + to.offset, base + from.offset, base + to.offset};
  const grt_call call{&op,
                      addresses,
                      &running->coordinates,
                      deviceStep,
                      progress.accumulates,
                      backendState};
  char message[256] = "";
  if (state.backend.kernels[GRT_KERNEL_ADD](&call, message, sizeof(message)) !=
      0)
    failHere(std::string("add '") + op.name + "': " + message);
}

} // namespace grt
