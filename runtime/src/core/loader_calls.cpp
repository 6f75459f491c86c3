//===- loader_calls.cpp - Calls before the first step ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptors are constants, and regions have the same size in every step: what
// is right once stays so.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/call_checks.h"
#include "core/loader.h"
#include "core/program_text.h"

#include <algorithm>
#include <utility>

namespace grt {

void RankLoader::prepareKernels() {
  // Ranges that are live at once: what forward functions keep in each slot, the
  // temporaries of one function, and the buffers between layers.
  size_t kept = 0, temporary = 0;
  for (size_t i = 0; i < memories.layers.size(); ++i) {
    const Layer &layer = role.layers[i];
    for (auto [function, phase] :
         {std::pair(layer.forward, LayerPhase::Forward),
          {layer.recompute, LayerPhase::Recompute},
          {layer.backward, LayerPhase::Backward},
          {layer.weight, LayerPhase::Weight},
          {layer.norm, LayerPhase::Norm},
          {layer.update, LayerPhase::Update}}) {
      if (function < 0 || (layer.forwardOnly && phase == LayerPhase::Backward))
        continue;
      calls.bind(i, phase, /*microBatch=*/0, /*slot=*/0);
      calls.side = memories.sideOf(layer, phase);
      const size_t lives = walk(function);
      temporary = std::max(temporary, lives);
      // Input parts keep more for weight parts.
      if (function == layer.forward ||
          (function == layer.backward && layer.weight >= 0))
        kept += lives + 1;
    }
  }
  calls.unbind();
  // Two layers' gathered parameters, inputs and boundary buffers besides, and
  // of packs what is resident of them and messages that wait.
  inUse.live.reserve(kept * size_t(role.slotCount) + 2 * temporary + 10 +
                     (manifest.hasPacks ? 3 * memories.layers.size() +
                                              size_t(role.waitingPlaces)
                                        : 0));
  if (role.slotsAtHome)
    memories.swaps.lives.resize(size_t(role.slotCount));
  for (std::vector<Extent> &lives : memories.swaps.lives)
    lives.reserve(kept);
}

size_t RankLoader::walk(int function) {
  const ProgramFile &file = state.program.file();
  size_t lives = 0;
  for (const gvx::Call &call : file.calls(size_t(function)))
    switch (call.kind) {
    case gvx::CallKind::Launch:
      prepareLaunch(file.kernel(call.index));
      break;
    case gvx::CallKind::Communicate:
      prepareCollective(file.collective(call.index));
      break;
    case gvx::CallKind::Order:
      break;
    case gvx::CallKind::BeginLife:
      ++lives;
      calls.resolve(file.buffer(call.index), "begin", 0);
      break;
    case gvx::CallKind::EndLife:
      calls.resolve(file.buffer(call.index), "end", 0);
      break;
    }
  return lives;
}

void RankLoader::prepareLaunch(const grt_kernel_op &op) {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  if (const std::string wrong = wrongCall(op, observer.layer()); !wrong.empty())
    observer.failHere(std::string(kernelName(op.kernel)) + " '" + name +
                      "': " + wrong);
  if (!calls.side->backend->kernels[op.kernel])
    observer.failHere(std::string("backend '") + calls.side->backend->name +
                      "' has no kernel '" + kernelName(op.kernel) + "'");
  calls.expand(op, [&](const grt_kernel_op &each, const ParameterRule *) {
    prepareCall(each);
  });
}

void RankLoader::prepareCall(const grt_kernel_op &op) {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  if (state.failed.load(std::memory_order_relaxed))
    throw Aborted();
  activity.begin(kernelName(op.kernel), op.name);
  for (uint32_t i = 0; i < op.buffer_count; ++i)
    calls.resolve(op.buffers[i], name, i);
  const Side &side = *calls.side;
  char message[256] = "";
  int32_t status = 0;
  if (side.backend->prepare)
    status = side.backend->prepare(side.state, &op, message, sizeof(message));
  if (status == 0 && &side == &memories.here && warms())
    status = runDry(op, message, sizeof(message));
  if (status != 0)
    observer.failCall(op, message);
  activity.end();
}

void RankLoader::prepareCollective(const grt_collective_op &op) {
  const char *name = *op.name ? op.name : "collective";
  calls.resolve(op.in, name, 0);
  calls.resolve(op.out, name, 1);
  const Group *group = calls.running->groups[op.axis];
  const uint64_t members = group ? uint64_t(group->size()) : 1;
  auto note = [&](CollectiveKind kind, uint64_t bytes) {
    noteUse(group, {op.stream, kind, op.in.dtype, op.acc != 0, op.distance},
            bytes);
  };
  switch (grt_collective(op.collective)) {
  case GRT_ALL_REDUCE:
    return note(CollectiveKind::AllReduce, op.in.bytes);
  case GRT_ALL_GATHER:
    return note(CollectiveKind::AllGather, op.in.bytes);
  case GRT_REDUCE_SCATTER:
    return note(CollectiveKind::ReduceScatter, op.out.bytes);
  case GRT_ALL_REDUCE_MAX:
    return note(CollectiveKind::AllReduceMax, op.in.bytes);
  case GRT_ALL_TO_ALL:
    return note(CollectiveKind::AllToAll, op.in.bytes / members);
  case GRT_ALL_TO_ALL_COUNTS:
    calls.resolve(op.counts, name, 2);
    calls.pairCounts.reserve(members);
    // Connects all pairs.
    return note(CollectiveKind::Transfer, op.in.bytes / members);
  case GRT_SHIFT:
    return note(CollectiveKind::Shift, op.in.bytes);
  case GRT_COLLECTIVE_COUNT:
    break;
  }
  fail("no collective " + str(op.collective)); // The reader refuses others.
}

} // namespace grt
