//===- TestBodies.h - Layer bodies for tests --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_DIALECT_NN_TESTBODIES_H
#define GALVATRON_UNITTESTS_DIALECT_NN_TESTBODIES_H

#include "ReferenceExecutor.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <random>

namespace galvatron::tests {

/// A context with every dialect of the tests, and reference evaluators for the
/// operations of `test_nn`.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Bodies in f64 of a small GPT-2 (8 positions, width 16, 4 heads, feed-forward
/// width 24, 33 tokens): functions `embed`, `block` and `head`; besides, blocks
/// of decoders (`gated`, `shared`: fewer key heads than tp4), encoders
/// (`masked`), with biases (`biased`), with windows (`windowed`) and of a mixer
/// (`mixed`), a head with `classes`, and `test` with operations of `test_nn`
/// between a column and a row product.
llvm::StringRef bodiesText();

mlir::OwningOpRef<mlir::ModuleOp> parseModule(mlir::MLIRContext &context,
                                              llvm::StringRef text);

/// Normally distributed numbers, the same on every machine.
class Numbers {
public:
  explicit Numbers(uint32_t seed) : engine(seed) {}
  double uniform(); ///< in [-1, 1)
  int64_t below(int64_t bound);
  /// A value for a tensor type: floats in [-1, 1), integers below `classes`.
  reference::Tensor tensor(mlir::Type type, int64_t samples, int64_t classes);

private:
  std::mt19937 engine;
};

/// One value for each argument of `function`.
std::vector<reference::Tensor> makeArguments(mlir::func::FuncOp function,
                                             int64_t samples, int64_t classes,
                                             Numbers &numbers);

/// Norm of the difference over the norm of `expected`; infinite if the shapes
/// differ.
double relativeError(const reference::Tensor &actual,
                     const reference::Tensor &expected);

/// Indices of the arguments or results with one of the given roles.
std::vector<unsigned> argumentsWith(mlir::func::FuncOp function,
                                    std::vector<mlir::nn::ValueRole> roles);
std::vector<unsigned> resultsWith(mlir::func::FuncOp function,
                                  std::vector<mlir::nn::ValueRole> roles);

/// Which of the first `count` arguments are integers: in these bodies, what the
/// data loader delivers.
llvm::SmallVector<bool> integersOf(mlir::func::FuncOp function, unsigned count);

} // namespace galvatron::tests

#endif // GALVATRON_UNITTESTS_DIALECT_NN_TESTBODIES_H
