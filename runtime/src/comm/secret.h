//===- secret.h - What the processes of a run know and strangers do not ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Message authentication codes are HMAC-SHA256 (RFC 2104) of OpenSSL's
// libcrypto. A runtime built without it runs everything but several processes,
// and says so.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_SECRET_H
#define GRT_COMM_SECRET_H

#include <string>
#include <string_view>

namespace grt {

/// A secret has at least so many bytes. Answers to a stranger can be tried
/// against guesses offline; 16 random bytes stand that.
inline constexpr size_t leastSecretBytes = 16;

/// Bytes of a code, and of a number that is used once.
inline constexpr size_t codeBytes = 32;

/// The secret in a file, which nobody else may read (mode 0600 or less, of this
/// user), or, without a name, that of GALVATRON_LAUNCH_SECRET; empty if there
/// is none. Spaces and line ends around it do not count. Throws Error (2).
std::string launchSecret(const std::string &file);

/// HMAC-SHA256 of `text`. Throws Error (2) where libcrypto is missing.
std::string authenticationCode(std::string_view key, std::string_view text);
/// True if two codes are equal; the time it takes does not depend on where they
/// differ.
bool sameCode(std::string_view one, std::string_view other);

} // namespace grt

#endif // GRT_COMM_SECRET_H
