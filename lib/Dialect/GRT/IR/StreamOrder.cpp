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
namespace streams = ::galvatron::streams;

namespace {

/// Whether the operand's rows may lie apart, so that the kernel reaches past
/// the view that it is given.
bool isStrided(OpOperand &operand) {
  auto kernel = dyn_cast<KernelOp>(operand.getOwner());
  return kernel && getKernelBuffers(kernel)[operand.getOperandNumber()].hasRows;
}

/// Finds the memory that a use of a function's buffer is of: a region, or a
/// transient buffer alone.
class Memories {
public:
  streams::ByteUse use(OpOperand &operand, bool writes) {
    BufferRef ref = resolveBuffer(operand.get());
    int64_t end =
        isStrided(operand)
            ? ref.buffer.getByteSize()
            : ref.offset +
                  getByteSize(cast<MemRefType>(operand.get().getType()));
    MemoryRegion region = ref.buffer.getRegion();
    if (region == MemoryRegion::Transient) {
      auto number = int64_t(
          transients.try_emplace(ref.buffer.getOperation(), transients.size())
              .first->second);
      return {getMaxEnumValForMemoryRegion() + 1 + number, uint64_t(ref.offset),
              uint64_t(end), writes};
    }
    int64_t offset = *ref.buffer.getOffset();
    return {int64_t(region), uint64_t(offset + ref.offset),
            uint64_t(offset + end), writes};
  }

private:
  llvm::DenseMap<Operation *, size_t> transients;
};

streams::Operation describe(Operation *op, Memories &memories) {
  streams::Operation result;
  result.stream = uint8_t(getStream(op));
  if (isa<ReturnOp>(op))
    result.kind = streams::Operation::Kind::Return;
  if (isa<BeginOp>(op))
    result.kind = streams::Operation::Kind::Begin;
  llvm::TypeSwitch<Operation *>(op)
      .Case<AllReduceOp, AllReduceMaxOp, AllGatherOp, ReduceScatterOp,
            AllToAllOp, AllToAllCountsOp, ShiftOp>(
          [&](auto collective) { result.axis = int(collective.getAxis()); });
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  for (const MemoryEffects::EffectInstance &effect : effects)
    if (auto *operand = effect.getEffectValue<OpOperand *>())
      result.uses.push_back(memories.use(
          *operand, isa<MemoryEffects::Write>(effect.getEffect())));
  return result;
}

} // namespace

Stream mlir::grt::getStream(Operation *op) {
  return llvm::TypeSwitch<Operation *, Stream>(op)
      .Case<AllReduceOp, AllReduceMaxOp, AllGatherOp, ReduceScatterOp,
            AllToAllOp, AllToAllCountsOp, ShiftOp, RecordOp, WaitOp>(
          [](auto queued) { return queued.getStream(); })
      .Default(Stream::Compute);
}

std::vector<StreamOperation> mlir::grt::getStreamOperations(FuncOp func) {
  Memories memories;
  std::vector<streams::Operation> described(1);
  std::vector<StreamOperation> list = {{nullptr, Stream::Compute, {}}};
  for (Operation &op : func.getBody().front()) {
    if (isa<BufferOp, ViewOp, RecordOp, WaitOp>(op))
      continue;
    described.push_back(describe(&op, memories));
    list.push_back({&op, getStream(&op), {}});
  }
  for (auto [operation, needs] :
       llvm::zip_equal(list, streams::findNeeds(described)))
    operation.needs = needs;
  return list;
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
  streams::Progress progress;
  int number = 0;
  for (Operation &op : func.getBody().front()) {
    if (auto record = dyn_cast<RecordOp>(op)) {
      Event event{record, progress.at(size_t(record.getStream()))};
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
                                  << " to be recorded before, found no "
                                     "record of it";
      Event &event = it->second;
      if (event.record.getStream() == wait.getStream())
        return wait.emitOpError("expected to wait on another stream than the "
                                "event's, found the same")
                   .attachNote(event.record.getLoc())
               << "recorded here";
      event.waited = true;
      progress.wait(size_t(wait.getStream()), event.positions);
      continue;
    }
    if (isa<BufferOp, ViewOp>(op))
      continue;
    const StreamOperation &here = list[++number];
    if (auto missing = progress.findMissing(size_t(here.stream), here.needs)) {
      int before = here.needs[*missing];
      InFlightDiagnostic diagnostic = op.emitOpError()
                                      << "expected stream '"
                                      << stringifyStream(here.stream)
                                      << "' to wait for stream '"
                                      << stringifyStream(Stream(*missing))
                                      << "' before, found no wait";
      if (Operation *earlier = list[before].op)
        diagnostic.attachNote(earlier->getLoc()) << "for what stands here";
      else
        diagnostic.attachNote(func.getLoc()) << "for the function's start";
      return diagnostic;
    }
    progress.run(size_t(here.stream), number);
  }
  for (auto &[number, event] : events)
    if (!event.waited)
      return event.record.emitOpError(
          "expected a wait for the event, found none");
  return success();
}
