//===- failure_numbers.h - Failures that ranks can gather -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_FAILURE_NUMBERS_H
#define GRT_CORE_FAILURE_NUMBERS_H

#include "base/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace grt {

/// A failure as numbers that ranks can gather: the exit code (0: none), the
/// length of the message, then its bytes, as many in each number as a double
/// holds exactly. Longer messages are cut.
struct FailureNumbers {
  static constexpr size_t bytesEach = 6, textBytes = 768;
  static constexpr size_t count = 2 + textBytes / bytesEach;

  static void encode(const Error &error, double *to) {
    std::string text = error.what();
    text.resize(std::min(text.size(), textBytes));
    *to++ = error.exitCode();
    *to++ = double(text.size());
    for (size_t at = 0; at < text.size(); at += bytesEach) {
      uint64_t packed = 0;
      for (size_t b = 0; b < bytesEach && at + b < text.size(); ++b)
        packed |= uint64_t(uint8_t(text[at + b])) << (8 * b);
      *to++ = double(packed);
    }
  }

  static Error decode(const double *from) {
    int code = int(from[0]);
    std::string text(std::min(size_t(from[1]), textBytes), ' ');
    for (size_t i = 0; i < text.size(); ++i)
      text[i] =
          char(uint64_t(from[2 + i / bytesEach]) >> (8 * (i % bytesEach)));
    return {code, text};
  }
};

} // namespace grt

#endif // GRT_CORE_FAILURE_NUMBERS_H
