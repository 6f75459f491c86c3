//===- fuzz_harmony.cpp - Layers by micro-batch size ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/HarmonyProfile.h"
#include "galvatron/Support/Json.h"

#include <cstdlib>

using namespace galvatron;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  llvm::Expected<llvm::json::Value> value = parseJson(text, "fuzzed");
  if (!value) {
    llvm::consumeError(value.takeError());
    return 0;
  }
  auto profile = HarmonyProfile::fromJson(*value, "fuzzed");
  if (!profile && llvm::toString(profile.takeError()).empty())
    std::abort();
  return 0;
}
