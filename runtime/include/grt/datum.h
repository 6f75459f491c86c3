//===- datum.h - What a program reads with every sample -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATUM_H
#define GRT_DATUM_H

#include "grt/abi.h"

#include <cstdint>
#include <string>
#include <vector>

namespace grt {

/// One of the model's data: values that the loader delivers with every sample.
/// What is done with it follows from these facts; the kind is for messages, and
/// for what a file is taken for.
struct Datum {
  std::string name, kind;
  uint32_t type = GRT_I32;    ///< grt_dtype: i32 or the model's floating type
  std::vector<int64_t> shape; ///< of one sample
  uint64_t bytesPerSample = 0;
  /// Bound of integers, which are not negative unless `counted`; 0: no
  /// integers.
  int64_t below = 0;
  /// The loss is a mean over its values that are not negative.
  bool counted = false;

  /// Values of one sample.
  int64_t elements() const {
    int64_t total = 1;
    for (int64_t dim : shape)
      total *= dim;
    return total;
  }
};

/// True if the values of a datum are rows of a cache, or -1 for samples of
/// none.
inline bool mayHaveNoRow(const Datum &datum) {
  return datum.kind == "cache_rows" || datum.kind == "source_rows";
}

/// Samples [first, first + count) of a batch.
struct SampleRange {
  int64_t first = 0, count = 0;
};

/// The samples of a batch that some rank reads, for each of a program's data:
/// ranges that do not touch, ascending.
using SamplesRead = std::vector<std::vector<SampleRange>>;

/// The values of each of a program's data for a number of samples, row-major
/// with the samples first.
using DataBatch = std::vector<std::vector<char>>;

} // namespace grt

#endif // GRT_DATUM_H
