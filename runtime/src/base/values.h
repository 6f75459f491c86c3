//===- values.h - Values of element types ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_VALUES_H
#define GRT_BASE_VALUES_H

#include "grt/abi.h"
#include "grt/datum.h"

#include <cstdint>
#include <span>

namespace grt {

// Functions of element types throw Error where they do not know one.

/// Bytes of one element.
uint64_t dtypeBytes(uint32_t dtype);
/// For messages: "unknown" of a type that the ABI lacks.
const char *dtypeName(uint32_t dtype);

/// Converts `count` values; bf16 rounds to nearest, ties to even.
void storeValues(const double *values, int64_t count, grt_dtype dtype,
                 void *out);
/// Values as a datum has them: integers, or the model's type.
void storeValues(const Datum &datum, std::span<const double> values, char *out);
void loadValues(const void *in, int64_t count, grt_dtype dtype, double *values);

} // namespace grt

#endif // GRT_BASE_VALUES_H
