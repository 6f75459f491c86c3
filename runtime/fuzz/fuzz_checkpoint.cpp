//===- fuzz_checkpoint.cpp - checkpoint.json ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/state.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    CheckpointManifest manifest =
        parseCheckpointManifest(fuzzText(data, size), "fuzzed");
    // What was read is what is written again.
    std::string text = writeCheckpointManifest(manifest);
    if (writeCheckpointManifest(parseCheckpointManifest(text, "again")) != text)
      std::abort();
  });
  return 0;
}
