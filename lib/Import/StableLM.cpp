//===- StableLM.cpp - StableLM --------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLaMA's blocks with layer norms and heads that are rotated in part; in some
// models both halves of a block read one norm.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readStableLM(ConfigReader &reader) {
  reader.expectArchitecture({"StableLmForCausalLM", "StableLmModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 50304,
                                              .width = 2560,
                                              .inner = 6912,
                                              .layers = 32,
                                              .heads = 32,
                                              .keyHeads = 32,
                                              .positions = 4096,
                                              .readsHeadSize = false});
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("layer_norm_eps", 1e-5);
  readActivation(reader, "silu", {"silu", "swish"});
  config.projectionBias = reader.booleanOr("use_qkv_bias", false);
  haveBiases(reader, config);
  if (reader.booleanOr("use_parallel_residual", false))
    config.place = DecoderConfig::NormPlace::BeforeBoth;
  config.innerDropout = reader.probabilityOr("hidden_dropout", 0);
  reader.expectPlain("qk_layernorm", false);
  reader.expectPlain("rotary_scaling_factor", 1.0);
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000, /*usualPart=*/0.25);
  return makeDecoder(std::move(config));
}
