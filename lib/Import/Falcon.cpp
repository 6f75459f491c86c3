//===- Falcon.cpp - Falcon ------------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Falcon, with rotation: attention and a feed-forward network without a gate
// are added together, behind one layer norm or one for each, or follow each
// other; few key heads; rows stand key head by key head in files (Almazrouei et
// al., arXiv 2311.16867). Those with biases of distance (`alibi`) are refused.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;

static std::string numberText(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", value);
  return text;
}

/// Key heads are those of `num_kv_heads` only where the architecture is the new
/// one, else one or as many as heads.
static int64_t readKeyHeads(ConfigReader &reader, bool isNew, int64_t heads) {
  bool isShared = reader.booleanOr("multi_query", true);
  int64_t given =
      reader.positiveOrNull("num_kv_heads", std::nullopt).value_or(heads);
  if (isNew)
    return given;
  if (!isShared && given != heads)
    reader.fail("num_kv_heads", "expected as many as 'num_attention_heads' = " +
                                    llvm::Twine(heads) +
                                    reader.found("num_kv_heads", given));
  return isShared ? 1 : heads;
}

std::unique_ptr<FamilyModel> galvatron::readFalcon(ConfigReader &reader) {
  using NormPlace = DecoderConfig::NormPlace;
  reader.expectArchitecture({"FalconForCausalLM", "FalconModel"});
  bool isNew = reader.booleanOr("new_decoder_architecture", false);
  int64_t heads = reader.positiveOr("num_attention_heads", 71);
  int64_t width = reader.positiveOr("hidden_size", 4544);
  int64_t inner = reader.positiveOrNull("ffn_hidden_size", std::nullopt)
                      .value_or(4 * width);
  DecoderConfig config =
      readDecoder(reader, {.vocabSize = 65024,
                           .width = width,
                           .inner = inner,
                           .layers = 32,
                           .heads = heads,
                           .keyHeads = readKeyHeads(reader, isNew, heads),
                           .positions = 2048,
                           .tied = true,
                           .readsHeadSize = false});
  bool isParallel = reader.booleanOr("parallel_attn", true) || isNew;
  int64_t norms = reader.positiveOrNull("num_ln_in_parallel_attn", std::nullopt)
                      .value_or(isNew ? 2 : 1);
  DecoderNames &names = config.names;
  if (norms != 1 && !(norms == 2 && isNew))
    reader.fail("num_ln_in_parallel_attn",
                "expected 1" + llvm::Twine(isNew ? " or 2" : "") +
                    reader.found("num_ln_in_parallel_attn", norms));
  config.place = !isParallel  ? NormPlace::Before
                 : norms == 2 ? NormPlace::BeforeBothApart
                              : NormPlace::BeforeBoth;
  if (isParallel && norms == 2) {
    names.attentionNorm = "ln_attn";
    names.innerNorm = "ln_mlp";
  }
  names.stem = "transformer.";
  names.blocks = "h.";
  names.words = "word_embeddings";
  names.finalNorm = "ln_f";
  names.query = "self_attention.query";
  names.key = "self_attention.key";
  names.value = "self_attention.value";
  names.fusedHeads = "self_attention.query_key_value";
  names.outputProduct = "self_attention.dense";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  config.fusedByKeyHead = true;
  config.norm = DecoderConfig::Norm::Layer;
  config.normEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-5);
  config.innerKind = readActivation(reader, "gelu", {"gelu"}, "activation")
                         ? DecoderConfig::Inner::TanhGelu
                         : DecoderConfig::Inner::Gelu;
  config.projectionBias = config.outputBias = config.innerBias =
      reader.booleanOr("bias", false);
  haveBiases(reader, config);
  reader.expectPlain("alibi", false, "biases of distance are not supported");
  double dropout = reader.probabilityOr("hidden_dropout", 0);
  if (isParallel && dropout > 0)
    reader.fail("hidden_dropout",
                "expected 0 where both halves are added before the dropout, "
                "found " +
                    numberText(dropout));
  // The library drops what attention adds as often as scores.
  config.outputDropout = isParallel ? 0 : config.attentionDropout;
  config.innerDropout = dropout;
  expectNoChoice(reader, "apply_residual_connection_post_layernorm", false);
  config.padding = std::nullopt;
  haveWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}
