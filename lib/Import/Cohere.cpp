//===- Cohere.cpp - Command R and Command R7B -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention and a gated feed-forward network read one layer norm without a bias
// of a block's input and are added together; heads are rotated, pairs being
// neighbours; logits have a factor. In `cohere2` three of four layers have
// windows, and these alone are rotated. Command R+ has norms of queries and
// keys with a weight for each head.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

/// Fields of the first files of `cohere2`, which say what all its models do.
static void expectFirstFields(ConfigReader &reader, int64_t pattern,
                              bool tied) {
  reader.expectPlain("layer_switch", pattern);
  reader.expectPlain("order_of_interleaved_layers", "local_attn_first");
  reader.expectPlain("position_embedding_type", "rope_gptj");
  reader.expectPlain("use_embedding_sharing", tied);
  reader.expectPlain("use_gated_activation", true);
  reader.expectPlain("use_parallel_block", true);
  reader.passOver("use_parallel_embedding");
}

std::unique_ptr<FamilyModel> galvatron::readCohere(ConfigReader &reader) {
  const bool isLater = reader.getModelType() == "cohere2";
  if (isLater)
    reader.expectArchitecture({"Cohere2ForCausalLM", "Cohere2Model"});
  else
    reader.expectArchitecture({"CohereForCausalLM", "CohereModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 256000,
                                              .width = 8192,
                                              .inner = 22528,
                                              .layers = 40,
                                              .heads = 64,
                                              .positions = 8192,
                                              .tied = true,
                                              .padding = 0});
  config.place = DecoderConfig::NormPlace::BeforeBoth;
  config.norm = DecoderConfig::Norm::LayerWithoutBias;
  config.normEps = reader.positiveNumberOr("layer_norm_eps", 1e-5);
  readActivation(reader, "silu", {"silu", "swish"});
  config.projectionBias = config.outputBias =
      reader.booleanOr("attention_bias", false);
  expectNoChoice(reader, "mlp_bias", false);
  haveBiases(reader, config);
  if (isLater)
    reader.expectPlain("use_qk_norm", false,
                       "this family has no norms of queries and keys");
  else if (reader.booleanOr("use_qk_norm", false))
    config.queryNorm = DecoderConfig::QueryNorm::EachHead;
  config.logitScale = reader.positiveNumberOr("logit_scale", 0.0625);
  config.interleavedRotary = true;
  if (isLater) {
    int64_t pattern = reader.positiveOr("sliding_window_pattern", 4);
    readWindows(reader, config, /*usualWindow=*/4096,
                [&](int64_t layer) { return (layer + 1) % pattern != 0; });
    for (int64_t window : config.windows)
      config.rotates.push_back(window != 0);
    expectFirstFields(reader, pattern, config.tied);
  } else {
    expectNoWindows(reader, config);
  }
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/isLater ? 10000 : 500000);
  return makeDecoder(std::move(config));
}
