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
SAME(Kernel, Gemm, GRT_KERNEL_GEMM);
SAME(Kernel, BiasAdd, GRT_KERNEL_BIAS_ADD);
SAME(Kernel, BiasGrad, GRT_KERNEL_BIAS_GRAD);
SAME(Kernel, LayerNorm, GRT_KERNEL_LAYER_NORM);
SAME(Kernel, LayerNormGrad, GRT_KERNEL_LAYER_NORM_GRAD);
SAME(Kernel, Gelu, GRT_KERNEL_GELU);
SAME(Kernel, GeluGrad, GRT_KERNEL_GELU_GRAD);
SAME(Kernel, BiasGelu, GRT_KERNEL_BIAS_GELU);
SAME(Kernel, Attention, GRT_KERNEL_ATTENTION);
SAME(Kernel, AttentionGrad, GRT_KERNEL_ATTENTION_GRAD);
SAME(Kernel, Dropout, GRT_KERNEL_DROPOUT);
SAME(Kernel, DropoutAdd, GRT_KERNEL_DROPOUT_ADD);
SAME(Kernel, Add, GRT_KERNEL_ADD);
SAME(Kernel, Embedding, GRT_KERNEL_EMBEDDING);
SAME(Kernel, EmbeddingGrad, GRT_KERNEL_EMBEDDING_GRAD);
SAME(Kernel, PositionAdd, GRT_KERNEL_POSITION_ADD);
SAME(Kernel, PositionGrad, GRT_KERNEL_POSITION_GRAD);
SAME(Kernel, SoftmaxStats, GRT_KERNEL_SOFTMAX_STATS);
SAME(Kernel, CrossEntropy, GRT_KERNEL_CROSS_ENTROPY);
SAME(Kernel, Copy, GRT_KERNEL_COPY);
SAME(Kernel, Zero, GRT_KERNEL_ZERO);
SAME(Kernel, Optimizer, GRT_KERNEL_OPTIMIZER);
SAME(Kernel, Norm, GRT_KERNEL_NORM);
SAME(Kernel, Scale, GRT_KERNEL_SCALE);
SAME(Kernel, AddLayerNorm, GRT_KERNEL_ADD_LAYER_NORM);
SAME(Kernel, LayerNormAddGrad, GRT_KERNEL_LAYER_NORM_ADD_GRAD);
SAME(Kernel, GemmGelu, GRT_KERNEL_GEMM_GELU);
SAME(Kernel, GemmGeluGrad, GRT_KERNEL_GEMM_GELU_GRAD);
SAME(Kernel, GemmBiasGrad, GRT_KERNEL_GEMM_BIAS_GRAD);
SAME(Kernel, RmsNorm, GRT_KERNEL_RMS_NORM);
SAME(Kernel, RmsNormGrad, GRT_KERNEL_RMS_NORM_GRAD);
SAME(Kernel, Rotary, GRT_KERNEL_ROTARY);
SAME(Kernel, GatedSilu, GRT_KERNEL_GATED_SILU);
SAME(Kernel, GatedSiluGrad, GRT_KERNEL_GATED_SILU_GRAD);
SAME(Kernel, Patches, GRT_KERNEL_PATCHES);
SAME(Kernel, Relu, GRT_KERNEL_RELU);
SAME(Kernel, ReluGrad, GRT_KERNEL_RELU_GRAD);
SAME(Kernel, GatedGelu, GRT_KERNEL_GATED_GELU);
SAME(Kernel, GatedGeluGrad, GRT_KERNEL_GATED_GELU_GRAD);
SAME(Kernel, RelativeBias, GRT_KERNEL_RELATIVE_BIAS);
SAME(Kernel, RelativeBiasGrad, GRT_KERNEL_RELATIVE_BIAS_GRAD);
SAME(Kernel, BiasedAttention, GRT_KERNEL_BIASED_ATTENTION);
SAME(Kernel, BiasedAttentionGrad, GRT_KERNEL_BIASED_ATTENTION_GRAD);
SAME(Kernel, Windows, GRT_KERNEL_WINDOWS);
SAME(Kernel, WindowAttention, GRT_KERNEL_WINDOW_ATTENTION);
SAME(Kernel, WindowAttentionGrad, GRT_KERNEL_WINDOW_ATTENTION_GRAD);
SAME(Kernel, DropPath, GRT_KERNEL_DROP_PATH);
SAME(Kernel, Mean, GRT_KERNEL_MEAN);
SAME(Kernel, MeanGrad, GRT_KERNEL_MEAN_GRAD);
SAME(Kernel, Transpose, GRT_KERNEL_TRANSPOSE);
SAME(Kernel, OwnPart, GRT_KERNEL_OWN_PART);
SAME(Kernel, SoftmaxCrossEntropy, GRT_KERNEL_SOFTMAX_CROSS_ENTROPY);

SAME(::galvatron::Optimizer, SGD, GRT_OPTIMIZER_SGD);
SAME(::galvatron::Optimizer, Adam, GRT_OPTIMIZER_ADAM);
SAME(::galvatron::Optimizer, AdamW, GRT_OPTIMIZER_ADAMW);

SAME(Axis, DP, GRT_AXIS_DP);
SAME(Axis, SDP, GRT_AXIS_SDP);
SAME(Axis, TP, GRT_AXIS_TP);

static_assert(getMaxEnumValForStream() + 1 == GRT_STREAM_COUNT);
SAME(Stream, Compute, GRT_STREAM_COMPUTE);
SAME(Stream, Gradient, GRT_STREAM_GRADIENT);
SAME(Stream, Gather, GRT_STREAM_GATHER);
SAME(Stream, Transfer, GRT_STREAM_TRANSFER);
SAME(Stream, In, GRT_STREAM_IN);
SAME(Stream, Out, GRT_STREAM_OUT);
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

uint32_t mlir::grt::getAbiDType(Type elementType) {
  if (elementType.isF32())
    return GRT_F32;
  if (elementType.isF64())
    return GRT_F64;
  if (elementType.isBF16())
    return GRT_BF16;
  if (elementType.isInteger(32))
    return GRT_I32;
  return GRT_U8;
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
         kernel == Kernel::WindowAttentionGrad;
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
  if (kernel != Kernel::Attention && !isBackward(kernel) && !isBiased(kernel) &&
      !isInWindows(kernel))
    return std::nullopt;
  return isBackward(kernel) ? 9 : 5;
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
  int64_t windows = ints[0] * ints[1] * ints[2], window = ints[3],
          heads = ints[5], headDim = ints[6], positions = window * window;
  uint64_t bytes = 0;
  if (target.backend != "cuda") {
    // Threads share out tiles of queries of a head, backward the heads of parts
    // of the windows.
    int64_t units =
        heads * (backward ? std::min<int64_t>(windows, GRT_CPU_WINDOW_PARTS)
                          : windows * int64_t(llvm::divideCeil(positions, 64)));
    double pairs = double(windows * heads) * double(positions * positions);
    bytes = grt_cpu_window_scratch_bytes(
        windows, window, heads, headDim, uint32_t(elementBytes), backward,
        attentionThreads(target, pairs, headDim, units, backward));
  }
  if (target.backend != "cpu")
    bytes = std::max(
        bytes, grt_cuda_window_scratch_bytes(windows, window, heads,
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
  int64_t samples = ints[0], tq = ints[1], tk = ints[2], heads = ints[3],
          kvHeads = ints[4], headDim = ints[5];
  uint64_t bytes = 0;
  if (target.backend != "cuda") {
    // Threads share out tiles of queries of a head, backward heads of keys.
    int64_t units = samples * (backward ? kvHeads : heads * ((tq + 63) / 64));
    int64_t threads =
        attentionThreads(target, double(samples * heads) * double(tq * tk),
                         headDim, units, backward);
    bytes = grt_cpu_attention_scratch_bytes(tq, tk, headDim, elementBytes,
                                            backward);
    if (isBiased(kernel))
      bytes += grt_cpu_bias_scratch_bytes(tq, tk, elementBytes, backward);
    bytes *= uint64_t(threads);
  }
  if (target.backend != "cpu") {
    uint64_t onDevice = grt_cuda_attention_scratch_bytes(
        samples, tq, tk, heads, kvHeads, headDim, elementBytes, backward);
    if (isBiased(kernel))
      onDevice += grt_cuda_bias_scratch_bytes(samples, tq, tk, heads,
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
  return int64_t(grt_cpu_gemm_scratch_bytes(
      ints[0], ints[1], ints[2], ints[3] != 0, ints[4] != 0, ints[5] != 0,
      uint32_t(elementBytes), uint32_t(resultBytes), target.threads));
}

int64_t mlir::grt::getElementBytes(Type elementType) {
  if (elementType.isF64())
    return 8;
  if (elementType.isF32() || elementType.isInteger(32))
    return 4;
  if (elementType.isBF16())
    return 2;
  return elementType.isInteger(8) ? 1 : 0;
}
