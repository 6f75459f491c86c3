//===- GridTest.cpp - Answers beside what their users would try -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A grid says which configurations the users of a software try by hand: its
// degrees, micro-batches, recomputation and chunks. It is made here and not by
// the target, every point of it is priced in full, and none that fits may be
// faster than the target's answer.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "llvm/ADT/STLExtras.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

/// Values that are tried one with each other. What does not divide is left out.
struct Grid {
  const char *software;
  std::vector<int64_t> tensor, pipeline, chunks;
  std::vector<Sharding> shardings;
  std::vector<Recompute> recomputes;
  /// Parts of the blocks that are recomputed, a quarter each, besides all.
  std::vector<int64_t> quarters;
  bool cutsRows; ///< tensor parallelism cuts rows between products
  bool cutsByWork = false;
};

const std::vector<int64_t> kMicroBatches = {1, 2, 4, 8};
constexpr int64_t kBatch = 32; ///< samples of a step

const Grid kGrids[] = {
    {"megatron",
     {1, 2, 4, 8},
     {1, 2, 4, 8, 16, 32},
     {1, 2, 4},
     {Sharding::Optimizer},
     {Recompute::None, Recompute::Full},
     {1, 2, 3},
     true},
    {"torchtitan",
     {1, 2, 4, 8},
     {1, 2, 4, 8},
     {1, 2, 4},
     {Sharding::None, Sharding::Gradients, Sharding::Parameters},
     {Recompute::None, Recompute::Operations, Recompute::Full},
     {},
     true},
    {"fsdp",
     {1, 2, 4, 8},
     {1},
     {1},
     {Sharding::Gradients, Sharding::Parameters},
     {Recompute::None, Recompute::Full},
     {},
     false},
    {"deepspeed",
     {1, 2, 4, 8},
     {1},
     {1},
     {Sharding::None, Sharding::Optimizer, Sharding::Gradients,
      Sharding::Parameters},
     {Recompute::None, Recompute::Full},
     {},
     false},
    {"nanotron",
     {1, 2, 4, 8},
     {1, 2, 4, 8},
     {1},
     {Sharding::None, Sharding::Optimizer},
     {Recompute::None, Recompute::Full},
     {},
     true,
     true},
};

ModelShape llama3_8b() {
  ModelShape shape;
  shape.name = "llama-3-8b";
  shape.layers = 32;
  shape.hidden = 4096;
  shape.heads = 32;
  shape.keyHeads = 8;
  shape.headWidth = 128;
  shape.inner = 14336;
  shape.vocabulary = 128256;
  shape.tokens = shape.positions = 8192;
  shape.rotaryBase = 500000;
  shape.gated = true;
  return shape;
}

/// Calls `visit` with every point of a grid whose numbers divide.
void visitGrid(const Grid &grid, const Target &target, const ModelShape &shape,
               int64_t devices, int64_t batch,
               llvm::function_ref<void(const Configuration &)> visit) {
  for (int64_t tensor : grid.tensor)
    for (int64_t pipeline : grid.pipeline)
      for (int64_t chunks : grid.chunks)
        for (int64_t microBatch : kMicroBatches) {
          Configuration point;
          point.tensor = tensor;
          point.pipeline = pipeline;
          point.chunks = chunks;
          point.batch = batch;
          point.microBatch = microBatch;
          point.data = devices / (tensor * pipeline);
          if (point.data < 1 || batch % (point.data * microBatch) ||
              shape.layers % (pipeline * chunks) ||
              (chunks > 1 &&
               (pipeline == 1 || point.microBatches() % pipeline)))
            continue;
          if (chunks > 1)
            point.schedule = llvm::cantFail(parseSchedule("interleaved"));
          point.sequenceParallel = grid.cutsRows && tensor > 1;
          point.blocks =
              grid.cutsByWork
                  ? Configuration::blocksByWork(target.asTrained(shape, point),
                                                pipeline)
                  : Configuration::evenBlocks(shape.layers, pipeline * chunks);
          for (Sharding sharding : grid.shardings) {
            if ((sharding == Sharding::Gradients && pipeline > 1) ||
                (sharding != Sharding::None && point.data == 1 &&
                 grid.shardings.size() > 1))
              continue;
            point.sharding = point.data > 1 ? sharding : Sharding::None;
            for (Recompute recompute : grid.recomputes) {
              point.recompute = recompute;
              point.recomputedBlocks = 0;
              visit(point);
              if (recompute == Recompute::Full)
                for (int64_t quarters : grid.quarters) {
                  point.recomputedBlocks =
                      shape.layers / (pipeline * chunks) * quarters / 4;
                  if (point.recomputedBlocks > 0)
                    visit(point);
                }
            }
          }
        }
}

/// No point that fits is faster than the answer; some fit, and the best of them
/// is not far from it.
TEST(Grid, NothingThatUsersTryIsFaster) {
  const ModelShape shape = llama3_8b();
  for (const Grid &grid : kGrids) {
    std::unique_ptr<Target> target = llvm::cantFail(
        TargetRegistry::make(SoftwareRequest{false, grid.software, {}}));
    SCOPED_TRACE(grid.software);
    Cluster cluster = llvm::cantFail(Cluster::builtin("2x8xh100"));
    TargetAnswer answer =
        llvm::cantFail(findFastest(*target, shape, cluster, kBatch));
    ASSERT_TRUE(answer.feasible);
    int fit = 0;
    double fastest = 0;
    visitGrid(grid, *target, shape, cluster.deviceCount(), kBatch,
              [&](const Configuration &point) {
                llvm::Expected<SoftwarePrice> found =
                    price(target->asTrained(shape, point), point,
                          target->executionOn(cluster), cluster);
                ASSERT_TRUE(bool(found))
                    << llvm::toString(found.takeError()) << point.str();
                if (!found->fits)
                  return;
                ++fit;
                EXPECT_GE(found->stepMs * (1 + 1e-12), answer.price.stepMs)
                    << point.str();
                if (fastest == 0 || found->stepMs < fastest)
                  fastest = found->stepMs;
              });
    EXPECT_GT(fit, 5);
    EXPECT_LT(fastest, 2 * answer.price.stepMs);
  }
}

} // namespace
