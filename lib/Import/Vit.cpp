//===- Vit.cpp - ViT and DeiT ---------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The vision transformer (Dosovitskiy et al., arXiv 2010.11929) with its head
// for classes, in the layout of its Hugging Face checkpoints. The embedding of
// patches is stored as a convolution [width, channels, rows, columns], whose
// stride is its size: a product with patches flattened in that order.
//
// DeiT (Touvron et al., arXiv 2012.12877) has a second learnt position behind
// the class token, which the head for classes does not read.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"
#include "galvatron/Support/Units.h"

#include <tuple>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

class Vit : public FamilyModel {
public:
  explicit Vit(ConfigReader &reader);

  /// Patches and what is learnt in front of them; no other length has position
  /// embeddings.
  int64_t positions() const override { return patches() + 1 + distilled(); }
  StringRef positionsField() const override { return "image_size"; }
  LengthRule lengthRule() const override { return LengthRule::Exactly; }
  void build(ModelBuilder &builder) const override;

private:
  int64_t patches() const {
    return imageRows / patchRows * (imageColumns / patchColumns);
  }
  /// Whether there is a token that a teacher's answers are learnt from.
  bool distilled() const { return modelType == "deit"; }
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;

  std::string modelType;
  EncoderConfig config;
  int64_t channels, classes;
  int64_t imageRows, imageColumns, patchRows, patchColumns;
};

Vit::Vit(ConfigReader &reader)
    : modelType(reader.getModelType()),
      config(EncoderConfig::read(reader, /*dropout=*/0.0)) {
  // The library does not train the class of two heads, "..WithTeacher".
  if (distilled())
    reader.expectArchitecture({"DeiTForImageClassification"});
  else
    reader.expectArchitecture({"ViTForImageClassification"});
  config.projectionBias = reader.booleanOr("qkv_bias", true);
  reader.have("all_biases", config.projectionBias);
  channels = reader.positiveOr("num_channels", 3);
  std::tie(imageRows, imageColumns) = reader.sizeOr("image_size", 224);
  std::tie(patchRows, patchColumns) = reader.sizeOr("patch_size", 16);
  // Bytes of f64, so that all that is counted from here on fits.
  int64_t bytes =
      multiplyBytes(multiplyBytes(channels * 8, imageRows), imageColumns);
  if (bytes > kMostLayerBytes)
    reader.fail("image_size", "expected images of at most " +
                                  Twine(kMostLayerBytes) +
                                  " bytes in f64, found " + Twine(imageRows) +
                                  " by " + Twine(imageColumns) + " of " +
                                  Twine(channels) + " channels");
  if (patchRows > imageRows || patchColumns > imageColumns)
    reader.fail("patch_size",
                "expected at most the size of images, " + Twine(imageRows) +
                    " by " + Twine(imageColumns) + ", found " +
                    Twine(patchRows) + " by " + Twine(patchColumns));
  classes = reader.classes();
  reader.expectPlain("problem_type", "single_label_classification");
  // Fields of the classes that restore images or pool.
  reader.passOver({"encoder_stride", "pooler_act", "pooler_output_size"});
}

BodyParameters Vit::embedParameters() const {
  int64_t width = config.width, patch = channels * patchRows * patchColumns;
  Initial normal = config.normal();
  BodyParameters list = {{"cls_token", {1, 1, width}, normal, {width}}};
  if (distilled())
    list.push_back({"distillation_token", {1, 1, width}, normal, {width}});
  list.push_back({"position_embeddings",
                  {1, positions(), width},
                  normal,
                  {positions(), width}});
  list.push_back({"patch_embeddings.projection.weight",
                  {width, channels, patchRows, patchColumns},
                  normal,
                  {width, patch}});
  list.push_back(
      {"patch_embeddings.projection.bias", {width}, Initial::zeros()});
  return list;
}

BodyParameters Vit::blockParameters() const {
  BodyParameters list;
  config.addNorm(list, "layernorm_before");
  config.addAttention(list, "attention.attention.");
  config.addNorm(list, "layernorm_after");
  config.addFeedForward(list);
  return list;
}

BodyParameters Vit::headParameters() const {
  BodyParameters list;
  config.addNorm(list, modelType + ".layernorm");
  config.addDense(list, "classifier", classes, config.width, "classes");
  return list;
}

void Vit::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  const std::string &type = modelType;
  const std::string embeddings = type + ".embeddings.";
  auto blockPrefix = [&](int64_t index) {
    return (type + ".encoder.layer." + Twine(index) + ".").str();
  };
  b.declareBlocks(embeddings, embed, blockPrefix, config.layers, block, head);

  RankedTensorType stream = b.activation({config.width});
  RankedTensorType images = b.images(channels, imageRows, imageColumns);
  b.body(type + ".embed", {images}, embed, stream, {},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value token = p.next();
           Value second = distilled() ? p.next() : Value();
           Value table = p.next();
           Value x =
               config.dense(b, b.patches(inputs[0], patchRows, patchColumns),
                            config.width, p);
           if (second)
             x = b.prepend(x, second);
           x = b.positionAdd(b.prepend(x, token), table);
           return b.dropout(x, config.hiddenDropout, 0);
         });
  b.body(type + ".block", {stream}, block, stream,
         {{"heads", config.heads}, {"ffn", config.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = inputs[0];
           Value part =
               config.attention(b, config.norm(b, x, p), /*mask=*/{}, p);
           x = b.add(x, b.dropout(part, config.hiddenDropout, 1));
           part = config.feedForward(b, config.norm(b, x, p), p);
           return b.add(x, b.dropout(part, config.hiddenDropout, 2));
         });
  // The norm takes every position on its own: the others are not needed.
  b.body(type + ".head", {stream, b.classes()}, head, b.loss(),
         {{"classes", classes, /*uneven=*/true}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value token = config.norm(b, b.take(inputs[0], 0), p);
           return b.crossEntropy(config.dense(b, token, classes, p), inputs[1],
                                 classes);
         });
  b.model(type, {{"images", images}, {"classes", b.classes(), classes}},
          [&](ValueRange data) {
            Value x = b.layer("embeddings", type + ".embed", data[0], stream,
                              embeddings, embed);
            for (int64_t index = 0; index < config.layers; ++index)
              x = b.layer("layer." + Twine(index), type + ".block", x, stream,
                          blockPrefix(index), block);
            return b.layer("head", type + ".head", {x, data[1]}, b.loss(), "",
                           head);
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readVit(ConfigReader &reader) {
  return std::make_unique<Vit>(reader);
}
