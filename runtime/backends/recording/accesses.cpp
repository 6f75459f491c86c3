//===- accesses.cpp - What kernels read and write -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "accesses.h"
#include "../common/call.h"
#include "core/manifest.h"

#include <span>

namespace grt::recording {
namespace {

constexpr Access R = Access::Read, W = Access::Write, RW = Access::ReadWrite,
                 A = Access::Accumulate, S = Access::Scratch;

constexpr Access gemm[] = {R, R, A, R, S};
constexpr Access unary[] = {R, W};
constexpr Access binary[] = {R, R, W};
constexpr Access biasGrad[] = {R, A};
constexpr Access layerNorm[] = {R, R, R, W, W};
constexpr Access layerNormGrad[] = {R, R, R, R, W, A, A};
constexpr Access addLayerNorm[] = {R, R, R, R, W, W, W};
constexpr Access layerNormAddGrad[] = {R, R, R, R, R, W, A, A};
constexpr Access biasGelu[] = {R, R, W, W};
constexpr Access attention[] = {R, R, R, W, W, S, R};
constexpr Access attentionGrad[] = {R, R, R, R, R, R, W, W, W, S, R};
constexpr Access biasedAttention[] = {R, R, R, W, W, S, R, R};
constexpr Access biasedAttentionGrad[] = {R, R, R, R, R, R, W,
                                          W, W, S, R, W, R};
constexpr Access windowAttention[] = {R, R, R, W, W, S, R};
constexpr Access windowAttentionGrad[] = {R, R, R, R, R, R, W, W, W, S, R, A};
constexpr Access embeddingGrad[] = {R, R, A};
constexpr Access crossEntropy[] = {R, RW, R, W, W};
constexpr Access softmaxCrossEntropy[] = {R, RW, W, W, W};
constexpr Access gemmGelu[] = {R, R, R, W, W, S};
constexpr Access gemmGeluGrad[] = {R, R, R, W, S};
constexpr Access gemmBiasGrad[] = {R, R, A, A, S};
constexpr Access rmsNorm[] = {R, R, W, W};
constexpr Access rmsNormGrad[] = {R, R, R, R, W, A};
constexpr Access gatedGrad[] = {R, R, R, W, W};
constexpr Access zero[] = {W};
constexpr Access optimizer[] = {RW, R, RW};
constexpr Access norm[] = {R};

struct KernelAccesses {
  std::span<const Access> operands;
  StepUse step = StepUse::None;
  /// The operand that a call has only if integer `flag` is there and not 0.
  int optional = -1;
  uint32_t flag = 0;
};

/// By kernel number.
const KernelAccesses kernels[GRT_KERNEL_COUNT] = {
    {gemm, StepUse::None, 3, 6},        // GEMM
    {binary},                           // BIAS_ADD
    {biasGrad},                         // BIAS_GRAD
    {layerNorm},                        // LAYER_NORM
    {layerNormGrad},                    // LAYER_NORM_GRAD
    {unary},                            // GELU
    {binary},                           // GELU_GRAD
    {biasGelu},                         // BIAS_GELU
    {attention, StepUse::Reads, 6, 12}, // dropout
    {attentionGrad, StepUse::Reads, 10, 12},
    {unary, StepUse::Reads},  // DROPOUT
    {binary, StepUse::Reads}, // DROPOUT_ADD
    {binary},                 // ADD
    {binary},                 // EMBEDDING
    {embeddingGrad},
    {binary},                       // POSITION_ADD
    {biasGrad},                     // POSITION_GRAD
    {binary, StepUse::Reads},       // SOFTMAX_STATS
    {crossEntropy, StepUse::Reads}, // the mode and the number of tokens
    {unary},                        // COPY
    {zero},
    {optimizer, StepUse::Reads},
    {norm, StepUse::AddsNorm},
    {unary},                        // SCALE
    {addLayerNorm, StepUse::Reads}, // dropout
    {layerNormAddGrad},
    {gemmGelu, StepUse::None, 4, 6},
    {gemmGeluGrad},
    {gemmBiasGrad},
    {rmsNorm},
    {rmsNormGrad},
    {unary},  // ROTARY
    {binary}, // GATED_SILU
    {gatedGrad},
    {unary},  // PATCHES
    {unary},  // RELU
    {binary}, // RELU_GRAD
    {binary}, // GATED_GELU
    {gatedGrad},
    {unary},    // RELATIVE_BIAS
    {biasGrad}, // RELATIVE_BIAS_GRAD
    {biasedAttention, StepUse::Reads, 7, 13},
    {biasedAttentionGrad, StepUse::Reads, 12, 13},
    {unary}, // WINDOWS
    {windowAttention, StepUse::Reads},
    {windowAttentionGrad, StepUse::Reads},
    {unary, StepUse::Reads}, // DROP_PATH
    {unary},                 // MEAN
    {unary},                 // MEAN_GRAD
    {unary},                 // TRANSPOSE
    {unary},                 // OWN_PART
    {softmaxCrossEntropy, StepUse::Reads},
};

/// Bytes that `rows` rows of `width` reach, `stride` apart.
uint64_t reach(int64_t rows, int64_t stride, int64_t width) {
  return rows > 0 ? uint64_t((rows - 1) * stride + width) : 0;
}

} // namespace

StepUse stepUseOf(uint32_t kernel) { return kernels[kernel].step; }

std::vector<Access> accessesOf(const grt_kernel_op &op) {
  const KernelAccesses &kernel = kernels[op.kernel];
  std::vector<Access> accesses(kernel.operands.begin(), kernel.operands.end());
  if (kernel.optional >= 0 &&
      (op.int_count <= kernel.flag || op.ints[kernel.flag] == 0))
    accesses.erase(accesses.begin() + kernel.optional);
  return accesses;
}

uint64_t touchedBytes(const grt_kernel_op &op, uint32_t buffer) {
  const grt_buffer &named = op.buffers[buffer];
  const int64_t *n = op.ints;
  if (op.kernel == GRT_KERNEL_COPY)
    return reach(n[0], n[buffer == 0 ? 2 : 3], n[1]);
  if (!isAttention(op.kernel) || isWindowAttention(op.kernel))
    return named.bytes;
  // q, k, v and their gradients may be columns of one packed buffer.
  uint32_t which =
      isAttentionGrad(op.kernel) && buffer >= 6 ? buffer - 6 : buffer;
  if (which > 2)
    return named.bytes;
  int64_t rows = n[0] * n[which == 0 ? 1 : 2];
  int64_t width = n[which == 0 ? 3 : 4] * n[5];
  return reach(rows, n[6 + which], width) * dtypeBytes(named.dtype);
}

} // namespace grt::recording
