//===- sum.h - Sums and the largest, the same everywhere ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_SUM_H
#define GRT_COMM_SUM_H

#include "base/error.h"
#include "base/values.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace grt {

/// Elements are summed in blocks that stay in the first-level cache.
inline constexpr uint64_t sumBlockElements = 1024;

/// Elements are stored as Type and joined, two by two, as Sum; a result is
/// rounded once.
template <typename T> struct Exact {
  using Type = T;
  using Sum = T;
  static T join(T a, T b) { return a + b; }
  static T wide(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Bfloat16 {
  using Type = uint16_t;
  using Sum = float;
  static float join(float a, float b) { return a + b; }
  static float wide(uint16_t bits) {
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
  /// Rounds to the nearest, ties to even.
  static uint16_t narrow(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16_t(value == value ? rounded : bits >> 16 | 0x40u);
  }
};

/// Elements of which the largest is taken.
template <typename E> struct Largest : E {
  using Sum = typename E::Sum;
  static Sum join(Sum a, Sum b) { return a < b ? b : a; }
};

template <typename E> void addInto(void *out, const void *in, uint64_t bytes) {
  using T = typename E::Type;
  T *to = static_cast<T *>(out);
  const T *from = static_cast<const T *>(in);
  for (uint64_t i = 0; i < bytes / sizeof(T); ++i)
    to[i] = E::narrow(E::wide(to[i]) + E::wide(from[i]));
}

/// Joins `count` elements of all members in the order of the members, then with
/// what stands in `onto`, if anything does, and hands each block to
/// `write(first, count, sums)`, as stored. `valuesOf(member)` is where a
/// member's elements begin.
template <typename E, typename Values, typename Write>
void sumInOrder(int members, uint64_t count, const typename E::Type *onto,
                Values valuesOf, Write write) {
  using T = typename E::Type;
  alignas(64) typename E::Sum sums[sumBlockElements];
  for (uint64_t first = 0; first < count; first += sumBlockElements) {
    uint64_t part = std::min(sumBlockElements, count - first);
    const T *values = valuesOf(0) + first;
    for (uint64_t i = 0; i < part; ++i)
      sums[i] = E::wide(values[i]);
    for (int member = 1; member < members; ++member) {
      values = valuesOf(member) + first;
      for (uint64_t i = 0; i < part; ++i)
        sums[i] = E::join(sums[i], E::wide(values[i]));
    }
    if (onto)
      for (uint64_t i = 0; i < part; ++i)
        sums[i] = E::join(sums[i], E::wide(onto[first + i]));
    if constexpr (std::is_same_v<T, typename E::Sum>) {
      write(first, part, sums);
    } else {
      alignas(64) T stored[sumBlockElements];
      for (uint64_t i = 0; i < part; ++i)
        stored[i] = E::narrow(sums[i]);
      write(first, part, stored);
    }
  }
}

/// Calls `body` with what is to know of the element type.
template <typename Body> void dispatchSum(grt_dtype dtype, Body body) {
  switch (dtype) {
  case GRT_F32:
    return body(Exact<float>());
  case GRT_F64:
    return body(Exact<double>());
  case GRT_BF16:
    return body(Bfloat16());
  default:
    fail(std::string("expected elements of f32, f64 or bf16 to sum, found ") +
         dtypeName(dtype));
  }
}

/// Calls `body` with the element type of `dtype`, joined by the larger one.
template <typename Body> void dispatchLargest(grt_dtype dtype, Body body) {
  switch (dtype) {
  case GRT_F32:
    return body(Largest<Exact<float>>());
  case GRT_F64:
    return body(Largest<Exact<double>>());
  case GRT_BF16:
    return body(Largest<Bfloat16>());
  case GRT_I32:
    return body(Largest<Exact<int32_t>>());
  case GRT_U8:
    return body(Largest<Exact<uint8_t>>());
  }
  fail(std::string("expected elements of a known type to compare, found ") +
       dtypeName(dtype));
}

/// The part [begin, end) of `count` elements that a member of a group sums, in
/// whole cache lines.
inline std::pair<uint64_t, uint64_t> partOf(uint64_t count, int members,
                                            int index) {
  constexpr uint64_t line = 16;
  uint64_t lines = (count + line - 1) / line;
  uint64_t begin = lines * uint64_t(index) / uint64_t(members) * line;
  uint64_t end = lines * uint64_t(index + 1) / uint64_t(members) * line;
  return {std::min(begin, count), std::min(end, count)};
}

} // namespace grt

#endif // GRT_COMM_SUM_H
