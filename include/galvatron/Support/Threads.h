//===- Threads.h - Independent parts on several threads ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_THREADS_H
#define GALVATRON_SUPPORT_THREADS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <cstddef>
#include <memory>

namespace galvatron {

/// Threads of one process that share the parts of a computation. Callers give
/// parts that do not depend on each other, so that results are the same for any
/// number of threads.
class Threads {
public:
  /// So many threads work at the same time; 0: one for each processor that the
  /// process may run on. A single one is the calling thread, which otherwise
  /// waits for the others.
  explicit Threads(unsigned count);
  Threads(const Threads &) = delete;
  Threads &operator=(const Threads &) = delete;

  unsigned count() const { return number; }
  /// Calls `part` with each number below `parts` and returns once all calls
  /// have. A part may call this, too.
  void forEach(size_t parts, llvm::function_ref<void(size_t)> part);

private:
  unsigned number;
  std::unique_ptr<llvm::DefaultThreadPool> pool; ///< null for one thread
};

/// Calls `part` with each number below `parts`: on these threads, or in order
/// where there are none.
void forEachOn(Threads *threads, size_t parts,
               llvm::function_ref<void(size_t)> part);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_THREADS_H
