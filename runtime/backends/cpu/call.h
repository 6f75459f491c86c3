//===- call.h - A kernel call, taken apart --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_CALL_H
#define GRT_BACKENDS_CPU_CALL_H

#include "rank.h"

#include "../common/call.h"

namespace grt::cpu {

/// A call of a rank of this backend.
class Call : public CallReader {
public:
  using CallReader::CallReader;
  grt_step &step() const { return *call.step; }
  Rank &rank() const { return *static_cast<Rank *>(call.rank_state); }
  int threads() const { return rank().threads; }
  template <class T> const KernelTable<T> &table() const {
    return rank().table<T>();
  }
};

/// GEMM and those that do more with its result.
inline bool isGemm(const grt_kernel_op &op) {
  return op.kernel == GRT_KERNEL_GEMM || op.kernel == GRT_KERNEL_GEMM_GELU ||
         op.kernel == GRT_KERNEL_GEMM_GELU_GRAD ||
         op.kernel == GRT_KERNEL_GEMM_BIAS_GRAD;
}

/// The shape of the product of such a call that oneDNN may be asked for.
GemmShape gemmShape(const grt_kernel_op &op, bool accumulate);

/// Which buffer is its scratch; -1 where it has none.
int gemmScratchIndex(const grt_kernel_op &op);
/// Returns the scratch bytes of the call's product with that many threads; 0
/// where it has none.
uint64_t gemmScratchBytes(const grt_kernel_op &op, int threads);

/// Returns the scratch bytes that one worker of an ATTENTION or ATTENTION_GRAD
/// call needs.
uint64_t attentionScratchBytes(const grt_kernel_op &op);

} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_CALL_H
