//===- StreamTest.cpp - Programs for devices with streams -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The twins' plans, compiled for a backend with streams: the events are enough,
// none is too much, and gradients are reduced behind the backward pass where
// that is sound.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

using namespace ::galvatron::test;
using ::galvatron::Strategy;
using namespace mlir;

namespace {

class StreamTest : public ::testing::Test {
protected:
  StreamTest() { loadTwinDialects(context); }

  /// Compiles `plan` for devices with streams and looks at the program before
  /// memory is placed.
  void compile(const TwinPlan &plan, const std::string &dtype,
               std::function<void(ModuleOp)> look) {
    SCOPED_TRACE(plan.str() + " " + dtype);
    TwinOptions options;
    options.backend = "cuda";
    options.dtype = dtype;
    options.corrupt = std::move(look);
    std::string bytes;
    EXPECT_EQ(compileTwin(context, model, plan, options, bytes), "");
  }

  MLIRContext context;
  TwinModel model;
};

bool isEvent(Operation &op) {
  return isa<mlir::grt::RecordOp, mlir::grt::WaitOp>(op);
}

/// Whether the function without its event operation number `left` is sound.
bool isSoundWithout(mlir::grt::FuncOp func, size_t left) {
  OwningOpRef<Operation *> copy = func->clone();
  auto clone = cast<mlir::grt::FuncOp>(*copy);
  size_t number = 0;
  for (Operation &op : clone.getBody().front())
    if (isEvent(op) && number++ == left) {
      op.erase();
      break;
    }
  ScopedDiagnosticHandler quiet(func.getContext(),
                                [](Diagnostic &) { return success(); });
  return succeeded(mlir::grt::verifyStreamOrder(clone));
}

TEST_F(StreamTest, EveryEventIsNeeded) {
  std::mt19937 generator(7);
  int64_t events = 0, onGradient = 0;
  for (int trial = 0; trial < 30; ++trial)
    compile(randomPlan(model, generator), trial % 2 ? "bf16" : "f32",
            [&](ModuleOp module) {
              for (auto func : module.getOps<mlir::grt::FuncOp>()) {
                EXPECT_TRUE(succeeded(mlir::grt::verifyStreamOrder(func)));
                size_t count = 0;
                for (Operation &op : func.getBody().front()) {
                  count += isEvent(op);
                  onGradient += mlir::grt::getStream(&op) ==
                                    mlir::grt::Stream::Gradient &&
                                isa<mlir::grt::ReduceScatterOp>(op);
                }
                for (size_t left = 0; left < count; ++left)
                  EXPECT_FALSE(isSoundWithout(func, left))
                      << func.getSymName().str() << " event operation " << left;
                events += count;
              }
            });
  EXPECT_GE(events, 40);
  EXPECT_GT(onGradient, 10);
}

/// Steps of attention in a ring, and those that begin without having waited for
/// the shifts in front of them.
struct RingSteps {
  int64_t all = 0, besideShifts = 0;
};
RingSteps stepsOf(mlir::grt::FuncOp func) {
  using mlir::grt::Stream;
  constexpr auto gather = size_t(Stream::Gather);
  RingSteps steps;
  ::galvatron::streams::Progress progress;
  std::map<int64_t, mlir::grt::StreamPositions> events;
  int number = 0, shifted = -1;
  for (Operation &op : func.getBody().front()) {
    const auto stream = size_t(mlir::grt::getStream(&op));
    if (auto record = dyn_cast<mlir::grt::RecordOp>(op)) {
      events[record.getEvent()] = progress.at(stream);
      continue;
    }
    if (auto wait = dyn_cast<mlir::grt::WaitOp>(op)) {
      progress.wait(stream, events.at(wait.getEvent()));
      continue;
    }
    if (isa<mlir::grt::BufferOp, mlir::grt::ViewOp>(op))
      continue;
    progress.run(stream, ++number);
    if (isa<mlir::grt::ShiftOp>(op) && stream == gather)
      shifted = number;
    auto kernel = dyn_cast<mlir::grt::KernelOp>(op);
    if (!kernel || (kernel.getKernel() != mlir::grt::Kernel::RingAttention &&
                    kernel.getKernel() != mlir::grt::Kernel::RingAttentionGrad))
      continue;
    ++steps.all;
    steps.besideShifts += shifted > progress.at(stream)[gather];
  }
  return steps;
}

/// Each step but the last runs beside the shifts to the next one, forward,
/// backward and recomputed, and no event is too much.
TEST_F(StreamTest, StepsOfARingRunBesideShifts) {
  for (const char *text : {"ring4", "sring4.ckpt", "tp2.ring2", "sdp2.ring2"}) {
    const Strategy strategy = llvm::cantFail(Strategy::parse(text));
    const int64_t ranks =
        strategy.degree(strategy.on(::galvatron::LayerAxis::Context));
    int64_t functions = 0;
    compile(
        uniformPlan(model, 1, strategy, 4 * strategy.sampleShards(), 4, "1f1b"),
        "f32", [&](ModuleOp module) {
          for (auto func : module.getOps<mlir::grt::FuncOp>()) {
            const RingSteps steps = stepsOf(func);
            if (steps.all == 0)
              continue;
            ++functions;
            EXPECT_EQ(steps.all, ranks);
            EXPECT_EQ(steps.besideShifts, ranks - 1);
            size_t count = 0;
            for (Operation &op : func.getBody().front())
              count += isEvent(op);
            for (size_t left = 0; left < count; ++left)
              EXPECT_FALSE(isSoundWithout(func, left))
                  << func.getSymName().str() << " event operation " << left;
          }
        });
    EXPECT_EQ(functions, strategy.checkpoint() ? 3 : 2) << text;
  }
}

/// By layer "f" and "b" where it is gathered ahead in that direction.
TEST_F(StreamTest, ParametersAreGatheredAhead) {
  auto expectAhead = [&](const TwinPlan &plan,
                         std::vector<std::string> expected) {
    compile(plan, "f32", [&](ModuleOp module) {
      std::vector<std::string> found;
      module.walk([&](mlir::grt::LayerOp layer) {
        found.push_back(std::string(layer.getForwardAhead() ? "f" : "") +
                        (layer.getBackwardAhead() ? "b" : ""));
      });
      EXPECT_EQ(found, expected);
      // Functions gather nothing over sdp.
      module.walk([&](mlir::grt::AllGatherOp gather) {
        EXPECT_NE(gather.getAxis(), mlir::grt::Axis::SDP);
      });
    });
  };
  auto uniform = [&](const char *text) {
    return uniformPlan(model, 2, llvm::cantFail(Strategy::parse(text)), 16, 4,
                       "1f1b");
  };
  // Two stages of four layers. The embedding's backward reads no parameters.
  for (const char *text : {"sdp4", "dp2.sdp2", "sdp2.tp2.ckpt"})
    expectAhead(uniform(text), {"", "fb", "fb", "f", "b", "fb", "fb", "f"});
  for (const char *text : {"dp4", "tp4.ckpt"})
    expectAhead(uniform(text), std::vector<std::string>(8));
  // Layer 2 shards nothing, but others may be gathered beside it; between 5 and
  // 6 stands a reshard.
  TwinPlan mixed = uniform("sdp4");
  mixed.strategies[2] = llvm::cantFail(Strategy::parse("dp4"));
  mixed.strategies[6] = mixed.strategies[7] =
      llvm::cantFail(Strategy::parse("tp2.sdp2"));
  expectAhead(mixed, {"", "fb", "", "f", "b", "f", "b", "f"});
}

TEST_F(StreamTest, GradientsAreReducedBehindTheLastBackward) {
  struct Case {
    const char *strategy;
    bool expected;
  };
  // Nothing to reduce without DP; one strategy throughout is always sound.
  for (auto [text, expected] :
       {Case{"dp4", true}, Case{"dp2.tp2", true}, Case{"sdp2.dp2", true},
        Case{"dp2.tp2.ckpt", true}, Case{"tp4", false}, Case{"sdp4", false}}) {
    Strategy strategy = llvm::cantFail(Strategy::parse(text));
    compile(uniformPlan(model, 2, strategy, 16, 4, "1f1b"), "f32",
            [&, expected = expected](ModuleOp module) {
              int64_t last = 0, flagged = 0;
              module.walk([&](mlir::grt::TaskOp task) {
                if (task.getKind() != mlir::grt::TaskKind::Backward)
                  return;
                last += *task.getMicroBatch() == 3;
                flagged += task.getSyncBehind();
                EXPECT_TRUE(!task.getSyncBehind() ||
                            *task.getMicroBatch() == 3);
              });
              EXPECT_EQ(last, 2);
              EXPECT_EQ(flagged, expected ? 2 : 0);
            });
  }
}

TEST_F(StreamTest, ProgramsOfTheCpuHaveOneStream) {
  TwinOptions options;
  int64_t operations = 0;
  options.corrupt = [&](ModuleOp module) {
    module.walk([&](Operation *op) {
      ++operations;
      EXPECT_FALSE(isEvent(*op));
      EXPECT_EQ(mlir::grt::getStream(op), mlir::grt::Stream::Compute);
      if (auto task = dyn_cast<mlir::grt::TaskOp>(op)) {
        EXPECT_FALSE(task.getSyncBehind());
      }
    });
  };
  std::string bytes;
  Strategy strategy = llvm::cantFail(Strategy::parse("sdp2.dp2"));
  EXPECT_EQ(compileTwin(context, model,
                        uniformPlan(model, 2, strategy, 16, 4, "1f1b"), options,
                        bytes),
            "");
  EXPECT_GT(operations, 100);
}

} // namespace
