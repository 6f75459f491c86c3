//===- dispatch.h - From calls of the C ABI to inner functions ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per kernel of the list: reads the descriptor, derives what
// depends on the rank's coordinates and on the step, checks data that comes
// from outside (tokens, labels), and calls the table of the instruction set.
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_DISPATCH_H
#define GRT_BACKENDS_CPU_DISPATCH_H

#include "call.h"

namespace grt::cpu {

/// run<Name>, of every kernel of the list.
#define GRT_KERNEL(NAME, Name, ...)                                            \
  template <class T> void run##Name(const Call &call);
#include GRT_KERNEL_LIST

/// Makes run<Name> for every type; it stands behind the definition.
#define GRT_CPU_KERNEL(Name)                                                   \
  template void run##Name<float>(const Call &);                                \
  template void run##Name<double>(const Call &);                               \
  template void run##Name<BF16>(const Call &);

/// The dropout stream of a call; false where nothing is dropped.
bool dropoutStream(const Call &call, double p, int64_t opIndex,
                   DropoutStream &stream);

} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_DISPATCH_H
