//===- Granite.cpp - Granite ----------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLaMA's blocks with a factor on embeddings, scores, what a half adds, and
// logits.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readGranite(ConfigReader &reader) {
  reader.expectArchitecture({"GraniteForCausalLM", "GraniteModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 32000,
                                              .width = 4096,
                                              .inner = 11008,
                                              .layers = 32,
                                              .heads = 32,
                                              .positions = 2048});
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-6);
  readActivation(reader, "silu", {"silu", "swish"});
  readBiases(reader, config);
  expectNoWindows(reader, config);
  // The scores' factor is not the root of the head size unless it says so.
  config.embeddingScale = reader.positiveNumberOr("embedding_multiplier", 1);
  config.attentionScale = reader.positiveNumberOr("attention_multiplier", 1);
  config.residualScale = reader.positiveNumberOr("residual_multiplier", 1);
  config.logitScale = 1 / reader.positiveNumberOr("logits_scaling", 1);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}
