//===- Bert.cpp - The BERT family -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// BERT (Devlin et al., arXiv 1810.04805) with its head for masked words, in the
// layout of its Hugging Face checkpoints. Norms stand behind what they
// normalise; padding is a mask that every block reads.
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

class Bert : public FamilyModel {
public:
  explicit Bert(ConfigReader &reader);

  int64_t positions() const override { return maxPositions; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;

  EncoderConfig config;
  int64_t vocabSize, maxPositions, tokenTypes;
  std::optional<int64_t> padding;
};

Bert::Bert(ConfigReader &reader)
    : config(EncoderConfig::read(reader, /*dropout=*/0.1)) {
  reader.expectArchitecture({"BertForMaskedLM", "BertModel"});
  vocabSize = reader.positiveOr("vocab_size", 30522);
  maxPositions = reader.positiveOr("max_position_embeddings", 512);
  tokenTypes = reader.positiveOr("type_vocab_size", 2);
  padding = reader.paddingToken(/*fallback=*/0, vocabSize);
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
       {"cls.predictions.decoder.weight"}},
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
  config.addDense(list, "cls.predictions.transform.dense", config.width,
                  config.width);
  config.addNorm(list, "cls.predictions.transform.LayerNorm");
  list.push_back({"bert.embeddings.word_embeddings.weight",
                  {vocabSize, config.width},
                  config.normal(),
                  {},
                  {"vocab", ""},
                  /*borrowed=*/true});
  list.push_back({"cls.predictions.bias",
                  {vocabSize},
                  Initial::zeros(),
                  {},
                  {"vocab"},
                  /*borrowed=*/false,
                  {"cls.predictions.decoder.bias"}});
  return list;
}

void Bert::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  auto blockPrefix = [](int64_t index) {
    return ("bert.encoder.layer." + Twine(index) + ".").str();
  };
  b.declareBlocks("bert.embeddings.", embed, blockPrefix, config.layers, block,
                  head);

  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", vocabSize, /*uneven=*/true};
  b.body("bert.embed", {b.tokens(), b.tokens()}, embed, stream, {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.embedding(inputs[0], p.next(), padding);
           x = b.positionAdd(x, p.next());
           x = b.add(x, b.embedding(inputs[1], p.next()));
           return b.dropout(config.norm(b, x, p), config.hiddenDropout, 0);
         });
  b.body("bert.block", {stream, b.tokens()}, block, stream,
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
  b.body("bert.head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = config.dense(b, inputs[0], config.width, p);
           x = config.norm(b, b.gelu(x, config.tanhGelu), p);
           Value logits = config.dense(b, x, vocabSize, p);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  b.model("bert",
          {{"tokens", b.tokens(), vocabSize},
           {"mask", b.tokens(), /*below=*/2},
           {"token_types", b.tokens(), tokenTypes},
           {"labels", b.tokens(), vocabSize}},
          [&](ValueRange data) {
            Value x = b.layer("embeddings", "bert.embed", {data[0], data[2]},
                              stream, "bert.embeddings.", embed);
            for (int64_t index = 0; index < config.layers; ++index)
              x = b.layer("layer." + Twine(index), "bert.block", {x, data[1]},
                          stream, blockPrefix(index), block);
            return b.layer("head", "bert.head", {x, data[3]}, b.loss(), "",
                           head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readBert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader);
}
