//===- Units.h - Quantities with units --------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every quantity a person writes carries its unit; a bare number is an error.
// Binary prefixes (KiB, MiB, GiB, TiB) are powers of 1024, decimal ones (kB,
// MB, GB, TB) powers of 1000.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_UNITS_H
#define GALVATRON_SUPPORT_UNITS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace galvatron {

/// Time in whole picoseconds. The search adds and compares times in this type,
/// so that sums do not depend on their order and ties are ties.
using Picoseconds = int64_t;

/// More than anything takes; sums of a few of them do not overflow.
constexpr Picoseconds kNoBound = std::numeric_limits<Picoseconds>::max() / 4;

/// An error that holds `message`, for libraries without MLIR.
llvm::Error makeError(const llvm::Twine &message);

/// "24GiB", "512 MiB", "1.5GB", "64B" -> whole bytes (rounded to nearest).
llvm::Expected<int64_t> parseBytes(llvm::StringRef text);
/// "12.5GB/s" -> bytes per second.
llvm::Expected<double> parseBandwidth(llvm::StringRef text);
/// "10us", "1.5ms", "2s", "80ns" -> seconds.
llvm::Expected<double> parseSeconds(llvm::StringRef text);
/// "16.3TFLOPS", "61GFLOPS" -> floating-point operations per second.
llvm::Expected<double> parseFlops(llvm::StringRef text);

/// Shortest text that the parser above reads back as the same value: a binary
/// prefix where it divides, plain bytes otherwise.
std::string printBytes(int64_t bytes);
/// Prints bytes for tables and messages: three significant digits and a binary
/// prefix, "7.91 GiB".
std::string printBytesRounded(int64_t bytes);
/// Prints a count for tables and messages: three significant digits, "124M",
/// "65.9k", "1.30B".
std::string printCountRounded(double count);
/// Prints a rate for tables and messages: three significant digits, "12.3
/// TFLOP/s".
std::string printFlopsRounded(double flopsPerSecond);
std::string printBandwidth(double bytesPerSecond);
std::string printSeconds(double seconds);
std::string printFlops(double flopsPerSecond);

/// Rounds `bytes` up to the alignment of every buffer, 64.
inline int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// The most that the values of one layer, or one parameter, may take together,
/// 64 TiB: sums over thousands of layers stay below kBeyondMemory.
constexpr int64_t kMostLayerBytes = int64_t(1) << 46;
/// More bytes than any device has; sums of eight do not overflow.
constexpr int64_t kBeyondMemory = int64_t(1) << 59;

/// a + b and a * b of numbers that are not negative, at most kBeyondMemory.
inline int64_t addBytes(int64_t a, int64_t b) {
  return std::min(std::min(a, kBeyondMemory) + std::min(b, kBeyondMemory),
                  kBeyondMemory);
}
inline int64_t multiplyBytes(int64_t a, int64_t b) {
  return static_cast<int64_t>(
      std::min<__int128>(static_cast<__int128>(a) * b, kBeyondMemory));
}

/// Three days and more. No search adds up times that long: it refuses them.
constexpr Picoseconds kMostTime = Picoseconds(1) << 58;

/// Rounded to nearest; kMostTime for all that is longer.
Picoseconds toPicoseconds(double seconds);
inline double toMilliseconds(Picoseconds time) {
  return static_cast<double>(time) / 1e9;
}

} // namespace galvatron

#endif // GALVATRON_SUPPORT_UNITS_H
