//===- EventEngineTest.cpp - Streams, joins, rates ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/EventEngine.h"
#include "galvatron/Cost/LayerCost.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

Operation op(int32_t actor, Stream stream, double work) {
  Operation operation;
  operation.actor = actor;
  operation.stream = stream;
  operation.work = work;
  return operation;
}

TEST(EventEngine, a_stream_runs_in_order_and_dependencies_hold) {
  EventEngine engine({1});
  OperationId a = engine.add(op(0, Stream::Compute, 3), {});
  OperationId b = engine.add(op(0, Stream::Send, 2), {a});
  OperationId c = engine.add(op(0, Stream::Compute, 1), {});
  OperationId d = engine.add(op(0, Stream::Compute, 1), {b});
  Timeline timeline = engine.run();
  EXPECT_EQ(timeline.start[b], 3);
  EXPECT_EQ(timeline.start[c], 3);
  EXPECT_EQ(timeline.start[d], 5);
  EXPECT_EQ(timeline.end, 6);
  EXPECT_EQ(timeline.stuck, -1);
}

TEST(EventEngine, overlapping_operations_take_what_the_cost_model_says) {
  for (double slowdown : {1.0, 1.3, 2.0})
    for (double x : {0.0, 1.0, 4.0})
      for (double y : {0.0, 1.0, 2.5, 9.0}) {
        EventEngine engine({slowdown});
        engine.add(op(0, Stream::Compute, x), {});
        engine.add(op(0, Stream::Collective, y), {});
        EXPECT_NEAR(engine.run().end, overlapSeconds(x, y, slowdown), 1e-12)
            << x << " and " << y << " at " << slowdown;
      }
}

TEST(EventEngine, overlap_in_part_slows_that_part_only) {
  // Computation of 4 s; a collective of 1 s comes after one of 2 s elsewhere:
  // together from 2 s on, both at half speed until the collective ends at 4 s,
  // when computation has done 2 + 1 s.
  EventEngine engine({2, 1});
  OperationId compute = engine.add(op(0, Stream::Compute, 4), {});
  OperationId elsewhere = engine.add(op(1, Stream::Compute, 2), {});
  OperationId collective =
      engine.add(op(0, Stream::Collective, 1), {elsewhere});
  Timeline timeline = engine.run();
  EXPECT_DOUBLE_EQ(timeline.finish[collective], 4);
  EXPECT_DOUBLE_EQ(timeline.finish[compute], 5);
}

TEST(EventEngine, members_of_a_join_start_together) {
  EventEngine engine({1, 1, 1});
  int32_t join = engine.addJoins();
  std::vector<OperationId> members;
  for (int32_t actor = 0; actor < 3; ++actor) {
    engine.add(op(actor, Stream::Compute, 1 + actor), {});
    Operation member = op(actor, Stream::Compute, 1);
    member.join = join;
    members.push_back(engine.add(member, {}));
  }
  Timeline timeline = engine.run();
  for (OperationId member : members)
    EXPECT_EQ(timeline.start[member], 3);
}

TEST(EventEngine, flows_share_an_uplink) {
  // Two messages of 3 s and 1 s over one uplink and one of 2 s over another:
  // the short one ends at 2 s, when 2 s of the long one are left.
  EventEngine engine({1, 1, 1});
  std::vector<OperationId> ids;
  double work[] = {3, 1, 2};
  for (int32_t actor = 0; actor < 3; ++actor) {
    Operation message = op(actor, Stream::Send, work[actor]);
    message.flow = actor;
    message.uplinkSet = engine.addUplinks({actor == 2 ? 7 : 4});
    ids.push_back(engine.add(message, {}));
  }
  Timeline timeline = engine.run();
  EXPECT_DOUBLE_EQ(timeline.finish[ids[0]], 4);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[1]], 2);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[2]], 2);
}

TEST(EventEngine, both_ends_of_a_message_are_one_flow) {
  EventEngine engine({1, 1});
  Operation send = op(0, Stream::Send, 2), receive = op(1, Stream::Receive, 2);
  send.join = receive.join = engine.addJoins();
  send.flow = receive.flow = 0;
  send.uplinkSet = engine.addUplinks({0, 3});
  receive.uplinkSet = engine.addUplinks({0, 3});
  engine.add(send, {});
  engine.add(receive, {});
  EXPECT_EQ(engine.run().end, 2);
}

/// Exchange, collective and messages of one actor share what it can send; each
/// ends when it would behind another one.
TEST(EventEngine, communication_of_an_actor_is_one_queue) {
  // 1 s of each together take 3 s; then the collective alone with the rest.
  EventEngine engine({1.5, 1.5}, {1, 0});
  std::vector<OperationId> ids;
  for (int32_t actor : {0, 1})
    for (Stream stream :
         {Stream::Exchange, Stream::Collective, Stream::Send, Stream::Receive})
      ids.push_back(engine.add(
          op(actor, stream, stream == Stream::Collective ? 2 : 1), {}));
  Timeline timeline = engine.run();
  EXPECT_DOUBLE_EQ(timeline.finish[ids[0]], 3);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[1]], 4);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[2]], 3); // both ways are one call
  EXPECT_DOUBLE_EQ(timeline.finish[ids[3]], 3);
  // Queues of their own: messages are free, and an exchange beside a collective
  // slows both down.
  EXPECT_DOUBLE_EQ(timeline.finish[ids[4]], 1.5);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[5]], 2.5);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[6]], 1);
  EXPECT_DOUBLE_EQ(timeline.finish[ids[7]], 1);
}

/// A message goes as slowly as the busier of its ends sends.
TEST(EventEngine, both_ends_of_a_message_share_a_queue) {
  EventEngine engine({1, 1}, {1, 1});
  OperationId sum = engine.add(op(0, Stream::Collective, 1), {});
  Operation send = op(0, Stream::Send, 2), receive = op(1, Stream::Receive, 2);
  send.join = receive.join = engine.addJoins();
  OperationId from = engine.add(send, {}), to = engine.add(receive, {});
  OperationId later = engine.add(op(1, Stream::Exchange, 1), {to});
  Timeline timeline = engine.run();
  EXPECT_DOUBLE_EQ(timeline.finish[sum], 2);
  EXPECT_DOUBLE_EQ(timeline.finish[from], 3);
  EXPECT_DOUBLE_EQ(timeline.finish[to], 3);
  EXPECT_DOUBLE_EQ(timeline.finish[later], 4);

  // The end that receives alone is the busier one.
  EventEngine other({1, 1}, {1, 1});
  sum = other.add(op(1, Stream::Collective, 1), {});
  send.join = receive.join = other.addJoins();
  from = other.add(send, {});
  to = other.add(receive, {});
  timeline = other.run();
  EXPECT_DOUBLE_EQ(timeline.finish[sum], 2);
  EXPECT_DOUBLE_EQ(timeline.finish[from], 3);
  EXPECT_DOUBLE_EQ(timeline.finish[to], 3);
}

/// What computes runs beside the queue, slowed down by a collective alone.
TEST(EventEngine, computation_runs_beside_the_queue) {
  EventEngine engine({1.5}, {1});
  OperationId compute = engine.add(op(0, Stream::Compute, 2), {});
  OperationId sum = engine.add(op(0, Stream::Collective, 1), {});
  OperationId send = engine.add(op(0, Stream::Send, 1), {});
  Timeline timeline = engine.run();
  // The message at half its rate, the collective at a third, of which a third
  // is left at 2 s; then at two thirds, as the computation until it ends.
  EXPECT_DOUBLE_EQ(timeline.finish[send], 2);
  EXPECT_DOUBLE_EQ(timeline.finish[sum], 2.5);
  EXPECT_DOUBLE_EQ(timeline.finish[compute], 2.5 + 1.0 / 3);
}

/// Rows of traces, and what a stuck operation is reported on.
TEST(EventEngine, streams_have_names_of_their_own) {
  std::vector<std::string> names;
  for (Stream stream : {Stream::Compute, Stream::Exchange, Stream::Collective,
                        Stream::Send, Stream::Receive, Stream::Posted})
    names.push_back(streamName(stream).str());
  EXPECT_EQ(names,
            (std::vector<std::string>{"compute", "exchange", "collective",
                                      "send", "receive", "posted"}));
}

TEST(EventEngine, a_cycle_of_waits_is_named) {
  // Each sends before it receives: rendezvous cannot do that.
  EventEngine engine({1, 1});
  int32_t there = engine.addJoins(), back = engine.addJoins();
  auto add = [&](int32_t actor, Stream stream, int32_t join,
                 llvm::ArrayRef<OperationId> after) {
    Operation operation = op(actor, stream, 1);
    operation.join = join;
    return engine.add(operation, after);
  };
  OperationId first = add(0, Stream::Send, there, {});
  OperationId second = add(1, Stream::Send, back, {});
  add(0, Stream::Receive, back, {first});
  add(1, Stream::Receive, there, {second});
  EXPECT_EQ(engine.run().stuck, first);
}

} // namespace
