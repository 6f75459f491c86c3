//===- Opt.cpp - OPT and Galactica ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// OPT (Zhang et al., arXiv 2205.01068): layer norms, learnt positions whose
// table has two rows in front, a feed-forward network with ReLU. Galactica is
// the same with GELU and without biases.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readOpt(ConfigReader &reader) {
  reader.expectArchitecture({"OPTForCausalLM", "OPTModel"});
  int64_t inner = reader.positiveOr("ffn_dim", 3072);
  double range = reader.positiveNumberOr("init_std", 0.02);
  DecoderConfig config = readDecoder(reader, {.vocabSize = 50272,
                                              .width = 768,
                                              .inner = inner,
                                              .layers = 12,
                                              .heads = 12,
                                              .positions = 2048,
                                              .initializerRange = range,
                                              .tied = true,
                                              .padding = 1,
                                              .readsHeadSize = false});
  DecoderNames &names = config.names;
  names.stem = "model.decoder.";
  names.attentionNorm = "self_attn_layer_norm";
  names.innerNorm = "final_layer_norm";
  names.outputProduct = "self_attn.out_proj";
  names.up = "fc1";
  names.down = "fc2";
  names.finalNorm = "final_layer_norm";
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = 1e-5; // the library's, which no field says
  std::string activation = reader.stringOr("activation_function", "relu");
  if (activation == "relu")
    config.innerKind = DecoderConfig::Inner::Relu;
  else if (activation == "gelu")
    config.innerKind = DecoderConfig::Inner::Gelu;
  else
    reader.fail("activation_function", "unsupported activation '" + activation +
                                           "', expected 'relu' or 'gelu'");
  config.projectionBias = config.outputBias = config.innerBias =
      reader.booleanOr("enable_bias", true);
  haveBiases(reader, config);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("dropout", 0.1);
  reader.expectPlain("layerdrop", 0.0, "layers are not left out at random");
  reader.expectPlain("layer_norm_elementwise_affine", true,
                     "norms without weights are not supported");
  reader.expectPlain("do_layer_norm_before", true,
                     "norms behind the halves are not supported");
  reader.expectPlain("_remove_final_layer_norm", false);
  if (auto size = reader.positiveOrNull("word_embed_proj_dim", std::nullopt);
      size && *size != config.width)
    reader.fail("word_embed_proj_dim",
                "expected the width of the blocks, " +
                    llvm::Twine(config.width) +
                    reader.found("word_embed_proj_dim", *size));
  config.rowsBeforePositions = 2;
  config.rotates.assign(size_t(config.layers), false);
  haveWindows(reader, config);
  return makeDecoder(std::move(config));
}
