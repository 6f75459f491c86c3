//===- loader_warm.cpp - What is loaded before the first step -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device loads a kernel, its own or a library's, when it is launched for the
// first time, which may wait until the device stands still; and a library of
// collectives connects ranks when a communicator is first used. Beside a
// collective that runs until another rank comes, which may be loading as well,
// that is a dead-lock. So every kernel that the program calls is run once
// before its first step, with its shapes, on memory that holds nothing yet,
// then every kind of collective once on every communicator, one after the
// other, and then ranks wait for each other. Only what a program calls is
// loaded.
//
// Results mean nothing: memory is cleared behind it. Buffers of a call share
// addresses, but for numbers of 32 bits and bytes, which kernels use as
// indices: they are zeros.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/loader.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <set>

namespace grt {

bool RankLoader::warms() const {
  // A model of a device that checks lives would complain.
  return *memories.device && !memories.device->isChecked();
}

Extent RankLoader::warmMemory(bool inOnePiece) const {
  // Kernels keep indices in the workspace, and read the step block.
  std::vector<Extent> used = {role.workspace, role.step, role.loss};
  if (inOnePiece && role.window.bytes)
    for (uint64_t slot = 0; slot < uint64_t(role.slotsInArena()); ++slot) {
      const uint64_t at = role.window.offset + slot * role.slotStride;
      used.push_back({at, 0});
      used.push_back({at + role.window.bytes, 0});
    }
  std::sort(used.begin(), used.end(), [](const Extent &a, const Extent &b) {
    return a.offset < b.offset;
  });
  Extent widest;
  uint64_t from = 0;
  auto look = [&](uint64_t to) {
    if (to > from && to - from > widest.bytes)
      widest = {from, to - from};
  };
  for (const Extent &each : used) {
    look(each.offset);
    from = std::max(from, alignUp(each.offset + each.bytes));
  }
  look(role.addressBytes());
  return widest;
}

int32_t RankLoader::runDry(const grt_kernel_op &op, char *message,
                           size_t bytes) {
  constexpr uint64_t page = 256; // What offsets are aligned to matters.
  const Extent memory = warmMemory(/*inOnePiece=*/false);
  uint64_t indices = 0, values = 0;
  auto isIndex = [](const grt_buffer &buffer) {
    return buffer.dtype == GRT_I32 || buffer.dtype == GRT_U8;
  };
  for (uint32_t i = 0; i < op.buffer_count; ++i) {
    const uint64_t room = alignUp(op.buffers[i].bytes) + 2 * page;
    if (isIndex(op.buffers[i]))
      indices += room;
    else
      values = std::max(values, room);
  }
  // They stand beside each other when it is run.
  if (indices + values > memory.bytes)
    return 0;
  char *base =
      memories.arena->base() + (memory.offset + page - 1) / page * page;
  memories.device->fill(GRT_STREAM_COMPUTE, base, 0, indices);
  std::vector<void *> buffers;
  char *place = base;
  for (uint32_t i = 0; i < op.buffer_count; ++i) {
    const uint64_t shift = op.buffers[i].offset % page;
    if (isIndex(op.buffers[i])) {
      buffers.push_back(place + shift);
      place += (op.buffers[i].bytes + 2 * page - 1) / page * page;
    } else {
      buffers.push_back(base + (indices + page - 1) / page * page + shift);
    }
  }
  auto *block =
      reinterpret_cast<grt_step *>(memories.arena->base() + role.step.offset);
  const grt_backend &backend =
      facts.recorder ? facts.recorder->backend() : *memories.here.backend;
  // As on the first micro-batch, and on later ones.
  for (int adds : {0, 1}) {
    const grt_call call{&op,   buffers.data(), &calls.running->coordinates,
                        block, adds,           memories.backendState};
    if (int32_t status = backend.kernels[op.kernel](&call, message, bytes))
      return status;
  }
  return 0;
}

void RankLoader::noteUse(const Group *group, const Use &use, uint64_t bytes) {
  if (!group || !bytes || !warms())
    return;
  // A library may do small and large ones in different ways.
  auto [at, fresh] = uses[group].try_emplace(use, std::pair(bytes, bytes));
  if (fresh)
    return;
  at->second.first = std::min(at->second.first, bytes);
  at->second.second = std::max(at->second.second, bytes);
}

/// What is called beside functions.
void RankLoader::noteUsesOfLayer(size_t number) {
  const Layer &layer = role.layers[number];
  const LayerState &prepared = memories.layers[number];
  const uint64_t width = manifest.elementBytes();
  const Group *sdp = prepared.groups[GRT_AXIS_SDP];
  if (layer.forwardGathered.bytes || layer.backwardGathered.bytes)
    for (const FlatGroup &flat : layer.groups)
      noteUse(sdp,
              {GRT_STREAM_GATHER, CollectiveKind::AllGather,
               uint32_t(manifest.dtype), false},
              uint64_t(flat.shardElements) * width);
  const StepPlaces &places = prepared.places;
  if (places.side->isHost)
    return;
  for (const StateCollective &each : places.sums)
    noteUse(each.group, {GRT_STREAM_GRADIENT, each.kind, each.dtype, false},
            each.bytes());
  for (const StateCollective &each : places.gathers)
    noteUse(each.group, {GRT_STREAM_COMPUTE, each.kind, each.dtype, false},
            each.bytes());
}

namespace {

/// Blocks of memory of one member's use of a collective.
uint64_t blocksOf(CollectiveKind kind, uint64_t members, bool adds) {
  switch (kind) {
  case CollectiveKind::AllReduce:
  case CollectiveKind::AllReduceMax:
    return 1;
  case CollectiveKind::AllToAll:
  case CollectiveKind::Transfer:
    return 2 * members;
  case CollectiveKind::Shift:
    return 2;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Gather:
    break;
  }
  return members + adds;
}

} // namespace

void RankLoader::useOnce(Group &group, const Use &use, uint64_t bytes) {
  auto &[stream, kind, dtype, adds, distance] = use;
  Communicator &communicator = *memories.communicator;
  communicator.onStream(grt_stream(stream));
  const uint64_t width = dtypeBytes(dtype), members = uint64_t(group.size());
  const Extent memory = warmMemory(/*inOnePiece=*/true);
  char *base = memories.arena->base() + alignUp(memory.offset);
  const uint64_t room =
      memory.bytes > GRT_ALIGNMENT ? memory.bytes - GRT_ALIGNMENT : 0;
  const uint64_t whole = blocksOf(kind, members, adds);
  bytes = std::min(bytes, room / whole / GRT_ALIGNMENT * GRT_ALIGNMENT);
  if (bytes < width)
    return;
  const auto self =
      std::find(group.ranks().begin(), group.ranks().end(), this->self);
  const uint64_t own = uint64_t(self - group.ranks().begin()) * bytes;
  const auto type = grt_dtype(dtype);
  switch (kind) {
  case CollectiveKind::AllReduce:
    communicator.allReduce(group, base, bytes / width, type);
    break;
  case CollectiveKind::AllReduceMax:
    communicator.allReduceMax(group, base, bytes / width, type);
    break;
  case CollectiveKind::AllGather:
    communicator.allGather(group, base + own, base, bytes);
    break;
  case CollectiveKind::ReduceScatter:
    communicator.reduceScatter(group, base,
                               adds ? base + members * bytes : base + own,
                               bytes / width, type, adds);
    break;
  case CollectiveKind::AllToAll:
    communicator.allToAll(group, base, base + members * bytes, bytes);
    break;
  case CollectiveKind::Transfer: {
    const std::vector<uint64_t> one(members, 1);
    communicator.allToAll(group, base, base + members * bytes,
                          BlockCounts{one, one, bytes, members, members});
    break;
  }
  case CollectiveKind::Shift:
    communicator.shift(group, base, base + bytes, bytes, distance);
    break;
  case CollectiveKind::Gather:
    break; // The host's.
  }
  communicator.onStream(GRT_STREAM_COMPUTE);
  memories.device->waitForAll();
}

void RankLoader::warmCommunicators() {
  if (!warms() || host.size() == 1)
    return;
  for (size_t i = 0; i < memories.layers.size(); ++i)
    noteUsesOfLayer(i);
  // All ranks in one order, as nobody goes on before the others of a group
  // have come.
  for (const auto &round : groupRounds(manifest))
    for (const StreamGroup &each : round) {
      const std::vector<int> &ranks = each.ranks;
      if (std::find(ranks.begin(), ranks.end(), self) == ranks.end())
        continue;
      Group &group = memories.communicator->group(ranks);
      for (const auto &[use, bytes] : uses[&group]) {
        useOnce(group, use, bytes.first);
        if (bytes.second != bytes.first)
          useOnce(group, use, bytes.second);
      }
    }
  if (graphs.everyone)
    useOnce(*graphs.everyone,
            {GRT_STREAM_COMPUTE, CollectiveKind::AllGather, GRT_U8, false},
            sizeof(RankResults));
  warmExchanges();
  warmTies();
  uses.clear();
}

void RankLoader::warmExchanges() {
  std::set<int> between; // stages
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks)
      between.insert({chunk.sendActivation, chunk.recvActivation,
                      chunk.sendGradient, chunk.recvGradient, chunk.recvStash});
  for (size_t i = 0; i < state.exchanges.size(); ++i) {
    // Units are where they will be, in buffers of their own.
    const ExchangeTable &table = state.exchanges[i][self];
    int64_t units = 0;
    for (const auto *side : {&table.sends, &table.receives})
      for (const ExchangePeer &peer : *side)
        for (const ExchangeRow &row : peer.rows)
          units = std::max({units, row.localUnit + row.units,
                            peer.peer == self ? row.peerUnit + row.units : 0});
    const Extent memory = warmMemory(/*inOnePiece=*/true);
    ExchangeCall call;
    call.table = &table;
    call.bytesPerUnit = manifest.exchanges[i].tableUnit();
    const uint64_t each = alignUp(uint64_t(units) * call.bytesPerUnit);
    if (table.empty() || 2 * each + GRT_ALIGNMENT > memory.bytes)
      continue;
    char *base = memories.arena->base() + alignUp(memory.offset);
    call.source = base;
    call.destination = base + each;
    memories.communicator->onStream(between.count(int(i)) ? GRT_STREAM_TRANSFER
                                                          : GRT_STREAM_COMPUTE);
    memories.communicator->exchange({&call, 1});
    memories.communicator->onStream(GRT_STREAM_COMPUTE);
    memories.device->waitForAll();
  }
}

void RankLoader::warmTies() {
  for (bool reduce : {true, false})
    for (size_t i = 0; i < manifest.ties.size(); ++i) {
      const Tie &tie = manifest.ties[i];
      if (!ties.isHere(tie) ||
          ties.sideOf(tie).communicator != memories.communicator ||
          (reduce && !hasGradients(manifest, tie)))
        continue;
      const ExchangeCall call = ties.callOf(i, reduce);
      if (call.table->empty())
        continue;
      memories.communicator->exchange({&call, 1});
      memories.device->waitForAll();
    }
}

void RankLoader::warmDecision() {
  if (!warms() || !graphs.isOne)
    return;
  auto *block =
      reinterpret_cast<grt_step *>(memories.arena->base() + role.step.offset);
  memories.device->check([&](char *message, size_t bytes) {
    return (*memories.device)
        ->add_results(memories.backendState,
                      reinterpret_cast<const double *>(memories.arena->base() +
                                                       role.loss.offset),
                      uint64_t(manifest.microBatches), block, message, bytes);
  });
  memories.device->check([&](char *message, size_t bytes) {
    return (*memories.device)
        ->decide_update(memories.backendState, &block->local_norm_squared, 1,
                        manifest.clip, block, message, bytes);
  });
}

/// Sums beside functions: of values that arrive, and of tensors that pass.
void RankLoader::warmSums() {
  if (!warms())
    return;
  LayerState alone;
  calls.running = &alone;
  for (grt_dtype dtype :
       {grt_dtype(manifest.dtype), grt_dtype(manifest.accumulatorType())}) {
    // With and without a rest behind whole packs.
    for (int64_t elements : {64, 63}) {
      const grt_buffer buffer{0, uint32_t(dtype), 0,
                              uint64_t(elements) * dtypeBytes(dtype)};
      const grt_buffer buffers[] = {buffer, buffer, buffer};
      const grt_kernel_op op{GRT_KERNEL_ADD, 3,         1,       0,
                             buffers,        &elements, nullptr, "sum"};
      memories.device->check([&](char *message, size_t bytes) {
        return runDry(op, message, bytes);
      });
    }
  }
  calls.running = nullptr;
}

void RankLoader::warmUp() {
  if (!warms())
    return;
  warmSums();
  warmDecision();
  memories.device->waitForAll();
  warmCommunicators();
  clearMemory();
  memories.device->waitForAll();
  // Nobody begins a step while another rank loads.
  stepEnd.gathered.gather(host);
}

} // namespace grt
