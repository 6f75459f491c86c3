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

/// Attention by a library, plans made once per shape. Statistics of the forward
/// pass are those of grt/abi.h whoever computed them, so that either pass may
/// be the library's and the other our own.
class FusedAttention {
public:
  virtual ~FusedAttention() = default;
  /// Makes the plan of a shape.
  virtual void prepare(const AttentionShape &shape, bool backward) = 0;
  /// Writes o and lse; `backward`: dq, dk, dv and delta. False, and nothing is
  /// done, where the library has no deterministic plan for the shape within the
  /// workspace.
  virtual bool run(const Queue &queue, const AttentionShape &shape,
                   bool backward,
                   const AttentionArguments<BF16> &arguments) = 0;
};

/// Null unless GRT_CUDA_ATTENTION is `cudnn`; throws where that cannot be
/// loaded.
std::unique_ptr<FusedAttention> openFusedAttention();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_FUSED_ATTENTION_H
