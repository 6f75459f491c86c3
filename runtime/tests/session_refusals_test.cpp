//===- session_refusals_test.cpp - What sessions and their calls refuse ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "core/executor.h"
#include "grt/kernels.h"
#include "grt/session.h"
#include "recording.h"
#include "reference_backend.h"
#include "tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

using namespace grt;
using namespace grt::test;

namespace {

SessionOptions onReference() {
  SessionOptions options;
  options.backend = referenceBackend();
  return options;
}

/// The message with which a program is refused that calls what it may not: as
/// it is loaded, or in the first step. "": it is not.
std::string callRefusal(const grt_program &table, const ModelPlan &plan) {
  std::shared_ptr<const Program> program;
  Status status = Program::fromTable(&table, "test", program);
  EXPECT_TRUE(status) << status.message();
  std::unique_ptr<Session> session;
  status = Session::create(program, onReference(), session);
  if (status) {
    std::vector<int32_t> values(size_t(plan.batch * plan.seqLen), 1);
    EXPECT_TRUE(session->setBatch(values, values));
    StepResult result;
    status = session->step(result);
  }
  EXPECT_EQ(status.exitCode(), status ? 0 : 1);
  return status.message();
}

std::string callRefusal(ModelPlan plan,
                        const std::function<void(ProgramCalls)> &change) {
  plan.changeCalls = change;
  TestProgram code(plan);
  return callRefusal(code.table(), plan);
}

TEST(SessionRefusals, CallsOfKernels) {
  auto first = [](auto change) {
    return callRefusal(ModelPlan(),
                       [&](ProgramCalls calls) { change(calls.kernels[0]); });
  };
  const std::string malformed =
      "rank 0, layer 'layer0': 'embedding' is a malformed kernel call";
  EXPECT_EQ(first([](grt_kernel_op &) {}), "");
  EXPECT_EQ(first([](grt_kernel_op &op) { op.kernel = GRT_KERNEL_COUNT; }),
            malformed);
  const std::string counted =
      "rank 0, layer 'layer0': embedding 'embedding': expected 3 buffers for "
      "kernel 'embedding', found ";
  std::vector<grt_buffer> many;
  auto buffers = [&](uint32_t count) {
    return first([&](grt_kernel_op &op) {
      many.assign(count, op.buffers[0]);
      std::copy_n(op.buffers, std::min(count, op.buffer_count), many.begin());
      op.buffers = many.data();
      op.buffer_count = count;
    });
  };
  EXPECT_EQ(buffers(3), "");
  EXPECT_EQ(buffers(2), counted + "2");
  EXPECT_EQ(buffers(16), counted + "16");
  EXPECT_EQ(buffers(17), malformed);
  EXPECT_EQ(first([](grt_kernel_op &op) { op.int_count = 3; }),
            "rank 0, layer 'layer0': embedding 'embedding': expected 4 "
            "integers for kernel 'embedding', found 3");
}

/// Every integer of a program's calls is refused before the first step if it is
/// wrong by one, unless the list of kernels says that no buffer tells it.
TEST(SessionRefusals, WrongIntegers) {
  ModelPlan plan;
  size_t calls = 0;
  EXPECT_EQ(
      callRefusal(plan, [&](ProgramCalls all) { calls = all.kernels.size(); }),
      "");
  std::map<std::string, std::pair<int, int>> counts;
  for (size_t call = 0; call < calls; ++call)
    for (uint32_t i = 0;; ++i) {
      std::string kernel, name;
      bool isFree = false;
      for (int64_t change : {-1, 1}) {
        std::vector<int64_t> wrong;
        const std::string refusal = callRefusal(plan, [&](ProgramCalls all) {
          grt_kernel_op &op = all.kernels[call];
          if (i >= op.int_count)
            return;
          const KernelInts ints = kernelInts(op.kernel);
          kernel = kernelName(op.kernel);
          name = i < ints.size() ? ints[i].name : "segment";
          // The flag of a segment is the last of its three.
          isFree = i < ints.size()
                       ? ints[i].freedom != nullptr
                       : (i - ints.size()) % segmentInts == segmentFlag;
          wrong.assign(op.ints, op.ints + op.int_count);
          wrong[i] += change;
          op.ints = wrong.data();
        });
        if (name.empty())
          break;
        auto &[refused, accepted] = counts[kernel];
        ++(refusal.empty() ? accepted : refused);
        if (isFree)
          continue;
        EXPECT_NE(refusal, "") << kernel << ", call " << call << ": " << name;
        EXPECT_EQ(refusal.find("step"), std::string::npos) << refusal;
      }
      if (name.empty())
        break;
    }
  for (const auto &[kernel, count] : counts)
    std::printf("%s: %d refused, %d accepted\n", kernel.c_str(), count.first,
                count.second);
  EXPECT_EQ(counts.size(), 9u);
}

TEST(SessionRefusals, ElementsOfOtherTypes) {
  for (const auto &[buffer, dtype, expected] :
       {std::tuple(kernels::Embedding::tokens, GRT_F32,
                   "expected 'i32' elements in 'tokens', found 'f32'"),
        std::tuple(kernels::Embedding::y, GRT_I32,
                   "expected floating point elements in 'y', found 'i32'")})
    EXPECT_EQ(
        callRefusal(
            ModelPlan(),
            [&](ProgramCalls calls) {
              const_cast<grt_buffer *>(calls.kernels[0].buffers)[buffer].dtype =
                  dtype;
            }),
        std::string("rank 0, layer 'layer0': embedding 'embedding': ") +
            expected);
}

TEST(SessionRefusals, CallsOfCollectives) {
  ModelPlan plan;
  plan.streams = true;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"tp", 1}};
  auto first = [&](auto change) {
    return callRefusal(plan, [&](ProgramCalls calls) {
      ASSERT_FALSE(calls.collectives.empty());
      change(calls.collectives[0]);
    });
  };
  const std::string place = "rank 0, step 1, layer 'layer2': 'collective' ";
  EXPECT_EQ(first([](grt_collective_op &) {}), "");
  EXPECT_EQ(first([](grt_collective_op &op) { op.axis = 3; }),
            place + "runs over an unknown axis");
  EXPECT_EQ(first([](grt_collective_op &op) { op.stream = GRT_STREAM_OUT; }),
            "");
  EXPECT_EQ(first([](grt_collective_op &op) { op.stream = GRT_STREAM_COUNT; }),
            place + "is on an unknown stream");
  EXPECT_EQ(first([](grt_collective_op &op) { op.collective = 3; }),
            place + "is an unknown collective");
  const std::string bytes = std::to_string(3 * 16 * 8);
  EXPECT_EQ(first([](grt_collective_op &op) { op.in.bytes -= 8; }),
            place + "has " + std::to_string(3 * 16 * 8 - 8) +
                " bytes of f64 in and " + bytes +
                " bytes of f64 out over 1 ranks");
  EXPECT_EQ(first([](grt_collective_op &op) { op.out.dtype = GRT_F32; }),
            place + "has " + bytes + " bytes of f64 in and " + bytes +
                " bytes of f32 out over 1 ranks");
}

TEST(SessionRefusals, CallsThatOrderStreams) {
  ModelPlan plan;
  plan.streams = true;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"sdp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  // Of the functions with most events the last one, and all streams.
  auto all = [&](uint32_t event, uint32_t stream) {
    return callRefusal(plan, [&](ProgramCalls calls) {
      uint32_t last = 0;
      for (const grt_event_op &order : calls.orders)
        last = std::max(last, order.event);
      for (grt_event_op &order : calls.orders) {
        order.event += event - last;
        order.stream = std::max(order.stream, stream);
      }
    });
  };
  EXPECT_EQ(all(63, GRT_STREAM_OUT), "");
  // Of either rank.
  const std::string most = ": expected at most 64 events and 6 streams";
  for (const auto &[found, expected] :
       {std::pair(all(64, 0), "layer 'layer1': event 64 on stream 1" + most),
        std::pair(all(63, 6), "layer 'layer0': event 60 on stream 6" + most)})
    EXPECT_NE(found.find(expected), std::string::npos) << found;
}

TEST(SessionRefusals, FunctionsThatFailWithoutAReason) {
  ModelPlan plan;
  TestProgram code(plan);
  std::vector<grt_function> functions(code.table().functions,
                                      code.table().functions +
                                          code.table().function_count);
  functions[2] = [](grt_context *) -> int32_t { return 7; };
  TestProgram::Holder holder{code.table(), &code};
  holder.program.functions = functions.data();
  EXPECT_EQ(callRefusal(holder.program, plan),
            "rank 0, layer 'layer0': function 'function2' returned status 7");
}

/// A session that can do no step, of a program of another manifest.
struct Refusing {
  explicit Refusing(const Json &manifest,
                    const SessionOptions &options = onReference())
      : text(manifest.dump()), holder{code.table(), &code} {
    holder.program.manifest = text.data();
    holder.program.manifest_bytes = text.size();
    if (manifest.contains("home-updates"))
      updateEarly();
    status = Program::fromTable(&holder.program, "test", program);
    if (status)
      status = Session::create(program, options, session);
    EXPECT_TRUE(status) << status.message();
  }

  /// What it says of a step over so many batches of the program.
  std::string step(size_t parts = 1) {
    std::vector<int32_t> values(parts * size_t(plan.batch * plan.seqLen), 1);
    status = session->setBatch(values, values);
    EXPECT_TRUE(status) << status.message();
    StepResult result;
    status = session->step(result);
    EXPECT_EQ(status.exitCode(), status ? 0 : 2);
    return status.message();
  }

  ModelPlan plan;
  TestProgram code{plan};
  std::string text;
  TestProgram::Holder holder;
  grt_schedule schedule{};
  std::vector<grt_task> tasks;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  Status status;

private:
  void updateEarly() {
    schedule = holder.program.schedules[0];
    grt_task_list &steady = schedule.parts[GRT_PART_STEADY];
    tasks.assign(steady.tasks, steady.tasks + steady.count);
    grt_task update{};
    update.kind = GRT_TASK_UPDATE;
    tasks.push_back(update);
    steady = {tasks.data(), tasks.size()};
    holder.program.schedules = &schedule;
  }
};

TEST(SessionRefusals, UpdatesThatWaitForNobody) {
  Json justInTime = atHome(2);
  justInTime["home-updates"] = true;
  const std::string finite =
      " updates before all ranks know whether values are finite: stopping or "
      "leaving out the update is not possible, expected --on-nan=late";
  const std::string norm = " has no gradient norm over all ranks before it "
                           "updates, so no update can be left out for it";
  SessionOptions late = onReference();
  late.onNan = OnNan::Late;
  for (const auto &[manifest, what] :
       {std::pair(justInTime, "a program that updates just in time"),
        std::pair(lateChunk(), "schedule 'gpipe'")}) {
    EXPECT_EQ(Refusing(manifest).step(), what + finite);
    Refusing skips(manifest, late);
    skips.session->hyperparameters().skipNorm = 1;
    EXPECT_EQ(skips.step(), what + norm);
  }
  EXPECT_EQ(Refusing(oneChunk(), late).step(),
            "--on-nan=late: updates of schedule 'gpipe' wait for the norm of "
            "all gradients, by which they are clipped: expected a program "
            "compiled with --clip=off");
  Json unclipped = oneChunk();
  unclipped["training"]["clip"] = false;
  Refusing skips(unclipped, late);
  EXPECT_EQ(skips.step(), "");
  skips.session->hyperparameters().skipNorm = 1;
  EXPECT_EQ(skips.step(), "--on-nan=late" + norm);
  late.backend = recording::backendAround(referenceBackend());
  EXPECT_EQ(Refusing(unclipped, late).step(),
            "--on-nan=late: on devices steps of schedule 'gpipe' meet in any "
            "case");
  EXPECT_EQ(Refusing(atHome(2)).step(2),
            "states have their home on the host, so gradients of a batch are "
            "summed in one part: expected one batch of the program, found 2");
}

TEST(SessionRefusals, WhatWasNotMade) {
  Refusing run{oneChunk()};
  auto refused = [](const Status &status) {
    EXPECT_EQ(status.exitCode(), 2);
    return status.message();
  };
  const std::string trace = "the session was made without a trace";
  EXPECT_EQ(refused(run.session->record(true)), trace);
  TimeShares shares;
  EXPECT_EQ(refused(run.session->timeShares(shares, shares)), trace);
  TensorMap gradients;
  EXPECT_EQ(refused(run.session->gradients(gradients)),
            "no step was done, so there are no gradients");
  EXPECT_EQ(run.step(), "");
  EXPECT_TRUE(run.session->gradients(gradients));
}

} // namespace
