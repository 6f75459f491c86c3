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

/// Origin of a value, beside parameters.
enum class From {
  Parameters, ///< nothing else
  Source,     ///< what an encoder reads
  Text        ///< the positions that are computed
};

/// The origin of a result with operands of two origins.
From join(From one, From other) { return std::max(one, other); }

/// The data of a model that generates.
struct ReadData {
  int64_t positions = 0;  ///< of a text
  int64_t source = 0;     ///< tokens that its encoder reads; 0: there is none
  SmallVector<From> from; ///< by datum
};

/// Classifies the data of a decoder, tokens and as many labels, or of an
/// encoder with a decoder, which have tokens of a source and its mask in front;
/// nothing, with an error, for other models.
std::optional<ReadData> classifyData(ModelOp model) {
  ReadData read;
  const SmallVector<DataAttr> data = model.getDeclaredData();
  const auto isRow = [](DataAttr datum) {
    return datum.getSampleShape().size() == 1;
  };
  const auto areTokens = [&](DataAttr datum) {
    return datum.isSequence() && isRow(datum);
  };
  const int64_t rows = llvm::count_if(data, areTokens);
  for (DataAttr datum : data)
    if (areTokens(datum))
      (rows > 1 && !read.source ? read.source : read.positions) =
          datum.getSampleShape().front();
  bool hasSource = rows > 1;
  for (DataAttr datum : data) {
    const bool isMask = rows > 1 && datum.getKind() == "mask" && isRow(datum) &&
                        datum.getSampleShape().front() == read.source;
    if (!areTokens(datum) && !datum.isCounted() && !isMask) {
      model.emitOpError()
          << "expected a decoder, which reads tokens and the labels "
             "behind them, or one behind an encoder of tokens and their mask, "
             "found '"
          << datum.getName() << "' besides";
      return std::nullopt;
    }
    const bool isSource = isMask || (areTokens(datum) && hasSource);
    hasSource &= !areTokens(datum);
    read.from.push_back(isSource ? From::Source : From::Text);
    if (rows == 0 || isSource ||
        datum.getSampleShape() == ArrayRef<int64_t>(read.positions))
      continue;
    model.emitOpError() << "expected as many labels as tokens, "
                        << read.positions << ", found '" << datum.getName()
                        << "' of type " << datum.getTensorType();
    return std::nullopt;
  }
  if (rows == 1 || rows == 2)
    return read;
  model.emitOpError("expected a model that reads a row of tokens, or one of an "
                    "encoder and one of a decoder, found ")
      << rows;
  return std::nullopt;
}

/// Makes of one body what computes a position a sample.
class BodyRewriter : public nn::KeptKeys {
public:
  /// `inputs` says what each input is made of.
  BodyRewriter(func::FuncOp body, SmallVector<bool> isData,
               SmallVector<From> inputs, int64_t rowCount, int64_t rowLength)
      : inputs(std::move(inputs)), body(body), isData(std::move(isData)),
        rowCount(rowCount) {
    length = rowLength;
  }

  LogicalResult run(int64_t before) {
    for (unsigned i = 0; i < body.getNumArguments(); ++i)
      if (i >= inputs.size() || !isData[i])
        body.setArgAttr(i, nn::kFrozenAttr, UnitAttr::get(body.getContext()));
    // Masks are not of what generates.
    for (nn::TrainingOpInterface op : operations())
      op.removeDropout();
    classify(before);
    for (Value value : body.getBody().front().getTerminator()->getOperands())
      results.push_back(fromOf(value));
    if (failed(addArguments()))
      return failure();
    return failed(keepAll()) ? failure() : finish();
  }

  bool isOfSource(Value value) const override {
    return fromOf(value) == From::Source;
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

  /// Origins of inputs and results.
  SmallVector<From> inputs, results;
  /// Types of what is kept for a layer, keys and values by turns.
  SmallVector<RankedTensorType> caches;
  /// Whether the body takes each of the added data.
  std::array<bool, 4> takes = {};

private:
  SmallVector<nn::TrainingOpInterface> operations() {
    SmallVector<nn::TrainingOpInterface> all;
    body.walk([&](nn::TrainingOpInterface op) { all.push_back(op); });
    return all;
  }

  From fromOf(Value value) const { return from.lookup(value); }

  /// Finds what values are made of, and gives those of texts one position.
  void classify(int64_t before) {
    for (auto [argument, is] : llvm::zip(body.getArguments(), inputs)) {
      from[argument] = is;
      if (is == From::Text)
        argument.setType(withOnePosition(argument.getType(), before));
      else
        body.setArgAttr(argument.getArgNumber(), nn::kMadeOfAttr,
                        StringAttr::get(body.getContext(),
                                        is == From::Source ? nn::kSource
                                                           : nn::kParameters));
    }
    for (Operation &op : body.getBody().front().without_terminator()) {
      From is = From::Parameters;
      for (Value operand : op.getOperands())
        is = join(is, fromOf(operand));
      for (OpResult result : op.getResults()) {
        from[result] = is;
        if (is == From::Text)
          result.setType(withOnePosition(result.getType(), before));
      }
    }
  }

  /// The arguments for the model's added data, behind the inputs.
  LogicalResult addArguments() {
    auto type = RankedTensorType::get({ShapedType::kDynamic, 1},
                                      IntegerType::get(body.getContext(), 32));
    unsigned number = inputs.size();
    for (Value *value : {&rows, &positions, &sourceRows, &sourceLengths}) {
      if (failed(body.insertArgument(number, type, {}, body.getLoc())))
        return failure();
      *value = body.getArgument(number++);
      from[*value] = From::Text;
    }
    return success();
  }

  /// Operations on positions are replaced by the form that computes one of
  /// them. They are collected before the first is replaced.
  LogicalResult keepAll() {
    SmallVector<std::pair<nn::TrainingOpInterface, bool>> ofTexts;
    for (nn::TrainingOpInterface op : operations()) {
      auto isMadeOf = [&](From what) {
        return llvm::any_of(op->getOperands(), [&](Value operand) {
          return fromOf(operand) == what;
        });
      };
      if (isMadeOf(From::Text))
        ofTexts.emplace_back(op, isMadeOf(From::Source));
    }
    OpBuilder builder(body.getContext());
    for (auto [op, ofSource] : ofTexts) {
      builder.setInsertionPoint(op);
      const size_t kept = caches.size();
      const Location location = op.getLoc();
      if (failed(op.keepKeys(builder, *this)))
        return failure();
      if (ofSource && caches.size() == kept)
        return emitError(location)
               << "expected attention alone to read what an encoder makes "
                  "beside the positions of a decoder, found another operation";
    }
    return success();
  }

  /// Takes away the arguments that nothing asks for, and says what the function
  /// takes and gives now.
  LogicalResult finish() {
    // A cache cannot be shared: each rank would write to a copy.
    body->removeAttr(nn::kSharedAttr);
    for (unsigned i = takes.size(); i-- > 0;) {
      BlockArgument argument = body.getArgument(inputs.size() + i);
      takes[i] = !argument.use_empty();
      if (!takes[i] && failed(body.eraseArgument(argument.getArgNumber())))
        return failure();
    }
    Block &block = body.getBody().front();
    body.setFunctionType(
        FunctionType::get(body.getContext(), block.getArgumentTypes(),
                          block.getTerminator()->getOperandTypes()));
    return success();
  }

  func::FuncOp body;
  SmallVector<bool> isData; ///< by input
  int64_t rowCount;
  DenseMap<Value, From> from;
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
    std::optional<ReadData> read = classifyData(model);
    if (!read)
      return failure();
    addData(model, *read);
    SymbolTable symbols(getOperation());
    for (LayerOp layer : model.getLayers()) {
      if (!layer.getCalleeAttr() || layer.getStrategyAttr() ||
          layer.getStageAttr())
        return layer.emitOpError("expected a layer with a body that is not "
                                 "planned yet, whose keys are to be kept");
      StringAttr name = layer.getCalleeAttr().getAttr();
      std::shared_ptr<BodyRewriter> &rewriter = rewriters[name];
      SmallVector<From> inputs;
      for (Value input : layer.getInputs())
        inputs.push_back(from.lookup(input));
      if (!rewriter) {
        auto body = symbols.lookup<func::FuncOp>(name);
        if (!body)
          return layer.emitOpError()
                 << "expected a body that is a function of operations";
        rewriter = std::make_shared<BodyRewriter>(body, layer.getDataInputs(),
                                                  inputs, rows, length);
        if (failed(rewriter->run(read->positions)))
          return failure();
      }
      if (rewriter->inputs != inputs)
        return layer.emitOpError()
               << "expected body '" << name.getValue()
               << "' to read what an encoder makes in all of its layers, or in "
                  "none";
      adapt(layer, *rewriter, read->positions, symbols);
    }
    if (added[0].use_empty())
      return model.emitOpError(
          "expected attention whose keys and values are kept, found none");
    if (read->source && added[2].use_empty())
      return model.emitOpError("expected attention to what the encoder makes, "
                               "found none");
    return success();
  }

  /// Gives samples of texts one position each, and the model the data that says
  /// which.
  void addData(ModelOp model, const ReadData &read) {
    MLIRContext *context = &getContext();
    SmallVector<Attribute> data;
    for (auto [datum, argument, is] :
         llvm::zip_equal(model.getDeclaredData(),
                         model.getBlock().getArguments(), read.from)) {
      from[argument] = is;
      Type type = datum.getType();
      if (is == From::Text) {
        type = withOnePosition(type, read.positions);
        argument.setType(type);
      }
      data.push_back(DataAttr::get(context, datum.getKind(), datum.getName(),
                                   datum.getBelow(), type));
    }
    auto type = RankedTensorType::get({ShapedType::kDynamic, 1},
                                      IntegerType::get(context, 32));
    auto declare = [&](StringRef kind, int64_t below) {
      data.push_back(DataAttr::get(context, kind, kind, below, type));
      added.push_back(model.getBlock().addArgument(type, model.getLoc()));
    };
    added.clear();
    declare(kCacheRows, rows);
    declare(kPositions, length);
    if (read.source) {
      declare(kSourceRows, rows);
      declare(kSourceLengths, read.source + 1);
    }
    model.setDataAttr(ArrayAttr::get(context, data));
  }

  void adapt(LayerOp layer, const BodyRewriter &body, int64_t before,
             SymbolTable &symbols) {
    for (auto [value, takes] : llvm::zip(added, body.takes))
      if (takes)
        layer.getInputsMutable().append(value);
    for (auto [result, is] : llvm::zip(layer->getResults(), body.results)) {
      from[result] = is;
      if (is == From::Text)
        result.setType(withOnePosition(result.getType(), before));
    }
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
  /// Origins of the model's values.
  DenseMap<Value, From> from;
  /// Data that the model comes to have: rows and positions of samples, and with
  /// an encoder rows and lengths of their sources.
  SmallVector<Value, 4> added;
};

} // namespace
