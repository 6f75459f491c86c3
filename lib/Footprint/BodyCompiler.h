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
//   - what is kept for backward is a set of values of the body: whatever number
//     a strategy has for it, functions are made once for a set (a variant);
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
#include "galvatron/Search/KeptSets.h"
#include "galvatron/Strategy/KeptValues.h"
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
  /// The collectives that run beside a computation of the function; add() does
  /// not count them.
  llvm::SmallVector<::galvatron::OverlappedCollective, 0> overlapped;

  /// Adds the work of an operation of a partitioned function; sums that are
  /// joined with others as if each stood alone.
  void add(Operation &op, int64_t samples);
  /// Adds the computation of another function.
  void addComputation(const FunctionWork &other);
  /// Products of one size are one entry.
  void addProduct(double productFlops, double size, bool attention);
};

/// The work and memory of one function.
struct CompiledFunction {
  FunctionWork work;
  grt::FunctionRegions regions;
  grt::FunctionBytes bytes;
};

/// The work and memory of a layer under one strategy. Functions that it does
/// not have take nothing.
struct CompiledLayer {
  CompiledFunction forward, recompute, backward, weight;
  bool recomputes = false; ///< has a recompute function
  bool split = false;      ///< the backward pass has a weight part
  const grt::FlatLayout *layout = nullptr;
  llvm::ArrayRef<int64_t> dataBytesPerSample;
};

class BodyCompiler {
public:
  using Axes = llvm::SmallVector<::galvatron::Level, 2>;
  /// The number of what a layer keeps: everything (0), nothing (1), or a set of
  /// values.
  using Variant = size_t;
  static constexpr Variant kKeepsAll = 0, kKeepsNothing = 1;

  BodyCompiler(nn::DerivedFunctions functions, llvm::StringRef name,
               std::string bodyHash, const grt::KernelTarget &target);

  /// The variant that keeps these values. Error: they are those of another
  /// body, or the body has no such values.
  llvm::Expected<Variant> variantOf(const ::galvatron::KeptValues &kept);
  /// The one that keeps as a set what backward needs.
  Variant variantThatKeepsAll();
  const ::galvatron::KeptValues &keptBy(Variant variant) const {
    return sets[variant - kKeepsNothing - 1];
  }
  /// The variant of a strategy without point.
  static Variant variantOf(const ::galvatron::Strategy &strategy) {
    return strategy.checkpoint() ? kKeepsNothing : kKeepsAll;
  }

  /// `borrowed` lists parameters whose owner is another layer; `splits`: with
  /// the backward pass in two parts. Of the strategy how the layer is spread
  /// counts, and the variant says what it keeps.
  llvm::Expected<CompiledLayer> compile(const ::galvatron::Strategy &strategy,
                                        Variant variant,
                                        ArrayRef<int64_t> borrowed,
                                        int64_t samples, bool splits);

  /// Returns work and bytes of the functions of a variant with a set of values:
  /// those of compile(), but of temporaries a lower bound. Neither converts nor
  /// allocates functions. They gather as those that keep everything do.
  llvm::Expected<CompiledLayer> measure(const ::galvatron::Strategy &strategy,
                                        Variant variant,
                                        ArrayRef<int64_t> borrowed,
                                        int64_t samples);

  /// Seconds of one operation of a local forward function.
  using WorkSeconds = llvm::function_ref<double(const FunctionWork &)>;
  /// The values that the forward function on some axes may keep, for so many
  /// samples, and which of the problem's values are the body's.
  struct KeptChoice {
    ::galvatron::KeptProblem problem;
    std::vector<std::pair<nn::BodyValue, size_t>> values;
  };
  llvm::Expected<KeptChoice> keptChoice(const Axes &axes, int64_t samples,
                                        WorkSeconds seconds);
  /// The sets of values on the hull of bytes and times between keeping
  /// everything and as little as possible, without these, at most `most` of
  /// them, from much to little kept.
  llvm::Expected<std::vector<::galvatron::KeptValues>>
  choosePoints(const Axes &axes, int64_t samples, WorkSeconds seconds,
               size_t most);

private:
  /// The functions on their axes, with `?`: with collectives, fused.
  struct Local {
    func::FuncOp forward, recompute, backward, weight;
    SmallVector<RowCut, 1> rowCuts;
    std::string refusal; ///< why there are none
  };
  /// Variant, splits, sharded (if it splits), axes.
  using LocalKey = std::tuple<Variant, bool, bool, Axes>;

  enum class Pass : uint8_t { Forward, Recompute, Backward };
  /// The key of a function's bytes and work, whatever they belong to.
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

  /// The functions of a variant on a strategy's axes, or why there are none for
  /// so many samples.
  llvm::Expected<const Local *> localFor(const ::galvatron::Strategy &strategy,
                                         const LocalKey &key, int64_t samples);
  /// The part of measure()'s answer that no sharding changes.
  struct MeasuredLayer {
    FunctionWork forward, backward;
    int64_t stashBytes = 0, forwardTransient = 0;
  };
  const MeasuredLayer &measuredLayer(const Local &local, const LocalKey &key,
                                     int64_t samples);
  const Local &localOf(const LocalKey &key);
  Local makeLocal(const LocalKey &key);
  bool backwardIsIdentical(const LocalKey &plain, const LocalKey &checkpointed);
  const std::string &whyNot(const ::galvatron::Strategy &strategy);
  const std::string &whyTooLarge(int64_t samples);
  /// An error that names the parameter if its element type has no layout.
  llvm::Expected<const grt::FlatLayout *>
  layoutOf(func::FuncOp function, const ::galvatron::LayerPartition &partition,
           ArrayRef<int64_t> borrowed);
  const CompiledPass &compiledPass(const PassKey &key);
  CompiledPass compilePass(const PassKey &key);

  /// A forward function that keeps every value, and which values these are.
  struct Candidates {
    func::FuncOp forward;
    std::vector<nn::BodyValue> values;
  };
  const Candidates &candidates();

  func::FuncOp forward, backward;
  std::string name, bodyHash;
  std::vector<LayerFunctions> variants;      ///< on whole tensors
  std::vector<::galvatron::KeptValues> sets; ///< of those behind the first two
  std::optional<Candidates> candidateFunction;
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
  std::map<std::pair<LocalKey, int64_t>, MeasuredLayer> measured;
  std::map<PassKey, int64_t> leastTransients; ///< of backward functions
};

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_FOOTPRINT_BODYCOMPILER_H
