//===- Gpt2.cpp - Builds the GPT-2 family ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GPT-2 (Radford et al. 2019) in the layout of its Hugging Face checkpoints:
// `Conv1D` weights are [in, out], and the query, key and value projections are
// one tensor [n_embd, 3 * n_embd], seen by the body as [n_embd, 3, n_embd] so
// that heads are the split of one dimension.
//
//===----------------------------------------------------------------------===//

#include "Gpt2.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace galvatron;
using namespace mlir;

namespace {

/// A parameter of a body: its name inside the layer, the shape that the body
/// sees, and the factor that each dimension carries ("" for none).
struct BodyParameter {
  StringRef name;
  SmallVector<int64_t> shape;
  SmallVector<StringRef> factors = {};
};

class Gpt2Builder {
public:
  Gpt2Builder(const Gpt2Config &config, int64_t seqLen, Type elementType,
              MLIRContext &context)
      : config(config), seqLen(seqLen), elementType(elementType),
        statsType(elementType.isF64() ? elementType
                                      : Float32Type::get(&context)),
        builder(&context), loc(builder.getUnknownLoc()) {}

  OwningOpRef<ModuleOp> build(StringRef configText);

private:
  RankedTensorType tensor(ArrayRef<int64_t> shape, Type type) {
    return RankedTensorType::get(shape, type);
  }
  /// A per-token activation of the given trailing dimensions.
  RankedTensorType activation(ArrayRef<int64_t> dims) {
    SmallVector<int64_t> shape = {ShapedType::kDynamic, seqLen};
    shape.append(dims.begin(), dims.end());
    return tensor(shape, elementType);
  }
  RankedTensorType tokenType() {
    return tensor({ShapedType::kDynamic, seqLen}, builder.getI32Type());
  }

  void parameter(const Twine &name, ArrayRef<int64_t> shape, StringRef init,
                 double std = 0);
  func::FuncOp body(StringRef name, ArrayRef<Type> inputs,
                    ArrayRef<BodyParameter> parameters, Type result,
                    ArrayRef<std::pair<StringRef, int64_t>> units,
                    ArrayRef<StringRef> uneven);
  Value linear(Value x, Value w, RankedTensorType type, bool transpose = false);
  Value biasAdd(Value x, Value bias);
  Value layerNorm(Value x, Value gamma, Value beta);
  Value dropout(Value x, double p, int64_t opIndex);

  void parameters();
  void embedBody();
  void blockBody();
  void headBody();
  void model(StringRef configText);

  const Gpt2Config &config;
  int64_t seqLen;
  Type elementType, statsType;
  OpBuilder builder;
  Location loc;
};

void Gpt2Builder::parameter(const Twine &name, ArrayRef<int64_t> shape,
                            StringRef init, double std) {
  // Weight decay acts on matrices only.
  bool decay = shape.size() >= 2;
  mlir::galvatron::ParameterOp::create(
      builder, loc, builder.getStringAttr(name),
      TypeAttr::get(tensor(shape, elementType)), builder.getStringAttr(init),
      init == "normal" ? builder.getF64FloatAttr(std) : FloatAttr(),
      decay ? builder.getUnitAttr() : UnitAttr());
}

/// Opens a body function; the insertion point moves into it.
func::FuncOp Gpt2Builder::body(StringRef name, ArrayRef<Type> inputs,
                               ArrayRef<BodyParameter> parameters, Type result,
                               ArrayRef<std::pair<StringRef, int64_t>> units,
                               ArrayRef<StringRef> uneven) {
  SmallVector<Type> types(inputs);
  for (const BodyParameter &parameter : parameters)
    types.push_back(tensor(parameter.shape, elementType));
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType(types, result));
  function.setPrivate();
  for (auto [index, parameter] : llvm::enumerate(parameters))
    if (!parameter.factors.empty())
      function.setArgAttr(inputs.size() + index, nn::kFactorsAttr,
                          builder.getStrArrayAttr(parameter.factors));
  NamedAttrList factorUnits;
  for (auto [factor, count] : units)
    factorUnits.set(factor, builder.getI64IntegerAttr(count));
  if (!factorUnits.empty())
    function->setAttr(nn::kFactorUnitsAttr,
                      factorUnits.getDictionary(builder.getContext()));
  if (!uneven.empty())
    function->setAttr(nn::kUnevenAttr, builder.getStrArrayAttr(uneven));
  builder.setInsertionPointToStart(function.addEntryBlock());
  return function;
}

Value Gpt2Builder::linear(Value x, Value w, RankedTensorType type,
                          bool transpose) {
  return nn::LinearOp::create(builder, loc, type, x, w, /*bias=*/Value(),
                              transpose ? builder.getUnitAttr() : UnitAttr());
}

Value Gpt2Builder::biasAdd(Value x, Value bias) {
  return nn::BiasAddOp::create(builder, loc, x.getType(), x, bias);
}

Value Gpt2Builder::layerNorm(Value x, Value gamma, Value beta) {
  auto type = cast<RankedTensorType>(x.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = 2;
  return nn::LayerNormOp::create(
             builder, loc, TypeRange{type, tensor(shape, statsType)}, x, gamma,
             beta, builder.getF64FloatAttr(config.layerNormEps))
      ->getResult(0);
}

Value Gpt2Builder::dropout(Value x, double p, int64_t opIndex) {
  if (p == 0)
    return x;
  return nn::DropoutOp::create(builder, loc, x.getType(), x,
                               builder.getF64FloatAttr(p),
                               builder.getI64IntegerAttr(opIndex),
                               /*col_sharded=*/UnitAttr());
}

/// In the order of the model's state dictionary. Projections back into the
/// residual stream start smaller by the root of their number, 2 * n_layer.
void Gpt2Builder::parameters() {
  int64_t width = config.width, inner = config.inner;
  double std = config.initializerRange;
  double projectionStd = std / std::sqrt(2.0 * double(config.layers));
  parameter("transformer.wte.weight", {config.vocabSize, width}, "normal", std);
  parameter("transformer.wpe.weight", {config.positions, width}, "normal", std);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    std::string prefix = ("transformer.h." + Twine(layer) + ".").str();
    parameter(prefix + "ln_1.weight", {width}, "ones");
    parameter(prefix + "ln_1.bias", {width}, "zeros");
    parameter(prefix + "attn.c_attn.weight", {width, 3 * width}, "normal", std);
    parameter(prefix + "attn.c_attn.bias", {3 * width}, "zeros");
    parameter(prefix + "attn.c_proj.weight", {width, width}, "normal",
              projectionStd);
    parameter(prefix + "attn.c_proj.bias", {width}, "zeros");
    parameter(prefix + "ln_2.weight", {width}, "ones");
    parameter(prefix + "ln_2.bias", {width}, "zeros");
    parameter(prefix + "mlp.c_fc.weight", {width, inner}, "normal", std);
    parameter(prefix + "mlp.c_fc.bias", {inner}, "zeros");
    parameter(prefix + "mlp.c_proj.weight", {inner, width}, "normal",
              projectionStd);
    parameter(prefix + "mlp.c_proj.bias", {width}, "zeros");
  }
  parameter("transformer.ln_f.weight", {width}, "ones");
  parameter("transformer.ln_f.bias", {width}, "zeros");
  if (!config.tied)
    parameter("lm_head.weight", {config.vocabSize, width}, "normal", std);
}

void Gpt2Builder::embedBody() {
  OpBuilder::InsertionGuard guard(builder);
  RankedTensorType type = activation({config.width});
  func::FuncOp function =
      body("gpt2.embed", {tokenType()},
           {{"wte.weight", {config.vocabSize, config.width}, {"vocab", ""}},
            {"wpe.weight", {config.positions, config.width}}},
           type, {{"vocab", config.vocabSize}}, {"vocab"});
  Value tokens = function.getArgument(0), wte = function.getArgument(1),
        wpe = function.getArgument(2);
  Value x = nn::EmbeddingOp::create(builder, loc, type, tokens, wte,
                                    /*sharded=*/UnitAttr());
  x = nn::PositionAddOp::create(builder, loc, type, x, wpe);
  x = dropout(x, config.embeddingDropout, 0);
  func::ReturnOp::create(builder, loc, x);
}

void Gpt2Builder::blockBody() {
  OpBuilder::InsertionGuard guard(builder);
  int64_t width = config.width, inner = config.inner, heads = config.heads;
  RankedTensorType type = activation({width});
  func::FuncOp function =
      body("gpt2.block", {type},
           {{"ln_1.weight", {width}},
            {"ln_1.bias", {width}},
            {"attn.c_attn.weight", {width, 3, width}, {"", "", "heads"}},
            {"attn.c_attn.bias", {3, width}, {"", "heads"}},
            {"attn.c_proj.weight", {width, width}, {"heads", ""}},
            {"attn.c_proj.bias", {width}},
            {"ln_2.weight", {width}},
            {"ln_2.bias", {width}},
            {"mlp.c_fc.weight", {width, inner}, {"", "ffn"}},
            {"mlp.c_fc.bias", {inner}, {"ffn"}},
            {"mlp.c_proj.weight", {inner, width}, {"ffn", ""}},
            {"mlp.c_proj.bias", {width}}},
           type, {{"heads", heads}, {"ffn", inner}}, {});
  auto argument = [&](unsigned index) { return function.getArgument(index); };

  Value x = argument(0);
  Value normed = layerNorm(x, argument(1), argument(2));
  Value qkv = linear(normed, argument(3), activation({3, width}));
  qkv = biasAdd(qkv, argument(4));
  double headSize = double(width / heads);
  double scale = config.scaleAttention ? 1.0 / std::sqrt(headSize) : 1.0;
  Type lse = tensor({ShapedType::kDynamic, heads, seqLen}, statsType);
  Value attention =
      nn::AttentionOp::create(builder, loc, TypeRange{type, lse}, qkv,
                              builder.getI64IntegerAttr(heads),
                              /*causal=*/builder.getUnitAttr(),
                              builder.getF64FloatAttr(scale),
                              builder.getF64FloatAttr(config.attentionDropout),
                              builder.getI64IntegerAttr(0))
          ->getResult(0);
  Value projected = biasAdd(linear(attention, argument(5), type), argument(6));
  projected = dropout(projected, config.residualDropout, 1);
  x = nn::AddOp::create(builder, loc, type, x, projected);

  normed = layerNorm(x, argument(7), argument(8));
  Value hidden =
      biasAdd(linear(normed, argument(9), activation({inner})), argument(10));
  hidden =
      nn::GeluOp::create(builder, loc, hidden.getType(), hidden,
                         config.tanhGelu ? builder.getUnitAttr() : UnitAttr());
  projected = biasAdd(linear(hidden, argument(11), type), argument(12));
  projected = dropout(projected, config.residualDropout, 2);
  x = nn::AddOp::create(builder, loc, type, x, projected);
  func::ReturnOp::create(builder, loc, x);
}

void Gpt2Builder::headBody() {
  OpBuilder::InsertionGuard guard(builder);
  Type lossType = tensor({1}, builder.getF64Type());
  func::FuncOp function = body(
      "gpt2.head", {activation({config.width}), tokenType()},
      {{"ln_f.weight", {config.width}},
       {"ln_f.bias", {config.width}},
       {"lm_head.weight", {config.vocabSize, config.width}, {"vocab", ""}}},
      lossType, {{"vocab", config.vocabSize}}, {"vocab"});
  Value x = function.getArgument(0), labels = function.getArgument(1);
  Value normed = layerNorm(x, function.getArgument(2), function.getArgument(3));
  RankedTensorType logitsType = activation({config.vocabSize});
  Value logits =
      linear(normed, function.getArgument(4), logitsType, /*transpose=*/true);
  Value loss =
      nn::CrossEntropyOp::create(builder, loc, TypeRange{lossType, logitsType},
                                 logits, labels, /*stats=*/Value(),
                                 builder.getI64IntegerAttr(config.vocabSize))
          ->getResult(0);
  func::ReturnOp::create(builder, loc, loss);
}

void Gpt2Builder::model(StringRef configText) {
  OpBuilder::InsertionGuard guard(builder);
  auto model = mlir::galvatron::ModelOp::create(
      builder, loc, "gpt2", seqLen, config.vocabSize, configText,
      TypeRange{tokenType(), tokenType()});
  builder.setInsertionPointToStart(&model.getBlock());
  auto layer = [&](const Twine &name, StringRef callee, ValueRange inputs,
                   Type result, ArrayRef<std::string> params) {
    SmallVector<StringRef> names(params.begin(), params.end());
    std::string text = name.str();
    return mlir::galvatron::LayerOp::create(builder, loc, TypeRange{result},
                                            text, callee, inputs, names)
        ->getResult(0);
  };
  Value tokens = model.getBlock().getArgument(0);
  Value labels = model.getBlock().getArgument(1);
  RankedTensorType type = activation({config.width});
  Value x = layer("wte", "gpt2.embed", tokens, type,
                  {"transformer.wte.weight", "transformer.wpe.weight"});
  static constexpr const char *names[] = {
      "ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
      "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
      "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
      "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
  for (int64_t index = 0; index < config.layers; ++index) {
    std::vector<std::string> params;
    for (StringRef name : names)
      params.push_back(("transformer.h." + Twine(index) + "." + name).str());
    x = layer("h." + Twine(index), "gpt2.block", x, type, params);
  }
  Value loss =
      layer("head", "gpt2.head", {x, labels}, tensor({1}, builder.getF64Type()),
            {"transformer.ln_f.weight", "transformer.ln_f.bias",
             config.tied ? "transformer.wte.weight" : "lm_head.weight"});
  mlir::galvatron::OutputOp::create(builder, loc, loss);
}

OwningOpRef<ModuleOp> Gpt2Builder::build(StringRef configText) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToStart(module->getBody());
  parameters();
  embedBody();
  blockBody();
  headBody();
  model(configText);
  return module;
}

} // namespace

namespace galvatron {
OwningOpRef<ModuleOp> buildGpt2(const Gpt2Config &config, int64_t seqLen,
                                Type elementType, StringRef configText,
                                MLIRContext &context) {
  return Gpt2Builder(config, seqLen, elementType, context).build(configText);
}
} // namespace galvatron
