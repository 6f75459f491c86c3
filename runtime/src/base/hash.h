//===- hash.h - A hash of names -------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_HASH_H
#define GRT_BASE_HASH_H

#include <cstdint>
#include <string_view>

namespace grt {

/// FNV-1a, 64 bits.
inline uint64_t hashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

} // namespace grt

#endif // GRT_BASE_HASH_H
