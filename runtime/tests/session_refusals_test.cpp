//===- session_refusals_test.cpp - What sessions and their calls refuse ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "core/program_text.h"
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
std::string callRefusal(ModelPlan plan,
                        const std::function<void(gvx::Tables &)> &change) {
  plan.changeTables = change;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "test", program);
  if (!status) {
    EXPECT_EQ(status.exitCode(), 2);
    return status.message();
  }
  std::unique_ptr<Session> session;
  status = Session::create(program, onReference(), session);
  if (status) {
    std::vector<int32_t> values(size_t(plan.batch * plan.seqLen), 1);
    EXPECT_TRUE(session->setBatch(values, values));
    StepResult result;
    status = session->step(result);
  }
  // Faults that are proven of the whole program are refused before there are
  // ranks.
  const bool isProgram = status.message().starts_with("program 'test': ");
  EXPECT_EQ(status.exitCode(), status ? 0 : isProgram ? 2 : 1);
  return status.message();
}

/// Gives the first call so many buffers and integers.
void resizeFirst(gvx::Tables &tables, uint32_t buffers, uint32_t integers) {
  gvx::Kernel &first = tables.kernels[0];
  const uint32_t moreBuffers = buffers - first.buffers.count,
                 moreIntegers = integers - first.integers.count;
  auto resize = [](auto &rows, uint32_t from, uint32_t to) {
    if (to < from)
      rows.erase(rows.begin() + to, rows.begin() + from);
    else
      rows.insert(rows.begin() + from, to - from, rows[0]);
  };
  resize(tables.buffers, first.buffers.count, buffers);
  resize(tables.integers, first.integers.count, integers);
  first.buffers.count = buffers;
  first.integers.count = integers;
  for (size_t i = 1; i < tables.kernels.size(); ++i) {
    tables.kernels[i].buffers.first += moreBuffers;
    tables.kernels[i].integers.first += moreIntegers;
  }
  for (gvx::Call &call : tables.calls)
    if (call.kind == gvx::CallKind::BeginLife ||
        call.kind == gvx::CallKind::EndLife)
      call.index += moreBuffers;
}

TEST(SessionRefusals, CallsOfKernels) {
  auto first = [](uint32_t buffers, uint32_t integers) {
    return callRefusal(ModelPlan(), [&](gvx::Tables &tables) {
      resizeFirst(tables, buffers, integers);
    });
  };
  const std::string place = "rank 0, layer 'layer0': embedding 'embedding': ";
  EXPECT_EQ(first(3, 4), "");
  EXPECT_EQ(first(2, 4),
            place + "expected 3 buffers for kernel 'embedding', found 2");
  EXPECT_EQ(first(16, 4),
            place + "expected 3 buffers for kernel 'embedding', found 16");
  EXPECT_EQ(first(17, 4), "program 'test' is malformed: function 0, call 0: "
                          "expected a number of buffers below 17, found 17");
  EXPECT_EQ(first(3, 3),
            place + "expected 4 integers for kernel 'embedding', found 3");
}

/// Every integer of a program's calls is refused before the first step if it is
/// wrong by one, unless the list of kernels says that no buffer tells it.
TEST(SessionRefusals, WrongIntegers) {
  ModelPlan plan;
  size_t calls = 0;
  EXPECT_EQ(
      callRefusal(plan, [&](gvx::Tables &all) { calls = all.kernels.size(); }),
      "");
  std::map<std::string, std::pair<int, int>> counts;
  for (size_t call = 0; call < calls; ++call)
    for (uint32_t i = 0;; ++i) {
      std::string kernel, name;
      bool isFree = false;
      for (int64_t change : {-1, 1}) {
        const std::string refusal = callRefusal(plan, [&](gvx::Tables &all) {
          const gvx::Kernel &op = all.kernels[call];
          if (i >= op.integers.count)
            return;
          const KernelInts ints = kernelInts(op.kernel);
          kernel = kernelName(op.kernel);
          name = i < ints.size() ? ints[i].name : "segment";
          // The flag of a segment is the last of its three.
          isFree = i < ints.size()
                       ? ints[i].freedom != nullptr
                       : (i - ints.size()) % segmentInts == segmentFlag;
          all.integers[op.integers.first + i] += change;
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
    EXPECT_EQ(callRefusal(ModelPlan(),
                          [&](gvx::Tables &tables) {
                            tables.buffers[buffer].dtype = dtype;
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
    return callRefusal(plan, [&](gvx::Tables &tables) {
      ASSERT_FALSE(tables.collectives.empty());
      change(tables.collectives[0]);
    });
  };
  const std::string place =
      "program 'test': function 'function10' of layer 'layer2': all-gather "
      "'collective' over tp on compute: transient[0, ";
  EXPECT_EQ(first([](gvx::Collective &) {}), "");
  EXPECT_EQ(first([](gvx::Collective &op) { op.stream = GRT_STREAM_OUT; }),
            "program 'test': function 'function10', call 5: expected stream "
            "'out' to wait for stream 'compute' before");
  const std::string expected =
      "expected bytes and types that fit 1 ranks, found ";
  EXPECT_EQ(first([](gvx::Collective &op) { op.in.bytes -= 8; }),
            place + "376) f64 to transient[384, 768) f64: " + expected +
                "376 of f64 in and 384 of f64 out");
  EXPECT_EQ(first([](gvx::Collective &op) { op.out.dtype = GRT_F32; }),
            place + "384) f64 to transient[384, 768) f32: " + expected +
                "384 of f64 in and 384 of f32 out");
}

/// Collectives of parameters have streams of their own, or none has.
TEST(SessionRefusals, StreamsOfCollectives) {
  ModelPlan plan;
  plan.streams = true;
  plan.layers[0].levels = plan.layers[1].levels = {{"sdp", 2}};
  plan.layers[2].levels = {{"tp", 2}};
  plan.stages = {{{0, 1}, {0, 1}}, {{2}, {2, 3}}};
  size_t count = 0;
  EXPECT_EQ(callRefusal(plan,
                        [&](gvx::Tables &tables) {
                          count = tables.collectives.size();
                        }),
            "");
  EXPECT_GT(count, 2u);
  for (size_t i = 0; i < count; ++i) {
    const std::string found = callRefusal(plan, [&](gvx::Tables &tables) {
      uint32_t &stream = tables.collectives[i].stream;
      stream =
          stream == GRT_STREAM_COMPUTE ? GRT_STREAM_GATHER : GRT_STREAM_COMPUTE;
    });
    EXPECT_NE(found.find("expected stream"), std::string::npos)
        << i << ": " << found;
  }
}

TEST(SessionRefusals, LabelsOfAnotherLayer) {
  const std::string found = callRefusal(ModelPlan(), [](gvx::Tables &tables) {
    Json manifest = Json::parse(tables.manifest);
    manifest["roles"][0]["layers"][0]["data"] = {1};
    manifest["roles"][0]["layers"][2]["data"] = {0};
    tables.manifest = manifest.dump();
  });
  EXPECT_EQ(found, "program 'test': layer 'layer0', which gives no loss: "
                   "expected it not to read 'labels', which the loss is a mean "
                   "over");
}

TEST(SessionRefusals, CallsThatMoveBlocks) {
  ModelPlan plan;
  plan.movesBlocks = true;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"tp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  enum { Sum, Shift, Largest, Counts, Forth, Back };
  auto with = [&](size_t which, auto change) {
    return callRefusal(plan, [&](gvx::Tables &tables) {
      ASSERT_GT(tables.collectives.size(), size_t(Back));
      change(tables.collectives[which], tables);
    });
  };
  auto expectEnd = [](const std::string &found, const std::string &end) {
    EXPECT_TRUE(found.ends_with(": " + end)) << found << "\nexpected " << end;
  };
  using Op = gvx::Collective;
  using Tables = gvx::Tables;
  EXPECT_EQ(with(Shift, [](Op &op, Tables &) { op.argument = 1; }), "");
  expectEnd(with(Shift, [](Op &op, Tables &) { op.argument = -2; }),
            "expected a distance below 2, found -2");
  expectEnd(with(Shift, [](Op &op, Tables &) { op.in.bytes -= 8; }),
            "expected bytes and types that fit 2 ranks, found 1016 of f64 in "
            "and 1024 of f64 out");
  expectEnd(with(Shift, [](Op &op, Tables &) { op.acc = 1; }),
            "expected acc 0, found 1");
  expectEnd(with(Largest, [](Op &op, Tables &) { op.out.offset += 64; }),
            "expected a result in place, found another buffer out");
  expectEnd(with(Forth, [](Op &op, Tables &) { op.out = op.in; }),
            "expected an input and an output that do not overlap");
  expectEnd(
      with(Forth, [](Op &op, Tables &) { op.in.bytes = op.out.bytes = 8; }),
      "expected a block of whole elements for each of 2 ranks, found 8 bytes");
  expectEnd(with(Counts, [](Op &op, Tables &) { op.argument = 24; }),
            "expected whole units of whole elements, found units of 24, 1024 "
            "bytes in and 1024 out");
  auto countsAre = [](auto change) {
    return [=](Op &, Tables &tables) {
      for (grt_buffer &buffer : tables.buffers)
        if (buffer.region == GRT_REGION_DATA && buffer.bytes == 16)
          change(buffer);
    };
  };
  expectEnd(with(Counts, countsAre([](grt_buffer &b) { b.bytes = 24; })),
            "expected counts of 2 by 2 i32, found 24 bytes of i32");
  expectEnd(with(Counts, countsAre([](grt_buffer &b) { b.dtype = GRT_F32; })),
            "expected counts of 2 by 2 i32, found 16 bytes of f32");
  // All tokens are 1: two units, of which there is memory for one.
  expectEnd(with(Counts, [](Op &op, Tables &) { op.argument = 1024; }),
            "all-to-all: expected at most 1 units sent, found 1 behind 1");
}

TEST(SessionRefusals, CallsThatOrderStreams) {
  ModelPlan plan;
  plan.streams = true;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"sdp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  // The last one of the functions with most events, and other streams.
  auto all = [&](uint32_t event, uint32_t stream) {
    return callRefusal(plan, [&](gvx::Tables &tables) {
      uint32_t last = 0;
      for (const gvx::Event &order : tables.events)
        last = std::max(last, order.event);
      for (gvx::Event &order : tables.events) {
        order.event += event - last;
        order.stream = std::max(order.stream, stream);
      }
    });
  };
  EXPECT_EQ(all(63, GRT_STREAM_COMPUTE), "");
  EXPECT_EQ(all(63, GRT_STREAM_OUT),
            "program 'test': function 'function0', call 3: expected stream "
            "'gather' to wait for stream 'compute' before");
}

/// A session that can do no step, of a program of another manifest.
struct Refusing {
  explicit Refusing(const Json &manifest,
                    const SessionOptions &options = onReference()) {
    gvx::Tables tables = TestProgram(plan).tables();
    tables.manifest = manifest.dump();
    fit(tables, manifest);
    status = Program::loadMemory(tables.file(), "test", program);
    if (status)
      status = Session::create(program, options, session);
    EXPECT_TRUE(status) << status.message();
  }

  /// The error of a step over so many batches of the program.
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
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  Status status;

private:
  /// Gives the role the schedule that its manifest wants.
  static void fit(gvx::Tables &tables, const Json &manifest) {
    gvx::Role &role = tables.roles[0];
    std::vector<grt_task> parts[GRT_PART_COUNT];
    for (int part = 0; part < GRT_PART_COUNT; ++part) {
      const auto first = tables.tasks.begin() + role.parts[part].first;
      parts[part].assign(first, first + role.parts[part].count);
    }
    std::vector<grt_task> &steady = parts[GRT_PART_STEADY];
    if (manifest.contains("delay"))
      parts[GRT_PART_DRAIN] = steady;
    if (manifest["roles"][0].contains("home")) {
      comeAndGo(steady);
      parts[GRT_PART_EVALUATE].insert(parts[GRT_PART_EVALUATE].begin(),
                                      swap(GRT_SWAP_PARAMETERS, GRT_TO_DEVICE));
    }
    if (manifest.contains(Json::json_pointer("/plan/home-updates")))
      for (grt_task_kind kind : {GRT_TASK_SYNC_GRADIENTS, GRT_TASK_UPDATE}) {
        steady.push_back({});
        steady.back().kind = uint8_t(kind);
        std::erase_if(parts[GRT_PART_STEP_END],
                      [&](const grt_task &task) { return task.kind == kind; });
      }
    tables.tasks.clear();
    for (int part = 0; part < GRT_PART_COUNT; ++part) {
      role.parts[part] = {uint32_t(tables.tasks.size()),
                          uint32_t(parts[part].size())};
      tables.tasks.insert(tables.tasks.end(), parts[part].begin(),
                          parts[part].end());
    }
    EXPECT_TRUE(gvx::lowerTasks(tables));
  }
  static grt_task swap(unsigned classes, unsigned tiers) {
    grt_task task{};
    task.kind = GRT_TASK_SWAP;
    task.classes = uint8_t(classes);
    task.tiers = uint8_t(tiers);
    return task;
  }
  /// Swaps around passes: what forward keeps goes home behind it, and comes
  /// back for backward.
  static void comeAndGo(std::vector<grt_task> &steady) {
    std::vector<grt_task> tasks = {swap(GRT_SWAP_PARAMETERS, GRT_TO_DEVICE)};
    for (const grt_task &task : steady) {
      const bool isForward = task.kind == GRT_TASK_FORWARD;
      grt_task slot =
          swap(GRT_SWAP_ACTIVATIONS, isForward ? GRT_TO_HOST : GRT_TO_DEVICE);
      slot.micro_batch = task.micro_batch;
      slot.slot = task.slot;
      tasks.insert(tasks.end(),
                   {isForward ? task : slot, isForward ? slot : task});
    }
    tasks.push_back(swap(GRT_SWAP_GRADIENTS, GRT_TO_HOST));
    steady = tasks;
  }
};

TEST(SessionRefusals, UpdatesThatWaitForNobody) {
  Json justInTime = atHome(2);
  justInTime["plan"]["home-updates"] = true; // said to Refusing alone
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
