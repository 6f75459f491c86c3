//===- Glm.cpp - GLM 4 ----------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GLM 4 of 2024 (`glm`) and of 2025 (`glm4`): LLaMA with half of a head
// rotated, pairs being neighbours, and with gate and up in one tensor of files
// (Team GLM, arXiv 2406.12793); the later has norms behind both halves besides,
// and calls the one before the feed-forward `post_attention_layernorm` still.
// A field `attention_bias` is of queries, keys and values alone.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readGlm(ConfigReader &reader) {
  DecoderConfig config = readDecoder(reader, {.vocabSize = 151552,
                                              .width = 4096,
                                              .inner = 13696,
                                              .layers = 40,
                                              .heads = 32,
                                              .keyHeads = 2,
                                              .headSize = 128,
                                              .positions = 131072,
                                              .padding = 151329});
  const bool isLater = config.modelType == "glm4";
  if (isLater)
    reader.expectArchitecture({"Glm4ForCausalLM", "Glm4Model"});
  else
    reader.expectArchitecture({"GlmForCausalLM", "GlmModel"});
  config.names.fusedInner = "mlp.gate_up_proj";
  if (isLater) {
    config.place = DecoderConfig::NormPlace::Around;
    config.names.attentionNormBehind = "post_self_attn_layernorm";
    config.names.innerNormBehind = "post_mlp_layernorm";
  }
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1.5625e-7);
  readActivation(reader, "silu", {"silu", "swish"});
  config.projectionBias = reader.booleanOr("attention_bias", true);
  expectNoChoice(reader, "mlp_bias", false);
  haveBiases(reader, config);
  expectNoWindows(reader, config);
  config.interleavedRotary = true;
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000, /*usualPart=*/0.5);
  return makeDecoder(std::move(config));
}
