//===- sha256.h - SHA-256 -------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_SHA256_H
#define GRT_BASE_SHA256_H

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace grt {

/// SHA-256 (FIPS 180-4) of `bytes`.
std::array<uint8_t, 32> sha256(std::string_view bytes);

/// Bytes as hexadecimal digits, and the SHA-256 of bytes as 64 of them.
std::string hexadecimal(std::string_view bytes);
std::string hashText(std::string_view bytes);

} // namespace grt

#endif // GRT_BASE_SHA256_H
