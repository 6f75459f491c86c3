//===- joining.h - Processes that join a run, in tests --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_JOINING_H
#define GRT_TESTS_JOINING_H

#include "base/error.h"
#include "comm/arrivals.h"
#include "comm/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace grt::test {

inline const std::string secret = "correct horse battery staple";

inline Endpoint loopback(uint16_t port = 0) {
  std::string problem;
  Endpoint endpoint = resolve("127.0.0.1", port, problem).at(0);
  return endpoint;
}

inline Socket connected(uint16_t port) {
  std::string problem;
  Socket socket = connectTo(loopback(port), after(20), problem);
  EXPECT_TRUE(socket) << problem;
  return socket;
}

/// A process of a run on the loopback, which has the secret.
inline Rendezvous at(int rank, int size, uint16_t port, double seconds = 20) {
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.address = "127.0.0.1";
  where.port = port;
  where.run = "run";
  where.seconds = seconds;
  where.secret = secret;
  return where;
}

/// Runs a rendezvous in a thread of its own.
class Meeter {
public:
  explicit Meeter(const Rendezvous &where)
      : thread([this, where] {
          try {
            Membership membership = joinRun(where);
            processes = size_t(membership.size);
            rank = membership.rank;
          } catch (const Error &error) {
            problem = error.what();
            code = error.exitCode();
          }
        }) {}
  ~Meeter() { end(); }
  void end() {
    if (thread.joinable())
      thread.join();
  }

  size_t processes = 0;
  int rank = -1;
  std::string problem;
  int code = 0;

private:
  std::thread thread;
};

/// Waits until a process listens at the port.
inline void awaitListener(uint16_t port) {
  std::string problem;
  while (!connectTo(loopback(port), after(1), problem))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

} // namespace grt::test

#endif // GRT_TESTS_JOINING_H
