//===- LeastTransients.cpp - Bounds of a function's temporaries -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Between two operations every value that the first ones make and a later one
// reads has bytes of its own: an operation may write where one of its operands
// lies only if nobody reads that behind it. Not all of these are temporaries:
// results of the function lie where the caller wants them, and what they are
// made in place of may lie there, too.
//
//===----------------------------------------------------------------------===//

#include "LeastTransients.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::galvatron;

namespace {

class TransientBound {
public:
  TransientBound(func::FuncOp function, int64_t samples,
                 const grt::FlatLayout *layout)
      : block(function.getBody().front()), function(function), samples(samples),
        layout(layout) {
    for (Operation &op : block)
      order[&op] = order.size();
    // By the number of the operation that it is behind; the last is behind all.
    added.assign(order.size() + 1, 0);
  }

  int64_t bytes() {
    placeResults();
    shareWithResults();
    for (Operation &op : block.without_terminator())
      if (hasBuffers(op))
        for (OpResult value : op.getResults())
          addValue(value);
    int64_t live = 0, most = wholeGradients();
    for (int64_t change : added)
      most = std::max(most, live += change);
    return most;
  }

private:
  /// Whether an operation writes buffers of its results: the executor gathers
  /// parameters, or it is done around the function.
  static bool hasBuffers(Operation &op) {
    return !isa<GatherParametersOp, ReduceScatterGradientsOp>(op);
  }
  unsigned end() const { return order.size() - 1; }

  /// The bytes of whole gradients of sharded parameters: all are there until
  /// the first is scattered.
  int64_t wholeGradients() const {
    int64_t bytes = 0;
    for (size_t bucket = 0; layout && bucket < layout->buckets.size(); ++bucket)
      bytes += wholeGradient(bucket);
    return bytes;
  }
  int64_t wholeGradient(size_t bucket) const {
    const grt::FlatBucket &of = layout->buckets[bucket];
    if (layout->shards == 1 || of.frozen)
      return 0;
    return grt::alignBytes(of.elements * layout->accumulatorBytes);
  }

  /// Notes which results are made where they are to be, and which are copied
  /// there at the end.
  void placeResults() {
    SmallVector<unsigned> trained;
    SmallVector<unsigned, 2> begun; ///< whole gradients by bucket
    if (layout) {
      trained = nn::getTrainedParameters(function);
      begun.assign(layout->buckets.size(), end());
    }
    ArrayRef<unsigned> next = trained;
    for (auto [index, value] :
         llvm::enumerate(block.getTerminator()->getOperands())) {
      bool isGradient = nn::getResultRole(function, index) ==
                        nn::ValueRole::ParameterGradient;
      auto op = value.getDefiningOp<nn::KernelOpInterface>();
      bool direct = value.getDefiningOp() && !placed.contains(value);
      if (isGradient)
        direct =
            direct && value.hasOneUse() && op &&
            op.supportsAccumulation(cast<OpResult>(value).getResultNumber());
      if (direct)
        placed.insert(value);
      else
        copied.insert(value);
      if (!isGradient)
        continue;
      if (direct)
        accumulated.insert(value);
      size_t bucket = layout->tensors[next.consume_front()].bucket;
      if (direct && order.lookup(op) < begun[bucket]) {
        int64_t bytes = wholeGradient(bucket);
        if (begun[bucket] < end())
          added[begun[bucket]] -= bytes;
        begun[bucket] = order.lookup(op);
        added[begun[bucket]] += bytes;
      }
    }
  }

  /// Adds to the placed values those that may lie in the place of one.
  void shareWithResults() {
    for (Operation &op : llvm::reverse(block.without_terminator()))
      for (OpResult result : op.getResults()) {
        if (!placed.contains(result) || accumulated.contains(result))
          continue;
        int reusable = isa<AllReduceOp>(op) ? 0 : -1;
        if (auto kernels = dyn_cast<nn::KernelOpInterface>(op))
          reusable = kernels.getReusableOperand(result.getResultNumber());
        if (reusable < 0)
          continue;
        Value operand = op.getOperand(reusable);
        bool dies = llvm::all_of(operand.getUsers(), [&](Operation *user) {
          return order.lookup(user) <= order.lookup(&op);
        });
        if (dies && sizeOf(operand) == sizeOf(result))
          placed.insert(operand);
      }
  }

  int64_t sizeOf(Value value) const {
    return grt::alignBytes(nn::countBytes(value.getType(), samples));
  }

  void addValue(OpResult value) {
    if (placed.contains(value))
      return;
    unsigned made = order.lookup(value.getOwner()), last = made;
    for (Operation *user : value.getUsers())
      if (user != block.getTerminator() && hasBuffers(*user))
        last = std::max(last, order.lookup(user));
    if (copied.contains(value))
      last = end();
    if (last == made)
      return;
    added[made] += sizeOf(value);
    added[last] -= sizeOf(value);
  }

  Block &block;
  func::FuncOp function;
  int64_t samples;
  const grt::FlatLayout *layout;
  DenseMap<Operation *, unsigned> order;
  /// Results that are no temporaries, results that are copied, and those that
  /// are added to gradients.
  DenseSet<Value> placed, copied, accumulated;
  std::vector<int64_t> added;
};

} // namespace

int64_t mlir::galvatron::leastTransientBytes(func::FuncOp function,
                                             int64_t samples,
                                             const grt::FlatLayout *layout) {
  return TransientBound(function, samples, layout).bytes();
}
