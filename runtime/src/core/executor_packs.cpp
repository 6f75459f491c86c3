//===- executor_packs.cpp - Packs that take turns in an arena -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where chunks are packs, messages wait in places of their own until they are
// used, and what a pack recomputes from lies at home: who has run its layers
// forward has sent it there. Where micro-batches of forward packs have another
// size a slot at home is as large as the larger one, and what is sent or
// brought of the smaller one is a part of it.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

namespace grt {

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

void Rank::takeWaiting(const Chunk &chunk, uint16_t place, const Extent &to) {
  Extent from = roleData->waitingExtent(chunk, place, to.bytes);
  begin(to);
  device->copy(GRT_STREAM_COMPUTE, arena->base() + to.offset,
               arena->base() + from.offset, to.bytes);
  end(from);
}

Extent Rank::residentExtent(size_t number, Resident states) const {
  const Layer &layer = roleData->layers[number];
  const uint64_t held =
      uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
  switch (states) {
  case Resident::Optimizer:
    return {layer.residentOptimizer, manifest.optimizerBytes(layer)};
  case Resident::Gradients:
    return {layer.residentGradient,
            held * uint64_t(manifest.accumulatorBytes())};
  default:
    return {layer.residentParameter, held * uint64_t(manifest.elementBytes())};
  }
}

void Rank::takeTurn(const Chunk &chunk) {
  if (!tracks())
    return;
  if (packHere)
    forResident(*packHere, Resident::Parameters,
                [&](const Extent &extent) { end(extent); });
  packHere = &chunk;
  forResident(chunk, Resident::Parameters,
              [&](const Extent &extent) { begin(extent); });
}

bool Rank::isStash(const Chunk &chunk, size_t layer) const {
  for (const Role &role : manifest.roles)
    for (const Chunk &receiver : role.chunks)
      if (Manifest::stashLayer(*roleData, chunk, receiver) == int(layer))
        return true;
  return false;
}

void Rank::bringStash(const grt_task &task) {
  const Chunk &chunk = *chunkOf(task.chunk).chunk;
  Extent input = inputExtent(chunk.firstLayer, 0);
  const auto begun = std::chrono::steady_clock::now();
  notePlace("swap");
  activity.begin("swap", nullptr);
  begin(input);
  const uint64_t each =
      uint64_t(roleData->layers[chunk.firstLayer].samples) *
      manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit;
  const uint64_t part = task.micro_batch % uint64_t(manifest.perSlot(false));
  device->copy(GRT_STREAM_COMPUTE, arena->base() + input.offset,
               stashAtHome(chunk, task.slot) + part * each, input.bytes);
  limitCopy(begun, input.bytes);
  swapped.activations.in += input.bytes;
  activity.end();
}

Rank::PackMessage Rank::packMessage(const grt_transfer_part &part) {
  const Role &role = *roleData;
  const Chunk &chunk = *chunkOf(part.chunk).chunk;
  const size_t front = chunk.firstLayer, back = chunk.endLayer() - 1;
  const bool sends = part.direction == GRT_SEND;
  auto inArena = [&](int exchange, const Extent &extent) -> PackMessage {
    return {&part, exchange, arena->base() + extent.offset, extent};
  };
  switch (part.value) {
  case GRT_STASH: {
    if (!sends) {
      // The sender's, whose layers cut a micro-batch as these do.
      const int64_t samples = manifest.samplesPerMicroBatch(true) /
                              role.layers[front].sampleBlocks();
      const uint64_t at = part.micro_batch % uint64_t(manifest.perSlot(true));
      return {&part,
              chunk.recvStash,
              stashAtHome(chunk, part.slot) +
                  at * uint64_t(samples) *
                      manifest.exchanges[size_t(chunk.recvStash)].bytesPerUnit,
              {}};
    }
    const Chunk &receiver = *manifest.chunk(part.peer_chunk);
    if (receiver.number + 1 == manifest.chunkCount)
      return inArena(receiver.recvStash,
                     boundaryExtent(role.layers[back].outputBuffer,
                                    layers[back].outputBytes));
    int layer = Manifest::stashLayer(role, chunk, receiver);
    return inArena(receiver.recvStash, inputExtent(size_t(layer), 0));
  }
  case GRT_GRADIENT:
    return sends ? inArena(chunk.sendGradient,
                           boundaryExtent(role.layers[front].gradOut,
                                          role.layers[front].frontBytes))
                 : inArena(chunk.recvGradient,
                           role.waitingExtent(chunk, part.slot,
                                              layers[back].outputBytes));
  default:
    return sends ? inArena(chunk.sendActivation,
                           boundaryExtent(role.layers[back].outputBuffer,
                                          layers[back].outputBytes))
                 : inArena(chunk.recvActivation,
                           role.waitingExtent(chunk, part.slot,
                                              role.layers[front].inputBytes));
  }
}

void Rank::transferPacks(const grt_task &task, unsigned parts) {
  PackMessage messages[GRT_TRANSFER_PARTS];
  ExchangeCall calls[GRT_TRANSFER_PARTS];
  size_t count = 0, callCount = 0;
  for (unsigned p = 0; p < task.count; ++p)
    if (parts & 1u << p)
      messages[count++] = packMessage(partsOf(task)[p]);
  for (size_t i = 0; i < count; ++i) {
    const PackMessage &message = messages[i];
    const bool sends = message.part->direction == GRT_SEND;
    if (!sends)
      begin(message.extent);
    // Both ends of a message to itself are one call, the sender's.
    char *other = arena->base();
    if (roleData->chunk(message.part->peer_chunk)) {
      if (!sends)
        continue;
      for (size_t j = 0; j < count; ++j)
        if (j != i && messages[j].part->value == message.part->value)
          other = messages[j].memory;
    }
    ExchangeCall &call = calls[callCount++];
    call.table = &state.exchanges[size_t(message.exchange)][self];
    call.source = sends ? message.memory : other;
    call.destination = sends ? other : message.memory;
    call.bytesPerUnit =
        manifest.exchanges[size_t(message.exchange)].tableUnit();
  }
  notePlace("transfer");
  // What goes home leaves the device before the message to its receiver.
  for (size_t i = 0; i < count; ++i)
    if (messages[i].part->direction == GRT_SEND &&
        messages[i].part->value == GRT_STASH)
      limitCopy(std::chrono::steady_clock::now(), messages[i].extent.bytes);
  // A device has one of everything that is sent: the pass that made it comes
  // before, and what uses its place behind.
  device->order(GRT_STREAM_COMPUTE, GRT_STREAM_TRANSFER);
  communicator->onStream(GRT_STREAM_TRANSFER);
  communicator->exchange({calls, callCount});
  communicator->onStream(GRT_STREAM_COMPUTE);
  device->order(GRT_STREAM_TRANSFER, GRT_STREAM_COMPUTE);
  leaveMark(GRT_STREAM_TRANSFER);
  for (size_t i = 0; i < count; ++i) {
    if (messages[i].part->direction != GRT_SEND)
      continue;
    if (messages[i].part->value == GRT_STASH)
      swapped.activations.out += messages[i].extent.bytes;
    end(messages[i].extent, /*sent=*/true);
  }
}

} // namespace grt
