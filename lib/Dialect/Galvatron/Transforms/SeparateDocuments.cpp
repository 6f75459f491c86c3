//===- SeparateDocuments.cpp - galvatron-separate-documents ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONSEPARATEDOCUMENTS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// The row of tokens whose documents are kept apart; null, with an error, for
/// models that have none, or several.
DataAttr findTokens(ModelOp model) {
  DataAttr tokens;
  for (DataAttr datum : model.getDeclaredData()) {
    if (datum.getKind() == kDocumentStarts) {
      model.emitOpError() << "expected a model that does not keep documents "
                             "apart, found '"
                          << datum.getName() << "', by which it does";
      return nullptr;
    }
    if (!datum.isSequence())
      continue;
    if (tokens) {
      model.emitOpError() << "expected one row of tokens whose documents are "
                             "kept apart, found '"
                          << tokens.getName() << "' and '" << datum.getName()
                          << "'";
      return nullptr;
    }
    tokens = datum;
  }
  if (!tokens || tokens.getSampleShape().size() != 1) {
    model.emitOpError() << "expected a row of tokens, whose documents are kept "
                           "apart, found none";
    return nullptr;
  }
  return tokens;
}

struct SeparateDocumentsPass
    : mlir::galvatron::impl::GalvatronSeparateDocumentsBase<
          SeparateDocumentsPass> {
  using Base::Base;

  void runOnOperation() override {
    for (ModelOp model : getOperation().getOps<ModelOp>())
      if (failed(separate(model)))
        return signalPassFailure();
  }

private:
  /// Gives a body the argument, behind `inputs` others; it is taken away again
  /// if no operation asks for it. `isAsked` says whether one does.
  LogicalResult separateBody(func::FuncOp body, unsigned inputs, Type starts,
                             bool &isAsked) {
    if (failed(body.insertArgument(inputs, starts, {}, body.getLoc())))
      return failure();
    BlockArgument argument = body.getArgument(inputs);
    WalkResult walked = body.walk([&](nn::TrainingOpInterface op) {
      return WalkResult(op.separateDocuments(argument, length));
    });
    isAsked = !argument.use_empty();
    if (walked.wasInterrupted())
      return failure();
    return isAsked ? success() : body.eraseArgument(inputs);
  }

  LogicalResult separate(ModelOp model) {
    DataAttr tokens = findTokens(model);
    if (!tokens)
      return failure();
    MLIRContext *context = &getContext();
    int64_t positions = tokens.getSampleShape().front();
    auto type = RankedTensorType::get({ShapedType::kDynamic, positions},
                                      IntegerType::get(context, 32));
    SmallVector<Attribute> data(model.getDataAttr().begin(),
                                model.getDataAttr().end());
    StringRef name = kDocumentStarts;
    data.push_back(DataAttr::get(context, name, name, positions, type));
    BlockArgument starts = model.getBlock().addArgument(type, model.getLoc());
    model.setDataAttr(ArrayAttr::get(context, data));

    SymbolTable symbols(getOperation());
    DenseMap<StringAttr, bool> bodies; // whether they ask for the argument
    for (LayerOp layer : model.getLayers()) {
      if (!layer.getCalleeAttr())
        return layer.emitOpError() << "has no body whose documents could be "
                                      "kept apart, expected one";
      auto [at, isNew] =
          bodies.try_emplace(layer.getCalleeAttr().getAttr(), false);
      if (isNew) {
        auto body = symbols.lookup<func::FuncOp>(at->first);
        if (!body)
          return layer.emitOpError()
                 << "expected a body that is a function of operations";
        if (failed(
                separateBody(body, layer.getInputs().size(), type, at->second)))
          return failure();
      }
      if (at->second)
        layer.getInputsMutable().append(starts);
    }
    if (starts.use_empty())
      return model.emitOpError()
             << "expected attention whose documents are kept apart, found none";
    return success();
  }
};

} // namespace
