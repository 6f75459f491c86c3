//===- step_messages_test.cpp - What processes tell each other in a step --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/launch.h"
#include "comm/process_world.h"
#include "forwarding_transport.h"
#include "in_process.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <atomic>

using namespace grt;
using namespace grt::test;

namespace {

struct CountingTransport : ForwardingTransport {
  using ForwardingTransport::ForwardingTransport;
  Request send(int process, int tag, const void *data, size_t bytes) override {
    ++sent;
    return ForwardingTransport::send(process, tag, data, bytes);
  }
  std::atomic<int> sent{0};
};

/// Two processes of a rank each; the session of each, and its transport.
void onSessions(
    const std::function<void(Session &, CountingTransport &)> &body) {
  ModelPlan plan;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"dp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  const TestProgram code(plan);
  onProcesses(2, [&](Transport &connected) {
    CountingTransport transport(connected);
    std::shared_ptr<const Program> program;
    Status status = Program::loadMemory(code.file(), "test", program);
    ASSERT_TRUE(status) << status.message();
    SessionOptions options;
    options.backend = referenceBackend();
    options.world = std::make_shared<ProcessWorld>(
        transport, gatherRankCounts(transport, 1), 1, [](const Failure &) {});
    std::unique_ptr<Session> session;
    status = Session::create(program, options, session);
    ASSERT_TRUE(status) << status.message();
    std::vector<int32_t> values(size_t(plan.batch * plan.seqLen), 1);
    ASSERT_TRUE(session->setBatch(values, values));
    body(*session, transport);
    EXPECT_TRUE(session->finish());
    session.reset();
    char in = 0, out[2];
    connected.allGather(&in, out, 1);
  });
}

/// What a process asks for, and what is in use, is told with the losses: a step
/// with requests sends as many messages as one without.
TEST(StepMessages, RequestsRideInNumbersThatAreGathered) {
  std::atomic<uint64_t> peaks[2];
  onSessions([&](Session &session, CountingTransport &transport) {
    EXPECT_EQ(session.requestsLate(), 1u);
    StepResult result;
    auto messagesOf = [&](auto asks) {
      const int before = transport.sent;
      asks();
      Status stepped = session.step(result);
      EXPECT_TRUE(stepped) << stepped.message();
      return transport.sent - before;
    };
    const int plain = messagesOf([] {});
    const uint32_t own = transport.process() == 1 ? 4 : 32;
    EXPECT_EQ(messagesOf([&] { EXPECT_EQ(session.anywhere(own), 0u); }), plain);
    EXPECT_EQ(messagesOf([&] { EXPECT_EQ(session.anywhere(0), 36u); }), plain);
    EXPECT_EQ(messagesOf([&] { EXPECT_EQ(session.anywhere(0), 0u); }), plain);
    peaks[transport.process()] = result.peakBytes;
  });
  EXPECT_GT(peaks[0], 0u);
  EXPECT_EQ(peaks[0], peaks[1]);
}

/// A failure of one process is told to the others whole, with its exit code.
TEST(StepMessages, AFailureHasItsWholeTextEverywhere) {
  // The leader alone writes, below a file that is no folder.
  std::string path = "/dev/null";
  while (path.size() < 3000)
    path += "/a-folder";
  path += "/\xc3\xa9nd";
  std::string messages[2];
  onSessions([&](Session &session, CountingTransport &transport) {
    const Status status = session.save(path);
    EXPECT_EQ(status.exitCode(), ExitStorage);
    messages[transport.process()] = status.message();
    // The session is usable behind it.
    StepResult result;
    EXPECT_TRUE(session.step(result));
  });
  EXPECT_NE(messages[0].find(path), std::string::npos) << messages[0];
  EXPECT_EQ(messages[0], messages[1]);
}

} // namespace
