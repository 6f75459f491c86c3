//===- workers.h - Threads that share a loop ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For work of the host that is done once, at load: threads live as long as the
// object, so that a loop over many small pieces does not start them again.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_WORKERS_H
#define GRT_CORE_WORKERS_H

#include "base/signal_stack.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace grt {

class Workers {
public:
  /// The calling thread is one of `threads`. The others begin with the first
  /// loop that is worth them.
  explicit Workers(int threads) : most(std::max(1, threads)) {}
  ~Workers() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread &thread : threads)
      thread.join();
  }
  Workers(const Workers &) = delete;
  Workers &operator=(const Workers &) = delete;

  /// Calls `body(first, last)` on disjoint parts of [0, count), of at least
  /// `least` each where there are several, and returns when all are done.
  /// `body` does not throw.
  void share(int64_t count, int64_t least,
             const std::function<void(int64_t, int64_t)> &body) {
    const int64_t parts =
        std::clamp<int64_t>(count / std::max<int64_t>(least, 1), 1, most);
    if (parts == 1)
      return body(0, count);
    while (int64_t(threads.size()) + 1 < parts)
      threads.emplace_back(
          [this, number = threads.size() + 1] { serve(int64_t(number)); });
    {
      std::lock_guard<std::mutex> lock(mutex);
      loop = {count, parts, &body};
      working = int64_t(threads.size());
      ++round;
    }
    wake.notify_all();
    run(loop, 0);
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [&] { return working == 0; });
  }

private:
  struct Loop {
    int64_t count = 0, parts = 0;
    const std::function<void(int64_t, int64_t)> *body = nullptr;
  };
  static void run(const Loop &loop, int64_t part) {
    if (part < loop.parts)
      (*loop.body)(loop.count *part / loop.parts,
                   loop.count * (part + 1) / loop.parts);
  }
  void serve(int64_t number) {
    SignalStack stack;
    uint64_t served = 0;
    std::unique_lock<std::mutex> lock(mutex);
    // A thread that begins late may find a round that counts on it, or one
    // that ended before it was made.
    while (true) {
      wake.wait(lock, [&] { return stopping || (round != served && working); });
      if (stopping)
        return;
      served = round;
      Loop mine = loop;
      lock.unlock();
      run(mine, number);
      lock.lock();
      if (--working == 0)
        done.notify_one();
    }
  }

  const int64_t most;
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<std::thread> threads;
  Loop loop;
  int64_t working = 0; ///< threads that have not finished the round
  uint64_t round = 0;
  bool stopping = false;
};

} // namespace grt

#endif // GRT_CORE_WORKERS_H
