//===- fuzz_index.cpp - Indices of sharded models -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/checkpoint.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    for (const std::string &file :
         indexedFiles(fuzzText(data, size), "fuzzed", "folder"))
      if (file.find('/') != 6 || file.find('/', 7) != std::string::npos)
        std::abort(); // it would lead out of the folder
  });
  return 0;
}
