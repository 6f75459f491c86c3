//===- Phi3.cpp - Phi 3 and 4 ---------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Phi 3, 3.5 and 4: LLaMA with fused rows in files and with dropout behind both
// halves; long ones divide every frequency by a factor of its own (Abdin et
// al., arXiv 2404.14219).
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace galvatron;

std::unique_ptr<FamilyModel> galvatron::readPhi3(ConfigReader &reader) {
  reader.expectArchitecture({"Phi3ForCausalLM", "Phi3Model"});
  DecoderConfig config = readDecoder(reader, {.vocabSize = 32064,
                                              .width = 3072,
                                              .inner = 8192,
                                              .layers = 32,
                                              .heads = 32,
                                              .positions = 4096,
                                              .padding = 32000});
  config.names.fusedHeads = "self_attn.qkv_proj";
  config.names.fusedInner = "mlp.gate_up_proj";
  config.normEps = reader.positiveNumberOr("rms_norm_eps", 1e-5);
  readActivation(reader, "silu", {"silu", "swish"});
  haveBiases(reader, config);
  expectNoChoice(reader, "attention_bias", false);
  config.outputDropout = config.innerDropout =
      reader.probabilityOr("resid_pdrop", 0);
  // The library reads it and does not apply it.
  reader.probabilityOr("embd_pdrop", 0);
  if (std::optional<int64_t> window =
          reader.positiveOrNull("sliding_window", std::nullopt))
    config.windows.assign(size_t(config.layers), *window);
  haveWindows(reader, config);
  config.rotary = readRotary(reader, config.headSize, config.positions,
                             /*theta=*/10000, /*usualPart=*/1,
                             /*alsoLong=*/{"su", "yarn"});
  return makeDecoder(std::move(config));
}
