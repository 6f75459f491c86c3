//===- PlaceKept.cpp - Where input parts keep values for weight parts -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the forward function keeps for the input part alone has no reader behind
// the last one there, so values that are made later may lie in its place. A
// result is made no earlier than the first operation of the chain whose buffers
// it may share (ConvertFunction.cpp).
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/SplitBackward.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

#include <limits>

using namespace mlir;
using namespace mlir::grt;
using mlir::galvatron::PartLifetime;
using mlir::galvatron::PartValueAttr;
using nn::ValueRole;

namespace {

/// At the end of a function.
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

/// Bytes of the stash that nobody reads behind operation `freeBehind`.
struct FreeBytes {
  int64_t offset, bytes, freeBehind;
};

class KeptPlacer {
public:
  KeptPlacer(func::FuncOp input, func::FuncOp weight)
      : input(input), weight(weight) {
    for (auto [index, op] :
         llvm::enumerate(input.getBody().front().without_terminator()))
      numbers[&op] = int64_t(index);
  }

  void run() {
    collectFree();
    SmallVector<unsigned> arguments;
    for (BlockArgument argument : weight.getArguments())
      if (nn::getArgRole(weight, argument.getArgNumber()) == ValueRole::Stash)
        arguments.push_back(argument.getArgNumber());
    Operation *terminator = input.getBody().front().getTerminator();
    unsigned results =
        llvm::count_if(llvm::seq<unsigned>(0, terminator->getNumOperands()),
                       [&](unsigned index) { return isKept(index); });
    auto argument = arguments.end() - results;
    for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
      if (!isKept(index))
        continue;
      DictionaryAttr attrs = input.getResultAttrDict(index);
      bool wide = PartValueAttr::isWide(attrs);
      auto placed = PartValueAttr::placed(
          input.getContext(), attrs,
          place(getStashBytes(value.getType(), wide), madeBy(value)));
      input.setResultAttr(index, PartValueAttr::attrName, placed);
      // Both ends of a value say the same, but for a lifetime of its own.
      weight.setArgAttr(*argument, PartValueAttr::attrName,
                        PartValueAttr::placed(input.getContext(),
                                              weight.getArgAttrDict(*argument),
                                              placed.getOffset()));
      ++argument;
    }
  }

private:
  bool isKept(unsigned result) {
    return nn::getResultRole(input, result) == ValueRole::Stash;
  }
  int64_t numberOf(Operation *op) const {
    auto it = numbers.find(op);
    return it == numbers.end() ? kEnd : it->second;
  }

  void collectFree() {
    for (BlockArgument argument : input.getArguments()) {
      unsigned index = argument.getArgNumber();
      if (nn::getArgRole(input, index) != ValueRole::Stash)
        continue;
      int64_t bytes = getStashBytes(argument.getType(), /*wide=*/false);
      bool livesOn = PartValueAttr::lifetimeOf(input.getArgAttrDict(index)) ==
                     PartLifetime::Kept;
      if (!livesOn && !argument.use_empty()) {
        int64_t last = 0;
        for (Operation *user : argument.getUsers())
          last = std::max(last, numberOf(user));
        free.push_back({end, bytes, last});
      }
      end += bytes;
    }
  }

  /// The operation in front of which nothing of the value is written.
  int64_t madeBy(Value value) const {
    int64_t number = kEnd;
    while (Operation *op = value.getDefiningOp()) {
      number = numberOf(op);
      int reusable = -1;
      if (auto kernelOp = dyn_cast<nn::KernelOpInterface>(op))
        reusable = kernelOp.getReusableOperand(
            cast<OpResult>(value).getResultNumber());
      else if (isa<mlir::galvatron::AllReduceOp>(op))
        reusable = 0;
      if (reusable < 0)
        break;
      value = op->getOperand(reusable);
    }
    return number;
  }

  /// Takes the bytes from the smallest run of free ones that holds them, or
  /// from the end.
  int64_t place(int64_t bytes, int64_t made) {
    size_t best = free.size(), bestLast = 0;
    int64_t bestBytes = kEnd;
    for (size_t first = 0; first < free.size(); ++first) {
      int64_t held = 0;
      for (size_t last = first; last < free.size(); ++last) {
        bool touches =
            last == first ||
            free[last].offset == free[last - 1].offset + free[last - 1].bytes;
        if (!touches || free[last].freeBehind >= made)
          break;
        held += free[last].bytes;
        if (held < bytes)
          continue;
        if (held < bestBytes) {
          best = first;
          bestLast = last;
          bestBytes = held;
        }
        break;
      }
    }
    if (best == free.size()) {
      end += bytes;
      return end - bytes;
    }
    int64_t offset = free[best].offset, left = bestBytes - bytes;
    FreeBytes &tail = free[bestLast];
    tail.offset += tail.bytes - left;
    tail.bytes = left;
    free.erase(free.begin() + best,
               free.begin() + bestLast + (left > 0 ? 0 : 1));
    return offset;
  }

  func::FuncOp input, weight;
  llvm::DenseMap<Operation *, int64_t> numbers;
  SmallVector<FreeBytes> free;
  int64_t end = 0; ///< of the stash
};

} // namespace

int64_t grt::getStashBytes(Type type, bool wide) {
  auto tensor = cast<RankedTensorType>(type);
  if (wide && !tensor.getElementType().isF64())
    tensor = tensor.clone(Float32Type::get(type.getContext()));
  return alignBytes(getByteSize(tensor));
}

LogicalResult grt::placeKeptValues(func::FuncOp input, func::FuncOp weight) {
  if (failed(verifyElementTypes(input)) || failed(verifyElementTypes(weight)))
    return failure();
  KeptPlacer(input, weight).run();
  return success();
}
