//===- call_checks.h - Kernel calls of a program that is loaded -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_CALL_CHECKS_H
#define GRT_CORE_CALL_CHECKS_H

#include "grt/kernels.h"

#include <string>
#include <vector>

namespace grt {

struct Layer;

/// What is wrong with a call of a kernel of the list in a function of `layer`,
/// as far as its descriptor and the manifest tell; "" if nothing. Every call of
/// a program is checked once, when its functions are walked before the first
/// step.
std::string wrongCall(const grt_kernel_op &op, const Layer &layer);

/// The integers of an OPTIMIZER call with the decay flags of all segments set.
std::vector<int64_t> decayingAll(const grt_kernel_op &op);

} // namespace grt

#endif // GRT_CORE_CALL_CHECKS_H
