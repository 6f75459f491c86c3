//===- Hash.cpp - Content hashes ------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Hash.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;

std::string galvatron::contentHash(StringRef text) {
  SHA256 hash;
  hash.update(text);
  std::array<uint8_t, 32> digest = hash.final();
  return toHex(ArrayRef<uint8_t>(digest), /*LowerCase=*/true).substr(0, 16);
}
