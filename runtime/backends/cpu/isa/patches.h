//===- patches.h - Images as rows of patches ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_PATCHES_H
#define GRT_BACKENDS_CPU_ISA_PATCHES_H

#include "vector.h"

namespace grt::cpu {
namespace {

template <class T>
void patches(int threads, const PatchArguments &a, const T *images, T *y) {
  // A padded patch has zeros where the image ends.
  const int64_t down =
      (a.rows + (a.padded ? a.patchRows - 1 : 0)) / a.patchRows;
  const int64_t across =
      (a.cols + (a.padded ? a.patchCols - 1 : 0)) / a.patchCols;
  const int64_t elements = a.channels * a.patchRows * a.patchCols;
  parallelFor(threads, a.samples * down * across, rowGrain(elements),
              [&](int, int64_t begin, int64_t end) {
                for (int64_t patch = begin; patch < end; ++patch) {
                  int64_t sample = patch / (down * across);
                  int64_t top = patch / across % down * a.patchRows;
                  int64_t left = patch % across * a.patchCols;
                  T *out = y + patch * elements;
                  for (int64_t c = 0; c < a.channels; ++c)
                    for (int64_t i = 0; i < a.patchRows; ++i) {
                      const T *row =
                          images +
                          ((sample * a.channels + c) * a.rows + top + i) *
                              a.cols +
                          left;
                      int64_t there = top + i < a.rows
                                          ? smaller(a.patchCols, a.cols - left)
                                          : 0;
                      if (there > 0)
                        __builtin_memcpy(out, row, size_t(there) * sizeof(T));
                      __builtin_memset(out + there, 0,
                                       size_t(a.patchCols - there) * sizeof(T));
                      out += a.patchCols;
                    }
                }
              });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_PATCHES_H
