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
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Strategy/Strategy.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONINSERTRECOMPUTE
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct InsertRecomputePass
    : mlir::galvatron::impl::GalvatronInsertRecomputeBase<InsertRecomputePass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    struct Functions {
      func::FuncOp forward, recompute;
    };
    llvm::StringMap<Functions> done;
    getOperation().walk([&](LayerOp layer) {
      if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
          !layer.getStrategyAttr().toStrategy().checkpoint())
        return;
      StringRef forwardName = layer.getForwardAttr().getValue();
      auto entry = done.find(forwardName);
      if (entry == done.end()) {
        auto forward = symbols.lookup<func::FuncOp>(forwardName);
        StringRef stem = forwardName;
        stem.consume_back(".forward");
        Functions functions;
        functions.recompute =
            nn::buildRecompute(forward, (stem + ".recompute").str());
        // With nothing to recompute there was no stash to drop either.
        functions.forward =
            functions.recompute
                ? nn::buildForwardOnly(forward, (stem + ".forward_only").str())
                : forward;
        entry = done.try_emplace(forwardName, functions).first;
      }
      layer.setForwardAttr(FlatSymbolRefAttr::get(entry->second.forward));
      if (entry->second.recompute)
        layer.setRecomputeAttr(FlatSymbolRefAttr::get(entry->second.recompute));
    });

    // If every layer of a body is checkpointed, nobody keeps its stash.
    llvm::StringSet<> used;
    getOperation().walk([&](LayerOp layer) {
      if (layer.getForwardAttr())
        used.insert(layer.getForwardAttr().getValue());
    });
    for (StringRef name : done.keys())
      if (!used.contains(name))
        symbols.erase(symbols.lookup(name));
  }
};

} // namespace
