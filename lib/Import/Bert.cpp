//===- Bert.cpp - The BERT family -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// BERT (Devlin et al., arXiv 1810.04805) with its head for masked words, in the
// layout of its Hugging Face checkpoints. Norms stand behind what they
// normalise; padding is a mask that every block reads. RoBERTa (Liu et al.,
// arXiv 1907.11692), XLM-RoBERTa and CamemBERT are the same with other names
// and defaults, and with rows of positions that begin behind the padding
// token's.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

/// Names of parameters in checkpoints.
struct BertNames {
  StringRef stem, headDense, headNorm, headBias, decoder;
};
constexpr BertNames kBertNames = {"bert.", "cls.predictions.transform.dense",
                                  "cls.predictions.transform.LayerNorm",
                                  "cls.predictions.bias",
                                  "cls.predictions.decoder"};
constexpr BertNames kRobertaNames = {"roberta.", "lm_head.dense",
                                     "lm_head.layer_norm", "lm_head.bias",
                                     "lm_head.decoder"};

class Bert : public FamilyModel {
public:
  Bert(ConfigReader &reader, bool isRoberta);

  int64_t positions() const override { return maxPositions - firstPosition; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;

  EncoderConfig config;
  std::string modelType;
  const BertNames &names;
  /// Rows of the table of positions, of which the first position has row
  /// `firstPosition`.
  int64_t maxPositions, firstPosition = 0;
  int64_t vocabSize, tokenTypes;
  std::optional<int64_t> padding;
  bool headTanhGelu;
};

Bert::Bert(ConfigReader &reader, bool isRoberta)
    : config(EncoderConfig::read(reader, /*dropout=*/0.1)),
      modelType(reader.getModelType()),
      names(isRoberta ? kRobertaNames : kBertNames) {
  if (isRoberta)
    reader.expectArchitecture({"RobertaForMaskedLM", "RobertaModel",
                               "XLMRobertaForMaskedLM", "XLMRobertaModel",
                               "CamembertForMaskedLM", "CamembertModel"});
  else
    reader.expectArchitecture({"BertForMaskedLM", "BertModel"});
  vocabSize =
      reader.positiveOr("vocab_size", modelType == "roberta" ? 50265 : 30522);
  maxPositions = reader.positiveOr("max_position_embeddings", 512);
  tokenTypes = reader.positiveOr("type_vocab_size", 2);
  padding = reader.paddingToken(/*fallback=*/isRoberta ? 1 : 0, vocabSize);
  headTanhGelu = !isRoberta && config.tanhGelu;
  // Positions count from the padding token's number on; those of padding
  // matter to nobody.
  if (isRoberta && !padding)
    reader.fail("pad_token_id", "expected a token, behind whose row those of "
                                "positions begin, found null");
  if (isRoberta)
    firstPosition = padding.value_or(0) + 1;
  if (firstPosition >= maxPositions)
    reader.fail(
        "max_position_embeddings",
        "expected more than 'pad_token_id' and 1 = " + Twine(firstPosition) +
            reader.found("max_position_embeddings", maxPositions));
  reader.expectPlain("position_embedding_type", "absolute");
  // The library then trains a second bias that nothing uses.
  reader.expectPlain("tie_word_embeddings", true);
  // Of the class for sentences.
  reader.passOver({"classifier_dropout", "problem_type"});
}

BodyParameters Bert::embedParameters() const {
  Initial normal = config.normal();
  BodyParameters list = {
      {"word_embeddings.weight",
       {vocabSize, config.width},
       normal,
       {},
       {"vocab", ""},
       /*borrowed=*/false,
       {(names.decoder + ".weight").str()}},
      {"position_embeddings.weight", {maxPositions, config.width}, normal},
      {"token_type_embeddings.weight", {tokenTypes, config.width}, normal}};
  config.addNorm(list, "LayerNorm");
  return list;
}

BodyParameters Bert::blockParameters() const {
  BodyParameters list;
  config.addAttention(list, "attention.self.");
  config.addNorm(list, "attention.output.LayerNorm");
  config.addFeedForward(list);
  config.addNorm(list, "output.LayerNorm");
  return list;
}

BodyParameters Bert::headParameters() const {
  BodyParameters list;
  config.addDense(list, names.headDense, config.width, config.width);
  config.addNorm(list, names.headNorm);
  list.push_back({(names.stem + "embeddings.word_embeddings.weight").str(),
                  {vocabSize, config.width},
                  config.normal(),
                  {},
                  {"vocab", ""},
                  /*borrowed=*/true});
  list.push_back({names.headBias.str(),
                  {vocabSize},
                  Initial::zeros(),
                  {},
                  {"vocab"},
                  /*borrowed=*/false,
                  {(names.decoder + ".bias").str()}});
  return list;
}

void Bert::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  auto blockPrefix = [&](int64_t index) {
    return (names.stem + "encoder.layer." + Twine(index) + ".").str();
  };
  std::string embeddings = (names.stem + "embeddings.").str();
  const std::string &type = modelType;
  b.declareBlocks(embeddings, embed, blockPrefix, config.layers, block, head);

  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", vocabSize, /*uneven=*/true};
  b.body(type + ".embed", {b.tokens(), b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.embedding(inputs[0], p.next(), padding);
           x = b.positionAdd(x, p.next(), firstPosition);
           x = b.add(x, b.embedding(inputs[1], p.next()));
           return b.dropout(config.norm(b, x, p), config.hiddenDropout, 0);
         });
  b.body(type + ".block", {stream, b.tokens()}, block, stream,
         {{"heads", config.heads}, {"ffn", config.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = inputs[0];
           Value part = config.attention(b, x, /*mask=*/inputs[1], p);
           x = b.add(x, b.dropout(part, config.hiddenDropout, 1));
           x = config.norm(b, x, p);
           part = config.feedForward(b, x, p);
           x = b.add(x, b.dropout(part, config.hiddenDropout, 2));
           return config.norm(b, x, p);
         });
  b.body(type + ".head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = config.dense(b, inputs[0], config.width, p);
           x = config.norm(b, b.gelu(x, headTanhGelu), p);
           Value logits = config.dense(b, x, vocabSize, p);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  b.model(type,
          {{"tokens", b.tokens(), vocabSize},
           {"mask", b.tokens(), /*below=*/2},
           {"token_types", b.tokens(), tokenTypes},
           {"labels", b.tokens(), vocabSize}},
          [&](ValueRange data) {
            Value x = b.layer("embeddings", type + ".embed", {data[0], data[2]},
                              stream, embeddings, embed);
            for (int64_t index = 0; index < config.layers; ++index)
              x = b.layer("layer." + Twine(index), type + ".block",
                          {x, data[1]}, stream, blockPrefix(index), block);
            return b.layer("head", type + ".head", {x, data[3]}, b.loss(), "",
                           head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readBert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, /*isRoberta=*/false);
}

std::unique_ptr<FamilyModel> galvatron::readRoberta(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, /*isRoberta=*/true);
}
