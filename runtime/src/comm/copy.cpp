//===- copy.cpp - Copies that leave the caches alone ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/copy.h"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace grt {

#ifdef __x86_64__
namespace {

constexpr uint64_t lineBytes = 64;

// These functions copy whole cache lines to an aligned place.

void copyLines128(char *to, const char *from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += 16)
    _mm_stream_si128(
        reinterpret_cast<__m128i *>(to + at),
        _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + at)));
}

__attribute__((target("avx"))) void copyLines256(char *to, const char *from,
                                                 uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += 32)
    _mm256_stream_si256(
        reinterpret_cast<__m256i *>(to + at),
        _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + at)));
}

__attribute__((target("avx512f"))) void copyLines512(char *to, const char *from,
                                                     uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + at),
                        _mm512_loadu_si512(from + at));
}

using CopyLines = void (*)(char *, const char *, uint64_t);

CopyLines bestCopy() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f"))
    return copyLines512;
  if (__builtin_cpu_supports("avx"))
    return copyLines256;
  return copyLines128;
}

} // namespace

void streamCopy(void *to, const void *from, uint64_t bytes) {
  static const CopyLines copyLines = bestCopy();
  char *target = static_cast<char *>(to);
  const char *source = static_cast<const char *>(from);
  // Ordinary stores copy the bytes before the first whole line and after the
  // last one.
  uint64_t head = -reinterpret_cast<uint64_t>(target) % lineBytes;
  head = std::min(head, bytes);
  uint64_t body = (bytes - head) / lineBytes * lineBytes;
  if (head)
    std::memcpy(target, source, head);
  if (body)
    copyLines(target + head, source + head, body);
  if (head + body < bytes)
    std::memcpy(target + head + body, source + head + body,
                bytes - head - body);
}

void endStreaming() { _mm_sfence(); }

#else

void streamCopy(void *to, const void *from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
void endStreaming() {}

#endif

void copyToAll(std::span<char *const> places, const void *from, uint64_t bytes,
               uint64_t whole) {
  // Stays in the first-level cache from the first place to the last.
  constexpr uint64_t chunk = 16384;
  const char *source = static_cast<const char *>(from);
  bool streams = whole >= streamingBytes;
  for (uint64_t at = 0; at < bytes; at += chunk) {
    uint64_t part = std::min(chunk, bytes - at);
    for (char *place : places)
      if (streams)
        streamCopy(place + at, source + at, part);
      else
        std::memcpy(place + at, source + at, part);
  }
  if (streams)
    endStreaming();
}

} // namespace grt
