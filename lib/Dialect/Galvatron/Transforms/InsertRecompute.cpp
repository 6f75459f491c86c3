//===- InsertRecompute.cpp - Recomputation for checkpointed layers --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// A checkpointed layer keeps its input only. Its forward function drops the
// stash; a separate recompute function makes it again just before backward, and
// computes nothing that backward does not need. They stay two functions, so
// that no common-subexpression elimination can merge them.
//
// A layer at a point keeps the set of values that the plan says. It gets
// another forward function, which returns these, and another backward function,
// which computes the rest again (nn::buildKept): it is a layer without
// recompute function for all that comes behind.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Strategy/Strategy.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONINSERTRECOMPUTE
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// The functions that a layer has instead of those that keep everything.
struct Functions {
  func::FuncOp forward, recompute, backward;
};

struct InsertRecomputePass
    : mlir::galvatron::impl::GalvatronInsertRecomputeBase<InsertRecomputePass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    llvm::MapVector<std::pair<StringAttr, Attribute>, Functions> done;
    auto walked = getOperation().walk([&](LayerOp layer) {
      StrategyAttr strategy = layer.getStrategyAttr();
      if (!strategy || !layer.getForwardAttr() ||
          !(strategy.getCheckpoint() || strategy.getPoint() > 0))
        return WalkResult::advance();
      StringAttr forward = layer.getForwardAttr().getAttr();
      auto entry = done.find({forward, layer.getKeptAttr()});
      if (entry == done.end()) {
        FailureOr<Functions> made = strategy.getCheckpoint()
                                        ? recomputeAll(layer, symbols)
                                        : keepPart(layer, symbols);
        if (failed(made))
          return WalkResult::interrupt();
        entry = done.insert({{forward, layer.getKeptAttr()}, *made}).first;
      }
      const Functions &functions = entry->second;
      layer.setForwardAttr(FlatSymbolRefAttr::get(functions.forward));
      if (functions.backward)
        layer.setBackwardAttr(FlatSymbolRefAttr::get(functions.backward));
      if (functions.recompute)
        layer.setRecomputeAttr(FlatSymbolRefAttr::get(functions.recompute));
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();

    // If no layer of a body keeps everything, nobody uses these functions.
    llvm::StringSet<> used;
    getOperation().walk([&](LayerOp layer) {
      for (FlatSymbolRefAttr symbol :
           {layer.getForwardAttr(), layer.getBackwardAttr()})
        if (symbol)
          used.insert(symbol.getValue());
    });
    llvm::SetVector<StringRef> old;
    for (const auto &[key, functions] : done) {
      StringRef stem = key.first.getValue();
      old.insert(stem);
      stem.consume_back(".forward");
      if (functions.backward)
        backwards.push_back((stem + ".backward").str());
    }
    for (const std::string &name : backwards)
      old.insert(name);
    for (StringRef name : old)
      if (!used.contains(name))
        if (Operation *function = symbols.lookup(name))
          symbols.erase(function);
  }

private:
  static StringRef stemOf(func::FuncOp forward) {
    StringRef stem = forward.getName();
    stem.consume_back(".forward");
    return stem;
  }

  static Functions recomputeAll(LayerOp layer, SymbolTable &symbols) {
    auto forward =
        symbols.lookup<func::FuncOp>(layer.getForwardAttr().getValue());
    StringRef stem = stemOf(forward);
    Functions functions;
    functions.recompute =
        nn::buildRecompute(forward, (stem + ".recompute").str());
    // With nothing to recompute there was no stash to drop either.
    functions.forward =
        functions.recompute
            ? nn::buildForwardOnly(forward, (stem + ".forward_only").str())
            : forward;
    return functions;
  }

  FailureOr<Functions> keepPart(LayerOp layer, SymbolTable &symbols) {
    KeptAttr kept = layer.getKeptAttr();
    if (!kept)
      return layer.emitOpError()
             << "expected 'kept' beside strategy '"
             << layer.getStrategyAttr().getNotation()
             << "', which keeps a part of its values: the planner chooses "
                "which";
    std::string body = nn::hashBody(
        symbols.lookup<func::FuncOp>(layer.getCalleeAttr().getValue()));
    if (kept.getBody() != body)
      return layer.emitOpError()
             << "expected kept values of its body '"
             << layer.getCallee().value() << "', " << body
             << ", found those of " << kept.getBody()
             << ": the body has changed since they were chosen";
    auto forward =
        symbols.lookup<func::FuncOp>(layer.getForwardAttr().getValue());
    nn::DerivedFunctions whole = {
        forward,
        symbols.lookup<func::FuncOp>(layer.getBackwardAttr().getValue())};
    SmallVector<nn::BodyValue> values;
    for (const ::galvatron::KeptValue &value : kept.toKeptValues().values)
      values.push_back({unsigned(value.operation), unsigned(value.result)});
    std::string stem = (stemOf(forward) + ".kept" + Twine(sets.size())).str();
    sets.push_back(kept);
    FailureOr<nn::DerivedFunctions> derived =
        nn::buildKept(whole, values, stem);
    if (failed(derived))
      return failure();
    return Functions{derived->forward, nullptr, derived->backward};
  }

  SmallVector<KeptAttr> sets;         ///< one for each pair of functions
  SmallVector<std::string> backwards; ///< of layers that keep a part
};

} // namespace
