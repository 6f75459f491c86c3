//===- fuzz_megatron.cpp - Megatron-LM's indices --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/documents.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    MegatronIndex index =
        parseMegatronIndex(fuzzText(data, size), size, "fuzzed");
    // What it says of its length is so.
    if (index.bytes() != size || index.width == 0 || index.sequences == 0)
      std::abort();
  });
  return 0;
}
