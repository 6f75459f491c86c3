//===- StatesTest.cpp - Faults of state are refused -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What partition, collectives and fusion leave is accepted; with a fault at any
// place where its kind is possible it is refused, without a run.
//
//===----------------------------------------------------------------------===//

#include "../../TestParadigms.h"
#include "FactorPropagation.h"
#include "TestBodies.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/VerifyStates.h"
#include "gtest/gtest.h"

using namespace ::galvatron::tests;
using namespace mlir;
using ::galvatron::Strategy;
using mlir::galvatron::AllReduceOp;
using mlir::galvatron::AxisState;
using mlir::galvatron::LayerFunctions;
using mlir::galvatron::ReduceScatterRowsOp;
using mlir::galvatron::SliceAttr;
using mlir::galvatron::SliceRowsOp;
using mlir::galvatron::StateAttr;
using mlir::nn::ValueRole;

namespace {

/// Makes the fault at its n-th place in a function; false if there is none.
using Fault = bool (*)(func::FuncOp function, unsigned place);

AllReduceOp sumAt(func::FuncOp function, unsigned place) {
  for (auto sum : function.getBody().getOps<AllReduceOp>())
    if (place-- == 0)
      return sum;
  return {};
}

AllReduceOp sumOf(OpBuilder &builder, Value value,
                  mlir::galvatron::Axis axis = mlir::galvatron::Axis::TP) {
  return AllReduceOp::create(builder, value.getLoc(), value.getType(), value,
                             axis);
}

bool sumLeftOut(func::FuncOp function, unsigned place) {
  AllReduceOp sum = sumAt(function, place);
  if (sum)
    sum.getOutput().replaceAllUsesWith(sum.getInput());
  return bool(sum);
}

bool sumTwice(func::FuncOp function, unsigned place) {
  AllReduceOp sum = sumAt(function, place);
  if (!sum)
    return false;
  OpBuilder builder(sum);
  builder.setInsertionPointAfter(sum);
  Value again = sumOf(builder, sum.getOutput()).getOutput();
  sum.getOutput().replaceAllUsesExcept(again, again.getDefiningOp());
  return true;
}

bool sumOverOtherRanks(func::FuncOp function, unsigned place) {
  AllReduceOp sum = sumAt(function, place);
  if (sum)
    sum.setAxis(mlir::galvatron::Axis::DP);
  return bool(sum);
}

/// One use, of several or one, reads the terms.
bool useInFrontOfTheSum(func::FuncOp function, unsigned place) {
  for (auto sum : function.getBody().getOps<AllReduceOp>())
    for (OpOperand &use : sum.getOutput().getUses())
      if (place-- == 0) {
        use.set(sum.getInput());
        return true;
      }
  return false;
}

/// The n-th argument of a role whose slice is split, or is not.
BlockArgument argumentAt(func::FuncOp function, ValueRole role, bool split,
                         unsigned place) {
  for (BlockArgument argument : function.getArguments()) {
    SliceAttr slice = SliceAttr::of(function, argument.getArgNumber());
    bool isSplit = slice && !slice.getStateOn(0).isReplicated();
    bool isUsed = !argument.use_empty();
    if (nn::getArgRole(function, argument.getArgNumber()) == role &&
        isSplit == split && isUsed && place-- == 0)
      return argument;
  }
  return {};
}

bool sumOfWhole(func::FuncOp function, unsigned place) {
  BlockArgument argument =
      argumentAt(function, ValueRole::Parameter, /*split=*/false, place);
  if (!argument)
    return false;
  OpBuilder builder = OpBuilder::atBlockBegin(argument.getOwner());
  Value sum = sumOf(builder, argument).getOutput();
  argument.replaceAllUsesExcept(sum, sum.getDefiningOp());
  return true;
}

bool sumOfParts(func::FuncOp function, unsigned place) {
  BlockArgument argument =
      argumentAt(function, ValueRole::Parameter, /*split=*/true, place);
  if (!argument)
    return false;
  OpBuilder builder = OpBuilder::atBlockBegin(argument.getOwner());
  Value sum = sumOf(builder, argument).getOutput();
  argument.replaceAllUsesExcept(sum, sum.getDefiningOp());
  return true;
}

void setState(func::FuncOp function, BlockArgument argument, AxisState state) {
  MLIRContext *context = function.getContext();
  function.setArgAttr(argument.getArgNumber(), SliceAttr::attrName,
                      SliceAttr::get(context, DenseI64ArrayAttr(),
                                     StateAttr::get(context, state)));
}

template <ValueRole role>
bool splitTakenAsWhole(func::FuncOp function, unsigned place) {
  BlockArgument argument = argumentAt(function, role, /*split=*/true, place);
  if (argument)
    setState(function, argument, AxisState::replicated());
  return bool(argument);
}

template <ValueRole role>
bool wholeTakenAsSplit(func::FuncOp function, unsigned place) {
  BlockArgument argument = argumentAt(function, role, /*split=*/false, place);
  if (argument)
    setState(function, argument, AxisState::split(0));
  return bool(argument);
}

bool splitInOtherDimension(func::FuncOp function, unsigned place) {
  BlockArgument argument =
      argumentAt(function, ValueRole::Parameter, /*split=*/true, place);
  if (!argument)
    return false;
  int64_t rank = cast<RankedTensorType>(argument.getType()).getRank();
  int64_t dim =
      SliceAttr::of(function, argument.getArgNumber()).getStateOn(0).dim();
  setState(function, argument,
           AxisState::split(rank == 1 ? 1 : (dim + 1) % rank));
  return true;
}

/// Puts the n-th operation of one kind in the place of one of another that has
/// its types.
template <typename FromTy, typename ToTy>
bool replaceAt(func::FuncOp function, unsigned place) {
  for (auto op : function.getBody().getOps<FromTy>())
    if (place-- == 0) {
      OpBuilder builder(op);
      op.getOutput().replaceAllUsesWith(
          ToTy::create(builder, op.getLoc(), op.getOutput().getType(),
                       op.getInput(), op.getAxis())
              .getOutput());
      return true;
    }
  return false;
}

/// What every rank has whole is taken for a term of a sum.
bool wholeForATerm(func::FuncOp function, unsigned place) {
  for (auto term : function.getBody().getOps<mlir::galvatron::FirstTermOp>())
    if (place-- == 0) {
      term.getOutput().replaceAllUsesWith(term.getInput());
      return true;
    }
  return false;
}

/// A term of a gradient is summed in the function, and again by the executor.
bool sumOfAGradientsTerm(func::FuncOp function, unsigned place) {
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &operand : terminator->getOpOperands())
    if (mlir::galvatron::PartitionAttr::of(function)
            .getAxes()
            .back()
            .paradigm->dividesPositions() &&
        nn::getResultRole(function, operand.getOperandNumber()) ==
            ValueRole::ParameterGradient &&
        place-- == 0) {
      OpBuilder builder(terminator);
      operand.set(AllReduceOp::create(builder, terminator->getLoc(),
                                      operand.get().getType(), operand.get(),
                                      mlir::galvatron::Axis::CP));
      return true;
    }
  return false;
}

/// A block is sliced off in order, where others have balanced ones.
bool blockInOrder(func::FuncOp function, unsigned place) {
  for (auto slice : function.getBody().getOps<SliceRowsOp>()) {
    auto type = slice.getOutput().getType();
    nn::RowsAttr rows = nn::RowsAttr::of(type);
    if (!rows.getBalanced() || place-- > 0)
      continue;
    slice.getOutput().setType(RankedTensorType::get(
        type.getShape(), type.getElementType(),
        nn::RowsAttr::get(type.getContext(), rows.getLength(), rows.getDegree(),
                          /*balanced=*/false, /*behind=*/0, rows.getWithin())));
    return true;
  }
  return false;
}

/// Blocks are joined over ranks that have other ones.
bool rowsOverOtherRanks(func::FuncOp function, unsigned place) {
  for (auto gather : function.getBody().getOps<mlir::galvatron::GatherRowsOp>())
    if (place-- == 0) {
      gather.setAxis(mlir::galvatron::Axis::DP);
      return true;
    }
  return false;
}

/// Blocks that were cut again are joined over the ranks that have blocks of all
/// rows, of which there are as many.
bool blocksOfBlocksOverOtherRanks(func::FuncOp function, unsigned place) {
  for (auto gather : function.getBody().getOps<mlir::galvatron::GatherRowsOp>())
    if (nn::RowsAttr::of(gather.getInput().getType()).getWithin() > 1 &&
        place-- == 0) {
      gather.setAxis(mlir::galvatron::Axis::CP);
      return true;
    }
  return false;
}

/// A block that was cut again is taken for one of as many of all rows.
bool blockOfBlockForOneOfAllRows(func::FuncOp function, unsigned place) {
  for (Operation &op : function.getBody().front())
    for (Value result : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      nn::RowsAttr rows = nn::RowsAttr::of(result.getType());
      if (!rows || rows.getWithin() == 1 || place-- > 0)
        continue;
      result.setType(RankedTensorType::get(
          type.getShape(), type.getElementType(),
          nn::RowsAttr::get(type.getContext(), rows.getLength(),
                            rows.getDegree(), rows.getBalanced(),
                            rows.getBehind(), /*within=*/1)));
      return true;
    }
  return false;
}

/// Attention does not number its heads over the ranks that exchanged them.
bool headsOfOneRank(func::FuncOp function, unsigned place) {
  for (Operation &op : function.getBody().front())
    if (op.hasAttr("heads_of_blocks") && place-- == 0) {
      op.removeAttr("heads_of_blocks");
      return true;
    }
  return false;
}

/// Heads are exchanged among ranks that have other ones.
bool headsOverOtherRanks(func::FuncOp function, unsigned place) {
  for (auto exchange : function.getBody().getOps<mlir::galvatron::AllToAllOp>())
    if (place-- == 0) {
      exchange.setAxis(mlir::galvatron::Axis::DP);
      return true;
    }
  return false;
}

/// Another dimension is exchanged than attention has parts of.
bool exchangeOfAnotherDimension(func::FuncOp function, unsigned place) {
  for (auto exchange : function.getBody().getOps<mlir::galvatron::AllToAllOp>())
    if (place-- == 0) {
      exchange.setDim(exchange.getDim() == 2 ? 3 : 2);
      return true;
    }
  return false;
}

/// Keys are passed on among ranks that have other positions.
bool keysOfOtherRanks(func::FuncOp function, unsigned place) {
  for (auto shift : function.getBody().getOps<mlir::galvatron::ShiftOp>())
    if (place-- == 0) {
      shift.setAxis(mlir::galvatron::Axis::DP);
      return true;
    }
  return false;
}

/// Keys, or gradients of keys, are not passed on between two steps, or behind
/// the last.
bool shiftLeftOut(func::FuncOp function, unsigned place) {
  for (auto shift : function.getBody().getOps<mlir::galvatron::ShiftOp>())
    if (place-- == 0) {
      shift.getOutput().replaceAllUsesWith(shift.getInput());
      return true;
    }
  return false;
}

/// A step takes its keys for those of another rank.
bool stepOfAnotherRank(func::FuncOp function, unsigned place) {
  for (Operation &op : function.getBody().front())
    if (auto distance = op.getAttrOfType<IntegerAttr>("distance");
        distance && isa<nn::RingAttentionOp, nn::RingAttentionGradOp>(op) &&
        place-- == 0) {
      op.setAttr("distance", OpBuilder(&op).getI64IntegerAttr(
                                 distance.getInt() == 0 ? 1 : 0));
      return true;
    }
  return false;
}

/// A result of one state is returned for one of another.
bool gradientOfAnotherParameter(func::FuncOp function, unsigned place) {
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<unsigned> gradients;
  SmallVector<bool> split;
  for (unsigned i = 0; i < terminator->getNumOperands(); ++i)
    if (nn::getResultRole(function, i) == ValueRole::ParameterGradient)
      gradients.push_back(i);
  for (BlockArgument argument : function.getArguments())
    if (nn::getArgRole(function, argument.getArgNumber()) ==
        ValueRole::Parameter) {
      SliceAttr slice = SliceAttr::of(function, argument.getArgNumber());
      split.push_back(slice && slice.getStateOn(0).isSplit());
    }
  for (size_t a = 0; a < gradients.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (split[a] != split[b] && place-- == 0) {
        terminator->setOperand(gradients[a],
                               terminator->getOperand(gradients[b]));
        return true;
      }
  return false;
}

/// The term, or the part, is returned that the result is made of.
bool partOfAnOutput(func::FuncOp function, unsigned place) {
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &operand : terminator->getOpOperands()) {
    ValueRole role = nn::getResultRole(function, operand.getOperandNumber());
    if (role != ValueRole::Output && role != ValueRole::InputGradient)
      continue;
    for (auto sum : function.getBody().getOps<AllReduceOp>())
      if (place-- == 0) {
        operand.set(sum.getInput());
        return true;
      }
  }
  return false;
}

/// What is kept is in another state than backward takes it in.
bool stashOfTerms(func::FuncOp function, unsigned place) {
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &operand : terminator->getOpOperands())
    if (nn::getResultRole(function, operand.getOperandNumber()) ==
        ValueRole::Stash)
      for (auto sum : function.getBody().getOps<AllReduceOp>())
        if (place-- == 0) {
          operand.set(sum.getInput());
          return true;
        }
  return false;
}

struct FaultKind {
  const char *name;
  Fault make;
};
const FaultKind kFaults[] = {
    {"a sum is left out", sumLeftOut},
    {"a sum is taken twice", sumTwice},
    {"a sum is over other ranks", sumOverOtherRanks},
    {"a use is in front of its sum", useInFrontOfTheSum},
    {"a whole parameter is summed", sumOfWhole},
    {"parts of a parameter are summed", sumOfParts},
    {"a split parameter is taken as whole",
     splitTakenAsWhole<ValueRole::Parameter>},
    {"a whole parameter is taken as split",
     wholeTakenAsSplit<ValueRole::Parameter>},
    {"a parameter is split in another dimension", splitInOtherDimension},
    {"a split stash is taken as whole", splitTakenAsWhole<ValueRole::Stash>},
    {"a whole stash is taken as split", wholeTakenAsSplit<ValueRole::Stash>},
    {"a whole input is taken as split", wholeTakenAsSplit<ValueRole::Input>},
    {"a gradient is that of another parameter", gradientOfAnotherParameter},
    {"a part of an output is returned", partOfAnOutput},
    {"terms of a sum are kept", stashOfTerms},
    {"a block of terms is taken for that of their sum",
     replaceAt<ReduceScatterRowsOp, SliceRowsOp>},
    {"a whole value is summed into blocks of rows",
     replaceAt<SliceRowsOp, ReduceScatterRowsOp>},
    {"blocks of rows are of other ranks", rowsOverOtherRanks},
    {"a whole gradient is taken for a term", wholeForATerm},
    {"a term of a gradient is summed in the function", sumOfAGradientsTerm},
    {"a block in order stands beside balanced ones", blockInOrder},
    {"blocks of blocks are of other ranks", blocksOfBlocksOverOtherRanks},
    {"a block of a block is taken for one of all rows",
     blockOfBlockForOneOfAllRows},
    {"heads are exchanged among other ranks", headsOverOtherRanks},
    {"exchanged heads are numbered as those of one rank", headsOfOneRank},
    {"another dimension is exchanged than that of heads",
     exchangeOfAnotherDimension},
    {"keys are passed on among other ranks", keysOfOtherRanks},
    {"keys are not passed on", shiftLeftOut},
    {"a step has the keys of another rank", stepOfAnotherRank},
};

class States : public testing::Test {
protected:
  /// The local functions of a body under a strategy, fused.
  LayerFunctions localOf(const char *body, unsigned inputs,
                         const char *strategyText, bool products) {
    auto whole = module->lookupSymbol<func::FuncOp>(body);
    auto derived = nn::differentiateBody(
        cast<func::FuncOp>(OpBuilder(whole).clone(*whole)),
        integersOf(whole, inputs));
    EXPECT_TRUE(succeeded(derived));
    LayerFunctions functions;
    functions.forward = derived->forward;
    functions.backward = derived->backward;
    Strategy strategy = *Strategy::parse(strategyText);
    if (strategy.checkpoint()) {
      functions.recompute = nn::buildRecompute(derived->forward, "again");
      if (functions.recompute)
        functions.forward = nn::buildForwardOnly(derived->forward, "only");
    }
    auto local = mlir::galvatron::partitionLayer(
        functions, strategy, 4 / strategy.sampleShards(), "local", {});
    EXPECT_TRUE(succeeded(local));
    for (func::FuncOp function :
         {local->forward, local->recompute, local->backward})
      if (function) {
        EXPECT_TRUE(succeeded(mlir::galvatron::insertCollectives(function)));
        nn::fuseFunction(function);
        if (products)
          nn::fuseProducts(function);
      }
    return *local;
  }

  /// Whether a fault of one of the functions is refused; nothing if it cannot
  /// be made at this place.
  std::optional<bool> refuses(const LayerFunctions &functions, unsigned number,
                              Fault fault, unsigned place) {
    LayerFunctions faulty = functions;
    func::FuncOp *changed[] = {&faulty.forward, &faulty.recompute,
                               &faulty.backward};
    func::FuncOp &function = *changed[number];
    if (!function)
      return std::nullopt;
    function = function.clone();
    std::optional<bool> refused;
    if (fault(function, place)) {
      // Refusals are wanted here.
      ScopedDiagnosticHandler handler(context.get(),
                                      [](Diagnostic &) { return success(); });
      refused = failed(mlir::galvatron::verifyStates(faulty));
    }
    function.erase();
    return refused;
  }

  std::unique_ptr<MLIRContext> context = makeContext();
  OwningOpRef<ModuleOp> module = parseModule(*context, bodiesText());
};

constexpr std::pair<const char *, unsigned> kBodies[] = {
    {"embed", 1},  {"block", 1},    {"head", 2},  {"gated", 1},   {"shared", 1},
    {"masked", 2}, {"windowed", 1}, {"mixed", 1}, {"classes", 2}, {"test", 1}};

TEST_F(States, LegalFunctionsAreAccepted) {
  for (auto [body, inputs] : kBodies)
    for (const char *strategy :
         {"single", "tp2", "tp4", "tp2.ckpt", "tp2.sdp2", "tsp2", "tsp4.ckpt"})
      for (bool products : {false, true})
        EXPECT_TRUE(succeeded(mlir::galvatron::verifyStates(
            localOf(body, inputs, strategy, products))))
            << body << " " << strategy;
}

constexpr const char *kContextBodies[] = {"embed", "block",  "head",
                                          "gated", "shared", "classes"};

/// True if the strategy passes keys round, and the body's attention has a
/// window, which no ring has.
bool isRefusedRing(StringRef body, StringRef strategy) {
  return strategy.contains("ring") && body == "gated";
}

TEST_F(States, LegalFunctionsThatDividePositionsAreAccepted) {
  for (auto [body, inputs] : kBodies)
    if (llvm::is_contained(kContextBodies, StringRef(body)))
      for (const char *strategy :
           {"cp2", "scp2.ckpt", "tp2.cp2", "cp2.tp2.ckpt", "zcp2", "up2",
            "sup2.ckpt", "tp2.up2", "cp2.tsp2", "tsp2.cp2.ckpt", "up2.tsp2",
            "ring2", "ring4", "tp2.sring2.ckpt"})
        for (bool products : {false, true})
          if (!isRefusedRing(body, strategy))
            EXPECT_TRUE(succeeded(mlir::galvatron::verifyStates(
                localOf(body, inputs, strategy, products))))
                << body << " " << strategy;
}

/// A body on the axes of tensor parallelism and of one that splits nothing, in
/// both orders: every axis has the states that it has alone.
TEST_F(States, AxesDoNotMeet) {
  const TestParadigms &added = TestParadigms::get();
  auto body = module->lookupSymbol<func::FuncOp>("block");
  auto derived = nn::differentiateBody(body, integersOf(body, 1));
  ASSERT_TRUE(succeeded(derived));
  using mlir::galvatron::StrategyLevel;
  StrategyLevel tensor{::galvatron::Paradigm::TP, 2}, other{added.context, 3};
  auto cut = [&](ArrayRef<StrategyLevel> axes) {
    func::FuncOp function = derived->forward.clone();
    module->push_back(function);
    function->setAttr(mlir::galvatron::PartitionAttr::attrName,
                      mlir::galvatron::PartitionAttr::get(
                          context.get(), mlir::galvatron::Direction::Forward,
                          axes, 1, 1, false, DenseI64ArrayAttr()));
    return function;
  };
  func::FuncOp alone = cut(tensor);
  auto stash = mlir::galvatron::propagateFactors(alone, {}, /*balanced=*/false);
  ASSERT_TRUE(succeeded(stash));
  ASSERT_TRUE(succeeded(mlir::galvatron::insertCollectives(alone)));
  for (size_t at : {0, 1}) {
    StrategyLevel axes[] = {other, other};
    axes[at] = tensor;
    func::FuncOp both = cut(axes);
    auto ofBoth =
        mlir::galvatron::propagateFactors(both, {}, /*balanced=*/false);
    ASSERT_TRUE(succeeded(ofBoth));
    ASSERT_EQ(ofBoth->size(), stash->size());
    for (auto [own, states] : llvm::zip(*stash, *ofBoth)) {
      EXPECT_TRUE(states[at] == own[0]);
      EXPECT_TRUE(states[1 - at].isReplicated());
    }
    ASSERT_TRUE(succeeded(mlir::galvatron::insertCollectives(both)));
    EXPECT_TRUE(succeeded(mlir::galvatron::verifyStates({both, {}, {}})));
    EXPECT_TRUE(OperationEquivalence::isRegionEquivalentTo(
        &alone.getBody(), &both.getBody(),
        OperationEquivalence::IgnoreLocations));
    // A sum that is missing on one axis is not made up for by the other.
    sumLeftOut(both, 0);
    ScopedDiagnosticHandler handler(context.get(),
                                    [](Diagnostic &) { return success(); });
    EXPECT_TRUE(failed(mlir::galvatron::verifyStates({both, {}, {}})));
  }
}

TEST_F(States, FaultsOfStateAreRefused) {
  std::map<std::string, size_t> made;
  for (auto [body, inputs] : kBodies)
    for (const char *strategy :
         {"tp2", "tp4.ckpt", "tsp2", "tsp4.ckpt", "cp2", "tp2.cp2.ckpt", "up2",
          "tp2.up2.ckpt", "tsp2.cp2.ckpt", "ring2", "tp2.ring2.ckpt"})
      for (bool products : {false, true}) {
        if (llvm::cantFail(Strategy::parse(strategy))
                .on(::galvatron::LayerAxis::Context) &&
            (!llvm::is_contained(kContextBodies, StringRef(body)) ||
             isRefusedRing(body, strategy)))
          continue;
        LayerFunctions local = localOf(body, inputs, strategy, products);
        for (const FaultKind &kind : kFaults)
          for (unsigned number : {0, 1, 2})
            for (unsigned place = 0;; ++place) {
              std::optional<bool> refused =
                  refuses(local, number, kind.make, place);
              if (!refused)
                break;
              EXPECT_TRUE(*refused)
                  << kind.name << ": " << body << " " << strategy
                  << (products ? ", products" : "") << ", function " << number
                  << ", place " << place;
              ++made[kind.name];
            }
      }
  for (const FaultKind &kind : kFaults)
    EXPECT_GE(made[kind.name], 4u) << kind.name;
}

} // namespace
