//===- fuzz_profile.cpp - Layer profiles ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ProfileLayerModel.h"
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
  auto model = ProfileLayerModel::fromJson(*value, "fuzzed");
  if (!model && llvm::toString(model.takeError()).empty())
    std::abort();
  return 0;
}
