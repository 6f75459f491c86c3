//===- Gemma.cpp - Gemma, Gemma 2 and Gemma 3 -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoders whose embeddings are scaled by the root of the width, whose norms
// scale by one more than their weight, and whose gate is GELU by the hyperbolic
// tangent (Gemma team, arXiv 2403.08295). Gemma 2 (arXiv 2408.00118) has norms
// before and behind each half, soft caps of scores and logits, and windows in
// every other layer. Gemma 3 (arXiv 2503.19786) has the norms, others of every
// query and key head in place of caps, and windows in all but every sixth
// layer, which rotate by another base.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include <cmath>

using namespace galvatron;

/// Reads what both families share: ties, norms, gates, embeddings.
static void readGemmaParts(ConfigReader &reader, DecoderConfig &config) {
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-6);
  config.unitOffset = true;
  config.innerKind = DecoderConfig::Inner::GatedTanhGelu;
  config.embeddingScale = std::sqrt(double(config.width));
  config.roundsEmbeddingScale = true;
  config.projectionBias = config.outputBias =
      reader.booleanOr("attention_bias", false);
  expectNoChoice(reader, "mlp_bias", false);
  haveBiases(reader, config);
  reader.expectPlain("use_bidirectional_attention", false);
  if (!config.tied)
    reader.fail("tie_word_embeddings", "unsupported, expected true, found "
                                       "false");
}

static void expectTanhGelu(ConfigReader &reader, llvm::StringRef field) {
  readActivation(reader, "gelu_pytorch_tanh",
                 {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}, field);
}

std::unique_ptr<FamilyModel> galvatron::readGemma(ConfigReader &reader) {
  reader.expectArchitecture({"GemmaForCausalLM", "GemmaModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 256000,
                                              .width = 3072,
                                              .inner = 24576,
                                              .layers = 28,
                                              .heads = 16,
                                              .keyHeads = 16,
                                              .headSize = 256,
                                              .positions = 8192,
                                              .tied = true,
                                              .padding = 0});
  // The first files say "gelu" and mean the other one; the library takes it so.
  if (reader.says("hidden_act", "gelu"))
    reader.passOver("hidden_act");
  else
    expectTanhGelu(reader, "hidden_act");
  reader.have("hidden_act", "gelu_new");
  readGemmaParts(reader, config);
  reader.expectPlain("hidden_activation", "gelu_pytorch_tanh");
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}

/// Reads what Gemma 2 and 3 share: norms around both halves, and the factor of
/// scores.
static void readLaterGemmaParts(ConfigReader &reader, DecoderConfig &config) {
  config.names.attentionNormBehind = "post_attention_layernorm";
  config.names.innerNorm = "pre_feedforward_layernorm";
  config.names.innerNormBehind = "post_feedforward_layernorm";
  config.place = DecoderConfig::NormPlace::Around;
  expectTanhGelu(reader, "hidden_activation");
  readGemmaParts(reader, config);
  config.attentionScale =
      1 / std::sqrt(reader.positiveNumberOr("query_pre_attn_scalar", 256));
}

/// A soft cap: `usual` where it is absent, none (0) where it is null.
static double readCap(ConfigReader &reader, llvm::StringRef field,
                      double usual) {
  std::optional<double> cap = reader.positiveNumberOrNull(field);
  return cap.value_or(reader.has(field) ? 0 : usual);
}

std::unique_ptr<FamilyModel> galvatron::readGemma2(ConfigReader &reader) {
  reader.expectArchitecture({"Gemma2ForCausalLM", "Gemma2Model"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 256000,
                                              .width = 2304,
                                              .inner = 9216,
                                              .layers = 26,
                                              .heads = 8,
                                              .keyHeads = 4,
                                              .headSize = 256,
                                              .positions = 8192,
                                              .tied = true,
                                              .padding = 0});
  // Files of the first weights have both; the library reads the latter.
  reader.passOver("hidden_act");
  readLaterGemmaParts(reader, config);
  config.scoreCap = readCap(reader, "attn_logit_softcapping", 50);
  config.logitCap = readCap(reader, "final_logit_softcapping", 30);
  readWindows(reader, config, /*usualWindow=*/4096,
              [](int64_t layer) { return layer % 2 == 0; });
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}

std::unique_ptr<FamilyModel> galvatron::readGemma3(ConfigReader &reader) {
  reader.expectArchitecture({"Gemma3ForCausalLM", "Gemma3TextModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 262208,
                                              .width = 2304,
                                              .inner = 9216,
                                              .layers = 26,
                                              .heads = 8,
                                              .keyHeads = 4,
                                              .headSize = 256,
                                              .positions = 131072,
                                              .tied = true,
                                              .padding = 0});
  config.queryNorm = DecoderConfig::QueryNorm::Head;
  readLaterGemmaParts(reader, config);
  // The library reads no cap of scores here.
  reader.passOver("attn_logit_softcapping");
  reader.expectPlain("final_logit_softcapping", nullptr);
  int64_t pattern = reader.positiveOr("sliding_window_pattern", 6);
  // The library writes it and reads `layer_types`.
  reader.passOver("_sliding_window_pattern");
  readWindows(reader, config, /*usualWindow=*/4096,
              [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  RotaryByKind rotary =
      readRotaryByKind(reader, config.headSize, config.positions,
                       reader.positiveNumberOr("rope_theta", 1e6),
                       reader.positiveNumberOr("rope_local_base_freq", 1e4));
  config.rotary = std::move(rotary.full);
  config.slidingRotary = std::move(rotary.sliding);
  return makeDecoder(std::move(config));
}
