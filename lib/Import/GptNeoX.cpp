//===- GptNeoX.cpp - GPT-NeoX and Pythia ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention and feed-forward have a layer norm each, read the block's input and
// are added together; heads are rotated in part; rows of queries, keys and
// values stand head by head in files (Black et al., arXiv 2204.06745).
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readGptNeoX(ConfigReader &reader) {
  using NormPlace = DecoderConfig::NormPlace;
  reader.expectArchitecture({"GPTNeoXForCausalLM", "GPTNeoXModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 50432,
                                              .width = 6144,
                                              .inner = 24576,
                                              .layers = 44,
                                              .heads = 64,
                                              .positions = 2048,
                                              .readsHeadSize = false});
  DecoderNames &names = config.names;
  names.stem = "gpt_neox.";
  names.words = "embed_in";
  names.head = "embed_out";
  names.finalNorm = "final_layer_norm";
  names.query = "attention.query";
  names.key = "attention.key";
  names.value = "attention.value";
  names.fusedHeads = "attention.query_key_value";
  names.outputProduct = "attention.dense";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  config.fusedByKeyHead = true;
  config.place = reader.booleanOr("use_parallel_residual", true)
                     ? NormPlace::BeforeBothApart
                     : NormPlace::Before;
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("layer_norm_eps", 1e-5);
  config.innerKind = readGelu(reader, "gelu");
  config.projectionBias = config.outputBias =
      reader.booleanOr("attention_bias", true);
  config.innerBias = true;
  haveBiases(reader, config);
  config.embeddingDropout = config.outputDropout = config.innerDropout =
      reader.probabilityOr("hidden_dropout", 0);
  // The row of the padding token is learned as all others.
  config.padding = std::nullopt;
  haveWindows(reader, config);
  double part = reader.positiveNumberOr("rotary_pct", 0.25);
  double theta = reader.positiveNumberOr("rotary_emb_base", 10000);
  config.rotary =
      readRotary(reader, config.headSize, config.positions, theta, part);
  return makeDecoder(std::move(config));
}
