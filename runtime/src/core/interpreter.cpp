//===- interpreter.cpp - Running the tasks of a rank ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/interpreter.h"
#include "base/error.h"

#include <algorithm>

namespace grt {

Interpreter::Interpreter(const RankFacts &facts, RankMemories &memories,
                         Observer &observer, BatchInFlight &batch,
                         MemoryInUse &inUse, CallRunner &calls,
                         RankStreams &streams, Ties &ties, StepEnd &stepEnd)
    : facts(facts), memories(memories), observer(observer), batch(batch),
      inUse(inUse), calls(calls), streams(streams), ties(ties),
      stepEnd(stepEnd) {
  const Role &role = *facts.role;
  for (const Chunk &chunk : role.chunks) {
    ChunkState &at = chunks.emplace_back();
    at.chunk = &chunk;
    at.number = chunks.size() - 1;
    at.partsOfSlot = uint64_t(facts.manifest.perSlot(chunk.forwardOnly));
    if (role.slotsInArena() > 1) {
      at.firstSlot = chunk.firstSlot;
      at.slots = chunk.slots;
    }
  }
}

void Interpreter::beginStep() {
  for (ChunkState &chunk : chunks)
    chunk.backwardSeen = chunk.weightSeen = chunk.reduced = false;
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

void Interpreter::runPart(grt_part part, bool firstMicroBatchOnly) {
  running = part;
  const grt_task_list &list = facts.schedule().parts[part];
  for (uint64_t i = 0; i < list.count; ++i) {
    grt_task task = list.tasks[i];
    if (firstMicroBatchOnly &&
        (task.kind == GRT_TASK_FORWARD ||
         (task.kind == GRT_TASK_SWAP &&
          task.classes == GRT_SWAP_ACTIVATIONS)) &&
        !batch.hasFirstSample(chunkOf(task.chunk).chunk->forwardOnly,
                              task.micro_batch)) {
      // Others may come behind it by what it waits for.
      streams.beginTask(task);
      streams.endTask(task);
      continue;
    }
    // A batch of several parts sums its gradients over ranks once, at its end.
    if (batch.leavesSums && (task.kind == GRT_TASK_BACKWARD ||
                             task.kind == GRT_TASK_BACKWARD_WEIGHT))
      task.flags &= uint8_t(~GRT_SYNC_BEHIND);
    facts.activity.setTask(&list.tasks[i]);
    runTask(task, partsOf(task, firstMicroBatchOnly));
  }
}

unsigned Interpreter::partsOf(const grt_task &task,
                              bool firstMicroBatchOnly) const {
  // Both sides of a transfer name the micro-batch, so they agree.
  const grt_transfer_part *parts = facts.schedule().transfers + task.first;
  unsigned mask = 0;
  for (unsigned p = 0; task.kind == GRT_TASK_TRANSFER && p < task.count; ++p)
    if (!firstMicroBatchOnly ||
        batch.hasFirstSample(/*forwardOnly=*/true, parts[p].micro_batch))
      mask |= 1u << p;
  return mask;
}

bool Interpreter::isLastLoss(const grt_task &task) const {
  return stepEnd.goesAhead && task.generation == 0 &&
         int64_t(task.micro_batch) + 1 == facts.manifest.microBatches &&
         running != GRT_PART_EVALUATE && !*memories.device &&
         batch.input->parts == 1;
}

void Interpreter::runTasks(grt_part part, size_t from, size_t to) {
  running = part;
  const grt_task_list &list = facts.schedule().parts[part];
  for (size_t i = from; i < to; ++i) {
    facts.activity.setTask(&list.tasks[i]);
    runTask(list.tasks[i], ~0u);
  }
}

Interpreter::ChunkState &Interpreter::chunkOf(uint16_t number) {
  // A role has few.
  for (ChunkState &chunk : chunks)
    if (chunk.chunk->number == number)
      return chunk;
  observer.failHere("chunk " + std::to_string(number) + " is not the role's");
}

void Interpreter::runTask(const grt_task &task, unsigned parts) {
  streams.beginTask(task);
  execute(task, parts);
  streams.endTask(task);
}

void Interpreter::execute(const grt_task &task, unsigned parts) {
  facts.activity.setLayer(nullptr);
  TraceSpan span(facts.recorder, task);
  // Updates and sums of gradients are of the newest weights.
  batch.turnTo(task.generation);
  if (task.kind >= GRT_TASK_SYNC_GRADIENTS &&
      task.kind <= GRT_TASK_TIE_BROADCAST)
    batch.weights = 0;
  switch (task.kind) {
  case GRT_TASK_FORWARD:
  case GRT_TASK_BACKWARD:
  case GRT_TASK_BACKWARD_INPUT:
  case GRT_TASK_BACKWARD_WEIGHT:
    return runPass(chunkOf(task.chunk), task);
  case GRT_TASK_SWAP:
    return swap(task);
  case GRT_TASK_TRANSFER:
    return transfer(task, parts);
  case GRT_TASK_SYNC_GRADIENTS:
    return synchroniseGradients(chunkOf(task.chunk));
  case GRT_TASK_NORM:
    if (run(procedures.norm(), {}))
      run(procedures.decision(), {});
    return;
  case GRT_TASK_UPDATE:
    run(procedures.of(chunkOf(task.chunk).number, GRT_TASK_UPDATE), {});
    return;
  default:
    // The same kind of task, where it ends no step, takes what was given.
    run(procedures.ofTies(task.kind == GRT_TASK_TIE_REDUCE ||
                                  running == GRT_PART_STEP_END
                              ? task.kind
                              : gvx::ofTaken),
        {});
  }
}

void Interpreter::synchroniseGradients(const ChunkState &at) {
  if (!at.reduced)
    run(procedures.of(at.number, GRT_TASK_SYNC_GRADIENTS), {});
  streams.awaitSums(GRT_STREAM_COMPUTE);
  streams.sums = false;
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

TaskFrame Interpreter::frameOf(const ChunkState &at,
                               const grt_task &task) const {
  TaskFrame frame;
  frame.microBatch = task.micro_batch;
  frame.slot = at.slotOf(task.slot, batch.microBatchesBefore());
  frame.place = task.slot;
  frame.part = task.micro_batch % at.partsOfSlot;
  frame.isFirst = !at.backwardSeen;
  frame.sumsBehind = task.flags & GRT_SYNC_BEHIND;
  frame.isLastLoss = isLastLoss(task);
  return frame;
}

void Interpreter::runPass(ChunkState &at, const grt_task &task) {
  const bool isForward = task.kind == GRT_TASK_FORWARD;
  bool &seen =
      task.kind == GRT_TASK_BACKWARD_WEIGHT ? at.weightSeen : at.backwardSeen;
  const size_t mark = inUse.live.mark();
  if (!isForward)
    calls.accumulates = seen;
  run(procedures.of(at.number, task.kind), frameOf(at, task));
  if (!isForward) {
    seen = true;
    at.reduced = task.flags & GRT_SYNC_BEHIND;
  } else if (!inUse.tracks) {
    // Without a backward pass nothing ends what forward keeps for it.
    inUse.live.rewind(mark);
  }
}

bool Interpreter::isFor(const gvx::Command &command,
                        const TaskFrame &frame) const {
  switch (command.when) {
  case gvx::When::First:
    return frame.isFirst;
  case gvx::When::SumsBehind:
    return frame.sumsBehind;
  case gvx::When::OncePerGroup:
    return memories.layers[size_t(command.layer)].isFirst;
  case gvx::When::OnDevice:
    return bool(*memories.device);
  case gvx::When::OnHost:
    return !*memories.device;
  case gvx::When::LeftOut:
    return stepEnd.results.updateLeftOut;
  case gvx::When::GoesAhead:
    return stepEnd.goesAhead;
  case gvx::When::LastLoss:
    return frame.isLastLoss;
  default:
    return true;
  }
}

bool Interpreter::run(Procedure procedure, const TaskFrame &frame) {
  size_t mark = 0;
  for (const gvx::Command &command : procedure) {
    if (!isFor(command, frame))
      continue;
    switch (command.kind) {
    case gvx::CommandKind::Return:
      return false;
    case gvx::CommandKind::Mark:
      mark = inUse.live.mark();
      break;
    case gvx::CommandKind::Rewind:
      inUse.live.rewind(mark);
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
  return true;
}

void Interpreter::runEnd(const gvx::Command &command) {
  switch (command.kind) {
  case gvx::CommandKind::TellLoss:
    return stepEnd.tellLoss();
  case gvx::CommandKind::Decide:
    return stepEnd.decide(/*ofUpdate=*/command.number);
  case gvx::CommandKind::DecideLate:
    return stepEnd.decideLate();
  case gvx::CommandKind::TellAll:
    return stepEnd.tellAll();
  default:
    return stepEnd.meet();
  }
}

void Interpreter::runCommand(const gvx::Command &command,
                             const TaskFrame &frame) {
  const auto number = size_t(command.layer);
  const Extent to = procedures.extent(command.to, frame);
  const Extent from = procedures.extent(command.from, frame);
  switch (command.kind) {
  case gvx::CommandKind::Call:
    return calls.call(number, command.phase, frame.microBatch, frame.slot);
  case gvx::CommandKind::Gather:
    return startGather(command, frame.slot);
  case gvx::CommandKind::Collect:
    return runOnStates(memories.layers[number].places,
                       memories.layers[number].places.gathers,
                       GRT_STREAM_COMPUTE, "gather of updated parameters");
  case gvx::CommandKind::Sum:
    return reduceGradients(number);
  case gvx::CommandKind::AwaitSum:
    return streams.awaitSums(grt_stream(command.stream));
  case gvx::CommandKind::AwaitHome:
    return memories.swaps.reachHome();
  case gvx::CommandKind::Order:
    return memories.device->order(uint32_t(command.number), command.stream);
  case gvx::CommandKind::Begin:
    return inUse.begin(to);
  case gvx::CommandKind::End:
    return inUse.end(to);
  case gvx::CommandKind::Copy:
    return memories.device->copy(
        command.stream, memories.arena->base() + to.offset,
        memories.arena->base() + from.offset, to.bytes);
  case gvx::CommandKind::Add:
    return calls.addGradient(to, from);
  case gvx::CommandKind::Reshard:
    return calls.reshard(command.number, to, from);
  case gvx::CommandKind::UseSlot:
    return streams.handoffs.beforeFunction(frame.slot);
  case gvx::CommandKind::UseBuffer:
    return streams.handoffs.beforeBuffer(command.number, to);
  case gvx::CommandKind::Used:
    return streams.handoffs.afterFunctions();
  case gvx::CommandKind::TakeTurn:
    return inUse.takeTurn(facts.role->chunks[size_t(command.number)]);
  default:
    return gvx::isOfTie(command.kind) ? ties.run(command) : runEnd(command);
  }
}

void Interpreter::reduceGradients(size_t number) {
  observer.besideFunctions(number);
  const StepPlaces &places = memories.layers[number].places;
  if (places.sums.empty())
    return;
  runOnStates(places, places.sums, GRT_STREAM_GRADIENT, "sum of gradients");
  if (places.side->isHost)
    return;
  observer.leaveMark(GRT_STREAM_GRADIENT);
  streams.sums = true;
}

void Interpreter::runOnStates(const StepPlaces &places,
                              const std::vector<StateCollective> &collectives,
                              grt_stream stream, const char *what) {
  observer.notePlace(what);
  const Side &does = *places.side;
  Communicator &by = *does.communicator;
  does.memory->order(GRT_STREAM_COMPUTE, stream);
  by.onStream(stream);
  for (const StateCollective &each : collectives) {
    const bool gathers = each.kind == CollectiveKind::AllGather;
    memories.noteUseBy(does, gathers ? places.parameters : places.gradients,
                       gathers ? places.parameterBytes : places.gradientBytes,
                       what);
    switch (each.kind) {
    case CollectiveKind::AllGather:
      by.allGather(*each.group, each.from, each.to, each.bytes());
      break;
    case CollectiveKind::ReduceScatter:
      by.reduceScatter(*each.group, each.from, each.to, each.elements,
                       each.dtype, /*accumulate=*/false);
      break;
    default:
      by.allReduce(*each.group, each.to, each.elements, each.dtype);
    }
  }
  by.onStream(GRT_STREAM_COMPUTE);
}

// The program says which layers may be gathered while the one before them runs,
// and where to: never onto what that layer uses.
void Interpreter::startGather(const gvx::Command &command, uint32_t slot) {
  const auto number = size_t(command.layer);
  const Layer &layer = memories.layer(number);
  const bool isForward = command.phase == LayerPhase::Forward;
  const Gathered &gathered =
      isForward ? layer.forwardGathered : layer.backwardGathered;
  const Extent extent{facts.role->slots.offset + slot * facts.role->slotStride +
                          gathered.offset,
                      gathered.bytes};
  Device &device = *memories.device;
  Communicator &communicator = *memories.communicator;
  inUse.begin(extent);
  observer.besideFunctions(number);
  observer.notePlace("gather of parameters");
  device.order(GRT_STREAM_COMPUTE, GRT_STREAM_GATHER);
  if (command.number)
    streams.awaitSums(GRT_STREAM_GATHER);
  communicator.onStream(GRT_STREAM_GATHER);
  Group &group = *memories.layers[number].groups[GRT_AXIS_SDP];
  const uint64_t width = facts.manifest.elementBytes();
  const char *from =
      memories.arena->base() + layer.residentParameter + batch.weights;
  char *to = memories.arena->base() + extent.offset;
  for (const FlatGroup &flat : layer.groups) {
    uint64_t shard = uint64_t(flat.shardElements) * width;
    if (shard)
      communicator.allGather(group, from, to, shard);
    from += shard;
    to += alignUp(uint64_t(flat.elements) * width);
  }
  communicator.onStream(GRT_STREAM_COMPUTE);
  // Gradients that the functions beside it scatter may have ranks in common
  // with it: they come behind it, on all ranks.
  if (!isForward)
    device.order(GRT_STREAM_GATHER, GRT_STREAM_GRADIENT);
}

} // namespace grt
