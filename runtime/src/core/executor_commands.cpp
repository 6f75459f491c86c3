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

void Rank::run(const Procedure &procedure, const TaskFrame &frame) {
  size_t mark = 0;
  for (const Command &command : procedure) {
    if ((command.when == When::First && !frame.isFirst) ||
        (command.when == When::SumsBehind && !frame.sumsBehind))
      continue;
    switch (command.kind) {
    case CommandKind::Mark:
      mark = live.mark();
      break;
    case CommandKind::Rewind:
      live.rewind(mark);
      break;
    case CommandKind::SwapIn:
    case CommandKind::SwapOut:
      runSwap(command, frame);
      break;
    case CommandKind::SwapSlot:
      swapSlot(command, frame);
      break;
    default:
      runCommand(command, frame);
    }
  }
}

void Rank::runCommand(const Command &command, const TaskFrame &frame) {
  const auto number = size_t(command.layer);
  const Extent to = command.to.at(frame);
  switch (command.kind) {
  case CommandKind::Call:
    return runCall(command, frame);
  case CommandKind::Gather:
    return startGather(number, frame.slot, command.phase);
  case CommandKind::Collect:
    return runOnStates(layers[number].places, layers[number].places.gathers,
                       GRT_STREAM_COMPUTE, "gather of updated parameters");
  case CommandKind::Sum:
    return reduceGradients(number);
  case CommandKind::AwaitSum:
    return awaitSums(grt_stream(command.stream));
  case CommandKind::AwaitHome:
    return swaps.reachHome();
  case CommandKind::Order:
    return device->order(uint32_t(command.number), command.stream);
  case CommandKind::Begin:
    return begin(to);
  case CommandKind::End:
    return end(to);
  case CommandKind::Copy:
    return device->copy(command.stream, arena->base() + to.offset,
                        arena->base() + command.from.at(frame).offset,
                        to.bytes);
  case CommandKind::Add:
    return addGradient(to, command.from.at(frame));
  case CommandKind::Reshard:
    return reshard(command.number,
                   arena->base() + command.from.at(frame).offset,
                   arena->base() + to.offset);
  case CommandKind::UseSlot:
    return handoffs.beforeFunction(frame.slot);
  case CommandKind::UseBuffer:
    return handoffs.beforeBuffer(command.number, to);
  case CommandKind::Used:
    return handoffs.afterFunctions();
  case CommandKind::TakeTurn:
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
      end(layers[i].places.residentParameters);
  packHere = &chunk;
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    begin(layers[i].places.residentParameters);
}

void Rank::runCall(const Command &command, const TaskFrame &frame) {
  const auto number = size_t(command.layer);
  bind(number, frame.microBatch, frame.slot, command.phase);
  call(command.number, roleData->layers[number], command.phase);
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
