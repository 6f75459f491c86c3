//===- BodyCompiler.h - What the passes of a body take ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles the functions of one layer body and remembers what was read off
// them. A planner asks for thousands of strategies and sizes of a micro-batch;
// what a function takes depends on few of their parts:
//
//   - how it is cut and fused depends on the levels whose ranks work inside it
//     alone, its axes: that is done once, with `?` for the samples;
//   - bytes depend on the samples, and on the sharding of parameters only where
//     a function holds whole ones, or their gradients, in temporaries.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_FOOTPRINT_BODYCOMPILER_H
#define GALVATRON_LIB_FOOTPRINT_BODYCOMPILER_H

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Dialect/GRT/Transforms/Transients.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Strategy/Strategy.h"

#include <map>
#include <string>
#include <tuple>

namespace mlir::galvatron {

/// Work of one function: matrix products by FLOPs, all else by moved bytes.
struct FunctionWork {
  double flops = 0, movedBytes = 0;
  int64_t kernels = 0;
  llvm::SmallVector<::galvatron::ProductWork, 1> products;
  /// Collectives inside the function; at what time it runs is not known here.
  llvm::SmallVector<::galvatron::LayerCollective, 2> collectives;

  /// Adds the computation of another function.
  void addComputation(const FunctionWork &other);
  /// Products of one size are one entry.
  void addProduct(double productFlops, double size, bool attention);
};

/// What one function takes.
struct CompiledFunction {
  FunctionWork work;
  grt::FunctionRegions regions;
  grt::FunctionBytes bytes;
};

/// What a layer takes under one strategy. Functions that it does not have take
/// nothing.
struct CompiledLayer {
  CompiledFunction forward, recompute, backward, weight;
  bool recomputes = false; ///< has a recompute function
  bool split = false;      ///< the backward pass has a weight part
  const grt::FlatLayout *layout = nullptr;
  llvm::ArrayRef<int64_t> dataBytesPerSample;
};

class BodyCompiler {
public:
  BodyCompiler(nn::DerivedFunctions functions, llvm::StringRef name,
               const grt::KernelTarget &target);

  /// `borrowed` lists parameters whose owner is another layer; `splits`: with
  /// the backward pass in two parts.
  llvm::Expected<CompiledLayer> compile(const ::galvatron::Strategy &strategy,
                                        ArrayRef<int64_t> borrowed,
                                        int64_t samples, bool splits);

private:
  /// The functions on their axes, with `?`: with collectives, fused.
  struct Local {
    func::FuncOp forward, recompute, backward, weight;
    SmallVector<RowCut, 1> rowCuts;
    std::string refusal; ///< why there are none
  };
  using Axes = llvm::SmallVector<::galvatron::Level, 2>;
  /// Checkpointing, splits, sharded (if it splits), axes.
  using LocalKey = std::tuple<bool, bool, bool, Axes>;

  enum class Pass : uint8_t { Forward, Recompute, Backward };
  /// What a function's bytes and work depend on, whatever they belong to.
  struct PassKey {
    LocalKey local;
    Pass pass;
    int64_t samples;
    int64_t parameterShards = 1, optimizerShards = 1;
    std::vector<int64_t> borrowed;

    auto tied() const {
      return std::tie(samples, pass, parameterShards, optimizerShards, local,
                      borrowed);
    }
    bool operator<(const PassKey &other) const { return tied() < other.tied(); }
  };
  struct CompiledPass {
    CompiledFunction function, weight;
    bool readsParameters = false; ///< unless they are sharded
    llvm::SmallVector<int64_t, 2> dataBytesPerSample;
    std::string refusal;
  };

  const Local &localOf(const LocalKey &key);
  Local makeLocal(const LocalKey &key);
  bool backwardIsIdentical(const LocalKey &plain, const LocalKey &checkpointed);
  const std::string &whyNot(const ::galvatron::Strategy &strategy);
  const std::string &whyTooLarge(int64_t samples);
  const grt::FlatLayout &layoutOf(func::FuncOp function,
                                  const ::galvatron::LayerPartition &partition,
                                  ArrayRef<int64_t> borrowed);
  const CompiledPass &compiledPass(const PassKey &key);
  CompiledPass compilePass(const PassKey &key);

  func::FuncOp forward, backward, forwardOnly, recompute;
  grt::KernelTarget target;
  /// The executor gathers parameters, not the functions.
  bool gathersOutside;
  std::map<LocalKey, Local> locals;
  std::map<LocalKey, bool> identicalBackward; ///< by the key with checkpointing
  // Reasons why a strategy is refused, empty if it is not.
  std::map<Axes, std::string> notPartitionable;
  std::map<int64_t, std::string> tooLarge; ///< by samples
  /// By partition and borrowed parameters.
  std::map<std::pair<::galvatron::LayerPartition, std::vector<int64_t>>,
           grt::FlatLayout>
      layouts;
  std::map<PassKey, CompiledPass> passes;
};

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_FOOTPRINT_BODYCOMPILER_H
