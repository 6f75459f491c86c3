//===- Bart.cpp - BART, mBART and PEGASUS ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// BART (Lewis et al., arXiv 1910.13461) in the layout of its Hugging Face
// checkpoints: an encoder and a decoder with layer norms behind their halves,
// and learnt positions whose table has two rows in front of the first. Both
// stacks and the head have one table of words. mBART (Liu et al., arXiv
// 2001.08210) has the norms in front of the halves and one more behind either
// stack. PEGASUS (Zhang et al., arXiv 1912.08777) has these as well, no norms
// behind its tables, and positions that are sines and cosines, which nobody
// trains. Which of them it is, the model type says and no field.
//
// The library adds stored numbers to the logits that it never trains,
// "final_logits_bias". They are zeros where nobody changed them; a file in
// which they are not is refused when its weights are read.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

class Bart : public FamilyModel {
public:
  explicit Bart(ConfigReader &reader);

  int64_t positions() const override { return maxPositions; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  bool hasDecoder() const override { return true; }
  void build(ModelBuilder &builder) const override;

private:
  /// Whether positions are learnt, and normed with the words.
  bool learnsPositions() const { return modelType != "pegasus"; }
  /// Rows of the tables of positions in front of that of the first.
  int64_t rowsBefore() const { return learnsPositions() ? 2 : 0; }
  /// Whether norms stand in front of the halves of blocks.
  bool normsBefore() const { return modelType != "bart"; }
  static EncoderConfig readStack(ConfigReader &reader, StringRef name);
  void readActivation(ConfigReader &reader);
  void passFieldsOfOldFiles(ConfigReader &reader) const;

  BodyParameter words(bool borrowed) const;
  /// Adds the parameters between a stack's table of words and its first layer:
  /// its positions, and the norm behind them.
  void addPositions(BodyParameters &list, StringRef prefix) const;
  void addAttention(BodyParameters &list, const EncoderConfig &stack,
                    StringRef name) const;
  void addFeedForward(BodyParameters &list, const EncoderConfig &stack) const;
  BodyParameters encoderParameters() const;
  BodyParameters decoderParameters() const;

  Value embed(ModelBuilder &b, Value tokens, Value table, int64_t index,
              ParameterCursor &p) const;
  /// A half of a block: `x` and what `write` makes of it, with the norm in
  /// front or behind.
  Value half(ModelBuilder &b, Value x, int64_t index, ParameterCursor &p,
             llvm::function_ref<Value(Value)> write) const;
  /// `memory` is where keys come from; null: `x` itself.
  Value attention(ModelBuilder &b, Value x, Value memory,
                  AttentionOptions options, const EncoderConfig &stack,
                  ParameterCursor &p) const;
  Value feedForward(ModelBuilder &b, Value x, int64_t index,
                    const EncoderConfig &stack, ParameterCursor &p) const;

  std::string modelType;
  int64_t vocabSize, maxPositions, width;
  EncoderConfig encoder, decoder;
  enum class Activation { Relu, Gelu, TanhGelu } activation = Activation::Gelu;
  double dropout, activationDropout, embeddingScale;
  std::optional<int64_t> padding;
};

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

Bart::Bart(ConfigReader &reader) : modelType(reader.getModelType()) {
  if (!learnsPositions())
    reader.expectArchitecture(
        {"PegasusForConditionalGeneration", "PegasusModel"});
  else if (normsBefore())
    reader.expectArchitecture({"MBartForConditionalGeneration", "MBartModel"});
  else
    reader.expectArchitecture({"BartForConditionalGeneration", "BartModel"});
  vocabSize = reader.positiveOr("vocab_size", 50265);
  maxPositions = reader.positiveOr("max_position_embeddings", 1024);
  encoder = readStack(reader, "encoder");
  decoder = readStack(reader, "decoder");
  width = encoder.width;
  dropout = reader.probabilityOr("dropout", 0.1);
  activationDropout = reader.probabilityOr("activation_dropout", 0);
  reader.have("embedding_dropout", dropout);
  readActivation(reader);
  bool scaled = reader.booleanOr("scale_embedding", false);
  embeddingScale = scaled ? std::sqrt(double(width)) : 1;
  padding = reader.paddingToken(learnsPositions() ? 1 : 0, vocabSize);
  reader.expectPlain("tie_word_embeddings", true,
                     "a head of its own is not supported");
  reader.expectPlain("is_encoder_decoder", true);
  reader.expectPlain("is_decoder", false);
  for (StringRef field : {"encoder_layerdrop", "decoder_layerdrop"})
    reader.expectPlain(field, 0.0, "layers are not left out at random");
  passFieldsOfOldFiles(reader);
}

EncoderConfig Bart::readStack(ConfigReader &reader, StringRef name) {
  EncoderConfig stack;
  auto field = [&](StringRef end) { return (name + end).str(); };
  stack.width = reader.positiveOr({"d_model", "hidden_size"}, 1024);
  stack.layers = reader.positiveOr(field("_layers"), 12);
  std::string headsField = field("_attention_heads");
  stack.heads = reader.positiveOr(headsField, 16);
  stack.inner = reader.positiveOr(field("_ffn_dim"), 4096);
  stack.normEps = 1e-5;
  stack.attentionDropout = reader.probabilityOr("attention_dropout", 0);
  stack.initializerRange = reader.positiveNumberOr("init_std", 0.02);
  stack.hiddenDropout = 0;
  stack.tanhGelu = false;
  if (stack.width % stack.heads)
    reader.fail("d_model", "expected a multiple of '" + headsField +
                               "' = " + Twine(stack.heads) +
                               reader.found("d_model", stack.width));
  return stack;
}

void Bart::readActivation(ConfigReader &reader) {
  std::string name = reader.stringOr("activation_function", "gelu");
  if (name == "relu")
    activation = Activation::Relu;
  else if (name == "gelu_new" || name == "gelu_pytorch_tanh")
    activation = Activation::TanhGelu;
  else if (name != "gelu")
    reader.fail("activation_function",
                "unsupported activation '" + name +
                    "', expected 'gelu', 'gelu_new', 'gelu_pytorch_tanh' or "
                    "'relu'");
}

/// They say what the model type says as well, or nothing about the model.
void Bart::passFieldsOfOldFiles(ConfigReader &reader) const {
  reader.expectPlain("normalize_before", normsBefore());
  reader.expectPlain("add_final_layer_norm", normsBefore());
  reader.expectPlain("normalize_embedding", learnsPositions());
  reader.have("embedding_norm", learnsPositions());
  reader.expectPlain("static_position_embeddings", !learnsPositions());
  // Old files of PEGASUS have a number of rows that no class of it reads.
  if (learnsPositions())
    reader.expectPlain("extra_pos_embeddings", rowsBefore());
  else
    reader.passOver("extra_pos_embeddings");
  reader.expectPlain("add_bias_logits", false);
  reader.passOver({"decoder_start_token_id", "classif_dropout",
                   "classifier_dropout", "num_hidden_layers", "output_past",
                   "force_bos_token_to_be_generated"});
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

BodyParameter Bart::words(bool borrowed) const {
  return {"model.shared.weight",
          {vocabSize, width},
          encoder.normal(),
          {},
          {"vocab", ""},
          borrowed,
          {"model.encoder.embed_tokens.weight",
           "model.decoder.embed_tokens.weight", "lm_head.weight"}};
}

void Bart::addPositions(BodyParameters &list, StringRef prefix) const {
  list.push_back({(prefix + "embed_positions.weight").str(),
                  {maxPositions + rowsBefore(), width},
                  learnsPositions() ? encoder.normal() : Initial::sinusoids()});
  if (learnsPositions())
    encoder.addNorm(list, prefix + "layernorm_embedding");
}

// In the order in which the bodies take them.
void Bart::addAttention(BodyParameters &list, const EncoderConfig &stack,
                        StringRef name) const {
  std::string norm = (name + "_layer_norm").str();
  if (normsBefore())
    stack.addNorm(list, norm);
  int64_t size = width / stack.heads;
  for (StringRef product : {".q_proj", ".k_proj", ".v_proj"}) {
    list.push_back({(name + product + ".weight").str(),
                    {width, width},
                    stack.normal(),
                    {stack.heads, size, width},
                    {"heads", "", ""}});
    list.push_back({(name + product + ".bias").str(),
                    {width},
                    Initial::zeros(),
                    {stack.heads, size},
                    {"heads", ""}});
  }
  stack.addDense(list, name + ".out_proj", width, width, "", "heads");
  if (!normsBefore())
    stack.addNorm(list, norm);
}

void Bart::addFeedForward(BodyParameters &list,
                          const EncoderConfig &stack) const {
  if (normsBefore())
    stack.addNorm(list, "final_layer_norm");
  stack.addDense(list, "fc1", stack.inner, width, "ffn");
  stack.addDense(list, "fc2", width, stack.inner, "", "ffn");
  if (!normsBefore())
    stack.addNorm(list, "final_layer_norm");
}

BodyParameters Bart::encoderParameters() const {
  BodyParameters list;
  addAttention(list, encoder, "self_attn");
  addFeedForward(list, encoder);
  return list;
}

BodyParameters Bart::decoderParameters() const {
  BodyParameters list;
  addAttention(list, decoder, "self_attn");
  addAttention(list, decoder, "encoder_attn");
  addFeedForward(list, decoder);
  return list;
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

Value Bart::embed(ModelBuilder &b, Value tokens, Value table, int64_t index,
                  ParameterCursor &p) const {
  Value x = b.embedding(tokens, table, padding);
  if (embeddingScale != 1)
    x = b.scale(x, embeddingScale);
  x = b.positionAdd(x, p.next(), rowsBefore());
  if (learnsPositions())
    x = encoder.norm(b, x, p);
  return b.dropout(x, dropout, index);
}

Value Bart::half(ModelBuilder &b, Value x, int64_t index, ParameterCursor &p,
                 llvm::function_ref<Value(Value)> write) const {
  Value part = write(normsBefore() ? encoder.norm(b, x, p) : x);
  x = b.add(x, b.dropout(part, dropout, index));
  return normsBefore() ? x : encoder.norm(b, x, p);
}

Value Bart::attention(ModelBuilder &b, Value x, Value memory,
                      AttentionOptions options, const EncoderConfig &stack,
                      ParameterCursor &p) const {
  return half(b, x, options.opIndex + 1, p, [&](Value read) {
    int64_t size = width / stack.heads;
    auto project = [&](Value from) {
      Value weight = p.next(), bias = p.next();
      return b.biasAdd(
          b.linear(from, weight, {stack.heads, size}, /*transpose=*/true),
          bias);
    };
    Value source = memory ? memory : read;
    Value q = project(read), k = project(source), v = project(source);
    options.scale = 1 / std::sqrt(double(size));
    options.dropout = stack.attentionDropout;
    return stack.dense(b, b.groupedAttention(q, k, v, options), width, p);
  });
}

Value Bart::feedForward(ModelBuilder &b, Value x, int64_t index,
                        const EncoderConfig &stack, ParameterCursor &p) const {
  return half(b, x, index + 1, p, [&](Value read) {
    Value hidden = stack.dense(b, read, stack.inner, p);
    hidden = activation == Activation::Relu
                 ? b.relu(hidden)
                 : b.gelu(hidden, activation == Activation::TanhGelu);
    hidden = b.dropout(hidden, activationDropout, index);
    return stack.dense(b, hidden, width, p);
  });
}

void Bart::build(ModelBuilder &b) const {
  const int64_t decoderLength = b.getDecoderSeqLen();
  const std::string &type = modelType;
  BodyParameters embed = {words(/*borrowed=*/false)};
  addPositions(embed, "model.encoder.");
  BodyParameters between = {words(/*borrowed=*/true)}, head;
  addPositions(between, "model.decoder.");
  if (normsBefore()) {
    encoder.addNorm(between, "model.encoder.layer_norm");
    encoder.addNorm(head, "model.decoder.layer_norm");
  }
  head.push_back(words(/*borrowed=*/true));
  BodyParameters encoderBlock = encoderParameters(),
                 decoderBlock = decoderParameters();
  auto prefix = [](StringRef stack, int64_t index) {
    return ("model." + stack + ".layers." + Twine(index) + ".").str();
  };
  b.declareBlocks(
      "", embed, [&](int64_t index) { return prefix("encoder", index); },
      encoder.layers, encoderBlock, between);
  b.declareBlocks(
      "", {}, [&](int64_t index) { return prefix("decoder", index); },
      decoder.layers, decoderBlock, head);

  RankedTensorType x = b.activation({width}),
                   y = b.activation({width}, decoderLength);
  RankedTensorType ids = b.tokens(), decoderIds = b.tokens(decoderLength);
  BodyFactor vocabulary = {"vocab", vocabSize, /*uneven=*/true};
  b.body(type + ".embed", {ids}, embed, x, {vocabulary},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value table = p.next();
           return this->embed(b, inputs[0], table, 0, p);
         });
  b.body(type + ".encoder", {x, ids}, encoderBlock, x,
         {{"heads", encoder.heads}, {"ffn", encoder.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value z =
               attention(b, inputs[0], /*memory=*/{},
                         {.causal = false, .mask = inputs[1]}, encoder, p);
           return feedForward(b, z, 2, encoder, p);
         });
  // This layer hands the encoder's output to the decoders, normed or not, since
  // only the first layer may begin with data alone.
  llvm::SmallVector<mlir::Type> handed = {x, y};
  b.bodyOfSeveral(
      type + ".between", {x, decoderIds}, between, handed, {vocabulary},
      [&](ValueRange inputs, ValueRange parameters) -> ModelBuilder::Values {
        ParameterCursor p(parameters);
        Value table = p.next();
        Value stream = this->embed(b, inputs[1], table, 0, p);
        return {normsBefore() ? encoder.norm(b, inputs[0], p) : inputs[0],
                stream};
      });
  b.body(type + ".decoder", {y, x, ids}, decoderBlock, y,
         {{"heads", decoder.heads}, {"ffn", decoder.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value z = attention(b, inputs[0], /*memory=*/{}, {}, decoder, p);
           z = attention(b, z, inputs[1],
                         {.causal = false, .mask = inputs[2], .opIndex = 2},
                         decoder, p);
           return feedForward(b, z, 4, decoder, p);
         });
  b.body(type + ".head", {y, decoderIds}, head, b.loss(), {vocabulary},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value z = normsBefore() ? encoder.norm(b, inputs[0], p) : inputs[0];
           Value logits =
               b.linear(z, p.next(), {vocabSize}, /*transpose=*/true);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  b.model(type,
          {{"tokens", ids, vocabSize},
           {"mask", ids, /*below=*/2},
           {"tokens", decoderIds, vocabSize, "decoder_tokens"},
           {"labels", decoderIds, vocabSize}},
          [&](ValueRange data) {
            Value memory =
                b.layer("embeddings", type + ".embed", data[0], x, "", embed);
            for (int64_t i = 0; i < encoder.layers; ++i)
              memory = b.layer("encoder." + Twine(i), type + ".encoder",
                               {memory, data[1]}, x, prefix("encoder", i),
                               encoderBlock);
            ModelBuilder::Values values =
                b.layerOfSeveral("between", type + ".between",
                                 {memory, data[2]}, handed, "", between);
            memory = values[0];
            Value stream = values[1];
            for (int64_t i = 0; i < decoder.layers; ++i)
              stream = b.layer("decoder." + Twine(i), type + ".decoder",
                               {stream, memory, data[1]}, y,
                               prefix("decoder", i), decoderBlock);
            return b.layer("head", type + ".head", {stream, data[3]}, b.loss(),
                           "", head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readBart(ConfigReader &reader) {
  return std::make_unique<Bart>(reader);
}
