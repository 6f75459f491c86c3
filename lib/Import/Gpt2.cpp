//===- Gpt2.cpp - The GPT-2 family ----------------------------------------===//
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

#include "Family.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

/// The fields of a configuration that change the model, with the defaults of
/// the `transformers` library. Sizes must be given.
class Gpt2 : public FamilyModel {
public:
  explicit Gpt2(ConfigReader &reader);

  int64_t positions() const override { return maxPositions; }
  StringRef positionsField() const override { return "n_positions"; }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;
  Value writeBlock(ModelBuilder &b, Value x, ValueRange parameters) const;

  int64_t vocabSize, maxPositions, width, layers, heads, inner;
  double layerNormEps;
  double residualDropout, embeddingDropout, attentionDropout;
  double initializerRange;
  bool scaleAttention, tied, tanhGelu;
};

Gpt2::Gpt2(ConfigReader &reader) {
  reader.expectArchitecture({"GPT2LMHeadModel", "GPT2Model"});
  vocabSize = reader.positive("vocab_size");
  maxPositions = reader.positive({"n_positions", "max_position_embeddings"});
  width = reader.positive({"n_embd", "hidden_size"});
  layers = reader.positive({"n_layer", "num_hidden_layers"});
  heads = reader.positive({"n_head", "num_attention_heads"});
  inner = reader.positiveOr("n_inner", 4 * width);
  layerNormEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-5);
  residualDropout = reader.probabilityOr("resid_pdrop", 0.1);
  embeddingDropout = reader.probabilityOr("embd_pdrop", 0.1);
  attentionDropout = reader.probabilityOr("attn_pdrop", 0.1);
  initializerRange = reader.positiveNumberOr("initializer_range", 0.02);
  scaleAttention = reader.booleanOr("scale_attn_weights", true);
  tied = reader.booleanOr("tie_word_embeddings", true);

  std::string activation = reader.stringOr("activation_function", "gelu_new");
  tanhGelu = activation == "gelu_new" || activation == "gelu_pytorch_tanh" ||
             activation == "gelu_fast";
  if (!tanhGelu && activation != "gelu")
    reader.fail("activation_function",
                "unsupported activation '" + activation +
                    "', expected 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast' "
                    "or 'gelu'");
  if (width % heads)
    reader.fail("n_embd", "expected a multiple of 'n_head' = " + Twine(heads) +
                              ", found " + Twine(width));
  // Only rounding differs if scores are computed in another order.
  reader.booleanOr("reorder_and_upcast_attn", false);
  // The first two change every block's scores, or add to a block.
  for (StringRef field :
       {"scale_attn_by_inverse_layer_idx", "add_cross_attention", "is_decoder"})
    if (reader.booleanOr(field, false))
      reader.fail(field, "unsupported, expected false, found true");
  reader.have("num_key_value_heads", heads);
  reader.have("head_dim", width / heads);
  // A token that fills up sequences has no row of its own in this family.
  reader.countOr("pad_token_id", 0);
}

/// Parameters are in the order of the model's state dictionary.
BodyParameters Gpt2::embedParameters() const {
  Initial normal = Initial::normal(initializerRange);
  llvm::SmallVector<std::string> copies;
  if (tied)
    copies.push_back("lm_head.weight");
  return {{"wte.weight",
           {vocabSize, width},
           normal,
           {},
           {"vocab", ""},
           /*borrowed=*/false,
           copies},
          {"wpe.weight", {maxPositions, width}, normal}};
}

/// Projections back into the residual stream start smaller by the root of their
/// number, 2 * n_layer.
BodyParameters Gpt2::blockParameters() const {
  Initial normal = Initial::normal(initializerRange);
  Initial projection =
      Initial::normal(initializerRange / std::sqrt(2.0 * double(layers)));
  Initial ones = Initial::ones(), zeros = Initial::zeros();
  return {{"ln_1.weight", {width}, ones},
          {"ln_1.bias", {width}, zeros},
          {"attn.c_attn.weight",
           {width, 3 * width},
           normal,
           {width, 3, width},
           {"", "", "heads"}},
          {"attn.c_attn.bias", {3 * width}, zeros, {3, width}, {"", "heads"}},
          {"attn.c_proj.weight", {width, width}, projection, {}, {"heads", ""}},
          {"attn.c_proj.bias", {width}, zeros},
          {"ln_2.weight", {width}, ones},
          {"ln_2.bias", {width}, zeros},
          {"mlp.c_fc.weight", {width, inner}, normal, {}, {"", "ffn"}},
          {"mlp.c_fc.bias", {inner}, zeros, {}, {"ffn"}},
          {"mlp.c_proj.weight", {inner, width}, projection, {}, {"ffn", ""}},
          {"mlp.c_proj.bias", {width}, zeros}};
}

BodyParameters Gpt2::headParameters() const {
  return {{"transformer.ln_f.weight", {width}, Initial::ones()},
          {"transformer.ln_f.bias", {width}, Initial::zeros()},
          {tied ? "transformer.wte.weight" : "lm_head.weight",
           {vocabSize, width},
           Initial::normal(initializerRange),
           {},
           {"vocab", ""},
           /*borrowed=*/tied}};
}

Value Gpt2::writeBlock(ModelBuilder &b, Value x, ValueRange p) const {
  Value normed = b.layerNorm(x, p[0], p[1], layerNormEps);
  Value qkv = b.biasAdd(b.linear(normed, p[2], {3, width}, false), p[3]);
  double headSize = double(width / heads);
  Value attention =
      b.attention(qkv, heads, scaleAttention ? 1.0 / std::sqrt(headSize) : 1.0,
                  attentionDropout);
  Value projected = b.biasAdd(b.linear(attention, p[4], {width}, false), p[5]);
  x = b.add(x, b.dropout(projected, residualDropout, 1));

  normed = b.layerNorm(x, p[6], p[7], layerNormEps);
  Value hidden = b.biasAdd(b.linear(normed, p[8], {inner}, false), p[9]);
  hidden = b.gelu(hidden, tanhGelu);
  projected = b.biasAdd(b.linear(hidden, p[10], {width}, false), p[11]);
  return b.add(x, b.dropout(projected, residualDropout, 2));
}

void Gpt2::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  auto blockPrefix = [](int64_t index) {
    return ("transformer.h." + Twine(index) + ".").str();
  };
  b.declareBlocks("transformer.", embed, blockPrefix, layers, block, head);

  RankedTensorType stream = b.activation({width});
  BodyFactor words = {"vocab", vocabSize, /*uneven=*/true};
  b.body("gpt2.embed", {b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange p) {
           Value x = b.positionAdd(b.embedding(inputs[0], p[0]), p[1]);
           return b.dropout(x, embeddingDropout, 0);
         });
  b.body("gpt2.block", {stream}, block, stream,
         {{"heads", heads}, {"ffn", inner}},
         [&](ValueRange inputs, ValueRange p) {
           return writeBlock(b, inputs[0], p);
         });
  b.body("gpt2.head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange p) {
           Value normed = b.layerNorm(inputs[0], p[0], p[1], layerNormEps);
           Value logits = b.linear(normed, p[2], {vocabSize}, true);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  b.model("gpt2", b.nextTokenData(vocabSize), [&](ValueRange data) {
    Value x =
        b.layer("wte", "gpt2.embed", data[0], stream, "transformer.", embed);
    for (int64_t index = 0; index < layers; ++index)
      x = b.layer("h." + Twine(index), "gpt2.block", x, stream,
                  blockPrefix(index), block);
    return b.layer("head", "gpt2.head", {x, data[1]}, b.loss(), "", head);
  });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readGpt2(ConfigReader &reader) {
  return std::make_unique<Gpt2>(reader);
}
