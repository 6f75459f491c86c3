//===- Threads.cpp - Independent parts on several threads -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Threads.h"

#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/Threading.h"

#include <algorithm>
#include <atomic>

using namespace llvm;

namespace galvatron {

Threads::Threads(unsigned count)
    : number(count > 0 ? count
                       : hardware_concurrency().compute_thread_count()) {
  if (number > 1)
    pool = std::make_unique<DefaultThreadPool>(hardware_concurrency(number));
}

void Threads::forEach(size_t parts, function_ref<void(size_t)> part) {
  std::atomic<size_t> next = 0;
  auto takeParts = [&] {
    for (size_t i = next++; i < parts; i = next++)
      part(i);
  };
  if (!pool || parts < 2)
    return takeParts();
  // A thread of the pool takes its share; others wait for those of the pool.
  const bool takesShare = pool->isWorkerThread();
  ThreadPoolTaskGroup group(*pool);
  for (size_t i = takesShare; i < std::min<size_t>(parts, number); ++i)
    group.async(takeParts);
  if (takesShare)
    takeParts();
  // Tasks that begin now find no parts left.
  group.wait();
}

void forEachOn(Threads *threads, size_t parts,
               function_ref<void(size_t)> part) {
  if (threads)
    return threads->forEach(parts, part);
  for (size_t i = 0; i < parts; ++i)
    part(i);
}

} // namespace galvatron
