//===- kernel_cases.h - A call of every kernel, and what bounds it --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The shapes are those of one layer in bf16. Bytes and operations follow from a
// call's descriptor, so that the first run on a device has times to fill in and
// nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_KERNEL_CASES_H
#define GRT_BACKENDS_CUDA_TESTS_KERNEL_CASES_H

#include "device_probe.h"

#include <string>

namespace grt::test {

struct KernelCase {
  std::string name;
  grt_kernel kernel;
  std::vector<profile::DeviceProbe::Buffer> buffers;
  std::vector<int64_t> ints;
  std::vector<double> reals = {};
};

/// At least one call of every kernel, in the order of their numbers: `rows`
/// tokens of `width` elements, in sequences of 1024 or fewer that divide them;
/// heads of 64; 50304 words. Images have as many patches as there are tokens,
/// or one image's. Throws std::invalid_argument where width is no multiple of
/// 64, or rows of the length of a sequence.
std::vector<KernelCase> kernelCases(int64_t rows, int64_t width);

/// What a call cannot do without.
struct KernelWork {
  /// Of the device's memory: what is read once and what is written once. Of a
  /// table that is looked up the rows that are; of matrices that lie in others
  /// their own elements. What a call adds to counts once: `acc` is 0 in all
  /// cases above.
  uint64_t bytes = 0;
  /// Additions and multiplications of matrix products, 2 M N K each, which
  /// tensor cores do; of attention those of the scores that are seen, two
  /// products forward and five backward. 0: memory bounds the kernel.
  uint64_t operations = 0;
};
KernelWork workOf(const grt_kernel_op &op);
KernelWork workOf(const KernelCase &call);

} // namespace grt::test

#endif // GRT_BACKENDS_CUDA_TESTS_KERNEL_CASES_H
