//===- NumberBuffers.cpp - galvatron-number-buffers -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/Transforms/BufferValues.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"

namespace mlir::grt {
#define GEN_PASS_DEF_NUMBERBUFFERS
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;

namespace {

class NumberBuffersPass
    : public mlir::grt::impl::NumberBuffersBase<NumberBuffersPass> {
  void runOnOperation() override {
    Builder builder(&getContext());
    for (auto func : getOperation().getOps<FuncOp>()) {
      FailureOr<mlir::galvatron::NumberedValues> number = numberValues(func);
      if (failed(number))
        return signalPassFailure();
      func->setAttr(mlir::galvatron::kValuesAttr,
                    builder.getStringAttr(number->str()));
    }
    for (auto model : getOperation().getOps<mlir::galvatron::ModelOp>())
      model->setAttr(mlir::galvatron::kValuesAttr,
                     builder.getStringAttr(mlir::galvatron::numberModel(
                                               model, /*withStrategies=*/true)
                                               .str()));
    SymbolTable symbols(getOperation());
    for (auto role : getOperation().getOps<RoleOp>())
      role->setAttr(mlir::galvatron::kValuesAttr,
                    builder.getStringAttr(numberRole(role, symbols).str()));
    markAllAnalysesPreserved();
  }
};

} // namespace
