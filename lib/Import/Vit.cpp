//===- Vit.cpp - ViT, DeiT and DINOv2 -------------------------------------===//
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
// DINOv2 (Oquab et al., arXiv 2304.07193) multiplies what the halves of a block
// add by vectors, which are learnt (layer scale), has in its largest size a
// gated feed-forward, and a head that reads the class token and the mean of the
// patches. The token that stands for hidden patches is in its files and nowhere
// read.
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
  int64_t positions() const override {
    return patches() + 1 + (distilled() ? 1 : 0);
  }
  StringRef positionsField() const override { return "image_size"; }
  LengthRule lengthRule() const override { return LengthRule::Exactly; }
  void build(ModelBuilder &builder) const override;

private:
  int64_t patches() const {
    return imageRows / patchRows * (imageColumns / patchColumns);
  }
  /// Whether there is a token that a teacher's answers are learnt from.
  bool distilled() const { return modelType == "deit"; }
  bool isDino() const { return modelType == "dinov2"; }
  static EncoderConfig readSizes(ConfigReader &reader);
  void readDinoParts(ConfigReader &reader);
  void addInner(BodyParameters &list) const;
  Value inner(ModelBuilder &b, Value x, ParameterCursor &p) const;
  /// The sum that a half adds, multiplied by its layer scale or dropped in
  /// part.
  Value branch(ModelBuilder &b, Value x, int64_t opIndex,
               ParameterCursor &p) const {
    return isDino() ? b.columnScale(x, p.next())
                    : b.dropout(x, config.hiddenDropout, opIndex);
  }
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;

  std::string modelType;
  EncoderConfig config;
  int64_t channels, classes;
  int64_t imageRows, imageColumns, patchRows, patchColumns;
  // Of DINOv2.
  bool gated = false, hasMaskToken = false;
  double layerScale = 1;
};

/// DINOv2 has a multiple of the width where the others have a size.
EncoderConfig Vit::readSizes(ConfigReader &reader) {
  if (reader.getModelType() != "dinov2")
    return EncoderConfig::read(reader, /*dropout=*/0.0);
  EncoderConfig config =
      EncoderConfig::readCommon(reader, /*normEps=*/1e-6, /*dropout=*/0.0);
  config.width = reader.positiveOr("hidden_size", 768);
  config.layers = reader.positiveOr("num_hidden_layers", 12);
  config.heads = reader.positiveOr("num_attention_heads", 12);
  config.inner = multiplyBytes(reader.positiveOr("mlp_ratio", 4), config.width);
  if (config.width % config.heads)
    reader.fail("hidden_size",
                "expected a multiple of 'num_attention_heads' = " +
                    Twine(config.heads) +
                    reader.found("hidden_size", config.width));
  reader.have("num_key_value_heads", config.heads);
  reader.have("head_dim", config.width / config.heads);
  return config;
}

void Vit::readDinoParts(ConfigReader &reader) {
  gated = reader.booleanOr("use_swiglu_ffn", false);
  // Two thirds of the size, in whole eights.
  if (gated)
    config.inner = (config.inner * 2 / 3 + 7) / 8 * 8;
  reader.have("gated", gated);
  reader.have("intermediate_size", config.inner);
  hasMaskToken = reader.booleanOr("use_mask_token", true);
  layerScale = reader.positiveNumberOr("layerscale_value", 1);
  reader.expectPlain("drop_path_rate", 0.0,
                     "a rate that is the same in all layers is not there");
  if (imageRows != imageColumns)
    reader.fail("image_size",
                "expected square images, as the library stretches "
                "the positions of others, found " +
                    Twine(imageRows) + " by " + Twine(imageColumns));
  // Of the class that hands out feature maps.
  reader.passOver({"apply_layernorm", "reshape_hidden_states", "out_features",
                   "out_indices", "stage_names"});
}

Vit::Vit(ConfigReader &reader)
    : modelType(reader.getModelType()), config(readSizes(reader)) {
  // The library does not train the class of two heads, "..WithTeacher".
  if (distilled())
    reader.expectArchitecture({"DeiTForImageClassification"});
  else if (isDino())
    reader.expectArchitecture({"Dinov2ForImageClassification", "Dinov2Model"});
  else
    reader.expectArchitecture({"ViTForImageClassification"});
  config.projectionBias = reader.booleanOr("qkv_bias", true);
  reader.have("all_biases", config.projectionBias);
  channels = reader.positiveOr("num_channels", 3);
  std::tie(imageRows, imageColumns) = reader.sizeOr("image_size", 224);
  std::tie(patchRows, patchColumns) =
      reader.sizeOr("patch_size", isDino() ? 14 : 16);
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
  if (isDino())
    readDinoParts(reader);
  classes = reader.classes();
  reader.expectPlain("problem_type", "single_label_classification");
  // Fields of the classes that restore images or pool.
  reader.passOver({"encoder_stride", "pooler_act", "pooler_output_size"});
  // All files of the library had it before version 5; there are no words.
  reader.passOver("tie_word_embeddings");
}

BodyParameters Vit::embedParameters() const {
  int64_t width = config.width, patch = channels * patchRows * patchColumns;
  Initial normal = config.normal();
  BodyParameters list = {{"cls_token", {1, 1, width}, normal, {width}}};
  if (distilled())
    list.push_back({"distillation_token", {1, 1, width}, normal, {width}});
  if (hasMaskToken) {
    list.push_back({"mask_token", {1, width}, Initial::zeros()});
    list.back().frozen = true;
  }
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

/// The feed-forward of DINOv2, gated or not.
void Vit::addInner(BodyParameters &list) const {
  if (!gated) {
    config.addDense(list, "mlp.fc1", config.inner, config.width, "ffn");
    config.addDense(list, "mlp.fc2", config.width, config.inner, "", "ffn");
    return;
  }
  int64_t first = 0;
  for (StringRef name : {"mlp.gate_proj", "mlp.up_proj"}) {
    config.addDense(list, name, config.inner, config.width, "ffn");
    for (auto [parameter, end] : {std::pair(&list[list.size() - 2], ".weight"),
                                  std::pair(&list.back(), ".bias")})
      parameter->part = StoredPart{std::string("mlp.weights_in") + end, first,
                                   config.inner, 2 * config.inner};
    first += config.inner;
  }
  config.addDense(list, "mlp.weights_out", config.width, config.inner, "",
                  "ffn");
}

Value Vit::inner(ModelBuilder &b, Value x, ParameterCursor &p) const {
  Value hidden = config.dense(b, x, config.inner, p);
  hidden = gated ? b.gatedSilu(hidden, config.dense(b, x, config.inner, p))
                 : b.gelu(hidden, config.tanhGelu);
  return config.dense(b, hidden, config.width, p);
}

BodyParameters Vit::blockParameters() const {
  BodyParameters list;
  auto addScale = [&](StringRef name) {
    list.push_back({name.str(), {config.width}, Initial::constant(layerScale)});
  };
  config.addNorm(list, isDino() ? "norm1" : "layernorm_before");
  config.addAttention(list, "attention.attention.");
  if (isDino())
    addScale("layer_scale1.lambda1");
  config.addNorm(list, isDino() ? "norm2" : "layernorm_after");
  if (isDino())
    addInner(list);
  else
    config.addFeedForward(list);
  if (isDino())
    addScale("layer_scale2.lambda1");
  return list;
}

BodyParameters Vit::headParameters() const {
  BodyParameters list;
  config.addNorm(list, modelType + ".layernorm");
  config.addDense(list, "classifier", classes,
                  (isDino() ? 2 : 1) * config.width, "classes");
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
           if (hasMaskToken)
             p.next();
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
           x = b.add(x, branch(b, part, 1, p));
           Value normed = config.norm(b, x, p);
           part = isDino() ? inner(b, normed, p)
                           : config.feedForward(b, normed, p);
           return b.add(x, branch(b, part, 2, p));
         });
  // The norm takes every position on its own: the others are not needed.
  b.body(type + ".head", {stream, b.classes()}, head, b.loss(),
         {{"classes", classes, /*uneven=*/true}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value token = isDino() ? b.mean(config.norm(b, inputs[0], p),
                                           /*besideFirst=*/true)
                                  : config.norm(b, b.take(inputs[0], 0), p);
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
