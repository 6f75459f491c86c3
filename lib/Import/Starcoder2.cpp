//===- Starcoder2.cpp - StarCoder 2 ---------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks with layer norms, biases, rotary embedding, grouped heads, a window on
// all layers, and a feed-forward network without a gate (Lozhkov et al., arXiv
// 2402.19173).
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readStarcoder2(ConfigReader &reader) {
  reader.expectArchitecture({"Starcoder2ForCausalLM", "Starcoder2Model"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 49152,
                                              .width = 3072,
                                              .inner = 12288,
                                              .layers = 30,
                                              .heads = 24,
                                              .keyHeads = 2,
                                              .positions = 4096,
                                              .initializerRange = 0.018042,
                                              .tied = true});
  config.names.up = "mlp.c_fc";
  config.names.down = "mlp.c_proj";
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("norm_epsilon", 1e-5);
  config.innerKind = readGelu(reader, "gelu_pytorch_tanh");
  config.projectionBias = config.outputBias = config.innerBias =
      reader.booleanOr("use_bias", true);
  haveBiases(reader, config);
  config.embeddingDropout = reader.probabilityOr("embedding_dropout", 0);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("residual_dropout", 0);
  // The library does anyway what these say in published files.
  reader.expectPlain("mlp_type", "default");
  reader.expectPlain("norm_type", "layer_norm");
  std::optional<int64_t> window =
      reader.positiveOrNull("sliding_window", std::nullopt);
  config.windows.assign(size_t(config.layers), window.value_or(0));
  reader.have("use_sliding_window", window.has_value());
  haveWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}
