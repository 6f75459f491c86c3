//===- ReferenceTools.h - What evaluators share -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_LIB_REFERENCETOOLS_H
#define GALVATRON_TEST_LIB_REFERENCETOOLS_H

#include "ReferenceExecutor.h"
#include "grt/philox.h"

#include "llvm/ADT/StringMap.h"

namespace galvatron::reference {

using Operands = llvm::ArrayRef<const Tensor *>;
using Results = llvm::MutableArrayRef<Tensor>;

template <typename OpTy>
using TypedEvaluator = void (*)(OpTy, Operands, Results, const Context &, Rank);

template <typename OpTy>
void add(llvm::StringMap<Evaluator> &table, TypedEvaluator<OpTy> evaluator) {
  table[OpTy::getOperationName()] =
      [evaluator](mlir::Operation *op, Operands operands, Results results,
                  const Context &context, Rank rank) {
        evaluator(llvm::cast<OpTy>(op), operands, results, context, rank);
      };
}

/// The factors by which dropout multiplies: 0 or 1 / (1 - p).
class DropoutMask {
public:
  DropoutMask(const Context &context, double p, int64_t opIndex)
      : key(grt::dropoutKey(context.seed, context.step, context.layer)),
        threshold(grt::dropoutThreshold(p)), kept(1 / (1 - p)),
        opIndex(uint32_t(opIndex)), active(context.dropout && p > 0) {}
  double operator()(int64_t row, int64_t column) const {
    if (!active)
      return 1;
    grt::PhiloxBlock block =
        grt::dropoutBlock(key, uint64_t(row), uint32_t(column / 4), opIndex);
    return block.lane[column % 4] >= threshold ? kept : 0;
  }

private:
  grt::PhiloxKey key;
  uint32_t threshold;
  double kept;
  uint32_t opIndex;
  bool active;
};

/// Adds the evaluators of operations of attention.
void addAttentionEvaluators(llvm::StringMap<Evaluator> &table);

} // namespace galvatron::reference

#endif // GALVATRON_TEST_LIB_REFERENCETOOLS_H
