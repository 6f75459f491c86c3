//===- call.h - A kernel call, taken apart
//---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_CALL_H
#define GRT_BACKENDS_CPU_CALL_H

#include "rank.h"

#include "grt/backend.h"

#include <stdexcept>
#include <string>

namespace grt::cpu {

/// A call that cannot be carried out; becomes its message.
class CallError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Reads the descriptor of one call. Counts were checked before.
class Call {
public:
  explicit Call(const grt_call &call) : call(call) {}

  const grt_kernel_op &op() const { return *call.op; }
  template <class T> T *buffer(int i) const {
    return static_cast<T *>(call.buffers[i]);
  }
  const grt_buffer &descriptor(int i) const { return call.op->buffers[i]; }
  int64_t integer(int i) const { return call.op->ints[i]; }
  double real(int i) const { return call.op->reals[i]; }
  const int64_t *integers() const { return call.op->ints; }
  int bufferCount() const { return int(call.op->buffer_count); }
  int64_t integerCount() const { return call.op->int_count; }

  /// What an `acc` of abi.h means for this call.
  bool add(int64_t acc) const { return acc == 1 || (acc == 2 && accumulate()); }
  bool accumulate() const { return call.accumulate != 0; }
  const grt_coordinates &at() const { return *call.coordinates; }
  grt_step &step() const { return *call.step; }
  Rank &rank() const { return *static_cast<Rank *>(call.rank_state); }
  int threads() const { return rank().threads; }
  template <class T> const KernelTable<T> &table() const {
    return rank().table<T>();
  }

private:
  const grt_call &call;
};

/// How a kernel's descriptor must look, and its code for every type.
struct KernelEntry {
  const char *name;
  int buffers, ints, reals; ///< least counts
  int typed;                ///< the buffer whose dtype decides; -1 none
  void (*f32)(const Call &call);
  void (*f64)(const Call &call);
  void (*bf16)(const Call &call);
};

/// Indexed by grt_kernel.
extern const KernelEntry kernelEntries[GRT_KERNEL_COUNT];

/// The shape of a GEMM call that oneDNN may be asked for.
GemmShape gemmShape(const grt_kernel_op &op, bool accumulate);

/// What one worker of an ATTENTION or ATTENTION_GRAD call needs.
uint64_t attentionScratchBytes(const grt_kernel_op &op);

} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_CALL_H
