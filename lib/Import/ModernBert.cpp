//===- ModernBert.cpp - ModernBERT ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ModernBERT (Warner et al., arXiv 2412.13663): an encoder with blocks like a
// decoder's of today, layer norms without biases before both halves (the norm
// of the embeddings is the first block's), rotated heads and a gated
// feed-forward with the exact GELU. Two of three layers see a window to either
// side and are rotated with another base. Weights start as normal numbers,
// where the library draws again what is beyond `initializer_cutoff_factor`
// deviations.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include <cmath>

using namespace galvatron;

namespace {

DecoderNames modernBertNames() {
  DecoderNames names;
  names.words = "embeddings.tok_embeddings";
  names.embeddingNorm = "embeddings.norm";
  names.head = "decoder";
  names.query = "attn.q_proj";
  names.key = "attn.k_proj";
  names.value = "attn.v_proj";
  names.fusedHeads = "attn.Wqkv";
  names.outputProduct = "attn.Wo";
  names.attentionNorm = "attn_norm";
  names.innerNorm = "mlp_norm";
  names.gate = "mlp.gate_proj";
  names.up = "mlp.up_proj";
  names.fusedInner = "mlp.Wi";
  names.down = "mlp.Wo";
  names.finalNorm = "final_norm";
  names.headProduct = "head.dense";
  names.headNorm = "head.norm";
  return names;
}

/// Windows of half of `local_attention` to either side.
void readLocalLayers(ConfigReader &reader, DecoderConfig &config) {
  const int64_t reach = reader.positiveOr("local_attention", 128) / 2 + 1;
  const int64_t pattern = reader.positiveOr("global_attn_every_n_layers", 3);
  auto listed = readSlidingLayers(reader, config.layers);
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (listed ? (*listed)[size_t(layer)] : layer % pattern != 0)
      config.windows[size_t(layer)] = reach;
  reader.have("use_sliding_window", true);
  haveWindows(reader, config);
  reader.expectPlain("rope_scaling", nullptr,
                     "the library scales both kinds of layers by it");
  RotaryByKind rotary =
      readRotaryByKind(reader, config.headSize, config.positions,
                       reader.positiveNumberOr("global_rope_theta", 160000),
                       reader.positiveNumberOr("local_rope_theta", 10000));
  config.rotary = std::move(rotary.full);
  config.slidingRotary = std::move(rotary.sliding);
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readModernBert(ConfigReader &reader) {
  reader.expectArchitecture({"ModernBertForMaskedLM", "ModernBertModel"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 50368,
                                              .width = 768,
                                              .inner = 1152,
                                              .layers = 22,
                                              .heads = 12,
                                              .positions = 8192,
                                              .tied = true,
                                              .padding = 50283,
                                              .readsHeadSize = false,
                                              .readsKeyHeads = false});
  config.names = modernBertNames();
  config.causal = false;
  config.norm = reader.booleanOr("norm_bias", false)
                    ? DecoderConfig::Norm::Layer
                    : DecoderConfig::Norm::LayerWithoutBias;
  config.normEps = reader.positiveNumberOr("norm_eps", 1e-5);
  config.normsFirst = false;
  config.embeddingNorm = true;
  config.innerKind =
      readActivation(reader, "gelu", {"gelu"}, "hidden_activation")
          ? DecoderConfig::Inner::GatedTanhGelu
          : DecoderConfig::Inner::GatedGelu;
  readActivation(reader, "gelu", {"gelu"}, "classifier_activation");
  readBiases(reader, config);
  config.headBias = reader.booleanOr("decoder_bias", true);
  config.headProductBias = reader.booleanOr("classifier_bias", false);
  config.outputRange =
      config.initializerRange / std::sqrt(2.0 * double(config.layers));
  config.embeddingDropout = reader.probabilityOr("embedding_dropout", 0);
  config.outputDropout = config.attentionDropout;
  config.hiddenDropout = reader.probabilityOr("mlp_dropout", 0);
  readLocalLayers(reader, config);
  // Of other heads, of kernels, of how the same loss is computed, and of files
  // that have BERT's fields as well.
  reader.passOver({"classifier_pooling", "classifier_dropout",
                   "deterministic_flash_attn", "sparse_prediction",
                   "sparse_pred_ignore_index", "reference_compile",
                   "repad_logits_with_grad", "initializer_cutoff_factor",
                   "position_embedding_type", "layer_norm_eps"});
  return makeDecoder(std::move(config));
}
