//===- GRTAbi.cpp - The dialect's numbers are the C ABI's -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Schedule/SwapOrder.h"
#include "grt/abi.h"
#include "grt/cpu_bounds.h"
#include "grt/cuda_bounds.h"
#include "grt/kernels.h"

#include "mlir/IR/TypeUtilities.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::grt;

#define SAME(ENUM, CASE, NUMBER)                                               \
  static_assert(static_cast<uint32_t>(ENUM::CASE) == NUMBER,                   \
                #ENUM "::" #CASE " differs from the C ABI")

static_assert(kAlignment == GRT_ALIGNMENT);

static_assert(getMaxEnumValForMemoryRegion() + 1 == GRT_REGION_COUNT);
SAME(MemoryRegion, Parameter, GRT_REGION_PARAMETER);
SAME(MemoryRegion, Gradient, GRT_REGION_GRADIENT);
SAME(MemoryRegion, Optimizer, GRT_REGION_OPTIMIZER);
SAME(MemoryRegion, Stash, GRT_REGION_STASH);
SAME(MemoryRegion, Transient, GRT_REGION_TRANSIENT);
SAME(MemoryRegion, Input, GRT_REGION_INPUT);
SAME(MemoryRegion, Output, GRT_REGION_OUTPUT);
SAME(MemoryRegion, GradIn, GRT_REGION_GRAD_IN);
SAME(MemoryRegion, GradOut, GRT_REGION_GRAD_OUT);
SAME(MemoryRegion, Data, GRT_REGION_DATA);
SAME(MemoryRegion, Loss, GRT_REGION_LOSS);
SAME(MemoryRegion, Gathered, GRT_REGION_GATHERED);

static_assert(getMaxEnumValForKernel() + 1 == GRT_KERNEL_COUNT);
#define GRT_KERNEL(NAME, Name, ...) SAME(Kernel, Name, GRT_KERNEL_##NAME);
#include GRT_KERNEL_LIST

SAME(::galvatron::Optimizer, SGD, GRT_OPTIMIZER_SGD);
SAME(::galvatron::Optimizer, Adam, GRT_OPTIMIZER_ADAM);
SAME(::galvatron::Optimizer, AdamW, GRT_OPTIMIZER_ADAMW);

static_assert(getMaxEnumValForAxis() + 1 == GRT_AXIS_COUNT);
static_assert(getMaxEnumValForStream() + 1 == GRT_STREAM_COUNT);
#define GRT_AXIS(NAME, ...) SAME(Axis, NAME, GRT_AXIS_##NAME);
#define GRT_STREAM(NAME, Name, ...) SAME(Stream, Name, GRT_STREAM_##NAME);
#include "grt/axes.def"
static_assert(kFunctionEvents == GRT_FUNCTION_EVENTS);
static_assert(::galvatron::kScheduleEvents == GRT_SCHEDULE_EVENTS);
static_assert(sizeof(::galvatron::Task::waits) == GRT_TASK_WAITS);
SAME(::galvatron::TaskStream, Transfer, GRT_STREAM_TRANSFER);
SAME(::galvatron::TaskStream, In, GRT_STREAM_IN);
SAME(::galvatron::TaskStream, Out, GRT_STREAM_OUT);

SAME(TaskKind, Forward, GRT_TASK_FORWARD);
SAME(TaskKind, Backward, GRT_TASK_BACKWARD);
SAME(TaskKind, Transfer, GRT_TASK_TRANSFER);
SAME(TaskKind, SyncGradients, GRT_TASK_SYNC_GRADIENTS);
SAME(TaskKind, TieReduce, GRT_TASK_TIE_REDUCE);
SAME(TaskKind, Norm, GRT_TASK_NORM);
SAME(TaskKind, Update, GRT_TASK_UPDATE);
SAME(TaskKind, TieBroadcast, GRT_TASK_TIE_BROADCAST);
SAME(TaskKind, Swap, GRT_TASK_SWAP);
SAME(TaskKind, BackwardInput, GRT_TASK_BACKWARD_INPUT);
SAME(TaskKind, BackwardWeight, GRT_TASK_BACKWARD_WEIGHT);

static_assert(getMaxEnumValForPart() + 1 == GRT_PART_COUNT);
SAME(Part, Prologue, GRT_PART_PROLOGUE);
SAME(Part, Steady, GRT_PART_STEADY);
SAME(Part, StepEnd, GRT_PART_STEP_END);
SAME(Part, Drain, GRT_PART_DRAIN);
SAME(Part, Evaluate, GRT_PART_EVALUATE);

#undef SAME

std::optional<uint32_t> mlir::grt::getAbiDType(Type elementType) {
  if (elementType.isF32())
    return GRT_F32;
  if (elementType.isF64())
    return GRT_F64;
  if (elementType.isBF16())
    return GRT_BF16;
  if (elementType.isInteger(32))
    return GRT_I32;
  if (elementType.isInteger(8))
    return GRT_U8;
  return std::nullopt;
}

int64_t mlir::grt::getOptimizerValues(::galvatron::Optimizer optimizer,
                                      int64_t elementBytes,
                                      int64_t accumulatorBytes) {
  return ::galvatron::optimizerMoments(optimizer) +
         (elementBytes < accumulatorBytes ? 1 : 0);
}

static bool isBackward(Kernel kernel) {
  return kernel == Kernel::AttentionGrad ||
         kernel == Kernel::BiasedAttentionGrad ||
         kernel == Kernel::ShapedAttentionGrad ||
         kernel == Kernel::WindowAttentionGrad ||
         kernel == Kernel::RingAttentionGrad;
}
static bool isBiased(Kernel kernel) {
  return kernel == Kernel::BiasedAttention ||
         kernel == Kernel::BiasedAttentionGrad;
}

static bool isInWindows(Kernel kernel) {
  return kernel == Kernel::WindowAttention ||
         kernel == Kernel::WindowAttentionGrad;
}

std::optional<unsigned> mlir::grt::getAttentionScratchPlace(Kernel kernel) {
  ::grt::KernelBuffers buffers =
      ::grt::buffersOf(static_cast<uint32_t>(kernel), nullptr, 0, 0);
  for (auto [place, buffer] : llvm::enumerate(buffers))
    if (buffer.access == ::grt::Access::Scratch)
      return unsigned(place);
  return std::nullopt;
}

/// The threads of the CPU backend that take part in attention of so many pairs
/// of a query and a key, which is cut into `units`.
static int64_t attentionThreads(const KernelTarget &target, double pairs,
                                int64_t headDim, int64_t units, bool backward) {
  double operations = (backward ? 10.0 : 4.0) * double(headDim) * pairs;
  return operations < GRT_CPU_SERIAL_OPERATIONS
             ? 1
             : std::clamp(units, int64_t(1), target.threads);
}

/// Of the kernels of attention inside windows.
static int64_t windowScratchBytes(const KernelTarget &target,
                                  ArrayRef<int64_t> ints, int64_t elementBytes,
                                  bool backward) {
  auto n =
      ::grt::intsOf<::grt::kernels::WindowAttention>(ints.data(), ints.size());
  int64_t windows = n.samples * n.down * n.across,
          positions = n.window * n.window;
  uint64_t bytes = 0;
  if (target.backend != "cuda") {
    // Threads share out tiles of queries of a head, backward the heads of parts
    // of the windows.
    int64_t units =
        n.heads * (backward
                       ? std::min<int64_t>(windows, GRT_CPU_WINDOW_PARTS)
                       : windows * int64_t(llvm::divideCeil(positions, 64)));
    double pairs = double(windows * n.heads) * double(positions * positions);
    bytes = grt_cpu_window_scratch_bytes(
        windows, n.window, n.heads, n.headDim, uint32_t(elementBytes), backward,
        attentionThreads(target, pairs, n.headDim, units, backward));
  }
  if (target.backend != "cpu")
    bytes = std::max(
        bytes, grt_cuda_window_scratch_bytes(windows, n.window, n.heads,
                                             uint32_t(elementBytes), backward));
  return int64_t(bytes);
}

int64_t mlir::grt::getAttentionScratchBytes(const KernelTarget &target,
                                            Kernel kernel,
                                            ArrayRef<int64_t> ints,
                                            int64_t elementBytes) {
  bool backward = isBackward(kernel);
  if (isInWindows(kernel))
    return windowScratchBytes(target, ints, elementBytes, backward);
  // The integers of all kernels of attention begin with these.
  auto n = ::grt::intsOf<::grt::kernels::Attention>(ints.data(), ints.size());
  uint64_t bytes = 0;
  if (target.backend != "cuda") {
    // Threads share out tiles of queries of a head, backward heads of keys.
    int64_t units =
        n.samples * (backward ? n.kvHeads : n.heads * ((n.Tq + 63) / 64));
    int64_t threads = attentionThreads(
        target, double(n.samples * n.heads) * double(n.Tq * n.Tk), n.headDim,
        units, backward);
    bytes = grt_cpu_attention_scratch_bytes(n.Tq, n.Tk, n.headDim, elementBytes,
                                            backward);
    if (isBiased(kernel))
      bytes += grt_cpu_bias_scratch_bytes(n.Tq, n.Tk, elementBytes, backward);
    bytes *= uint64_t(threads);
  }
  if (target.backend != "cpu") {
    uint64_t onDevice = grt_cuda_attention_scratch_bytes(
        n.samples, n.Tq, n.Tk, n.heads, n.kvHeads, n.headDim, elementBytes,
        backward);
    if (isBiased(kernel))
      onDevice += grt_cuda_bias_scratch_bytes(n.samples, n.Tq, n.Tk, n.heads,
                                              elementBytes, backward);
    bytes = std::max(bytes, onDevice);
  }
  return int64_t(bytes);
}

int64_t mlir::grt::getGemmScratchBytes(const KernelTarget &target,
                                       ArrayRef<int64_t> ints,
                                       int64_t elementBytes,
                                       int64_t resultBytes) {
  if (target.backend == "cuda")
    return 0;
  auto n = ::grt::intsOf<::grt::kernels::Gemm>(ints.data(), ints.size());
  return int64_t(grt_cpu_gemm_scratch_bytes(
      n.M, n.N, n.K, n.transA != 0, n.transB != 0, n.acc != 0,
      uint32_t(elementBytes), uint32_t(resultBytes), target.threads));
}

int64_t mlir::grt::getElementBytes(Type elementType) {
  std::optional<uint32_t> dtype = getAbiDType(elementType);
  assert(dtype && "checked by isBufferType() or verifyElementTypes()");
  return ::grt::bytesOfElement(*dtype);
}

LogicalResult mlir::grt::verifyElementType(
    Type type, llvm::function_ref<InFlightDiagnostic()> emitError) {
  if (getAbiDType(getElementTypeOrSelf(type)))
    return success();
  return emitError() << "expected elements of f32, f64, bf16, i32 or i8, found "
                     << type;
}
