//===- Gpt2.h - The GPT-2 family --------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_GPT2_H
#define GALVATRON_LIB_IMPORT_GPT2_H

#include "galvatron/Import/HuggingFace.h"

namespace galvatron {

/// The fields of a GPT-2 configuration that change the model, with the defaults
/// of the `transformers` library. Fields without a default must be given.
struct Gpt2Config {
  int64_t vocabSize = 0;
  int64_t positions = 0; ///< n_positions
  int64_t width = 0;     ///< n_embd
  int64_t layers = 0;    ///< n_layer
  int64_t heads = 0;     ///< n_head
  int64_t inner = 0;     ///< n_inner; 4 * n_embd if null or absent
  bool tanhGelu = true;  ///< activation_function
  double layerNormEps = 1e-5;
  double residualDropout = 0.1, embeddingDropout = 0.1, attentionDropout = 0.1;
  double initializerRange = 0.02;
  bool scaleAttention = true;
  bool tied = true; ///< tie_word_embeddings

  static llvm::Expected<Gpt2Config> parse(const llvm::json::Value &value,
                                          llvm::StringRef fileName);
};

/// Builds the module: embedding, `layers` blocks that share one body, and the
/// head with the loss.
mlir::OwningOpRef<mlir::ModuleOp>
buildGpt2(const Gpt2Config &config, int64_t seqLen, mlir::Type elementType,
          llvm::StringRef configText, mlir::MLIRContext &context);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_GPT2_H
