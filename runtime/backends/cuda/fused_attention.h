//===- fused_attention.h - Attention through cuDNN ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_FUSED_ATTENTION_H
#define GRT_BACKENDS_CUDA_FUSED_ATTENTION_H

#include "kernels.h"

#include <memory>

namespace grt::cuda {

/// Shapes and strides of an attention call, as in grt/abi.h. Elements are BF16,
/// nothing is dropped.
struct AttentionShape {
  int64_t samples, queryRows, keyRows, heads, kvHeads, headDim;
  int64_t qStride, kStride, vStride;
  bool causal, backward;
  float scale;
  bool operator<(const AttentionShape &other) const;
};

/// Attention by a library, plans made once per shape.
class FusedAttention {
public:
  virtual ~FusedAttention() = default;
  /// Makes the plan of a shape.
  virtual void prepare(const AttentionShape &shape) = 0;
  /// Runs a call, with `scratch` or the queue's workspace, whichever is larger.
  /// False, and nothing is done, where the library has no plan that fits.
  virtual bool run(const Queue &queue, const AttentionShape &shape,
                   const AttentionArguments<BF16> &arguments, void *scratch,
                   uint64_t scratchBytes) = 0;
};

/// Null where the library cannot be loaded (then the reason goes to stderr,
/// once), where there is none (tests on the CPU), or GRT_CUDA_ATTENTION is
/// `own`.
std::unique_ptr<FusedAttention> openFusedAttention();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_FUSED_ATTENTION_H
