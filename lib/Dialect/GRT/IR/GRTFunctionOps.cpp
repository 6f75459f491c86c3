//===- GRTFunctionOps.cpp - Layer functions and what stands in them -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/GRT/IR/KernelInfo.h"
#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "grt/abi.h"

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
      return op.emitOpError("writes to gathered parameters")
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
              "expected no use of the buffer before its begin");
        life.begin = begin;
      } else if (auto end = dyn_cast<EndOp>(op)) {
        if (life.end)
          return end.emitOpError("expected one end of a buffer, found a second")
                     .attachNote(life.end.getLoc())
                 << "first ended here";
        if (region == MemoryRegion::Transient && !life.begin)
          return end.emitOpError("expected the buffer to be begun before");
        life.end = end;
      } else {
        if (life.end)
          return op.emitOpError("uses a buffer after its end")
                     .attachNote(life.end.getLoc())
                 << "ended here";
        if (region == MemoryRegion::Transient && !life.begin)
          return op.emitOpError("uses a transient buffer before its begin")
                     .attachNote(buffer.getLoc())
                 << "buffer named here";
        life.used = true;
      }
    }
  }
  for (auto &[op, life] : lifetimes)
    if (cast<BufferOp>(op).getRegion() == MemoryRegion::Transient &&
        life.begin && !life.end)
      return op->emitOpError("transient buffer is begun and never ended");
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
                           << stringifyMemoryRegion(getRegion()) << "'";
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
// KernelOp
//===----------------------------------------------------------------------===//

void KernelOp::build(OpBuilder &builder, OperationState &state, Kernel kernel,
                     ValueRange buffers, ArrayRef<int64_t> ints,
                     ArrayRef<double> reals, StringRef label) {
  build(builder, state, KernelAttr::get(builder.getContext(), kernel), buffers,
        builder.getDenseI64ArrayAttr(ints), builder.getDenseF64ArrayAttr(reals),
        label.empty() ? StringAttr() : builder.getStringAttr(label));
}

void KernelOp::getEffects(Effects &effects) {
  const KernelInfo &info = getKernelInfo(getKernel());
  bool accumulates = info.getInt("acc", getInts()).value_or(0) != 0;
  SmallVector<unsigned> named = info.operandsOf(getInts(), getBuffers().size());
  // Effects may be asked for before the call was verified.
  for (auto [number, use] : llvm::zip(named, getBuffersMutable())) {
    const KernelOperand &operand = info.operands[number];
    bool reads = operand.access == Access::Read ||
                 operand.access == Access::ReadWrite ||
                 (operand.access == Access::Accumulate && accumulates);
    if (reads)
      effects.emplace_back(MemoryEffects::Read::get(), &use);
    if (operand.access != Access::Read)
      effects.emplace_back(MemoryEffects::Write::get(), &use);
  }
  // Adds to the step block, which no operand names.
  if (getKernel() == Kernel::Norm)
    effects.emplace_back(MemoryEffects::Write::get());
}

/// Checks the integers of a call against their names in the registry.
static LogicalResult verifyInts(KernelOp op, const KernelInfo &info) {
  ArrayRef<int64_t> ints = op.getInts();
  StringRef name = stringifyKernel(op.getKernel());
  if (ints.size() < info.ints.size() ||
      (info.tail != Tail::Segments && ints.size() != info.ints.size()))
    return op.emitOpError()
           << "expected " << info.ints.size() << " integers for kernel '"
           << name << "', found " << ints.size();
  for (auto [expected, value] : llvm::zip(info.ints, ints)) {
    bool valid = true;
    StringRef range;
    switch (expected.kind) {
    case IntClass::Size:
      valid = value >= 0;
      range = "a number that is not negative";
      break;
    case IntClass::Flag:
      valid = value == 0 || value == 1;
      range = "0 or 1";
      break;
    case IntClass::Acc:
      valid = value >= 0 && value <= 2;
      range = "0, 1 or 2";
      break;
    case IntClass::Free:
      break;
    }
    if (!valid)
      return op.emitOpError() << "expected " << range << " for '"
                              << expected.name << "', found " << value;
  }
  if (info.tail != Tail::Segments)
    return success();
  int64_t segments = *info.getInt("segments", ints);
  if (int64_t(ints.size() - info.ints.size()) != 3 * segments)
    return op.emitOpError()
           << "expected " << 3 * segments << " integers for " << segments
           << " segments, found " << ints.size() - info.ints.size();
  for (ArrayRef<int64_t> rest = ints.drop_front(info.ints.size());
       !rest.empty(); rest = rest.drop_front(3))
    if (rest[0] < 0 || rest[1] < 0 || rest[2] < 0 || rest[2] > 1)
      return op.emitOpError()
             << "expected segments of a begin, a length and a flag 0 or 1, "
                "found ["
             << rest[0] << ", " << rest[1] << ", " << rest[2] << "]";
  return success();
}

LogicalResult KernelOp::verify() {
  const KernelInfo &info = getKernelInfo(getKernel());
  StringRef name = stringifyKernel(getKernel());
  if (failed(verifyInts(*this, info)))
    return failure();
  size_t reals = info.reals.size();
  if (info.tail == Tail::Pairs)
    reals += size_t(*info.getInt("pairs", getInts()));
  if (getReals().size() != reals)
    return emitOpError() << "expected " << reals << " reals for kernel '"
                         << name << "', found " << getReals().size();
  SmallVector<unsigned> named = info.operandsOf(getInts(), getBuffers().size());
  if (getBuffers().size() != named.size())
    return emitOpError() << "expected " << named.size()
                         << " buffers for kernel '" << name << "', found "
                         << getBuffers().size();

  for (auto [i, value] : llvm::zip_equal(named, getBuffers())) {
    const KernelOperand &operand = info.operands[i];
    auto type = cast<MemRefType>(value.getType());
    Type element = type.getElementType();
    StringRef expected;
    switch (operand.elements) {
    case ElementClass::Float:
      if (!isa<FloatType>(element))
        expected = "floating point";
      break;
    case ElementClass::Index:
      if (!element.isInteger(32))
        expected = "'i32'";
      break;
    case ElementClass::Loss:
      if (!element.isF64())
        expected = "'f64'";
      break;
    case ElementClass::Any:
      // A bias that is no operand would be taken for it.
      if (operand.presence == Presence::Optional && !element.isInteger(8))
        expected = "'i8'";
      break;
    }
    if (!expected.empty())
      return emitOpError() << "expected " << expected << " elements in '"
                           << operand.name << "', found " << element;

    int64_t needed = info.neededElements(i, getInts());
    int64_t elementBytes =
        operand.elements == ElementClass::Any ? 1 : getElementBytes(element);
    int64_t bytes = grt::getByteSize(type);
    if (operand.strided) {
      // The rows of a packed buffer reach past the first view of them.
      BufferRef ref = resolveBuffer(value);
      bytes = ref.buffer.getByteSize() - ref.offset;
    }
    if (needed * elementBytes > bytes)
      return emitOpError() << "expected at least " << needed * elementBytes
                           << " bytes in '" << operand.name << "', found "
                           << bytes;
  }

  if (getKernel() == Kernel::Optimizer) {
    // Behind the moments stand the master weights of narrow parameters.
    auto elementBytes = [&](unsigned i) {
      return getElementBytes(
          cast<MemRefType>(getBuffers()[i].getType()).getElementType());
    };
    int64_t needed =
        getInts()[1] * elementBytes(2) *
        getOptimizerValues(static_cast<::galvatron::Optimizer>(getInts()[0]),
                           elementBytes(0), elementBytes(2));
    int64_t found =
        grt::getByteSize(cast<MemRefType>(getBuffers()[2].getType()));
    if (found < needed)
      return emitOpError() << "expected at least " << needed
                           << " bytes in 'state', found " << found;
  }
  if (auto place = getAttentionScratchPlace(getKernel())) {
    ArrayRef<int64_t> ints = getInts();
    Type element = cast<MemRefType>(getBuffers()[0].getType()).getElementType();
    int64_t needed = getAttentionScratchBytes(
        {getBackend((*this)->getParentOfType<ModuleOp>()), 1}, getKernel(),
        ints, getElementBytes(element));
    Value scratch = getBuffers()[*place];
    int64_t found = grt::getByteSize(cast<MemRefType>(scratch.getType()));
    if (found < needed)
      return emitOpError() << "expected at least " << needed
                           << " bytes in 'scratch', found " << found;
  }
  return success();
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
