//===- KeptPoints.cpp - Sets of values that a layer may keep --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sets are chosen on local functions, where collectives are operations that
// take time like others, and sizes are those of one rank. For that the forward
// function is partitioned with every value of the body as its stash: so each
// has the state in which it would be kept, behind the collective that brings it
// into that, and what has none of these is only on its way.
//
//===----------------------------------------------------------------------===//

#include "BodyCompiler.h"
#include "DiagnosticText.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::KeptProblem;

const BodyCompiler::Candidates &BodyCompiler::candidates() {
  if (candidateFunction)
    return *candidateFunction;
  Candidates found;
  for (auto [number, op] :
       llvm::enumerate(forward.getBody().front().without_terminator()))
    for (unsigned result = 0; result < op.getNumResults(); ++result)
      // A loss is a sum over samples, and has its result by itself.
      if (!nn::isLossType(op.getResult(result).getType()))
        found.values.push_back({unsigned(number), result});
  // Backward is not looked at.
  FailureOr<nn::DerivedFunctions> derived =
      nn::buildKept({forward, backward}, found.values, name + ".candidates");
  assert(succeeded(derived) && "keeping everything is always enough");
  derived->backward.erase();
  found.forward = derived->forward;
  return candidateFunction.emplace(std::move(found));
}

BodyCompiler::Variant BodyCompiler::variantThatKeepsAll() {
  ::galvatron::KeptValues kept;
  kept.body = bodyHash;
  for (auto [operation, result] : nn::getStash(forward))
    kept.values.push_back({operation, result});
  return cantFail(variantOf(kept));
}

namespace {

/// The problem of a local forward function, with the numbers of the values that
/// its stash results are.
struct LocalProblem {
  KeptProblem problem;
  std::vector<size_t> stash;
  /// By result of the stash: it is summed to be kept, and what reads it reads
  /// the summands and is summed itself.
  std::vector<bool> goesOnAsSummands;
};

LocalProblem makeProblem(func::FuncOp local, int64_t samples,
                         BodyCompiler::WorkSeconds seconds) {
  LocalProblem made;
  DenseMap<Value, size_t> numbers;
  for (Operation &op : local.getBody().front().without_terminator()) {
    KeptProblem::Operation operation;
    for (Value operand : op.getOperands())
      if (auto known = numbers.find(operand); known != numbers.end())
        operation.operands.push_back(known->second);
    for (Value result : op.getResults()) {
      numbers[result] = made.problem.values.size();
      operation.results.push_back(made.problem.values.size());
      made.problem.values.push_back({0, false, /*mayBeKept=*/false});
    }
    FunctionWork work;
    work.add(op, samples);
    operation.time = ::galvatron::toPicoseconds(seconds(work));
    operation.mayBeRemade = isa<nn::FactorOpInterface>(op)
                                ? nn::mayBeRemade(&op)
                                : op.getNumResults() > 0;
    made.problem.operations.push_back(std::move(operation));
  }
  Operation *terminator = local.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    if (nn::getResultRole(local, index) != nn::ValueRole::Stash)
      continue;
    size_t number = numbers.lookup(value);
    made.stash.push_back(number);
    auto sum = value.getDefiningOp<AllReduceOp>();
    made.goesOnAsSummands.push_back(sum && !sum.getOperand().hasOneUse());
    made.problem.values[number].mayBeKept = true;
    made.problem.values[number].bytes =
        nn::countBytes(value.getType(), samples);
  }
  return made;
}

} // namespace

llvm::Expected<BodyCompiler::KeptChoice>
BodyCompiler::keptChoice(const Axes &axes, int64_t samples,
                         WorkSeconds seconds) {
  auto refused = [](const std::string &reason) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), reason);
  };
  ::galvatron::Strategy strategy =
      cantFail(::galvatron::Strategy::get(axes, /*checkpoint=*/false));
  if (const std::string &reason = whyNot(strategy); !reason.empty())
    return refused(reason);
  const Candidates &all = candidates();
  DiagnosticText diagnostics(forward.getContext());
  FailureOr<func::FuncOp> local =
      partitionForward(all.forward, strategy, "points");
  if (failed(local))
    return refused(diagnostics.text);
  specializeSamples(*local, samples);
  if (failed(insertCollectives(*local))) {
    local->erase();
    return refused(diagnostics.text);
  }
  LocalProblem made = makeProblem(*local, samples, seconds);
  local->erase();
  // The stash: those of the body's values that backward needs.
  KeptChoice choice;
  SmallVector<nn::BodyValue> stash = nn::getStash(forward);
  for (auto [value, number, summands] :
       llvm::zip_equal(all.values, made.stash, made.goesOnAsSummands)) {
    if (llvm::is_contained(stash, value))
      made.problem.values[number].needed = true;
    else if (summands)
      // The sum behind takes as many bytes and leaves less to compute.
      made.problem.values[number].mayBeKept = false;
    choice.values.push_back({value, number});
  }
  choice.problem = std::move(made.problem);
  if (llvm::Error error = choice.problem.check())
    return error;
  return choice;
}

/// Points are left out whose neighbours, mixed over the layers of a stage, lose
/// no more than this part of the time of the forward pass: a third of a percent
/// of what a layer takes (docs/kept.md).
constexpr int64_t kWorthwhile = 100;

llvm::Expected<std::vector<::galvatron::KeptValues>>
BodyCompiler::choosePoints(const Axes &axes, int64_t samples,
                           WorkSeconds seconds, size_t most) {
  llvm::Expected<KeptChoice> choice = keptChoice(axes, samples, seconds);
  if (!choice)
    return choice.takeError();
  std::vector<::galvatron::KeptSet> hull =
      ::galvatron::keptHull(choice->problem);
  std::vector<::galvatron::KeptValues> points;
  ::galvatron::Picoseconds enough =
      (hull.back().time - hull.front().time) / kWorthwhile;
  for (size_t vertex : ::galvatron::choosePoints(hull, most, enough)) {
    ::galvatron::KeptValues kept;
    kept.body = bodyHash;
    for (auto [value, number] : choice->values)
      if (llvm::is_contained(hull[vertex].values, number))
        kept.values.push_back({value.first, value.second});
    points.push_back(std::move(kept));
  }
  return points;
}
