//===- Llama.cpp - LLaMA, Mistral, Qwen 2 and Qwen 3 ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoders with RMS norms before both halves of a block, rotary embedding,
// grouped heads and a gated feed-forward network: LLaMA (Touvron et al., arXiv
// 2302.13971), Mistral, Qwen 2 and Qwen 3. Defaults are those that the
// `transformers` library has for the type.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

namespace {

struct Type {
  llvm::StringLiteral modelType, architecture, bareArchitecture;
  DecoderDefaults defaults;
};
const Type kTypes[] = {
    {"llama",
     "LlamaForCausalLM",
     "LlamaModel",
     {32000, 4096, 11008, 32, 32, /*keyHeads=*/0, /*headSize=*/0, 2048}},
    {"mistral",
     "MistralForCausalLM",
     "MistralModel",
     {32000, 4096, 14336, 32, 32, /*keyHeads=*/8, /*headSize=*/0, 131072}},
    {"qwen2",
     "Qwen2ForCausalLM",
     "Qwen2Model",
     {151936, 4096, 22016, 32, 32, /*keyHeads=*/32, /*headSize=*/0, 32768}},
    {"qwen3",
     "Qwen3ForCausalLM",
     "Qwen3Model",
     {151936, 4096, 22016, 32, 32, /*keyHeads=*/32, /*headSize=*/128, 32768}}};

void readTypesBiases(ConfigReader &reader, DecoderConfig &config) {
  bool llama = config.modelType == "llama";
  if (llama) {
    readBiases(reader, config);
  } else if (config.modelType == "qwen3") {
    config.projectionBias = config.outputBias =
        reader.booleanOr("attention_bias", false);
    expectNoChoice(reader, "mlp_bias", false);
    haveBiases(reader, config);
  } else {
    expectNoChoice(reader, "attention_bias", false);
    expectNoChoice(reader, "mlp_bias", false);
    config.projectionBias = config.modelType == "qwen2";
  }
}

void readTypesWindows(ConfigReader &reader, DecoderConfig &config) {
  if (config.modelType == "llama") {
    expectNoWindows(reader, config);
  } else if (config.modelType == "mistral") {
    // All layers alike; the library passes a list over.
    std::optional<int64_t> window =
        reader.positiveOrNull("sliding_window", int64_t(4096));
    config.windows.assign(size_t(config.layers), window.value_or(0));
    llvm::json::Array types;
    for (int64_t layer = 0; layer < config.layers; ++layer)
      types.push_back(window ? "sliding_attention" : "full_attention");
    reader.expectForeign("layer_types", std::move(types),
                         "'mistral' has the same window on all layers");
    reader.have("use_sliding_window", window.has_value());
  } else {
    // Windows from some layer on.
    int64_t from = reader.countOr("max_window_layers", 28);
    readSwitchedWindows(reader, config, int64_t(4096),
                        [&](int64_t layer) { return layer >= from; });
  }
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readLlama(ConfigReader &reader) {
  const Type &type = *llvm::find_if(kTypes, [&](const Type &entry) {
    return entry.modelType == reader.getModelType();
  });
  reader.expectArchitecture({type.architecture, type.bareArchitecture});
  DecoderConfig config = readDecoder(reader, type.defaults);
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-6);
  if (config.modelType == "qwen3")
    config.queryNorm = DecoderConfig::QueryNorm::Head;
  readActivation(reader, "silu", {"silu", "swish"});
  readTypesBiases(reader, config);
  readTypesWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000);
  return makeDecoder(std::move(config));
}
