//===- StreamOrder.cpp - What streams of a layer function share -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Dialect/GRT/IR/KernelCalls.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::grt;

namespace {

/// Bytes that an operation uses, and how.
struct ByteUse {
  BufferOp buffer;
  int64_t begin, end; ///< from the start of the buffer
  bool write;
};

/// What matters of one operation for those that follow.
struct Uses {
  SmallVector<ByteUse, 4> bytes;
  std::optional<Axis> axis; ///< of a collective
};

/// Whether the operand's rows may lie apart, so that the kernel reaches past
/// the view that it is given.
bool isStrided(OpOperand &operand) {
  auto kernel = dyn_cast<KernelOp>(operand.getOwner());
  return kernel && getKernelBuffers(kernel)[operand.getOperandNumber()].hasRows;
}

Uses getUses(Operation *op) {
  Uses uses;
  llvm::TypeSwitch<Operation *>(op)
      .Case<AllReduceOp, AllGatherOp, ReduceScatterOp>(
          [&](auto collective) { uses.axis = collective.getAxis(); });
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  for (const MemoryEffects::EffectInstance &effect : effects) {
    auto *operand = effect.getEffectValue<OpOperand *>();
    if (!operand)
      continue;
    BufferRef ref = resolveBuffer(operand->get());
    int64_t end =
        isStrided(*operand)
            ? ref.buffer.getByteSize()
            : ref.offset +
                  getByteSize(cast<MemRefType>(operand->get().getType()));
    uses.bytes.push_back({ref.buffer, ref.offset, end,
                          isa<MemoryEffects::Write>(effect.getEffect())});
  }
  return uses;
}

/// Whether two uses meet. Different transient buffers never do: where they
/// share memory their lifetimes keep them apart.
bool overlap(const ByteUse &a, const ByteUse &b) {
  BufferOp first = a.buffer, second = b.buffer;
  if (first == second)
    return a.begin < b.end && b.begin < a.end;
  MemoryRegion region = first.getRegion(), other = second.getRegion();
  if (region == MemoryRegion::Transient || other == MemoryRegion::Transient)
    return false;
  return region == other &&
         *first.getOffset() + a.begin < *second.getOffset() + b.end &&
         *second.getOffset() + b.begin < *first.getOffset() + a.end;
}

bool conflict(const Uses &a, const Uses &b) {
  // Of one axis there is one communicator. Groups of different axes share one
  // rank only.
  if (a.axis && a.axis == b.axis)
    return true;
  for (const ByteUse &first : a.bytes)
    for (const ByteUse &second : b.bytes)
      if ((first.write || second.write) && overlap(first, second))
        return true;
  return false;
}

StreamPositions nothing() {
  StreamPositions positions;
  positions.fill(-1);
  return positions;
}

} // namespace

Stream mlir::grt::getStream(Operation *op) {
  return llvm::TypeSwitch<Operation *, Stream>(op)
      .Case<AllReduceOp, AllGatherOp, ReduceScatterOp, RecordOp, WaitOp>(
          [](auto queued) { return queued.getStream(); })
      .Default(Stream::Compute);
}

std::vector<StreamOperation> mlir::grt::getStreamOperations(FuncOp func) {
  std::vector<StreamOperation> list = {{nullptr, Stream::Compute, nothing()}};
  std::vector<Uses> uses(1);
  // The operation that waiting for each one comes down to.
  std::vector<int> standsFor = {0};
  int work = 0;
  StreamPositions last = nothing();
  last[static_cast<size_t>(Stream::Compute)] = 0;
  for (Operation &op : func.getBody().front()) {
    if (isa<BufferOp, ViewOp, RecordOp, WaitOp>(op))
      continue;
    Stream stream = getStream(&op);
    auto own = static_cast<size_t>(stream);
    StreamOperation next{&op, stream, nothing()};
    uses.push_back(getUses(&op));
    bool isFirst = last[own] < 0;
    for (size_t other = 0; other < kStreamCount; ++other) {
      if (other == own)
        continue;
      if (isa<ReturnOp>(op)) {
        next.needs[other] = last[other];
        continue;
      }
      for (int before = int(list.size()); before-- > 0;)
        if (static_cast<size_t>(list[before].stream) == other &&
            conflict(uses[before], uses.back())) {
          next.needs[other] = standsFor[before];
          break;
        }
    }
    // The start: number 0, on compute.
    if (isFirst)
      next.needs[0] = std::max(next.needs[0], 0);
    int number = int(list.size());
    last[own] = number;
    // Nothing runs for a begin: the memory is free once what stands before it
    // on compute has ended, for which that has waited if it had to.
    bool begins = isa<BeginOp>(op);
    standsFor.push_back(begins ? work : number);
    if (stream == Stream::Compute && !begins)
      work = number;
    list.push_back(next);
  }
  return list;
}

//===----------------------------------------------------------------------===//
// StreamProgress
//===----------------------------------------------------------------------===//

StreamProgress::StreamProgress() {
  known.fill(nothing());
  // The function's start.
  run(Stream::Compute, 0);
}

void StreamProgress::wait(Stream stream, const StreamPositions &positions) {
  StreamPositions &mine = known[index(stream)];
  for (size_t other = 0; other < kStreamCount; ++other)
    mine[other] = std::max(mine[other], positions[other]);
}

std::optional<Stream>
StreamProgress::findMissing(Stream stream, const StreamPositions &needs) const {
  const StreamPositions &mine = known[index(stream)];
  for (size_t other = 0; other < kStreamCount; ++other)
    if (other != index(stream) && needs[other] > mine[other])
      return static_cast<Stream>(other);
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

LogicalResult mlir::grt::verifyStreamOrder(FuncOp func) {
  // Most functions have one stream.
  if (llvm::all_of(func.getBody().front(), [](Operation &op) {
        return getStream(&op) == Stream::Compute && !isa<RecordOp, WaitOp>(op);
      }))
    return success();

  struct Event {
    RecordOp record;
    StreamPositions positions;
    bool waited = false;
  };
  llvm::MapVector<int64_t, Event> events;
  std::vector<StreamOperation> list = getStreamOperations(func);
  StreamProgress progress;
  int number = 0;
  for (Operation &op : func.getBody().front()) {
    if (auto record = dyn_cast<RecordOp>(op)) {
      Event event{record, progress.at(record.getStream())};
      auto [it, inserted] = events.try_emplace(record.getEvent(), event);
      if (!inserted)
        return record
                   .emitOpError("expected one record of an event, found a "
                                "second")
                   .attachNote(it->second.record.getLoc())
               << "first recorded here";
      continue;
    }
    if (auto wait = dyn_cast<WaitOp>(op)) {
      auto it = events.find(wait.getEvent());
      if (it == events.end())
        return wait.emitOpError() << "expected event " << wait.getEvent()
                                  << " to be recorded before";
      Event &event = it->second;
      if (event.record.getStream() == wait.getStream())
        return wait.emitOpError("expected to wait on another stream than the "
                                "event's")
                   .attachNote(event.record.getLoc())
               << "recorded here";
      event.waited = true;
      progress.wait(wait.getStream(), event.positions);
      continue;
    }
    if (isa<BufferOp, ViewOp>(op))
      continue;
    const StreamOperation &here = list[++number];
    if (auto missing = progress.findMissing(here.stream, here.needs)) {
      int before = here.needs[static_cast<size_t>(*missing)];
      InFlightDiagnostic diagnostic =
          op.emitOpError() << "expected stream '"
                           << stringifyStream(here.stream)
                           << "' to wait for stream '"
                           << stringifyStream(*missing) << "' before";
      if (Operation *earlier = list[before].op)
        diagnostic.attachNote(earlier->getLoc()) << "for what stands here";
      else
        diagnostic.attachNote(func.getLoc()) << "for the function's start";
      return diagnostic;
    }
    progress.run(here.stream, number);
  }
  for (auto &[number, event] : events)
    if (!event.waited)
      return event.record.emitOpError("expected a wait for the event");
  return success();
}
