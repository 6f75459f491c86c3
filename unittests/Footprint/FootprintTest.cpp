//===- FootprintTest.cpp - Footprints against layers compiled alone -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The model compiles a function once for all strategies and layers that it can
// be the same for. Here every layer, strategy and number of samples is cut,
// fused and compiled on its own, in the order of the phases: the same bytes and
// work must come out.
//
//===----------------------------------------------------------------------===//

#include "../Collectives.h"
#include "galvatron/Footprint/IRLayerModel.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Conversion/NNToGRT/LayerSteps.h"
#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/GRT/Transforms/Transients.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/Galvatron/Transforms/SplitBackward.h"
#include "galvatron/Dialect/Galvatron/Transforms/VerifyStates.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Import/HuggingFace.h"

#include "../RandomInstances.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

using namespace mlir;
using ::galvatron::CollectiveTime;
using ::galvatron::instances;
using ::galvatron::LayerFootprint;
using ::galvatron::pick;
using ::galvatron::Strategy;

namespace {

struct Work {
  double flops = 0, movedBytes = 0;
  int64_t kernels = 0, reduces = 0;
};

Work workOf(func::FuncOp function) {
  Work work;
  for (Operation &op : function.getBody().front().without_terminator()) {
    // Sums that are one call.
    if (auto run = grt::JoinedSums::from(&op); !run.empty())
      work.reduces -= int64_t(run.sums.size()) - 1;
    work.reduces +=
        isa<mlir::galvatron::AllReduceOp, mlir::galvatron::AllGatherOp,
            mlir::galvatron::GatherRowsOp,
            mlir::galvatron::ReduceScatterRowsOp>(op);
    if (auto slice = dyn_cast<mlir::galvatron::SliceRowsOp>(op)) {
      ++work.kernels;
      work.movedBytes += 2 * double(nn::countBytes(slice.getOutput().getType(),
                                                   /*samples=*/1));
    }
    auto cost = dyn_cast<nn::CostOpInterface>(op);
    if (!cost)
      continue;
    ++work.kernels;
    if (mlir::galvatron::isComputeBound(cost, 1))
      work.flops += cost.getFlops(1);
    else
      work.movedBytes += cost.getMovedBytes(1);
  }
  return work;
}

/// A layer of a module on its own.
class Alone {
public:
  Alone(mlir::galvatron::LayerOp layer, func::FuncOp body,
        const grt::KernelTarget &target)
      : scratch(ModuleOp::create(body.getLoc())), target(target) {
    OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
    auto copy = cast<func::FuncOp>(builder.clone(*body));
    functions = *nn::differentiateBody(copy, layer.getDataInputs());
  }

  /// Nothing if the strategy is refused.
  std::optional<LayerFootprint> footprint(const Strategy &strategy,
                                          ArrayRef<int64_t> borrowed,
                                          int64_t samples, bool splits) {
    if (mlir::galvatron::whyNotPartitionable(functions.forward, strategy))
      return std::nullopt;
    mlir::galvatron::LayerFunctions whole{functions.forward, nullptr,
                                          functions.backward};
    if (strategy.checkpoint())
      if ((whole.recompute = nn::buildRecompute(functions.forward, "again")))
        whole.forward = nn::buildForwardOnly(functions.forward, "only");
    auto local = mlir::galvatron::partitionLayer(whole, strategy, samples,
                                                 "alone", borrowed);
    if (failed(local))
      return std::nullopt;
    func::FuncOp weight;
    for (func::FuncOp function :
         {local->forward, local->recompute, local->backward})
      if (function) {
        EXPECT_TRUE(succeeded(mlir::galvatron::insertCollectives(function)));
        nn::fuseFunction(function);
      }
    EXPECT_TRUE(succeeded(mlir::galvatron::verifyStates(*local)));
    grt::FlatLayout layout = *grt::getFlatLayout(local->forward);
    if (splits)
      weight = mlir::galvatron::splitBackward(local->backward, "weight");
    if (::galvatron::backendTraits(target.backend).productEpilogues)
      for (func::FuncOp function :
           {local->forward, local->recompute, local->backward, weight})
        if (function)
          nn::fuseProducts(function);
    if (weight)
      EXPECT_TRUE(succeeded(grt::placeKeptValues(local->backward, weight)));

    grt::FunctionRegions forward, again, backward, other;
    LayerFootprint footprint;
    auto compile = [&](func::FuncOp function, grt::FunctionRegions &regions) {
      grt::FunctionBytes bytes;
      if (!function)
        return bytes;
      grt::FuncOp converted = *grt::convertFunction(function, target, &regions);
      EXPECT_TRUE(succeeded(grt::allocateTransients(converted)));
      bytes = grt::FunctionBytes::of(converted);
      converted.erase();
      return bytes;
    };
    Work first = workOf(local->forward), last = workOf(local->backward);
    Work late = weight ? workOf(weight) : Work();
    Work second = local->recompute ? workOf(local->recompute) : Work();
    footprint.split = bool(weight);
    footprint.forwardFlops = first.flops;
    footprint.forwardMovedBytes = first.movedBytes;
    footprint.forwardKernels = first.kernels;
    footprint.recomputeFlops = second.flops;
    footprint.recomputeMovedBytes = second.movedBytes;
    footprint.recomputeKernels = second.kernels;
    footprint.backwardFlops = last.flops + late.flops;
    footprint.backwardMovedBytes = last.movedBytes + late.movedBytes;
    footprint.backwardKernels = last.kernels + late.kernels;
    // Sizes are not compared.
    for (auto [when, reduces] :
         {std::pair{CollectiveTime::Forward, first.reduces},
          {CollectiveTime::Recompute, second.reduces},
          {CollectiveTime::Backward, last.reduces},
          {CollectiveTime::Weight, late.reduces}})
      footprint.addCollective({::galvatron::CollectiveGroup::Tensor,
                               ::galvatron::Collective::AllReduce, when,
                               reduces, reduces});
    footprint.parameterBytes = layout.parameterBytes();
    footprint.gradientBytes = layout.gradientBytes();
    grt::FunctionBytes ofForward = compile(local->forward, forward);
    grt::FunctionBytes ofRecompute = compile(local->recompute, again);
    grt::FunctionBytes ofBackward = compile(local->backward, backward);
    grt::FunctionBytes ofWeight = compile(weight, other);
    grt::setTransients(footprint, ofForward, ofRecompute, ofBackward, ofWeight,
                       again.stashBytes);
    footprint.outputBytes = forward.outputBytes;
    footprint.stashBytes =
        footprint.split ? backward.stashBytes : forward.stashBytes;
    if (whole.recompute) {
      whole.recompute.erase();
      whole.forward.erase();
    }
    return footprint;
  }

private:
  OwningOpRef<ModuleOp> scratch;
  grt::KernelTarget target;
  nn::DerivedFunctions functions;
};

void compare(const LayerFootprint &found, const LayerFootprint &expected,
             const std::string &what) {
  auto near = [&](double a, double b) {
    EXPECT_NEAR(a, b, 1e-9 * std::abs(b)) << what;
  };
  EXPECT_EQ(found.forwardTransient, expected.forwardTransient) << what;
  EXPECT_EQ(found.backwardTransient, expected.backwardTransient) << what;
  EXPECT_EQ(found.forwardGathered, expected.forwardGathered) << what;
  EXPECT_EQ(found.backwardGathered, expected.backwardGathered) << what;
  EXPECT_EQ(found.outputBytes, expected.outputBytes) << what;
  EXPECT_EQ(found.stashBytes, expected.stashBytes) << what;
  EXPECT_EQ(found.parameterBytes, expected.parameterBytes) << what;
  EXPECT_EQ(found.gradientBytes, expected.gradientBytes) << what;
  EXPECT_EQ(found.split, expected.split) << what;
  near(found.forwardFlops, expected.forwardFlops);
  near(found.forwardMovedBytes, expected.forwardMovedBytes);
  near(found.recomputeFlops, expected.recomputeFlops);
  near(found.recomputeMovedBytes, expected.recomputeMovedBytes);
  near(found.backwardFlops, expected.backwardFlops);
  near(found.backwardMovedBytes, expected.backwardMovedBytes);
  EXPECT_EQ(found.forwardKernels, expected.forwardKernels) << what;
  EXPECT_EQ(found.recomputeKernels, expected.recomputeKernels) << what;
  EXPECT_EQ(found.backwardKernels, expected.backwardKernels) << what;
  for (CollectiveTime when :
       {CollectiveTime::Forward, CollectiveTime::Recompute,
        CollectiveTime::Backward, CollectiveTime::Weight})
    EXPECT_EQ(tensorCalls(found, when).calls, tensorCalls(expected, when).calls)
        << what << " at time " << int(when);
}

class Family : public testing::TestWithParam<const char *> {};

TEST_P(Family, footprints_are_those_of_layers_compiled_alone) {
  MLIRContext context;
  ::galvatron::loadImportDialects(context);
  context.loadDialect<func::FuncDialect, grt::GRTDialect>();
  // Layers that are refused say why.
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  std::string path =
      std::string(EXAMPLES_FOLDER) + "/" + GetParam() + "/config.json";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(file));
  ::galvatron::ImportOptions options;
  auto module = llvm::cantFail(::galvatron::importHuggingFaceConfig(
      (*file)->getBuffer(), path, options, context));
  SymbolTable symbols(*module);
  SmallVector<mlir::galvatron::LayerOp, 8> layers =
      mlir::galvatron::getModel(*module).getLayers();
  std::vector<SmallVector<int64_t>> borrowed(layers.size());
  llvm::DenseSet<StringAttr> owned;
  for (auto [layer, own] : llvm::zip(layers, borrowed))
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols()))
      if (!owned.insert(symbol.getAttr()).second)
        own.push_back(int64_t(index));

  std::mt19937_64 random(7);
  std::vector<std::string> strategies = {
      "single",       "dp2",  "tp2",      "tp4",      "sdp2",
      "sdp8",         "zdp4", "sdp4.tp2", "tp2.zdp2", "dp2.sdp2",
      "tp2.sdp2.dp2", "tsp2", "tsp4",     "sdp4.tsp2"};
  int compared = 0;
  for (const char *backend : {"cpu", "cuda"}) {
    grt::KernelTarget target{backend, 3};
    auto model = llvm::cantFail(
        ::galvatron::createIRLayerModel(*module, "adamw", target));
    for (int i = 0; i < instances(150); ++i) {
      size_t l = pick(random, 0, int64_t(layers.size()) - 1);
      Strategy strategy = llvm::cantFail(Strategy::parse(
          strategies[pick(random, 0, int64_t(strategies.size()) - 1)]));
      strategy = strategy.withCheckpoint(pick(random, 0, 1));
      int64_t samples = pick(random, 1, 6);
      bool splits = pick(random, 0, 3) == 0;
      std::string what = layers[l].getLayerName().str() + " " + strategy.str() +
                         " with " + std::to_string(samples) + " samples on " +
                         backend + (splits ? ", split" : "");
      Alone alone(layers[l],
                  symbols.lookup<func::FuncOp>(layers[l].getCallee().value()),
                  target);
      std::optional<LayerFootprint> expected =
          alone.footprint(strategy, borrowed[l], samples, splits);
      auto found =
          splits ? model->splitFootprint(model->kindOf(l), strategy, samples)
                 : model->footprint(model->kindOf(l), strategy, samples);
      ASSERT_EQ(bool(found), bool(expected)) << what;
      if (!found) {
        llvm::consumeError(found.takeError());
        continue;
      }
      compare(*found, *expected, what);
      ++compared;
    }
  }
  EXPECT_GT(compared, 150);
}

INSTANTIATE_TEST_SUITE_P(Examples, Family,
                         testing::Values("bert-tiny", "gpt2-tiny", "llama-tiny",
                                         "swin-digits", "t5-tiny",
                                         "vit-digits"));

/// The passes of a manager, as text: "a,b".
std::string textOf(OpPassManager &manager) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  manager.printAsTextualPipeline(stream);
  llvm::StringRef passes = text;
  passes.consume_front("builtin.module(");
  passes.consume_back(")");
  return passes.str();
}

/// The phases have the passes of all steps, in the order in which footprints
/// are made.
TEST(LayerStepsTest, PhasesRunThemInTheirOrder) {
  using mlir::galvatron::Phase;
  ArrayRef<grt::LayerStepInfo> steps = grt::layerSteps();
  std::map<Phase, std::vector<std::string>> expected;
  size_t without = 0;
  for (auto [number, info] : llvm::enumerate(steps)) {
    // A slice of them is taken by number.
    EXPECT_EQ(static_cast<size_t>(info.step), number);
    if (number > 0)
      EXPECT_GE(info.phase, steps[number - 1].phase);
    if (!info.addPass) {
      ++without;
      continue;
    }
    OpPassManager manager("builtin.module");
    info.addPass(manager);
    expected[info.phase].push_back(textOf(manager));
  }
  for (Phase phase : mlir::galvatron::allPhases()) {
    OpPassManager manager("builtin.module");
    grt::addLayerSteps(manager, phase);
    EXPECT_EQ(textOf(manager), llvm::join(expected[phase], ","));
  }
  EXPECT_EQ(llvm::join(expected[Phase::Bufferize], " ").substr(0, 31),
            "func.func(nn-fuse) galvatron-sp");
  // Steps without a pass are part of the last one's.
  EXPECT_EQ(without, 2u);
  EXPECT_TRUE(steps.back().addPass);
  ArrayRef<grt::LayerStepInfo> slice =
      grt::layerSteps(grt::LayerStep::Fuse, grt::LayerStep::SplitBackward);
  EXPECT_EQ(slice.size(), 2u);
  EXPECT_EQ(slice.front().step, grt::LayerStep::Fuse);
}

} // namespace
