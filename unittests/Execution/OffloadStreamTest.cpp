//===- OffloadStreamTest.cpp - States at home beside a device -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Programs for devices with memory of their own whose states have their home on
// the host: on the recording backend, which checks order and lifetimes of every
// copy, losses, gradients and parameters are those of one rank that has
// everything. An event that is left out, a host that does not wait, and a copy
// over what is in use are found.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "mlir/IR/Builders.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

namespace {

class OffloadStreamTest : public ::testing::Test {
protected:
  OffloadStreamTest() {
    loadTwinDialects(context);
    model.layers = 6;
  }

  static TwinOptions onDevice(const std::string &dtype = "f64") {
    TwinOptions options;
    options.backend = "cuda";
    options.dtype = dtype;
    options.steps = 3;
    options.eps = dtype == "f64" ? 1e-8 : 1e-6;
    return options;
  }

  TwinRun expectTwins(const TwinPlan &plan, const TwinOptions &options) {
    SCOPED_TRACE(plan.str() + " " + options.dtype);
    TwinOptions plain = options;
    plain.backend = "cpu";
    plain.changeDevice = nullptr;
    plain.emulation.clear();
    const TwinRun &expected = references.of(model, plain, plan.batch);
    EXPECT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(
        compareRuns(run, expected, getBounds(options.dtype, options.optimizer)),
        "");
    for (::grt::RankMemory &rank : run.memory) {
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes);
      EXPECT_TRUE(rank.homeBytes > 0 || plan.offload.byLayer());
    }
    return run;
  }

  static TwinPlan offloaded(const TwinModel &model, Offload offload,
                            int64_t stages, int64_t chunks,
                            const Strategy &strategy, int64_t batch,
                            int64_t microBatches) {
    TwinPlan plan =
        uniformPlan(model, stages * chunks, strategy, batch, microBatches,
                    chunks > 1 ? "interleaved" : "1f1b");
    plan.chunks = chunks;
    plan.offload = offload;
    return plan;
  }

  mlir::MLIRContext context;
  References references{context};
  TwinModel model;
};

/// Both kinds, with and without activations, updates just in time and at the
/// end; ties and dropout; one micro-batch to five.
TEST_F(OffloadStreamTest, EqualsOneRank) {
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (Offload states : {Offload::All, Offload::Optimizer})
    for (bool justInTime : {false, true})
      for (bool activations : {false, true})
        for (auto [stages, chunks] :
             {std::pair(1, 1), {2, 1}, {2, 2}, {2, 3}, {4, 2}})
          for (int64_t microBatches : {1, 2, 3, 4, 5}) {
            // A sample of them; all in the long run.
            if (!all && number++ % 23)
              continue;
            Offload offload = states;
            offload.justInTime = justInTime;
            offload.activations = activations;
            TwinOptions options = onDevice();
            options.clip = !justInTime;
            expectTwins(offloaded(model, offload, stages, chunks, Strategy(),
                                  2 * microBatches, microBatches),
                        options);
          }
}

/// Some layers' states are on the device, summed and updated there, and those
/// of others at home: one norm of both.
TEST_F(OffloadStreamTest, HomesOfLayers) {
  bool all = std::getenv("GALVATRON_LONG");
  std::mt19937 generator(5);
  int64_t number = 0;
  for (auto [stages, chunks, schedule] : {std::tuple(1, 1, "1f1b"),
                                          {2, 1, "1f1b"},
                                          {2, 1, "zb-h1"},
                                          {2, 2, "interleaved"}})
    for (const Strategy &strategy :
         enumerateStrategies(4 / stages, allStrategies())) {
      if (!all && number++ % 9)
        continue;
      TwinPlan plan = uniformPlan(model, stages * chunks, strategy,
                                  4 * strategy.sampleShards(), 4, schedule);
      plan.chunks = chunks;
      mixHomes(plan, generator, /*activations=*/false);
      TwinOptions options = onDevice(number % 2 ? "f64" : "f32");
      options.clip = number % 3;
      expectTwins(plan, options);
    }
}

/// A stage without such layers takes part in steps in which another has some.
TEST_F(OffloadStreamTest, HomesOfOneStage) {
  TwinPlan plan = uniformPlan(model, 2, Strategy(), 4, 2, "1f1b");
  plan.offload = Offload::Layers;
  Strategy &layer = plan.strategies[plan.strategies.size() - 2];
  layer = layer.withHome({/*states=*/true, /*activations=*/false});
  expectTwins(plan, onDevice());
}

/// A host and a device do not sum one gradient.
TEST_F(OffloadStreamTest, TiedLayersHaveOneHome) {
  TwinPlan plan = uniformPlan(model, 2, Strategy(), 4, 2, "1f1b");
  plan.offload = Offload::Layers;
  Strategy &first = plan.strategies.front();
  first = first.withHome({/*states=*/true, /*activations=*/false});
  TwinRun run = runTwin(context, model, plan, onDevice());
  EXPECT_NE(run.error.find("tied parameter"), std::string::npos) << run.error;
  plan.strategies.back() = first;
  expectTwins(plan, onDevice());
}

/// Parameters a chunk ahead, in a second place.
TEST_F(OffloadStreamTest, BroughtAhead) {
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (bool justInTime : {false, true})
    for (bool activations : {false, true})
      for (auto [stages, chunks] : {std::pair(2, 2), {2, 3}, {2, 4}, {4, 2}})
        for (int64_t microBatches : {1, 2, 3, 4, 5}) {
          if (!all && number++ % 17)
            continue;
          Offload offload = Offload::All;
          offload.prefetch = true;
          offload.justInTime = justInTime;
          offload.activations = activations;
          TwinOptions options = onDevice();
          options.clip = !justInTime;
          expectTwins(offloaded(model, offload, stages, chunks, Strategy(),
                                2 * microBatches, microBatches),
                      options);
        }
}

/// What is summed over ranks, scattered and gathered at home, and beside it on
/// the device.
TEST_F(OffloadStreamTest, Strategies) {
  bool all = std::getenv("GALVATRON_LONG");
  int64_t number = 0;
  for (Offload offload : {Offload::All, Offload::Optimizer})
    for (auto [stages, chunks] : {std::pair(1, 1), {2, 2}})
      for (const Strategy &strategy :
           enumerateStrategies(4 / stages, allStrategies())) {
        if (!all && number++ % 16)
          continue;
        expectTwins(offloaded(model, offload, stages, chunks, strategy,
                              2 * strategy.sampleShards(), 2),
                    onDevice(number % 2 ? "f64" : "f32"));
      }
  expectTwins(offloaded(model, Offload::All, 2, 2, Strategy(), 8, 4),
              onDevice("bf16"));
  // Shards are gathered from where a chunk's parameters have come to.
  expectTwins(offloaded(model, Offload::All, 1, 1,
                        llvm::cantFail(Strategy::parse("sdp2")), 4, 2),
              onDevice());
}

/// Bytes are those that CPU ranks move.
TEST_F(OffloadStreamTest, MovesWhatCpuRanksMove) {
  Offload offload = Offload::All;
  offload.activations = true;
  TwinPlan plan = offloaded(model, offload, 2, 3, Strategy(), 4, 2);
  TwinOptions options = onDevice();
  TwinRun here = expectTwins(plan, options);
  options.backend = "cpu";
  TwinRun there = runTwin(context, model, plan, options);
  ASSERT_EQ(here.swaps.size(), there.swaps.size());
  for (size_t i = 0; i < here.swaps.size(); ++i) {
    EXPECT_EQ(here.swaps[i].in(), there.swaps[i].in());
    EXPECT_EQ(here.swaps[i].out(), there.swaps[i].out());
    EXPECT_EQ(here.memory[i].homeBytes, there.memory[i].homeBytes);
    EXPECT_EQ(here.memory[i].pageableBytes, 0u);
  }
}

/// Through the CUDA backend itself, its device emulated: one slot, as that has
/// no windows.
TEST_F(OffloadStreamTest, OnEmulatedCuda) {
  if (!builtBackend("libgrt_cuda_emulated.so"))
    GTEST_SKIP() << "the emulation of CUDA is not built";
  model.layers = 2;
  Offload offload = Offload::All;
  offload.activations = offload.prefetch = true;
  TwinOptions options = onDevice("f32");
  options.steps = 2;
  options.emulation = "libgrt_cuda_emulated.so";
  TwinRun run =
      expectTwins(offloaded(model, offload, 2, 2, Strategy(), 2, 2), options);
  ASSERT_EQ(run.swaps.size(), 2u);
  EXPECT_GT(run.swaps[0].activations.out, 0u);
}

uint64_t pinLimit = 0;

/// A machine that lets little be pinned: the rest is copied all the same, and
/// the run says how much it is.
TEST_F(OffloadStreamTest, PinsWhatTheMachineAllows) {
  TwinPlan plan = offloaded(model, Offload::All, 2, 2, Strategy(), 4, 2);
  uint64_t pageable = 0;
  for (uint64_t limit : {UINT64_MAX, uint64_t(128) << 10, uint64_t(0)}) {
    pinLimit = limit;
    TwinOptions options = onDevice();
    options.changeDevice = [](grt_device &device) {
      device.pin_host = [](void *memory, uint64_t bytes, char *message,
                           size_t capacity) -> int32_t {
        return bytes > pinLimit ? 1
                                : recordingBackend()->device->pin_host(
                                      memory, bytes, message, capacity);
      };
    };
    TwinRun run = expectTwins(plan, options);
    for (const ::grt::RankMemory &rank : run.memory) {
      EXPECT_LT(rank.pageableBytes, rank.homeBytes);
      if (rank.rank > 0)
        continue;
      EXPECT_EQ(rank.pageableBytes == 0, limit == UINT64_MAX);
      EXPECT_GE(rank.pageableBytes, pageable);
      pageable = rank.pageableBytes;
    }
  }
}

bool isOfTraining(mlir::grt::TaskOp task) {
  return task->getParentOfType<mlir::grt::PartOp>().getPart() ==
         mlir::grt::Part::Steady;
}

/// Erases event number `left` that tasks of a training step wait for; false if
/// there are not so many.
bool eraseWait(mlir::ModuleOp module, size_t left) {
  bool erased = false;
  module.walk([&](mlir::grt::TaskOp task) {
    if (!isOfTraining(task))
      return mlir::WalkResult::advance();
    llvm::SmallVector<int64_t> after(
        task.getAfter().value_or(llvm::ArrayRef<int64_t>()));
    if (left >= after.size()) {
      left -= after.size();
      return mlir::WalkResult::advance();
    }
    after.erase(after.begin() + long(left));
    if (after.empty())
      task.removeAfterAttr();
    else
      task.setAfter(after);
    erased = true;
    return mlir::WalkResult::interrupt();
  });
  return erased;
}

/// A copy that is used before it is done, one over what runs, and one of what
/// is not there yet: as the program is loaded.
TEST_F(OffloadStreamTest, AMissingEventIsFound) {
  Offload offload = Offload::All;
  offload.activations = offload.prefetch = true;
  TwinPlan plan = offloaded(model, offload, 2, 3, Strategy(), 2, 2);
  bool all = std::getenv("GALVATRON_LONG");
  size_t found = 0;
  for (size_t left = 0;; left += all ? 1 : 5) {
    bool erased = false;
    TwinOptions options = onDevice("f32");
    options.steps = 2;
    options.corrupt = [&](mlir::ModuleOp module) {
      erased = eraseWait(module, left);
    };
    TwinRun run = runTwin(context, model, plan, options);
    if (!erased) {
      EXPECT_EQ(run.error, "");
      break;
    }
    ++found;
    EXPECT_NE(run.error.find("nothing orders it behind"), std::string::npos)
        << "without wait " << left << ": " << run.error;
  }
  EXPECT_GE(found, 5u);
}

/// Updates at home wait for the gradients' copies.
TEST_F(OffloadStreamTest, AHostThatDoesNotWaitIsFound) {
  for (bool justInTime : {false, true}) {
    Offload offload = Offload::All;
    offload.justInTime = justInTime;
    TwinPlan plan = offloaded(model, offload, 2, 2, Strategy(), 2, 2);
    TwinOptions options = onDevice("f32");
    options.clip = !justInTime;
    options.steps = 2;
    options.changeDevice = [](grt_device &device) {
      device.synchronise = [](void *state, uint32_t stream, char *message,
                              size_t capacity) -> int32_t {
        return stream == GRT_STREAM_OUT
                   ? 0
                   : recordingBackend()->device->synchronise(state, stream,
                                                             message, capacity);
      };
    };
    TwinRun run = runTwin(context, model, plan, options);
    EXPECT_NE(run.error.find("the host itself"), std::string::npos)
        << run.error;
    EXPECT_NE(run.error.find("of its home"), std::string::npos) << run.error;
  }
}

/// Number `which` of the swaps that bring parameters is put in front of the
/// pass before it, which runs with what was there.
bool bringEarlier(mlir::ModuleOp module, size_t which) {
  using mlir::grt::TaskKind, mlir::grt::TaskOp;
  TaskOp found, pass;
  module.walk([&](TaskOp task) {
    if (!isOfTraining(task) || task.getKind() != TaskKind::Swap ||
        !task.getParameters())
      return;
    for (mlir::Operation *op = task->getPrevNode(); op;
         op = op->getPrevNode()) {
      auto before = llvm::cast<TaskOp>(op);
      if (before.getKind() != TaskKind::Forward &&
          before.getKind() != TaskKind::Backward)
        continue;
      if (which-- == 0) {
        found = task;
        pass = before;
      }
      return;
    }
  });
  if (found)
    found->moveBefore(pass);
  return bool(found);
}

/// A chunk is overwritten that is in use.
TEST_F(OffloadStreamTest, AnEvictionInUseIsFound) {
  TwinPlan plan = offloaded(model, Offload::All, 2, 2, Strategy(), 2, 2);
  size_t found = 0;
  for (size_t which = 0; which < 4; ++which) {
    bool moved = false;
    TwinOptions options = onDevice("f32");
    options.steps = 2;
    options.corrupt = [&](mlir::ModuleOp module) {
      moved = bringEarlier(module, which);
    };
    TwinRun run = runTwin(context, model, plan, options);
    if (!moved)
      break;
    ++found;
    EXPECT_NE(run.error.find("its schedule cannot run"), std::string::npos)
        << which << ": " << run.error;
  }
  EXPECT_GE(found, 1u);
}

/// Checkpoints are of what is at home, so any plan goes on from them.
TEST_F(OffloadStreamTest, ResumedUnderAnotherPlan) {
  TwinOptions options = onDevice();
  options.steps = 4;
  TwinOptions plain = options;
  plain.backend = "cpu";
  TwinRun expected = runTwin(context, model, singleRank(model, 4), plain);
  ASSERT_EQ(expected.error, "");
  std::string folder =
      ::testing::TempDir() + "offload-stream-" + std::to_string(getpid());
  TwinPlan away = offloaded(model, Offload::All, 2, 2, Strategy(), 4, 2);
  TwinPlan here = uniformPlan(model, 2, llvm::cantFail(Strategy::parse("zdp2")),
                              4, 2, "1f1b");
  for (auto [from, to] : {std::pair(away, here), {here, away}}) {
    std::filesystem::remove_all(folder);
    TwinRun resumed =
        runResumedTwin(context, model, from, to, /*before=*/2, folder, options);
    ASSERT_EQ(resumed.error, "");
    EXPECT_EQ(compareRuns(resumed, expected, getBounds("f64", "adamw")), "");
  }
  std::filesystem::remove_all(folder);
}

} // namespace
