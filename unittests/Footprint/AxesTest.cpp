//===- AxesTest.cpp - Footprints and functions by axis --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a function looks like depends on which axes its ranks work on, not on
// how many ranks there are.
//
//===----------------------------------------------------------------------===//

#include "../Collectives.h"
#include "../TestParadigms.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

using namespace mlir;
using ::galvatron::CollectiveTime;
using ::galvatron::LayerFootprint;
using ::galvatron::Strategy;

namespace {

class AxesTest : public testing::Test {
protected:
  AxesTest() {
    TestParadigms::get();
    DialectRegistry registry;
    ::galvatron::registerFootprints(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<mlir::galvatron::GalvatronDialect, nn::NNDialect,
                        func::FuncDialect>();
  }

  MLIRContext context;
};

TEST_F(AxesTest, TwoParadigmsOfOneDegreeHaveDifferentFootprints) {
  std::string path = EXAMPLES_FOLDER "/gpt2-tiny/config.json";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(file));
  auto module = llvm::cantFail(::galvatron::importHuggingFaceConfig(
      (*file)->getBuffer(), path, ::galvatron::ImportOptions(), context));
  auto model = llvm::cantFail(
      ::galvatron::createIRLayerModel(*module, "adamw", {"cpu", 1}));
  size_t block = model->kindOf(1);
  auto footprint = [&](const char *strategy) {
    return llvm::cantFail(model->footprint(
        block, llvm::cantFail(Strategy::parse(strategy)), /*samples=*/2));
  };
  // Whoever is asked first is not remembered for the other.
  for (const char *first : {"tp2", "ctx4"})
    footprint(first);
  for (const char *degree : {"2", "4"}) {
    LayerFootprint tensor = footprint((std::string("tp") + degree).c_str());
    LayerFootprint other = footprint((std::string("ctx") + degree).c_str());
    LayerFootprint single = footprint("single");
    EXPECT_LT(tensor.forwardFlops, single.forwardFlops);
    EXPECT_LT(tensor.parameterBytes, single.parameterBytes);
    EXPECT_EQ(other.forwardFlops, single.forwardFlops);
    EXPECT_EQ(other.parameterBytes, single.parameterBytes);
    EXPECT_EQ(other.stashBytes, single.stashBytes);
  }
}

/// Between products a rank of `tsp` has an n-th of the rows: it keeps less than
/// one of `tp`, and gathers and scatters where that one sums.
TEST_F(AxesTest, RowsAreKeptInBlocks) {
  std::string path = EXAMPLES_FOLDER "/llama-tiny/config.json";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(file));
  auto module = llvm::cantFail(::galvatron::importHuggingFaceConfig(
      (*file)->getBuffer(), path, ::galvatron::ImportOptions(), context));
  auto model = llvm::cantFail(
      ::galvatron::createIRLayerModel(*module, "adamw", {"cpu", 1}));
  const size_t block = model->kindOf(1);
  const int64_t samples = 4;
  auto footprint = [&](const char *strategy) {
    return llvm::cantFail(model->footprint(
        block, llvm::cantFail(Strategy::parse(strategy)), samples));
  };
  LayerFootprint whole = footprint("tp2"), rows = footprint("tsp2");
  EXPECT_EQ(rows.parameterBytes, whole.parameterBytes);
  EXPECT_EQ(rows.forwardFlops, whole.forwardFlops);
  EXPECT_EQ(rows.outputBytes, whole.outputBytes);
  // Of what is kept the sum in front of the second norm and its result, each as
  // large as the boundary, and a number a row.
  const int64_t boundary = whole.outputBytes;
  const int64_t count = samples * model->sequenceLength();
  EXPECT_EQ(whole.stashBytes - rows.stashBytes,
            2 * boundary / 2 + count * 4 / 2);
  using ::galvatron::Collective;
  using Group = ::galvatron::CollectiveGroup;
  auto moved = [&](Collective kind, CollectiveTime when) {
    return rows.bytesOf(Group::Tensor, kind, when);
  };
  EXPECT_EQ(moved(Collective::AllGather, CollectiveTime::Forward),
            2 * boundary);
  EXPECT_EQ(moved(Collective::ReduceScatter, CollectiveTime::Forward),
            2 * boundary);
  EXPECT_EQ(moved(Collective::AllReduce, CollectiveTime::Forward), 0);
  EXPECT_EQ(moved(Collective::AllGather, CollectiveTime::Backward),
            3 * boundary);
  EXPECT_EQ(moved(Collective::ReduceScatter, CollectiveTime::Backward),
            2 * boundary);
  // The gradients of both norms' scales, in one call.
  EXPECT_EQ(moved(Collective::AllReduce, CollectiveTime::Backward),
            2 * boundary / count);
  EXPECT_EQ(tensorCalls(rows, CollectiveTime::Backward).calls, 3 + 2 + 1);
  // Three ranks divide neither heads nor these rows.
  auto refused =
      model->footprint(block, llvm::cantFail(Strategy::parse("tsp3")), samples);
  ASSERT_FALSE(bool(refused));
  llvm::consumeError(refused.takeError());
}

TEST_F(AxesTest, NamesOfFunctionsTellAxesApart) {
  auto name = [](const char *strategy) {
    return mlir::galvatron::partitionedName(
        "f", llvm::cantFail(Strategy::parse(strategy)), /*samples=*/3, {});
  };
  EXPECT_EQ(name("tp2.sdp2"), "f.tp2.sdp2.b3");
  EXPECT_EQ(name("sdp2.tp2"), "f.tp2.sdp2.b3");
  EXPECT_EQ(name("dp2.ctx2"), "f.ctx2.b3");
}

TEST_F(AxesTest, EveryAxisSplitsAndSumsForItself) {
  // Rows of the weight are split on one axis, its columns on none; a state on
  // the other axis changes neither types nor sums.
  auto module = parseSourceString<ModuleOp>(R"mlir(
    func.func private @f.forward(
        %x: tensor<4x9xf32> {nn.role = "stash", galvatron.slice =
            #galvatron.slice<state = <[replicated, split 1]>>},
        %w: tensor<9x16xf32> {nn.role = "parameter", galvatron.slice =
            #galvatron.slice<global_shape = [9, 16],
                             state = <[replicated, split 0]>>})
        -> (tensor<4x16xf32> {nn.role = "output"},
            tensor<4x16xf32> {nn.role = "stash"})
        attributes {galvatron.partition = #galvatron.partition<
            direction = forward, axes = [ctx = 3, tp = 2]>} {
      %p = nn.linear %x, %w {galvatron.sharding = #galvatron.sharding<
              results = ([replicated, unreduced]), factors = [-1, 1]>}
          : (tensor<4x9xf32>, tensor<9x16xf32>) -> tensor<4x16xf32>
      return {galvatron.sharding = #galvatron.sharding<
              operands = {0 = [replicated, replicated]}>} %p, %p
          : tensor<4x16xf32>, tensor<4x16xf32>
    })mlir",
                                            &context);
  ASSERT_TRUE(module);
  auto function = *module->getOps<func::FuncOp>().begin();
  ASSERT_TRUE(succeeded(mlir::galvatron::insertCollectives(function)));
  ASSERT_TRUE(succeeded(verify(*module)));
  Block &block = function.getBody().front();
  EXPECT_EQ(cast<RankedTensorType>(block.getArgument(0).getType()).getShape(),
            ArrayRef<int64_t>({4, 5}));
  EXPECT_EQ(cast<RankedTensorType>(block.getArgument(1).getType()).getShape(),
            ArrayRef<int64_t>({5, 16}));
  auto sums = llvm::to_vector(block.getOps<mlir::galvatron::AllReduceOp>());
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].getAxis(), mlir::galvatron::Axis::TP);
  // The sum is for the use that lists it.
  Operation *terminator = block.getTerminator();
  EXPECT_EQ(terminator->getOperand(0), sums[0].getOutput());
  EXPECT_EQ(terminator->getOperand(1), sums[0].getInput());
}

} // namespace
