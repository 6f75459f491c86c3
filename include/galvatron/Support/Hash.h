//===- Hash.h - Content hashes ----------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_HASH_H
#define GALVATRON_SUPPORT_HASH_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace galvatron {

/// The first 16 hexadecimal digits of the SHA-256 of `text`: names a model, a
/// cluster or a profile in plans, the same on every machine.
std::string contentHash(llvm::StringRef text);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_HASH_H
