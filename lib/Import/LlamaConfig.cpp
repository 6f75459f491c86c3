//===- LlamaConfig.cpp - Reads LLaMA and its like -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

#include "galvatron/Dialect/NN/IR/NN.h"

using namespace galvatron;

namespace {

/// What an absent field means, by model type.
struct Defaults {
  llvm::StringLiteral modelType, architecture, bareArchitecture;
  int64_t inner, positions, vocabSize;
  int64_t keyHeads; ///< 0: as many as heads
  int64_t headSize; ///< 0: width / heads
  double normEps;
};
constexpr Defaults kDefaults[] = {
    {"llama", "LlamaForCausalLM", "LlamaModel", 11008, 2048, 32000, 0, 0, 1e-6},
    {"mistral", "MistralForCausalLM", "MistralModel", 14336, 131072, 32000, 8,
     0, 1e-6},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2Model", 22016, 32768, 151936, 32, 0,
     1e-6},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3Model", 22016, 32768, 151936, 32, 128,
     1e-6}};

void readBiases(ConfigReader &reader, LlamaConfig &config) {
  bool llama = config.modelType == "llama", qwen2 = config.modelType == "qwen2";
  bool attention = false;
  if (llama || config.modelType == "qwen3")
    attention = reader.booleanOr("attention_bias", false);
  else
    reader.expectForeign("attention_bias", false,
                         "'" + config.modelType + "' has no such choice");
  if (llama)
    config.innerBias = reader.booleanOr("mlp_bias", false);
  else
    reader.expectForeign("mlp_bias", false,
                         "'" + config.modelType + "' has no such choice");
  config.projectionBias = attention || qwen2;
  config.outputBias = attention;
  if (llama || config.modelType == "qwen3") {
    reader.have("qkv_bias", config.projectionBias);
    reader.have("o_bias", config.outputBias);
    reader.have("mlp_bias", config.innerBias);
    if (attention == config.innerBias)
      reader.have("all_biases", attention);
  }
}

/// Qwen has windows from some layer on, or as a list says, and only if they are
/// switched on.
void readQwenWindows(ConfigReader &reader, LlamaConfig &config) {
  bool use = reader.booleanOr("use_sliding_window", false);
  std::optional<int64_t> window =
      reader.positiveOrNull("sliding_window", int64_t(4096));
  int64_t from = reader.countOr("max_window_layers", 28);
  auto types = reader.strings("layer_types");
  if (types && int64_t(types->size()) != config.layers) {
    reader.fail("layer_types",
                "expected one entry for each of " + llvm::Twine(config.layers) +
                    " layers, found " + llvm::Twine(types->size()));
    return;
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    bool slides = use && window && layer >= from;
    if (types) {
      const std::string &type = (*types)[size_t(layer)];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention")
        reader.fail("layer_types", "expected 'full_attention' or "
                                   "'sliding_attention', found '" +
                                       type + "'");
      if (slides && !use)
        reader.fail("use_sliding_window", "expected true where 'layer_types' "
                                          "has 'sliding_attention', found "
                                          "false");
      if (slides && !window)
        reader.fail("sliding_window", "expected a number where 'layer_types' "
                                      "has 'sliding_attention', found null");
    }
    if (slides)
      config.windows[size_t(layer)] = window.value_or(0);
  }
}

/// The windows as a list of kinds of layers.
llvm::json::Array layerTypes(const LlamaConfig &config) {
  llvm::json::Array types;
  for (int64_t window : config.windows)
    types.push_back(window ? "sliding_attention" : "full_attention");
  return types;
}

void readWindows(ConfigReader &reader, LlamaConfig &config) {
  config.windows.assign(size_t(config.layers), 0);
  if (config.modelType == "mistral") {
    // All layers alike; the library passes a list over.
    std::optional<int64_t> window =
        reader.positiveOrNull("sliding_window", int64_t(4096));
    std::fill(config.windows.begin(), config.windows.end(), window.value_or(0));
    reader.expectForeign("layer_types", layerTypes(config),
                         "'mistral' has the same window on all layers");
    reader.have("use_sliding_window", window.has_value());
  } else if (config.modelType != "llama") {
    readQwenWindows(reader, config);
  } else {
    // A size says nothing where windows are switched off.
    if (!reader.says("use_sliding_window", false))
      reader.expectForeign("sliding_window", nullptr, "'llama' has no windows");
    reader.have("layer_types", layerTypes(config));
  }
}

} // namespace

LlamaConfig LlamaConfig::read(ConfigReader &reader) {
  LlamaConfig config = {};
  config.modelType = reader.getModelType().str();
  const Defaults &defaults =
      *llvm::find_if(kDefaults, [&](const Defaults &entry) {
        return entry.modelType == reader.getModelType();
      });
  reader.expectArchitecture({defaults.architecture, defaults.bareArchitecture});
  config.vocabSize = reader.positiveOr("vocab_size", defaults.vocabSize);
  config.positions =
      reader.positiveOr("max_position_embeddings", defaults.positions);
  config.width = reader.positiveOr("hidden_size", 4096);
  config.layers = reader.positiveOr("num_hidden_layers", 32);
  config.inner = reader.positiveOr("intermediate_size", defaults.inner);
  config.heads = reader.positiveOr("num_attention_heads", 32);
  int64_t keyHeads = defaults.keyHeads ? defaults.keyHeads : config.heads;
  // Null means as many as heads, absent what the type has.
  config.keyHeads = reader.positiveOrNull("num_key_value_heads", keyHeads)
                        .value_or(config.heads);
  std::optional<int64_t> headSize;
  if (defaults.headSize)
    headSize = defaults.headSize;
  headSize = reader.positiveOrNull("head_dim", headSize);
  config.headSize = headSize.value_or(config.width / config.heads);
  reader.have("num_key_value_heads", config.keyHeads);
  reader.have("head_dim", config.headSize);
  config.normEps = reader.positiveNumberOr("rms_norm_eps", defaults.normEps);
  config.attentionDropout = reader.probabilityOr("attention_dropout", 0);
  config.initializerRange = reader.positiveNumberOr("initializer_range", 0.02);
  config.tied = reader.booleanOr("tie_word_embeddings", false);
  config.headNorms = config.modelType == "qwen3";

  std::string activation = reader.stringOr("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    reader.fail("hidden_act",
                "unsupported activation '" + activation + "', expected 'silu'");
  // The library asks it of llama even where `head_dim` says another size.
  if ((!headSize || config.modelType == "llama") && config.width % config.heads)
    reader.fail("hidden_size", "expected a multiple of 'num_attention_heads' "
                               "= " +
                                   llvm::Twine(config.heads) +
                                   reader.found("hidden_size", config.width));
  if (config.heads % config.keyHeads)
    reader.fail("num_attention_heads",
                "expected a multiple of 'num_key_value_heads' = " +
                    llvm::Twine(config.keyHeads) +
                    reader.found("num_attention_heads", config.heads));
  llvm::StringRef sizeField =
      reader.has("head_dim") ? "head_dim" : "hidden_size";
  if (config.headSize % 2 || config.headSize > 2 * mlir::nn::kMostRotaryPairs)
    reader.fail(sizeField,
                "expected heads of an even number of elements up to " +
                    llvm::Twine(2 * mlir::nn::kMostRotaryPairs) + ", found " +
                    llvm::Twine(config.headSize));
  config.padding =
      reader.paddingToken(/*fallback=*/std::nullopt, config.vocabSize);
  reader.expectPlain("quantization_config", nullptr);
  readBiases(reader, config);
  readWindows(reader, config);
  config.rotary = readRotary(reader, std::max<int64_t>(config.headSize, 2),
                             config.positions, /*theta=*/10000);
  return config;
}
