//===- Decoder.cpp - Decoders of equal blocks -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights are [out, in] in the checkpoints of all these families; bodies see
// those of queries, keys and values as [heads, head size, in], so that heads
// are one dimension.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>
#include <map>

using namespace galvatron;
using llvm::ArrayRef;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

/// Numbers of the random operations of a block; its attention has 0.
enum : int64_t { kOutputDropout = 1, kInnerDropout = 2, kHiddenDropout = 3 };

/// The body of a block: layers that differ in these have bodies of their own.
struct BlockKind {
  int64_t window;       ///< 0: none
  const Rotary *rotary; ///< null: none
  bool isNormed = true; ///< in front of attention
  bool operator<(const BlockKind &other) const {
    return std::tie(window, rotary, isNormed) <
           std::tie(other.window, other.rotary, other.isNormed);
  }
};

class Decoder : public FamilyModel {
public:
  explicit Decoder(DecoderConfig config) : config(std::move(config)) {}

  int64_t positions() const override { return config.positions; }
  StringRef positionsField() const override { return config.positionsField; }
  LengthRule lengthRule() const override {
    return config.limitsPositions ? LengthRule::AtMost : LengthRule::Free;
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters(bool isNormed) const;
  BodyParameters headParameters() const;
  void addNorm(BodyParameters &parameters, StringRef name) const;
  void addQueryNorm(BodyParameters &parameters, StringRef name,
                    int64_t heads) const;
  void addProjection(BodyParameters &parameters, StringRef name, int64_t heads,
                     int64_t before) const;
  void addAttention(BodyParameters &parameters) const;
  void addInner(BodyParameters &parameters) const;

  /// Whether tensor parallelism cuts heads. A norm over all of them needs them
  /// whole: then every rank has all of attention.
  bool cutsHeads() const {
    return config.queryNorm != DecoderConfig::QueryNorm::Whole;
  }
  /// The factor that so many heads are cut by.
  StringRef headsFactor(int64_t heads) const {
    return !cutsHeads() ? "" : heads < config.heads ? "key_heads" : "heads";
  }
  bool isNormed(int64_t layer) const { return layer > 0 || config.normsFirst; }
  /// The deviation of products back to the residual stream.
  Initial outputNormal() const {
    return Initial::normal(
        config.outputRange.value_or(config.initializerRange));
  }
  /// A norm starts as one that scales by 1.
  Initial unit() const {
    return config.unitOffset ? Initial::zeros() : Initial::ones();
  }
  BlockKind kindOf(int64_t layer, int64_t tokens) const;
  std::string nameOf(BlockKind kind) const;
  void writeBlocks(ModelBuilder &b,
                   std::map<BlockKind, std::string> &bodies) const;
  std::vector<ModelDatum> data(ModelBuilder &b) const;

  DecoderConfig config;
};

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

BodyParameters Decoder::embedParameters() const {
  llvm::SmallVector<std::string> copies;
  if (config.tied)
    copies.push_back((config.names.head + ".weight").str());
  Initial normal = Initial::normal(config.initializerRange);
  BodyParameters result = {{(config.names.words + ".weight").str(),
                            {config.vocabSize, config.width},
                            normal,
                            {},
                            {"vocab", ""},
                            /*borrowed=*/false,
                            copies}};
  if (config.rowsBeforePositions)
    result.push_back(
        {(config.names.positions + ".weight").str(),
         {config.positions + *config.rowsBeforePositions, config.width},
         normal});
  if (config.embeddingNorm)
    addNorm(result, config.names.embeddingNorm);
  return result;
}

/// A norm with the width of the residual stream.
void Decoder::addNorm(BodyParameters &parameters, StringRef name) const {
  if (config.norm == DecoderConfig::Norm::Plain)
    return;
  parameters.push_back({(name + ".weight").str(), {config.width}, unit()});
  if (config.norm == DecoderConfig::Norm::Layer)
    parameters.push_back(
        {(name + ".bias").str(), {config.width}, Initial::zeros()});
}

/// A norm over all heads sees its weight by heads.
void Decoder::addQueryNorm(BodyParameters &parameters, StringRef name,
                           int64_t heads) const {
  int64_t size = config.headSize;
  if (config.queryNorm == DecoderConfig::QueryNorm::Head)
    parameters.push_back({(name + ".weight").str(), {size}, unit()});
  else if (config.queryNorm == DecoderConfig::QueryNorm::EachHead)
    parameters.push_back({(name + ".weight").str(),
                          {heads, size},
                          unit(),
                          {},
                          {headsFactor(heads), ""}});
  else
    parameters.push_back(
        {(name + ".weight").str(), {heads * size}, unit(), {heads, size}});
}

/// A product to heads, with its bias. `before`: rows of the heads that stand
/// before it in a fused tensor.
void Decoder::addProjection(BodyParameters &parameters, StringRef name,
                            int64_t heads, int64_t before) const {
  int64_t size = config.headSize;
  auto part = [&](StringRef kind) -> std::optional<StoredPart> {
    if (config.names.fusedHeads.empty())
      return std::nullopt;
    int64_t groups = config.fusedByKeyHead ? config.keyHeads : 1;
    return StoredPart{(config.names.fusedHeads + kind).str(),
                      before * size / groups, heads * size / groups,
                      (config.heads + 2 * config.keyHeads) * size / groups};
  };
  StringRef factor = headsFactor(heads);
  parameters.push_back({(name + ".weight").str(),
                        {heads * size, config.width},
                        Initial::normal(config.initializerRange),
                        {heads, size, config.width},
                        {factor, "", ""},
                        /*borrowed=*/false,
                        {},
                        part(".weight")});
  if (config.projectionBias)
    parameters.push_back({(name + ".bias").str(),
                          {heads * size},
                          Initial::zeros(),
                          {heads, size},
                          {factor, ""},
                          /*borrowed=*/false,
                          {},
                          part(".bias")});
}

void Decoder::addAttention(BodyParameters &parameters) const {
  int64_t heads = config.heads, keys = config.keyHeads;
  addProjection(parameters, config.names.query, heads, 0);
  addProjection(parameters, config.names.key, keys, heads);
  addProjection(parameters, config.names.value, keys, heads + keys);
  if (config.queryNorm != DecoderConfig::QueryNorm::None) {
    addQueryNorm(parameters, "self_attn.q_norm", config.heads);
    addQueryNorm(parameters, "self_attn.k_norm", config.keyHeads);
  }
  StringRef name = config.names.outputProduct;
  parameters.push_back({(name + ".weight").str(),
                        {config.width, config.heads * config.headSize},
                        outputNormal(),
                        {},
                        {"", cutsHeads() ? "heads" : ""}});
  if (config.outputBias)
    parameters.push_back(
        {(name + ".bias").str(), {config.width}, Initial::zeros()});
}

void Decoder::addInner(BodyParameters &parameters) const {
  int64_t width = config.width, inner = config.inner;
  Initial normal = Initial::normal(config.initializerRange);
  llvm::SmallVector<StringRef, 2> wide = {config.names.up};
  if (config.gated())
    wide.insert(wide.begin(), config.names.gate);
  for (auto [index, name] : llvm::enumerate(wide)) {
    std::optional<StoredPart> part;
    if (!config.names.fusedInner.empty())
      part = StoredPart{(config.names.fusedInner + ".weight").str(),
                        int64_t(index) * inner, inner, 2 * inner};
    parameters.push_back({(name + ".weight").str(),
                          {inner, width},
                          normal,
                          {},
                          {"ffn", ""},
                          /*borrowed=*/false,
                          {},
                          part});
    if (config.innerBias)
      parameters.push_back(
          {(name + ".bias").str(), {inner}, Initial::zeros(), {}, {"ffn"}});
  }
  StringRef down = config.names.down;
  parameters.push_back({(down + ".weight").str(),
                        {width, inner},
                        outputNormal(),
                        {},
                        {"", "ffn"}});
  if (config.innerBias)
    parameters.push_back({(down + ".bias").str(), {width}, Initial::zeros()});
}

/// The parameters in the order in which `BodyWriter` takes them.
BodyParameters Decoder::blockParameters(bool isNormed) const {
  using Place = DecoderConfig::NormPlace;
  BodyParameters result;
  if (config.place != Place::Behind && isNormed)
    addNorm(result, config.names.attentionNorm);
  addAttention(result);
  bool around = config.place == Place::Around;
  if (config.place == Place::Behind)
    addNorm(result, config.names.attentionNorm);
  if (around)
    addNorm(result, config.names.attentionNormBehind);
  if (config.place == Place::Before || around ||
      config.place == Place::BeforeBothApart)
    addNorm(result, config.names.innerNorm);
  addInner(result);
  if (config.place == Place::Behind)
    addNorm(result, config.names.innerNorm);
  if (around)
    addNorm(result, config.names.innerNormBehind);
  return result;
}

BodyParameters Decoder::headParameters() const {
  BodyParameters result;
  const DecoderNames &names = config.names;
  addNorm(result, (names.stem + names.finalNorm).str());
  if (!names.headProduct.empty()) {
    result.push_back({(names.headProduct + ".weight").str(),
                      {config.width, config.width},
                      outputNormal()});
    if (config.headProductBias)
      result.push_back({(names.headProduct + ".bias").str(),
                        {config.width},
                        Initial::zeros()});
    addNorm(result, names.headNorm);
  }
  result.push_back({config.tied ? (names.stem + names.words + ".weight").str()
                                : (names.head + ".weight").str(),
                    {config.vocabSize, config.width},
                    Initial::normal(config.initializerRange),
                    {},
                    {"vocab", ""},
                    /*borrowed=*/config.tied});
  if (config.headBias)
    result.push_back({(names.head + ".bias").str(),
                      {config.vocabSize},
                      Initial::zeros(),
                      {},
                      {"vocab"}});
  return result;
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

/// Writes operations and takes parameters one after the other.
class BodyWriter {
public:
  BodyWriter(ModelBuilder &b, const DecoderConfig &config,
             ValueRange parameters)
      : b(b), config(config), parameters(parameters) {}

  Value norm(Value x);
  Value embed(Value tokens);
  /// `mask` is null where attention is causal.
  Value block(Value x, Value mask, BlockKind kind);
  Value logits(Value x);

private:
  Value rmsNorm(Value x, Value weight) {
    return b.rmsNorm(x, weight, config.normEps, config.unitOffset);
  }
  Value next() {
    Value value = parameters.front();
    parameters = parameters.drop_front();
    return value;
  }
  Value product(Value in, ArrayRef<int64_t> dims, bool bias) {
    Value out = b.linear(in, next(), dims, /*transpose=*/true);
    return bias ? b.biasAdd(out, next()) : out;
  }
  Value scaled(Value x, double factor) {
    return factor == 1 ? x : b.scale(x, factor);
  }
  /// The norm of queries or of keys.
  Value queryNorm(Value heads) {
    if (config.queryNorm != DecoderConfig::QueryNorm::EachHead)
      return rmsNorm(heads, next());
    return b.columnScale(b.standardize(heads, config.normEps), next());
  }
  /// A product to heads, with its bias and limit.
  Value projection(Value x, int64_t heads) {
    Value y = product(x, {heads, config.headSize}, config.projectionBias);
    return config.clip != 0 ? b.clip(y, config.clip) : y;
  }
  Value attention(Value x, Value mask, BlockKind kind);
  Value inner(Value x);
  /// The values that a half adds to the residual stream.
  Value branch(Value x, double dropout, int64_t opIndex) {
    return scaled(b.dropout(x, dropout, opIndex), config.residualScale);
  }

  ModelBuilder &b;
  const DecoderConfig &config;
  ValueRange parameters;
};

Value BodyWriter::norm(Value x) {
  using Norm = DecoderConfig::Norm;
  if (config.norm == Norm::Plain)
    return b.standardize(x, config.normEps);
  Value weight = next();
  if (config.norm == Norm::RMS)
    return rmsNorm(x, weight);
  return b.layerNorm(x, weight, config.norm == Norm::Layer ? next() : Value(),
                     config.normEps);
}

Value BodyWriter::embed(Value tokens) {
  Value x = b.embedding(tokens, next(), config.padding);
  if (config.embeddingScale != 1)
    x = b.scale(x, config.embeddingScale, config.roundsEmbeddingScale);
  if (config.rowsBeforePositions)
    x = b.positionAdd(x, next(), *config.rowsBeforePositions);
  if (config.embeddingNorm)
    x = norm(x);
  return b.dropout(x, config.embeddingDropout, 0);
}

Value BodyWriter::attention(Value x, Value mask, BlockKind kind) {
  Value q = projection(x, config.heads);
  Value k = projection(x, config.keyHeads);
  Value v = projection(x, config.keyHeads);
  if (config.queryNorm != DecoderConfig::QueryNorm::None) {
    q = queryNorm(q);
    k = queryNorm(k);
  }
  if (kind.rotary) {
    const Rotary::Table &table = kind.rotary->of(b.getSeqLen());
    q = b.rotary(q, table.frequencies, table.factor, config.interleavedRotary);
    k = b.rotary(k, table.frequencies, table.factor, config.interleavedRotary);
  }
  Value attention = b.groupedAttention(q, k, v,
                                       {.scale = config.attentionScale,
                                        .dropout = config.attentionDropout,
                                        .window = kind.window,
                                        .causal = config.causal,
                                        .mask = mask,
                                        .cap = config.scoreCap,
                                        .distance = config.distanceFactor});
  return product(attention, {config.width}, config.outputBias);
}

Value BodyWriter::inner(Value x) {
  using Inner = DecoderConfig::Inner;
  Value hidden = product(x, {config.inner}, config.innerBias);
  if (config.gated()) {
    Value up = product(x, {config.inner}, config.innerBias);
    hidden =
        config.innerKind == Inner::GatedSilu
            ? b.gatedSilu(hidden, up)
            : b.gatedGelu(hidden, up, config.innerKind == Inner::GatedTanhGelu);
  } else {
    hidden = config.innerKind == Inner::Relu
                 ? b.relu(hidden)
                 : b.gelu(hidden, config.innerKind == Inner::TanhGelu);
  }
  hidden = b.dropout(hidden, config.hiddenDropout, kHiddenDropout);
  return product(hidden, {config.width}, config.innerBias);
}

Value BodyWriter::block(Value x, Value mask, BlockKind kind) {
  using Place = DecoderConfig::NormPlace;
  bool before = config.place != Place::Behind;
  bool behind = config.place == Place::Behind || config.place == Place::Around;
  Value input = x, normed = before && kind.isNormed ? norm(x) : x;
  Value attended = attention(normed, mask, kind);
  if (behind)
    attended = norm(attended);
  x = b.add(x, branch(attended, config.outputDropout, kOutputDropout));

  if (config.place == Place::BeforeBothApart)
    normed = norm(input);
  else if (config.place != Place::BeforeBoth)
    normed = before ? norm(x) : x;
  Value fed = inner(normed);
  if (behind)
    fed = norm(fed);
  return b.add(x, branch(fed, config.innerDropout, kInnerDropout));
}

/// Logits are scaled by scaling the far smaller values that they are products
/// of.
Value BodyWriter::logits(Value x) {
  Value normed = scaled(norm(x), config.logitScale);
  if (!config.names.headProduct.empty())
    normed =
        norm(b.gelu(product(normed, {config.width}, config.headProductBias),
                    /*tanh=*/false));
  Value logits = product(normed, {config.vocabSize}, config.headBias);
  return config.logitCap != 0 ? b.softCap(logits, config.logitCap) : logits;
}

/// A window that holds the sequence is none.
BlockKind Decoder::kindOf(int64_t layer, int64_t tokens) const {
  int64_t window = config.windows[size_t(layer)];
  const Rotary *rotary = &config.rotary;
  if (window && config.slidingRotary)
    rotary = &*config.slidingRotary;
  if (!config.rotates.empty() && !config.rotates[size_t(layer)])
    rotary = nullptr;
  return {window < tokens ? window : 0, rotary, isNormed(layer)};
}

std::string Decoder::nameOf(BlockKind kind) const {
  std::string name = config.modelType + ".";
  if (!kind.rotary && !config.rowsBeforePositions && config.distanceFactor == 0)
    name += "unrotated_";
  // Named by their windows, unless these hold the sequence.
  if (config.slidingRotary && kind.rotary == &*config.slidingRotary &&
      !kind.window)
    name += "sliding_";
  if (!kind.isNormed)
    name += "first_";
  return name + (kind.window ? "window_block" : "block");
}

/// A body for each kind of block, by its name.
void Decoder::writeBlocks(ModelBuilder &b,
                          std::map<BlockKind, std::string> &bodies) const {
  RankedTensorType stream = b.activation({config.width});
  llvm::SmallVector<mlir::Type> read = {stream};
  if (!config.causal)
    read.push_back(b.tokens());
  llvm::SmallVector<BodyFactor> factors = {{"ffn", config.inner}};
  if (cutsHeads())
    factors.insert(factors.begin(), {"heads", config.heads});
  // A rank has whole groups of heads, or ranks share a group's key head.
  if (cutsHeads() && config.keyHeads < config.heads)
    factors.push_back({"key_heads", config.keyHeads, /*uneven=*/false,
                       /*shared=*/true});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    BlockKind kind = kindOf(layer, b.getSeqLen());
    std::string name = nameOf(kind);
    if (!bodies.try_emplace(kind, name).second)
      continue;
    b.body(name, read, blockParameters(kind.isNormed), stream, factors,
           [&](ValueRange inputs, ValueRange p) {
             Value mask = config.causal ? Value() : inputs[1];
             return BodyWriter(b, config, p).block(inputs[0], mask, kind);
           });
  }
}

std::vector<ModelDatum> Decoder::data(ModelBuilder &b) const {
  if (config.causal)
    return b.nextTokenData(config.vocabSize);
  return {{"tokens", b.tokens(), config.vocabSize},
          {"mask", b.tokens(), /*below=*/2},
          {"labels", b.tokens(), config.vocabSize}};
}

void Decoder::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), head = headParameters();
  const DecoderNames &names = config.names;
  auto blockPrefix = [&](int64_t index) {
    return (names.stem + names.blocks + Twine(index) + ".").str();
  };
  b.declare(names.stem, embed);
  for (int64_t layer = 0; layer < config.layers; ++layer)
    b.declare(blockPrefix(layer), blockParameters(isNormed(layer)));
  b.declare("", head);

  const std::string &type = config.modelType;
  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", config.vocabSize, /*uneven=*/true};
  b.body(type + ".embed", {b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange p) {
           return BodyWriter(b, config, p).embed(inputs[0]);
         });
  std::map<BlockKind, std::string> bodies;
  writeBlocks(b, bodies);
  b.body(type + ".head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange p) {
           Value logits = BodyWriter(b, config, p).logits(inputs[0]);
           return b.crossEntropy(logits, inputs[1], config.vocabSize);
         });
  b.model(type, data(b), [&](ValueRange data) {
    Value x = b.layer("embed_tokens", type + ".embed", data[0], stream,
                      names.stem, embed);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      llvm::SmallVector<Value, 2> read = {x};
      if (!config.causal)
        read.push_back(data[1]);
      x = b.layer("layers." + Twine(layer),
                  bodies.at(kindOf(layer, b.getSeqLen())), read, stream,
                  blockPrefix(layer), blockParameters(isNormed(layer)));
    }
    return b.layer("head", type + ".head", {x, data.back()}, b.loss(), "",
                   head);
  });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::makeDecoder(DecoderConfig config) {
  return std::make_unique<Decoder>(std::move(config));
}
