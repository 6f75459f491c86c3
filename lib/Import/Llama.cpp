//===- Llama.cpp - LLaMA and its like -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoders with RMS norms before both halves of a block, rotary embedding,
// grouped heads and a gated feed-forward network: LLaMA (Touvron et al., arXiv
// 2302.13971), Mistral, Qwen 2 and Qwen 3, in the layout of their Hugging Face
// checkpoints. Weights are [out, in]; bodies see those of queries, keys and
// values as [heads, head size, in], so that heads are one dimension.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"
#include "Family.h"

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

class Llama : public FamilyModel {
public:
  explicit Llama(LlamaConfig config) : config(std::move(config)) {}

  int64_t positions() const override { return config.positions; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;
  void addProjection(BodyParameters &parameters, StringRef name, int64_t heads,
                     bool bias) const;
  Value writeBlock(ModelBuilder &b, Value x, ValueRange parameters,
                   int64_t window) const;

  LlamaConfig config;
};

BodyParameters Llama::embedParameters() const {
  llvm::SmallVector<StringRef> copies;
  if (config.tied)
    copies.push_back("lm_head.weight");
  return {{"embed_tokens.weight",
           {config.vocabSize, config.width},
           Initial::normal(config.initializerRange),
           {},
           {"vocab", ""},
           /*borrowed=*/false,
           copies}};
}

/// A product to heads, with its bias.
void Llama::addProjection(BodyParameters &parameters, StringRef name,
                          int64_t heads, bool bias) const {
  int64_t size = config.headSize;
  StringRef factor = heads < config.heads ? "key_heads" : "heads";
  parameters.push_back({(name + ".weight").str(),
                        {heads * size, config.width},
                        Initial::normal(config.initializerRange),
                        {heads, size, config.width},
                        {factor, "", ""}});
  if (bias)
    parameters.push_back({(name + ".bias").str(),
                          {heads * size},
                          Initial::zeros(),
                          {heads, size},
                          {factor, ""}});
}

/// In the order in which `writeBlock` takes them.
BodyParameters Llama::blockParameters() const {
  int64_t width = config.width, inner = config.inner;
  int64_t all = config.heads * config.headSize;
  Initial normal = Initial::normal(config.initializerRange);
  Initial ones = Initial::ones(), zeros = Initial::zeros();
  BodyParameters result;
  result.push_back({"input_layernorm.weight", {width}, ones});
  addProjection(result, "self_attn.q_proj", config.heads,
                config.projectionBias);
  addProjection(result, "self_attn.k_proj", config.keyHeads,
                config.projectionBias);
  addProjection(result, "self_attn.v_proj", config.keyHeads,
                config.projectionBias);
  if (config.headNorms) {
    result.push_back({"self_attn.q_norm.weight", {config.headSize}, ones});
    result.push_back({"self_attn.k_norm.weight", {config.headSize}, ones});
  }
  result.push_back(
      {"self_attn.o_proj.weight", {width, all}, normal, {}, {"", "heads"}});
  if (config.outputBias)
    result.push_back({"self_attn.o_proj.bias", {width}, zeros});
  result.push_back({"post_attention_layernorm.weight", {width}, ones});
  for (StringRef name : {"mlp.gate_proj", "mlp.up_proj"}) {
    result.push_back(
        {(name + ".weight").str(), {inner, width}, normal, {}, {"ffn", ""}});
    if (config.innerBias)
      result.push_back({(name + ".bias").str(), {inner}, zeros, {}, {"ffn"}});
  }
  result.push_back(
      {"mlp.down_proj.weight", {width, inner}, normal, {}, {"", "ffn"}});
  if (config.innerBias)
    result.push_back({"mlp.down_proj.bias", {width}, zeros});
  return result;
}

BodyParameters Llama::headParameters() const {
  return {{"model.norm.weight", {config.width}, Initial::ones()},
          {config.tied ? "model.embed_tokens.weight" : "lm_head.weight",
           {config.vocabSize, config.width},
           Initial::normal(config.initializerRange),
           {},
           {"vocab", ""},
           /*borrowed=*/config.tied}};
}

Value Llama::writeBlock(ModelBuilder &b, Value x, ValueRange parameters,
                        int64_t window) const {
  int64_t size = config.headSize;
  auto next = [&] {
    Value value = parameters.front();
    parameters = parameters.drop_front();
    return value;
  };
  auto product = [&](Value in, ArrayRef<int64_t> dims, bool bias) {
    Value out = b.linear(in, next(), dims, /*transpose=*/true);
    return bias ? b.biasAdd(out, next()) : out;
  };
  Value normed = b.rmsNorm(x, next(), config.normEps);
  Value q = product(normed, {config.heads, size}, config.projectionBias);
  Value k = product(normed, {config.keyHeads, size}, config.projectionBias);
  Value v = product(normed, {config.keyHeads, size}, config.projectionBias);
  if (config.headNorms) {
    q = b.rmsNorm(q, next(), config.normEps);
    k = b.rmsNorm(k, next(), config.normEps);
  }
  q = b.rotary(q, config.rotary.frequencies, config.rotary.factor);
  k = b.rotary(k, config.rotary.frequencies, config.rotary.factor);
  Value attention = b.groupedAttention(q, k, v,
                                       {.scale = 1 / std::sqrt(double(size)),
                                        .dropout = config.attentionDropout,
                                        .window = window});
  x = b.add(x, product(attention, {config.width}, config.outputBias));

  normed = b.rmsNorm(x, next(), config.normEps);
  Value gate = product(normed, {config.inner}, config.innerBias);
  Value up = product(normed, {config.inner}, config.innerBias);
  Value hidden = b.gatedSilu(gate, up);
  return b.add(x, product(hidden, {config.width}, config.innerBias));
}

void Llama::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  auto blockPrefix = [](int64_t index) {
    return ("model.layers." + Twine(index) + ".").str();
  };
  b.declareBlocks("model.", embed, blockPrefix, config.layers, block, head);

  const std::string &type = config.modelType;
  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", config.vocabSize, /*uneven=*/true};
  b.body(type + ".embed", {b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange p) {
           return b.embedding(inputs[0], p[0], config.padding);
         });
  // A window that holds the sequence is none.
  auto windowOf = [&](int64_t layer) {
    int64_t window = config.windows[size_t(layer)];
    return window < b.getSeqLen() ? window : 0;
  };
  llvm::SmallVector<BodyFactor> factors = {{"heads", config.heads},
                                           {"ffn", config.inner}};
  // A rank has whole groups of heads, or ranks share a group's key head.
  if (config.keyHeads < config.heads)
    factors.push_back({"key_heads", config.keyHeads, /*uneven=*/false,
                       /*shared=*/true});
  std::map<int64_t, std::string> bodies;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    int64_t window = windowOf(layer);
    std::string name = type + (window ? ".window_block" : ".block");
    if (!bodies.try_emplace(window, name).second)
      continue;
    b.body(name, {stream}, block, stream, factors,
           [&](ValueRange inputs, ValueRange p) {
             return writeBlock(b, inputs[0], p, window);
           });
  }
  b.body(type + ".head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange p) {
           Value normed = b.rmsNorm(inputs[0], p[0], config.normEps);
           Value logits = b.linear(normed, p[1], {config.vocabSize}, true);
           return b.crossEntropy(logits, inputs[1], config.vocabSize);
         });
  b.model(type, b.nextTokenData(config.vocabSize), [&](ValueRange data) {
    Value x = b.layer("embed_tokens", type + ".embed", data[0], stream,
                      "model.", embed);
    for (int64_t layer = 0; layer < config.layers; ++layer)
      x = b.layer("layers." + Twine(layer), bodies.at(windowOf(layer)), x,
                  stream, blockPrefix(layer), block);
    return b.layer("head", type + ".head", {x, data[1]}, b.loss(), "", head);
  });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readLlama(ConfigReader &reader) {
  return std::make_unique<Llama>(LlamaConfig::read(reader));
}
