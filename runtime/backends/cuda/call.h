//===- call.h - A kernel call, taken apart ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CUDA_CALL_H
#define GRT_BACKENDS_CUDA_CALL_H

#include "rank.h"

#include "../common/call.h"

namespace grt::cuda {

/// A call of a rank of this backend.
class Call : public CallReader {
public:
  using CallReader::CallReader;
  /// On the device.
  grt_step *step() const { return call.step; }
  Rank &rank() const { return *static_cast<Rank *>(call.rank_state); }
  Queue queue() const { return rank().queue(nameOf(op())); }
};

/// run<Name>, of every kernel of the list, for whose types it is made where it
/// is defined.
#define GRT_KERNEL(NAME, Name, ...)                                            \
  template <class T> void run##Name(const Call &call);
#include GRT_KERNEL_LIST

/// Makes run<Name> for every type; it stands behind the definition.
#define GRT_CUDA_KERNEL(Name)                                                  \
  template void run##Name<float>(const Call &);                                \
  template void run##Name<double>(const Call &);                               \
  template void run##Name<BF16>(const Call &);

/// GEMM and those that do more with its result.
bool isProduct(uint32_t kernel);
/// Chooses how the library makes the product of such a call.
void prepareProduct(Rank &rank, const grt_kernel_op &op);

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_CALL_H
