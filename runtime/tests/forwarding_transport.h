//===- forwarding_transport.h - A transport on another one ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_FORWARDING_TRANSPORT_H
#define GRT_TESTS_FORWARDING_TRANSPORT_H

#include "comm/transport.h"

#include <string>

namespace grt::test {

/// Forwards every call to the transport that it stands on; tests override what
/// they watch. It does not end the other one.
class ForwardingTransport : public Transport {
public:
  explicit ForwardingTransport(Transport &inner) : inner(inner) {}
  int process() const override { return inner.process(); }
  int processes() const override { return inner.processes(); }
  int largestTag() const override { return inner.largestTag(); }
  Request send(int process, int tag, const void *data, size_t bytes) override {
    return inner.send(process, tag, data, bytes);
  }
  Request receive(int process, int tag, void *data, size_t bytes) override {
    return inner.receive(process, tag, data, bytes);
  }
  bool test(std::span<Request> requests) override {
    return inner.test(requests);
  }
  void cancel(std::span<Request> requests) override { inner.cancel(requests); }
  void broadcast(void *data, size_t bytes, int root) override {
    inner.broadcast(data, bytes, root);
  }
  void allGather(const void *in, void *out, size_t bytes) override {
    inner.allGather(in, out, bytes);
  }
  void finalize() override {}
  std::string name() const override { return "forwarding"; }

private:
  Transport &inner;
};

} // namespace grt::test

#endif // GRT_TESTS_FORWARDING_TRANSPORT_H
