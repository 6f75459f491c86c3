//===- Llama.h - LLaMA and its like -----------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_LLAMA_H
#define GALVATRON_LIB_IMPORT_LLAMA_H

#include "ConfigReader.h"
#include "Rotary.h"

#include <vector>

namespace galvatron {

/// The fields that change a model of `llama`, `mistral`, `qwen2` or `qwen3`,
/// with the defaults that the `transformers` library has for its type.
struct LlamaConfig {
  std::string modelType;
  int64_t vocabSize, positions, width, layers, inner;
  int64_t heads, keyHeads, headSize;
  double normEps, attentionDropout, initializerRange;
  bool tied;
  std::optional<int64_t> padding; ///< its row gets no gradient from the lookup
  /// Biases of the projections to queries, keys and values; of the one back; of
  /// the feed-forward network's.
  bool projectionBias, outputBias, innerBias;
  bool headNorms; ///< queries and keys are normalised head by head
  Rotary rotary;
  /// Keys that a query sees, by layer; 0: all behind it.
  std::vector<int64_t> windows;

  static LlamaConfig read(ConfigReader &reader);
};

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_LLAMA_H
