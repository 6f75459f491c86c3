//===- Phi.cpp - Phi ------------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Phi 1, 1.5 and 2: attention and a feed-forward network without a gate read
// one layer norm of a block's input and are added together; heads are rotated
// in part; everything has a bias (Gunasekar et al., arXiv 2306.11644).
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readPhi(ConfigReader &reader) {
  reader.expectArchitecture({"PhiForCausalLM", "PhiModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 51200,
                                              .width = 2048,
                                              .inner = 8192,
                                              .layers = 24,
                                              .heads = 32,
                                              .positions = 2048});
  config.names.outputProduct = "self_attn.dense";
  config.names.up = "mlp.fc1";
  config.names.down = "mlp.fc2";
  config.names.finalNorm = "final_layernorm";
  config.place = DecoderConfig::NormPlace::BeforeBoth;
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("layer_norm_eps", 1e-5);
  config.innerKind = readGelu(reader, "gelu_new");
  config.projectionBias = config.outputBias = config.innerBias =
      config.headBias = true;
  haveBiases(reader, config);
  config.embeddingDropout = reader.probabilityOr("embd_pdrop", 0);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("resid_pdrop", 0);
  reader.expectPlain("qk_layernorm", false);
  expectNoWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000, /*usualPart=*/0.5);
  return makeDecoder(std::move(config));
}
