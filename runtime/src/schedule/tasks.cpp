//===- tasks.cpp - Task orders of pipeline schedules ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/tasks.h"

#include <algorithm>
#include <iterator>

namespace galvatron::tasks {

std::string_view schedulePartName(SchedulePart part) {
  switch (part) {
  case SchedulePart::Prologue:
    return "prologue";
  case SchedulePart::Steady:
    return "steady";
  case SchedulePart::StepEnd:
    return "step-end";
  case SchedulePart::Drain:
    return "drain";
  case SchedulePart::Evaluate:
    return "evaluate";
  }
  return "?";
}

std::string_view transferValueName(TransferValue value) {
  switch (value) {
  case TransferValue::Activation:
    return "activation";
  case TransferValue::Gradient:
    return "gradient";
  case TransferValue::Stash:
    return "stash";
  }
  return "?";
}

bool standsBefore(const TransferPart &first, const TransferPart &second) {
  auto place = [](const TransferPart &part) {
    return std::find(std::begin(kTransferMessages), std::end(kTransferMessages),
                     std::pair(part.direction, part.value));
  };
  return place(first) < place(second);
}

Task transferOf(std::vector<TransferPart> parts) {
  Task task;
  task.kind = TaskKind::Transfer;
  task.parts = std::move(parts);
  std::stable_sort(task.parts.begin(), task.parts.end(), standsBefore);
  return task;
}

const TransferPart *Task::part(TransferDirection direction,
                               TransferValue value) const {
  for (const TransferPart &part : parts)
    if (part.direction == direction && part.value == value)
      return &part;
  return nullptr;
}

bool endsStep(TaskKind kind) {
  return kind >= TaskKind::SyncGradients && kind <= TaskKind::TieBroadcast;
}

bool Task::computes() const {
  return kind == TaskKind::Forward || kind == TaskKind::Backward ||
         kind == TaskKind::BackwardInput || kind == TaskKind::BackwardWeight;
}

bool Task::isOfChunk() const {
  return computes() || kind == TaskKind::SyncGradients ||
         kind == TaskKind::Update || kind == TaskKind::Swap;
}

bool Task::endsGradients() const {
  return kind == TaskKind::Backward || kind == TaskKind::BackwardWeight;
}

std::string Task::str(bool withChunks) const {
  auto ofChunk = [&](uint16_t number) {
    return withChunks ? " chunk " + std::to_string(number) : std::string();
  };
  auto ofBatch = [](uint32_t microBatch, uint8_t generation) {
    return " mb " + std::to_string(microBatch) +
           (generation > 0 ? " of next batch" : "");
  };
  auto onSlot = [&](const std::string &name) {
    return name + ofChunk(chunk) + ofBatch(microBatch, generation) + " slot " +
           std::to_string(slot);
  };
  const char *behind = flags & SyncBehind ? " sync-behind" : "";
  switch (kind) {
  case TaskKind::Forward:
    return onSlot("forward");
  case TaskKind::Backward:
    return onSlot("backward") + behind;
  case TaskKind::BackwardInput:
    return onSlot("backward-input");
  case TaskKind::BackwardWeight:
    return onSlot("backward-weight") + behind;
  case TaskKind::Transfer: {
    std::string text;
    for (const TransferPart &part : parts)
      text.append(text.empty() ? " " : ", ")
          .append(part.sends() ? "send-" : "recv-")
          .append(transferValueName(part.value))
          .append(ofChunk(part.chunk))
          .append(ofBatch(part.microBatch, part.generation));
    return "transfer" + text;
  }
  case TaskKind::SyncGradients:
    return "sync-gradients" + ofChunk(chunk);
  case TaskKind::TieReduce:
    return "tie-reduce";
  case TaskKind::Norm:
    return "norm";
  case TaskKind::Update:
    return "update" + ofChunk(chunk);
  case TaskKind::TieBroadcast:
    return "tie-broadcast";
  case TaskKind::Swap:
    return std::string("swap ") + (out ? "out" : "in") + ofChunk(chunk) +
           (classes & SwapParameters ? " parameters" : "") +
           (classes & SwapGradients ? " gradients" : "") +
           (classes & SwapOptimizer ? " optimizer" : "") +
           (classes & SwapActivations
                ? " activations" + ofBatch(microBatch, generation) + " slot " +
                      std::to_string(slot)
                : "");
  }
  return "?";
}

std::vector<int64_t> TaskProgram::chunksOf(int64_t role) const {
  std::vector<int64_t> numbers;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    if (chunks[chunk].role == role)
      numbers.push_back(int64_t(chunk));
  return numbers;
}

bool TaskProgram::takesTied(int64_t role) const {
  return goesOn() &&
         std::any_of(ties.begin(), ties.end(), [role](const TieRoles &tie) {
           return tie.borrower == role && tie.owner != role;
         });
}

int64_t TaskProgram::residencyOf(int64_t chunk) const {
  int64_t number = 0;
  for (int64_t before = 0; before < chunk; ++before)
    number += chunks[before].role == chunks[chunk].role;
  return number % residentChunks;
}

bool TaskProgram::updatesBehind(int64_t chunk) const {
  auto has = [&](int64_t role, int64_t tied) {
    return tied < 0 ? chunks[chunk].role == role : tied == chunk;
  };
  return justInTime && !chunks[chunk].forwardOnly &&
         std::none_of(ties.begin(), ties.end(), [&](const TieRoles &tie) {
           return !tie.forwardOnly && (has(tie.owner, tie.ownerChunk) ||
                                       has(tie.borrower, tie.borrowerChunk));
         });
}

int64_t TaskProgram::groups() const {
  return regroups() ? std::min(forwardMicroBatches, microBatches)
                    : microBatches;
}

int64_t TaskProgram::parts() const {
  return regroups() ? std::max(forwardMicroBatches, microBatches)
                    : microBatches;
}

int64_t TaskProgram::forwardPacks() const {
  return std::count_if(
      chunks.begin(), chunks.end(),
      [](const ProgramChunk &chunk) { return chunk.forwardOnly; });
}

int64_t TaskProgram::peerOf(const TransferPart &part) const {
  int64_t chunk = part.chunk, forward = forwardPacks();
  auto count = int64_t(chunks.size());
  if (part.value == TransferValue::Stash) {
    bool known = part.peerChunk < count && chunk < count;
    if (!part.sends())
      return known ? chunks[chunk].stashFrom : -1;
    return known && chunks[part.peerChunk].stashFrom == chunk ? part.peerChunk
                                                              : -1;
  }
  bool toNext = part.sends() != part.isGradient();
  // Forward packs are a chain that ends in the last chunk, the others one in
  // which gradients go.
  if (hasPacks && !part.isGradient()) {
    if (regroups() &&
        (part.sends() ? chunk + 1 == forward : chunk + 1 == count))
      return -1;
    if (part.sends())
      return chunk >= forward       ? -1
             : chunk + 1 == forward ? count - 1
                                    : chunk + 1;
    return chunk + 1 == count ? forward - 1 : chunk < forward ? chunk - 1 : -1;
  }
  int64_t peer = toNext ? chunk + 1 : chunk - 1;
  bool isThere = peer < count && peer >= forward && chunk >= forward;
  return isThere ? peer : -1;
}

bool TaskProgram::recomputes(int64_t chunk) const {
  return hasPacks && !chunks[chunk].forwardOnly && !isLastChunk(chunk);
}

bool TaskProgram::readsData(int64_t chunk) const {
  return chunk == 0 || (hasPacks && chunk == forwardPacks());
}

std::vector<int64_t> TaskProgram::stashesOf(int64_t chunk) const {
  std::vector<int64_t> receivers;
  for (size_t other = 0; other + 1 < chunks.size(); ++other)
    if (chunks[other].stashFrom == chunk)
      receivers.push_back(int64_t(other));
  return receivers;
}

bool TaskProgram::sumsTied(int64_t role) const {
  return std::any_of(ties.begin(), ties.end(), [role](const TieRoles &tie) {
    return !tie.forwardOnly && (tie.owner == role || tie.borrower == role);
  });
}

std::vector<SchedulePart> trainingParts(const TaskProgram &program,
                                        int64_t batches) {
  std::vector<SchedulePart> parts;
  if (program.goesOn())
    parts.push_back(SchedulePart::Prologue);
  for (int64_t batch = 0; batch < batches; ++batch) {
    bool drains = program.goesOn() && batch + 1 == batches;
    parts.push_back(drains ? SchedulePart::Drain : SchedulePart::Steady);
    parts.push_back(SchedulePart::StepEnd);
  }
  return parts;
}

} // namespace galvatron::tasks
