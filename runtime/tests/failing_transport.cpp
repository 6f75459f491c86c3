//===- failing_transport.cpp - A plug-in whose library gives up -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Stands in the place of libgrt_mpi.so for one process. GRT_TEST_FAILS names
// the call that throws.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/transport.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace grt {
namespace {

class FailingTransport : public Transport {
public:
  int process() const override { return 0; }
  int processes() const override { return 1; }
  int largestTag() const override { return 32767; }
  Request send(int, int, const void *, size_t) override { return nullptr; }
  Request receive(int, int, void *, size_t) override { return nullptr; }
  bool test(std::span<Request>) override {
    failIn("test");
    return true;
  }
  void cancel(std::span<Request>) override {}
  void broadcast(void *, size_t, int) override {}
  void allGather(const void *in, void *out, size_t bytes) override {
    std::memcpy(out, in, bytes);
  }
  void finalize() override { failIn("finalize"); }
  std::string name() const override { return "failing"; }

private:
  static void failIn(const std::string &call) {
    const char *wanted = std::getenv("GRT_TEST_FAILS");
    if (wanted && call == wanted)
      fail(call + " has failed");
  }
};

} // namespace
} // namespace grt

extern "C" __attribute__((visibility("default"))) grt::Transport *
grt_transport_open(int, char *message, size_t bytes) {
  const char *wanted = std::getenv("GRT_TEST_FAILS");
  if (wanted && std::string(wanted) == "open") {
    std::snprintf(message, bytes, "no network today");
    return nullptr;
  }
  static grt::FailingTransport transport;
  return &transport;
}
