//===- values.cpp - Values of element types -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/values.h"
#include "base/error.h"

#include <bit>
#include <cstring>
#include <string>

namespace grt {

namespace {

[[noreturn]] void refuseType(uint32_t dtype, const char *expected) {
  fail("expected elements of " + std::string(expected) + ", found " +
       (dtype <= GRT_U8 ? dtypeName(dtype) : "type " + str(dtype)));
}

} // namespace

uint64_t dtypeBytes(uint32_t dtype) {
  switch (dtype) {
  case GRT_F64:
    return 8;
  case GRT_F32:
  case GRT_I32:
    return 4;
  case GRT_BF16:
    return 2;
  case GRT_U8:
    return 1;
  }
  refuseType(dtype, "a known type");
}

const char *dtypeName(uint32_t dtype) {
  static const char *const names[] = {"f32", "f64", "bf16", "i32", "u8"};
  return dtype < 5 ? names[dtype] : "unknown";
}

void storeValues(const double *values, int64_t count, grt_dtype dtype,
                 void *out) {
  if (dtype == GRT_F64) {
    std::memcpy(out, values, size_t(count) * sizeof(double));
  } else if (dtype == GRT_F32) {
    float *to = static_cast<float *>(out);
    for (int64_t i = 0; i < count; ++i)
      to[i] = float(values[i]);
  } else {
    if (dtype != GRT_BF16)
      refuseType(dtype, "f64, f32 or bf16");
    uint16_t *to = static_cast<uint16_t *>(out);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = std::bit_cast<uint32_t>(float(values[i]));
      bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
      to[i] = nan ? uint16_t(bits >> 16 | 0x40u)
                  : uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  }
}

void storeValues(const Datum &datum, std::span<const double> values,
                 char *out) {
  if (datum.type != GRT_I32)
    return storeValues(values.data(), int64_t(values.size()),
                       grt_dtype(datum.type), out);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto integer = int32_t(values[i]);
    std::memcpy(out + i * sizeof(integer), &integer, sizeof(integer));
  }
}

void loadValues(const void *in, int64_t count, grt_dtype dtype,
                double *values) {
  if (dtype == GRT_F64) {
    std::memcpy(values, in, size_t(count) * sizeof(double));
  } else if (dtype == GRT_F32) {
    const float *from = static_cast<const float *>(in);
    for (int64_t i = 0; i < count; ++i)
      values[i] = from[i];
  } else {
    if (dtype != GRT_BF16)
      refuseType(dtype, "f64, f32 or bf16");
    const uint16_t *from = static_cast<const uint16_t *>(in);
    for (int64_t i = 0; i < count; ++i)
      values[i] = std::bit_cast<float>(uint32_t(from[i]) << 16);
  }
}

} // namespace grt
