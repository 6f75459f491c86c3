//===- copy.h - Copies that leave the caches alone ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An ordinary store to memory that is in no cache reads the line before it
// writes it: a copy of n bytes moves 3n. A streaming store moves 2n, and what
// it wrote is in no cache afterwards.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_COPY_H
#define GRT_COMM_COPY_H

#include <cstdint>
#include <span>

namespace grt {

/// Results of at least so many bytes are written past the caches: about what
/// the second level holds, so that the reader would miss it there anyway.
inline constexpr uint64_t streamingBytes = uint64_t(2) << 20;

/// Copies without reading the destination, by the widest stores that the
/// machine has. `endStreaming` makes the stores visible to other threads.
void streamCopy(void *to, const void *from, uint64_t bytes);
void endStreaming();

/// Copies `bytes` bytes to every place, reading them once from memory; streams
/// if `whole`, the bytes of all the data that these belong to, is large.
void copyToAll(std::span<char *const> places, const void *from, uint64_t bytes,
               uint64_t whole);

} // namespace grt

#endif // GRT_COMM_COPY_H
