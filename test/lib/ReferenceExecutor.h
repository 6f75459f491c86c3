//===- ReferenceExecutor.h - A slow interpreter of nn in f64 ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs functions of `nn` operations with plain loops in f64, whatever their
// element type says, so that a kernel cannot agree with itself. Shares nothing
// with the runtime but the definition of random numbers (grt/philox.h).
//
// Functions of a tensor-parallel group run in lock step, one operation at a
// time on all ranks, so that collectives are plain loops over ranks.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_LIB_REFERENCEEXECUTOR_H
#define GALVATRON_TEST_LIB_REFERENCEEXECUTOR_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace galvatron::reference {

/// A row-major tensor; integers are stored as exact doubles.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> values;

  int64_t size() const { return int64_t(values.size()); }
  int64_t last() const { return shape.back(); }
  static Tensor zeros(std::vector<int64_t> shape);
};

/// What operations read besides their operands.
struct Context {
  uint64_t seed = 0;
  uint64_t step = 1;        ///< counts from 1
  int64_t layer = 0;        ///< index of the layer in the model
  double inverseTokens = 1; ///< 1 / valid tokens of the global batch
  bool dropout = true;      ///< false: dropout is the identity
  int64_t firstSample = 0;  ///< number in the batch of the first local sample
};

/// A rank of a tensor-parallel group.
struct Rank {
  int64_t index = 0;
  int64_t count = 1;
};

/// Computes the results of one operation on one rank; they come zeroed and with
/// their shapes.
using Evaluator = std::function<void(
    mlir::Operation *op, llvm::ArrayRef<const Tensor *> operands,
    llvm::MutableArrayRef<Tensor> results, const Context &context, Rank rank)>;

/// Teaches the executor an operation of another dialect.
void registerEvaluator(llvm::StringRef operation, Evaluator evaluator);

/// Runs a function on one rank. `?` takes the value that the arguments have
/// there. Fails on operations it does not know and on shapes that do not match.
llvm::Expected<std::vector<Tensor>> evaluate(mlir::func::FuncOp function,
                                             llvm::ArrayRef<Tensor> arguments,
                                             const Context &context = {});

/// Runs a partitioned function on all ranks of a tensor-parallel group; first
/// index rank, second argument or result.
llvm::Expected<std::vector<std::vector<Tensor>>>
evaluateRanks(mlir::func::FuncOp function,
              llvm::ArrayRef<std::vector<Tensor>> arguments,
              const Context &context = {});

/// One training step of a whole model, in the form it has before partition.
struct ModelInput {
  /// By name in checkpoints, in checkpoint layout.
  std::map<std::string, std::vector<double>> parameters;
  int64_t samples = 0;
  std::vector<int32_t> tokens; ///< samples * sequence length
  std::vector<int32_t> labels; ///< likewise; negative ones do not count
  uint64_t seed = 0;
  uint64_t step = 1;
  bool dropout = true;
};
struct ModelResult {
  double loss = 0; ///< mean over valid tokens
  std::map<std::string, std::vector<double>> gradients; ///< of that mean
};

/// Forward and backward pass of all layers; `module` is not changed. Bodies are
/// differentiated by nn::differentiateBody, whose results the tests hold
/// against finite differences of this executor.
llvm::Expected<ModelResult> runModel(mlir::ModuleOp module,
                                     const ModelInput &input);

} // namespace galvatron::reference

#endif // GALVATRON_TEST_LIB_REFERENCEEXECUTOR_H
