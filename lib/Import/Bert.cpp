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
// token's. ELECTRA's generator (Clark et al., arXiv 2003.10555) has words, and
// the head, of another width than blocks.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"

using namespace galvatron;
using llvm::SmallVector;
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

constexpr BertNames kElectraNames = {"electra.", "generator_predictions.dense",
                                     "generator_predictions.LayerNorm",
                                     "generator_lm_head.bias",
                                     "generator_lm_head"};

class Bert : public FamilyModel {
public:
  enum class Kind { Bert, Roberta, Electra };
  Bert(ConfigReader &reader, Kind kind);

  int64_t positions() const override { return maxPositions - firstPosition; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;
  /// A norm of rows as wide as those of the table of words.
  void addWordNorm(BodyParameters &list, const Twine &name) const;

  EncoderConfig config;
  std::string modelType;
  const BertNames &names;
  /// Rows of the table of positions, of which the first position has row
  /// `firstPosition`.
  int64_t maxPositions, firstPosition = 0;
  int64_t vocabSize, tokenTypes;
  /// Of the tables and of the head; a product stands between them and blocks of
  /// another width.
  int64_t wordWidth;
  std::optional<int64_t> padding;
  bool headTanhGelu;
};

Bert::Bert(ConfigReader &reader, Kind kind)
    : config(EncoderConfig::read(reader, /*dropout=*/0.1,
                                 kind == Kind::Electra
                                     ? EncoderSizes{256, 12, 4, 1024}
                                     : EncoderSizes())),
      modelType(reader.getModelType()),
      names(kind == Kind::Bert      ? kBertNames
            : kind == Kind::Roberta ? kRobertaNames
                                    : kElectraNames),
      wordWidth(config.width) {
  const bool isRoberta = kind == Kind::Roberta;
  const bool isElectra = kind == Kind::Electra;
  if (isElectra) {
    // The discriminator has a head of its own, which is not there.
    reader.expectArchitecture({"ElectraForMaskedLM", "ElectraModel"});
    wordWidth = reader.positiveOr("embedding_size", 128);
  } else if (isRoberta)
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
  headTanhGelu = kind == Kind::Bert && config.tanhGelu;
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

void Bert::addWordNorm(BodyParameters &list, const Twine &name) const {
  list.push_back({(name + ".weight").str(), {wordWidth}, Initial::ones()});
  list.push_back({(name + ".bias").str(), {wordWidth}, Initial::zeros()});
}

BodyParameters Bert::embedParameters() const {
  Initial normal = config.normal();
  BodyParameters list = {{"embeddings.word_embeddings.weight",
                          {vocabSize, wordWidth},
                          normal,
                          {},
                          {"vocab", ""},
                          /*borrowed=*/false,
                          {(names.decoder + ".weight").str()}},
                         {"embeddings.position_embeddings.weight",
                          {maxPositions, wordWidth},
                          normal},
                         {"embeddings.token_type_embeddings.weight",
                          {tokenTypes, wordWidth},
                          normal}};
  addWordNorm(list, "embeddings.LayerNorm");
  if (wordWidth != config.width)
    config.addDense(list, "embeddings_project", config.width, wordWidth);
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
  config.addDense(list, names.headDense, wordWidth, config.width);
  addWordNorm(list, names.headNorm);
  list.push_back({(names.stem + "embeddings.word_embeddings.weight").str(),
                  {vocabSize, wordWidth},
                  config.normal(),
                  {},
                  {"vocab", ""},
                  /*borrowed=*/true});
  // The copies are names for the same bias, where there is another.
  std::string decoderBias = (names.decoder + ".bias").str();
  SmallVector<std::string> copies;
  if (decoderBias != names.headBias)
    copies.push_back(decoderBias);
  list.push_back({names.headBias.str(),
                  {vocabSize},
                  Initial::zeros(),
                  {},
                  {"vocab"},
                  /*borrowed=*/false,
                  copies});
  return list;
}

void Bert::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  auto blockPrefix = [&](int64_t index) {
    return (names.stem + "encoder.layer." + Twine(index) + ".").str();
  };
  const std::string &type = modelType;
  b.declareBlocks(names.stem, embed, blockPrefix, config.layers, block, head);

  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", vocabSize, /*uneven=*/true};
  b.body(type + ".embed", {b.tokens(), b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.embedding(inputs[0], p.next(), padding);
           x = b.positionAdd(x, p.next(), firstPosition);
           x = b.add(x, b.embedding(inputs[1], p.next()));
           x = b.dropout(config.norm(b, x, p), config.hiddenDropout, 0);
           return wordWidth == config.width
                      ? x
                      : config.dense(b, x, config.width, p);
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
           Value x = config.dense(b, inputs[0], wordWidth, p);
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
                              stream, names.stem, embed);
            for (int64_t index = 0; index < config.layers; ++index)
              x = b.layer("layer." + Twine(index), type + ".block",
                          {x, data[1]}, stream, blockPrefix(index), block);
            return b.layer("head", type + ".head", {x, data[3]}, b.loss(), "",
                           head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readBert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Bert);
}

std::unique_ptr<FamilyModel> galvatron::readRoberta(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Roberta);
}

std::unique_ptr<FamilyModel> galvatron::readElectra(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Electra);
}
