//===- KernelCalls.cpp - Calls of kernels, and what they must be ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/KernelCalls.h"
#include "grt/kernel_checks.h"

using namespace mlir;
using namespace mlir::grt;

static uint32_t getNumber(KernelOp call) {
  return static_cast<uint32_t>(call.getKernel());
}
static MemRefType getType(Value buffer) {
  return cast<MemRefType>(buffer.getType());
}

::grt::KernelBuffers mlir::grt::getKernelBuffers(KernelOp call) {
  // What an optimizer's state has depends on the type of its parameter.
  int typed = ::grt::kernelForms[getNumber(call)].typed;
  bool isNarrow = typed >= 0 && size_t(typed) < call.getBuffers().size() &&
                  getType(call.getBuffers()[typed]).getElementType().isBF16();
  return ::grt::buffersOf(getNumber(call), call.getInts().data(),
                          call.getInts().size(), call.getBuffers().size(),
                          isNarrow);
}

int64_t mlir::grt::getReachBytes(const ::grt::KernelBuffer &buffer,
                                 MemRefType type) {
  return ::grt::productOf(buffer.reach(),
                          buffer.elements == ::grt::Elements::Bytes
                              ? 1
                              : getElementBytes(type.getElementType()));
}

SmallVector<std::pair<int64_t, int64_t>> mlir::grt::getSegments(KernelOp call) {
  SmallVector<std::pair<int64_t, int64_t>> segments;
  ArrayRef<int64_t> ints = call.getInts();
  ::grt::KernelInts named = ::grt::kernelInts(getNumber(call));
  if (named.size() == 0 || !named[named.size() - 1].countsSegments)
    return segments;
  for (ints = ints.drop_front(named.size()); ints.size() >= ::grt::segmentInts;
       ints = ints.drop_front(::grt::segmentInts)) {
    ::grt::KernelSegment segment = {ints[0], ints[1], ints[2]};
    segments.push_back({segment.begin, segment.length});
  }
  return segments;
}

void KernelOp::build(OpBuilder &builder, OperationState &state, Kernel kernel,
                     ValueRange buffers, ArrayRef<int64_t> ints,
                     ArrayRef<double> reals, StringRef label) {
  build(builder, state, KernelAttr::get(builder.getContext(), kernel), buffers,
        builder.getDenseI64ArrayAttr(ints), builder.getDenseF64ArrayAttr(reals),
        label.empty() ? StringAttr() : builder.getStringAttr(label));
}

void KernelOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  bool adds =
      ::grt::accOf(getNumber(*this), getInts().data(), getInts().size()) != 0;
  // Effects may be asked for before the call was verified.
  for (const auto &[buffer, use] :
       llvm::zip(getKernelBuffers(*this), getBuffersMutable())) {
    bool reads = buffer.access == ::grt::Access::Read ||
                 buffer.access == ::grt::Access::ReadWrite ||
                 (buffer.access == ::grt::Access::Accumulate && adds);
    if (reads)
      effects.emplace_back(MemoryEffects::Read::get(), &use);
    if (::grt::writes(buffer.access))
      effects.emplace_back(MemoryEffects::Write::get(), &use);
  }
  // Adds to the step block, which no operand names.
  if (::grt::kernelForms[getNumber(*this)].stepUse == ::grt::StepUse::AddsNorm)
    effects.emplace_back(MemoryEffects::Write::get());
}

/// Whether the dimensions of one shape come from those of the other by joining
/// neighbours, so that no row ends in another place.
static bool refines(ArrayRef<int64_t> one, ArrayRef<int64_t> other) {
  auto rowSizes = [](ArrayRef<int64_t> shape) {
    SmallVector<int64_t> sizes = {1};
    for (int64_t size : llvm::reverse(shape))
      sizes.push_back(sizes.back() * size);
    return sizes;
  };
  SmallVector<int64_t> few = rowSizes(one), many = rowSizes(other);
  return llvm::all_of(
      few, [&](int64_t size) { return llvm::is_contained(many, size); });
}

/// Checks that a buffer's rows end where those that the integers name end.
static LogicalResult verifyShape(KernelOp op, const ::grt::KernelBuffer &buffer,
                                 MemRefType type) {
  ArrayRef<int64_t> expected(buffer.shape.begin(), buffer.shape.size());
  if (buffer.mayBeLarger || buffer.hasRows || llvm::is_contained(expected, 0) ||
      refines(expected, type.getShape()) || refines(type.getShape(), expected))
    return success();
  InFlightDiagnostic diagnostic = op.emitOpError();
  diagnostic << "expected the shape [";
  llvm::interleaveComma(expected, diagnostic);
  return diagnostic << "] of '" << buffer.name << "', found " << type;
}

LogicalResult KernelOp::verify() {
  SmallVector<grt_buffer> buffers;
  for (Value value : getBuffers()) {
    MemRefType type = getType(value);
    if (failed(verifyElementType(type, [&] { return emitOpError(); })))
      return failure();
    buffers.push_back({0, *getAbiDType(type.getElementType()), 0,
                       uint64_t(grt::getByteSize(type))});
  }
  grt_kernel_op call = {getNumber(*this),
                        uint32_t(buffers.size()),
                        uint32_t(getInts().size()),
                        uint32_t(getReals().size()),
                        buffers.data(),
                        getInts().data(),
                        getReals().data(),
                        nullptr};
  // Only programs of earlier compilers lack integers, but for those that tell
  // of blocks of rows, or of positions that are given, which calls on whole
  // samples end in front of.
  ::grt::KernelInts all = ::grt::kernelInts(call.kernel);
  size_t integers = all.size();
  while (integers > 0 &&
         llvm::is_contained(
             ArrayRef<StringRef>{"length", "labelRows", "tokenRows", "balanced",
                                 "ofBlocks", "ofFirstBlock", "hasPositions",
                                 "headsOfBlocks", "ofBlock"},
             StringRef(all[integers - 1].name)))
    --integers;
  std::string name = stringifyKernel(getKernel()).str();
  if (getInts().size() < integers)
    return emitOpError() << "expected " << integers << " integers for kernel '"
                         << name << "', found " << getInts().size();
  ::grt::CallCheck check(call, name.c_str());
  if (!check.checkNumbers())
    return emitOpError() << check.wrong();
  ::grt::KernelBuffers expected = getKernelBuffers(*this);
  for (auto [buffer, facts, value] :
       llvm::zip(buffers, expected, getBuffers())) {
    if (!facts.hasRows)
      continue;
    // Rows reach past the first view of them, but not past the buffer.
    BufferRef ref = resolveBuffer(value);
    int64_t end = std::min(getReachBytes(facts, getType(value)),
                           ref.buffer.getByteSize() - ref.offset);
    buffer.bytes = std::max(buffer.bytes, uint64_t(end));
  }
  if (!check.checkBuffers())
    return emitOpError() << check.wrong();
  for (const auto &[facts, value] : llvm::zip_equal(expected, getBuffers()))
    if (failed(verifyShape(*this, facts, getType(value))))
      return failure();

  if (auto place = getAttentionScratchPlace(getKernel())) {
    int64_t needed = getAttentionScratchBytes(
        {getBackend((*this)->getParentOfType<ModuleOp>()), 1}, getKernel(),
        getInts(), getElementBytes(getType(getBuffers()[0]).getElementType()));
    int64_t found = grt::getByteSize(getType(getBuffers()[*place]));
    if (found < needed)
      return emitOpError() << "expected at least " << needed
                           << " bytes in 'scratch', found " << found;
  }
  return success();
}
