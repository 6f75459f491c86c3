//===- rank.h - What the CPU backend keeps for one rank -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_RANK_H
#define GRT_BACKENDS_CPU_RANK_H

#include "grt/backend.h"
#include "kernels.h"

#include <cstddef>
#include <memory>

namespace grt::cpu {

/// Pages from the system: zero, aligned to 4096 bytes, taken up on first touch.
/// Null when there are none. Large ones ask for huge pages.
void *mapPages(size_t bytes);
void unmapPages(void *memory, size_t bytes);

/// Memory of an arena with a window; null if there is no such memory or the
/// window does not lie at multiples of the page size.
void *mapArena(const grt_arena *arena);
void unmapArena(void *memory, const grt_arena *arena);

/// Owns mapped pages.
class Pages {
public:
  /// Throws std::bad_alloc.
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;
  char *data() const { return memory; }
  size_t size() const { return bytes; }

private:
  char *memory;
  size_t bytes;
};

/// Memory that a call may use while it runs.
struct Scratch {
  char *memory = nullptr;
  uint64_t bytes = 0;
};

/// The shape of one product: sizes, what is transposed, what happens to c, and
/// whether operands (a, b and the bias) and c are BF16; they are f32 if not.
struct GemmShape {
  int64_t m, n, k;
  bool transA, transB, bias, add;
  bool narrow, narrowResult;
  /// Returns how many of the rank's `all` threads the product is worth.
  int threadsOf(int all) const {
    return 2.0 * double(m * n) * double(k) < GRT_CPU_SERIAL_OPERATIONS ? 1
                                                                       : all;
  }
  bool operator==(const GemmShape &) const = default;
};

/// f32 and bf16 products through oneDNN, primitives cached by shape.
class OneDnnGemm {
public:
  explicit OneDnnGemm(int threads);
  ~OneDnnGemm();
  /// c = op(a) op(b) (+ c) (+ bias); throws on failure. False, and nothing is
  /// done, where oneDNN has no fast code for the shape on this machine, wants
  /// more than the scratch, or would take memory of its own in every call.
  bool run(const GemmShape &shape, const void *a, const void *b, void *c,
           const void *bias, Scratch scratch);
  /// Makes the primitive of a shape for calls with that much scratch.
  void prepare(const GemmShape &shape, uint64_t scratchBytes);

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

/// The state behind grt_call::rank_state. Made and used on the rank's thread.
struct Rank {
  explicit Rank(int threads);

  int threads;
  const KernelTables &tables;
  OneDnnGemm oneDnn;
  /// The scratch of products whose call names none, which no call of a compiled
  /// program is. It is as large as the largest seen.
  std::unique_ptr<Pages> ownScratch;
  Scratch reserveScratch(uint64_t bytes);

  template <class T> const KernelTable<T> &table() const;
};
template <> inline const KernelTable<float> &Rank::table<float>() const {
  return tables.f32;
}
template <> inline const KernelTable<double> &Rank::table<double>() const {
  return tables.f64;
}
template <> inline const KernelTable<BF16> &Rank::table<BF16>() const {
  return tables.bf16;
}

/// The best tables that this machine can run, or those that the environment
/// variable GRT_CPU_ISA asks for (`base`, `avx2`, `avx512`) if it can run them.
const KernelTables &kernelTables();

} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_RANK_H
