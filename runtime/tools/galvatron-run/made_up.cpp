//===- made_up.cpp - Data for steps that are only timed -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "made_up.h"

#include <algorithm>
#include <cstring>

using namespace grt;

namespace {

/// Values in (-1, 1), or integers below the datum's bound.
void makeUp(const Datum &datum, int64_t samples, std::vector<char> &bytes) {
  size_t count = size_t(samples * datum.elements());
  size_t width = size_t(datum.bytesPerSample) / size_t(datum.elements());
  bytes.resize(count * width);
  for (size_t i = 0; i < count; ++i) {
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed ^= mixed >> 31;
    char *to = bytes.data() + i * width;
    double real = double(int64_t(mixed) >> 11) * 0x1p-52;
    auto single = float(real);
    if (datum.type == GRT_I32) {
      auto value = int32_t(mixed % uint64_t(std::max<int64_t>(datum.below, 1)));
      std::memcpy(to, &value, width);
    } else if (width == sizeof(double)) {
      std::memcpy(to, &real, width);
    } else if (width == sizeof(float)) {
      std::memcpy(to, &single, width);
    } else { // bf16: the upper half of a float
      std::memcpy(to, reinterpret_cast<char *>(&single) + sizeof(float) - width,
                  width);
    }
  }
}

} // namespace

DataBatch madeUpBatch(const Program &program) {
  DataBatch batch;
  for (const Datum &datum : program.data())
    makeUp(datum, program.batchSize(), batch.emplace_back());
  return batch;
}
