//===- Decoder.h - Decoders of equal blocks ---------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Most decoders differ in the same few places: which norm stands where, what
// rotates queries and keys, whether the feed-forward has a gate, which products
// have biases, what is scaled. A family's page reads its fields into one
// description; the model is written from that alone.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_DECODER_H
#define GALVATRON_LIB_IMPORT_DECODER_H

#include "Family.h"
#include "Rotary.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <vector>

namespace galvatron {

/// Names of parameters in checkpoints. Those of the table of words, of a block
/// and of the last norm stand behind `stem`, those of block N then behind
/// `blocks` and "N."; ".weight" or ".bias" stands behind all.
struct DecoderNames {
  llvm::StringLiteral stem = "model.";
  llvm::StringLiteral blocks = "layers.";
  llvm::StringLiteral words = "embed_tokens";
  llvm::StringLiteral positions = "embed_positions";
  llvm::StringLiteral embeddingNorm = "embed_norm";
  llvm::StringLiteral head = "lm_head";
  llvm::StringLiteral query = "self_attn.q_proj";
  llvm::StringLiteral key = "self_attn.k_proj";
  llvm::StringLiteral value = "self_attn.v_proj";
  /// The tensor of files that has the three of them; empty: they are apart.
  llvm::StringLiteral fusedHeads = "";
  /// The tensor of files that has `gate` and then `up`; empty: they are apart.
  llvm::StringLiteral fusedInner = "";
  llvm::StringLiteral attentionNorm = "input_layernorm";
  llvm::StringLiteral innerNorm = "post_attention_layernorm";
  /// Norms behind the halves, where there are some before them as well.
  llvm::StringLiteral attentionNormBehind = "";
  llvm::StringLiteral innerNormBehind = "";
  llvm::StringLiteral outputProduct = "self_attn.o_proj";
  llvm::StringLiteral gate = "mlp.gate_proj";
  llvm::StringLiteral up = "mlp.up_proj";
  llvm::StringLiteral down = "mlp.down_proj";
  llvm::StringLiteral finalNorm = "norm";
  /// A product in front of the head's, with a GELU and a norm behind it; empty:
  /// there is none.
  llvm::StringLiteral headProduct = "";
  llvm::StringLiteral headNorm = "";
};

/// A decoder with a table of words, blocks of attention and feed-forward, a
/// last norm and a head.
struct DecoderConfig {
  std::string modelType;
  DecoderNames names;

  // Sizes.
  int64_t vocabSize, positions, width, layers, inner;
  int64_t heads, keyHeads, headSize;

  /// The field that says how long sequences may be, and whether they may be no
  /// longer.
  llvm::StringLiteral positionsField = "max_position_embeddings";
  bool limitsPositions = true;

  /// Whether a query sees no key behind it. Else it sees all that are no
  /// padding, and the labels are words that are hidden from the model.
  bool causal = true;

  /// All norms but those of queries and keys: by the root of the mean square
  /// with a weight, layer norms with weight and bias, with a weight alone, or
  /// with neither.
  enum class Norm { RMS, Layer, LayerWithoutBias, Plain } norm = Norm::RMS;
  double normEps;
  bool unitOffset = false; ///< RMS norms scale by one more than their weight
  /// The places of the norms of a block: one before each half; one before both
  /// halves, which read the same values and are added together; one before each
  /// half, of which both read the block's input and are added together; one
  /// behind each half; one before and one behind each.
  enum class NormPlace {
    Before,
    BeforeBoth,
    BeforeBothApart,
    Behind,
    Around
  } place = NormPlace::Before;
  /// Whether the first block has a norm before attention, as the others.
  bool normsFirst = true;
  /// Norms of queries and keys: none, RMS head by head with one weight for all
  /// heads, RMS over all heads at once, or layer norms head by head, without a
  /// bias and with a weight for each head.
  enum class QueryNorm {
    None,
    Head,
    Whole,
    EachHead
  } queryNorm = QueryNorm::None;

  enum class Inner {
    GatedSilu,
    GatedTanhGelu,
    GatedGelu,
    Gelu,
    TanhGelu,
    Relu
  } innerKind = Inner::GatedSilu;
  bool gated() const {
    return innerKind == Inner::GatedSilu || innerKind == Inner::GatedTanhGelu ||
           innerKind == Inner::GatedGelu;
  }

  /// How rows stand in `names.fusedHeads`: those of all queries, then of all
  /// keys, then of all values, or key head by key head those of its queries, of
  /// its key and of its value.
  bool fusedByKeyHead = false;

  /// Biases of the products to queries, keys and values, of the one back, of
  /// the feed-forward's, and of the head.
  bool projectionBias = false, outputBias = false, innerBias = false,
       headBias = false;
  bool tied; ///< the head is the table of words
  bool headProductBias = false;

  /// The limit of elements of queries, keys and values; 0: none.
  double clip = 0;

  double initializerRange;
  /// The deviation at first of products back to the residual stream, where it
  /// is another.
  std::optional<double> outputRange = std::nullopt;
  std::optional<int64_t> padding; ///< its row gets no gradient from the lookup

  // Probabilities: of the embedding, of scores, of what either half adds, and
  // of the feed-forward's inner elements.
  double embeddingDropout = 0, attentionDropout = 0;
  double outputDropout = 0, innerDropout = 0, hiddenDropout = 0;

  bool embeddingNorm = false; ///< a norm behind the table of words

  // Factors: of embeddings, of scores, of what a half adds, of logits.
  double embeddingScale = 1, attentionScale, residualScale = 1, logitScale = 1;
  /// Soft caps of scaled scores and of logits; 0: none.
  double scoreCap = 0, logitCap = 0;
  /// The factor of distances times the slopes of heads (ALiBi); 0: nothing.
  double distanceFactor = 0;
  /// The factor of embeddings is rounded to their element type first.
  bool roundsEmbeddingScale = false;

  /// Rows of a learnt table of positions in front of the first position's;
  /// absent: positions are not learnt.
  std::optional<int64_t> rowsBeforePositions = std::nullopt;

  Rotary rotary; ///< of the first elements of a head, maybe of all
  /// Pairs that are rotated are neighbours, else half of what is rotated apart.
  bool interleavedRotary = false;
  /// The rotary embedding of layers with windows, where they have another.
  std::optional<Rotary> slidingRotary;
  /// Whether queries and keys are rotated, by layer; empty: in all.
  std::vector<bool> rotates;
  /// Keys that a query sees, by layer; 0: all behind it. Where attention is not
  /// causal, a window has as many to either side, its own among both.
  std::vector<int64_t> windows;
};

/// The values that absent fields have for a family. Null counts as absent but
/// for key heads, which are then as many as heads.
struct DecoderDefaults {
  int64_t vocabSize, width, inner, layers, heads;
  int64_t keyHeads = 0; ///< 0: as many as heads
  int64_t headSize = 0; ///< 0: width / heads
  int64_t positions;
  double initializerRange = 0.02;
  bool tied = false;
  std::optional<int64_t> padding = std::nullopt;
  // Whether these are fields of the family: `head_dim`, `num_key_value_heads`,
  // `intermediate_size`.
  bool readsHeadSize = true;
  bool readsKeyHeads = true;
  bool readsInner = true;
};

/// Reads and checks the fields that all these families call alike:
/// `vocab_size`, `hidden_size`, `intermediate_size`, `num_hidden_layers`,
/// `num_attention_heads`, `num_key_value_heads`, `head_dim`,
/// `max_position_embeddings`, `attention_dropout`, `initializer_range`,
/// `tie_word_embeddings`, `pad_token_id`. Scores are scaled by the root of the
/// head size, and no layer has a window.
DecoderConfig readDecoder(ConfigReader &reader,
                          const DecoderDefaults &defaults);

/// Refuses an activation that is none of `expected`; false for "gelu", the one
/// that is not by the hyperbolic tangent.
bool readActivation(ConfigReader &reader, llvm::StringRef fallback,
                    llvm::ArrayRef<llvm::StringRef> expected,
                    llvm::StringRef field = "hidden_act");

/// Reads the GELU of a feed-forward network without a gate.
DecoderConfig::Inner readGelu(ConfigReader &reader, llvm::StringRef fallback,
                              llvm::StringRef field = "hidden_act");

/// Refuses a field that other families read at another value than `plain`.
void expectNoChoice(ConfigReader &reader, llvm::StringRef field,
                    const llvm::json::Value &plain);

/// Reads `attention_bias`, which is that of all four products, and `mlp_bias`.
void readBiases(ConfigReader &reader, DecoderConfig &config);
/// Says which biases are in effect.
void haveBiases(ConfigReader &reader, const DecoderConfig &config);

/// Reads `layer_types`: whether a layer has a window; none where the field is
/// absent.
std::optional<std::vector<bool>> readSlidingLayers(ConfigReader &reader,
                                                   int64_t layers);
/// Reads windows that `use_sliding_window` switches on: in the layers that
/// `layer_types` names, else in those of `slidesByDefault`.
void readSwitchedWindows(
    ConfigReader &reader, DecoderConfig &config,
    std::optional<int64_t> usualWindow,
    llvm::function_ref<bool(int64_t layer)> slidesByDefault);
/// Reads windows of the layers that `layer_types` names, else of those of
/// `slidesByDefault`.
void readWindows(ConfigReader &reader, DecoderConfig &config,
                 std::optional<int64_t> usualWindow,
                 llvm::function_ref<bool(int64_t layer)> slidesByDefault);
/// Says which layers have windows.
void haveWindows(ConfigReader &reader, const DecoderConfig &config);
/// Refuses a window.
void expectNoWindows(ConfigReader &reader, const DecoderConfig &config);

/// The model of a description. A sequence that is no longer than a window has
/// none.
std::unique_ptr<FamilyModel> makeDecoder(DecoderConfig config);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_DECODER_H
