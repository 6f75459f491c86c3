//===- fuzz_safetensors.cpp - Headers of safetensors files ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/safetensors.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    auto tensors = parseSafetensorsHeader(fuzzText(data, size), size, "fuzzed");
    // What later code relies on: everything lies in the file.
    for (const auto &[name, tensor] : tensors)
      if (tensor.offset > size || tensor.bytes > size - tensor.offset)
        std::abort();
  });
  return 0;
}
