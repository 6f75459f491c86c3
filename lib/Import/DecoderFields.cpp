//===- DecoderFields.cpp - Fields that many decoders share ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;

/// Heads divide the width, key heads divide heads, and pairs fit a head.
static void checkHeads(ConfigReader &reader, const DecoderConfig &config,
                       bool sizeIsGiven) {
  // The library asks it of llama even where `head_dim` says another size.
  if ((!sizeIsGiven || config.modelType == "llama") &&
      config.width % config.heads)
    reader.fail("hidden_size", "expected a multiple of 'num_attention_heads' "
                               "= " +
                                   Twine(config.heads) +
                                   reader.found("hidden_size", config.width));
  if (config.heads % config.keyHeads)
    reader.fail("num_attention_heads",
                "expected a multiple of 'num_key_value_heads' = " +
                    Twine(config.keyHeads) +
                    reader.found("num_attention_heads", config.heads));
  StringRef sizeField = reader.has("head_dim") ? "head_dim" : "hidden_size";
  if (config.headSize % 2 || config.headSize > 2 * mlir::nn::kMostRotaryPairs)
    reader.fail(sizeField,
                "expected heads of an even number of elements up to " +
                    Twine(2 * mlir::nn::kMostRotaryPairs) + ", found " +
                    Twine(config.headSize));
}

DecoderConfig galvatron::readDecoder(ConfigReader &reader,
                                     const DecoderDefaults &defaults) {
  DecoderConfig config = {};
  config.modelType = reader.getModelType().str();
  config.vocabSize = reader.positiveOr("vocab_size", defaults.vocabSize);
  config.positions =
      reader.positiveOr("max_position_embeddings", defaults.positions);
  config.width = reader.positiveOr("hidden_size", defaults.width);
  config.layers = reader.positiveOr("num_hidden_layers", defaults.layers);
  config.inner = defaults.inner;
  if (defaults.readsInner)
    config.inner = reader.positiveOr("intermediate_size", defaults.inner);
  config.heads = reader.positiveOr("num_attention_heads", defaults.heads);
  config.keyHeads = defaults.keyHeads ? defaults.keyHeads : config.heads;
  // Null means as many as heads, absent what the type has.
  if (defaults.readsKeyHeads)
    config.keyHeads =
        reader.positiveOrNull("num_key_value_heads", config.keyHeads)
            .value_or(config.heads);
  reader.have("intermediate_size", config.inner);
  std::optional<int64_t> headSize;
  if (defaults.headSize)
    headSize = defaults.headSize;
  if (defaults.readsHeadSize)
    headSize = reader.positiveOrNull("head_dim", headSize);
  config.headSize = headSize.value_or(config.width / config.heads);
  reader.have("num_key_value_heads", config.keyHeads);
  reader.have("head_dim", config.headSize);
  config.attentionScale = 1 / std::sqrt(double(config.headSize));
  config.attentionDropout = reader.probabilityOr("attention_dropout", 0);
  config.initializerRange =
      reader.positiveNumberOr("initializer_range", defaults.initializerRange);
  config.tied = reader.booleanOr("tie_word_embeddings", defaults.tied);
  checkHeads(reader, config, headSize.has_value());
  config.padding = reader.paddingToken(defaults.padding, config.vocabSize);
  reader.expectPlain("quantization_config", nullptr);
  config.windows.assign(size_t(config.layers), 0);
  return config;
}

bool galvatron::readActivation(ConfigReader &reader, StringRef fallback,
                               llvm::ArrayRef<StringRef> expected,
                               StringRef field) {
  std::string activation = reader.stringOr(field, fallback);
  if (llvm::is_contained(expected, activation))
    return activation != "gelu";
  std::string words;
  for (auto [index, name] : llvm::enumerate(expected)) {
    if (index)
      words += index + 1 == expected.size() ? " or " : ", ";
    words += ("'" + name + "'").str();
  }
  reader.fail(field,
              "unsupported activation '" + activation + "', expected " + words);
  return false;
}

DecoderConfig::Inner galvatron::readGelu(ConfigReader &reader,
                                         StringRef fallback, StringRef field) {
  bool tanh = readActivation(
      reader, fallback, {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu"},
      field);
  return tanh ? DecoderConfig::Inner::TanhGelu : DecoderConfig::Inner::Gelu;
}

void galvatron::expectNoChoice(ConfigReader &reader, StringRef field,
                               const llvm::json::Value &plain) {
  reader.expectForeign(field, plain,
                       "'" + reader.getModelType() + "' has no such choice");
}

void galvatron::readBiases(ConfigReader &reader, DecoderConfig &config) {
  bool attention = reader.booleanOr("attention_bias", false);
  config.projectionBias = config.outputBias = attention;
  config.innerBias = reader.booleanOr("mlp_bias", false);
  haveBiases(reader, config);
}

void galvatron::haveBiases(ConfigReader &reader, const DecoderConfig &config) {
  reader.have("qkv_bias", config.projectionBias);
  reader.have("o_bias", config.outputBias);
  reader.have("mlp_bias", config.innerBias);
  if (config.projectionBias == config.innerBias &&
      config.outputBias == config.innerBias)
    reader.have("all_biases", config.innerBias);
}

std::optional<std::vector<bool>>
galvatron::readSlidingLayers(ConfigReader &reader, int64_t layers) {
  auto types = reader.strings("layer_types");
  if (!types)
    return std::nullopt;
  std::vector<bool> slides(size_t(layers), false);
  if (int64_t(types->size()) != layers) {
    reader.fail("layer_types", "expected one entry for each of " +
                                   Twine(layers) + " layers, found " +
                                   Twine(types->size()));
    return slides;
  }
  for (auto [index, type] : llvm::enumerate(*types)) {
    slides[index] = type == "sliding_attention";
    if (!slides[index] && type != "full_attention")
      reader.fail("layer_types", "expected 'full_attention' or "
                                 "'sliding_attention', found '" +
                                     type + "'");
  }
  return slides;
}

/// Sets the windows; none stands for a window of no size.
static void setWindows(ConfigReader &reader, DecoderConfig &config,
                       std::optional<int64_t> window,
                       const std::optional<std::vector<bool>> &listed,
                       llvm::function_ref<bool(int64_t layer)> slides) {
  if (listed && llvm::is_contained(*listed, true) && !window)
    reader.fail("sliding_window", "expected a number where 'layer_types' has "
                                  "'sliding_attention', found null");
  for (int64_t layer = 0; layer < config.layers; ++layer)
    if (listed ? (*listed)[size_t(layer)] : slides(layer))
      config.windows[size_t(layer)] = window.value_or(0);
}

void galvatron::readWindows(
    ConfigReader &reader, DecoderConfig &config,
    std::optional<int64_t> usualWindow,
    llvm::function_ref<bool(int64_t layer)> slidesByDefault) {
  std::optional<int64_t> window =
      reader.positiveOrNull("sliding_window", usualWindow);
  auto listed = readSlidingLayers(reader, config.layers);
  if (!listed && !window)
    reader.fail("sliding_window", "expected a number, found null");
  setWindows(reader, config, window, listed, slidesByDefault);
  reader.have("use_sliding_window", true);
  haveWindows(reader, config);
}

void galvatron::readSwitchedWindows(
    ConfigReader &reader, DecoderConfig &config,
    std::optional<int64_t> usualWindow,
    llvm::function_ref<bool(int64_t layer)> slidesByDefault) {
  bool use = reader.booleanOr("use_sliding_window", false);
  std::optional<int64_t> window =
      reader.positiveOrNull("sliding_window", usualWindow);
  auto listed = readSlidingLayers(reader, config.layers);
  if (listed && llvm::is_contained(*listed, true) && !use)
    reader.fail("use_sliding_window", "expected true where 'layer_types' has "
                                      "'sliding_attention', found false");
  setWindows(reader, config, window, listed, [&](int64_t layer) {
    return use && window && slidesByDefault(layer);
  });
}

void galvatron::haveWindows(ConfigReader &reader, const DecoderConfig &config) {
  llvm::json::Array types;
  for (int64_t window : config.windows)
    types.push_back(window ? "sliding_attention" : "full_attention");
  reader.have("layer_types", std::move(types));
}

void galvatron::expectNoWindows(ConfigReader &reader,
                                const DecoderConfig &config) {
  // A size says nothing where windows are switched off.
  if (!reader.says("use_sliding_window", false))
    reader.expectForeign("sliding_window", nullptr,
                         "'" + reader.getModelType() + "' has no windows");
  haveWindows(reader, config);
}
