//===- fuzz_shards.cpp - Indices of files of tokens -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/shard_index.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    ShardIndex index = parseShardIndex(fuzzText(data, size), size, "fuzzed");
    // What it says of its length is so.
    if (index.bytes() != size || (index.width != 2 && index.width != 4))
      std::abort();
  });
  return 0;
}
