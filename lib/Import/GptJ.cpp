//===- GptJ.cpp - GPT-J ---------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention without biases and a feed-forward network with them read one layer
// norm of a block's input and are added together; the first `rotary_dim`
// elements of a head are rotated, pairs being neighbours; the head has a bias
// (Wang and Komatsuzaki, "GPT-J-6B", 2021). What files call `n_embd` the
// library takes as `hidden_size` as well.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include <cmath>

using namespace galvatron;

/// Rotation with the base 10000 of the first `rotary_dim` elements of a head.
static Rotary readPart(ConfigReader &reader, int64_t headSize) {
  int64_t part = reader.positiveOr("rotary_dim", 64);
  Rotary rotary;
  if (part % 2 || part > headSize) {
    reader.fail("rotary_dim", "expected an even number of at most the " +
                                  llvm::Twine(headSize) +
                                  " elements of a head" +
                                  reader.found("rotary_dim", part));
    return rotary;
  }
  for (int64_t pair = 0; pair < part / 2; ++pair)
    rotary.usual.frequencies.push_back(
        std::pow(10000.0, -2.0 * double(pair) / double(part)));
  return rotary;
}

std::unique_ptr<FamilyModel> galvatron::readGptJ(ConfigReader &reader) {
  reader.expectArchitecture({"GPTJForCausalLM", "GPTJModel"});
  int64_t width = reader.positiveOr("n_embd", 4096);
  int64_t inner =
      reader.positiveOrNull("n_inner", std::nullopt).value_or(4 * width);
  double attentionDropout = reader.probabilityOr("attn_pdrop", 0);
  DecoderConfig config =
      readDecoder(reader, {.vocabSize = 50400,
                           .width = width,
                           .inner = inner,
                           .layers = reader.positiveOr("n_layer", 28),
                           .heads = reader.positiveOr("n_head", 16),
                           .positions = reader.positiveOr("n_positions", 2048),
                           .readsHeadSize = false,
                           .readsKeyHeads = false,
                           .readsInner = false});
  config.positionsField = "n_positions";
  DecoderNames &names = config.names;
  names.stem = "transformer.";
  names.blocks = "h.";
  names.words = "wte";
  names.query = "attn.q_proj";
  names.key = "attn.k_proj";
  names.value = "attn.v_proj";
  names.outputProduct = "attn.out_proj";
  names.attentionNorm = "ln_1";
  names.up = "mlp.fc_in";
  names.down = "mlp.fc_out";
  names.finalNorm = "ln_f";
  config.place = DecoderConfig::NormPlace::BeforeBoth;
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-5);
  config.innerKind = readGelu(reader, "gelu_new", "activation_function");
  config.innerBias = config.headBias = true;
  haveBiases(reader, config);
  config.attentionDropout = attentionDropout;
  config.embeddingDropout = reader.probabilityOr("embd_pdrop", 0);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("resid_pdrop", 0);
  // A token that fills up sequences has no row of its own in this family.
  config.padding = std::nullopt;
  expectNoWindows(reader, config);
  config.interleavedRotary = true;
  config.rotary = readPart(reader, config.headSize);
  return makeDecoder(std::move(config));
}
