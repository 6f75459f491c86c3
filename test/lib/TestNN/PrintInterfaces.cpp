//===- PrintInterfaces.cpp - What operations say of themselves ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints, once for all operations that are alike, the answers to every question
// of the `nn` dialect's interfaces that can be asked without changing anything.
//
//===----------------------------------------------------------------------===//

#include "TestNN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"

using namespace mlir;

namespace {

void printRule(raw_ostream &os, ArrayRef<SmallVector<int>> factors) {
  llvm::interleaveComma(factors, os, [&](ArrayRef<int> dimensions) {
    os << '[';
    llvm::interleaveComma(dimensions, os, [&](int factor) {
      if (factor == nn::kNoFactor)
        os << '-';
      else
        os << factor;
    });
    os << ']';
  });
}

void printCosts(raw_ostream &os, nn::CostOpInterface op) {
  os << "\n  work";
  // Of two numbers of samples, as some of it is counted a sample, some not.
  for (int64_t samples : {1, 3})
    os << llvm::format(" | %.9g flops, %.9g bytes, %.9g elements",
                       op.getFlops(samples), op.getMovedBytes(samples),
                       op.getProductElements(samples));
  if (op.isAttention())
    os << ", attention";
}

/// An axis that asks nothing of the pass.
class TwoRanks : public nn::ShardContext {
public:
  explicit TwoRanks(bool parts) : parts(parts) {}
  int64_t size() const override { return 2; }
  bool numbersParts() const override { return parts; }
  Value allGather(OpBuilder &, Location, Value value) const override {
    return value;
  }
  Value shift(OpBuilder &, Location, Value value) const override {
    return value;
  }

private:
  bool parts;
};

void printFactors(raw_ostream &os, nn::FactorOpInterface op) {
  nn::FactorRule rule = op.getFactorRule();
  os << "\n  factors ";
  printRule(os, rule.operands);
  os << " -> ";
  printRule(os, rule.results);
  llvm::SmallSetVector<int, 8> split;
  for (ArrayRef<int> dimensions : rule.operands)
    split.insert_range(dimensions);
  split.remove(nn::kNoFactor);
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    for (int factor : split)
      if (!llvm::is_contained(rule.results[i], factor) &&
          !op.isPartialResult(i, factor))
        os << ", result " << i << " is whole without " << factor;
  SmallVector<bool> partial(op->getNumOperands(), false);
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    partial[i] = true;
    if (op.propagatesPartialSums(partial))
      os << ", sums of operand " << i << " pass";
    partial[i] = false;
  }
  partial.assign(op->getNumOperands(), true);
  if (op.propagatesPartialSums(partial))
    os << ", sums of all pass";
  if (!op.mayBeReplicated(TwoRanks(/*parts=*/true)))
    os << ", not replicated";
  if (!op.mayBeReplicated(TwoRanks(/*parts=*/false)))
    os << " on any axis";
  if (op.getSlicedFactor() != nn::kNoFactor)
    os << ", slices " << op.getSlicedFactor();
}

void printKernels(raw_ostream &os, nn::KernelOpInterface op) {
  os << "\n  buffers";
  for (unsigned i = 0; i < op->getNumResults(); ++i) {
    if (op.supportsAccumulation(i))
      os << " adds to result " << i << ",";
    if (int reused = op.getReusableOperand(i); reused >= 0)
      os << " result " << i << " in operand " << reused << ",";
  }
  os << " free:";
  for (StringRef name : op.getFreeAttributes())
    os << ' ' << name;
}

void printTraining(raw_ostream &os, nn::TrainingOpInterface op) {
  os << "\n  training";
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    os << " role " << static_cast<int>(op.getElementRole(i));
  if (std::optional<int64_t> key = op.getRandomKey())
    os << " key " << *key;
}

struct PrintInterfaces : PassWrapper<PrintInterfaces, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintInterfaces)
  StringRef getArgument() const override { return "test-nn-interfaces"; }
  StringRef getDescription() const override {
    return "print what operations of nn answer, in place of the module";
  }
  void runOnOperation() override {
    llvm::StringSet<> seen;
    getOperation().walk([&](Operation *op) {
      if (!isa_and_nonnull<nn::NNDialect>(op->getDialect()))
        return;
      std::string text;
      llvm::raw_string_ostream os(text);
      os << op->getName() << " (";
      llvm::interleaveComma(op->getOperandTypes(), os);
      os << ") -> (";
      llvm::interleaveComma(op->getResultTypes(), os);
      os << ") " << op->getAttrDictionary();
      if (auto costs = dyn_cast<nn::CostOpInterface>(op))
        printCosts(os, costs);
      if (auto factors = dyn_cast<nn::FactorOpInterface>(op))
        printFactors(os, factors);
      if (auto kernels = dyn_cast<nn::KernelOpInterface>(op))
        printKernels(os, kernels);
      if (auto training = dyn_cast<nn::TrainingOpInterface>(op))
        printTraining(os, training);
      if (seen.insert(text).second)
        llvm::outs() << text << '\n';
    });
  }
};

} // namespace

void test_nn::registerPrintInterfaces() { PassRegistration<PrintInterfaces>(); }
