//===- GRTFunctionOps.cpp - Layer functions and what stands in them -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/GRT/IR/StreamOrder.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace mlir::grt;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

BufferRef mlir::grt::resolveBuffer(Value value) {
  BufferRef ref;
  while (auto view = value.getDefiningOp<ViewOp>()) {
    ref.offset += view.getOffset();
    value = view.getSource();
  }
  ref.buffer = value.getDefiningOp<BufferOp>();
  return ref;
}

//===----------------------------------------------------------------------===//
// FuncOp
//===----------------------------------------------------------------------===//

void FuncOp::build(OpBuilder &builder, OperationState &state, StringRef name) {
  state.addAttribute(getSymNameAttrName(state.name),
                     builder.getStringAttr(name));
  mlir::Region *body = state.addRegion();
  ensureTerminator(*body, builder, state.location);
}

namespace {
/// Where a buffer is begun, ended and otherwise used.
struct Lifetime {
  BeginOp begin;
  EndOp end;
  bool used = false;
};
} // namespace

/// The function's bytes for a region, if it gives them.
static std::optional<int64_t> getRegionBytes(FuncOp func, MemoryRegion region) {
  switch (region) {
  case MemoryRegion::Transient:
    return func.getTransientBytes();
  case MemoryRegion::Stash:
    return func.getStashBytes();
  case MemoryRegion::Input:
    return func.getInputBytes();
  case MemoryRegion::Output:
    return func.getOutputBytes();
  case MemoryRegion::Gathered:
    return func.getGatheredBytes();
  default:
    return std::nullopt;
  }
}

/// The buffer of gathered parameters that the operation writes to, if any.
static BufferOp findGatheredWrite(Operation &op) {
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  for (const MemoryEffects::EffectInstance &effect : effects) {
    auto *operand = effect.getEffectValue<OpOperand *>();
    if (!operand || !isa<MemoryEffects::Write>(effect.getEffect()))
      continue;
    BufferOp buffer = resolveBuffer(operand->get()).buffer;
    if (buffer.getRegion() == MemoryRegion::Gathered)
      return buffer;
  }
  return {};
}

LogicalResult FuncOp::verifyRegions() {
  llvm::MapVector<Operation *, Lifetime> lifetimes;
  for (Operation &op : getBody().front()) {
    if (auto buffer = dyn_cast<BufferOp>(op)) {
      lifetimes[buffer] = {};
      std::optional<int64_t> bytes = getRegionBytes(*this, buffer.getRegion());
      if (bytes && buffer.getOffset() &&
          *buffer.getOffset() + buffer.getByteSize() > *bytes)
        return buffer.emitOpError()
               << "expected to end within the " << *bytes << " "
               << stringifyMemoryRegion(buffer.getRegion())
               << " bytes of the function, found end "
               << *buffer.getOffset() + buffer.getByteSize();
      continue;
    }
    if (isa<ViewOp>(op))
      continue;
    if (auto gathered = findGatheredWrite(op))
      return op.emitOpError("expected gathered parameters to be read, found a "
                            "write to them")
                 .attachNote(gathered.getLoc())
             << "buffer named here";
    for (Value operand : op.getOperands()) {
      BufferOp buffer = resolveBuffer(operand).buffer;
      MemoryRegion region = buffer.getRegion();
      if (region != MemoryRegion::Transient && region != MemoryRegion::Stash)
        continue;
      Lifetime &life = lifetimes[buffer];
      if (auto begin = dyn_cast<BeginOp>(op)) {
        if (life.begin)
          return begin
                     .emitOpError("expected one begin of a buffer, found a "
                                  "second")
                     .attachNote(life.begin.getLoc())
                 << "first begun here";
        if (life.used)
          return begin.emitOpError(
              "expected the begin of a buffer in front of its uses, found it "
              "behind one");
        life.begin = begin;
      } else if (auto end = dyn_cast<EndOp>(op)) {
        if (life.end)
          return end.emitOpError("expected one end of a buffer, found a second")
                     .attachNote(life.end.getLoc())
                 << "first ended here";
        if (region == MemoryRegion::Transient && !life.begin)
          return end.emitOpError(
              "expected the end of a buffer that was begun, found no begin");
        life.end = end;
      } else {
        if (life.end)
          return op.emitOpError(
                       "expected uses of a buffer up to its end, found "
                       "one behind it")
                     .attachNote(life.end.getLoc())
                 << "ended here";
        if (region == MemoryRegion::Transient && !life.begin)
          return op.emitOpError(
                       "expected a transient buffer to be begun before "
                       "its uses, found no begin")
                     .attachNote(buffer.getLoc())
                 << "buffer named here";
        life.used = true;
      }
    }
  }
  for (auto &[op, life] : lifetimes)
    if (cast<BufferOp>(op).getRegion() == MemoryRegion::Transient &&
        life.begin && !life.end)
      return op->emitOpError(
          "expected an end of the transient buffer, which is "
          "begun, found none");
  return verifyStreamOrder(*this);
}

//===----------------------------------------------------------------------===//
// BufferOp, ViewOp
//===----------------------------------------------------------------------===//

void BufferOp::build(OpBuilder &builder, OperationState &state, MemRefType type,
                     MemoryRegion region, std::optional<int64_t> offset) {
  build(builder, state, type,
        MemoryRegionAttr::get(builder.getContext(), region),
        offset ? builder.getI64IntegerAttr(*offset) : IntegerAttr());
}

int64_t BufferOp::getByteSize() { return grt::getByteSize(getType()); }

void BufferOp::getEffects(Effects &effects) {
  // Two transient buffers of one type are not the same buffer: without this
  // CSE would make them one.
  if (getRegion() == MemoryRegion::Transient)
    effects.emplace_back(MemoryEffects::Allocate::get(),
                         cast<OpResult>(getResult()));
}

LogicalResult BufferOp::verify() {
  std::optional<int64_t> offset = getOffset();
  if (!offset) {
    if (getRegion() != MemoryRegion::Transient)
      return emitOpError() << "expected an offset in region '"
                           << stringifyMemoryRegion(getRegion())
                           << "', found none";
    return success();
  }
  if (*offset < 0 || *offset % kAlignment != 0)
    return emitOpError() << "expected an offset that is a multiple of "
                         << kAlignment << ", found " << *offset;
  return success();
}

Value ViewOp::getViewSource() { return getSource(); }

LogicalResult ViewOp::verify() {
  int64_t offset = getOffset();
  int64_t end = offset + grt::getByteSize(getType());
  int64_t sourceBytes = grt::getByteSize(getSource().getType());
  if (offset < 0 || end > sourceBytes)
    return emitOpError() << "expected to lie inside its source of "
                         << sourceBytes << " bytes, found bytes " << offset
                         << " to " << end;
  int64_t elementBytes = getElementBytes(getType().getElementType());
  if (offset % elementBytes != 0)
    return emitOpError() << "expected an offset that is a multiple of the "
                         << elementBytes << "-byte elements, found " << offset;
  return success();
}

//===----------------------------------------------------------------------===//
// BeginOp, EndOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyLifetime(Operation *op, Value value) {
  auto buffer = value.getDefiningOp<BufferOp>();
  if (!buffer)
    return op->emitOpError("expected the result of a 'grt.buffer', found a "
                           "view");
  if (buffer.getRegion() != MemoryRegion::Stash &&
      buffer.getRegion() != MemoryRegion::Transient)
    return op->emitOpError()
           << "expected a stash or transient buffer, found region '"
           << stringifyMemoryRegion(buffer.getRegion()) << "'";
  return success();
}

LogicalResult BeginOp::verify() { return verifyLifetime(*this, getBuffer()); }
LogicalResult EndOp::verify() { return verifyLifetime(*this, getBuffer()); }

void BeginOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), &getBufferMutable());
}

void EndOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getBufferMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getBufferMutable());
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Collectives and events also order themselves against each other: an effect
/// that no operand names keeps any two of them in place.
static void addOrderEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

void AllReduceOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getBufferMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getBufferMutable());
  addOrderEffects(effects);
}

void AllGatherOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getDestinationMutable());
  addOrderEffects(effects);
}

void ReduceScatterOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  if (getAcc() != 0) {
    // What is to be added waits in the member's own slice of the source.
    effects.emplace_back(MemoryEffects::Write::get(), &getSourceMutable());
    effects.emplace_back(MemoryEffects::Read::get(), &getDestinationMutable());
  }
  effects.emplace_back(MemoryEffects::Write::get(), &getDestinationMutable());
  addOrderEffects(effects);
}

void AllToAllOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getDestinationMutable());
  addOrderEffects(effects);
}

void AllReduceMaxOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getBufferMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getBufferMutable());
  addOrderEffects(effects);
}

void AllToAllCountsOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  effects.emplace_back(MemoryEffects::Read::get(), &getCountsMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getDestinationMutable());
  addOrderEffects(effects);
}

LogicalResult AllToAllCountsOp::verify() {
  MemRefType source = getSource().getType(),
             destination = getDestination().getType(),
             counts = getCounts().getType();
  if (source.getElementType() != destination.getElementType()) // (C1)
    return emitOpError() << "expected one element type, found "
                         << source.getElementType() << " in the source and "
                         << destination.getElementType()
                         << " in the destination";
  const int64_t each = getElementBytes(source.getElementType());
  if (getUnit() <= 0 || getUnit() > INT32_MAX || getUnit() % each != 0) // (C2)
    return emitOpError() << "expected a unit of a positive number of elements "
                            "of "
                         << each << " bytes, found " << getUnit() << " bytes";
  if (!counts.getElementType().isInteger(32) || counts.getRank() != 2 ||
      counts.getDimSize(0) != counts.getDimSize(1) ||
      counts.getDimSize(0) < 2) // (C3)
    return emitOpError() << "expected counts of type i32, members x members of "
                            "at least 2, found "
                         << counts;
  return success();
}

LogicalResult AllReduceOp::verify() {
  Type element = getBuffer().getType().getElementType();
  if (!isa<FloatType>(element))
    return emitOpError() << "expected floating-point elements, found "
                         << element;
  return success();
}

/// Checks that `whole` is at least two times `part`, in equal elements.
static LogicalResult verifySlices(Operation *op, MemRefType whole,
                                  MemRefType part, StringRef wholeName,
                                  StringRef partName) {
  if (whole.getElementType() != part.getElementType())
    return op->emitOpError()
           << "expected one element type, found " << whole.getElementType()
           << " in the " << wholeName << " and " << part.getElementType()
           << " in the " << partName;
  int64_t wholeElements = whole.getNumElements();
  int64_t partElements = part.getNumElements();
  if (partElements == 0 || wholeElements % partElements != 0 ||
      wholeElements / partElements < 2)
    return op->emitOpError()
           << "expected the " << wholeName << " to hold a whole number (at "
           << "least 2) of " << partName << "s, found " << wholeElements
           << " and " << partElements << " elements";
  return success();
}

LogicalResult AllGatherOp::verify() {
  return verifySlices(*this, getDestination().getType(), getSource().getType(),
                      "destination", "source");
}

void ShiftOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), &getSourceMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getDestinationMutable());
  addOrderEffects(effects);
}

/// Checks that a collective that moves blocks has as many elements on both
/// sides.
template <typename OpTy> static LogicalResult verifyMoved(OpTy op) {
  MemRefType source = op.getSource().getType(),
             destination = op.getDestination().getType();
  if (source.getElementType() != destination.getElementType() ||
      source.getNumElements() != destination.getNumElements())
    return op.emitOpError() << "expected as many elements of one type in the "
                               "source and the destination, found "
                            << source << " and " << destination;
  return success();
}

LogicalResult ShiftOp::verify() {
  // (C2)
  if (getDistance() < 1)
    return emitOpError() << "expected a positive distance, found "
                         << getDistance();
  return verifyMoved(*this); // (C1)
}

LogicalResult AllToAllOp::verify() { return verifyMoved(*this); }

LogicalResult ReduceScatterOp::verify() {
  if (!isa<FloatType>(getSource().getType().getElementType()))
    return emitOpError() << "expected floating-point elements, found "
                         << getSource().getType().getElementType();
  if (getAcc() < 0 || getAcc() > 2)
    return emitOpError() << "expected acc 0, 1 or 2, found " << getAcc();
  return verifySlices(*this, getSource().getType(), getDestination().getType(),
                      "source", "destination");
}

//===----------------------------------------------------------------------===//
// RecordOp, WaitOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyEvent(Operation *op, int64_t event) {
  if (event < 0 || event >= int64_t(kFunctionEvents))
    return op->emitOpError() << "expected an event of 0 to "
                             << kFunctionEvents - 1 << ", found " << event;
  return success();
}

// Nothing may pass them, whatever it touches.
void RecordOp::getEffects(Effects &effects) { addOrderEffects(effects); }
void WaitOp::getEffects(Effects &effects) { addOrderEffects(effects); }

LogicalResult RecordOp::verify() { return verifyEvent(*this, getEvent()); }
LogicalResult WaitOp::verify() { return verifyEvent(*this, getEvent()); }
