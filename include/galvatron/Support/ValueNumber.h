//===- ValueNumber.h - Numbers of computed values ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_VALUENUMBER_H
#define GALVATRON_SUPPORT_VALUENUMBER_H

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

#include <cstdint>
#include <string>

namespace galvatron {

/// Collects what a value is made of: an operation, its attributes and the
/// numbers of its operands. Values that are made of the same have one number,
/// in every process; others have different ones but for a chance of 2^-64.
class ValueNumber {
public:
  explicit ValueNumber(llvm::StringRef kind) { add(kind); }

  ValueNumber &add(llvm::StringRef text) {
    add(uint64_t(text.size()));
    parts += text;
    return *this;
  }
  ValueNumber &add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      parts += char(number >> shift);
    return *this;
  }
  uint64_t get() const { return llvm::xxh3_64bits(parts); }
  /// 16 hexadecimal digits.
  std::string str() const {
    std::string digits = llvm::utohexstr(get(), /*LowerCase=*/true);
    return std::string(16 - digits.size(), '0') + digits;
  }

private:
  std::string parts;
};

} // namespace galvatron

#endif // GALVATRON_SUPPORT_VALUENUMBER_H
