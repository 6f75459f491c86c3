//===- ModelBuilder.cpp - Writes a model in nn operations -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"

using namespace galvatron;
using namespace mlir;

ModelBuilder::ModelBuilder(int64_t seqLen, int64_t decoderSeqLen,
                           Type elementType, StringRef configText,
                           MLIRContext &context)
    : seqLen(seqLen), decoderSeqLen(decoderSeqLen), elementType(elementType),
      statisticsType(nn::accumulatorElement(elementType)),
      configText(configText), builder(&context), loc(builder.getUnknownLoc()),
      module(ModuleOp::create(loc)) {
  builder.setInsertionPointToStart(module->getBody());
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

RankedTensorType ModelBuilder::activation(ArrayRef<int64_t> dims,
                                          int64_t length) {
  SmallVector<int64_t> shape = {ShapedType::kDynamic, length ? length : seqLen};
  shape.append(dims.begin(), dims.end());
  return RankedTensorType::get(shape, elementType);
}

RankedTensorType ModelBuilder::tokens(int64_t length) {
  return RankedTensorType::get({ShapedType::kDynamic, length ? length : seqLen},
                               builder.getI32Type());
}

RankedTensorType ModelBuilder::relativeBias(int64_t heads, int64_t length) {
  return RankedTensorType::get({ShapedType::kDynamic, heads, 2 * length - 1},
                               elementType);
}

RankedTensorType ModelBuilder::classes() {
  return RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
}

RankedTensorType ModelBuilder::images(int64_t channels, int64_t rows,
                                      int64_t columns) {
  return RankedTensorType::get({ShapedType::kDynamic, channels, rows, columns},
                               elementType);
}

RankedTensorType ModelBuilder::loss() {
  return RankedTensorType::get({1}, builder.getF64Type());
}

RankedTensorType ModelBuilder::statistics(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> all = {ShapedType::kDynamic};
  all.append(shape.begin(), shape.end());
  return RankedTensorType::get(all, statisticsType);
}

//===----------------------------------------------------------------------===//
// Module level
//===----------------------------------------------------------------------===//

void ModelBuilder::declare(const Twine &prefix,
                           const BodyParameters &parameters) {
  std::string front = prefix.str();
  for (const BodyParameter &parameter : parameters) {
    if (parameter.borrowed)
      continue;
    assert(ShapedType::getNumElements(parameter.stored) ==
               ShapedType::getNumElements(parameter.shape()) &&
           "a body sees the elements that are stored");
    const Initial &initial = parameter.initial;
    mlir::galvatron::ParameterOp::create(
        builder, loc, builder.getStringAttr(front + parameter.name),
        TypeAttr::get(RankedTensorType::get(parameter.stored, elementType)),
        builder.getStringAttr(initial.kind),
        initial.kind == "normal" ? builder.getF64FloatAttr(initial.deviation)
                                 : FloatAttr(),
        initial.kind == "constant" ? builder.getF64FloatAttr(initial.value)
                                   : FloatAttr(),
        parameter.stored.size() >= 2 && parameter.isTrained()
            ? builder.getUnitAttr()
            : UnitAttr(),
        parameter.copies.empty()
            ? ArrayAttr()
            : builder.getStrArrayAttr(SmallVector<StringRef>(
                  parameter.copies.begin(), parameter.copies.end())),
        parameter.part ? mlir::galvatron::PartAttr::get(
                             builder.getContext(),
                             builder.getStringAttr(front + parameter.part->of),
                             parameter.part->first, parameter.part->count,
                             parameter.part->stride)
                       : mlir::galvatron::PartAttr(),
        parameter.isTrained() ? UnitAttr() : builder.getUnitAttr());
  }
}

void ModelBuilder::body(StringRef name, ArrayRef<Type> inputs,
                        const BodyParameters &parameters, Type result,
                        ArrayRef<BodyFactor> factors,
                        function_ref<Value(ValueRange, ValueRange)> write) {
  bodyOfSeveral(name, inputs, parameters, result, factors,
                [&](ValueRange values, ValueRange parameterValues) {
                  return Values{write(values, parameterValues)};
                });
}

void ModelBuilder::bodyOfSeveral(
    StringRef name, ArrayRef<Type> inputs, const BodyParameters &parameters,
    ArrayRef<Type> results, ArrayRef<BodyFactor> factors,
    function_ref<Values(ValueRange, ValueRange)> write) {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<Type> types(inputs);
  for (const BodyParameter &parameter : parameters)
    types.push_back(RankedTensorType::get(parameter.shape(), elementType));
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType(types, results));
  function.setPrivate();
  for (auto [index, parameter] : llvm::enumerate(parameters))
    if (!parameter.factors.empty())
      function.setArgAttr(inputs.size() + index, nn::kFactorsAttr,
                          builder.getStrArrayAttr(parameter.factors));
  for (auto [index, parameter] : llvm::enumerate(parameters))
    if (!parameter.isTrained())
      function.setArgAttr(inputs.size() + index, nn::kFrozenAttr,
                          builder.getUnitAttr());
  NamedAttrList units;
  SmallVector<StringRef> uneven, shared;
  for (const BodyFactor &factor : factors) {
    units.set(factor.name, builder.getI64IntegerAttr(factor.units));
    if (factor.uneven)
      uneven.push_back(factor.name);
    if (factor.shared)
      shared.push_back(factor.name);
  }
  if (!units.empty())
    function->setAttr(nn::kFactorUnitsAttr,
                      units.getDictionary(builder.getContext()));
  if (!uneven.empty())
    function->setAttr(nn::kUnevenAttr, builder.getStrArrayAttr(uneven));
  if (!shared.empty())
    function->setAttr(nn::kSharedAttr, builder.getStrArrayAttr(shared));
  builder.setInsertionPointToStart(function.addEntryBlock());
  ValueRange arguments = function.getArguments();
  func::ReturnOp::create(builder, loc,
                         write(arguments.take_front(inputs.size()),
                               arguments.drop_front(inputs.size())));
}

std::vector<ModelDatum> ModelBuilder::nextTokenData(int64_t vocabulary) {
  return {{"tokens", tokens(), vocabulary}, {"labels", tokens(), vocabulary}};
}

void ModelBuilder::model(StringRef name, ArrayRef<ModelDatum> data,
                         function_ref<Value(ValueRange)> write) {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<mlir::galvatron::DataAttr> declared;
  for (const ModelDatum &datum : data)
    declared.push_back(mlir::galvatron::DataAttr::get(
        builder.getContext(), datum.kind,
        datum.name.empty() ? datum.kind : datum.name, datum.below, datum.type));
  auto model = mlir::galvatron::ModelOp::create(builder, loc, name, declared,
                                                configText);
  builder.setInsertionPointToStart(&model.getBlock());
  Value result = write(model.getBlock().getArguments());
  mlir::galvatron::OutputOp::create(builder, loc, result);
}

Value ModelBuilder::layer(const Twine &name, StringRef callee,
                          ValueRange inputs, Type result, const Twine &prefix,
                          const BodyParameters &parameters) {
  return layerOfSeveral(name, callee, inputs, result, prefix, parameters)[0];
}

ModelBuilder::Values
ModelBuilder::layerOfSeveral(const Twine &name, StringRef callee,
                             ValueRange inputs, ArrayRef<Type> results,
                             const Twine &prefix,
                             const BodyParameters &parameters) {
  std::string front = prefix.str();
  std::vector<std::string> names;
  for (const BodyParameter &parameter : parameters)
    names.push_back(parameter.borrowed ? parameter.name
                                       : front + parameter.name);
  SmallVector<StringRef> references(names.begin(), names.end());
  auto layer = mlir::galvatron::LayerOp::create(
      builder, loc, results, name.str(), callee, inputs, references);
  return Values(layer->getResults());
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// The shape of `x` with other dimensions in place of the last.
static RankedTensorType withLast(Value x, ArrayRef<int64_t> last,
                                 Type element) {
  auto type = cast<RankedTensorType>(x.getType());
  SmallVector<int64_t> shape(type.getShape().drop_back());
  shape.append(last.begin(), last.end());
  return RankedTensorType::get(shape, element);
}

Value ModelBuilder::embedding(Value tokens, Value table,
                              std::optional<int64_t> padding) {
  int64_t width = cast<RankedTensorType>(table.getType()).getDimSize(1);
  int64_t length = cast<RankedTensorType>(tokens.getType()).getDimSize(1);
  return nn::EmbeddingOp::create(builder, loc, activation({width}, length),
                                 tokens, table, /*sharded=*/UnitAttr(),
                                 padding ? builder.getI64IntegerAttr(*padding)
                                         : IntegerAttr(),
                                 /*first=*/IntegerAttr());
}

Value ModelBuilder::patches(Value images, int64_t rows, int64_t columns,
                            bool pad) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(images.getType()).getShape();
  int64_t down = (shape[2] + (pad ? rows - 1 : 0)) / rows;
  int64_t across = (shape[3] + (pad ? columns - 1 : 0)) / columns;
  auto type = RankedTensorType::get(
      {shape[0], down * across, shape[1] * rows * columns}, elementType);
  // Padding is recorded only where some patch needs it.
  bool padded = down * rows != shape[2] || across * columns != shape[3];
  return nn::PatchesOp::create(builder, loc, type, images, rows, columns,
                               pad && padded);
}

int64_t WindowGrid::across() const { return llvm::divideCeil(columns, window); }
int64_t WindowGrid::count() const {
  return int64_t(llvm::divideCeil(rows, window)) * across();
}

Value ModelBuilder::windows(Value x, const WindowGrid &grid) {
  int64_t width = cast<RankedTensorType>(x.getType()).getDimSize(2);
  return nn::WindowsOp::create(
      builder, loc,
      activation({grid.window * grid.window, width}, grid.count()), x,
      grid.rows, grid.columns, grid.window, grid.shift, /*merge=*/false);
}

Value ModelBuilder::joinWindows(Value x, const WindowGrid &grid) {
  int64_t width = cast<RankedTensorType>(x.getType()).getShape().back();
  return nn::JoinWindowsOp::create(
      builder, loc, activation({width}, grid.rows * grid.columns), x, grid.rows,
      grid.columns, grid.window, grid.shift, /*merge=*/false);
}

Value ModelBuilder::mergeWindows(Value x, const WindowGrid &grid) {
  int64_t width = cast<RankedTensorType>(x.getType()).getDimSize(2);
  return nn::WindowsOp::create(
      builder, loc,
      activation({grid.window * grid.window * width}, grid.count()), x,
      grid.rows, grid.columns, grid.window, grid.shift, /*merge=*/true);
}

Value ModelBuilder::windowAttention(Value q, Value k, Value v, Value table,
                                    const WindowGrid &grid,
                                    const AttentionOptions &options) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(q.getType()).getShape();
  int64_t positions = shape[2], heads = shape[3];
  return nn::WindowAttentionOp::create(
             builder, loc,
             TypeRange{activation({positions, heads * shape[4]}, shape[1]),
                       statistics({shape[1], heads, positions})},
             q, k, v, table, builder.getI64IntegerAttr(grid.window),
             builder.getI64IntegerAttr(grid.across()),
             builder.getI64IntegerAttr(grid.shift),
             builder.getF64FloatAttr(options.scale),
             builder.getF64FloatAttr(options.dropout),
             builder.getI64IntegerAttr(options.opIndex))
      .getO();
}

Value ModelBuilder::mean(Value x, bool besideFirst) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
  int64_t width = (besideFirst ? 2 : 1) * shape[2];
  return nn::MeanOp::create(
      builder, loc, RankedTensorType::get({shape[0], width}, elementType), x,
      besideFirst ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::prepend(Value x, Value token) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
  return nn::PrependOp::create(
      builder, loc,
      RankedTensorType::get({shape[0], shape[1] + 1, shape[2]}, elementType), x,
      token);
}

Value ModelBuilder::take(Value x, int64_t position) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
  return nn::TakeOp::create(
      builder, loc, RankedTensorType::get({shape[0], shape[2]}, elementType), x,
      position);
}

Value ModelBuilder::positionAdd(Value x, Value table, int64_t first) {
  return nn::PositionAddOp::create(builder, loc, x.getType(), x, table,
                                   /*starts=*/Value(), first);
}

Value ModelBuilder::linear(Value x, Value weight, ArrayRef<int64_t> dims,
                           bool transpose) {
  return nn::LinearOp::create(
      builder, loc, withLast(x, dims, elementType), x, weight,
      /*bias=*/Value(), transpose ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::biasAdd(Value x, Value bias) {
  return nn::BiasAddOp::create(builder, loc, x.getType(), x, bias);
}

Value ModelBuilder::layerNorm(Value x, Value gamma, Value beta, double eps) {
  return nn::LayerNormOp::create(
             builder, loc,
             TypeRange{x.getType(), withLast(x, 2, statisticsType)}, x, gamma,
             beta, builder.getF64FloatAttr(eps))
      .getY();
}

Value ModelBuilder::standardize(Value x, double eps) {
  return nn::StandardizeOp::create(
             builder, loc,
             TypeRange{x.getType(), withLast(x, 2, statisticsType)}, x,
             builder.getF64FloatAttr(eps))
      .getY();
}

Value ModelBuilder::rmsNorm(Value x, Value gamma, double eps, bool unitOffset) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  auto normed = size_t(cast<RankedTensorType>(gamma.getType()).getRank());
  SmallVector<int64_t> stats(shape.drop_back(normed));
  stats.append(normed, 1);
  auto statsType = RankedTensorType::get(stats, statisticsType);
  return nn::RMSNormOp::create(builder, loc, TypeRange{x.getType(), statsType},
                               x, gamma, builder.getF64FloatAttr(eps),
                               unitOffset ? builder.getUnitAttr() : UnitAttr())
      .getY();
}

Value ModelBuilder::rotary(Value x, ArrayRef<double> frequencies, double factor,
                           bool interleaved) {
  return nn::RotaryOp::create(builder, loc, x.getType(), x, /*at=*/Value(),
                              builder.getDenseF64ArrayAttr(frequencies),
                              builder.getF64FloatAttr(factor),
                              /*inverse=*/UnitAttr(),
                              interleaved ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::gelu(Value x, bool tanh) {
  return nn::GeluOp::create(builder, loc, x.getType(), x,
                            tanh ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::relu(Value x) {
  return nn::ReluOp::create(builder, loc, x.getType(), x);
}

Value ModelBuilder::softCap(Value x, double cap) {
  return nn::SoftCapOp::create(builder, loc, x.getType(), x,
                               builder.getF64FloatAttr(cap));
}

Value ModelBuilder::clip(Value x, double limit) {
  return nn::ClipOp::create(builder, loc, x.getType(), x,
                            builder.getF64FloatAttr(limit));
}

Value ModelBuilder::gatedGelu(Value gate, Value up, bool tanh) {
  return nn::GatedGeluOp::create(builder, loc, gate.getType(), gate, up,
                                 tanh ? UnitAttr() : builder.getUnitAttr());
}

Value ModelBuilder::columnScale(Value x, Value vector) {
  return nn::ColumnScaleOp::create(builder, loc, x.getType(), x, vector);
}

Value ModelBuilder::relativeBias(Value table, RankedTensorType type,
                                 int64_t maxDistance, bool bidirectional) {
  return nn::RelativeBiasOp::create(
      builder, loc, type, table, builder.getI64IntegerAttr(maxDistance),
      bidirectional ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::scale(Value x, double factor, bool rounded) {
  return nn::ScaleOp::create(builder, loc, x.getType(), x,
                             builder.getF64FloatAttr(factor),
                             rounded ? builder.getUnitAttr() : UnitAttr());
}

Value ModelBuilder::gatedSilu(Value gate, Value up) {
  return nn::GatedSiluOp::create(builder, loc, gate.getType(), gate, up);
}

Value ModelBuilder::attention(Value qkv, int64_t heads, double scale,
                              double dropout) {
  int64_t width = cast<RankedTensorType>(qkv.getType()).getDimSize(3);
  return nn::AttentionOp::create(
             builder, loc,
             TypeRange{activation({width}), statistics({heads, seqLen})}, qkv,
             /*starts=*/Value(), builder.getI64IntegerAttr(heads),
             /*causal=*/builder.getUnitAttr(), builder.getF64FloatAttr(scale),
             builder.getF64FloatAttr(dropout), builder.getI64IntegerAttr(0),
             /*document_length=*/builder.getI64IntegerAttr(0))
      .getO();
}

Value ModelBuilder::groupedAttention(Value q, Value k, Value v,
                                     const AttentionOptions &options) {
  auto type = cast<RankedTensorType>(q.getType());
  int64_t queries = type.getDimSize(1), heads = type.getDimSize(2),
          size = type.getDimSize(3);
  return nn::GroupedAttentionOp::create(
             builder, loc,
             TypeRange{activation({heads * size}, queries),
                       statistics({heads, queries})},
             q, k, v, options.mask, /*starts=*/Value(), options.bias,
             options.causal ? builder.getUnitAttr() : UnitAttr(),
             builder.getF64FloatAttr(options.scale),
             builder.getI64IntegerAttr(options.window),
             builder.getF64FloatAttr(options.dropout),
             builder.getI64IntegerAttr(options.opIndex),
             /*document_length=*/builder.getI64IntegerAttr(0),
             builder.getF64FloatAttr(options.cap),
             builder.getF64FloatAttr(options.distance))
      .getO();
}

Value ModelBuilder::dropout(Value x, double p, int64_t opIndex) {
  if (p == 0)
    return x;
  return nn::DropoutOp::create(builder, loc, x.getType(), x,
                               builder.getF64FloatAttr(p),
                               builder.getI64IntegerAttr(opIndex),
                               /*col_sharded=*/UnitAttr());
}

Value ModelBuilder::dropPath(Value x, double rate, int64_t firstLayer,
                             int64_t opIndex) {
  if (rate == 0)
    return x;
  return nn::DropPathOp::create(builder, loc, x.getType(), x,
                                builder.getF64FloatAttr(rate),
                                builder.getI64IntegerAttr(firstLayer),
                                builder.getI64IntegerAttr(opIndex));
}

Value ModelBuilder::add(Value a, Value b) {
  return nn::AddOp::create(builder, loc, a.getType(), a, b);
}

Value ModelBuilder::crossEntropy(Value logits, Value labels, int64_t classes) {
  return nn::CrossEntropyOp::create(
             builder, loc, TypeRange{loss(), logits.getType()}, logits, labels,
             /*stats=*/Value(), builder.getI64IntegerAttr(classes),
             /*smoothing=*/builder.getF64FloatAttr(0),
             /*z_loss=*/builder.getF64FloatAttr(0))
      .getLoss();
}
