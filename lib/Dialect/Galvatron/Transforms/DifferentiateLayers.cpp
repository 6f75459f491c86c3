//===- DifferentiateLayers.cpp - Forward and backward functions -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONDIFFERENTIATELAYERS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

struct DifferentiateLayersPass
    : mlir::galvatron::impl::GalvatronDifferentiateLayersBase<
          DifferentiateLayersPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    llvm::StringMap<nn::DerivedFunctions> done;
    auto result = getOperation().walk([&](LayerOp layer) {
      if (layer.isOpaque()) {
        layer.emitError() << "expected layer '" << layer.getLayerName()
                          << "' to have a body, found a profile alone: it can "
                             "be planned, not compiled";
        return WalkResult::interrupt();
      }
      if (!layer.getCalleeAttr())
        return WalkResult::advance();
      StringRef callee = layer.getCalleeAttr().getValue();
      auto entry = done.find(callee);
      if (entry == done.end()) {
        auto body = symbols.lookup<func::FuncOp>(callee);
        FailureOr<nn::DerivedFunctions> derived =
            nn::differentiateBody(body, layer.getDataInputs());
        if (failed(derived))
          return WalkResult::interrupt();
        entry = done.try_emplace(callee, *derived).first;
      }
      layer.setForwardAttr(FlatSymbolRefAttr::get(entry->second.forward));
      layer.setBackwardAttr(FlatSymbolRefAttr::get(entry->second.backward));
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
