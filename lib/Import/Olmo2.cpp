//===- Olmo2.cpp - OLMo 2 -------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks with RMS norms behind both halves and over all queries and all keys at
// once (OLMo team, arXiv 2501.00656). The library multiplies by a norm's weight
// before it rounds, the other families' behind that: below f32 the last bit of
// a norm may differ.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readOlmo2(ConfigReader &reader) {
  reader.expectArchitecture({"Olmo2ForCausalLM", "Olmo2Model"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 50304,
                                              .width = 4096,
                                              .inner = 11008,
                                              .layers = 32,
                                              .heads = 32,
                                              .positions = 2048,
                                              .padding = 1});
  config.names.attentionNorm = "post_attention_layernorm";
  config.names.innerNorm = "post_feedforward_layernorm";
  config.place = DecoderConfig::NormPlace::Behind;
  config.queryNorm = DecoderConfig::QueryNorm::Whole;
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-5);
  readActivation(reader, "silu", {"silu", "swish"});
  config.projectionBias = config.outputBias =
      reader.booleanOr("attention_bias", false);
  expectNoChoice(reader, "mlp_bias", false);
  haveBiases(reader, config);
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}
