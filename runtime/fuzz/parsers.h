//===- parsers.h - Entry functions of the fuzzers ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every fuzzer is one entry function in libFuzzer's form over one parser. With
// -DGALVATRON_FUZZ=ON (clang) libFuzzer drives it; in other builds replay.cpp
// runs it over the kept corpus, as a test.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_FUZZ_PARSERS_H
#define GRT_FUZZ_PARSERS_H

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace grt {

inline std::string_view fuzzText(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// Runs a parser, which may refuse its input in one way only: an Error with the
/// exit code of invalid input and a message.
template <typename Parser> void expectParsesOrRefuses(Parser parser) {
  try {
    parser();
  } catch (const Error &error) {
    if (error.exitCode() != 2 || std::string_view(error.what()).empty())
      std::abort();
  }
}

} // namespace grt

#endif // GRT_FUZZ_PARSERS_H
