//===- fuzz_image.cpp - Shared objects of programs ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/image.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] { checkImage(fuzzText(data, size)); });
  return 0;
}
