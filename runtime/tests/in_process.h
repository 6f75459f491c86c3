//===- in_process.h - Processes that are threads of a test ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_IN_PROCESS_H
#define GRT_TESTS_IN_PROCESS_H

#include "comm/tcp.h"
#include "launched.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace grt::test {

/// Runs `body` on so many processes, connected by TCP, each a thread.
inline void onProcesses(int count,
                        const std::function<void(Transport &)> &body) {
  Rendezvous at;
  at.size = count;
  at.address = "127.0.0.1";
  at.port = freePort();
  std::vector<std::thread> threads;
  for (at.rank = 0; at.rank < count; ++at.rank)
    threads.emplace_back([&body, at] {
      std::unique_ptr<Transport> transport = connectByTcp(at);
      body(*transport);
      transport->finalize();
    });
  for (std::thread &thread : threads)
    thread.join();
}

inline void waitFor(Transport &transport,
                    std::vector<Transport::Request> requests) {
  while (!transport.test(requests))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

} // namespace grt::test

#endif // GRT_TESTS_IN_PROCESS_H
