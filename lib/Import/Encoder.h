//===- Encoder.h - What encoders share --------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Encoders with layer norms whose queries, keys and values are a product each,
// and whose queries see all keys: BERT, ViT. Weights are [out, in] in their
// checkpoints.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_ENCODER_H
#define GALVATRON_LIB_IMPORT_ENCODER_H

#include "ConfigReader.h"
#include "ModelBuilder.h"

#include <array>

namespace galvatron {

/// The parameters of a body, one after another.
class ParameterCursor {
public:
  explicit ParameterCursor(mlir::ValueRange parameters)
      : parameters(parameters) {}
  mlir::Value next() {
    mlir::Value value = parameters.front();
    parameters = parameters.drop_front();
    return value;
  }

private:
  mlir::ValueRange parameters;
};

/// Sizes, and the activation, of a family where its fields are absent.
struct EncoderSizes {
  int64_t width = 768, layers = 12, heads = 12, inner = 3072;
  llvm::StringRef activation = "gelu";
};

/// The fields that encoders have in common, with the defaults that the
/// `transformers` library has for all of them; those of dropout differ.
struct EncoderConfig {
  int64_t width = 0, layers = 0, heads = 0, inner = 0;
  double normEps, hiddenDropout, attentionDropout, initializerRange;
  bool tanhGelu;
  bool projectionBias = true; ///< of queries, keys and values

  static EncoderConfig read(ConfigReader &reader, double dropout,
                            const EncoderSizes &defaults = {});
  /// The fields that say nothing of sizes; sizes are 0.
  static EncoderConfig readCommon(ConfigReader &reader, double normEps,
                                  double dropout,
                                  llvm::StringRef activation = "gelu");
  /// Reads which GELU the feed-forward has; `fallback` where `field` is absent.
  void readActivation(ConfigReader &reader, llvm::StringRef field,
                      llvm::StringRef fallback);

  Initial normal() const { return Initial::normal(initializerRange); }

  // Parameters, each list in the order in which the function of its name takes
  // them.

  void addNorm(BodyParameters &list, const llvm::Twine &name) const;
  /// A product from `in` to `out` and its bias; `factor` is what the outputs
  /// carry.
  void addDense(BodyParameters &list, const llvm::Twine &name, int64_t out,
                int64_t in, llvm::StringRef factor = "",
                llvm::StringRef contracted = "") const;
  /// `prefix` stands in front of `query`, `key` and `value`.
  void addAttention(BodyParameters &list, llvm::StringRef prefix) const;
  void addFeedForward(BodyParameters &list) const;

  mlir::Value norm(ModelBuilder &builder, mlir::Value x,
                   ParameterCursor &parameters) const {
    return norm(builder, x, parameters, normEps);
  }
  mlir::Value norm(ModelBuilder &builder, mlir::Value x,
                   ParameterCursor &parameters, double eps) const;
  mlir::Value dense(ModelBuilder &builder, mlir::Value x, int64_t out,
                    ParameterCursor &parameters) const;
  /// Queries, keys and values, [.., heads, head size].
  std::array<mlir::Value, 3> projections(ModelBuilder &builder, mlir::Value x,
                                         ParameterCursor &parameters) const;
  /// Scale and dropout of attention in which every query sees all keys.
  AttentionOptions attentionOptions() const;
  /// `mask` may be null.
  mlir::Value attention(ModelBuilder &builder, mlir::Value x, mlir::Value mask,
                        ParameterCursor &parameters) const;
  mlir::Value feedForward(ModelBuilder &builder, mlir::Value x,
                          ParameterCursor &parameters) const;
};

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_ENCODER_H
