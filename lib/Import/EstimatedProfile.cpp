//===- EstimatedProfile.cpp - Layers of families that cannot be imported --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a transformer costs follows from a handful of its sizes, which nearly
// all configurations give under one of a few names. That is enough to plan for
// a family before it can be executed.
//
//===----------------------------------------------------------------------===//

#include "Family.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/FormatVariadic.h"

using namespace galvatron;

namespace {

using Names = ConfigReader::Names;

/// Fields that say that a model is no stack of equal transformer blocks over
/// one sequence of tokens: what follows would be an estimate of another model.
constexpr llvm::StringLiteral kForeignFields[] = {
    "image_size",       "vision_config",     "text_config",
    "audio_config",     "encoder_layers",    "num_decoder_layers",
    "decoder_layers",   "num_experts",       "num_local_experts",
    "n_routed_experts", "moe_num_experts",   "state_size",
    "ssm_cfg",          "layers_block_type", "conv_dim",
    "decoder_config",   "num_conv_layers",   "attn_layer_period"};

/// The sizes of a block, in elements.
struct Sizes {
  int64_t hidden = 0, layers = 0, queries = 0, keys = 0, inner = 0;
  int64_t vocabulary = 0, positions = 0;
  bool gated = false;
};

/// The first of several names that is there and not null.
llvm::StringRef present(const llvm::json::Object &object, Names names) {
  for (llvm::StringLiteral name : names)
    if (const llvm::json::Value *value = object.get(name);
        value && !value->getAsNull())
      return name;
  return {};
}

Sizes readSizes(const llvm::json::Object &object, ConfigReader &reader) {
  auto sizeOr = [&](Names names, int64_t fallback) {
    llvm::StringRef name = present(object, names);
    return name.empty() ? fallback : reader.positive(name);
  };
  auto size = [&](Names names) {
    if (present(object, names).empty()) {
      reader.fail(names.front(), "missing");
      return int64_t(1);
    }
    return sizeOr(names, 1);
  };
  Sizes sizes;
  sizes.hidden = size({"hidden_size", "n_embd", "d_model", "dim"});
  sizes.layers =
      size({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  int64_t heads =
      size({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  int64_t headWidth =
      sizeOr({"head_dim"}, std::max<int64_t>(sizes.hidden / heads, 1));
  sizes.queries = heads * headWidth;
  sizes.keys =
      headWidth *
      sizeOr({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, heads);
  sizes.inner = sizeOr({"intermediate_size", "ffn_dim", "n_inner", "d_ff",
                        "ffn_hidden_size", "hidden_dim"},
                       4 * sizes.hidden);
  sizes.vocabulary = size({"vocab_size"});
  sizes.positions =
      sizeOr({"max_position_embeddings", "n_positions", "max_seq_len",
              "max_sequence_length", "seq_length", "n_ctx"},
             0);
  // Only gated feed-forwards use SiLU; few others are gated.
  llvm::StringRef activation =
      present(object, {"hidden_act", "activation_function", "hidden_activation",
                       "act_fn"});
  auto name = object.getString(activation);
  sizes.gated = name && (name->contains("silu") || name->contains("glu") ||
                         name->contains("swi"));
  return sizes;
}

llvm::json::Object profileOf(const Sizes &sizes, int64_t tokens,
                             llvm::StringRef dtype, int64_t bytes) {
  // Exact up to 2^53 and the reader's to refuse beyond its limits.
  const double h = sizes.hidden, a = sizes.queries, k = sizes.keys,
               f = sizes.inner, v = sizes.vocabulary, s = tokens;
  const double projections = sizes.gated ? 2 : 1; // into the feed-forward
  const double weights = h * (a + 2 * k) + a * h + (projections + 1) * h * f;
  auto layer =
      [](llvm::StringRef name, double count,
         std::initializer_list<std::pair<llvm::StringRef, double>> numbers) {
        llvm::json::Object entry{{"name", name}, {"count", int64_t(count)}};
        for (auto [key, value] : numbers)
          if (llvm::StringRef(key).contains("flops"))
            entry[key] = value;
          else
            entry[key] = int64_t(value);
        return entry;
      };
  // A token attends to those up to it, as in nearly all families that are left.
  // Kept for backward: both norms' results, q, k and v, what attention gives,
  // the sum behind it, and the feed-forward in front of and behind its
  // activation. Attention streams over the keys and keeps no scores.
  const double kept = 3 * h + 2 * a + 2 * k + (projections + 1) * f;
  // Read and written besides the products: two norms, two sums, the activation.
  const double moved = 2 * 2 * h + 2 * 3 * h + (projections + 1) * f;
  llvm::json::Array layers;
  layers.push_back(layer("embed", 1,
                         {{"forward-flops", 0},
                          {"forward-moved-bytes", 2 * s * h * bytes},
                          {"parameter-bytes", v * h * bytes},
                          {"boundary-bytes", 4 * s},
                          {"intermediate-bytes", 0}}));
  layers.push_back(
      layer("block", sizes.layers,
            {{"forward-flops", 2 * s * weights},
             {"forward-attention-flops", 2 * s * (s + 1) * a},
             {"forward-attention-bytes", s * (2 * a + 2 * k) * bytes},
             {"forward-moved-bytes", s * moved * bytes},
             {"parameter-bytes", (weights + 2 * h) * bytes},
             {"boundary-bytes", s * h * bytes},
             {"intermediate-bytes", s * kept * bytes},
             {"tp-replicated-bytes", s * 3 * h * bytes}}));
  layers.push_back(layer("head", 1,
                         {{"forward-flops", 2 * s * h * v},
                          {"forward-moved-bytes", s * (2 * h + 2 * v) * bytes},
                          {"parameter-bytes", (v * h + h) * bytes},
                          {"boundary-bytes", s * h * bytes},
                          {"intermediate-bytes", s * (h + v) * bytes},
                          {"tp-replicated-bytes", s * h * bytes}}));
  return llvm::json::Object{
      {"version", 1}, {"dtype", dtype}, {"layers", std::move(layers)}};
}

} // namespace

llvm::Expected<EstimatedProfile> galvatron::estimateHuggingFaceConfig(
    const llvm::json::Object &config, llvm::StringRef fileName,
    llvm::StringRef dtype, int64_t elementBytes, const ImportOptions &options) {
  int64_t seqLen = options.seqLen;
  llvm::StringRef modelType = config.getString("model_type").value_or("");
  ConfigReader reader(config, fileName, modelType);
  for (llvm::StringLiteral field : kForeignFields)
    if (const llvm::json::Value *value = config.get(field);
        value && !value->getAsNull())
      reader.fail(field, "'" + modelType +
                             "' can neither be executed nor estimated: "
                             "expected equal transformer blocks over one "
                             "sequence of tokens");
  if (config.getBoolean("is_encoder_decoder").value_or(false))
    reader.fail("is_encoder_decoder",
                "'" + modelType +
                    "' can neither be executed nor estimated: expected one "
                    "stack of blocks");
  Sizes sizes = readSizes(config, reader);
  if (llvm::Error error = reader.firstError())
    return error;
  if (!seqLen)
    seqLen = sizes.positions;
  if (!seqLen)
    return makeError(fileName +
                     ": field 'max_position_embeddings': missing; --seq-len "
                     "gives the tokens of a sample");
  // Limits that keep every product below exact in a double.
  constexpr int64_t kMost = int64_t(1) << 24;
  for (int64_t size : {sizes.hidden, sizes.queries, sizes.inner,
                       sizes.vocabulary, sizes.layers, seqLen})
    if (size > kMost)
      return makeError(fileName + ": expected sizes of at most " +
                       llvm::Twine(kMost) + ", found " + llvm::Twine(size));
  return EstimatedProfile{
      profileOf(sizes, seqLen, dtype, elementBytes),
      llvm::formatv(
          "'{0}' cannot be executed; planned from an estimate: {1} blocks of "
          "width {2}, queries {3}, keys {4}, {5}feed-forward {6}, {7} words, "
          "{8} tokens; causal, embedding and head not tied, no biases",
          modelType, sizes.layers, sizes.hidden, sizes.queries, sizes.keys,
          sizes.gated ? "gated " : "", sizes.inner, sizes.vocabulary, seqLen)
          .str()};
}
