//===- init.h - Initial weights -------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_INIT_H
#define GRT_CORE_INIT_H

#include "base/hash.h"
#include "core/manifest.h"
#include "grt/philox.h"

#include <initializer_list>
#include <span>
#include <vector>

namespace grt {

/// sums[i] = sum of the upper 24 bits of the twelve numbers of element
/// first + i, for i < irwinHallBlock: philox() of the counters (first + i,
/// third) for third < 3.
using IrwinHallSums = void (*)(PhiloxKey key, uint64_t first, int32_t *sums);
constexpr int64_t irwinHallBlock = 256;
/// Functions that this machine can run, the fastest last. All make the same
/// integers; initialValues takes the last one, a test all.
std::vector<IrwinHallSums> irwinHallFunctions();

/// Writes initial values of elements [first, first + count) of a parameter, in
/// its Hugging Face layout, to `out` of type `dtype`. A value depends only on
/// the seed, the parameter's name and the element's index: normal values are
/// sums of twelve 24-bit numbers of Philox (Irwin-Hall), centred and scaled by
/// one multiplication, so no libm and no rounding mode of sums is involved.
void initialValues(const Parameter &parameter, uint64_t seed, int64_t first,
                   int64_t count, grt_dtype dtype, void *out);

/// Where values of a type go.
struct TypedMemory {
  grt_dtype dtype;
  void *to;
};
/// The same into several places: each value is drawn once.
void initialValues(const Parameter &parameter, uint64_t seed, int64_t first,
                   int64_t count, std::initializer_list<TypedMemory> out);

} // namespace grt

#endif // GRT_CORE_INIT_H
