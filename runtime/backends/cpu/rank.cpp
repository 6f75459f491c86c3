//===- rank.cpp - What the CPU backend keeps for one rank -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "rank.h"
#include "team.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace grt::cpu {

void *mapPages(size_t bytes) {
  if (bytes == 0)
    bytes = 1;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  // Products walk over many rows at once: small pages would exhaust the TLB.
  constexpr size_t hugePage = size_t(2) << 20;
  if (bytes >= 2 * hugePage)
    madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void unmapPages(void *memory, size_t bytes) {
  if (memory)
    munmap(memory, bytes == 0 ? 1 : bytes);
}

/// Addresses that an arena with a window takes.
static size_t addressBytes(const grt_arena &arena) {
  return arena.bytes + (arena.window_count - 1) * arena.window_bytes;
}

void *mapArena(const grt_arena *arena) {
  char *memory = static_cast<char *>(mapPages(addressBytes(*arena)));
  if (!memory)
    return nullptr;
  // The private pages under the views are replaced before any was touched.
  int file = memfd_create("grt-window", MFD_CLOEXEC);
  bool mapped = file >= 0 && ftruncate(file, off_t(arena->window_bytes)) == 0;
  for (uint64_t i = 0; mapped && i < arena->window_count; ++i)
    mapped = mmap(memory + arena->window_offset + i * arena->window_stride,
                  arena->window_bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  if (file >= 0)
    close(file);
  if (mapped)
    return memory;
  unmapArena(memory, arena);
  return nullptr;
}

void unmapArena(void *memory, const grt_arena *arena) {
  unmapPages(memory, addressBytes(*arena));
}

Pages::Pages(size_t bytes)
    : memory(static_cast<char *>(mapPages(bytes))), bytes(bytes) {
  if (!memory)
    throw std::bad_alloc();
}

Pages::~Pages() { unmapPages(memory, bytes); }

const KernelTables &kernelTables() {
  static const KernelTables &best = []() -> const KernelTables & {
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") &&
                __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    const char *wish = std::getenv("GRT_CPU_ISA");
    if (wish && !std::strcmp(wish, kernelTablesBase.isa))
      return kernelTablesBase;
    if (wish && !std::strcmp(wish, kernelTablesAvx2.isa) && avx2)
      return kernelTablesAvx2;
    return avx512 ? kernelTablesAvx512
                  : (avx2 ? kernelTablesAvx2 : kernelTablesBase);
  }();
  return best;
}

Rank::Rank(int threads)
    : threads(grt_cpu_team_start(threads)), tables(kernelTables()),
      oneDnn(this->threads) {}

Scratch Rank::reserveScratch(uint64_t bytes) {
  if (!ownScratch || bytes > ownScratch->size()) {
    ownScratch.reset();
    ownScratch = std::make_unique<Pages>(bytes);
  }
  return {ownScratch->data(), ownScratch->size()};
}

} // namespace grt::cpu
