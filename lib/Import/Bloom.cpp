//===- Bloom.cpp - BLOOM and MPT ------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoders whose scores have distances times slopes of heads added (ALiBi,
// Press et al., arXiv 2108.12409) in place of positions. BLOOM (arXiv
// 2211.05100) has a layer norm behind the table of words, and rows of queries,
// keys and values head by head in files; MPT has no biases at all. Sequences of
// BLOOM may have any length. Below f32 the library rounds distances times
// slopes before they are added, which the kernels do not.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

namespace {

/// The fields of sizes, of which the first names win, and their values where
/// they are absent.
struct AlibiSizes {
  llvm::ArrayRef<llvm::StringLiteral> widthFields;
  llvm::StringLiteral headsField, layersField, positionsField;
  int64_t vocabSize, width, heads, layers;
};
constexpr int64_t kUsualPositions = 2048;
constexpr llvm::StringLiteral kBloomWidths[] = {"n_embed", "hidden_size"};
constexpr llvm::StringLiteral kMptWidths[] = {"d_model"};

} // namespace

/// A tied decoder without rotations whose scores have distances times slopes of
/// heads; its feed-forward is four times as wide as its blocks.
static DecoderConfig readAlibiDecoder(ConfigReader &reader,
                                      const AlibiSizes &sizes) {
  int64_t width = reader.positiveOr(sizes.widthFields, sizes.width);
  int64_t heads = reader.positiveOr(sizes.headsField, sizes.heads);
  int64_t layers = reader.positiveOr(sizes.layersField, sizes.layers);
  int64_t positions = reader.positiveOr(sizes.positionsField, kUsualPositions);
  DecoderConfig config = readDecoder(reader, {.vocabSize = sizes.vocabSize,
                                              .width = width,
                                              .inner = 4 * width,
                                              .layers = layers,
                                              .heads = heads,
                                              .positions = positions,
                                              .tied = true,
                                              .readsHeadSize = false,
                                              .readsKeyHeads = false,
                                              .readsInner = false});
  if (config.width != width)
    reader.fail("hidden_size", "expected the number of '" +
                                   sizes.widthFields.front() + "', " +
                                   llvm::Twine(width) +
                                   reader.found("hidden_size", config.width));
  config.positionsField = sizes.positionsField;
  config.names.stem = "transformer.";
  config.normEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-5);
  // The row of the padding token is learned as all others.
  config.padding = std::nullopt;
  config.distanceFactor = 1;
  config.rotates.assign(size_t(config.layers), false);
  haveWindows(reader, config);
  return config;
}

std::unique_ptr<FamilyModel> galvatron::readBloom(ConfigReader &reader) {
  reader.expectArchitecture({"BloomForCausalLM", "BloomModel"});
  // Where both are there the library takes the former.
  DecoderConfig config =
      readAlibiDecoder(reader, {.widthFields = kBloomWidths,
                                .headsField = "n_head",
                                .layersField = "n_layer",
                                .positionsField = "seq_length",
                                .vocabSize = 250880,
                                .width = 64,
                                .heads = 8,
                                .layers = 2});
  config.limitsPositions = false;
  DecoderNames &names = config.names;
  names.blocks = "h.";
  names.words = "word_embeddings";
  names.embeddingNorm = "word_embeddings_layernorm";
  names.query = "self_attention.query";
  names.key = "self_attention.key";
  names.value = "self_attention.value";
  names.fusedHeads = "self_attention.query_key_value";
  names.outputProduct = "self_attention.dense";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  names.finalNorm = "ln_f";
  config.fusedByKeyHead = true;
  config.norm = DecoderConfig::Norm::Layer;
  config.embeddingNorm = true;
  config.innerKind = DecoderConfig::Inner::TanhGelu;
  reader.have("hidden_act", "gelu_new");
  config.projectionBias = config.outputBias = config.innerBias = true;
  haveBiases(reader, config);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("hidden_dropout", 0);
  expectNoChoice(reader, "apply_residual_connection_post_layernorm", false);
  // How others compute the same.
  reader.passOver({"slow_but_exact", "masked_softmax_fusion",
                   "bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv",
                   "offset_alibi", "unk_token_id"});
  return makeDecoder(std::move(config));
}

/// Reads `attn_config`: the dropout of scores, which is that of what both
/// halves add as well, and the factor of scores.
static void readMptAttention(ConfigReader &reader, DecoderConfig &config) {
  const llvm::json::Object *object = reader.nested("attn_config");
  if (!object)
    return;
  ConfigReader attention = reader.nestedReader("attn_config", *object);
  attention.expectPlain("attn_type", "multihead_attention");
  config.clip = attention.positiveNumberOrNull("clip_qkv").value_or(0);
  attention.expectPlain("prefix_lm", false);
  attention.expectPlain("qk_ln", false);
  attention.expectPlain("attn_uses_sequence_id", false);
  attention.expectPlain("alibi", true);
  attention.expectPlain("alibi_bias_max", 8);
  attention.passOver("attn_impl");
  // The library wrote it of every part of a configuration.
  attention.passOver("tie_word_embeddings");
  double dropout = attention.probabilityOr("attn_pdrop", 0);
  config.attentionDropout = config.outputDropout = config.innerDropout =
      dropout;
  if (auto scale = attention.positiveNumberOrNull("softmax_scale"))
    config.attentionScale = *scale;
  reader.finishNested(attention);
}

std::unique_ptr<FamilyModel> galvatron::readMpt(ConfigReader &reader) {
  reader.expectArchitecture({"MptForCausalLM", "MptModel", "MPTForCausalLM"});
  DecoderConfig config =
      readAlibiDecoder(reader, {.widthFields = kMptWidths,
                                .headsField = "n_heads",
                                .layersField = "n_layers",
                                .positionsField = "max_seq_len",
                                .vocabSize = 50368,
                                .width = 2048,
                                .heads = 16,
                                .layers = 24});
  DecoderNames &names = config.names;
  names.blocks = "blocks.";
  names.words = "wte";
  names.query = "attn.query";
  names.key = "attn.key";
  names.value = "attn.value";
  names.fusedHeads = "attn.Wqkv";
  names.outputProduct = "attn.out_proj";
  names.attentionNorm = "norm_1";
  names.innerNorm = "norm_2";
  names.up = "ffn.up_proj";
  names.down = "ffn.down_proj";
  names.finalNorm = "norm_f";
  config.norm = DecoderConfig::Norm::LayerWithoutBias;
  config.innerKind = DecoderConfig::Inner::Gelu;
  reader.have("hidden_act", "gelu");
  haveBiases(reader, config);
  readMptAttention(reader, config);
  reader.expectPlain("expansion_ratio", 4);
  reader.expectPlain("no_bias", true, "biases are not supported");
  reader.expectPlain("logit_scale", nullptr);
  reader.expectPlain("embedding_fraction", 1.0);
  for (llvm::StringRef field : {"resid_pdrop", "emb_pdrop"})
    reader.expectPlain(field, 0, "the library drops nothing there");
  // Of the first files' own code; positions are not learnt beside ALiBi.
  reader.passOver({"norm_type", "learned_pos_emb", "init_device", "init_config",
                   "verbose"});
  return makeDecoder(std::move(config));
}
