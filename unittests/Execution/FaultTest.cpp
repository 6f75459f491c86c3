//===- FaultTest.cpp - The twins catch what they are for ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Faults that distributed training is known for, each put into the compiled
// program of a plan that is right without it. A comparison that does not see
// one of them would be worth nothing.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "gtest/gtest.h"

using namespace ::galvatron::test;
using ::galvatron::Strategy;
using namespace mlir;

namespace {

class FaultTest : public ::testing::Test {
protected:
  FaultTest() { loadTwinDialects(context); }

  /// Two stages of four ranks; every kind of level occurs.
  TwinPlan plan(const char *strategy) {
    return uniformPlan(model, 2, llvm::cantFail(Strategy::parse(strategy)), 16,
                       microBatches, "1f1b");
  }

  /// Runs `plan` without and with the fault: the first must agree with one
  /// rank, the second must not.
  void expectCaught(const char *strategy, TwinOptions options) {
    TwinOptions clean = options;
    clean.corrupt = nullptr;
    clean.corruptBodies = nullptr;
    TwinRun reference = runTwin(context, model, singleRank(model, 16), clean);
    ASSERT_EQ(reference.error, "");
    TwinRun right = runTwin(context, model, plan(strategy), clean);
    ASSERT_EQ(right.error, "");
    Bounds bounds = getBounds(clean.dtype, clean.optimizer);
    EXPECT_EQ(compareRuns(right, reference, bounds), "");
    TwinRun wrong = runTwin(context, model, plan(strategy), options);
    // A fault must show in the numbers, not only stop the run.
    ASSERT_EQ(wrong.error, "");
    EXPECT_TRUE(injected) << "the fault found no place in the program";
    EXPECT_NE(compareRuns(wrong, reference, bounds), "");
  }

  /// Runs `plan` with a fault that is refused when the program is loaded.
  void expectRefused(const char *strategy, const TwinOptions &options,
                     const std::string &why) {
    TwinRun wrong = runTwin(context, model, plan(strategy), options);
    EXPECT_TRUE(injected) << "the fault found no place in the program";
    EXPECT_EQ(wrong.error.find("program 'twin': "), 0u) << wrong.error;
    EXPECT_NE(wrong.error.find(why), std::string::npos) << wrong.error;
  }

  /// A fault in partitioned bodies or in the scheduled program.
  TwinOptions inBodies(std::function<void(ModuleOp)> fault) {
    TwinOptions options;
    options.corruptBodies = std::move(fault);
    return options;
  }
  TwinOptions inProgram(std::function<void(ModuleOp)> fault) {
    TwinOptions options;
    options.corrupt = std::move(fault);
    return options;
  }

  MLIRContext context;
  TwinModel model;
  int64_t microBatches = 4;
  bool injected = false;
};

TEST_F(FaultTest, GradientOfReplicatedParameterCountedPerTensorRank) {
  expectCaught("tp4", inBodies([&](ModuleOp module) {
                 module.walk([&](nn::LayerNormGradOp op) {
                   OpBuilder builder(op->getContext());
                   builder.setInsertionPointAfter(op);
                   auto sum = mlir::galvatron::AllReduceOp::create(
                       builder, op.getLoc(), op.getDgamma().getType(),
                       op.getDgamma(), mlir::galvatron::Axis::TP);
                   op.getDgamma().replaceAllUsesExcept(sum.getOutput(), sum);
                   injected = true;
                 });
               }));
}

TEST_F(FaultTest, GradientOfASharedHeadNotSummed) {
  model.family = "llama";
  model.keyHeads = 2;
  expectCaught("tp4", inBodies([&](ModuleOp module) {
                 module.walk([&](nn::OwnPartGradOp op) {
                   for (Operation *user : op->getUsers())
                     if (auto sum =
                             dyn_cast<mlir::galvatron::AllReduceOp>(user)) {
                       sum.getOutput().replaceAllUsesWith(op.getDx());
                       injected = true;
                     }
                 });
               }));
}

TEST_F(FaultTest, MeanOverMicroBatchesForgotten) {
  expectCaught("dp4", inProgram([&](ModuleOp module) {
                 module.walk([&](mlir::grt::KernelOp op) {
                   if (op.getKernel() != mlir::grt::Kernel::SoftmaxCrossEntropy)
                     return;
                   OpBuilder builder(op->getContext());
                   builder.setInsertionPointAfter(op);
                   Value gradient = op.getBuffers()[3];
                   int64_t n =
                       cast<MemRefType>(gradient.getType()).getNumElements();
                   mlir::grt::KernelOp::create(
                       builder, op.getLoc(), mlir::grt::Kernel::Scale,
                       ValueRange{gradient, gradient}, {n}, {4.0});
                   injected = true;
                 });
               }));
}

/// The task of `kind` in every schedule.
void forEachTask(ModuleOp module, mlir::grt::TaskKind kind,
                 function_ref<void(mlir::grt::TaskOp)> visit) {
  SmallVector<mlir::grt::TaskOp> tasks;
  module.walk([&](mlir::grt::TaskOp task) {
    if (task.getKind() == kind)
      tasks.push_back(task);
  });
  for (mlir::grt::TaskOp task : tasks)
    visit(task);
}

TEST_F(FaultTest, TiedGradientDropped) {
  expectRefused("sdp4", inProgram([&](ModuleOp module) {
                  forEachTask(module, mlir::grt::TaskKind::TieReduce,
                              [&](mlir::grt::TaskOp task) {
                                task.erase();
                                injected = true;
                              });
                }),
                "expected a 'tie-reduce' task");
}

TEST_F(FaultTest, TiedGradientDoubled) {
  expectRefused("tp2.sdp2", inProgram([&](ModuleOp module) {
                  forEachTask(module, mlir::grt::TaskKind::TieReduce,
                              [&](mlir::grt::TaskOp task) {
                                OpBuilder(task).clone(*task);
                                injected = true;
                              });
                }),
                "'tie-reduce': the task was already run");
}

TEST_F(FaultTest, TiedValueNotSentBack) {
  expectRefused("dp4", inProgram([&](ModuleOp module) {
                  forEachTask(module, mlir::grt::TaskKind::TieBroadcast,
                              [&](mlir::grt::TaskOp task) {
                                task.erase();
                                injected = true;
                              });
                }),
                "expected a 'tie-broadcast' task");
}

TEST_F(FaultTest, WrongWeightVersionForOneMicroBatch) {
  // The first stage updates before its last backward pass instead of after it.
  // Programs may do so only where a chunk is complete by then, which the loader
  // looks at: this one never runs.
  TwinRun wrong =
      runTwin(context, model, plan("dp4"), inProgram([&](ModuleOp module) {
                auto schedule = *module.getOps<mlir::grt::ScheduleOp>().begin();
                mlir::grt::TaskOp last, update;
                schedule.walk([&](mlir::grt::TaskOp task) {
                  if (task.getKind() == mlir::grt::TaskKind::Backward)
                    last = task;
                  if (task.getKind() == mlir::grt::TaskKind::Update)
                    update = task;
                });
                update->moveBefore(last);
                injected = true;
              }));
  EXPECT_TRUE(injected) << "the fault found no place in the program";
  EXPECT_NE(wrong.error.find("it ends a step"), std::string::npos)
      << wrong.error;
}

TEST_F(FaultTest, BiasAddedOnEveryTensorRank) {
  expectCaught("tp2.dp2", inBodies([&](ModuleOp module) {
                 SmallVector<nn::BiasAddOp> biases;
                 module.walk([&](nn::BiasAddOp op) {
                   if (op.getX().getDefiningOp<mlir::galvatron::AllReduceOp>())
                     biases.push_back(op);
                 });
                 for (nn::BiasAddOp op : biases) {
                   auto reduce =
                       op.getX().getDefiningOp<mlir::galvatron::AllReduceOp>();
                   op.getXMutable().assign(reduce.getInput());
                   reduce->moveAfter(op);
                   op.getY().replaceAllUsesExcept(reduce.getOutput(), reduce);
                   reduce.getInputMutable().assign(op.getY());
                   injected = true;
                 }
               }));
}

TEST_F(FaultTest, GradientOfANormLeftInTermsOfRows) {
  expectCaught("tsp4", inBodies([&](ModuleOp module) {
                 module.walk([&](mlir::galvatron::AllReduceOp op) {
                   Value term = op.getInput();
                   if (!term.getDefiningOp<nn::LayerNormGradOp>())
                     return;
                   op.getOutput().replaceAllUsesWith(term);
                   injected = true;
                 });
               }));
}

TEST_F(FaultTest, MaskOfABlockOfRowsKeyedByItsOwnRows) {
  expectCaught("dp2.tsp2", inProgram([&](ModuleOp module) {
                 module.walk([&](mlir::grt::KernelOp op) {
                   using mlir::grt::Kernel;
                   Kernel kernel = op.getKernel();
                   if (kernel != Kernel::Dropout &&
                       kernel != Kernel::DropoutAdd &&
                       kernel != Kernel::AddLayerNorm)
                     return;
                   SmallVector<int64_t> ints(op.getInts());
                   injected |= ints.back() > 0;
                   ints.back() = 0;
                   op.setInts(ints);
                 });
               }));
}

TEST_F(FaultTest, RowsOfABlockTurnedFromTheFirstPosition) {
  model.family = "llama";
  microBatches = 16; // one sample on four ranks
  expectCaught("cp4", inProgram([&](ModuleOp module) {
                 module.walk([&](mlir::grt::KernelOp op) {
                   if (op.getKernel() != mlir::grt::Kernel::Rotary)
                     return;
                   // The last integers are the length and that it is balanced.
                   op.setInts(op.getInts().drop_back(2));
                   injected = true;
                 });
               }));
}

TEST_F(FaultTest, GradientsOfKeysOfOwnQueriesAlone) {
  microBatches = 16;
  expectCaught("cp4", inBodies([&](ModuleOp module) {
                 module.walk([&](mlir::galvatron::ReduceScatterRowsOp op) {
                   if (!op.getInput().getDefiningOp<nn::AttentionGradOp>())
                     return;
                   OpBuilder builder(op);
                   auto own = mlir::galvatron::SliceRowsOp::create(
                       builder, op.getLoc(), op.getOutput().getType(),
                       op.getInput(), op.getAxis());
                   op.getOutput().replaceAllUsesWith(own.getOutput());
                   op.erase();
                   injected = true;
                 });
               }));
}

TEST_F(FaultTest, LossOfTheFirstBlockAlone) {
  expectCaught("cp4", inBodies([&](ModuleOp module) {
                 module.walk([&](mlir::galvatron::AllReduceOp op) {
                   if (!op.getInput().getDefiningOp<nn::CrossEntropyOp>())
                     return;
                   op.getOutput().replaceAllUsesWith(op.getInput());
                   op.erase();
                   injected = true;
                 });
               }));
}

TEST_F(FaultTest, DropoutKeyOfAnotherLayer) {
  expectCaught("dp2.tp2", inProgram([&](ModuleOp module) {
                 auto role = *module.getOps<mlir::grt::RoleOp>().begin();
                 mlir::grt::LayerOp last;
                 for (auto layer :
                      role.getLayers().getOps<mlir::grt::LayerOp>())
                   last = layer;
                 last.setDropoutKey(last.getIndex() + 1);
                 injected = true;
               }));
}

TEST_F(FaultTest, NormCountsReplicatedShardsTwice) {
  expectRefused("tp4", inProgram([&](ModuleOp module) {
                  module.walk([&](mlir::grt::KernelOp op) {
                    if (op.getKernel() != mlir::grt::Kernel::Norm)
                      return;
                    // ints: shard elements, segments, then begin, length,
                    // replicated.
                    SmallVector<int64_t> ints(op.getInts());
                    for (size_t i = 4; i < ints.size(); i += 3)
                      ints[i] = 0;
                    op.setInts(ints);
                    injected = true;
                  });
                }),
                "expected the flag 1 of");
}

TEST_F(FaultTest, ParametersNotGatheredForBackward) {
  // The backward pass of a sharded layer reads what forward left behind.
  expectCaught("sdp4", inProgram([&](ModuleOp module) {
                 SmallVector<mlir::grt::AllGatherOp> gathers;
                 module.walk([&](mlir::grt::FuncOp function) {
                   if (function.getSymName().ends_with(".backward"))
                     function.walk([&](mlir::grt::AllGatherOp op) {
                       gathers.push_back(op);
                     });
                 });
                 for (mlir::grt::AllGatherOp op : gathers) {
                   // Every rank still sees its own shard, in place of all of
                   // them.
                   OpBuilder builder(op);
                   auto shard = cast<MemRefType>(op.getSource().getType());
                   int64_t bytes = mlir::grt::getByteSize(shard);
                   int64_t whole = mlir::grt::getByteSize(
                       cast<MemRefType>(op.getDestination().getType()));
                   for (int64_t at = 0; at < whole; at += bytes) {
                     Value view = mlir::grt::ViewOp::create(
                         builder, op.getLoc(), shard, op.getDestination(), at);
                     mlir::grt::KernelOp::create(
                         builder, op.getLoc(), mlir::grt::Kernel::Copy,
                         ValueRange{op.getSource(), view},
                         {1, bytes, bytes, bytes}, {});
                   }
                   op.erase();
                   injected = true;
                 }
               }));
}

} // namespace
