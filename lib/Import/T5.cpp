//===- T5.cpp - The T5 family ---------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// T5 (Raffel et al., arXiv 1910.10683), v1.0 and v1.1, in the layout of its
// Hugging Face checkpoints. Decoder blocks read the encoder's output, which is
// relayed past those in front.
//
// A stack has one table of biases for relative positions. The layer that embeds
// makes rows of biases of it, which all blocks of the stack read: as a value
// between layers, not as a parameter that each of them borrows. Its gradient is
// then a sum along the stack, and the plans of blocks stay independent of each
// other.
//
// mT5 (Xue et al., arXiv 2010.11934) is v1.1 with other defaults, whose head is
// not scaled where it is the table of words; in UMT5 (Chung et al., arXiv
// 2304.09151) every block has a table of biases of its own.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

class T5 : public FamilyModel {
public:
  enum class Kind { T5, MT5, UMT5 };
  T5(ConfigReader &reader, Kind kind);

  /// Relative positions have no end; this is how long sequences are unless
  /// another length is asked for.
  int64_t positions() const override { return usualLength; }
  StringRef positionsField() const override { return "n_positions"; }
  LengthRule lengthRule() const override { return LengthRule::Free; }
  bool hasDecoder() const override { return true; }
  void build(ModelBuilder &builder) const override;

private:
  enum class Activation { Relu, Gelu, TanhGelu, GatedGelu, GatedSilu };
  bool isGated() const { return activation >= Activation::GatedGelu; }
  void readActivation(ConfigReader &reader);

  Initial normal(int64_t fan) const {
    return Initial::normal(initialFactor * std::pow(double(fan), -0.5));
  }
  BodyParameter norm(const Twine &name) const {
    return {(name + ".weight").str(),
            {width},
            initialFactor == 1 ? Initial::ones()
                               : Initial::constant(initialFactor)};
  }
  BodyParameter words(bool borrowed) const;
  BodyParameter biasTable() const;
  /// The table that all blocks of a stack read, which is its first block's.
  BodyParameter sharedTable(StringRef stack) const;
  /// Whether every block has its own table.
  bool ownTables() const { return kind == Kind::UMT5; }
  /// `prefix` stands in front of `q`, `k`, `v` and `o`.
  void addAttention(BodyParameters &list, StringRef prefix) const;
  void addFeedForward(BodyParameters &list, StringRef prefix) const;
  BodyParameters encoderParameters() const;
  BodyParameters decoderParameters() const;

  /// The keys, mask and bias that attention sees.
  struct Sight {
    Value memory = {}; ///< where keys come from; null: `x` itself
    Value mask = {}, bias = {};
    bool causal = false;
  };
  // Both return `x` and what they add to it; `index` is that of the first
  // dropout.
  Value attention(ModelBuilder &b, Value x, const Sight &sight, int64_t index,
                  ParameterCursor &p) const;
  Value feedForward(ModelBuilder &b, Value x, int64_t index,
                    ParameterCursor &p) const;

  Kind kind;
  std::string modelType;
  int64_t usualLength, vocabSize, width, headSize, heads, inner;
  int64_t encoderLayers, decoderLayers, buckets, maxDistance;
  double normEps, dropout, initialFactor;
  Activation activation = Activation::Relu;
  bool ownHead, scaledHead;
};

T5::T5(ConfigReader &reader, Kind kind)
    : kind(kind), modelType(reader.getModelType()) {
  const bool isFirst = kind == Kind::T5;
  if (kind == Kind::UMT5)
    reader.expectArchitecture({"UMT5ForConditionalGeneration", "UMT5Model"});
  else if (kind == Kind::MT5)
    reader.expectArchitecture({"MT5ForConditionalGeneration", "MT5Model"});
  else
    reader.expectArchitecture(
        {"T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"});
  usualLength = reader.positiveOr("n_positions", 512);
  vocabSize = reader.positiveOr("vocab_size", isFirst ? 32128 : 250112);
  width = reader.positiveOr({"d_model", "hidden_size"}, 512);
  headSize = reader.positiveOr({"d_kv", "head_dim"}, 64);
  heads =
      reader.positiveOr({"num_heads", "num_attention_heads"}, isFirst ? 8 : 6);
  inner = reader.positiveOr("d_ff", isFirst ? 2048 : 1024);
  encoderLayers =
      reader.positiveOr({"num_layers", "num_hidden_layers"}, isFirst ? 6 : 8);
  decoderLayers = reader.positiveOr("num_decoder_layers", encoderLayers);
  buckets = reader.positiveOr("relative_attention_num_buckets", 32);
  if (buckets < 4 || buckets > mlir::nn::kMostRelativeBuckets)
    reader.fail("relative_attention_num_buckets",
                "expected 4 to " + Twine(mlir::nn::kMostRelativeBuckets) +
                    ", found " + Twine(buckets));
  maxDistance = reader.positiveOr("relative_attention_max_distance", 128);
  if (maxDistance <= buckets / 2)
    reader.fail("relative_attention_max_distance",
                "expected more than " + Twine(buckets / 2) +
                    ", half of 'relative_attention_num_buckets', found " +
                    Twine(maxDistance));
  normEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-6);
  dropout = reader.probabilityOr("dropout_rate", 0.1);
  for (StringRef kind :
       {"attention_dropout", "embedding_dropout", "activation_dropout"})
    reader.have(kind, dropout);
  reader.have("num_key_value_heads", heads);
  readActivation(reader);
  reader.have("gated", isGated());
  ownHead = !reader.booleanOr("tie_word_embeddings", true);
  // The field is T5's alone.
  scaledHead = kind == Kind::T5
                   ? reader.booleanOr("scale_decoder_outputs", !ownHead)
                   : kind == Kind::UMT5 && !ownHead;
  reader.expectPlain("is_encoder_decoder", true);
  reader.expectPlain("is_decoder", false);
  initialFactor = reader.positiveNumberOr("initializer_factor", 1.0);
  // Tokens that data begin and are filled up with, and the class for sentences.
  reader.passOver({"decoder_start_token_id", "pad_token_id", "output_past",
                   "classifier_dropout"});
}

/// `dense_act_fn` and `is_gated_act` say what `feed_forward_proj` says, and win
/// where both are there, as they do in the library.
void T5::readActivation(ConfigReader &reader) {
  std::string whole = reader.stringOr("feed_forward_proj",
                                      kind == Kind::T5 ? "relu" : "gated-gelu");
  StringRef name = whole;
  bool gated = name.consume_front("gated-");
  if (gated && name == "gelu")
    name = "gelu_new";
  StringRef field =
      reader.has("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj";
  std::string function = reader.stringOr("dense_act_fn", name);
  gated = reader.booleanOr("is_gated_act", gated);
  bool tanh = function == "gelu_new" || function == "gelu_pytorch_tanh";
  if (gated && tanh)
    activation = Activation::GatedGelu;
  else if (gated && (function == "silu" || function == "swish"))
    activation = Activation::GatedSilu;
  else if (!gated && tanh)
    activation = Activation::TanhGelu;
  else if (!gated && function == "gelu")
    activation = Activation::Gelu;
  else if (gated || function != "relu")
    reader.fail(field, "unsupported " + Twine(gated ? "gate" : "activation") +
                           " '" + function + "', expected " +
                           (gated ? "'gelu_new' or 'silu'"
                                  : "'relu', 'gelu' or 'gelu_new'"));
}

BodyParameter T5::words(bool borrowed) const {
  llvm::SmallVector<std::string> copies = {"encoder.embed_tokens.weight",
                                           "decoder.embed_tokens.weight"};
  if (!ownHead)
    copies.push_back("lm_head.weight");
  return {"shared.weight", {vocabSize, width}, normal(1), {},
          {"vocab", ""},   borrowed,           copies};
}

BodyParameter T5::biasTable() const {
  return {"layer.0.SelfAttention.relative_attention_bias.weight",
          {buckets, heads},
          normal(width)};
}

BodyParameter T5::sharedTable(StringRef stack) const {
  BodyParameter table = biasTable();
  table.name = (stack + ".block.0." + table.name).str();
  return table;
}

void T5::addAttention(BodyParameters &list, StringRef prefix) const {
  int64_t all = heads * headSize;
  for (StringRef name : {"q", "k", "v"})
    list.push_back({(prefix + name + ".weight").str(),
                    {all, width},
                    name == "q" ? normal(width * headSize) : normal(width),
                    {heads, headSize, width},
                    {"heads", "", ""}});
  list.push_back({(prefix + "o.weight").str(),
                  {width, all},
                  normal(all),
                  {},
                  {"", "heads"}});
}

void T5::addFeedForward(BodyParameters &list, StringRef prefix) const {
  auto in = [&](StringRef name) {
    list.push_back({(prefix + name + ".weight").str(),
                    {inner, width},
                    normal(width),
                    {},
                    {"ffn", ""}});
  };
  if (isGated()) {
    in("wi_0");
    in("wi_1");
  } else {
    in("wi");
  }
  list.push_back({(prefix + "wo.weight").str(),
                  {width, inner},
                  normal(inner),
                  {},
                  {"", "ffn"}});
}

// In the order in which the body takes them.
BodyParameters T5::encoderParameters() const {
  BodyParameters list;
  if (ownTables())
    list.push_back(biasTable());
  list.push_back(norm("layer.0.layer_norm"));
  addAttention(list, "layer.0.SelfAttention.");
  list.push_back(norm("layer.1.layer_norm"));
  addFeedForward(list, "layer.1.DenseReluDense.");
  return list;
}

BodyParameters T5::decoderParameters() const {
  BodyParameters list;
  if (ownTables())
    list.push_back(biasTable());
  list.push_back(norm("layer.0.layer_norm"));
  addAttention(list, "layer.0.SelfAttention.");
  list.push_back(norm("layer.1.layer_norm"));
  addAttention(list, "layer.1.EncDecAttention.");
  list.push_back(norm("layer.2.layer_norm"));
  addFeedForward(list, "layer.2.DenseReluDense.");
  return list;
}

Value T5::attention(ModelBuilder &b, Value x, const Sight &sight, int64_t index,
                    ParameterCursor &p) const {
  Value normed = b.rmsNorm(x, p.next(), normEps);
  Value source = sight.memory ? sight.memory : normed;
  auto project = [&](Value from) {
    return b.linear(from, p.next(), {heads, headSize}, /*transpose=*/true);
  };
  Value q = project(normed), k = project(source), v = project(source);
  // Its weights start small enough that scores need no scale.
  Value o = b.groupedAttention(q, k, v,
                               {.scale = 1,
                                .dropout = dropout,
                                .causal = sight.causal,
                                .mask = sight.mask,
                                .bias = sight.bias,
                                .opIndex = index});
  Value part = b.linear(o, p.next(), {width}, /*transpose=*/true);
  return b.add(x, b.dropout(part, dropout, index + 1));
}

Value T5::feedForward(ModelBuilder &b, Value x, int64_t index,
                      ParameterCursor &p) const {
  Value normed = b.rmsNorm(x, p.next(), normEps);
  auto in = [&] {
    return b.linear(normed, p.next(), {inner}, /*transpose=*/true);
  };
  Value hidden = in();
  switch (activation) {
  case Activation::Relu:
    hidden = b.relu(hidden);
    break;
  case Activation::Gelu:
  case Activation::TanhGelu:
    hidden = b.gelu(hidden, activation == Activation::TanhGelu);
    break;
  case Activation::GatedGelu:
    hidden = b.gatedGelu(hidden, in());
    break;
  case Activation::GatedSilu:
    hidden = b.gatedSilu(hidden, in());
    break;
  }
  hidden = b.dropout(hidden, dropout, index);
  Value part = b.linear(hidden, p.next(), {width}, /*transpose=*/true);
  return b.add(x, b.dropout(part, dropout, index + 1));
}

void T5::build(ModelBuilder &b) const {
  const int64_t length = b.getSeqLen(), decoderLength = b.getDecoderSeqLen();
  const std::string encoderNorm = "encoder.final_layer_norm";
  BodyParameters embed = {words(/*borrowed=*/false)};
  BodyParameters encoder = encoderParameters(), decoder = decoderParameters();
  BodyParameters between = {norm(encoderNorm), words(/*borrowed=*/true)};
  if (!ownTables()) {
    embed.push_back(sharedTable("encoder"));
    between.push_back(sharedTable("decoder"));
  }
  BodyParameters head = {norm("decoder.final_layer_norm"),
                         words(/*borrowed=*/true)};
  if (ownHead)
    head.back() = {
        "lm_head.weight", {vocabSize, width}, normal(1), {}, {"vocab", ""}};
  auto prefix = [](StringRef stack, int64_t index) {
    return (stack + ".block." + Twine(index) + ".").str();
  };
  b.declareBlocks(
      "", embed, [&](int64_t index) { return prefix("encoder", index); },
      encoderLayers, encoder, between);
  b.declareBlocks(
      "", {}, [&](int64_t index) { return prefix("decoder", index); },
      decoderLayers, decoder, head);

  RankedTensorType x = b.activation({width}),
                   y = b.activation({width}, decoderLength);
  RankedTensorType ids = b.tokens(), decoderIds = b.tokens(decoderLength);
  RankedTensorType bias = b.relativeBias(heads, length),
                   decoderBias = b.relativeBias(heads, decoderLength);
  BodyFactor vocabulary = {"vocab", vocabSize, /*uneven=*/true};
  BodyFactor attentionHeads = {"heads", heads}, ffn = {"ffn", inner};
  const std::string &type = modelType;
  // Types that the layer in front of a stack gives, and that its blocks read.
  using Types = llvm::SmallVector<mlir::Type>;
  Types embedded = {x}, handed = {x, y}, encoderReads = {x}, decoderReads = {y};
  if (!ownTables()) {
    embedded.push_back(bias);
    handed.push_back(decoderBias);
    encoderReads.push_back(bias);
    decoderReads.push_back(decoderBias);
  }
  encoderReads.push_back(ids);
  decoderReads.append({x, ids});

  b.bodyOfSeveral(type + ".embed", {ids}, embed, embedded, {vocabulary},
                  [&](ValueRange inputs, ValueRange p) -> ModelBuilder::Values {
                    ModelBuilder::Values results = {
                        b.dropout(b.embedding(inputs[0], p[0]), dropout, 0)};
                    if (!ownTables())
                      results.push_back(
                          b.relativeBias(p[1], bias, maxDistance, true));
                    return results;
                  });
  b.body(type + ".encoder", encoderReads, encoder, x, {attentionHeads, ffn},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value scores =
               ownTables() ? b.relativeBias(p.next(), bias, maxDistance, true)
                           : inputs[1];
           Sight sight = {.mask = inputs.back(), .bias = scores};
           return feedForward(b, attention(b, inputs[0], sight, 0, p), 2, p);
         });
  b.bodyOfSeveral(
      type + ".between", {x, decoderIds}, between, handed, {vocabulary},
      [&](ValueRange inputs, ValueRange p) -> ModelBuilder::Values {
        Value memory =
            b.dropout(b.rmsNorm(inputs[0], p[0], normEps), dropout, 0);
        Value words = b.dropout(b.embedding(inputs[1], p[1]), dropout, 1);
        ModelBuilder::Values results = {memory, words};
        if (!ownTables())
          results.push_back(
              b.relativeBias(p[2], decoderBias, maxDistance, false));
        return results;
      });
  b.body(type + ".decoder", decoderReads, decoder, y, {attentionHeads, ffn},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value scores = ownTables() ? b.relativeBias(p.next(), decoderBias,
                                                       maxDistance, false)
                                      : inputs[1];
           Sight own = {.bias = scores, .causal = true};
           Sight cross = {.memory = inputs[inputs.size() - 2],
                          .mask = inputs.back()};
           Value z = attention(b, inputs[0], own, 0, p);
           return feedForward(b, attention(b, z, cross, 2, p), 4, p);
         });
  b.body(type + ".head", {y, decoderIds}, head, b.loss(), {vocabulary},
         [&](ValueRange inputs, ValueRange p) {
           Value z = b.dropout(b.rmsNorm(inputs[0], p[0], normEps), dropout, 0);
           if (scaledHead)
             z = b.scale(z, std::pow(double(width), -0.5));
           Value logits = b.linear(z, p[1], {vocabSize}, /*transpose=*/true);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  b.model(type,
          {{"tokens", ids, vocabSize},
           {"mask", ids, /*below=*/2},
           {"tokens", decoderIds, vocabSize, "decoder_tokens"},
           {"labels", decoderIds, vocabSize}},
          [&](ValueRange data) {
            ModelBuilder::Values values = b.layerOfSeveral(
                "embeddings", type + ".embed", data[0], embedded, "", embed);
            Value stream = values[0];
            for (int64_t i = 0; i < encoderLayers; ++i) {
              ModelBuilder::Values reads = {stream};
              reads.append(values.begin() + 1, values.end());
              reads.push_back(data[1]);
              stream = b.layer("encoder." + Twine(i), type + ".encoder", reads,
                               x, prefix("encoder", i), encoder);
            }
            values = b.layerOfSeveral("between", type + ".between",
                                      {stream, data[2]}, handed, "", between);
            stream = values[1];
            for (int64_t i = 0; i < decoderLayers; ++i) {
              ModelBuilder::Values reads = {stream};
              reads.append(values.begin() + 2, values.end());
              reads.append({values[0], data[1]});
              stream = b.layer("decoder." + Twine(i), type + ".decoder", reads,
                               y, prefix("decoder", i), decoder);
            }
            return b.layer("head", type + ".head", {stream, data[3]}, b.loss(),
                           "", head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readT5(ConfigReader &reader) {
  return std::make_unique<T5>(reader, T5::Kind::T5);
}

std::unique_ptr<FamilyModel> galvatron::readMT5(ConfigReader &reader) {
  return std::make_unique<T5>(reader, T5::Kind::MT5);
}

std::unique_ptr<FamilyModel> galvatron::readUMT5(ConfigReader &reader) {
  return std::make_unique<T5>(reader, T5::Kind::UMT5);
}
