//===- relative.h - Buckets of relative positions -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What RELATIVE_BIAS of grt/kernels.def says of buckets. Logarithms are taken
// once a call, on the host: a device compares integers, so that no backend has
// its own opinion of the first distance of a bucket.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_COMMON_RELATIVE_H
#define GRT_BACKENDS_COMMON_RELATIVE_H

#include "grt/abi.h"

#include <cmath>
#include <stdint.h>

#ifdef __CUDACC__
#define GRT_RELATIVE_FUNCTION __host__ __device__ inline
#else
#define GRT_RELATIVE_FUNCTION inline
#endif

namespace grt {

/// The bucket of every distance from a query to a key.
struct RelativeBuckets {
  int32_t perSide; ///< buckets of distances of one sign
  int32_t near;    ///< of these, buckets of one distance each
  bool bidirectional;
  /// The least distance of every bucket behind the near ones, by its number.
  int64_t least[GRT_RELATIVE_BUCKETS / 2];

  /// The arguments are those of a call that keeps the kernel's rule.
  RelativeBuckets(int64_t buckets, int64_t maxDistance, bool bidirectional)
      : perSide(int32_t(bidirectional ? buckets / 2 : buckets)),
        near(perSide / 2), bidirectional(bidirectional) {
    const double length = std::log(double(maxDistance) / near);
    auto reaches = [&](int64_t distance, int32_t number) {
      return std::log(double(distance) / near) / length * (perSide - near) >=
             number;
    };
    for (int32_t number = 0; number < perSide - near; ++number) {
      int64_t low = near, high = maxDistance;
      while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (reaches(middle, number))
          high = middle;
        else
          low = middle + 1;
      }
      least[number] = low;
    }
  }

  GRT_RELATIVE_FUNCTION int32_t of(int64_t distance) const {
    int32_t first = bidirectional && distance > 0 ? perSide : 0;
    int64_t size = distance < 0 ? -distance : bidirectional ? distance : 0;
    if (size < near)
      return first + int32_t(size);
    // The last bucket that begins at or before it.
    int32_t low = 0, high = perSide - near - 1;
    while (low < high) {
      int32_t middle = (low + high + 1) / 2;
      if (least[middle] <= size)
        low = middle;
      else
        high = middle - 1;
    }
    return first + near + low;
  }
};

} // namespace grt

#endif // GRT_BACKENDS_COMMON_RELATIVE_H
