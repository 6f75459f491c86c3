//===- KeepKeys.cpp - galvatron-keep-keys ---------------------------------===//
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
#define GEN_PASS_DEF_GALVATRONKEEPKEYS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// The type of what has `positions` a sample, with one instead; other types as
/// they are.
Type withOnePosition(Type type, int64_t positions) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() < 2 || !tensor.isDynamicDim(0) ||
      tensor.getDimSize(1) != positions)
    return type;
  SmallVector<int64_t> shape(tensor.getShape());
  shape[1] = 1;
  return tensor.clone(shape);
}

/// The positions of a sample of the one row of tokens that a model reads beside
/// as many labels; nothing, with an error, for other models.
std::optional<int64_t> countPositions(ModelOp model) {
  std::optional<int64_t> positions;
  for (DataAttr datum : model.getDeclaredData())
    if (datum.isSequence() && datum.getSampleShape().size() == 1 && !positions)
      positions = datum.getSampleShape().front();
    else if (datum.isSequence() || !datum.isCounted()) {
      model.emitOpError()
          << "expected a decoder, which reads tokens and the labels "
             "behind them, found '"
          << datum.getName()
          << "' besides, as encoders and what is "
             "behind them have";
      return std::nullopt;
    }
  if (!positions)
    model.emitOpError(
        "expected a model that reads a row of tokens, found none");
  for (DataAttr datum : model.getDeclaredData())
    if (positions && datum.getSampleShape() != ArrayRef<int64_t>(*positions)) {
      model.emitOpError() << "expected as many labels as tokens, " << *positions
                          << ", found '" << datum.getName() << "' of type "
                          << datum.getTensorType();
      return std::nullopt;
    }
  return positions;
}

/// Makes of one body what computes a position a sample.
class BodyRewriter : public nn::KeptKeys {
public:
  BodyRewriter(func::FuncOp body, SmallVector<bool> isData, int64_t rowCount,
               int64_t rowLength)
      : body(body), isData(std::move(isData)), inputs(this->isData.size()),
        rowCount(rowCount) {
    length = rowLength;
  }

  LogicalResult run(int64_t before) {
    for (unsigned i = 0; i < body.getNumArguments(); ++i)
      if (i >= inputs || !isData[i])
        body.setArgAttr(i, nn::kFrozenAttr, UnitAttr::get(body.getContext()));
    // Masks are not of what generates.
    SmallVector<nn::TrainingOpInterface> all;
    body.walk([&](nn::TrainingOpInterface op) { all.push_back(op); });
    for (nn::TrainingOpInterface op : all)
      op.removeDropout();
    for (BlockArgument argument : body.getArguments().take_front(inputs))
      argument.setType(withOnePosition(argument.getType(), before));
    body.walk([&](Operation *op) {
      for (OpResult result : op->getResults())
        result.setType(withOnePosition(result.getType(), before));
    });
    OpBuilder builder(body.getContext());
    auto type =
        RankedTensorType::get({ShapedType::kDynamic, 1}, builder.getI32Type());
    for (unsigned number : {0u, 1u})
      if (failed(body.insertArgument(inputs + number, type, {}, body.getLoc())))
        return failure();
    rows = body.getArgument(inputs);
    positions = body.getArgument(inputs + 1);
    all.clear();
    body.walk([&](nn::TrainingOpInterface op) { all.push_back(op); });
    for (nn::TrainingOpInterface op : all) {
      builder.setInsertionPoint(op);
      if (failed(op.keepKeys(builder, *this)))
        return failure();
    }
    return finish();
  }

  Value add(Value like, int64_t heads, int64_t places, int64_t headSize,
            StringRef factor) override {
    Builder builder(body.getContext());
    auto type = cast<RankedTensorType>(like.getType())
                    .clone({rowCount, heads, places, headSize});
    NamedAttrList attrs;
    attrs.set(nn::kFrozenAttr, builder.getUnitAttr());
    if (!factor.empty())
      attrs.set(nn::kFactorsAttr,
                builder.getStrArrayAttr({"", factor, "", ""}));
    unsigned index = body.getNumArguments();
    if (failed(body.insertArgument(index, type,
                                   attrs.getDictionary(body.getContext()),
                                   body.getLoc())))
      llvm_unreachable("a body whose arguments are fixed");
    caches.push_back(type);
    return body.getArgument(index);
  }

  /// Types of what is kept for a layer, keys and values by turns.
  SmallVector<RankedTensorType> caches;
  bool takesRows = false, takesPositions = false;

private:
  /// Takes away the arguments that nothing asks for, and says what the function
  /// takes and gives now.
  LogicalResult finish() {
    takesRows = !rows.use_empty();
    takesPositions = !positions.use_empty();
    // A cache cannot be shared: each rank would write to a copy.
    body->removeAttr(nn::kSharedAttr);
    if (!takesPositions && failed(body.eraseArgument(inputs + 1)))
      return failure();
    if (!takesRows && failed(body.eraseArgument(inputs)))
      return failure();
    Block &block = body.getBody().front();
    body.setFunctionType(
        FunctionType::get(body.getContext(), block.getArgumentTypes(),
                          block.getTerminator()->getOperandTypes()));
    return success();
  }

  func::FuncOp body;
  SmallVector<bool> isData; ///< by input
  unsigned inputs;
  int64_t rowCount;
};

struct KeepKeysPass
    : mlir::galvatron::impl::GalvatronKeepKeysBase<KeepKeysPass> {
  using Base::Base;

  void runOnOperation() override {
    if (rows < 1 || length < 1) {
      getOperation().emitError()
          << "expected at least a row and a position, found " << int64_t(rows)
          << " and " << int64_t(length);
      return signalPassFailure();
    }
    for (ModelOp model : getOperation().getOps<ModelOp>())
      if (failed(rewrite(model)))
        return signalPassFailure();
    for (auto parameter : getOperation().getOps<ParameterOp>())
      parameter.setFrozen(true);
  }

private:
  LogicalResult rewrite(ModelOp model) {
    std::optional<int64_t> before = countPositions(model);
    if (!before)
      return failure();
    addData(model, *before);
    SymbolTable symbols(getOperation());
    for (LayerOp layer : model.getLayers()) {
      if (!layer.getCalleeAttr() || layer.getStrategyAttr() ||
          layer.getStageAttr())
        return layer.emitOpError("expected a layer with a body that is not "
                                 "planned yet, whose keys are to be kept");
      StringAttr name = layer.getCalleeAttr().getAttr();
      std::shared_ptr<BodyRewriter> &rewriter = rewriters[name];
      if (!rewriter) {
        auto body = symbols.lookup<func::FuncOp>(name);
        if (!body)
          return layer.emitOpError()
                 << "expected a body that is a function of operations";
        rewriter = std::make_shared<BodyRewriter>(body, layer.getDataInputs(),
                                                  rows, length);
        if (failed(rewriter->run(*before)))
          return failure();
      }
      adapt(layer, *rewriter, *before, symbols);
    }
    if (rowsOfSamples.use_empty())
      return model.emitOpError(
          "expected attention whose keys and values are kept, found none");
    return success();
  }

  /// Gives samples one position each, and the model the data that says which.
  void addData(ModelOp model, int64_t before) {
    MLIRContext *context = &getContext();
    SmallVector<Attribute> data;
    for (DataAttr datum : model.getDeclaredData())
      data.push_back(DataAttr::get(context, datum.getKind(), datum.getName(),
                                   datum.getBelow(),
                                   withOnePosition(datum.getType(), before)));
    for (BlockArgument argument : model.getBlock().getArguments())
      argument.setType(withOnePosition(argument.getType(), before));
    auto type = RankedTensorType::get({ShapedType::kDynamic, 1},
                                      IntegerType::get(context, 32));
    auto declare = [&](StringRef kind, int64_t below) {
      data.push_back(DataAttr::get(context, kind, kind, below, type));
      return model.getBlock().addArgument(type, model.getLoc());
    };
    rowsOfSamples = declare(kCacheRows, rows);
    positionsOfSamples = declare(kPositions, length);
    model.setDataAttr(ArrayAttr::get(context, data));
  }

  void adapt(LayerOp layer, const BodyRewriter &body, int64_t before,
             SymbolTable &symbols) {
    if (body.takesRows)
      layer.getInputsMutable().append(rowsOfSamples);
    if (body.takesPositions)
      layer.getInputsMutable().append(positionsOfSamples);
    for (OpResult result : layer->getResults())
      result.setType(withOnePosition(result.getType(), before));
    SmallVector<FlatSymbolRefAttr> params = layer.getParamSymbols();
    SmallVector<Attribute> all(params.begin(), params.end());
    OpBuilder builder(layer->getParentOp());
    for (auto [number, type] : llvm::enumerate(body.caches)) {
      std::string name =
          (layer.getLayerName() + ".cache." + (number % 2 ? "values" : "keys"))
              .str();
      if (number > 1)
        name += "." + std::to_string(number / 2);
      auto cache = ParameterOp::create(
          builder, layer.getLoc(), name, type, kCacheInit, /*std=*/FloatAttr(),
          /*value=*/FloatAttr(), /*decay=*/false, /*copies=*/ArrayAttr(),
          PartAttr(), /*frozen=*/true);
      symbols.insert(cache);
      all.push_back(FlatSymbolRefAttr::get(cache.getSymNameAttr()));
    }
    layer.setParamsAttr(builder.getArrayAttr(all));
  }

  DenseMap<StringAttr, std::shared_ptr<BodyRewriter>> rewriters;
  BlockArgument rowsOfSamples, positionsOfSamples;
};

} // namespace
