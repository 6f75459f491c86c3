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

/// Shapes and strides of an ATTENTION call, as in grt/abi.h. Elements are BF16,
/// nothing is dropped.
struct AttentionShape {
  int64_t samples, queryRows, keyRows, heads, kvHeads, headDim;
  int64_t qStride, kStride, vStride;
  bool causal;
  int64_t window;
  float scale;
  bool operator<(const AttentionShape &other) const;
};

/// The forward pass of attention by a library, plans made once per shape.
/// Statistics are those of grt/abi.h, for our own backward pass.
class FusedAttention {
public:
  virtual ~FusedAttention() = default;
  /// Makes the plan of a shape.
  virtual void prepare(const AttentionShape &shape) = 0;
  /// Writes o and lse. False, and nothing is done, where the library has no
  /// deterministic plan for the shape within the workspace.
  virtual bool run(const Queue &queue, const AttentionShape &shape,
                   const AttentionArguments<BF16> &arguments) = 0;
};

/// Null unless GRT_CUDA_ATTENTION is `cudnn`; throws where that cannot be
/// loaded.
std::unique_ptr<FusedAttention> openFusedAttention();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_FUSED_ATTENTION_H
