//===- Olmo.cpp - OLMo, OLMo 2 and OLMo 3 ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// OLMo (Groeneveld et al., arXiv 2402.00838) has LLaMA's blocks with layer
// norms that have no weights; in some sizes queries, keys and values are cut
// off at a limit. OLMo 2 has blocks with RMS norms behind both halves and over
// all queries and all keys at once (OLMo team, arXiv 2501.00656); OLMo 3 has
// windows in three of four layers. The library multiplies by a norm's weight
// before it rounds, the other families' behind that: below f32 the last bit of
// a norm may differ.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include <cmath>

using namespace galvatron;

/// Reads the sizes, which have the same defaults in all versions.
static DecoderConfig readSizes(ConfigReader &reader) {
  return readDecoder(reader, {.vocabSize = 50304,
                              .width = 4096,
                              .inner = 11008,
                              .layers = 32,
                              .heads = 32,
                              .positions = 2048,
                              .padding = 1});
}

/// Reads the activation and the biases of products.
static void readActivationAndBiases(ConfigReader &reader,
                                    DecoderConfig &config) {
  readActivation(reader, "silu", {"silu", "swish"});
  config.projectionBias = config.outputBias =
      reader.booleanOr("attention_bias", false);
  expectNoChoice(reader, "mlp_bias", false);
  haveBiases(reader, config);
}

static DecoderConfig readOlmoParts(ConfigReader &reader) {
  DecoderConfig config = readSizes(reader);
  config.names.attentionNorm = "post_attention_layernorm";
  config.names.innerNorm = "post_feedforward_layernorm";
  config.place = DecoderConfig::NormPlace::Behind;
  config.queryNorm = DecoderConfig::QueryNorm::Whole;
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-5);
  readActivationAndBiases(reader, config);
  return config;
}

std::unique_ptr<FamilyModel> galvatron::readOlmo(ConfigReader &reader) {
  reader.expectArchitecture({"OlmoForCausalLM", "OlmoModel"});
  DecoderConfig config = readSizes(reader);
  config.norm = DecoderConfig::Norm::Plain;
  config.normEps = 1e-5; // the library has no field for it
  readActivationAndBiases(reader, config);
  config.clip = reader.positiveNumberOrNull("clip_qkv").value_or(0);
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}

std::unique_ptr<FamilyModel> galvatron::readOlmo2(ConfigReader &reader) {
  reader.expectArchitecture({"Olmo2ForCausalLM", "Olmo2Model"});
  DecoderConfig config = readOlmoParts(reader);
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}

std::unique_ptr<FamilyModel> galvatron::readOlmo3(ConfigReader &reader) {
  reader.expectArchitecture({"Olmo3ForCausalLM", "Olmo3Model"});
  DecoderConfig config = readOlmoParts(reader);
  readWindows(reader, config, /*usualWindow=*/4096,
              [](int64_t layer) { return (layer + 1) % 4 != 0; });
  // The base outside of `rope_parameters` is that of layers without windows.
  constexpr double usualTheta = 500000;
  RotaryByKind rotary = readRotaryByKind(
      reader, config.headSize, config.positions,
      reader.positiveNumberOr("rope_theta", usualTheta), usualTheta);
  config.rotary = std::move(rotary.full);
  config.slidingRotary = std::move(rotary.sliding);
  return makeDecoder(std::move(config));
}
