//===- SmolLM3.cpp - SmolLM3 ----------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLaMA's blocks, some of which do not rotate queries and keys; those alone may
// have windows.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

/// Reads `no_rope_layers`, which has 1 for layers that rotate; absent, every
/// `no_rope_layer_interval`-th does not.
static std::vector<bool> readRotatedLayers(ConfigReader &reader,
                                           int64_t layers) {
  int64_t interval = reader.positiveOr("no_rope_layer_interval", 4);
  std::vector<bool> rotates;
  auto listed = reader.flags("no_rope_layers");
  if (listed && int64_t(listed->size()) < layers) {
    reader.fail("no_rope_layers", "expected an entry for each of " +
                                      llvm::Twine(layers) + " layers, found " +
                                      llvm::Twine(listed->size()));
    listed.reset();
  }
  for (int64_t layer = 0; layer < layers; ++layer)
    rotates.push_back(listed ? (*listed)[size_t(layer)]
                             : (layer + 1) % interval != 0);
  return rotates;
}

std::unique_ptr<FamilyModel> galvatron::readSmolLM3(ConfigReader &reader) {
  reader.expectArchitecture({"SmolLM3ForCausalLM", "SmolLM3Model"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 128256,
                                              .width = 2048,
                                              .inner = 11008,
                                              .layers = 36,
                                              .heads = 16,
                                              .keyHeads = 4,
                                              .positions = 32768,
                                              .tied = true,
                                              .padding = 128004});
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-6);
  readActivation(reader, "silu", {"silu", "swish"});
  readBiases(reader, config);
  config.rotates = readRotatedLayers(reader, config.layers);
  readSwitchedWindows(
      reader, config, /*usualWindow=*/std::nullopt,
      [&](int64_t layer) { return !config.rotates[size_t(layer)]; });
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/2000000);
  return makeDecoder(std::move(config));
}
